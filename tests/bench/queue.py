"""What a push and a pop cost, and how much memory a waiting origin takes, from 100 to 100,000 origins."""

from __future__ import annotations

import gc
import time
import tracemalloc
from types import SimpleNamespace

from scrapy import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.squeues import FifoMemoryQueue, LifoMemoryQueue

from scrapy_pacing import Pacer, PacingPolicy
from tests.support.queues import Bench, Crawler

SIZES = (100, 1_000, 10_000, 100_000)
# Scrapy's own queue is too slow to be emptied at these sizes; so many pops are timed.
PLAIN_POPS = 200
MOST_PLAIN = 10_000


def requests(count: int) -> list[Request]:
    return [Request(f"http://site-{n}.example/page") for n in range(count)]


def paced(count: int) -> None:
    bench = Bench(Pacer(PacingPolicy(interval=1.0), max_origins=4096))
    queue = bench.queue()
    waiting = requests(count)
    gc.collect()
    tracemalloc.start()
    for request in waiting:
        queue.push(request)
    memory = tracemalloc.get_traced_memory()[0] / count
    tracemalloc.stop()

    bench = Bench(Pacer(PacingPolicy(interval=1.0), max_origins=4096))
    queue = bench.queue()
    gc.collect()
    started = time.perf_counter()
    for request in waiting:
        queue.push(request)
    push = (time.perf_counter() - started) / count
    pops = 0.0
    popped = 0
    while True:
        started = time.perf_counter()
        request = bench.pop(queue)
        pops += time.perf_counter() - started
        if request is None:
            break
        popped += 1
        bench.depart(request)
        bench.finish(request)
    assert popped == count, f"{popped} of {count} were popped"
    print(
        f"   scrapy-pacing  {count:7} origins: push {push * 1e6:7.1f} µs, pop {pops / count * 1e6:7.1f} µs, "
        f"{memory:6.0f} B a waiting origin above its request; {len(bench.pacer)} origins remembered afterwards",
        flush=True,
    )


def plain(count: int) -> None:
    crawler = Crawler({})
    downloader = SimpleNamespace(slots={}, get_slot_key=lambda request: request.url.split("/")[2])
    crawler.engine = SimpleNamespace(downloader=downloader)
    queue = DownloaderAwarePriorityQueue.from_crawler(crawler, LifoMemoryQueue, "", start_queue_cls=FifoMemoryQueue)
    waiting = requests(count)
    gc.collect()
    started = time.perf_counter()
    for request in waiting:
        queue.push(request)
    push = (time.perf_counter() - started) / count
    pops = min(count, PLAIN_POPS)
    started = time.perf_counter()
    for _ in range(pops):
        queue.pop()
    pop = (time.perf_counter() - started) / pops
    print(f"   plain Scrapy   {count:7} origins: push {push * 1e6:7.1f} µs, pop {pop * 1e6:7.1f} µs", flush=True)


def main() -> None:
    for count in SIZES:
        paced(count)
        if count <= MOST_PLAIN:
            plain(count)
