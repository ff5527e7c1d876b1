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
from typing import TYPE_CHECKING

from .clock import Clock, SystemClock
from .lessons import Departure, Lesson
from .paces import Paces
from .policy import PacingPolicy, PolicyBook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .gaps import RandomSource
    from .lessons import Learned, Lessons
    from .pace import Pace

# Minimum gaps that are kept, for each origin that is.
_MINIMUMS = 16


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
        self.clock: Clock = clock or SystemClock()
        self._source: RandomSource = source or random.Random()
        book = PolicyBook(policy or PacingPolicy(), overrides)
        self._paces = Paces(book, clock=self.clock, lessons=lessons, max_origins=max_origins)
        # Not in the state of an origin, which is dropped when it is idle: nobody reads robots.txt again for it.
        self._minimums: dict[str, float] = {}
        self._most_minimums = _MINIMUMS * max_origins
        # Replaced, never changed, since a watcher may leave while it is called.
        self._watchers: tuple[Callable[[str], None], ...] = ()

    # -- the gate's questions ---------------------------------------------------------------------------------------

    def gap(self, origin: str) -> float:
        """Draw a gap for ``origin`` in seconds: irregular, with `mean_gap` as its mean, and at least its minimum."""
        pace = self._paces.of(origin)
        drawn = pace.law.draw(self._source) * pace.mean_gap(self.clock.monotonic())
        return max(drawn, self._minimums.get(origin, 0.0))

    def next_delay(self, origin: str) -> float:
        """Return the seconds until a request to ``origin`` may leave, 0.0 if it may now.

        The gap was drawn at the last departure, so the time that has passed since then is already taken off, and
        asking again never draws again.
        """
        pace = self._paces.find(origin)
        if pace is None:
            return 0.0
        return max(0.0, pace.ready_at() - self.clock.monotonic())

    def ready_at(self, origin: str) -> float:
        """Return the monotonic time from which a request to ``origin`` may leave; ``-inf`` if nothing is known."""
        pace = self._paces.find(origin)
        return -math.inf if pace is None else pace.ready_at()

    def depart(self, origin: str) -> Departure:
        """Record that a request leaves now, and draw the gap that follows it.

        Call `land` when its answer, or its failure, has come. Does not ask whether the origin is due.
        """
        pace = self._paces.use(origin)
        now = self.clock.monotonic()
        mean = pace.mean_gap(now)
        pace.limit.departed(now, mean)
        gap = pace.law.draw(self._source) * mean if mean else 0.0
        if self._minimums:
            gap = max(gap, self._minimums.get(origin, 0.0))
        if gap:
            pace.wait_until(now + gap)
        pace.last_departure = now
        pace.in_flight += 1
        self._tell(origin)
        return Departure(origin, now, pace.epoch)

    def land(self, departure: Departure) -> None:
        """Record that a departed request is no longer in flight, however it ended."""
        pace = self._paces.known(departure.origin)
        if pace is not None and pace.in_flight > 0:
            pace.in_flight -= 1
            self._tell(departure.origin)

    def in_flight(self, origin: str) -> int:
        """Return how many departed requests to ``origin`` have not landed."""
        pace = self._paces.known(origin)
        return 0 if pace is None else pace.in_flight

    # -- learning ---------------------------------------------------------------------------------------------------

    def interval(self, origin: str) -> float:
        """Return the interval of ``origin`` in seconds: the policy's, or what refusals and successes have made of it."""
        pace = self._paces.find(origin)
        return self.policy_of(origin).interval if pace is None else pace.interval

    def mean_gap(self, origin: str) -> float:
        """Return the mean of the next gap of ``origin`` in seconds: `interval`, or what makes it wider for a while."""
        pace = self._paces.find(origin)
        return self.policy_of(origin).interval if pace is None else pace.mean_gap(self.clock.monotonic())

    def hold(self, origin: str) -> Learned | None:
        """Return the hold that a Retry-After has put on ``origin``, or None once it has passed."""
        pace = self._paces.find(origin)
        if pace is None or pace.hold_until <= self.clock.monotonic():
            return None
        return self._paces.kept(pace)

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
        pace = self._paces.of(origin)
        now = self.clock.monotonic()
        asked = retry_after if retry_after is not None and retry_after > 0 else None
        is_longer = asked is not None and pace.hold(now, asked)
        if departure is not None and departure.epoch != pace.epoch:
            if is_longer:
                self._moved(origin, pace)
            return None
        old = pace.interval
        mean = pace.back_off(now, asked, is_evidence=departure is not None)
        # A gap at the new interval, from the moment of the refusal: what already waits is moved with it.
        pace.wait_until(now + pace.law.draw(self._source) * mean)
        self._moved(origin, pace)
        hold = None if asked is None else min(asked, pace.policy.max_hold)
        return Lesson(origin, old, pace.interval, why, hold, asked)

    def postpone(self, origin: str, seconds: float) -> None:
        """Let nothing leave for ``origin`` for so many seconds, `PacingPolicy.max_hold` at the most.

        For waits that are no refusal (a redirect with Retry-After): the interval stays what it is, and a longer hold
        that is already in force stays too.
        """
        pace = self._paces.of(origin)
        if pace.hold(self.clock.monotonic(), seconds):
            self._moved(origin, pace)

    def eased(self, origin: str, *, departure: Departure | None = None) -> Lesson | None:
        """Count a success; return what changed if it was one that eases the interval, else None.

        After `PacingPolicy.recover_after` successes in a row a widened interval is multiplied by
        `PacingPolicy.recover_factor`, and stops at `PacingPolicy.interval`. Where refusals have shown what the site
        sustains, one success brings the interval there, and below it successes count for less. With ``departure``,
        the success of a request that had left before the last lesson does not count; without it, the success is no
        evidence, and only the policy's numbers count. A hold is never shortened.
        """
        pace = self._paces.find(origin)
        if pace is None or (departure is not None and departure.epoch != pace.epoch):
            return None
        old = pace.interval
        why = pace.ease(None if departure is None else departure.at)
        if why is None:
            return None
        self._paces.remember(origin, pace)
        return Lesson(origin, old, pace.interval, why)

    def failed(self, origin: str) -> None:
        """Count an answer that was no success: the row of successes starts again."""
        pace = self._paces.known(origin)
        if pace is not None:
            pace.failed()

    # -- what lasts for a while, and what the site says itself ------------------------------------------------------

    def troubled(self, origin: str, *, departure: Departure | None = None, why: str = "failures") -> Lesson | None:
        """Count a failure of a site in trouble (no connection, a time-out, 5xx without a number); return what changed.

        From `PacingPolicy.trouble_after` failures in a row on, each multiplies the mean gap by
        `PacingPolicy.backoff_factor`, up to `PacingPolicy.max_interval`. With ``departure``, failures of requests that
        had left before the last such widening don't count: what was under way when a site broke down is one event. A
        success ends the row but not the widening, which is forgiven `PacingPolicy.trouble_quiet` seconds after the
        last failure. Includes `failed`.
        """
        pace = self._paces.of(origin)
        now = self.clock.monotonic()
        if departure is not None and departure.at < pace.trouble_at:
            pace.failed()
            return None
        old = pace.mean_gap(now)
        if not pace.trouble_grows(now):
            return None
        new = pace.mean_gap(now)
        pace.wait_until(now + pace.law.draw(self._source) * new)
        self._tell(origin)
        return Lesson(origin, old, new, why)

    def answered(self, origin: str, seconds: float, *, served: bool = True) -> None:
        """Take in how long an answer took: the mean gap is not shorter than the smoothed time of an answer.

        `PacingPolicy.latency_factor` times that, up to `PacingPolicy.max_interval`; 0 switches it off, and an interval
        of 0 does too. An answer that was not ``served`` (errors are often quick) can only make it longer. Negative
        times and NaN are ignored.
        """
        if seconds >= 0:
            self._paces.of(origin).answered(seconds, served=served)

    def quota(self, origin: str, remaining: float, seconds: float) -> None:
        """Obey a quota that the site states: so many requests are left for so many seconds.

        Spread evenly, they are a mean gap until the time has passed, up to `PacingPolicy.max_interval`; the latest
        statement counts. With none left nothing leaves until then, `PacingPolicy.max_hold` at the most. What is
        negative, zero seconds or NaN is ignored. No refusal: the learned interval stays what it is.
        """
        if not (remaining >= 0 and seconds > 0):
            return
        if remaining < 1:
            self.postpone(origin, seconds)
        else:
            self._paces.of(origin).spread(self.clock.monotonic(), remaining, seconds)

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
        if len(self._minimums) > self._most_minimums:
            del self._minimums[next(iter(self._minimums))]
        pace = self._paces.find(origin)
        if pace is not None and pace.last_departure + seconds > pace.due:
            pace.wait_until(pace.last_departure + seconds)
            self._tell(origin)

    # -- the rest ---------------------------------------------------------------------------------------------------

    def policy_of(self, origin: str) -> PacingPolicy:
        """Return the policy that holds for ``origin``: where several crawls share this pacer, the slowest one's."""
        return self._paces.policy_of(origin)

    def share(self, books: Sequence[PolicyBook]) -> None:
        """Serve several crawls at once: to a site they are one visitor, as slow as the slowest of them wants.

        What was learned stays. Raises ValueError if ``books`` is empty.
        """
        if not books:
            raise ValueError("books is empty; allowed: one or more")
        self._paces.share(books)

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call ``watcher`` with an origin whenever its deadline or its number of requests in flight has moved."""
        self._watchers += (watcher,)

    def unwatch(self, watcher: Callable[[str], None]) -> None:
        """Stop calling ``watcher``; does nothing if it is not watching."""
        if watcher in self._watchers:
            first = self._watchers.index(watcher)
            self._watchers = self._watchers[:first] + self._watchers[first + 1 :]

    def __len__(self) -> int:
        """Return the number of origins in memory."""
        return len(self._paces)

    def _moved(self, origin: str, pace: Pace) -> None:
        self._paces.remember(origin, pace)
        self._tell(origin)

    def _tell(self, origin: str) -> None:
        for watcher in self._watchers:
            watcher(origin)
