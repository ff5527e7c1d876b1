"""Waiting in the scheduler: one slow site never slows another, and nothing is stuck."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from aiohttp import web
from scrapy.pqueues import DownloaderAwarePriorityQueue

from tests.proxies import LocalProxy
from tests.support.crawl import ROOT, crawl, in_all_modes, requests, running
from tests.support.site import Site, ok

SLACK = 0.1
EVEN = {"PACING_PAUSE_PROBABILITY": 0}


def holding(seconds):
    """A site whose first address asks everybody to come back much later."""

    async def handler(request):
        if request.host.startswith("127.0.0.1:"):
            return web.Response(status=429, headers={"Retry-After": str(seconds)})
        return await ok(request)

    return handler


@in_all_modes
@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_a_held_site_holds_up_nobody(mode, concurrency):
    """I031: while one site with 50 waiting requests holds for 30 s, the other one is served at its own pace."""
    with Site(holding(30), hosts=("127.0.0.1", "127.0.0.2")) as site:
        urls = [site.url(f"/{n}", "127.0.0.1") for n in range(50)] + [site.url(f"/{n}", "127.0.0.2") for n in range(10)]
        settings = {"PACING_INTERVAL": 0.1, "CONCURRENT_REQUESTS": concurrency, "CLOSESPIDER_TIMEOUT": 8, **EVEN}
        result = crawl(*urls, settings=settings, mode=mode)
        seconds = site.arrivals(host="127.0.0.2")[-1].at - site.log[0].at
    assert len(site.arrivals(host="127.0.0.2")) == 10
    assert seconds < 5
    assert result.stats["reason"] == "closespider_timeout"


def test_without_the_queue_other_sites_get_turns_too_and_the_blocking_is_said_once():
    """I032: with Scrapy's own queue the waiting requests hold places; that is warned of once."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        urls = [site.url(f"/{n}", "127.0.0.1") for n in range(40)] + [site.url(f"/{n}", "127.0.0.2") for n in range(5)]
        result = crawl(
            *urls,
            settings={
                "PACING_INTERVAL": 0.1,
                "CONCURRENT_REQUESTS": 8,
                "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
                **EVEN,
            },
        )
        times = [arrival.at for arrival in site.log]
        last_of_b = site.arrivals(host="127.0.0.2")[-1].at
    assert len(result.ok()) == 45
    if hasattr(DownloaderAwarePriorityQueue, "_next_slot"):
        # Scrapy's queue takes turns among idle-looking sites since 2.15 or so; before it always took the first.
        assert last_of_b - times[0] < (times[-1] - times[0]) / 2
    assert result.log.count("so other sites wait for them") == 1


@in_all_modes
def test_latency_does_not_stretch_the_gaps(mode):
    """An origin that answers after 2 s keeps gaps of 0.3 s, as far as its concurrency allows."""

    async def slow(request):
        await asyncio.sleep(2)
        return await ok(request)

    with Site(slow) as site:
        settings = {"PACING_INTERVAL": 0.3, "PACING_LATENCY_FACTOR": 0, **EVEN}
        result = crawl(*[site.url(f"/{n}") for n in range(7)], settings=settings, mode=mode)
        times = [arrival.at for arrival in site.log]
    assert len(result.ok()) == 7
    # Seven departures at 0.3 s take about 2 s; one after the other they would take 12 s.
    assert times[-1] - times[0] < 6


