"""How fast a site was seen to be, and how fast a widened interval comes back.

A refusal is one look at a limit. Between two of them the site has accepted some requests, in the time that passed and
the hold that followed: its *sustained* gap is about that time over their number. The interval that was refused is the
*wall*. From these two:

1. The first success after a refusal brings the interval to the target, a margin above what was sustained and above the
   wall. Where the server's own number was shorter than that, the refusal has already widened it so far.
2. Two looks that agree make the estimate *sure*. Until then an interval far above the wall shrinks at every success;
   a hold may have been a punishment rather than a measure.
3. Below the target the interval shrinks slowly, by small steps after many successes in a row. Each refusal makes it
   more patient; time makes it less so, since a limit may have been raised. At each step only what passed since the
   step before it is kept as evidence: wider intervals say nothing about the limit.
4. Where the server names no time, the wait after a refusal follows from how long the site stayed shut the last time.

One object per origin. Times are monotonic seconds, handed in; nothing here reads a clock or draws a number. An interval
is never brought below the policy's: that is the caller's business, as is the cap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .policy import PacingPolicy

# The target lies this far above the sustained gap: irregular gaps run ahead of their mean.
_MARGIN = 1.18
# A wall is respected by 1 + _RESPECT / n, where n requests passed before the refusal: the fewer, the clearer it was.
# Fewer than _FEW fell into the same shut time as the refusal before, which has taught already.
_RESPECT, _MOST_RESPECT = 9.5, 0.35
_FEW, _FEW_RESPECT = 4, 0.25
# So many requests at one pace replace an estimate that was too optimistic; more of them say less about a limit.
_SHARP = 50.0
_AGREEMENT = math.log(1.25)
# Above this multiple of the wall, and unsure, the interval is in unknown country.
_FAR = 5.0
# Successes for a step below the target, in multiples of `recover_after`; how a refusal raises them, and how far.
_PATIENCE, _MORE_PATIENCE, _MOST_PATIENCE = 7.0, 1.25, 12.0
# A step below the target is this part of a full one.
_STEP = 0.42
# A first wait without the server's number is this part of the time that the site was shut; the next are longer.
_WAIT, _WAIT_GROWTH = 1.0, 3.0
_MOST_WAITS = 12
# A gap of more intervals is not the site's doing: nobody crawled, and one interval of it is counted.
_IDLE = 20.0
# The first gap after a refusal was drawn while the interval was still wide; so much of it is not counted.
_FIRST_IDLE, _FIRST_IDLE_PART = 2.0, 0.7
_SAME_NUMBER, _OTHER_TIME = 0.05, 0.3
# Patience halves in this time, and after the other nothing is known any more.
HALF_LIFE, LIFE = 3 * 86_400.0, 30 * 86_400.0
# Bounds of every gap that is estimated.
_SHORTEST, LONGEST = 1e-6, 86_400.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is kept of a site's limit between runs; all zero where nothing is known."""

    sustained: float = 0.0
    """The gap in seconds that the site was seen to sustain."""
    wall: float = 0.0
    """The interval in seconds at which it refused last."""
    refusals: int = 0
    """How many refusals support this."""
    sure: bool = False
    """Whether two of them agreed."""
    shut: float = 0.0
    """For how many seconds it stayed shut after a refusal."""


NOTHING = Evidence()


