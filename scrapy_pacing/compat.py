"""Where Scrapy is touched beneath its public API: each place once, with the reason.

Checked on Scrapy 2.14 to 2.19. Scrapy's open work on throttling (its pull request 6931) may give a public way to both;
then only this file changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from twisted.python.failure import Failure

try:
    from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError, DownloadTimeoutError
except ImportError:
    # Scrapy before 2.15 lets Twisted's own exceptions through.
    from twisted.internet.error import (  # type: ignore[assignment]
        ConnectionRefusedError as DownloadConnectionRefusedError,
        DNSLookupError as CannotResolveHostError,
        TimeoutError as DownloadTimeoutError,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Headers, Response
    from scrapy.settings import BaseSettings
    from twisted.internet.defer import Deferred

__all__ = [
    "CannotResolveHostError",
    "DownloadConnectionRefusedError",
    "DownloadTimeoutError",
    "Places",
    "component_orders",
    "fail_request",
    "is_closing",
    "on_closing",
    "on_followed",
    "put_headers",
    "run_in_thread",
    "send_once",
    "start",
    "wake_engine",
]

_T = TypeVar("_T")


def _engine_slot(crawler: Crawler) -> Any:
    return getattr(getattr(crawler, "engine", None), "_slot", None)


def wake_engine(crawler: Crawler) -> None:
    """Let the engine ask its scheduler again in the next turn of the loop.

    The engine asks after each event of its own, and else at a heartbeat of 5 seconds; a scheduler that has said "not
    yet" has no public way to say "now". Does nothing before the spider is open and after it has closed.
    """
    slot = _engine_slot(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def on_closing(crawler: Crawler, callback: Callable[[], None]) -> None:
    """Call ``callback`` once, at the moment when the spider is decided to close.

    All ways of closing meet in the ``close()`` of the engine's slot, before it waits for the requests under way. No
    signal is sent there: ``spider_closed`` comes after that wait, so a component that makes requests wait must know
    earlier. Call it when the spider is open; with an engine of another make it does nothing, and `is_closing` tells.
    """
    slot = _engine_slot(crawler)
    if slot is None or not hasattr(slot, "close"):
        return
    close = slot.close

    def close_and_tell() -> Any:
        slot.close = close
        # First the drain is begun (it marks the slot as closing), then the waits are ended, so that nothing that is
        # given back can be popped again.
        draining = close()
        if slot.closing is None:
            # A coroutine, which the engine starts as soon as it has it.
            call_later(0, callback)
        else:
            callback()
        return draining

    slot.close = close_and_tell


def send_once(crawler: Crawler) -> None:
    """Let Scrapy's HTTP clients send a request once each time that they are asked to.

    When a kept connection breaks before an answer, Twisted's pool and aiohttp's session send the request again by
    themselves: the site sees two a millisecond apart, and no gap and no stat knows of it. Without that the failure goes
    to Scrapy's RetryMiddleware, whose retry is paced. Call it when the spider is open; other handlers stay as they are.
    """
    handlers = getattr(getattr(crawler.engine, "downloader", None), "handlers", None)
    get_handler = getattr(handlers, "_get_handler", None)
    if get_handler is None:
        return
    for scheme in ("http", "https"):
        handler = get_handler(scheme)
        if hasattr(getattr(handler, "_pool", None), "retryAutomatically"):
            handler._pool.retryAutomatically = False  # noqa: SLF001 - no public way
        if hasattr(getattr(handler, "_session", None), "_retry_connection"):
            handler._session._retry_connection = False  # noqa: SLF001 - no public way


class Places:
    """The places of CONCURRENT_REQUESTS that waiting requests would take from those that could be sent.

    Scrapy's downloader counts every request that it has taken, whether it is being sent or waits for something. What
    waits here is lent a place more, so that the sites that are due have as many as the project wants.
    """

    # Waiting requests take memory, so a crowd of sites that hold their robots.txt must not lend without end.
    _MOST = 1000

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._lent = 0

    def lend(self, count: int) -> int:
        """Lend so many places; return how many were lent, for `take_back`."""
        downloader: Any = getattr(self._crawler.engine, "downloader", None)
        # 0 is no limit, from Scrapy 2.19 on.
        if not getattr(downloader, "total_concurrency", 0):
            return 0
        count = min(count, self._MOST - self._lent)
        if count > 0:
            self._lent += count
            downloader.total_concurrency += count
            wake_engine(self._crawler)
        return max(count, 0)

    def take_back(self, count: int) -> None:
        """Take back what `lend` lent."""
        if count:
            self._lent -= count
            self._crawler.engine.downloader.total_concurrency -= count


def component_orders(settings: BaseSettings, name: str) -> Mapping[Any, Any]:
    """Return the components of a setting and of its ``_BASE``, with their orders.

    ``getwithbase`` is deprecated from Scrapy 2.16 or so on, and its successor is not in 2.14.
    """
    merged = getattr(settings, "get_component_priority_dict_with_base", None) or settings.getwithbase
    components: Mapping[Any, Any] = merged(name)
    return components


def is_closing(crawler: Crawler) -> bool:
    """Return whether the spider is closing or closed."""
    slot = _engine_slot(crawler)
    return slot is not None and slot.closing is not None


def on_followed(crawler: Crawler, callback: Callable[[Request, Response], None]) -> None:
    """Call ``callback`` with each request whose Referer is Scrapy's to write, and the response that it comes from.

    Scrapy's RefererMiddleware alone knows both, and leaves only a header, which can't be told from one that the spider
    has set. Redirects pass here too. Does nothing without that middleware.
    """
    middleware = crawler.get_spider_middleware(RefererMiddleware)
    process = getattr(middleware, "get_processed_request", None)
    if middleware is None or process is None:
        return

    def process_and_tell(request: Request, response: Response | None) -> Request | None:
        is_scrapys = response is not None and b"Referer" not in request.headers
        processed: Request | None = process(request, response)
        if is_scrapys and processed is not None and response is not None:
            callback(processed, response)
        return processed

    middleware.get_processed_request = process_and_tell  # type: ignore[method-assign]


def put_headers(headers: Headers, fields: Mapping[bytes, bytes]) -> None:
    """Set header fields whose names are in the form that Scrapy keeps (``Like-This``).

    ``Headers.update`` does the same after normalising names and values, which costs 1 µs a field, more than working out
    what to send.
    """
    dict.update(headers, {name: [value] for name, value in fields.items()})


async def run_in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a blocking function in a thread, and return what it returns.

    Scrapy has this under the same name since 2.15; delete it when that is the oldest.
    """
    try:
        from scrapy.utils.asyncio import run_in_thread as scrapys  # noqa: PLC0415 - see above
    except ImportError:
        from twisted.internet.threads import deferToThread  # noqa: PLC0415 - not needed from 2.15 on

        return await maybe_deferred_to_future(deferToThread(function, *arguments))
    return await scrapys(function, *arguments)


def start(coroutine: Coroutine[Any, Any, None]) -> None:
    """Let a coroutine that raises nothing run by itself, in whichever of Scrapy's modes."""
    deferred_from_coro(coroutine)


def fail_request(crawler: Crawler, request: Request, exception: Exception) -> Deferred[None] | None:
    """Give a failure to the spider (its errback) for a request that still waits in the scheduler.

    Scrapy's own way from a failed download to the errback, entered without a download: there is no public one. Does
    nothing where there is no engine that could.
    """
    scraper = getattr(crawler.engine, "scraper", None)
    if scraper is None or scraper.slot is None or is_closing(crawler):
        return None
    deferred: Deferred[None] = scraper.enqueue_scrape(
        Failure(exception),  # type: ignore[no-untyped-call]
        request,
    )
    return deferred
