"""The sites of `simulate`, real: a local server with each limiter, ten times as fast, and what becomes of its pages.

A minute is 6 s here, a rate of 2 a second is 20, and the policy's interval is 0.01 s for 0.1 s. Retry-After is in whole
seconds all the same, at least 1: no server can say less. Each site is crawled twice with one memory, and once by plain
Scrapy with AutoThrottle. ``BENCH_ONLY`` picks sites by a part of their names.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from scrapy_pacing.simulation import Changing, FixedWindow, PenaltyBox, SlidingWindow, TokenBucket
from tests.support.crawl import crawl
from tests.support.site import Site, ok

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy_pacing.simulation import Limiter

PAGES = 240
INTERVAL = 0.01
LONGEST = 90
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


def run(name: str, limit: Limit, site: Site, settings: dict, *, addon: bool) -> None:
    site.handler = handler = Limited(limit.make())
    urls = [site.url(f"/{n}") for n in range(PAGES)]
    cut = ""
    try:
        crawl(*urls, settings={"LOG_LEVEL": "INFO", **settings}, addon=addon, timeout=LONGEST)
    except pytest.fail.Exception:
        cut = f"; cut off after {LONGEST} s"
    served = len(handler.served)
    seconds = max(handler.served.values(), default=0.0)
    share = f"{served / seconds / limit.rate:4.2f}" if seconds else "none"
    print(
        f"     {name:24} {PAGES - served:3} pages lost, {handler.refused:4} refusals, {seconds:5.1f} s, "
        f"{share} of the rate{cut}",
        flush=True,
    )


def main() -> None:
    print(f"   {PAGES} pages; what a site allows at once can bring the share above 1")
    only = os.environ.get("BENCH_ONLY", "")
    for limit in LIMITS:
        if only not in limit.name:
            continue
        print(f"   {limit.name}: {PAGES / limit.rate:.0f} s at {limit.rate:.3g} a second")
        # One site for all, since what is remembered is remembered of an address and its port.
        with tempfile.TemporaryDirectory() as directory, Site() as site:
            pacing = {"PACING_INTERVAL": INTERVAL, "PACING_REMEMBER": True, "PACING_DATA_DIR": directory}
            run("scrapy-pacing, first run", limit, site, pacing, addon=True)
            run("scrapy-pacing, second run", limit, site, pacing, addon=True)
            run("Scrapy + AutoThrottle", limit, site, AUTOTHROTTLE, addon=False)
