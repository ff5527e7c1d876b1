"""When the next request to an origin may leave, and what refusals teach.

The rules that everything here keeps:

1. An origin has one deadline for each reason (its gap, a hold, a minimum); the latest counts. A smaller or later hint
   never shortens a wait that was already promised.
2. A departure moves the deadline in the same call that reads it, so nobody gets the same place twice.
3. A departure carries the epoch it left in. A refusal teaches only if its request left in the present epoch, and opens
   the next one: what a burst of refusals says is learned once.
4. A widened interval narrows only by successes of requests that left after the lesson; how far and how fast, the
   evidence decides (see `scrapy_pacing.core.estimator`), and without evidence the policy's numbers.
5. Numbers are capped before they are used, and the number of origins in memory is bounded.
6. Monotonic seconds inside; wall-clock seconds only where something is remembered or recalled.
7. The learned interval is one thing, what lasts for a while (trouble, slow answers, a quota) another: the widest of
   them is the mean of the next gap, and none of them changes the learned interval.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .clock import Clock, SystemClock
from .estimator import LIFE, LONGEST, Estimator, Evidence
from .policy import PacingPolicy, PolicyBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .gaps import GapLaw, RandomSource

# An interval below this is nothing, where the policy's own is nothing.
_NO_INTERVAL = 1e-3
# No quota counts as larger, and no answer as slower.
_LARGEST_QUOTA = 1e12
_LONGEST_ANSWER = 3600.0
_SMOOTHING = 1 / 8
# Minimum gaps that are kept, for each origin that is.
_MINIMUMS = 16


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
    """What is kept of an origin between runs; ``hold_until`` and ``refused_at`` are wall-clock seconds.

    The fields from ``sustained`` on are the evidence about its limit (`scrapy_pacing.core.estimator.Evidence`), zero
    where nothing is known.
    """

    interval: float
    hold_until: float = 0.0
    asked: float = 0.0
    sustained: float = 0.0
    wall: float = 0.0
    refusals: int = 0
    sure: bool = False
    shut: float = 0.0
    refused_at: float = 0.0


# The fields of `Learned` that are evidence about the limit.
EVIDENCE = ("sustained", "wall", "refusals", "sure", "shut", "refused_at")


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
        "failures",
        "hold_until",
        "in_flight",
        "interval",
        "last_departure",
        "latency",
        "law",
        "learned",
        "limit",
        "policy",
        "quota",
        "quota_until",
        "successes",
        "trouble",
        "trouble_at",
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
        self.last_departure = -math.inf
        self.limit = Estimator()
        # A mean gap each, and how long it lasts.
        self.latency = 0.0
        self.quota, self.quota_until = 0.0, -math.inf
        self.trouble, self.trouble_at = 0.0, -math.inf
        self.failures = 0

    def ready_at(self) -> float:
        return max(self.due, self.hold_until)

    def mean_gap(self, now: float) -> float:
        """Return the mean of a gap that is drawn now."""
        floors = [self.interval]
        if self.interval:
            # Where nobody asked for a gap, slow answers make none.
            floors.append(min(self.latency * self.policy.latency_factor, self.policy.max_interval))
        if now < self.quota_until:
            floors.append(self.quota)
        if now < self.trouble_at + self.policy.trouble_quiet:
            floors.append(self.trouble)
        return max(floors)

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
        # Not in the state of an origin, which is dropped when it is idle: nobody reads robots.txt again for it.
        self._minimums: dict[str, float] = {}
        self._watchers: list[Callable[[str], None]] = []

    # -- the gate's questions ---------------------------------------------------------------------------------------

    def gap(self, origin: str) -> float:
        """Draw a gap for ``origin`` in seconds: irregular, with `mean_gap` as its mean, and at least its minimum."""
        pace = self._pace(origin)
        drawn = pace.law.draw(self._source) * pace.mean_gap(self.clock.monotonic())
        return max(drawn, self._minimums.get(origin, 0.0))

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
        mean = pace.mean_gap(now)
        pace.limit.departed(now, mean)
        gap = pace.law.draw(self._source) * mean if mean else 0.0
        gap = max(gap, self._minimums.get(origin, 0.0))
        if gap:
            pace.due = max(pace.due, now + gap)
        pace.last_departure = now
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
        """Return the interval of ``origin`` in seconds: the policy's, or what refusals and successes have made of it."""
        pace = self._find(origin)
        return self.policy_of(origin).interval if pace is None else pace.interval

    def mean_gap(self, origin: str) -> float:
        """Return the mean of the next gap of ``origin`` in seconds: `interval`, or what makes it wider for a while."""
        pace = self._find(origin)
        return self.policy_of(origin).interval if pace is None else pace.mean_gap(self.clock.monotonic())

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
        lengthen the hold; without it, the refusal is no evidence about the site's limit.

        Where the server's number is shorter than the interval that it has just refused, what is known of its limit
        can widen the interval; where it names none, the next request waits as long as the site is usually shut.
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
        pace.limit.failed()
        old = pace.interval
        wanted = asked or min(old, policy.interval_cap()) * policy.backoff_factor or policy.first_interval
        wait = 0.0
        if departure is not None:
            least, wait = pace.limit.refused(now, old, hold or 0.0, policy, pace.in_flight)
            wanted = max(wanted, least)
        pace.learn(max(old, min(wanted, policy.interval_cap())))
        # A gap at the new interval, from the moment of the refusal: what already waits is moved with it.
        mean = max(pace.mean_gap(now), min(wait, policy.interval_cap()))
        pace.due = max(pace.due, now + pace.law.draw(self._source) * mean)
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
        """Count a success; return what changed if it was one that eases the interval, else None.

        After `PacingPolicy.recover_after` successes in a row a widened interval is multiplied by
        `PacingPolicy.recover_factor`, and stops at `PacingPolicy.interval`. Where refusals have shown what the site
        sustains, one success brings the interval there, and below it successes count for less. With ``departure``,
        the success of a request that had left before the last lesson does not count; without it, the success is no
        evidence, and only the policy's numbers count. A hold is never shortened.
        """
        pace = self._paces.get(origin) or self._find(origin)
        if pace is None or (departure is not None and departure.epoch != pace.epoch):
            return None
        pace.failures = 0
        policy, old = pace.policy, pace.interval
        if departure is None:
            eased = self._eased_by_rule(pace)
        else:
            eased = pace.limit.served(departure.at, old, policy, pace.in_flight)
        if eased is None or old <= policy.interval:
            return None
        new, why = eased
        pace.learn(max(policy.interval, new) if new >= _NO_INTERVAL else 0.0)
        self._remember(origin, pace)
        return Lesson(origin, old, pace.interval, why)

    @staticmethod
    def _eased_by_rule(pace: _Pace) -> tuple[float, str] | None:
        needed = pace.policy.recover_after
        if pace.interval <= pace.policy.interval:
            return None
        pace.successes += 1
        if pace.successes < needed:
            return None
        pace.successes = 0
        return pace.interval * pace.policy.recover_factor, f"{needed} successes in a row"

    def failed(self, origin: str) -> None:
        """Count an answer that was no success: the row of successes starts again."""
        pace = self._paces.get(origin)
        if pace is not None:
            pace.successes = 0
            pace.limit.failed()

    # -- what lasts for a while, and what the site says itself ------------------------------------------------------

    def troubled(self, origin: str, *, departure: Departure | None = None, why: str = "failures") -> Lesson | None:
        """Count a failure of a site in trouble (no connection, a time-out, 5xx without a number); return what changed.

        From `PacingPolicy.trouble_after` failures in a row on, each multiplies the mean gap by
        `PacingPolicy.backoff_factor`, up to `PacingPolicy.max_interval`. With ``departure``, failures of requests that
        had left before the last such widening don't count: what was under way when a site broke down is one event. A
        success ends the row but not the widening, which is forgiven `PacingPolicy.trouble_quiet` seconds after the
        last failure. Includes `failed`.
        """
        pace = self._pace(origin)
        policy, now = pace.policy, self.clock.monotonic()
        self.failed(origin)
        if departure is not None and departure.at < pace.trouble_at:
            return None
        if pace.trouble and now >= pace.trouble_at + policy.trouble_quiet:
            pace.trouble, pace.failures = 0.0, 0
        pace.failures = min(pace.failures + 1, policy.trouble_after)
        if pace.failures < policy.trouble_after:
            return None
        old = pace.mean_gap(now)
        cap = policy.interval_cap()
        wanted = min(old, cap) * policy.backoff_factor or policy.first_interval
        pace.trouble, pace.trouble_at = max(pace.trouble, min(wanted, cap)), now
        new = pace.mean_gap(now)
        pace.due = max(pace.due, now + pace.law.draw(self._source) * new)
        self._tell(origin)
        return Lesson(origin, old, new, why)

    def answered(self, origin: str, seconds: float, *, served: bool = True) -> None:
        """Take in how long an answer took: the mean gap is not shorter than the smoothed time of an answer.

        `PacingPolicy.latency_factor` times that, up to `PacingPolicy.max_interval`; 0 switches it off, and an interval
        of 0 does too. An answer that
        was not ``served`` (errors are often quick) can only make it longer. Negative times and NaN are ignored.
        """
        if not seconds >= 0:
            return
        pace = self._pace(origin)
        if not served and seconds <= pace.latency:
            return
        seconds = min(seconds, _LONGEST_ANSWER)
        # As TCP smooths round-trip times (RFC 6298): the first as it is, then an eighth of each.
        pace.latency = seconds if not pace.latency else pace.latency + (seconds - pace.latency) * _SMOOTHING

    def quota(self, origin: str, remaining: float, seconds: float) -> None:
        """Obey a quota that the site states: so many requests are left for so many seconds.

        Spread evenly, they are a mean gap until the time has passed, up to `PacingPolicy.max_interval`; the latest
        statement counts. With none left nothing leaves until then, `PacingPolicy.max_hold` at the most. What is
        negative, zero seconds or NaN is ignored. No refusal: the learned interval stays what it is.
        """
        if not (remaining >= 0 and seconds > 0):
            return
        pace = self._pace(origin)
        now = self.clock.monotonic()
        if remaining < 1:
            self.postpone(origin, seconds)
            return
        # Capped before the division, which a whole number of many digits would not survive.
        cap = pace.policy.interval_cap()
        remaining = min(remaining, _LARGEST_QUOTA)
        pace.quota = min(min(seconds, cap * remaining) / remaining, cap)
        pace.quota_until = now + min(seconds, pace.policy.max_hold)

    def minimum(self, origin: str, seconds: float) -> None:
        """Let at least so many seconds lie between two departures: the Crawl-delay of a robots.txt.

        The larger of this and the drawn gap counts; `PacingPolicy.max_hold` at the most. It holds for the gap that
        runs, too. 0, negative numbers and NaN: no minimum. Kept for many more origins than fit in memory otherwise,
        but not between runs: each run reads robots.txt again.
        """
        self._minimums.pop(origin, None)
        if not seconds > 0:
            return
        seconds = min(seconds, self.policy_of(origin).max_hold)
        self._minimums[origin] = seconds
        if len(self._minimums) > _MINIMUMS * self._max_origins:
            del self._minimums[next(iter(self._minimums))]
        pace = self._find(origin)
        if pace is not None and pace.last_departure + seconds > pace.due:
            pace.due = pace.last_departure + seconds
            self._tell(origin)

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
            pace.limit = self._recalled(learned)
        return pace

    def _recalled(self, learned: Learned) -> Estimator:
        """Return what an earlier run knew of a limit; nothing where it is too old, or makes no sense."""
        age = self.clock.wall() - learned.refused_at
        numbers = (learned.sustained, learned.wall, learned.shut)
        if learned.refusals < 1 or not age <= LIFE or not all(0 <= number <= LONGEST for number in numbers):
            return Estimator()
        known = Evidence(learned.sustained, learned.wall, learned.refusals, learned.sure, learned.shut)
        return Estimator(known, self.clock.monotonic() - max(0.0, age))

    def _learned(self, pace: _Pace) -> Learned:
        now, wall = self.clock.monotonic(), self.clock.wall()
        left = pace.hold_until - now
        until, asked = (wall + left, pace.asked) if left > 0 else (0.0, 0.0)
        known = pace.limit.known
        if not known.refusals:
            return Learned(pace.interval, until, asked)
        return Learned(
            pace.interval,
            until,
            asked,
            known.sustained,
            known.wall,
            known.refusals,
            known.sure,
            known.shut,
            wall - max(0.0, now - pace.limit.known_at),
        )

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
