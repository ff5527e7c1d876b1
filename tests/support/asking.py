"""Spiders that remember, ask whether pages have moved, and cancel."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time

import scrapy
from scrapy.utils.asyncio import call_later

from scrapy_pacing import Layer, PacedSpiderMixin, RevalidationError
from tests.support.spiders import ListSpider


async def answer_of(question):
    """Say what came of a question as something that JSON has."""
    try:
        return await question
    except RevalidationError as error:
        return f"failed: {error.reason}"


class VisitThenAskSpider(PacedSpiderMixin, ListSpider):
    """Parses each page that it is given, then asks some times whether it has moved, and yields the answers."""

    name = "visit-then-ask"

    def __init__(self, times: int = 1, method: str = "unchanged", **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.times = int(times)
        self.method = method

    async def parse(self, response):
        answers = [await self.ask(response.url) for _ in range(self.times)]
        yield {"url": response.url, "path": response.url.partition("/x/")[2], "answers": answers}

    async def ask(self, url):
        if self.method == "unchanged":
            return await answer_of(self.unchanged(url))
        page = await answer_of(self.fetch_if_changed(url))
        return page.text if isinstance(page, scrapy.http.Response) else page


class AskSpider(VisitThenAskSpider):
    """Asks in `start`, before anything is fetched, and yields the answers."""

    name = "ask"

    async def start(self):
        for arguments in self.given:
            answers = [await self.ask(scrapy.Request(**arguments)) for _ in range(self.times)]
            yield {"url": arguments["url"], "answers": answers}


class StartThenAskSpider(VisitThenAskSpider):
    """Asks for one page in `start` and for the others in a callback; nothing is fetched but a page in between."""

    name = "start-then-ask"

    async def start(self):
        first, *others = [arguments["url"] for arguments in self.given]
        yield {"url": first, "answers": [await self.ask(first)]}
        yield scrapy.Request(self.given[0]["url"] + "?between", cb_kwargs={"others": others})

    async def parse(self, response, others):
        for url in others:
            yield {"url": url, "answers": [await self.ask(url)]}


class FailingSpider(ListSpider):
    """Fails on every page."""

    name = "failing"

    def parse(self, response):
        yield {"url": response.url, "status": response.status}
        raise RuntimeError("the page has no title")


class JudgingSpider(PacedSpiderMixin, ListSpider):
    """Reports pages with ``block`` in their URL as blocks."""

    name = "judging"

    def parse(self, response):
        if "block" in response.url:
            self.record_layer(response, Layer.SCRIPT)
        yield from super().parse(response)


class LinksSpider(PacedSpiderMixin, ListSpider):
    """Follows what a visitor could see of the first page, then asks for everything."""

    name = "links"

    def parse(self, response):
        links = self.visible_links(response)
        yield {"url": response.url, "status": response.status, "visible": links}
        yield from response.follow_all(links, self.seen, errback=self.failed)
        yield from response.follow_all(css="a", callback=self.seen, errback=self.failed, dont_filter=True)

    def seen(self, response):
        yield {"url": response.url, "status": response.status}


class CancelSpider(ListSpider):
    """Gives its requests a signal each, or the name of a shared one, and sets some signals after a while."""

    name = "cancel"

    def __init__(self, after: float = 0.5, job: str = "job", **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.after, self.job = float(after), job
        self.jobs: dict[str, threading.Event] = {}

    async def start(self):
        # Held, since Twisted's timers do not keep what they call alive in every mode.
        self.timer = call_later(self.after, self.cancel)
        for arguments in self.given:
            job = arguments.pop("job", None)
            meta = {} if job is None else {"pacing_signal": self.jobs.setdefault(job, threading.Event())}
            yield scrapy.Request(
                **{**arguments, "meta": {**arguments.get("meta", {}), **meta}},
                callback=self.parse,
                errback=self.failed,
            )

    def cancel(self):
        self.crawler.stats.set_value("cancelled_at", time.monotonic())
        self.jobs[self.job].set()

    def parse(self, response):
        yield {"asked": response.request.url, "status": response.status, "size": len(response.body)}

    def failed(self, failure):
        kinds = [kind.__name__ for kind in failure.type.__mro__]
        yield {"asked": failure.request.url, "error": failure.type.__name__, "kinds": kinds, "at": time.monotonic()}


class KilledSpider(ListSpider):
    """Kills its own process, without a word, some seconds after the last answer but one: the last is to hang."""

    name = "killed"

    def __init__(self, after: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.after = float(after)
        self.left = len(self.given) - 1

    def parse(self, response):
        self.left -= 1
        if not self.left:
            self.timer = call_later(self.after, os.kill, os.getpid(), signal.SIGKILL)
        yield from super().parse(response)


class TierSpider(ListSpider):
    """Says which tier its requests were hinted to use."""

    name = "tier"

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "tier": response.meta.get("pacing_tier")}


class EndpointsSpider(PacedSpiderMixin, ListSpider):
    """Says which endpoints it knows, for each page."""

    name = "endpoints"

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "endpoints": self.endpoints(response)}


class ManyOriginsSpider(scrapy.Spider):
    """Learns something of many origins by hand, and says how long the event loop was held up by saving it."""

    name = "many-origins"

    def __init__(self, count: int = 1000, seconds: float = 1.0, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.count, self.seconds = int(count), float(seconds)

    async def start(self):
        yield scrapy.Request("data:,x")

    async def parse(self, response):
        from scrapy_pacing.findings import memory_of

        memory = memory_of(self)
        for number in range(self.count):
            origin = f"https://host{number}.example"
            memory.record_layer(origin, Layer.HEADERS)
            for page in range(64):
                memory.record_validators(f"{origin}/{page}", etag=b'"%d-%d"' % (number, page))
        worst = 0.0
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            before = time.monotonic()
            await asyncio.sleep(0.002)
            worst = max(worst, time.monotonic() - before - 0.002)
        yield {"worst": worst, "origins": len(memory)}


def given(*requests: dict) -> str:
    """Say a list of requests, each with arguments of its own."""
    return json.dumps(requests)
