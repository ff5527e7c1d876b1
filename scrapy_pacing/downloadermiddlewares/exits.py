"""The middleware that chooses the exit: a lease for each origin, its cookie jar, and its proxy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.exceptions import NotConfigured
from scrapy.utils.misc import load_object

from scrapy_pacing.again import again, give_back, settle
from scrapy_pacing.compat import component_orders, is_closing, on_closing
from scrapy_pacing.core.exits import Cause
from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.exits import NoExitLeft, open_exits
from scrapy_pacing.settings import read_settings
from scrapy_pacing.state import state_of

from .pacing import PacingMiddleware

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    # typing.Self came with Python 3.11
    from typing_extensions import Self

    from scrapy_pacing.core.exits import Fault, Lease

logger = logging.getLogger(__name__)

_FAULTS = "pacing_exit_faults"
_MAY_HAVE_ARRIVED = frozenset({Cause.GATEWAY, Cause.TIMEOUTS, Cause.LOST})
# RFC 9110 section 9.2.2: sending these twice does what sending them once does.
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


class ExitMiddleware:
    """Lets each origin leave by one exit, and holds it until there is evidence that this address is burnt.

    Belongs at order 690 of DOWNLOADER_MIDDLEWARES: before CookiesMiddleware (700), since each lease has a cookie jar
    of its own, and before HttpProxyMiddleware (750), which handles the credentials. With `PacingMiddleware` (950) the
    room of an exit is taken together with passing the gate; without it, here.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings of ``crawler``; raises ValueError for a bad one, NotConfigured if there are no exits."""
        if not crawler.settings.getbool("PACING_ENABLED", True):
            raise NotConfigured
        settings = read_settings(crawler.settings)
        if not settings.exits.wanted:
            raise NotConfigured
        _check_order(crawler)
        self.crawler = crawler
        self.exits = open_exits(crawler, settings, state_of(crawler, settings))
        self._max_origins = settings.max_origins
        self._pacing: PacingMiddleware | None = None
        self._cookies: CookiesMiddleware | None = None
        # The jars that leases have had, in the order of use.
        self._jars: dict[str, None] = {}
        self._warned_of: set[str] = set()
        self.exits.on_ended.append(self._drop_jar_of)
        crawler.signals.connect(self._spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware of a crawler."""
        return cls(crawler)

    # -- on the way out ---------------------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | None:
        """Bind the request to its origin's exit; raises `NoExitLeft` if there was none in time."""
        self.exits.unbind(request)
        origin = origin_key(request.url)
        if origin is None:
            return None
        if "proxy" in request.meta:
            # The user's own wins, None included.
            self.exits.forget(origin)
            return None
        return await self._leave_by_exit(request, origin)

    async def _leave_by_exit(self, request: Request, origin: str) -> Request | None:
        takes_room = self._pacing is None or self._pacing.lane_of(request) is None
        while not self._may_leave(request, origin, takes_room=takes_room):
            if is_closing(self.crawler):
                return self._give_back(request)
            if self.exits.is_stranded(origin):
                if self.exits.patience(origin) <= 0:
                    raise self._no_exit_left(origin)
                if self._pacing is not None and self._waits_in_queue(request, origin):
                    return self._pacing.requeue(request)
            await self.exits.waits.word(origin, self.exits.look_again_in(origin))
        return None

    def _may_leave(self, request: Request, origin: str, *, takes_room: bool) -> bool:
        """Bind the request, and take its room here if nobody does later; return whether that could be done."""
        lease = self.exits.lease(origin)
        if lease is None or (takes_room and is_closing(self.crawler)):
            return False
        self.exits.bind(request, lease)
        if takes_room:
            if not self.exits.take(request):
                self.exits.unbind(request)
                return False
            settle(request)
        self._warned_of.discard(origin)
        self._use_jar(lease)
        return True

    def _waits_in_queue(self, request: Request, origin: str) -> bool:
        """Tell whether the queue knows that this request's origin has no exit, and keeps it until it has or fails."""
        pacing = self._pacing
        return pacing is not None and pacing.lane_of(request) == origin and pacing.dispatch.came_by_queue(request)

    def _give_back(self, request: Request) -> Request:
        again_later = give_back(request)
        self._inc("pacing/given_back")
        return again_later

    def _no_exit_left(self, origin: str) -> NoExitLeft:
        self._inc("pacing/no_exit_left")
        text = f"no exit was left for {origin} within {self.exits.settings.wait:g} s (PACING_EXIT_WAIT)"
        if origin not in self._warned_of and len(self._warned_of) < self._max_origins:
            self._warned_of.add(origin)
            logger.warning("Requests fail: %s", text, extra={"spider": self.crawler.spider})
        return NoExitLeft(text)

    # -- on the way back --------------------------------------------------------------------------------------------

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Learn from the answer; a request that only its exit has failed goes back to the scheduler."""
        self.exits.answered(request, response)
        self.exits.unbind(request)
        fault = self.exits.take_fault(request)
        if fault is not None and not self._wanted_by_spider(request, response.status):
            return self._try_again(request, fault) or response
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Learn from the failure; a request that only its exit has failed goes back to the scheduler."""
        self.exits.failed(request, exception)
        self.exits.unbind(request)
        fault = self.exits.take_fault(request)
        return None if fault is None else self._try_again(request, fault)

    def _try_again(self, request: Request, fault: Fault) -> Request | None:
        """Return the request for the scheduler, or None if it is left to Scrapy's RetryMiddleware and the spider."""
        if request.meta.get("dont_retry"):
            return None
        may_have_arrived = fault.cause in _MAY_HAVE_ARRIVED or (
            fault.cause is Cause.UNREACHABLE and not fault.whole_exit
        )
        if may_have_arrived and request.method not in _IDEMPOTENT:
            return None
        faults = request.meta.get(_FAULTS, 0) + 1
        if faults > self.exits.settings.max_faults:
            return None
        self._inc("pacing/exit_faults")
        return again(request, {_FAULTS: faults})

    @staticmethod
    def _wanted_by_spider(request: Request, status: int) -> bool:
        meta = request.meta
        return bool(meta.get("handle_httpstatus_all")) or status in (meta.get("handle_httpstatus_list") or ())

    # -- cookie jars ------------------------------------------------------------------------------------------------

    def _use_jar(self, lease: Lease) -> None:
        """Note the use of a jar, and drop the longest unused one if there are more of them than origins in memory."""
        if self._cookies is None:
            return
        self._jars.pop(lease.jar, None)
        self._jars[lease.jar] = None
        if len(self._jars) > self._max_origins:
            self._drop_jar(next(iter(self._jars)))

    def _drop_jar_of(self, lease: Lease) -> None:
        self._drop_jar(lease.jar)

    def _drop_jar(self, name: str) -> None:
        self._jars.pop(name, None)
        if self._cookies is not None:
            self._cookies.jars.pop(name, None)

    # -- the crawl --------------------------------------------------------------------------------------------------

    def _spider_opened(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        self._pacing = self.crawler.get_downloader_middleware(PacingMiddleware)
        self._cookies = self.crawler.get_downloader_middleware(CookiesMiddleware)
        if self._pacing is not None:
            self._pacing.leave_by(self.exits)
        on_closing(self.crawler, self.exits.waits.end)

    def _spider_closed(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        self.exits.close()

    def _inc(self, stat: str) -> None:
        if self.crawler.stats is not None:
            self.crawler.stats.inc_value(stat)


def _check_order(crawler: Crawler) -> None:
    """Refuse an order in which credentials or cookies would go astray."""
    components = component_orders(crawler.settings, "DOWNLOADER_MIDDLEWARES")
    orders = {load_object(component): order for component, order in components.items() if order is not None}
    own = next(
        (
            order
            for component, order in orders.items()
            if isinstance(component, type) and issubclass(component, ExitMiddleware)
        ),
        None,
    )
    proxy = orders.get(HttpProxyMiddleware)
    if proxy is None or not crawler.settings.getbool("HTTPPROXY_ENABLED"):
        raise ValueError(
            "HttpProxyMiddleware is switched off (HTTPPROXY_ENABLED or DOWNLOADER_MIDDLEWARES), and PACING_EXITS need "
            "it; allowed: both, or neither"
        )
    later = {HttpProxyMiddleware: proxy, CookiesMiddleware: orders.get(CookiesMiddleware)}
    for component, order in {**later, PacingMiddleware: orders.get(PacingMiddleware)}.items():
        if own is not None and order is not None and order <= own:
            raise ValueError(
                f"ExitMiddleware is at {own} in DOWNLOADER_MIDDLEWARES, {component.__name__} at {order}; allowed: an "
                "order below it, such as 690"
            )
