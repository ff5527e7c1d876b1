"""The road of a request through Scrapy's own middlewares and ours, without a network and without a loop."""

from __future__ import annotations

from types import SimpleNamespace

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.redirect import MetaRefreshMiddleware, RedirectMiddleware
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import HtmlResponse, Response
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.utils.httpobj import urlparse_cached

from scrapy_pacing import PacingMiddleware, PacingPolicy, SharedState
from tests.support.queues import Crawler

QUIET = {"PACING_INTERVAL": 0, "PACING_WARMUP": "never", "PACING_REMEMBER": False, "DEFAULT_REQUEST_HEADERS": {}}


def run(coroutine):
    """Run a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise AssertionError("it waits")


class Road:
    """One crawl: `ask` sends a request on its way, `answer` brings the answer back, `follow` is a link in a page."""

    def __init__(self, state: SharedState | None = None, **settings):
        self.state = state or SharedState.create(PacingPolicy(interval=0))
        self.crawler = Crawler({**QUIET, "PACING_STATE": self.state, **settings})
        self.crawler.spider = Spider("spider")
        self.crawler.spider.crawler = self.crawler
        downloader = SimpleNamespace(
            slots={}, active=set(), get_slot_key=lambda request: urlparse_cached(request).hostname or ""
        )
        self.crawler.engine = SimpleNamespace(downloader=downloader, _slot=None)
        self.referer = None
        if self.crawler.settings.getbool("REFERER_ENABLED"):
            self.referer = RefererMiddleware.from_crawler(self.crawler)
        self.crawler.get_spider_middleware = lambda _: self.referer
        self.crawler.get_downloader_middleware = lambda _: None
        self.defaults = DefaultHeadersMiddleware.from_crawler(self.crawler)
        self.pacing = PacingMiddleware.from_crawler(self.crawler)
        self.pacing._spider_opened(self.crawler.spider)
        self.redirects = [cls.from_crawler(self.crawler) for cls in (RedirectMiddleware, MetaRefreshMiddleware)]
        for middleware in self.redirects:
            middleware._engine_started()

    def ask(self, request: Request) -> dict[str, str]:
        """Let a request depart; return the headers that it has then."""
        self.defaults.process_request(request)
        self.crawler.engine.downloader.active.add(request)
        assert run(self.pacing.process_request(request)) is None
        return {name.decode().lower(): b",".join(values).decode("latin-1") for name, values in request.headers.items()}

    def answer(self, request: Request, response: Response) -> Request | Response:
        """Bring an answer back; return the response, or the request that a redirect makes of it."""
        result: Request | Response = run(self.pacing.process_response(request, response))
        self.crawler.engine.downloader.active.discard(request)
        for middleware in self.redirects:
            if isinstance(result, Response):
                result = middleware.process_response(request, result)
        if isinstance(result, Response):
            result.request = request
            self.pacing._response_received(result)
        return result

    def visit(self, url: str, *, body: bytes = b"<html></html>", headers=None, **arguments) -> HtmlResponse:
        """Ask for a page by its address, and get it."""
        request = Request(url, **arguments)
        self.ask(request)
        return self.answer(request, page(url, body=body, headers=headers))

    def follow(self, response: Response, request: Request) -> Request:
        """Yield a request from a callback."""
        return request if self.referer is None else self.referer.get_processed_request(request, response)

    def redirect(self, request: Request, location: str, *, status: int = 302, headers=None) -> Request:
        """Answer with a redirect; return the request that Scrapy makes of it."""
        answer = Response(request.url, status=status, headers={"Location": location, **(headers or {})})
        redirected = self.answer(request, answer)
        assert isinstance(redirected, Request)
        return redirected

    def retry(self, request: Request) -> Request:
        """Let it fail; return the request that Scrapy's RetryMiddleware makes of it."""
        run(self.pacing.process_exception(request, OSError()))
        return get_retry_request(request, spider=self.crawler.spider, reason="test")


def page(url: str, *, body: bytes = b"<html></html>", headers=None, status: int = 200) -> HtmlResponse:
    """An answer with HTML."""
    return HtmlResponse(url, status=status, body=body, headers={"Content-Type": "text/html", **(headers or {})})


def ours(headers: dict[str, str]) -> dict[str, str]:
    """The headers that the trail answers for."""
    names = ("referer", "upgrade-insecure-requests")
    return {name: value for name, value in headers.items() if name in names or name.startswith("sec-fetch-")}
