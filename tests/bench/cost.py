"""What pacing costs: the package's own time for a request, and CPU seconds a page beside plain Scrapy."""

from __future__ import annotations

import os
import statistics
import time

from scrapy import Request
from scrapy.http import HtmlResponse

from tests.support.crawl import NO_REACTOR, reactorless, running
from tests.support.queues import Bench
from tests.support.site import Site

REQUESTS = 20_000
PAGES = 3_000
PAIRS = int(os.environ.get("BENCH_PAIRS", "8"))


def own_time() -> None:
    """Time push, pop, the middlewares' methods and the stats, with no network and nothing of Scrapy between them."""
    from scrapy_pacing import Pacer, PacingMiddleware, PacingPolicy

    pace_only = {"PACING_TRAIL": False, "PACING_FETCH_METADATA": False}
    for name, interval, switches in (
        ("interval 0, pace only", 0.0, pace_only),
        ("interval 1 ns, pace only", 1e-9, pace_only),
        ("interval 1 ns, with the trail", 1e-9, {}),
    ):
        bench = Bench(
            Pacer(PacingPolicy(interval=interval)), {"PACING_WARMUP": "never", "PACING_REMEMBER": False, **switches}
        )
        middleware = PacingMiddleware(bench.crawler)
        bench.crawler.get_downloader_middleware = lambda _cls, made=middleware: made
        middleware._state.pacer.share([middleware._settings.policies.__class__(PacingPolicy(interval=interval))])
        queue = bench.queue()
        waiting = [Request(f"http://site-{n % 1000}.example/{n}") for n in range(REQUESTS)]
        active = bench.downloader.active
        answers = {request: HtmlResponse(request.url, body=b"<html></html>") for request in waiting}
        started = time.perf_counter()
        for request in waiting:
            queue.push(request)
        done = 0
        while done < REQUESTS:
            request = queue.pop()
            if request is None:
                continue
            active.add(request)
            finish(middleware.process_request(request))
            finish(middleware.process_response(request, answers[request]))
            active.discard(request)
            done += 1
        each = (time.perf_counter() - started) / REQUESTS
        print(f"   own time, {name:30}: {each * 1e6:5.1f} µs a request over {REQUESTS} requests", flush=True)


def finish(coroutine) -> object:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the request had to wait")


def page_cost(settings: dict, *, addon: bool) -> float:
    """CPU milliseconds a page of a crawl of one origin."""
    with Site() as site:
        job = {
            "spider": "tests.support.spiders.ManyPagesSpider",
            "arguments": {"url": site.url("/"), "pages": PAGES},
        }
        with running([job], {"LOG_LEVEL": "INFO", **settings}, addon=addon) as crawl:
            result = crawl.wait(300)
    assert result.stats["downloader/response_status_count/200"] == PAGES
    return 1000 * result.stats["cpu"] / PAGES


def pairs(name: str, settings: dict) -> None:
    ratios, plain_times = [], []
    for number in range(PAIRS):
        setups = [({"PACING_INTERVAL": 0, **settings}, True), (settings, False)]
        # In turn, so that a drift of the machine's speed favours neither.
        order = setups if number % 2 else setups[::-1]
        times = {addon: page_cost(own, addon=addon) for own, addon in order}
        ratios.append(times[True] / times[False])
        plain_times.append(times[False])
    print(
        f"   {PAGES} pages, {name}: CPU a page {statistics.median(ratios):.3f} x plain Scrapy (median of {PAIRS} pairs; "
        f"{min(ratios):.3f} to {max(ratios):.3f}); plain: {min(plain_times):.2f} to {max(plain_times):.2f} ms",
        flush=True,
    )


def main() -> None:
    own_time()
    pairs("asyncio reactor", {})
    if reactorless and os.environ.get("BENCH_ALL"):
        pairs("no reactor", NO_REACTOR)
