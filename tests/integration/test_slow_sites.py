"""One site never slows another: not by holding its robots.txt, not by refusing one page, not by being slow."""

from __future__ import annotations

import asyncio
import threading

from aiohttp import web

from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.site import Site, ok

EVEN = {"PACING_PAUSE_PROBABILITY": 0}
HOSTS = tuple(f"127.0.0.{n}" for n in range(1, 22))
HEALTHY = HOSTS[-2:]


def is_healthy(request):
    return request.host.split(":")[0] in HEALTHY


async def hold_robots(request):
    if request.path == "/robots.txt":
        if is_healthy(request):
            return web.Response(status=404)
        return web.Response(status=429, headers={"Retry-After": "3600"})
    return await ok(request)


async def hang(request):
    if not is_healthy(request):
        await asyncio.sleep(12)
    return await ok(request)


@in_all_modes
def test_sites_that_hold_their_robots_txt_take_no_places(mode):
    """Nineteen sites whose robots.txt is refused for an hour leave the other two all the places they need."""
    with Site(hold_robots, hosts=HOSTS) as site:
        urls = [site.url(f"/{n}", host) for n in range(4) for host in HOSTS]
        settings = {"PACING_INTERVAL": 0.1, "ROBOTSTXT_OBEY": True, "CLOSESPIDER_TIMEOUT": 8, **EVEN}
        result = crawl(*urls, settings=settings, mode=mode)
        served = [len([a for a in site.arrivals(host=host) if a.path != "/robots.txt"]) for host in HEALTHY]
    assert served == [4, 4]
    assert result.seconds < 20
    assert "Traceback" not in result.log
    assert "so other sites wait for them" not in result.log


def test_inline_downloads_that_are_held_take_no_places():
    """A component that downloads from a site that holds (a media pipeline) does not stop the crawl of another."""

    async def handler(request):
        if request.host.startswith("127.0.0.2:"):
            return web.Response(status=429, headers={"Retry-After": "3600"})
        return await ok(request)

    with Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site:
        job = {
            "spider": "tests.support.spiders.MediaSpider",
            "arguments": {
                "requests": requests(*[site.url(f"/{n}", "127.0.0.1") for n in range(12)]),
                "media": site.url("/media", "127.0.0.2"),
            },
        }
        settings = {"PACING_INTERVAL": 0.1, "CONCURRENT_REQUESTS": 4, "CLOSESPIDER_TIMEOUT": 8, **EVEN}
        with running([job], settings) as under_way:
            result = under_way.wait()
        assert len(site.arrivals(host="127.0.0.1")) == 12
    assert "Unhandled" not in result.log


def test_slow_sites_leave_places_for_the_others():
    """Sites that take twelve seconds for each answer never fill all the places of CONCURRENT_REQUESTS."""
    hosts = ("127.0.0.1", "127.0.0.2", *HEALTHY)
    with Site(hang, hosts=hosts) as site:
        urls = [site.url(f"/{n}", host) for n in range(12) for host in hosts]
        settings = {"PACING_INTERVAL": 0.05, "PACING_LATENCY_FACTOR": 0, "CLOSESPIDER_TIMEOUT": 6, **EVEN}
        crawl(*urls, settings=settings, timeout=60)
        healthy = [arrival.at for arrival in site.log if arrival.host.split(":")[0] in HEALTHY]
    assert len(healthy) == 24
    assert healthy[-1] - healthy[0] < 5


def test_one_page_that_is_always_refused_stops_no_other_page():
    """A page that is refused every time comes up again after the others of its site."""

    names = [*(f"/{n}" for n in range(5)), "/bad", *(f"/{n}" for n in range(5, 10))]

    async def handler(request):
        if request.path == "/bad":
            return web.Response(status=429)
        links = "".join(f'<a href="{name}">x</a>' for name in names) if request.path == "/" else ""
        return web.Response(text=f"<html>{links}</html>", content_type="text/html")

    with Site(handler) as site:
        settings = {"PACING_INTERVAL": 0.1, "PACING_MAX_THROTTLES": 3, "PACING_MAX_INTERVAL": 1, **EVEN}
        result = crawl(site.url("/"), spider="tests.support.spiders.FollowSpider", settings=settings)
        paths = [arrival.path for arrival in site.log]
    assert len(result.ok()) == 11
    # Between its first and its second try every other page has been asked for.
    second = paths.index("/bad", paths.index("/bad") + 1)
    assert set(names) == set(paths[1:second])


@in_all_modes
def test_a_broken_connection_is_no_second_request(mode):
    """A request whose kept connection breaks is sent again by Scrapy, paced and counted, not by the HTTP client."""
    with BreakingSite() as site:
        result = crawl(
            *[f"http://127.0.0.1:{site.port}/{n}" for n in range(6)],
            settings={"PACING_INTERVAL": 0.2, "RETRY_TIMES": 9, "PACING_TROUBLE_AFTER": 100, **EVEN},
            mode=mode,
            timeout=90,
        )
    assert len(result.ok()) == 6
    assert result.stats["pacing/requests"] == site.requests


def test_refusals_of_one_page_are_not_counted_for_the_next():
    """A callback that hands its meta on does not hand on how often its own page was refused."""
    seen = set()

    async def handler(request):
        if request.path not in seen:
            seen.add(request.path)
            return web.Response(status=429)
        number = int(request.path.strip("/"))
        link = f'<a href="/{number + 1}">next</a>' if number < 5 else ""
        return web.Response(text=f"<html>{link}</html>", content_type="text/html")

    with Site(handler) as site:
        job = {"spider": "tests.support.spiders.MetaSpider", "arguments": {"requests": requests(site.url("/0"))}}
        settings = {
            "PACING_INTERVAL": 0.05,
            "PACING_MAX_INTERVAL": 0.1,
            "PACING_MAX_THROTTLES": 2,
            "RETRY_ENABLED": False,
            **EVEN,
        }
        with running([job], settings) as under_way:
            result = under_way.wait()
    assert len(result.ok()) == 6
    assert "pacing/given_up" not in result.stats


class BreakingSite:
    """Answers the first request of each connection, and breaks the connection at the second, before a byte."""

    def __init__(self):
        self.requests = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *exc):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader, writer):
        for answered in (False, True):
            try:
                await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            self.requests += 1
            if not answered:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        writer.close()
