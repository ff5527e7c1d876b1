"""The sites of `simulate`, real: a local server with each limiter, ten times as fast, and what becomes of its pages.

A minute is 6 s here, a rate of 2 a second is 20, and the policy's interval is 0.01 s for 0.1 s. Retry-After is in whole
seconds all the same, at least 1: no server can say less. Each site is crawled twice with one memory, and once by plain
Scrapy with AutoThrottle; what the simulator says of so few pages stands below. Two sites are crawled at a time, since
most of a paced crawl is waiting. ``BENCH_ONLY`` picks sites by a part of their names.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from scrapy_pacing import PacingPolicy
from scrapy_pacing.simulation import (
    Changing,
    FixedWindow,
    Notebook,
    PenaltyBox,
    SlidingWindow,
    TokenBucket,
    crawl as simulate,
)
from scrapy_pacing.testing import FakeClock
from tests.support.crawl import crawl
from tests.support.site import Site, ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_pacing.simulation import Limiter, Run

PAGES = 200
INTERVAL = 0.01
LONGEST = 240
SEEDS = 15
# Between two simulated runs, and for a simulated answer, in seconds.
BETWEEN, LATENCY = 3.0, 0.003
PACING = {"PACING_INTERVAL": INTERVAL, "PACING_PAUSE_PROBABILITY": 0, "PACING_REMEMBER": True}
AUTOTHROTTLE = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": INTERVAL}


@dataclass(frozen=True)
class Limit:
    name: str
    make: Callable[[], Limiter]
    rate: float
    """What it allows in the long run, in requests a second."""


LIMITS = (
    Limit("bucket 20/s, burst 5", lambda: TokenBucket(20, 5), 20),
    Limit("bucket 50/s, burst 5, Retry-After", lambda: TokenBucket(50, 5, retry_after=True), 50),
    Limit("60 in fixed 6 s, Retry-After", lambda: FixedWindow(60, 6, retry_after=True), 10),
    Limit("60 in fixed 6 s", lambda: FixedWindow(60, 6), 10),
    Limit("60 in sliding 6 s, Retry-After", lambda: SlidingWindow(60, 6, retry_after=True), 10),
    Limit("bucket 20/s, penalty 6 s, R.-A.", lambda: PenaltyBox(TokenBucket(20, 5), 6, retry_after=True), 20),
    Limit("bucket 20/s, penalty 6 s", lambda: PenaltyBox(TokenBucket(20, 5), 6), 20),
    Limit(
        "bucket 40/s, 20/s for the 2nd half",
        lambda: Changing(TokenBucket(40, 5), TokenBucket(20, 5), pages=PAGES // 2),
        PAGES / (PAGES / 2 / 40 + PAGES / 2 / 20),
    ),
)


class Limited:
    """A server's handler that asks a limiter, and notes when each page was served first."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._start: float | None = None
        self.served: dict[str, float] = {}
        self.refused = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        now = time.monotonic()
        if self._start is None:
            self._start = now
        asked = self._limiter.refuses(now - self._start)
        if asked is None:
            self.served.setdefault(request.path, now - self._start)
            return await ok(request)
        self.refused += 1
        return web.Response(status=429, headers={"Retry-After": f"{asked:.0f}"} if asked else {})


def run(name: str, limit: Limit, site: Site, settings: dict, *, addon: bool) -> str:
    site.handler = handler = Limited(limit.make())
    urls = [site.url(f"/{n}") for n in range(PAGES)]
    ended = True
    try:
        crawl(*urls, settings={"LOG_LEVEL": "INFO", **settings}, addon=addon, timeout=LONGEST)
    except pytest.fail.Exception:
        ended = False
    served = len(handler.served)
    seconds = max(handler.served.values(), default=0.0)
    line = row(name, PAGES - served, handler.refused, seconds, limit)
    return line if ended else f"{line}; cut off after {LONGEST} s, those pages were still to come"


def row(name: str, lost: int, refused: float, seconds: float, limit: Limit) -> str:
    # The first few pages of a crawl that loses the rest came at no limit's rate.
    share = f"{(PAGES - lost) / seconds / limit.rate:4.2f} of the rate" if lost < PAGES / 2 else ""
    return f"     {name:25} {lost:3} pages lost, {refused:4.0f} refusals, {seconds:5.1f} s  {share}"


def simulated(limit: Limit) -> list[str]:
    policy = PacingPolicy(interval=INTERVAL, pause_probability=0)
    runs: list[tuple[Run, Run]] = []
    for seed in range(SEEDS):
        notebook, clock = Notebook(), FakeClock()
        first = simulate(limit.make(), PAGES, policy=policy, seed=seed, lessons=notebook, clock=clock, latency=LATENCY)
        clock.advance(BETWEEN)
        second = simulate(
            limit.make(), PAGES, policy=policy, seed=seed + SEEDS, lessons=notebook, clock=clock, latency=LATENCY
        )
        runs.append((first, second))
    lines = []
    for name, these in zip(("first run", "second run"), zip(*runs, strict=True), strict=True):
        lost, refused = median(PAGES - one.pages for one in these), median(one.refusals for one in these)
        times = sorted(one.seconds for one in these)
        line = row(f"  simulated, {name}", int(lost), refused, median(times), limit)
        lines.append(f"{line}, {times[0]:.0f} to {times[-1]:.0f} s")
    return lines


def crawls(limit: Limit) -> str:
    lines = [f"   {limit.name}: {PAGES / limit.rate:.0f} s at {limit.rate:.3g} a second"]
    # One site for all, since what is remembered is remembered of an address and its port.
    with tempfile.TemporaryDirectory() as directory, Site() as site:
        pacing = {**PACING, "PACING_DATA_DIR": directory}
        lines.append(run("scrapy-pacing, first run", limit, site, pacing, addon=True))
        lines.append(run("scrapy-pacing, second run", limit, site, pacing, addon=True))
        lines.append(run("Scrapy + AutoThrottle", limit, site, AUTOTHROTTLE, addon=False))
    return "\n".join(lines + simulated(limit))


def main() -> None:
    print(f"   {PAGES} pages; what a site allows at once can bring the share above 1")
    only = os.environ.get("BENCH_ONLY", "")
    chosen = [limit for limit in LIMITS if only in limit.name]
    with ThreadPoolExecutor(2) as executor:
        for table in executor.map(crawls, chosen):
            print(table, flush=True)