def test_priorities_hold_within_an_origin():
    """Request.priority orders the requests of one site, start requests among them."""
    with Site() as site:
        given = [{"url": site.url(f"/{n}"), "priority": n} for n in range(5)]
        crawl(given=json.dumps(given), settings={"PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.2, **EVEN})
        paths = [arrival.path for arrival in site.log]
    # The first one leaves at once, before the others are known.
    assert paths[1:] == sorted(paths[1:], reverse=True)


def test_a_second_run_from_the_cache_is_not_paced(tmp_path):
    """I035: cached answers wait for nothing, teach nothing and raise nothing."""
    settings = {
        "PACING_INTERVAL": 0.5,
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path),
        **EVEN,
    }
    with Site() as site:
        urls = [site.url(f"/{n}") for n in range(6)]
        first = crawl(*urls, settings=settings)
        second = crawl(*urls, settings={**settings, "PACING_INTERVAL": 20})
        arrived = len(site.log)
    assert len(first.ok()) == len(second.ok()) == 6
    assert arrived == 6
    assert second.seconds < 10
    assert "pacing/requests" not in second.stats
    assert "Traceback" not in second.log


def test_requests_that_get_lost_do_not_block_their_origin():
    """Dropped by robots.txt or offsite, refused connections, time-outs: the origin's other requests go on."""

    async def handler(request):
        if request.path == "/robots.txt":
            return web.Response(text="User-agent: *\nDisallow: /no")
        if request.path.startswith("/hang"):
            await asyncio.sleep(30)
        return await ok(request)

    with Site(handler) as site:
        urls = [site.url(path) for path in ("/no/1", "/1", "/no/2", "/hang", "/no/3", "/2")]
        result = crawl(
            *urls,
            "http://127.0.0.9:9/refused",
            "http://127.0.0.9:9/refused-too",
            settings={
                "PACING_INTERVAL": 0.1,
                "ROBOTSTXT_OBEY": True,
                "DOWNLOAD_TIMEOUT": 2,
                "RETRY_ENABLED": False,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
                **EVEN,
            },
        )
    assert sorted(item["asked"].rsplit("/", 1)[1] for item in result.ok()) == ["1", "2"]
    assert result.stats["robotstxt/forbidden"] == 3
    errors = sorted(item["error"] for item in result.items if "error" in item)
    assert errors.count("IgnoreRequest") == 3
    assert len(errors) == 6
    assert result.stats["reason"] == "finished"


@in_all_modes
def test_one_place_and_robots_txt_do_not_deadlock(mode):
    """I040: with CONCURRENT_REQUESTS 1 the request that waits for robots.txt does not wait for ever."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(2) for host in site.hosts],
            settings={
                "PACING_INTERVAL": 0.4,
                "ROBOTSTXT_OBEY": True,
                "CONCURRENT_REQUESTS": 1,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
                **EVEN,
            },
            mode=mode,
        )
    assert len(result.ok()) == 4


def test_robots_txt_does_not_make_requests_wait_at_the_gate():
    """After robots.txt has taken an origin's turn, its first page waits in the queue, and holds no place."""
    hosts = tuple(f"127.0.0.{n}" for n in range(1, 9))
    with Site(hosts=hosts) as site:
        result = crawl(
            *[site.url("/", host) for host in hosts],
            settings={
                "PACING_INTERVAL": 2,
                "PACING_FLOOR": 1.5,
                "ROBOTSTXT_OBEY": True,
                "CONCURRENT_REQUESTS": 2,
                **EVEN,
            },
        )
        robots = [arrival.at for arrival in site.arrivals("/robots.txt")]
    assert len(result.ok()) == 8
    # Two at a time, each with a wait of 2 s for its own page, would take 6 s to see the last robots.txt.
    assert robots[-1] - robots[0] < 2


def test_a_middleware_that_answers_itself_is_counted_on_neither_side():
    """I037: below the gate its answers are not paced; above it they have been let through, and block nothing."""
    with Site() as site:
        urls = [site.url(f"/made-up/{n}") for n in range(4)] + [site.url("/real")]
        below = crawl(
            *urls,
            settings={
                "PACING_INTERVAL": 3,
                "DOWNLOADER_MIDDLEWARES": {"tests.integration.test_queue.MakesUp": 940},
                **EVEN,
            },
        )
        above = crawl(
            *urls,
            settings={
                "PACING_INTERVAL": 0.2,
                "DOWNLOADER_MIDDLEWARES": {"tests.integration.test_queue.MakesUp": 960},
                **EVEN,
            },
        )
    assert len(below.ok()) == len(above.ok()) == 5
    assert below.stats["pacing/requests"] == 1
    assert above.stats["pacing/requests"] == 5
    assert [arrival.path for arrival in site.log] == ["/real", "/real"]


def test_a_middleware_that_swallows_requests_after_the_gate_does_not_use_up_the_room():
    """A request that never comes back from behind the gate is not counted in flight for ever."""
    with Site() as site:
        urls = [site.url(f"/swallowed/{n}") for n in range(6)] + [site.url("/real")]
        result = crawl(
            *urls,
            settings={
                "PACING_INTERVAL": 0.05,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
                "DOWNLOADER_MIDDLEWARES": {"tests.integration.test_queue.Swallows": 960},
                **EVEN,
            },
        )
    assert len(result.ok()) == 7


def test_gaps_are_between_starts_and_only_within_one_site():
    """I041, I043: five at a time leave one by one; a request to another site does not wait."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        urls = [site.url(f"/{n}", host) for n in range(3) for host in site.hosts]
        crawl(*urls, settings={"PACING_INTERVAL": 1, "PACING_FLOOR": 0.9, **EVEN})
        first = [site.arrivals(host=host)[0].at for host in site.hosts]
    assert abs(first[1] - first[0]) < 0.5
    assert all(min(site.gaps(host)) > 0.9 - SLACK for host in site.hosts)


def test_the_pace_is_the_sites_whatever_the_exits():
    """I029: three proxies do not triple the pace."""
    with Site() as site, LocalProxy() as one, LocalProxy() as two, LocalProxy() as three:
        proxies = [one.url, two.url, three.url]
        given = [{"url": site.url(f"/{n}"), "meta": {"proxy": proxies[n % 3]}} for n in range(6)]
        result = crawl(given=json.dumps(given), settings={"PACING_INTERVAL": 0.5, "PACING_FLOOR": 0.4, **EVEN})
    assert len(result.ok()) == 6
    assert min(site.gaps()) > 0.4 - SLACK


@in_all_modes
def test_several_spiders_on_one_site_are_one_visitor(mode):
    """I044, I052: three crawls in one process share one gate; together they keep the gaps of one."""
    with Site() as site:
        spiders = [
            {
                "spider": "tests.support.spiders.ListSpider",
                "arguments": {"requests": requests(*[site.url(f"/{spider}/{n}") for n in range(4)])},
            }
            for spider in "abc"
        ]
        settings = {"PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.25, **EVEN}
        with running(spiders, settings, mode=mode) as under_way:
            result = under_way.wait()
    assert len(result.ok()) == 12
    assert min(site.gaps()) > 0.25 - SLACK


def test_many_origins_pass_in_bounded_memory():
    """Origins with one request each come and go; nothing of them stays but a bounded number of idle records."""
    hosts = tuple(f"127.{a}.{b}.1" for a in range(1, 3) for b in range(1, 101))
    with Site(hosts=hosts) as site:
        result = crawl(
            *[site.url("/", host) for host in hosts],
            settings={
                "PACING_INTERVAL": 0.1,
                "PACING_MAX_ORIGINS": 20,
                "EXTENSIONS": {"tests.integration.test_queue.CountsOrigins": 1},
            },
        )
    assert len(result.ok()) == 200
    assert result.stats["origins"] < 100


@pytest.mark.parametrize(
    "reactor", ["twisted.internet.asyncioreactor", "twisted.internet.selectreactor", "twisted.internet.epollreactor"]
)
def test_importing_the_package_installs_no_reactor(reactor):
    """I053: the package can be imported before any reactor is chosen."""
    if "epoll" in reactor and not sys.platform.startswith("linux"):
        pytest.skip("epoll exists on Linux only")
    code = (
        "import sys, scrapy_pacing, scrapy_pacing.pqueues; assert 'twisted.internet.reactor' not in sys.modules; "
        f"import {reactor} as r; r.install()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


def test_the_queue_alone_says_what_it_needs():
    """PacedPriorityQueue without PacingMiddleware stops the crawl with a clear text."""
    with Site() as site:
        result = crawl(
            site.url(), settings={"SCHEDULER_PRIORITY_QUEUE": "scrapy_pacing.PacedPriorityQueue"}, addon=False
        )
    assert "works together with scrapy_pacing.PacingMiddleware only" in result.log
    assert site.log == []


class MakesUp:
    """A middleware that answers some requests itself."""

    async def process_request(self, request):
        if "made-up" in request.url:
            from scrapy.http import HtmlResponse

            return HtmlResponse(request.url, body=b"<html></html>", request=request)
        return None


class Swallows:
    """A middleware that sends a request back to the scheduler the first time it sees it."""

    def __init__(self):
        self.seen = set()

    async def process_request(self, request):
        if "swallowed" in request.url and request.url not in self.seen:
            self.seen.add(request.url)
            return request.replace(dont_filter=True)
        return None


class CountsOrigins:
    """Writes the number of origins that the pacer remembers into the stats."""

    @classmethod
    def from_crawler(cls, crawler):
        from scrapy import signals

        from scrapy_pacing import PacingMiddleware

        def count():
            middleware = crawler.get_downloader_middleware(PacingMiddleware)
            crawler.stats.set_value("origins", len(middleware.dispatch.pacer))

        extension = cls()
        extension.count = count
        crawler.signals.connect(count, signal=signals.spider_idle)
        return extension
