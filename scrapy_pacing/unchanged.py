"""Asking whether a page has moved, before any work is done on it.

The rules:

1. The answer is True only on a 304 to the very conditions that were sent. False says "do the work": nothing is
   recorded, what the page varies by has changed, or the site answered with a page. Everything else raises.
2. A question is a real request, paced like any: it goes to the site whatever caches there are, once, and follows no
   redirect. What it brings is not parsed, so it records nothing but what a 304 refreshes.
3. Whatever happens, the call ends: with an answer, with `RevalidationError`, or by being cancelled.
4. Now and then a page is asked for in full, so that a site whose answer is always 304 can't freeze it for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.http.request import NO_CALLBACK
from twisted.internet.defer import CancelledError

from . import findings
from .compat import is_closing
from .conditions import CONDITIONS, OtherPageError, are_answered, conditions_of, same_etag
from .core.memory.texts import key_of
from .downloadermiddlewares.pacing import PacingMiddleware
from .exceptions import RevalidationError
from .extensions.memory import MemoryExtension
from .links import visible_links

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.http import Response, TextResponse

    from .core.layers import Layer

_OK = 200
_NOT_MODIFIED = 304
# The page is no longer there. Any other redirect can be a wall before a page that is as it was.
_LEFT = frozenset({301, 308, 404, 410})
# After so many seconds of nothing but 304s a page is fetched in full.
_FULL_AFTER = 30 * 86_400.0

# The site itself is asked, and every answer comes back as it is: no cache, no retry, no redirect.
_AS_IT_IS = {"dont_cache": True, "dont_retry": True, "dont_redirect": True, "handle_httpstatus_all": True}


async def unchanged(spider: Spider, page: str | Request) -> bool:
    """Return True if a page has not moved since it was last parsed, False if there is work to do.

    ``page`` is the URL that answered then, or a request for it: with the header fields and the meta (cookie jar, proxy)
    of the request that the work would start with. False needs no request where nothing is recorded. Raises
    `RevalidationError` where the site refuses, fails, has no such page, or doesn't answer, and when the spider closes;
    ValueError for a request that is no GET.
    """
    return await _Question(spider, page).has_not_moved()


async def fetch_if_changed(spider: Spider, page: str | Request) -> Response | None:
    """Return the page as it is now if it has moved, or None if it has not: `unchanged` whose download is not lost.

    Where nothing is recorded the page is fetched, redirects and retries included. The response that is returned counts
    as parsed. Raises what `unchanged` raises.
    """
    return await _Question(spider, page).page_if_moved()


class PacedSpiderMixin(Spider):
    """Adds to a spider what it may ask and tell of the sites that it crawls.

    ``class MySpider(PacedSpiderMixin, scrapy.Spider)``; each method is the function of its name with the spider given.
    """

    async def unchanged(self, page: str | Request) -> bool:
        """See `scrapy_pacing.unchanged`."""
        return await unchanged(self, page)

    async def fetch_if_changed(self, page: str | Request) -> Response | None:
        """See `scrapy_pacing.fetch_if_changed`."""
        return await fetch_if_changed(self, page)

    def visible_links(self, response: TextResponse, *, record: bool = True) -> list[str]:
        """See `scrapy_pacing.visible_links`."""
        return visible_links(response, self, record=record)

    def mark_decoy(self, url: str) -> bool:
        """See `scrapy_pacing.mark_decoy`."""
        return findings.mark_decoy(self, url)

    def forget_decoy(self, url: str) -> bool:
        """See `scrapy_pacing.forget_decoy`."""
        return findings.forget_decoy(self, url)

    def record_layer(self, page: Response | str, layer: Layer | int | None) -> None:
        """See `scrapy_pacing.record_layer`."""
        findings.record_layer(self, page, layer)

    def endpoints(self, page: Response | str) -> dict[str, str]:
        """See `scrapy_pacing.endpoints`."""
        return findings.endpoints(self, page)


class _Question:
    """One page, asked for once."""

    def __init__(self, spider: Spider, page: str | Request) -> None:
        self._crawler: Crawler = spider.crawler
        self._request = page if isinstance(page, Request) else Request(page)
        self._url = self._request.url
        if self._request.method != "GET":
            raise ValueError(f"the request is a {self._request.method}; allowed: GET, which alone has validators")
        extension = self._crawler.get_extension(MemoryExtension)
        paced = self._crawler.get_downloader_middleware(PacingMiddleware) is not None
        # Without the middleware nobody would put the conditions on, and without a memory there are none.
        self._recorder = None if extension is None or not paced else extension.recorder

    async def has_not_moved(self) -> bool:
        conditions = self._conditions()
        response = None if conditions is None else await self._ask(conditions)
        return response is not None and response.status == _NOT_MODIFIED

    async def page_if_moved(self) -> Response | None:
        conditions = self._conditions()
        response = None if conditions is None else await self._ask(conditions)
        if response is None:
            response = await self._fetch()
        elif response.status == _NOT_MODIFIED:
            return None
        if self._recorder is not None and response.status == _OK:
            self._recorder.keep_validators(response)
        return response

    def _conditions(self) -> dict[str, Any] | None:
        """Return what to ask with, or None if there is nothing, or if it is time to see the page itself."""
        if self._recorder is None:
            return None
        known = self._recorder.memory.validators(self._url)
        if known is None or self._recorder.clock.wall() - known.full_at > _FULL_AFTER:
            return None
        return conditions_of(known)

    async def _ask(self, conditions: dict[str, Any]) -> Response | None:
        """Send the conditions; return a 304 that answers them or a page, None if the page must be fetched."""
        request = self._made({**_AS_IT_IS, CONDITIONS: conditions})
        try:
            response = await self._download(request)
        except OtherPageError:
            return None
        if response.status == _NOT_MODIFIED:
            if not are_answered(response.request, conditions) or key_of(response.url) != key_of(request.url):
                raise self._failed("a 304 to what was not asked", response)
            self._count("pacing/memory/unchanged")
            if self._recorder is not None:
                self._recorder.refresh_validators(self._url, response)
            return response
        if response.status in _LEFT:
            self._forget()
        if 300 <= response.status < 400:
            self._count("pacing/memory/moved")
            return None
        self._check(response)
        self._count("pacing/memory/moved")
        if same_etag(response.headers.get(b"ETag"), conditions["etag"]):
            # Such a site can't be asked; the stat says why nothing is saved.
            self._count("pacing/memory/conditions_ignored")
        return response

    async def _fetch(self) -> Response:
        """Fetch the page as any request would, redirects and retries included, though from the site itself."""
        response = await self._download(self._made({"dont_cache": True}))
        self._check(response)
        return response

    def _made(self, meta: dict[str, Any]) -> Request:
        # Though no callback waits for it, it is a visitor's visit, who arrives as any other does.
        meta = {"navigation": True, **self._request.meta, **meta}
        return self._request.replace(callback=NO_CALLBACK, errback=None, dont_filter=True, meta=meta)

    async def _download(self, request: Request) -> Response:
        engine = self._crawler.engine
        if engine is None or engine.spider is None or is_closing(self._crawler):
            raise self._failed("the spider is closing")
        try:
            response = await engine.download_async(request)
        except (CancelledError, OtherPageError):
            raise
        except UnicodeError as error:
            # A validator that this download handler can't send as it is.
            self._forget()
            raise OtherPageError(str(error)) from error
        except Exception as error:
            raise self._failed(str(error) or type(error).__name__) from error
        if "cached" in response.flags:
            raise self._failed("a cache has answered", response)
        return response

    def _check(self, response: Response) -> None:
        """Raise `RevalidationError` for anything but a page."""
        if not 200 <= response.status < 300:
            raise self._failed(f"the answer is a {response.status}", response)
        layer = None if self._recorder is None else self._recorder.judge(response)
        if layer is not None:
            raise self._failed(f"the answer is judged a block ({layer.name.lower()})", response)

    def _failed(self, reason: str, response: Response | None = None) -> RevalidationError:
        self._count("pacing/memory/not_found_out")
        return RevalidationError(self._url, reason, response)

    def _forget(self) -> None:
        if self._recorder is not None:
            self._recorder.memory.forget_validators(self._url)

    def _count(self, stat: str) -> None:
        self._crawler.stats.inc_value(stat)
