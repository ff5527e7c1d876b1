"""20 origins over 4 exits: what the exits cost where the gaps are the limit, and how well they fill where room is."""

from __future__ import annotations

import contextlib
import random
import time
from collections import defaultdict

from scrapy_pacing import PacingPolicy
from tests.proxies import LocalProxy
from tests.support.crawl import requests, running
from tests.support.site import Site

SECONDS = 30
HOSTS = tuple(f"127.0.4.{n}" for n in range(1, 21))
EXITS = 4
ROOM = 2
BARE_LAW = {"floor": 0, "ceiling": float("inf"), "pause_probability": 0}
BARE = {"PACING_FLOOR": 0, "PACING_CEILING": "inf", "PACING_PAUSE_PROBABILITY": 0}


def allowed_by_gaps(interval: float) -> float:
    """How many requests the gaps allow in that time, by drawing them."""
    source = random.Random(1)
    law = PacingPolicy(interval=interval, **BARE_LAW).law()
    draws, total = 40, 0
    for _ in range(draws * len(HOSTS)):
        elapsed = 0.0
        while elapsed < SECONDS:
            total += 1
            elapsed += law.draw(source) * interval
    return total / draws


def run(name: str, *, interval: float, latency: float, most: float) -> None:
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(Site(hosts=HOSTS))
        proxies = [stack.enter_context(LocalProxy(delay=latency)) for _ in range(EXITS)]
        pages = int(2 * most / len(HOSTS)) + 10
        urls = [site.url(f"/{n}", host) for n in range(pages) for host in HOSTS]
        spider = {
            "spider": "tests.support.spiders.ClosingSpider",
            "arguments": {"requests": requests(*urls), "after": SECONDS},
        }
        settings = {
            "LOG_LEVEL": "INFO",
            "CONCURRENT_REQUESTS": 32,
            "PACING_INTERVAL": interval,
            "PACING_EXITS": [proxy.url for proxy in proxies],
            "PACING_MAX_SESSIONS_PER_EXIT": ROOM,
            "PACING_REMEMBER": False,
            **BARE,
        }
        with running([spider], settings) as crawl:
            result = crawl.wait(SECONDS + 120)
            ended = time.monotonic()
        closed = float(result.stats["closed_at"])
        sent = sum(arrival.at <= closed for arrival in site.log)
        by_origin = defaultdict(set)
        for proxy in proxies:
            for note in proxy.seen:
                by_origin[note.target].add(proxy.port)
        moved = sum(len(ports) > 1 for ports in by_origin.values())
        fullest = max(proxy.most_in_flight for proxy in proxies)
    print(
        f"   {name:28}: {sent:5} requests in {SECONDS} s, {100 * sent / most:5.1f} % of the {most:.0f} that are allowed; "
        f"most in flight by one exit {fullest}, origins that moved {moved}; end {ended - closed:.1f} s after the close",
        flush=True,
    )


def main() -> None:
    run("gaps of 1 s are the limit", interval=1.0, latency=0.1, most=allowed_by_gaps(1.0))
    run("room is the limit", interval=0.02, latency=0.4, most=SECONDS * EXITS * ROOM / 0.4)
