"""The extension that remembers: it records what answers teach, and sees to it that the memory is saved."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import call_later

from scrapy_pacing.clearances import Clearances
from scrapy_pacing.compat import run_in_thread, start
from scrapy_pacing.core.layers import Layer
from scrapy_pacing.findings import came_to
from scrapy_pacing.recorder import Recorder
from scrapy_pacing.settings import pacing_enabled, read_settings
from scrapy_pacing.state import state_of

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.utils.asyncio import CallLaterResult

    # typing.Self came with Python 3.11
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class MemoryExtension:
    """Records what answers teach of their sites, saves it now and then, and when the spider closes.

    While there is something to save a timer runs, and saves after ``PACING_FLUSH_INTERVAL`` at the latest; so a crawl
    that is killed loses no more than that. Saving happens in a thread. The memory itself belongs to the `SharedState`
    of the crawl: each crawl saves all of it, and closing one takes nothing from the others.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Load what is remembered; raises ValueError for a bad setting, NotConfigured if nothing is to be."""
        if not pacing_enabled(crawler.settings):
            raise NotConfigured
        settings = read_settings(crawler.settings, crawler.spider)
        state = state_of(crawler, settings)
        if state.memory is None:
            raise NotConfigured
        self.memory = state.memory
        self._crawler = crawler
        self._interval = settings.flush_interval
        self._thread = threading.get_ident()
        self._timer: CallLaterResult | None = None
        self._saving = False
        self._closed = False
        count = crawler.stats.inc_value
        self.recorder = Recorder(self.memory, clock=state.pacer.clock, count=count, diagnose=settings.diagnose)
        self.clearances = Clearances(crawler, self.memory, settings.clearance_cookies, count=count)
        for handler, signal in (
            (self._spider_opened, signals.spider_opened),
            (self._spider_closed, signals.spider_closed),
            (self._request_scheduled, signals.request_scheduled),
            (self._response_received, signals.response_received),
            (self._spider_error, signals.spider_error),
        ):
            crawler.signals.connect(handler, signal=signal)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the extension of a crawler."""
        return cls(crawler)

    # -- what answers teach -----------------------------------------------------------------------------------------

    def _request_scheduled(self, request: Request) -> None:
        self.recorder.hint(request)

    def _response_received(self, response: Response, request: Request) -> None:
        came_to(request, self._crawler)
        layer = self.recorder.learn(request, response)
        if layer is None:
            self.clearances.keep(request, response)
        elif layer is Layer.CHALLENGE:
            self.clearances.withdraw(response)
        self._look()

    def _spider_error(self, response: Response | None) -> None:
        """See to it that a page whose callback failed is asked for in full next time."""
        if response is not None:
            self.memory.forget_validators(response.url)

    # -- saving -----------------------------------------------------------------------------------------------------

    def _spider_opened(self, spider: Spider) -> None:
        # Not before: who records in another thread can't set a timer, and now there is one to look after them.
        self._thread = threading.get_ident()
        self.memory.watch(self._look)
        count = len(self.memory)
        self._crawler.stats.set_value("pacing/memory/recalled", count)
        self._say_notices()
        logger.info(
            "Remembering %(count)d origins in %(path)s",
            {"count": count, "path": self.memory.path},
            extra={"spider": spider},
        )
        self._look()

    def _look(self) -> None:
        """Set the timer if there is something to save and none is set."""
        if self._timer is not None or self._saving or self._closed or not self.memory.dirty:
            return
        if threading.get_ident() == self._thread:
            self._timer = call_later(self._interval, self._checkpoint)

    def _checkpoint(self) -> None:
        self._timer = None
        self._saving = True
        start(self._save_and_look())

    async def _save_and_look(self) -> None:
        try:
            await self._save()
        finally:
            self._saving = False
            self._look()

    async def _save(self) -> None:
        if not self.memory.dirty:
            return
        saved = await run_in_thread(self.memory.flush)
        self._crawler.stats.inc_value("pacing/memory/saves" if saved else "pacing/memory/failed_saves")
        self._say_notices()

    async def _spider_closed(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        self._closed = True
        self.memory.unwatch(self._look)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._save()
        self._crawler.stats.set_value("pacing/memory/kept", len(self.memory))

    def _say_notices(self) -> None:
        for notice in self.memory.take_notices():
            logger.warning("%s", notice, extra={"spider": self._crawler.spider})
