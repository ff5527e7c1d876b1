"""When the next request to an origin may leave, and what refusals teach.

The rules that everything here keeps:

1. An origin has one deadline for each reason (its gap, a hold); the latest counts. A smaller or later hint never
   shortens a wait that was already promised.
2. A departure moves the deadline in the same call that reads it, so nobody gets the same place twice.
3. A departure carries the epoch it left in. A refusal teaches only if its request left in the present epoch, and opens
   the next one: what a burst of refusals says is learned once.
4. A widened interval narrows only by successes of requests that left after the lesson.
5. Numbers are capped before they are used, and the number of origins in memory is bounded.
6. Monotonic seconds inside; wall-clock seconds only where something is remembered or recalled.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .clock import Clock, SystemClock
from .policy import PacingPolicy, PolicyBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .gaps import GapLaw, RandomSource

# An interval below this is nothing, where the policy's own is nothing.
_NO_INTERVAL = 1e-3


@dataclass(frozen=True, slots=True)
class Departure:
    """One request that has left: where to, when (monotonic), and in which epoch of the origin's learning."""

    origin: str
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a refusal or a row of successes has changed; ``old`` and ``new`` are intervals in seconds."""

    origin: str
    old: float
    new: float
    why: str
    hold: float | None = None
    """For how long nothing leaves now, where the server named a time."""
    asked: float | None = None
    """What the server asked for, before `PacingPolicy.max_hold` capped it."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What is kept of an origin between runs; ``hold_until`` is wall-clock seconds."""

    interval: float
    hold_until: float = 0.0
    asked: float = 0.0


class Lessons(Protocol):
    """Where learned intervals are kept; `scrapy_pacing.Memory` is one."""

    def recall(self, origin: str) -> Learned | None:
        """What was learned of an origin earlier, or None."""

    def record(self, origin: str, learned: Learned) -> None:
        """Keep what was learned; called at every change, so it must be cheap."""


class _Pace:
    """The state of one origin."""

    __slots__ = (
        "asked",
        "due",
        "epoch",
        "hold_until",
        "in_flight",
        "interval",
        "law",
        "learned",
        "policy",
        "successes",
    )

    def __init__(self, policy: PacingPolicy) -> None:
        self.policy = policy
        self.law: GapLaw = policy.law()
        # What refusals have taught, kept apart from the policy's so that it outlives a change of policy.
        self.learned = 0.0
        self.interval = policy.interval
        self.due = -math.inf
        self.hold_until = -math.inf
        self.asked = 0.0
        self.epoch = 0
        self.successes = 0
        self.in_flight = 0

    def ready_at(self) -> float:
        return max(self.due, self.hold_until)

    def adopt(self, policy: PacingPolicy) -> None:
        """Go on under another policy; what was learned stays."""
        if policy == self.policy:
            return
        self.policy, self.law = policy, policy.law()
        self.learn(self.learned)

    def learn(self, interval: float) -> None:
        """Take a learned interval, as far as the policy lets it count."""
        self.learned = interval
        self.interval = max(self.policy.interval, min(interval, self.policy.interval_cap()))

    def is_idle(self, now: float) -> bool:
        return self.in_flight == 0 and self.due <= now and self.hold_until <= now


