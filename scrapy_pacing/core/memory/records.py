"""What is remembered of an origin, and how two memories of it become one.

Every time is wall-clock seconds, since it outlives the process; ``at`` is when a thing was learned. Facts are frozen:
a newer one takes the place of an older one. A fact that holds None says "no longer known", and outlives, by its time,
what another process still has in the file.

`merge` keeps, field by field and URL by URL, what was learned later; of two facts of one moment one that takes a decoy
back wins, then the greater encoded bytes, so the order in which processes save changes nothing. Of two holds the one that ends later wins: a wait that
was promised is never shortened.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from scrapy_pacing.core.lessons import EVIDENCE

from . import texts

if TYPE_CHECKING:
    from collections.abc import Callable

# No number makes an origin unforgettable, be it a server's or a file's.
LONGEST_HOLD = 7 * 86_400.0
MOST_COOKIES = 16
# Numbers above it could be read but not be written again.
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Anything learned at a moment."""

    at: float


class Number(Fact, frozen=True, omit_defaults=True, gc=False):
    """A whole number, such as a layer's."""

    value: _Count | None = None


class Text(Fact, frozen=True, omit_defaults=True, gc=False):
    """A short text, such as a tier or the identity of an exit."""

    value: str | None = None


class Decoy(Fact, frozen=True, omit_defaults=True, gc=False):
    """A URL that no visitor would follow, or one that was taken for such."""

    told: bool = False
    """Whether the spider said so itself, rather than a page's markup."""
    shown: bool = False
    """It is no decoy: it was seen where a visitor sees it, or the spider said so."""


class Pace(Fact, frozen=True, omit_defaults=True, gc=False):
    """The learned interval in seconds, and what supports it."""

    interval: float
    widened: _Count = 0
    """How many lessons have made it longer."""
    eased: _Count = 0
    """How many rows of successes have made it shorter."""
    sustained: float = 0.0
    """From here on the evidence about the site's limit: see `scrapy_pacing.core.estimator.Evidence`."""
    wall: float = 0.0
    refusals: _Count = 0
    sure: bool = False
    shut: float = 0.0
    refused_at: float = 0.0


class Hold(Fact, frozen=True, omit_defaults=True, gc=False):
    """A wait that the server asked for: nothing leaves before ``until``."""

    until: float
    asked: float = 0.0


