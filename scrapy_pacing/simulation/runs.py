"""Crawls against a model of a site, on a clock that is moved by hand, and the best that a crawl could have done."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from scrapy_pacing.core.pacer import Pacer
from scrapy_pacing.core.policy import PacingPolicy
from scrapy_pacing.testing import FakeClock, seeded

from .checks import at_least_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_pacing.core.lessons import Learned, Lessons

    from .limiters import Limiter

_ORIGIN = "https://example.com"
# A crawl that is refused so many times for each page it asks for gets nowhere.
_HOPELESS = 20
_BISECTIONS = 14


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
    at_least_one("pages", pages)
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
    at_least_one("pages", pages)
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
