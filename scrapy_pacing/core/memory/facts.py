"""Recording and recalling what is known of a site, one fact at a time, without touching the disk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import msgspec

from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.lessons import EVIDENCE, Learned

from . import records, texts
from .records import Clearance, Cookie, Fact, Hold, Limits, Number, Pace, Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy_pacing.core.clock import Clock

    from .shelf import Shelf

# Learning the same again within this time is no news, and no reason to write the file.
_NEWS_AFTER = 60.0

_F = TypeVar("_F", bound=Fact)


class Facts:
    """What is known of sites.

    Methods that take an ``origin`` use it as it is (`origin_key` makes one). Methods that take a ``url`` keep a fact of
    that page, under the URL's own origin. Nothing here raises because of what a server sent: what can't be kept (too
    long, not of http, no finite number) is not kept, and methods that return a bool say so.
    """

    _shelf: Shelf
    _clock: Clock
    _limits: Limits
    _forget_after: float

    def __len__(self) -> int:
        """Return the number of origins of which something is known."""
        return len(self._shelf)

    def origins(self) -> list[str]:
        """Return the origins of which something is known, the least recently seen first."""
        return self._shelf.origins()

    # -- visits -------------------------------------------------------------------------------------------------------

    def record_visit(self, origin: str, *, warmed: bool = False) -> None:
        """Note that an origin is visited now; ``warmed``: through its front door."""
        if not is_key(origin):
            return
        with self._shelf.guard:
            self._shelf.touch(origin)
            if warmed:
                self._shelf.edit(origin).warmed = self._clock.wall()
        self._changed()

    def last_seen(self, origin: str) -> float | None:
        """Return when an origin was last visited or learned about, or None."""
        with self._shelf.guard:
            return self._shelf.seen(origin)

    def last_warmed(self, origin: str) -> float | None:
        """Return when an origin was last visited through its front door, or None."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            return (min(record.warmed, self._clock.wall()) if record else 0.0) or None

    # -- pace: the `Lessons` of a pacer -------------------------------------------------------------------------------

    def recall(self, origin: str) -> Learned | None:
        """Return the learned interval of an origin and a hold that has not ended, or None."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            if record is None:
                return None
            pace, hold = record.pace, record.hold
        now = self._clock.wall()
        hold = records.settled_hold(hold, now)
        until, asked = (hold.until, hold.asked) if hold is not None and hold.until > now else (0.0, 0.0)
        if pace is None:
            return Learned(0.0, until, asked) if until else None
        evidence = {name: getattr(pace, name) for name in EVIDENCE}
        return Learned(pace.interval, until, asked, **evidence)

    def record(self, origin: str, learned: Learned) -> None:
        """Keep the interval and the hold of an origin. A hold that is known already is never shortened."""
        evidence = {name: getattr(learned, name) for name in EVIDENCE}
        now = self._clock.wall()
        pace = Pace(now, float(learned.interval), **evidence)
        are_numbers = math.isfinite(learned.hold_until) and math.isfinite(learned.asked)
        if not is_key(origin) or not are_numbers or not records.is_kept_pace(pace):
            return
        with self._shelf.guard:
            record = self._shelf.edit(origin)
            old = record.pace
            widened, eased = (old.widened, old.eased) if old else (0, 0)
            if old is None or learned.interval > old.interval:
                widened += 1
            elif learned.interval < old.interval:
                eased += 1
            record.pace = msgspec.structs.replace(pace, widened=widened, eased=eased)
            until = min(float(learned.hold_until), now + records.LONGEST_HOLD)
            known = records.settled_hold(record.hold, now)
            if until > now and (known is None or until > known.until):
                record.hold = Hold(now, until, float(learned.asked))
                self._shelf.note_hold(origin, until)
        self._changed()

    def pace(self, origin: str) -> Pace | None:
        """Return the learned interval of an origin with what supports it, or None."""
        with self._shelf.guard:
            record = self._shelf.find(origin)
            return None if record is None else record.pace

    # -- what bound, and what worked ----------------------------------------------------------------------------------

    def record_layer(self, origin: str, layer: Layer | int | None) -> None:
        """Keep which layer was found binding; None, or a number that is no layer: none that is known."""
        known = Layer.of(layer)
        value = None if known is None else int(known)
        self._record_fact(origin, "layer", Number(self._clock.wall(), value))

    def layer(self, origin: str) -> Layer | None:
        """Return the layer last found binding, or None."""
        fact = self._fact(origin, "layer", Number)
        return None if fact is None else Layer.of(fact.value)

    def record_tier(self, origin: str, tier: str | None) -> None:
        """Keep which way of fetching worked."""
        self._record_text(origin, "tier", tier)

    def tier(self, origin: str) -> str | None:
        """Return the way of fetching that worked, or None."""
        fact = self._fact(origin, "tier", Text)
        return None if fact is None else fact.value

    def record_exit(self, origin: str, exit_id: str | None) -> None:
        """Keep which exit an origin holds. An identity, never a proxy URL: it must hold no password."""
        self._record_text(origin, "exit", exit_id)

    def exit_of(self, origin: str) -> str | None:
        """Return the identity of the exit that an origin holds, or None."""
        fact = self._fact(origin, "exit", Text)
        return None if fact is None else fact.value

    # -- clearances ---------------------------------------------------------------------------------------------------

    def record_clearance(
        self,
        url: str,
        cookies: Iterable[Cookie],
        *,
        user_agent: str,
        exit_id: str = "",
        expires: float | None = None,
    ) -> bool:
        """Keep the cookies of a clearance with the identity they are bound to; return whether they are kept.

        ``expires`` is wall-clock seconds, None for as long as each cookie says. More than 16 cookies, or one that is
        too long, are no clearance.
        """
        key = texts.key_of(url)
        kept = tuple(cookies)
        clearance = Clearance(self._clock.wall(), user_agent, exit_id, kept, expires)
        if key is None or not kept or not records.is_kept_clearance(clearance):
            return False
        self._put(key[0], "clearance", clearance)
        return True

    def clearance(self, url: str, *, user_agent: str, exit_id: str = "") -> Clearance | None:
        """Return the clearance of a URL's origin, without cookies that have expired.

        None unless it was given to the same user agent by the same exit, and still holds.
        """
        key = texts.key_of(url)
        found = None if key is None else self._fact(key[0], "clearance", Clearance)
        now = self._clock.wall()
        if found is None or (found.user_agent, found.exit) != (user_agent, exit_id):
            return None
        if now - found.at > self._forget_after or (found.expires is not None and found.expires <= now):
            return None
        alive = tuple(cookie for cookie in found.cookies if cookie.expires is None or cookie.expires > now)
        return msgspec.structs.replace(found, cookies=alive) if alive else None

    def forget_clearance(self, url: str) -> None:
        """Note that the clearance of a URL's origin holds no longer."""
        key = texts.key_of(url)
        if key is not None and self._fact(key[0], "clearance", Clearance) is not None:
            self._put(key[0], "clearance", Clearance(self._clock.wall()))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Do what a change calls for; the file's owner overrides it."""

    def _fact(self, origin: str, field: str, kind: type[_F]) -> _F | None:
        with self._shelf.guard:
            record = self._shelf.find(origin)
            fact = None if record is None else getattr(record, field)
        return fact if isinstance(fact, kind) else None

    def _record_text(self, origin: str, field: str, value: str | None) -> None:
        self._record_fact(origin, field, Text(self._clock.wall(), texts.kept_text(value, texts.LONGEST_NAME)))

    def _record_fact(self, origin: str, field: str, fact: Number | Text) -> None:
        known = self._fact(origin, field, type(fact))
        if not is_key(origin) or (known is None and fact.value is None):
            return
        if known is None or known.value != fact.value or is_news(known, fact):
            self._put(origin, field, fact)

    def _put(self, origin: str, field: str, fact: Fact) -> None:
        if not is_key(origin):
            return
        with self._shelf.guard:
            setattr(self._shelf.edit(origin), field, fact)
        self._changed()


def is_news(known: Fact, fact: Fact) -> bool:
    """Return whether learning ``fact`` again is worth a change of the file."""
    return not 0.0 <= fact.at - known.at < _NEWS_AFTER


def is_key(origin: str) -> bool:
    """Return whether an origin can be a key of the file."""
    return texts.fits(origin, texts.LONGEST_URL)
