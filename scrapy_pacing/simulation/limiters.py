"""Models of sites with a limit: asked at a moment, they serve or refuse.

A limiter has no clock: whoever asks says when, in seconds since it began, and never goes back. A refused request costs
nothing of the limit; only a `PenaltyBox` makes it cost.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from .checks import above_zero, at_least_one


class Limiter(Protocol):
    """A site with a limit."""

    def refuses(self, now: float) -> float | None:
        """Take a request at ``now`` (monotonic seconds, never less than before) and return None if it is served.

        Otherwise the seconds that the refusal names in Retry-After, 0.0 where it names none.
        """


class TokenBucket:
    """Serves ``rate`` requests a second, and up to ``burst`` at once after a rest."""

    def __init__(self, rate: float, burst: float = 1, *, retry_after: bool = False) -> None:
        """Start full. Raises ValueError for a rate that is not positive, or a burst below 1."""
        self._rate = above_zero("rate", rate)
        if not burst >= 1:
            raise ValueError(f"burst is {burst!r}; allowed: 1 or more")
        self._burst = burst
        self._retry_after = retry_after
        self._tokens = float(burst)
        self._at = -math.inf

    def refuses(self, now: float) -> float | None:
        """Take a token, or say when there is one."""
        if self._at > -math.inf:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return None
        return _named((1 - self._tokens) / self._rate, self._retry_after)


class FixedWindow:
    """Serves ``limit`` requests in each window of ``seconds``, counted from the first one."""

    def __init__(self, limit: int, seconds: float, *, retry_after: bool = False) -> None:
        """Start at the begin of a window. Raises ValueError for a limit below 1 or a window of no length."""
        self._limit = at_least_one("limit", limit)
        self._seconds = above_zero("seconds", seconds)
        self._retry_after = retry_after
        self._start = -math.inf
        self._served = 0

    def refuses(self, now: float) -> float | None:
        """Count within the window, or say when the next one begins."""
        if now >= self._start + self._seconds:
            self._start = now if self._start == -math.inf else now - (now - self._start) % self._seconds
            self._served = 0
        if self._served < self._limit:
            self._served += 1
            return None
        return _named(self._start + self._seconds - now, self._retry_after)


class SlidingWindow:
    """Serves at most ``limit`` requests in any span of ``seconds``."""

    def __init__(self, limit: int, seconds: float, *, retry_after: bool = False) -> None:
        """Start with nothing counted. Raises ValueError for a limit below 1 or a window of no length."""
        self._limit = at_least_one("limit", limit)
        self._seconds = above_zero("seconds", seconds)
        self._retry_after = retry_after
        self._served: deque[float] = deque()

    def refuses(self, now: float) -> float | None:
        """Count within the window that ends now, or say when its oldest request leaves it."""
        served = self._served
        while served and served[0] <= now - self._seconds:
            served.popleft()
        if len(served) < self._limit:
            served.append(now)
            return None
        return _named(served[0] + self._seconds - now, self._retry_after)


class PenaltyBox:
    """A limiter whose every refusal shuts everybody out for ``seconds``, anew at each request meanwhile."""

    def __init__(self, limiter: Limiter, seconds: float, *, retry_after: bool = False) -> None:
        """Start with nobody shut out. Raises ValueError for a penalty of no length."""
        self._limiter = limiter
        self._seconds = above_zero("seconds", seconds)
        self._retry_after = retry_after
        self._until = -math.inf

    def refuses(self, now: float) -> float | None:
        """Refuse during a penalty, and start one where the limiter refuses."""
        if now >= self._until and self._limiter.refuses(now) is None:
            return None
        self._until = now + self._seconds
        return _named(self._seconds, self._retry_after)


class Changing:
    """A site that changes its limit after it has served so many pages."""

    def __init__(self, before: Limiter, after: Limiter, *, pages: int) -> None:
        """Start with ``before``. Raises ValueError for less than one page."""
        self._limiter = before
        self._after = after
        self._left = at_least_one("pages", pages)

    def refuses(self, now: float) -> float | None:
        """Ask the limiter that is in force."""
        answer = self._limiter.refuses(now)
        if answer is None:
            self._left -= 1
            if self._left == 0:
                self._limiter = self._after
        return answer


def _named(seconds: float, retry_after: bool) -> float:
    """Return what a server writes into Retry-After: whole seconds, rounded up, and never 0."""
    return float(max(1, math.ceil(seconds))) if retry_after else 0.0