class Estimator:
    """The evidence about one origin's limit.

    `departed` at each departure, `refused` and `served` at what teaches (answers of requests that left in the present
    epoch), in the order of time.
    """

    __slots__ = (
        "_accepted",
        "_coming_back",
        "_fresh",
        "_hold",
        "_hold_before",
        "_last",
        "_mark",
        "_marked",
        "_older",
        "_open_before",
        "_refused_at",
        "_refused_interval",
        "_row",
        "_seconds",
        "_sent",
        "_shut_since",
        "_since",
        "_target",
        "_waits",
        "known",
        "known_at",
    )

    def __init__(self, known: Evidence = NOTHING, known_at: float = -math.inf) -> None:
        """Start with what an earlier run knew; ``known_at`` is when that was (monotonic, so it may be negative)."""
        self.known = known
        self.known_at = known_at
        # The stretch of requests since the last refusal was over: its begin, its last departure, their number.
        self._since = self._last = -math.inf
        self._sent = 0
        self._fresh = False
        # Departures before that, at wider intervals; the last step, and how many had left by then.
        self._older = self._marked = 0
        self._mark = -math.inf
        # What came before it, while it was too little to learn from.
        self._accepted = 0
        self._seconds = 0.0
        # The refusals of the present, where the last answer was one.
        self._refused_at: float | None = None
        self._shut_since = self._refused_interval = self._hold = 0.0
        self._waits = 0
        # The one before, to compare.
        self._hold_before = self._open_before = 0.0
        # The way back.
        self._target = max(known.sustained * _MARGIN, min(known.wall, known.sustained * 2))
        self._coming_back = known.sustained > 0
        self._row = 0

    def departed(self, now: float, interval: float) -> None:
        """Count a departure; ``interval`` is the mean gap of this moment."""
        if self._since == -math.inf:
            self._since = now
        elif self._refused_at is None:
            gap = now - self._last
            if gap > interval * (_FIRST_IDLE if self._fresh else _IDLE):
                self._since += (gap - interval) * (_FIRST_IDLE_PART if self._fresh else 1.0)
            self._fresh = False
        self._last = now
        self._sent += 1

    def refused(
        self, now: float, interval: float, hold: float, policy: PacingPolicy, in_flight: int
    ) -> tuple[float, float]:
        """Learn from a refusal at ``interval``; return the least interval it calls for, and the mean of the next wait.

        ``hold`` is the server's own number in seconds, 0.0 where it named none; ``in_flight`` counts other requests.
        Both results are 0.0 where the evidence says nothing.
        """
        is_first = self._refused_at is None
        self._refused_at = now
        self._row = 0
        if is_first:
            self._accepted += max(0, self._sent - 1 - in_flight)
            self._shut_since, self._refused_interval, self._hold = now, interval, hold
            self._waits = 0
        self._sent = 0
        self._waits = min(self._waits + 1, _MOST_WAITS)
        if hold > 0:
            if is_first:
                self._learn(now + hold, policy.evidence_after)
            return self._target if is_first else 0.0, 0.0
        return 0.0, self.known.shut * _WAIT * _WAIT_GROWTH ** (self._waits - 1)

    def served(self, at: float, interval: float, policy: PacingPolicy, in_flight: int) -> tuple[float, str] | None:
        """Count a success of a request that left ``at`` that time; return a narrower interval and why, or None."""
        if self._refused_at is not None:
            if self._hold <= 0:
                # It opened at some time between the last refusal and this.
                self._learn((self._refused_at + at) / 2, policy.evidence_after)
            self._refused_at = None
            self._since = self._last = at
            self._sent = in_flight + 1
            self._fresh = True
        if self._coming_back:
            self._coming_back = False
            if self._target < interval:
                return self._target, "the pace that the site has sustained"
        if interval <= policy.interval:
            return None
        self._row += 1
        recover_after, recover_factor = policy.recover_after, policy.recover_factor
        known = self.known
        if known.sustained <= 0:
            return self._ease(interval, recover_after, recover_factor)
        if not known.sure and interval > known.wall * _FAR:
            return self._ease(interval, 1, recover_factor)
        needed = max(recover_after, round(self._patience(at) * recover_after))
        eased = self._ease(interval, needed, 1 - _STEP * (1 - recover_factor))
        if eased is not None:
            self._forget_older(at)
        return eased

    def _forget_older(self, at: float) -> None:
        """Start the stretch at the step before this one: at a wider interval it was only asked for less."""
        if self._mark > -math.inf:
            self._older += self._marked
            self._sent -= self._marked
            self._since = self._mark
        self._mark, self._marked = at, self._sent

    def failed(self) -> None:
        """Start the row of successes again."""
        self._row = 0

    def _ease(self, interval: float, needed: int, factor: float) -> tuple[float, str] | None:
        if self._row < needed:
            return None
        self._row = 0
        return interval * factor, f"{needed} successes in a row"

    def _patience(self, now: float) -> float:
        most = min(_MOST_PATIENCE, _PATIENCE * _MORE_PATIENCE ** max(0, min(self.known.refusals, 64) - 1))
        return most * math.pow(0.5, min(max(0.0, now - self.known_at) / HALF_LIFE, 64.0))

    def _learn(self, opened_at: float, enough: int) -> None:
        """Draw the conclusion of the stretch that a refusal has ended; the site was open again at ``opened_at``."""
        known, n = self.known, self._accepted
        open_for = max(0.0, self._shut_since - self._since)
        self._seconds += open_for if self._is_punishment(open_for) else opened_at - self._since
        self._hold_before, self._open_before = self._hold, open_for
        shut = min(max(0.0, opened_at - self._shut_since), LONGEST)
        self.known_at = opened_at
        if n < enough and known.sustained <= 0:
            self.known = replace(known, shut=shut)
            return
        n = max(n, 1)
        older, self._older, self._mark = self._older, 0, -math.inf
        seen = min(max(self._seconds / n, _SHORTEST), LONGEST)
        self._accepted, self._seconds = 0, 0.0
        sustained, sure = seen, known.sure
        if known.sustained > 0:
            sure = sure or abs(math.log(seen / known.sustained)) < _AGREEMENT
            # It has accepted more than was thought possible; or less, or was only asked for less: the more requests
            # passed before the refusal, the more likely that is.
            weight = min(1.0, (n + 2) / 10) if seen < known.sustained else min(1.0, _SHARP / n) ** 2
            sustained = known.sustained + weight * (seen - known.sustained)
        wall = self._refused_interval
        passed = n + older
        respected = wall * (1 + (_FEW_RESPECT if passed < _FEW else min(_MOST_RESPECT, _RESPECT / passed)))
        self._target = max(sustained * _MARGIN, min(respected, sustained * 2))
        self._coming_back = True
        self.known = Evidence(sustained, wall, known.refusals + 1, sure, shut)

    def _is_punishment(self, open_for: float) -> bool:
        """Return whether the hold is the same after a longer or shorter stretch, so that it measures no quota."""
        if min(self._hold, self._hold_before, open_for, self._open_before) <= 0:
            return False
        same_number = abs(self._hold / self._hold_before - 1) < _SAME_NUMBER
        return same_number and abs(math.log(open_for / self._open_before)) > _OTHER_TIME
