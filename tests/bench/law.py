"""The gaps of a crawl of 40 origins against the law they are drawn from."""

from __future__ import annotations

import itertools
import os

from scipy import stats

from tests.support.crawl import crawl
from tests.support.site import Site

INTERVAL = 0.5
ORIGINS = 40
GAPS = int(os.environ.get("BENCH_GAPS", "40"))

PACING = {
    "PACING_INTERVAL": INTERVAL,
    "PACING_FLOOR": 0,
    "PACING_CEILING": "inf",
    "PACING_PAUSE_PROBABILITY": 0,
}
PLAIN = {"DOWNLOAD_DELAY": INTERVAL, "CONCURRENT_REQUESTS": 2000}
COMMON = {"LOG_LEVEL": "INFO"}


def measure(settings: dict, *, addon: bool) -> list[list[float]]:
    """Crawl, and return the gaps of each origin as the site saw them."""
    hosts = tuple(f"127.0.1.{n}" for n in range(1, ORIGINS + 1))
    with Site(hosts=hosts) as site:
        urls = [site.url(f"/{n}", host) for n in range(GAPS + 1) for host in hosts]
        crawl(*urls, settings={**COMMON, **settings}, addon=addon, timeout=600)
        # The first gap holds the connection's own delay.
        return [site.gaps(host) for host in hosts]


def report(name: str, gaps: list[list[float]], law: object) -> None:
    pooled = list(itertools.chain.from_iterable(gaps))
    mean = sum(pooled) / len(pooled)
    distance = stats.kstest(pooled, law.cdf).statistic
    rho = stats.spearmanr([gap for one in gaps for gap in one[:-1]], [gap for one in gaps for gap in one[1:]]).statistic
    print(
        f"   {name:13} {len(pooled)} gaps, mean {mean:.4f} s ({100 * (mean / INTERVAL - 1):+.1f} %), "
        f"KS distance {distance:.3f}, rank correlation of neighbours {rho:+.3f}"
    )


def main() -> None:
    noise = 0.632 / (ORIGINS * GAPS) ** 0.5
    print(f"   interval {INTERVAL} s; chance alone moves the mean of so many gaps by {100 * noise:.1f} % (one sigma)")
    report("scrapy-pacing", measure(PACING, addon=True), stats.gamma(2.5, scale=INTERVAL / 2.5))
    report("plain Scrapy", measure(PLAIN, addon=False), stats.uniform(INTERVAL / 2, INTERVAL))
