"""Spiders that tests run in a process of their own."""

from __future__ import annotations

import contextlib
import json
import time

import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import _schedule_coro


class ListSpider(scrapy.Spider):
    """Asks for the requests it is given, a JSON list of Request arguments, and yields an item for each answer."""

    name = "list"

    def __init__(self, requests: str = "[]", **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.given = json.loads(requests)

    async def start(self):
        for arguments in self.given:
            yield scrapy.Request(**arguments, callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield {
            "url": response.url,
            "asked": response.request.url,
            "status": response.status,
            "throttles": response.meta.get("pacing_throttles", 0),
            "retries": response.meta.get("retry_times", 0),
            "dont_filter": response.request.dont_filter,
        }

    def failed(self, failure):
        yield {"asked": failure.request.url, "error": failure.type.__name__}


class FollowSpider(ListSpider):
    """Follows the links of the pages it gets."""

    name = "follow"

    def parse(self, response):
        yield from super().parse(response)
        yield from response.follow_all(css="a::attr(href)", callback=self.parse, errback=self.failed)


class ClosingSpider(ListSpider):
    """Closes itself some seconds after its first answer, and notes when (monotonic) in the stats."""

    name = "closing"

    def __init__(self, after: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.after = float(after)
        self.timer = None

    def parse(self, response):
        if self.timer is None:
            self.timer = call_later(self.after, self.close_now)
        yield from super().parse(response)

    def close_now(self):
        self.crawler.stats.set_value("closed_at", time.monotonic())
        _schedule_coro(self.crawler.engine.close_spider_async(reason="enough"))


class CloseSpiderSpider(ListSpider):
    """Raises CloseSpider in its first callback."""

    name = "close-spider"

    def parse(self, response):
        raise CloseSpider("enough")


class StopEngineSpider(ListSpider):
    """Stops the engine in its first callback."""

    name = "stop-engine"

    async def parse(self, response):
        _schedule_coro(self.crawler.engine.stop_async())
        return
        yield


class RaisingSpider(ListSpider):
    """Fails in its callback."""

    name = "raising"

    def parse(self, response):
        raise RuntimeError("a broken callback")


class InlineSpider(ListSpider):
    """Downloads another page of the site inside its callback."""

    name = "inline"

    async def parse(self, response):
        try:
            await self.crawler.engine.download_async(scrapy.Request(response.urljoin("/inline")))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
            yield {"error": type(error).__name__}


class ManyPagesSpider(scrapy.Spider):
    """Asks one site for many pages, and makes nothing of them."""

    name = "many-pages"

    def __init__(self, url: str, pages: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.url, self.pages = url, int(pages)

    async def start(self):
        for number in range(self.pages):
            yield scrapy.Request(f"{self.url}{number}")

    def parse(self, response):
        pass


class MediaSpider(ListSpider):
    """Downloads files of another site beside each page, and waits for none of them, as media pipelines do."""

    name = "media"

    def __init__(self, media: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.media = media

    def parse(self, response):
        number = response.url.rpartition("/")[2]
        _schedule_coro(self.download(f"{self.media}/{number}"))
        yield from super().parse(response)

    async def download(self, url):
        with contextlib.suppress(Exception):
            await self.crawler.engine.download_async(scrapy.Request(url, callback=NO_CALLBACK))


class MetaSpider(ListSpider):
    """Follows links with the meta of the page that they are on."""

    name = "meta"

    def parse(self, response):
        yield from super().parse(response)
        meta = {key: value for key, value in response.meta.items() if key != "depth"}
        yield from response.follow_all(css="a::attr(href)", callback=self.parse, meta=meta)
