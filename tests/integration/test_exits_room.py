"""The room of an exit: never more than it has, over all origins and spiders, and always given back."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response

from scrapy_pacing.compat import DownloadConnectionRefusedError, DownloadTimeoutError
from tests.proxies import LocalProxy
from tests.support.crawl import crawl, in_all_modes, reactorless, requests, running
from tests.support.site import Site, ok

# Scrapy before 2.15 sleeps a tenth of a second after each failed request, so the same takes it ten times as long.
FAULTY_REQUESTS = 10_000 if reactorless else 2_000

SPIDER = "tests.support.exit_spiders.ExitSpider"
QUICK = {"PACING_INTERVAL": 0, "PACING_REMEMBER": False}
HOSTS = tuple(f"127.0.0.{n}" for n in range(1, 21))
ALONE = {
    "DOWNLOADER_MIDDLEWARES": {"scrapy_pacing.ExitMiddleware": 690},
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
}


def left_in_flight(result):
    return {stat: value for stat, value in result.stats.items() if stat.endswith("/in_flight") and value}


@in_all_modes
@pytest.mark.parametrize("alone", [False, True], ids=["with-pacing", "alone"])
def test_i069_two_exits_with_room_for_one_are_both_busy_and_never_overfull(mode, alone):
    """I069: 20 origins over two exits that take one request at a time: never two at once, and no exit idles."""
    with Site(hosts=HOSTS) as site, LocalProxy(delay=0.05) as one, LocalProxy(delay=0.05) as two:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(3) for host in HOSTS],
            settings={
                **QUICK,
                **(ALONE if alone else {}),
                "PACING_EXITS": [one.url, two.url],
                "PACING_MAX_SESSIONS_PER_EXIT": 1,
                "CONCURRENT_REQUESTS": 32,
            },
            spider=SPIDER,
            mode=mode,
            addon=not alone,
        )
        seen = [{note.target for note in proxy.seen} for proxy in (one, two)]
        counts = len(one.seen), len(two.seen)
    assert len(result.ok()) == 60
    assert (one.most_in_flight, two.most_in_flight) == (1, 1)
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == 20
    assert min(counts) >= 15
    assert left_in_flight(result) == {}
    # One after the other: at least 30 times the delay; side by side: hardly more.
    assert result.seconds < 12


def test_i070_room_comes_back_however_a_request_ends():
    """I070: 50 requests through one place, half of which fail, time out or are dropped: the place is free at the end."""

    async def handler(request):
        if request.path.startswith("/hang"):
            await asyncio.sleep(5)
        if request.path.startswith("/drop"):
            request.transport.abort()
        return await ok(request)

    with Site(handler, hosts=HOSTS[:5]) as site, LocalProxy() as proxy:
        kinds = ["/fine", "/drop", "/fine", "/hang", "/fine", "/fine", "/drop", "/fine", "/drop", "/fine"]
        urls = [site.url(f"{kind}/{n}", host) for host in HOSTS[:5] for n, kind in enumerate(kinds)]
        result = crawl(
            *urls,
            settings={
                **QUICK,
                "PACING_EXITS": [proxy.url],
                "PACING_MAX_SESSIONS_PER_EXIT": 1,
                "DOWNLOAD_TIMEOUT": 0.3,
                "RETRY_ENABLED": False,
                "PACING_MAX_EXIT_FAULTS": 0,
                "PACING_EXIT_COOLDOWN": 1,
            },
            spider=SPIDER,
        )
    assert len(result.items) == 50
    assert sum(item.get("status") == 200 for item in result.items) >= 30
    assert left_in_flight(result) == {}


@pytest.mark.parametrize("alone", [False, True], ids=["with-pacing", "alone"])
def test_no_room_leaks_in_ten_thousand_requests_with_every_kind_of_fault(alone):
    """10,000 requests that end in every way there is, and not one of them keeps its place."""
    middlewares = {"tests.integration.test_exits_room.Faults": 960}
    if alone:
        middlewares.update(ALONE["DOWNLOADER_MIDDLEWARES"])
    result = crawl(
        given="[]",
        settings={
            **QUICK,
            **(ALONE if alone else {}),
            "DOWNLOADER_MIDDLEWARES": middlewares,
            "PACING_EXITS": ["http://192.0.2.1:1", "http://u:p@192.0.2.2:2", "http://192.0.2.3:3", "direct"],
            "PACING_MAX_SESSIONS_PER_EXIT": 4,
            "PACING_EXIT_WAIT": 0,
            "PACING_EXIT_COOLDOWN": 1,
            "PACING_BAN_COOLDOWN": 1,
            "CONCURRENT_REQUESTS": 64,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
            "LOG_LEVEL": "WARNING",
            "RETRY_TIMES": 1,
            "PACING_MAX_THROTTLES": 1,
            "PACING_MAX_INTERVAL": 0.001,
            "PACING_FIRST_INTERVAL": 0.001,
            "PACING_MAX_HOLD": 0,
        },
        spider="tests.integration.test_exits_room.ManySpider",
        addon=not alone,
        timeout=110,
    )
    assert result.stats["asked"] == FAULTY_REQUESTS
    assert result.stats["most_at_once"] <= 4
    assert result.stats["kinds"] == len(KINDS)
    assert left_in_flight(result) == {}
    assert result.stats["held_at_idle"] == 0
    assert result.stats["reason"] == "finished"


@in_all_modes
def test_without_the_pacing_middleware_the_wait_for_room_ends_with_the_spider(mode):
    """ExitMiddleware alone waits for room by itself; a closing spider does not wait for that, and nothing leaks."""

    with Site() as site, LocalProxy(delay=3) as slow:
        given = json.dumps([{"url": site.url(f"/{n}")} for n in range(10)])
        job = [{"spider": SPIDER, "arguments": {"requests": given}}]
        settings = {
            **QUICK,
            **ALONE,
            "PACING_EXITS": [slow.url],
            "PACING_MAX_SESSIONS_PER_EXIT": 1,
            "CLOSESPIDER_TIMEOUT": 1,
        }
        with running(job, settings, mode=mode, addon=False) as under_way:
            result = under_way.wait()
    assert len(slow.seen) <= 1
    assert len(result.items) <= 1
    assert result.stats["pacing/given_back"] >= 1
    # The one that is under way is waited for, as ever, and nothing after it.
    assert result.seconds < 10


def test_two_crawls_hold_the_room_of_an_exit_together():
    """The clamp is the exit's: two spiders on different sites do not double it."""
    with Site(hosts=HOSTS[:4]) as site, LocalProxy(delay=0.1) as only:
        spiders = [
            {
                "spider": SPIDER,
                "arguments": {"requests": requests(*[site.url(f"/{n}", host) for n in range(5) for host in pair])},
            }
            for pair in (HOSTS[:2], HOSTS[2:4])
        ]
        settings = {**QUICK, "PACING_EXITS": [only.url], "PACING_MAX_SESSIONS_PER_EXIT": 2}
        with running(spiders, settings) as under_way:
            result = under_way.wait()
    assert len(result.ok()) == 20
    assert only.most_in_flight == 2


