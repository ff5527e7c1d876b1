"""How fast one origin is asked: its deadlines, its interval, and what makes its gaps wider for a while.

The rules are those of `scrapy_pacing.core.pacer`, which has one `Pace` for each origin, hands it the time, and draws
the random numbers. All times are monotonic seconds but where a wall-clock time is named.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .estimator import Estimator
from .lessons import evidence_in, with_evidence

if TYPE_CHECKING:
    from .gaps import GapLaw
    from .lessons import Learned
    from .policy import PacingPolicy

# An interval below this is nothing, where the policy's own is nothing.
_NO_INTERVAL = 1e-3
# No quota counts as larger, and no answer as slower.
_LARGEST_QUOTA = 1e12
_LONGEST_ANSWER = 3600.0
_SMOOTHING = 1 / 8


class Pace:
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
        # A mean gap each, 0.0 where there is none, and how long it lasts.
        self.latency = 0.0
        self.quota, self.quota_until = 0.0, -math.inf
        self.trouble, self.trouble_at = 0.0, -math.inf
        self.failures = 0

    def ready_at(self) -> float:
        """Return the time from which a request may leave."""
        return max(self.due, self.hold_until)

    def is_idle(self, now: float) -> bool:
        """Return whether nothing is under way and nothing has to wait."""
        return self.in_flight == 0 and self.due <= now and self.hold_until <= now

    def mean_gap(self, now: float) -> float:
        """Return the mean of a gap that is drawn now."""
        mean = self.interval
        # Where nobody asked for a gap, slow answers make none.
        if mean and self.latency * self.policy.latency_factor > mean:
            mean = max(mean, min(self.latency * self.policy.latency_factor, self.policy.max_interval))
        if self.quota > mean and now < self.quota_until:
            mean = self.quota
        if self.trouble > mean and now < self.trouble_at + self.policy.trouble_quiet:
            mean = self.trouble
        return mean

    # -- the deadlines ----------------------------------------------------------------------------------------------

    def wait_until(self, deadline: float) -> None:
        """Let nothing leave before ``deadline``; an earlier one than the present changes nothing."""
        self.due = max(self.due, deadline)

    def hold(self, now: float, seconds: float) -> bool:
        """Hold for so many seconds, `PacingPolicy.max_hold` at the most; return whether that is later than before."""
        until = now + min(seconds, self.policy.max_hold)
        # Put so that NaN extends nothing either.
        if not until > self.hold_until:
            return False
        self.hold_until = until
        self.asked = seconds
        return True

    # -- the learned interval ---------------------------------------------------------------------------------------

    def adopt(self, policy: PacingPolicy) -> None:
        """Go on under another policy; what was learned stays."""
        if policy == self.policy:
            return
        self.policy, self.law = policy, policy.law()
        self._learn(self.learned)

    def back_off(self, now: float, asked: float | None, *, is_evidence: bool) -> float:
        """Widen the interval after a refusal, and open the next epoch; return the mean of the wait that follows.

        ``asked`` is the server's number in seconds.
        """
        policy, old = self.policy, self.interval
        cap = policy.interval_cap()
        self.epoch += 1
        self.failed()
        wanted = asked or min(old, cap) * policy.backoff_factor or policy.first_interval
        wait = 0.0
        if is_evidence:
            hold = min(asked or 0.0, policy.max_hold)
            least, wait = self.limit.refused(now, old, hold, policy, self.in_flight)
            wanted = max(wanted, least)
        self._learn(max(old, min(wanted, cap)))
        return max(self.mean_gap(now), min(wait, cap))

    def ease(self, left_at: float | None) -> str | None:
        """Count a success; return why it narrows the interval, if it does.

        ``left_at`` is when its request left; None, where that is not known, so that it is no evidence.
        """
        policy, old = self.policy, self.interval
        self.failures = 0
        served = self.limit.served
        eased = self._ease_by_rule() if left_at is None else served(left_at, old, policy, self.in_flight)
        if eased is None or old <= policy.interval:
            return None
        new, why = eased
        self._learn(max(policy.interval, new) if new >= _NO_INTERVAL else 0.0)
        return why

    def failed(self) -> None:
        """Start the row of successes again."""
        self.successes = 0
        self.limit.failed()

    def _learn(self, interval: float) -> None:
        """Take a learned interval, as far as the policy lets it count."""
        self.learned = interval
        self.interval = max(self.policy.interval, min(interval, self.policy.interval_cap()))

    def _ease_by_rule(self) -> tuple[float, str] | None:
        needed = self.policy.recover_after
        if self.interval <= self.policy.interval:
            return None
        self.successes += 1
        if self.successes < needed:
            return None
        self.successes = 0
        return self.interval * self.policy.recover_factor, f"{needed} successes in a row"

    # -- what lasts for a while -------------------------------------------------------------------------------------

    def trouble_grows(self, now: float) -> bool:
        """Count a failure; return whether it widens the mean gap."""
        policy = self.policy
        self.failed()
        if self.trouble and now >= self.trouble_at + policy.trouble_quiet:
            self.trouble, self.failures = 0.0, 0
        self.failures = min(self.failures + 1, policy.trouble_after)
        if self.failures < policy.trouble_after:
            return False
        cap = policy.interval_cap()
        wanted = min(self.mean_gap(now), cap) * policy.backoff_factor or policy.first_interval
        self.trouble, self.trouble_at = max(self.trouble, min(wanted, cap)), now
        return True

    def answered(self, seconds: float, *, served: bool) -> None:
        """Smooth the time of an answer into `latency`; one that was not ``served`` can only make it longer."""
        known = self.latency
        if not served and seconds <= known:
            return
        seconds = min(seconds, _LONGEST_ANSWER)
        # As TCP smooths round-trip times (RFC 6298): the first as it is, then an eighth of each.
        self.latency = known + (seconds - known) * _SMOOTHING if known else seconds

    def spread(self, now: float, remaining: float, seconds: float) -> None:
        """Spread ``remaining`` requests, one at least, over so many seconds."""
        # Capped before the division, which a whole number of many digits would not survive.
        cap = self.policy.interval_cap()
        remaining = min(remaining, _LARGEST_QUOTA)
        self.quota = min(min(seconds, cap * remaining) / remaining, cap)
        self.quota_until = now + min(seconds, self.policy.max_hold)

    # -- between runs -----------------------------------------------------------------------------------------------

    def recall(self, learned: Learned, *, now: float, wall: float) -> None:
        """Start with what an earlier run has learned; ``now`` and ``wall`` are one moment on the two clocks."""
        self._learn(learned.interval)
        left = min(learned.hold_until - wall, self.policy.max_hold)
        if left > 0:
            self.hold_until = now + left
            self.asked = learned.asked
        self.limit = evidence_in(learned, now=now, wall=wall)

    def kept(self, *, now: float, wall: float) -> Learned:
        """Return what the next run shall know; ``now`` and ``wall`` are one moment on the two clocks."""
        left = self.hold_until - now
        until, asked = (wall + left, self.asked) if left > 0 else (0.0, 0.0)
        return with_evidence(self.interval, until, asked, self.limit, now=now, wall=wall)
