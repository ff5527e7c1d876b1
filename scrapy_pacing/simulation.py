"""What a limit does to a crawl, played on a clock that is moved by hand: no network, no waiting.

A limiter is a model of a site: asked at a moment, it serves or refuses. `crawl` runs a real `Pacer` against one,
`steady` asks at one constant mean interval, and `oracle` finds the best such interval in hindsight: the measure of
what learning is worth, since irregular gaps cost a part of any limit.

>>> from scrapy_pacing import PacingPolicy
>>> policy = PacingPolicy(interval=0.1, pause_probability=0)
>>> run = crawl(TokenBucket(5, 5, retry_after=True), 200, policy=policy, seed=1)
>>> run.pages, run.refusals < 10, run.seconds > 39
(200, True, True)
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from .core.pacer import Pacer
from .core.policy import PacingPolicy
from .testing import FakeClock, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from .core.lessons import Learned, Lessons

__all__ = [
    "Changing",
    "FixedWindow",
    "Limiter",
    "Notebook",
    "Oracle",
    "PenaltyBox",
    "Run",
    "SlidingWindow",
    "TokenBucket",
    "crawl",
    "oracle",
    "steady",
]

_ORIGIN = "https://example.com"
# A crawl that is refused so many times for each page it asks for gets nowhere.
_HOPELESS = 20
_BISECTIONS = 14


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
        self._rate = _above_zero("rate", rate)
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
        self._limit = _at_least_one("limit", limit)
        self._seconds = _above_zero("seconds", seconds)
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
        self._limit = _at_least_one("limit", limit)
        self._seconds = _above_zero("seconds", seconds)
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
        self._seconds = _above_zero("seconds", seconds)
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
        self._left = _at_least_one("pages", pages)

    def refuses(self, now: float) -> float | None:
        """Ask the limiter that is in force."""
        answer = self._limiter.refuses(now)
        if answer is None:
            self._left -= 1
            if self._left == 0:
                self._limiter = self._after
        return answer


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated crawl. Times are seconds since its first request."""

    served: tuple[float, ...]
    """When each page was served."""
    refused: tuple[float, ...]
    """When each refusal came."""
    path: tuple[tuple[float, float], ...]
    """Each change of the interval: when, and what it became; the first entry is where it started."""

    @property
    def pages(self) -> int:
        """How many pages were served."""
        return len(self.served)

    @property
    def refusals(self) -> int:
        """How many requests were refused."""
        return len(self.refused)

    @property
    def seconds(self) -> float:
        """From the first request to the last page."""
        return self.served[-1] if self.served else 0.0

    @property
    def goodput(self) -> float:
        """Pages a second."""
        return self.pages / self.seconds if self.seconds else 0.0

    def part(self, first: int, last: int | None = None) -> Run:
        """Return the run from its page number ``first`` on, up to, not including, the page number ``last``."""
        pages = self.served[first:last]
        if not pages:
            return Run((), (), ())
        start = self.served[first - 1] if first else 0.0
        end = pages[-1]
        interval = [entry for entry in self.path if entry[0] <= start][-1:]
        later = [entry for entry in self.path if start < entry[0] <= end]
        return Run(
            tuple(at - start for at in pages),
            tuple(at - start for at in self.refused if start < at <= end),
            tuple((max(0.0, at - start), value) for at, value in interval + later),
        )


@dataclass(frozen=True, slots=True)
class Oracle:
    """The best constant interval in hindsight."""

    interval: float
    goodput: float


class Notebook:
    """What a pacer learns, kept in a dict: a `Lessons` for runs that follow each other."""

    def __init__(self) -> None:
        self._known: dict[str, Learned] = {}

    def recall(self, origin: str) -> Learned | None:
        """Return what was learned of an origin, or None."""
        return self._known.get(origin)

    def record(self, origin: str, learned: Learned) -> None:
        """Keep what was learned."""
        self._known[origin] = learned