def test_dont_pace_needs_room_all_the_same():
    """A request that is not paced leaves by the exit too, and takes its room."""
    with Site() as site, LocalProxy(delay=0.1) as only:
        given = json.dumps([{"url": site.url(f"/{n}"), "meta": {"dont_pace": True}} for n in range(8)])
        result = crawl(
            given=given,
            settings={**QUICK, "PACING_INTERVAL": 30, "PACING_EXITS": [only.url], "PACING_MAX_SESSIONS_PER_EXIT": 2},
            spider=SPIDER,
        )
    assert len(result.ok()) == len(only.seen) == 8
    assert only.most_in_flight == 2


def test_a_group_of_origins_under_one_pace_waits_for_room_without_going_round():
    """With PACING_ORIGIN_KEY the queue knows no exits; requests wait at the gate, and all get through."""
    with Site(hosts=HOSTS[:6]) as site, LocalProxy(delay=0.1) as one, LocalProxy(delay=0.1) as two:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(3) for host in HOSTS[:6]],
            settings={
                **QUICK,
                "PACING_ORIGIN_KEY": "tests.integration.test_exits_room.one_group",
                "PACING_EXITS": [one.url, two.url],
                "PACING_MAX_SESSIONS_PER_EXIT": 1,
            },
            spider=SPIDER,
        )
    assert len(result.ok()) == 18
    assert (one.most_in_flight, two.most_in_flight) == (1, 1)
    assert result.stats.get("pacing/requeued", 0) < 100


def one_group(request, origin):
    return "everybody"


# -- 10,000 requests -----------------------------------------------------------------------------------------------------

KINDS = (
    "fine", "fine", "fine", "banned", "throttled", "missing", "proxy-407", "proxy-502", "redirect", "refused",
    "timed-out", "crash", "ignored", "again", "slow",
)  # fmt: skip


class Faults:
    """Stands for the network: ends requests in every way, and counts how many are at one exit at once."""

    def __init__(self, crawler):
        self.crawler = crawler
        self.turn = itertools.count()
        self.most = 0
        self.seen = set()
        self.returned = set()

    @classmethod
    def from_crawler(cls, crawler):
        from scrapy import signals

        faults = cls(crawler)
        crawler.signals.connect(faults.idle, signal=signals.spider_idle)
        return faults

    def idle(self):
        from scrapy_pacing.exits import exits_of

        pool = exits_of(self.crawler).pool
        stats = self.crawler.stats
        stats.set_value("held_at_idle", sum(each.in_flight for each in pool.stats()))
        stats.set_value("most_at_once", self.most)
        stats.set_value("kinds", len(self.seen))

    async def process_request(self, request):
        from scrapy_pacing.exits import exits_of

        pool = exits_of(self.crawler).pool
        self.most = max(self.most, *(each.in_flight for each in pool.stats()))
        number = next(self.turn)
        kind = number % len(KINDS)
        self.seen.add(kind)
        return self.end(KINDS[kind], request)

    def end(self, kind, request):
        statuses = {"banned": 403, "throttled": 429, "missing": 404, "proxy-407": 407}
        if kind in statuses:
            return Response(request.url, status=statuses[kind])
        if kind == "proxy-502":
            return Response(request.url, status=502, headers={"Proxy-Status": "p; error=dns_error"})
        if kind == "redirect":
            return Response(request.url, status=302, headers={"Location": "/elsewhere"})
        errors = {
            "refused": DownloadConnectionRefusedError,
            "timed-out": DownloadTimeoutError,
            "crash": RuntimeError,
            "ignored": IgnoreRequest,
        }
        if kind in errors:
            raise errors[kind]("as arranged")
        if kind == "again" and request.url not in self.returned:
            self.returned.add(request.url)
            return request.replace(dont_filter=True)
        return HtmlResponse(request.url, body=b"<html></html>")


class ManySpider(scrapy.Spider):
    """Asks 25 sites for 10,000 pages."""

    name = "many"
    handle_httpstatus_list = (403, 404, 407)

    async def start(self):
        for number in range(FAULTY_REQUESTS):
            yield scrapy.Request(
                f"http://site{number % 25}.example/{number}",
                method="POST" if number % 7 == 0 else "GET",
                errback=self.failed,
            )
        self.crawler.stats.set_value("asked", FAULTY_REQUESTS)

    def parse(self, response):
        return None

    def failed(self, failure):
        return None
