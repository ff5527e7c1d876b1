"""A broad crawl of fast and slow sites: 60 origins at 1 s and 20 at 30 s, closed 40 s after the first answer."""

from __future__ import annotations

import os
import random
import time

from scipy import stats as scipy_stats

from scrapy_pacing import PacingPolicy
from tests.support.crawl import requests, running
from tests.support.site import Site

SECONDS = 40
FAST, SLOW = 1.0, 30.0
FAST_HOSTS = tuple(f"127.0.2.{n}" for n in range(1, 61))
SLOW_HOSTS = tuple(f"127.0.3.{n}" for n in range(1, 21))
PAGES = 100
BARE_LAW = {"floor": 0, "ceiling": float("inf"), "pause_probability": 0}

PACING = {
    "PACING_INTERVAL": FAST,
    "PACING_FLOOR": 0,
    "PACING_CEILING": "inf",
    "PACING_PAUSE_PROBABILITY": 0,
    "PACING_ORIGINS": {host: {"interval": SLOW} for host in SLOW_HOSTS},
}
PLAIN = {
    "DOWNLOAD_DELAY": FAST,
    "DOWNLOAD_SLOTS": {host: {"concurrency": 8, "delay": SLOW} for host in SLOW_HOSTS},
}
SETUPS = (
    ("scrapy-pacing", 16, PACING, True),
    ("scrapy-pacing", 8, PACING, True),
    ("plain Scrapy", 16, PLAIN, False),
    ("plain Scrapy", 100, PLAIN, False),
)


def possible() -> float:
    """How many requests the gaps allow in that time, by drawing them."""
    source = random.Random(1)

    def count(interval: float) -> int:
        law = PacingPolicy(interval=interval, **BARE_LAW).law()
        elapsed, departures = 0.0, 0
        while elapsed < SECONDS:
            departures += 1
            elapsed += law.draw(source) * interval
        return departures

    draws = 200
    total = sum(len(FAST_HOSTS) * count(FAST) + len(SLOW_HOSTS) * count(SLOW) for _ in range(draws))
    return total / draws


def run(name: str, concurrency: int, settings: dict, *, addon: bool, most: float) -> None:
    hosts = FAST_HOSTS + SLOW_HOSTS
    with Site(hosts=hosts) as site:
        urls = [site.url(f"/{n}", host) for n in range(PAGES) for host in hosts]
        spider = {
            "spider": "tests.support.spiders.ClosingSpider",
            "arguments": {"requests": requests(*urls), "after": SECONDS},
        }
        merged = {"LOG_LEVEL": "INFO", "CONCURRENT_REQUESTS": concurrency, **settings}
        with running([spider], merged, addon=addon) as crawl:
            result = crawl.wait(900)
            ended = time.monotonic()
        closed = float(result.stats["closed_at"])
        before = [arrival for arrival in site.log if arrival.at <= closed]
        after = len(site.log) - len(before)
        gaps = [gap for host in FAST_HOSTS for gap in site.gaps(host)]
        law = scipy_stats.gamma(2.5, scale=FAST / 2.5) if addon else scipy_stats.uniform(FAST / 2, FAST)
        distance = scipy_stats.kstest(gaps, law.cdf).statistic if gaps else float("nan")
        mean = sum(gaps) / len(gaps) if gaps else float("nan")
    print(
        f"   {name:14} at {concurrency:3}: {len(before):5} requests, {100 * len(before) / most:5.1f} % of the possible; "
        f"fast gaps' mean {mean:.3f} s, KS {distance:.3f}; end {ended - closed:5.1f} s after the close, "
        f"{after} sent after it",
        flush=True,
    )


def main() -> None:
    most = possible()
    print(f"   the gaps allow {most:.0f} requests")
    only = os.environ.get("BENCH_ONLY")
    for name, concurrency, settings, addon in SETUPS:
        if only is None or only in name:
            run(name, concurrency, settings, addon=addon, most=most)