class Cookie(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One cookie of a clearance. Its value is a credential and shows in no repr."""

    name: str
    value: str
    domain: str = ""
    path: str = "/"
    expires: float | None = None
    secure: bool = False
    http_only: bool = False

    def __repr__(self) -> str:
        return f"Cookie(name={self.name!r}, domain={self.domain!r}, path={self.path!r}, expires={self.expires!r})"


class Clearance(Fact, frozen=True, omit_defaults=True, gc=False):
    """Cookies that prove a solved challenge, and the identity they are bound to."""

    user_agent: str = ""
    exit: str = ""
    cookies: tuple[Cookie, ...] = ()
    expires: float | None = None


class Validators(Fact, frozen=True, omit_defaults=True, gc=False):
    """What a parsed page answered with, byte for byte, and under which circumstances.

    ``vary`` maps the names of the request fields that the answer varies by to a fingerprint of the value sent.
    ``full_at`` is when the page last came whole rather than as a 304; 0 where that is not known.
    """

    etag: bytes | None = None
    last_modified: bytes | None = None
    status: _Count = 200
    vary: dict[str, str] = msgspec.field(default_factory=dict)
    full_at: float = 0.0


class Record(msgspec.Struct, omit_defaults=True):
    """All that is remembered of one origin. Only the store changes it."""

    seen: float = 0.0
    warmed: float = 0.0
    pace: Pace | None = None
    hold: Hold | None = None
    layer: Number | None = None
    tier: Text | None = None
    exit: Text | None = None
    clearance: Clearance | None = None
    endpoints: dict[str, Text] = msgspec.field(default_factory=dict)
    """By URL: what kind of answer it gives."""
    decoys: dict[str, Decoy] = msgspec.field(default_factory=dict)
    """By path and query."""
    validators: dict[str, Validators] = msgspec.field(default_factory=dict)
    """By path and query."""


class Glance(msgspec.Struct):
    """The part of a record that must be known before the rest is decoded."""

    seen: float = 0.0
    hold: Hold | None = None


class Limits(msgspec.Struct, frozen=True):
    """How many entries of a kind one origin may have."""

    validators: int
    endpoints: int
    decoys: int


_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")
_record_decoder = msgspec.json.Decoder(Record)
_glance_decoder = msgspec.json.Decoder(Glance)

_F = TypeVar("_F", bound=Fact)


def encode(record: Record) -> bytes:
    """Return a record as JSON, without a line break in it."""
    return _encoder.encode(record)


def decode(data: bytes) -> Record:
    """Read a record; raises ValueError or RecursionError for anything else."""
    return _record_decoder.decode(data)


def glance(data: bytes) -> Glance:
    """Read what `Glance` has of a record; raises ValueError or RecursionError for anything else."""
    return _glance_decoder.decode(data)


def merge(a: Record, b: Record) -> Record:
    """Return what both records know together; changes neither.

    Commutative, associative and idempotent, so that it doesn't matter who saved first, or twice.
    """
    return Record(
        seen=max(a.seen, b.seen),
        warmed=max(a.warmed, b.warmed),
        pace=_later(a.pace, b.pace),
        hold=_longer(a.hold, b.hold),
        layer=_later(a.layer, b.layer),
        tier=_later(a.tier, b.tier),
        exit=_later(a.exit, b.exit),
        clearance=_later(a.clearance, b.clearance),
        endpoints=_united(a.endpoints, b.endpoints),
        decoys=_united(a.decoys, b.decoys),
        validators=_united(a.validators, b.validators),
    )


def trim(record: Record, limits: Limits) -> None:
    """Drop, of each kind that has too many entries, those that were recorded longest ago."""
    record.validators = _newest(record.validators, limits.validators)
    record.endpoints = _newest(record.endpoints, limits.endpoints)
    record.decoys = _newest(record.decoys, limits.decoys)


def settle(record: Record, *, now: float, latest: float) -> bool:
    """Drop what would not have been recorded, and bring times that lie in the future back; return whether that changed.

    A fact from the future counts as learned at ``latest``: the clock was set. What was left of a hold or of a cookie's
    life when it was learned is left from ``now`` on.
    """
    before = msgspec.structs.astuple(record)
    _bound(record)
    record.seen = min(record.seen, now)
    record.warmed = min(record.warmed, now)
    for name in ("pace", "layer", "tier", "exit"):
        fact = getattr(record, name)
        if fact is not None and fact.at > now:
            setattr(record, name, msgspec.structs.replace(fact, at=latest))
    if record.pace is not None and record.pace.refused_at > now:
        record.pace = msgspec.structs.replace(record.pace, refused_at=now)
    record.hold = settled_hold(record.hold, now)
    record.clearance = _settled_clearance(record.clearance, now, latest)
    record.endpoints = _settled(record.endpoints, now, latest)
    record.decoys = _settled(record.decoys, now, latest)
    record.validators = _settled(record.validators, now, latest)
    if any(page.full_at > now for page in record.validators.values()):
        record.validators = {
            target: msgspec.structs.replace(page, full_at=min(page.full_at, now))
            for target, page in record.validators.items()
        }
    return before != msgspec.structs.astuple(record)


def settled_hold(hold: Hold | None, now: float) -> Hold | None:
    """Return a hold that was learned in the future as if it had been learned now, none longer than `LONGEST_HOLD`."""
    if hold is None:
        return None
    if hold.at > now:
        hold = Hold(now, now + max(0.0, hold.until - hold.at), hold.asked)
    latest = hold.at + LONGEST_HOLD
    return hold if hold.until <= latest else msgspec.structs.replace(hold, until=latest)


def is_kept_cookie(cookie: Cookie) -> bool:
    """Return whether a cookie may be kept; it will stand in a header field."""
    return (
        texts.fits_header(cookie.name, texts.LONGEST_NAME)
        and texts.fits_header(cookie.value, texts.LONGEST_COOKIE)
        and texts.fits(cookie.domain, texts.LONGEST_NAME)
        and texts.fits(cookie.path, texts.LONGEST_URL)
        and (cookie.expires is None or math.isfinite(cookie.expires))
    )


def is_kept_clearance(clearance: Clearance) -> bool:
    """Return whether a clearance, or the note that there is none any more, may be kept."""
    return (
        texts.fits(clearance.user_agent, texts.LONGEST_IDENTITY)
        and texts.fits(clearance.exit, texts.LONGEST_NAME)
        and len(clearance.cookies) <= MOST_COOKIES
        and all(map(is_kept_cookie, clearance.cookies))
        and (clearance.expires is None or math.isfinite(clearance.expires))
    )


def is_kept_pace(pace: Pace) -> bool:
    """Return whether an interval and its evidence may be kept."""
    numbers = (pace.interval, *(getattr(pace, name) for name in EVIDENCE))
    return all(map(math.isfinite, numbers)) and min(numbers) >= 0


def _bound(record: Record) -> None:
    """Drop what is beyond the bounds of recording: a file may have been written by anybody."""
    if record.pace is not None and not is_kept_pace(record.pace):
        record.pace = None
    for name in ("tier", "exit"):
        fact: Text | None = getattr(record, name)
        if fact is not None and fact.value is not None and not texts.fits(fact.value, texts.LONGEST_NAME):
            setattr(record, name, None)
    if record.clearance is not None and not is_kept_clearance(record.clearance):
        record.clearance = None
    record.endpoints = _kept(record.endpoints, _kept_endpoint)
    record.decoys = _kept(record.decoys, _kept_decoy)
    record.validators = _kept(record.validators, _kept_validators)


def _kept(facts: dict[str, _F], keep: Callable[[str, _F], _F | None]) -> dict[str, _F]:
    kept = {key: keep(key, fact) for key, fact in facts.items()}
    return {key: fact for key, fact in kept.items() if fact is not None}


def _kept_endpoint(url: str, fact: Text) -> Text | None:
    fits = "".join(texts.key_of(url) or ()) == url and texts.fits(fact.value, texts.LONGEST_NAME)
    return fact if fits else None


def _kept_decoy(target: str, fact: Decoy) -> Decoy | None:
    return fact if texts.is_target(target) else None


def _kept_validators(target: str, page: Validators) -> Validators | None:
    etag, last_modified = texts.kept_validator(page.etag), texts.kept_validator(page.last_modified)
    vary = texts.kept_vary(page.vary)
    if not texts.is_target(target) or vary is None:
        return None
    if (etag, last_modified, vary) == (page.etag, page.last_modified, page.vary):
        return page
    return msgspec.structs.replace(page, etag=etag, last_modified=last_modified, vary=vary)


def _settled_clearance(clearance: Clearance | None, now: float, latest: float) -> Clearance | None:
    if clearance is None or clearance.at <= now:
        return clearance
    shift = now - clearance.at
    return msgspec.structs.replace(
        clearance,
        at=latest,
        expires=None if clearance.expires is None else clearance.expires + shift,
        cookies=tuple(
            cookie if cookie.expires is None else msgspec.structs.replace(cookie, expires=cookie.expires + shift)
            for cookie in clearance.cookies
        ),
    )


def _settled(facts: dict[str, _F], now: float, latest: float) -> dict[str, _F]:
    if all(fact.at <= now for fact in facts.values()):
        return facts
    return {key: fact if fact.at <= now else msgspec.structs.replace(fact, at=latest) for key, fact in facts.items()}


def _later(a: _F | None, b: _F | None) -> _F | None:
    if a is None or b is None:
        return a or b
    return max(a, b, key=_rank)


def _longer(a: Hold | None, b: Hold | None) -> Hold | None:
    if a is None or b is None:
        return a or b
    return max(a, b, key=lambda hold: (hold.until, hold.at, hold.asked))


def _rank(fact: Fact) -> tuple[float, bool, bytes]:
    return fact.at, isinstance(fact, Decoy) and fact.shown, _sorted_encoder.encode(fact)


def _united(a: dict[str, _F], b: dict[str, _F]) -> dict[str, _F]:
    """Unite two mappings, the longest known first: the order in which entries are dropped."""
    if a == b:
        return dict(a)
    united = dict(a)
    for key, theirs in b.items():
        ours = united.get(key)
        united[key] = theirs if ours is None else max(ours, theirs, key=_rank)
    return dict(sorted(united.items(), key=lambda item: (item[1].at, item[0])))


def _newest(facts: dict[str, _F], most: int) -> dict[str, _F]:
    if len(facts) <= most:
        return facts
    ordered = sorted(facts.items(), key=lambda item: (item[1].at, item[0]))
    return dict(ordered[len(ordered) - most :])