class Pacer:
    """Draws the gaps between requests to an origin, and learns how long they must be.

    Does not wait and does not send: `next_delay` says how long to wait, `depart` is called when the request leaves.
    Origins are keys as `origin_key` makes them, though any string will do.

    >>> from scrapy_pacing.testing import FakeClock, seeded
    >>> clock = FakeClock()
    >>> pacer = Pacer(PacingPolicy(interval=4.0), clock=clock, source=seeded(7))
    >>> pacer.next_delay("https://example.com")
    0.0
    >>> departure = pacer.depart("https://example.com")
    >>> clock.advance(1)
    >>> round(pacer.next_delay("https://example.com"), 2)
    0.31
    >>> pacer.throttled("https://example.com", 30).new
    30
    """

    def __init__(
        self,
        policy: PacingPolicy | None = None,
        *,
        overrides: Mapping[str, PacingPolicy] | None = None,
        clock: Clock | None = None,
        source: RandomSource | None = None,
        lessons: Lessons | None = None,
        max_origins: int = 4096,
    ) -> None:
        """Make a pacer.

        ``overrides`` maps an origin or a bare host to a policy of its own. ``source`` is for tests: by default the
        pacer has a random source that no seed elsewhere can reach. ``max_origins`` bounds how many idle origins are
        kept in memory; one that still waits or holds is never dropped. Raises ValueError if it is below 1.
        """
        if max_origins < 1:
            raise ValueError(f"max_origins is {max_origins!r}; allowed: 1 or more")
        self._books = [PolicyBook(policy or PacingPolicy(), overrides)]
        self.clock: Clock = clock or SystemClock()
        self._source: RandomSource = source or random.Random()
        self._lessons = lessons
        self._paces: dict[str, _Pace] = {}
        self._max_origins = max_origins
        self._prune_at = max_origins
        self._watchers: list[Callable[[str], None]] = []

    # -- the gate's questions ---------------------------------------------------------------------------------------

    def gap(self, origin: str) -> float:
        """Draw a gap for ``origin`` in seconds: irregular, with the interval as its mean."""
        pace = self._pace(origin)
        return pace.law.draw(self._source) * pace.interval

    def next_delay(self, origin: str) -> float:
        """Return the seconds until a request to ``origin`` may leave, 0.0 if it may now.

        The gap was drawn at the last departure, so the time that has passed since then is already taken off, and
        asking again never draws again.
        """
        pace = self._find(origin)
        if pace is None:
            return 0.0
        return max(0.0, pace.ready_at() - self.clock.monotonic())

    def ready_at(self, origin: str) -> float:
        """Return the monotonic time from which a request to ``origin`` may leave; ``-inf`` if nothing is known."""
        pace = self._find(origin)
        return -math.inf if pace is None else pace.ready_at()

    def depart(self, origin: str) -> Departure:
        """Record that a request leaves now, and draw the gap that follows it.

        Call `land` when its answer, or its failure, has come. Does not ask whether the origin is due.
        """
        pace = self._paces.pop(origin, None) or self._new_pace(origin)
        # Last in the order of use, so that pruning meets the longest unused first.
        self._paces[origin] = pace
        now = self.clock.monotonic()
        if pace.interval:
            pace.due = max(pace.due, now + pace.law.draw(self._source) * pace.interval)
        pace.in_flight += 1
        self._tell(origin)
        return Departure(origin, now, pace.epoch)

    def land(self, departure: Departure) -> None:
        """Record that a departed request is no longer in flight, however it ended."""
        pace = self._paces.get(departure.origin)
        if pace is not None and pace.in_flight > 0:
            pace.in_flight -= 1
            self._tell(departure.origin)

    def in_flight(self, origin: str) -> int:
        """Return how many departed requests to ``origin`` have not landed."""
        pace = self._paces.get(origin)
        return 0 if pace is None else pace.in_flight

    # -- learning ---------------------------------------------------------------------------------------------------

    def interval(self, origin: str) -> float:
        """Return the present mean gap of ``origin`` in seconds."""
        pace = self._find(origin)
        return self.policy_of(origin).interval if pace is None else pace.interval

    def hold(self, origin: str) -> Learned | None:
        """Return the hold that a Retry-After has put on ``origin``, or None once it has passed."""
        pace = self._find(origin)
        if pace is None or pace.hold_until <= self.clock.monotonic():
            return None
        return self._learned(pace)

    def throttled(
        self,
        origin: str,
        retry_after: float | None = None,
        *,
        departure: Departure | None = None,
        why: str = "refused",
    ) -> Lesson | None:
        """Learn from a refusal; return what changed, or None if it taught nothing new.

        ``retry_after`` is what the server asked for in seconds; zero, negative and NaN count as None. The interval
        becomes that number, or `PacingPolicy.backoff_factor` times what it was; never narrower, never above
        `PacingPolicy.max_interval`. Until the server's time has passed (`PacingPolicy.max_hold` at the most) nothing
        leaves. With ``departure``, a refusal of a request that had left before the last lesson was learned can only
        lengthen the hold.
        """
        pace = self._pace(origin)
        policy = pace.policy
        now = self.clock.monotonic()
        asked = retry_after if retry_after is not None and retry_after > 0 else None
        hold = None if asked is None else min(asked, policy.max_hold)
        extended = asked is not None and self._extend_hold(pace, asked)
        if departure is not None and departure.epoch != pace.epoch:
            if extended:
                self._remember(origin, pace)
                self._tell(origin)
            return None
        pace.epoch += 1
        pace.successes = 0
        old = pace.interval
        wanted = asked or min(old, policy.interval_cap()) * policy.backoff_factor or policy.first_interval
        pace.learn(max(old, min(wanted, policy.interval_cap())))
        # A gap at the new interval, from the moment of the refusal: what already waits is moved with it.
        pace.due = max(pace.due, now + pace.law.draw(self._source) * pace.interval)
        self._remember(origin, pace)
        self._tell(origin)
        return Lesson(origin, old, pace.interval, why, hold, asked)

    def postpone(self, origin: str, seconds: float) -> None:
        """Let nothing leave for ``origin`` for so many seconds, `PacingPolicy.max_hold` at the most.

        For waits that are no refusal (a redirect with Retry-After): the interval stays what it is, and a longer hold
        that is already in force stays too.
        """
        pace = self._pace(origin)
        if self._extend_hold(pace, seconds):
            self._remember(origin, pace)
            self._tell(origin)

    def eased(self, origin: str, *, departure: Departure | None = None) -> Lesson | None:
        """Count a success; return what changed if it was the one that eases the interval, else None.

        After `PacingPolicy.recover_after` successes in a row a widened interval is multiplied by
        `PacingPolicy.recover_factor`, and stops at `PacingPolicy.interval`. With ``departure``, the success of a
        request that had left before the last lesson does not count. A hold is never shortened.
        """
        pace = self._paces.get(origin) or self._find(origin)
        if pace is None or pace.interval <= pace.policy.interval:
            return None
        if departure is not None and departure.epoch != pace.epoch:
            return None
        pace.successes += 1
        if pace.successes < pace.policy.recover_after:
            return None
        pace.successes = 0
        old = pace.interval
        new = max(pace.policy.interval, old * pace.policy.recover_factor)
        pace.learn(new if new >= _NO_INTERVAL else 0.0)
        self._remember(origin, pace)
        return Lesson(origin, old, pace.interval, f"{pace.policy.recover_after} successes in a row")

    def failed(self, origin: str) -> None:
        """Count an answer that was no success: the row of successes starts again."""
        pace = self._paces.get(origin)
        if pace is not None:
            pace.successes = 0

    # -- the rest ---------------------------------------------------------------------------------------------------

    def policy_of(self, origin: str) -> PacingPolicy:
        """Return the policy that holds for ``origin``: where several crawls share this pacer, the slowest one's."""
        if len(self._books) == 1:
            return self._books[0].of(origin)
        return max((book.of(origin) for book in self._books), key=lambda policy: policy.interval)

    def share(self, books: Sequence[PolicyBook]) -> None:
        """Serve several crawls at once: to a site they are one visitor, as slow as the slowest of them wants.

        What was learned stays. Raises ValueError if ``books`` is empty.
        """
        if not books:
            raise ValueError("books is empty; allowed: one or more")
        self._books = list(books)
        for origin, pace in self._paces.items():
            pace.adopt(self.policy_of(origin))

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call ``watcher`` with an origin whenever its deadline or its number of requests in flight has moved."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[str], None]) -> None:
        """Stop calling ``watcher``; does nothing if it is not watching."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def __len__(self) -> int:
        """Return the number of origins in memory."""
        return len(self._paces)

    def _tell(self, origin: str) -> None:
        # A copy, since a watcher may leave while it is called.
        for watcher in tuple(self._watchers):
            watcher(origin)

    def _extend_hold(self, pace: _Pace, asked: float) -> bool:
        until = self.clock.monotonic() + min(asked, pace.policy.max_hold)
        # Put so that NaN extends nothing either.
        if not until > pace.hold_until:
            return False
        pace.hold_until = until
        pace.asked = asked
        return True

    def _pace(self, origin: str) -> _Pace:
        pace = self._paces.get(origin)
        if pace is None:
            pace = self._paces[origin] = self._new_pace(origin)
        return pace

    def _find(self, origin: str) -> _Pace | None:
        """Return the state of an origin without making one, unless something is remembered of it."""
        pace = self._paces.get(origin)
        if pace is None and self._lessons is not None and self._lessons.recall(origin) is not None:
            pace = self._paces[origin] = self._new_pace(origin)
        return pace

    def _new_pace(self, origin: str) -> _Pace:
        if len(self._paces) >= self._prune_at:
            self._prune()
        policy = self.policy_of(origin)
        pace = _Pace(policy)
        learned = self._lessons.recall(origin) if self._lessons is not None else None
        if learned is not None:
            pace.learn(learned.interval)
            left = min(learned.hold_until - self.clock.wall(), policy.max_hold)
            if left > 0:
                pace.hold_until = self.clock.monotonic() + left
                pace.asked = learned.asked
        return pace

    def _learned(self, pace: _Pace) -> Learned:
        left = pace.hold_until - self.clock.monotonic()
        if left <= 0:
            return Learned(pace.interval)
        return Learned(pace.interval, self.clock.wall() + left, pace.asked)

    def _remember(self, origin: str, pace: _Pace) -> None:
        if self._lessons is not None:
            self._lessons.record(origin, self._learned(pace))

    def _prune(self) -> None:
        """Drop idle origins, the longest unused first; those with nothing learned before those with something."""
        now = self.clock.monotonic()
        keep = self._max_origins * 3 // 4
        for spare_learned in (self._lessons is None, False):
            for origin, pace in list(self._paces.items()):
                if len(self._paces) <= keep:
                    break
                learned = pace.interval != pace.policy.interval
                if pace.is_idle(now) and not (learned and spare_learned):
                    del self._paces[origin]
        # Where most origins still wait, look again only when a good many more have come: pruning stays O(1) a request.
        self._prune_at = max(self._max_origins, len(self._paces) * 5 // 4)
