"""Spiders that tests of exits run in a process of their own."""

from __future__ import annotations

import traceback

import scrapy
from scrapy.downloadermiddlewares.retry import get_retry_request

from scrapy_pacing import report_ban

from .spiders import ListSpider


class ExitSpider(ListSpider):
    """Notes by which exit each answer came, and everything that its request and failure say of themselves."""

    name = "exits"
    handle_httpstatus_list = (403, 404, 407, 502, 503)

    def parse(self, response):
        yield {
            "url": response.url,
            "asked": response.request.url,
            "status": response.status,
            "body": response.text[:2000],
            "exit": response.meta.get("pacing_exit"),
            "meta": repr(response.meta),
            "headers": repr(response.request.headers),
            "retries": response.meta.get("retry_times", 0),
            "faults": response.meta.get("pacing_exit_faults", 0),
            "throttles": response.meta.get("pacing_throttles", 0),
        }

    def failed(self, failure):
        yield {
            "asked": failure.request.url,
            "error": failure.type.__name__,
            "message": str(failure.value),
            "trace": "".join(traceback.format_exception(failure.value)),
            "meta": repr(failure.request.meta),
            "headers": repr(failure.request.headers),
        }


class OneByOneSpider(ExitSpider):
    """Asks for the next page when the one before has come, so that the order of things is known."""

    name = "one-by-one"

    async def start(self):
        yield self.next_request()

    def next_request(self):
        return scrapy.Request(**self.given.pop(0), callback=self.parse, errback=self.failed)

    def parse(self, response):
        yield from super().parse(response)
        if self.given:
            yield self.next_request()

    def failed(self, failure):
        yield from super().failed(failure)
        if self.given:
            yield self.next_request()


class BanningSpider(ExitSpider):
    """Takes every page with the word captcha for a ban, says so, and asks again as often as Scrapy's retries allow."""

    name = "banning"

    def parse(self, response):
        if "captcha" not in response.text:
            yield from super().parse(response)
            return
        moved = report_ban(self, response)
        first = (response.meta.get("redirect_urls") or [response.url])[0]
        again = get_retry_request(response.request.replace(url=first), spider=self, reason="captcha")
        if again is not None:
            again.meta.pop("redirect_urls", None)
            yield again
        yield {"captcha": response.url, "moved": moved}
