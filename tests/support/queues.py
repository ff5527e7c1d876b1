"""A paced queue without a crawl around it, for unit tests and benchmarks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.squeues import FifoMemoryQueue, LifoMemoryQueue
from scrapy.statscollectors import MemoryStatsCollector

from scrapy_pacing import Pacer, origin_key
from scrapy_pacing.cancel import Cancellations
from scrapy_pacing.dispatch import Dispatch
from scrapy_pacing.gate import Gate
from scrapy_pacing.pqueues import PacedPriorityQueue
from scrapy_pacing.slots import DownloadSlots


class Crawler:
    """What components ask of a crawler before it runs; Scrapy's own wants a reactor."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = Settings(settings)
        self.signals = SignalManager(self)
        self.stats = MemoryStatsCollector(self)
        self.spider = None
        self.engine: Any = None

    def get_downloader_middleware(self, _cls: type) -> Any:
        return None

    def get_extension(self, _cls: type) -> Any:
        return None


class Bench:
    """The parts of a crawl that a queue talks to: an engine that does nothing, a pacer, and the dispatch."""

    def __init__(self, pacer: Pacer, settings: dict[str, Any] | None = None) -> None:
        self.crawler: Any = Crawler(settings or {})
        self.downloader = SimpleNamespace(
            active=set(), total_concurrency=16, slots={}, get_slot_key=lambda request: request.url.split("/")[2]
        )
        self.nextcall = SimpleNamespace(schedule=self._woken)
        self.wakes = 0
        self.crawler.engine = SimpleNamespace(
            downloader=self.downloader, _slot=SimpleNamespace(closing=None, nextcall=self.nextcall)
        )
        self.pacer = pacer
        self.slots = DownloadSlots(self.crawler, pacer)
        self.dispatch = Dispatch(self.crawler, pacer, self.slots)
        cancellations = Cancellations(self.crawler, Gate(pacer), count=lambda *_: None)
        middleware = SimpleNamespace(lane_of=self.lane_of, dispatch=self.dispatch, cancellations=cancellations)
        self.crawler.get_downloader_middleware = lambda _cls: middleware

    def lane_of(self, request: Any) -> str | None:
        return None if request.meta.get("dont_pace") else origin_key(request.url)

    def queue(
        self, *, key: str = "", startprios: Any = None, downstream: Any = LifoMemoryQueue, start: Any = FifoMemoryQueue
    ) -> PacedPriorityQueue:
        return PacedPriorityQueue.from_crawler(self.crawler, downstream, key, startprios, start_queue_cls=start)

    def pop(self, queue: PacedPriorityQueue) -> Any:
        """Pop as the engine does: what was popped is active from then on."""
        request = queue.pop()
        if request is not None:
            self.downloader.active.add(request)
        return request

    def depart(self, request: Any) -> Any:
        """Let a popped request pass the gate."""
        origin = self.lane_of(request)
        departure = self.pacer.depart(origin)
        self.slots.depart(request, departure)
        self.dispatch.off_its_way(request)
        return departure

    def finish(self, request: Any) -> None:
        """Let the downloader be done with a request, however it ended."""
        self.downloader.active.discard(request)
        self.slots.land(request)

    def _woken(self) -> None:
        self.wakes += 1