def crawl(
    limiter: Limiter,
    pages: int,
    *,
    policy: PacingPolicy | None = None,
    seed: int = 0,
    lessons: Lessons | None = None,
    clock: FakeClock | None = None,
    latency: float = 0.0,
    by_rule: bool = False,
) -> Run:
    """Fetch so many pages one after the other, as `Pacer` wants it, and return what happened.

    ``latency`` is the time that an answer takes, in seconds. ``lessons`` and ``clock`` let a run follow another.
    ``by_rule`` withholds from the pacer which requests were served and when, so it can only back off and ease by the
    numbers of the policy. Ends early where a site refuses nearly everything. Raises ValueError for less than one page.
    """
    _at_least_one("pages", pages)
    clock = clock or FakeClock()
    pacer = Pacer(policy, clock=clock, source=seeded(seed), lessons=lessons)
    start = clock.monotonic()
    interval = pacer.interval(_ORIGIN)
    served: list[float] = []
    refused: list[float] = []
    path = [(0.0, interval)]
    while len(served) < pages and len(refused) < _HOPELESS * pages:
        while (delay := pacer.next_delay(_ORIGIN)) > 0:
            clock.advance(max(delay, math.ulp(clock.monotonic())))
        departure = pacer.depart(_ORIGIN)
        asked = limiter.refuses(clock.monotonic() - start)
        clock.advance(latency)
        pacer.land(departure)
        now = clock.monotonic() - start
        ticket = None if by_rule else departure
        if asked is None:
            served.append(now)
            pacer.eased(_ORIGIN, departure=ticket)
        else:
            refused.append(now)
            pacer.throttled(_ORIGIN, asked, departure=ticket)
        if pacer.interval(_ORIGIN) != interval:
            interval = pacer.interval(_ORIGIN)
            path.append((now, interval))
    return Run(tuple(served), tuple(refused), tuple(path))


def steady(
    limiter: Limiter,
    pages: int,
    *,
    interval: float,
    policy: PacingPolicy | None = None,
    seed: int = 0,
) -> Run:
    """Fetch so many pages at one constant mean interval and with the gap law of ``policy``, whatever the answers are.

    Ends early where a site refuses nearly everything. Raises ValueError for less than one page, or a negative interval.
    """
    _at_least_one("pages", pages)
    if not 0 <= interval < math.inf:
        raise ValueError(f"interval is {interval!r}; allowed: 0 or more, finite")
    law = (policy or PacingPolicy()).law()
    source = seeded(seed)
    served: list[float] = []
    refused: list[float] = []
    now = 0.0
    while len(refused) < _HOPELESS * pages:
        (served if limiter.refuses(now) is None else refused).append(now)
        if len(served) == pages:
            break
        now += law.draw(source) * interval
    return Run(tuple(served), tuple(refused), ((0.0, interval),))


def oracle(
    site: Callable[[], Limiter],
    *,
    policy: PacingPolicy | None = None,
    pages: int = 1000,
    seeds: int = 20,
    most_refusals: int = 2,
) -> Oracle | None:
    """Return the shortest constant interval that earns at most so many refusals, and the goodput it reaches.

    Both are medians over ``seeds`` runs, each against a fresh limiter of ``site``. The interval is at least the
    policy's. None if there is no such interval up to a day.
    """
    policy = policy or PacingPolicy()

    def runs(interval: float) -> list[Run]:
        return [steady(site(), pages, interval=interval, policy=policy, seed=seed) for seed in range(seeds)]

    def passes(interval: float) -> bool:
        tried = runs(interval)
        enough = all(run.pages == pages for run in tried)
        return enough and median(run.refusals for run in tried) <= most_refusals

    low = high = max(policy.interval, 1e-3)
    while not passes(high):
        low, high = high, high * 2
        if high > 86_400:
            return None
    for _ in range(_BISECTIONS if high > low else 0):
        middle = math.sqrt(low * high)
        if passes(middle):
            high = middle
        else:
            low = middle
    return Oracle(high, median(run.goodput for run in runs(high)))


def _named(seconds: float, retry_after: bool) -> float:
    """Return what a server writes into Retry-After: whole seconds, rounded up, and never 0."""
    return float(max(1, math.ceil(seconds))) if retry_after else 0.0


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; allowed: above 0, finite")
    return value


def _at_least_one(name: str, value: int) -> int:
    if not value >= 1:
        raise ValueError(f"{name} is {value!r}; allowed: 1 or more")
    return value
