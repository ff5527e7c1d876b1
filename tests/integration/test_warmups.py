"""The warm-up on a real site: the homepage first, once, and whatever comes of it the pages go on."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiohttp import web

from tests.support.asking import given
from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.site import Site, ok

A, B = "127.0.0.1", "127.0.0.2"
WARM = {
    "PACING_WARMUP": "always",
    "PACING_INTERVAL": 0.05,
    "PACING_PAUSE_PROBABILITY": 0,
    "PACING_REMEMBER": False,
}
LIST = "tests.support.spiders.ListSpider"
NOISE = ("Traceback", "never awaited", "Unhandled error", "Task was destroyed")


def quiet(log):
    return not [noise for noise in NOISE if noise in log]


async def front_door(request):
    """A homepage that gives a cookie, and pages that want it (I097)."""
    if request.path == "/":
        response = await ok(request)
        response.set_cookie("visit", "1")
        return response
    if request.path not in {"/wall", "/robots.txt"} and "visit" not in request.cookies:
        raise web.HTTPFound("/wall")
    return await ok(request)


@in_all_modes
def test_twenty_first_requests_make_one_visit(mode):
    """I097: of 20 pages at once the homepage is fetched exactly once and first, and all bring its cookie."""
    with Site(front_door) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(20)], settings=WARM, mode=mode)
        paths = [arrival.path for arrival in site.log]
    assert paths[0] == "/"
    assert sorted(paths[1:]) == sorted(f"/{n}" for n in range(20))
    assert len(result.ok()) == 20
    assert result.stats["pacing/warmups"] == 1
    assert "pacing/warmup_failed" not in result.stats
    assert quiet(result.log)


@pytest.mark.parametrize("interval", [0, 0.05])
def test_without_the_paced_queue_there_is_one_visit_too(interval):
    """Scrapy's own queue sends 16 requests at once to the middleware: they wait for one visit, without a gap as well."""
    settings = {
        **WARM,
        "PACING_INTERVAL": interval,
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    }
    with Site(front_door) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(20)], settings=settings)
        paths = [arrival.path for arrival in site.log]
    assert paths[0] == "/"
    assert sorted(paths[1:]) == sorted(f"/{n}" for n in range(20))
    assert len(result.ok()) == 20


def test_a_visit_is_paced():
    """The page that it was for leaves a whole gap after the homepage."""
    settings = {**WARM, "PACING_INTERVAL": 1, "PACING_FLOOR": 0.9}
    with Site(front_door) as site:
        result = crawl(site.url("/1"), settings=settings)
    assert [arrival.path for arrival in site.log] == ["/", "/1"]
    assert site.gaps()[0] > 0.86
    assert result.stats["pacing/requests"] == 2


def test_each_origin_and_each_jar_is_visited():
    """Two hosts and two cookie jars: each pair of them once."""
    with Site(front_door, hosts=(A, B)) as site:
        wanted = [
            {"url": site.url(f"/{jar}{n}", host), "meta": {"cookiejar": jar}}
            for host in (A, B)
            for jar in ("x", "y")
            for n in range(3)
        ]
        result = crawl(given=json.dumps(wanted), settings=WARM)
        assert [len(site.arrivals("/", host)) for host in (A, B)] == [2, 2]
        assert site.arrivals("/wall") == []
    assert len(result.ok()) == 12


def test_a_visitor_is_the_same_one_throughout():
    """The homepage is asked for with the request's own user agent and language, as a navigation."""
    with Site(front_door) as site:
        crawl(site.url("/1"), settings=WARM, headers={"User-Agent": "mine", "Accept-Language": "de"})
    for arrival in site.log:
        assert arrival.headers["User-Agent"] == "mine"
        assert arrival.headers["Accept-Language"] == "de"
        assert arrival.headers["Sec-Fetch-Mode"] == "navigate"


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ({"meta": {"dont_warmup": True}}, {}),
        ({"meta": {"dont_pace": True}}, {}),
        ({"meta": {"navigation": False}}, {}),
        ({"method": "POST"}, {}),
        ({}, {"PACING_WARMUP": "never"}),
        ({}, {"PACING_WARMUP": "learned"}),
        ({}, {"PACING_ENABLED": False}),
    ],
    ids=str,
)
def test_what_does_not_arrive_through_the_homepage(arguments, settings):
    """The exempt request, the exempt kind, and the modes: no homepage is fetched."""
    with Site() as site:
        result = crawl(site.url("/1"), settings={**WARM, **settings}, **arguments)
    assert [arrival.path for arrival in site.log] == ["/1"]
    assert len(result.ok()) == 1


def test_a_crawl_that_starts_at_the_homepage_needs_no_other_visit():
    """The crawl's own homepage counts."""
    with Site(front_door) as site:
        wanted = json.dumps([{"url": site.url("/"), "priority": 9}, {"url": site.url("/1")}, {"url": site.url("/2")}])
        result = crawl(given=wanted, settings={**WARM, "PACING_INTERVAL": 0.4, "PACING_FLOOR": 0.3})
        paths = [arrival.path for arrival in site.log]
    assert paths.count("/") == 1
    assert len(result.ok()) == 3


def test_every_arrival_is_new_where_a_visit_never_counts():
    """PACING_WARMUP_TTL = 0: each page is reached through the homepage, and nothing goes round for ever."""
    with Site(front_door) as site:
        result = crawl(site.url("/1"), site.url("/2"), settings={**WARM, "PACING_WARMUP_TTL": 0})
        paths = [arrival.path for arrival in site.log]
    assert sorted(paths) == ["/", "/", "/1", "/2"]
    assert len(result.ok()) == 2


# -- robots.txt, dupefilter, offsite, cache ------------------------------------------------------------------------


@in_all_modes
@pytest.mark.parametrize("queue", ["scrapy_pacing.PacedPriorityQueue", "scrapy.pqueues.DownloaderAwarePriorityQueue"])
def test_one_place_robots_txt_and_warm_up_do_not_deadlock(mode, queue):
    """I040: with CONCURRENT_REQUESTS 1 robots.txt, homepage and page come one after the other, on each host."""
    with Site(front_door, hosts=(A, B)) as site:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(3) for host in (A, B)],
            settings={
                **WARM,
                "CONCURRENT_REQUESTS": 1,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
                "ROBOTSTXT_OBEY": True,
                "SCHEDULER_PRIORITY_QUEUE": queue,
            },
            mode=mode,
            timeout=30,
        )
        first = [[arrival.path for arrival in site.arrivals(host=host)][:2] for host in (A, B)]
    assert first == [["/robots.txt", "/"]] * 2
    assert len(result.ok()) == 6


def test_a_forbidden_homepage_is_not_visited():
    """robots.txt forbids / but not the pages: no warm-up, and they go on."""

    async def handler(request):
        if request.path == "/robots.txt":
            return web.Response(text="User-agent: *\nDisallow: /$\n")
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/1"), site.url("/2"), settings={**WARM, "ROBOTSTXT_OBEY": True})
        paths = [arrival.path for arrival in site.log]
    assert sorted(paths) == ["/1", "/2", "/robots.txt"]
    assert len(result.ok()) == 2
    assert result.stats["pacing/warmup_failed/ignored"] == 1
    assert "pacing/warmups" not in result.stats


def test_a_visit_leaves_no_trace_in_the_crawls_counts(tmp_path):
    """It takes nothing from the dupe filter, depth and offsite, comes from no cache, and calls no callback."""
    settings = {
        **WARM,
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_DIR": str(tmp_path),
        "DEPTH_LIMIT": 1,
        "DEPTH_STATS_VERBOSE": True,
    }
    with Site(front_door) as site:
        for _ in range(2):
            result = crawl(site.url("/1"), site.url("/"), settings=settings)
            # The spider's own request for the homepage is no duplicate of ours, and not dropped.
            assert sorted(item["asked"] for item in result.ok()) == [site.url("/"), site.url("/1")]
            assert "offsite/filtered" not in result.stats
            assert "dupefilter/filtered" not in result.stats
            assert result.stats["scheduler/dequeued"] <= 4
        visits = [arrival for arrival in site.arrivals("/") if "visit" not in arrival.headers.get("Cookie", "")]
    # Both pages of the second run come from the cache before they reach us: nothing to arrive for.
    assert len(visits) <= 2
    assert result.stats["httpcache/hit"] == 2


# -- failure -------------------------------------------------------------------------------------------------------


async def hang(request):
    await asyncio.sleep(20)
    return await ok(request)


async def forever(request):
    raise web.HTTPFound(f"/?{int(request.query_string or 0) + 1}")


async def elsewhere(request):
    raise web.HTTPFound(f"http://{B}:{request.url.port}/")


async def refreshed_elsewhere(request):
    return web.Response(
        text=f"<meta http-equiv=refresh content='0; url=http://{B}:{request.url.port}/'>", content_type="text/html"
    )


async def dropped(request):
    request.transport.close()
    return web.Response()


async def huge(request):
    response = web.StreamResponse(headers={"Content-Type": "text/html", "Content-Length": str(50 * 2**20)})
    await response.prepare(request)
    try:
        for _ in range(50):
            await response.write(b"x" * 2**20)
    except ConnectionError:
        pass
    return response


async def huge_in_chunks(request):
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    try:
        for _ in range(50):
            await response.write(b"x" * 2**20)
    except ConnectionError:
        pass
    return response


def status(code):
    async def handler(request):
        return web.Response(status=code)

    return handler


FAILURES = {
    "404": (status(404), "404", 1),
    "403": (status(403), "403", 1),
    "500": (status(500), "500", 1),
    "503": (status(503), "503", 1),
    "429": (status(429), "429", 1),
    "time-out": (hang, ("DownloadTimeoutError", "TimeoutError"), 1),
    "endless redirect": (forever, "redirects", 6),
    "redirect to another host": (elsewhere, "elsewhere", 1),
    "refresh to another host": (refreshed_elsewhere, "elsewhere", 1),
    "connection lost": (dropped, None, 1),
    "50 MB": (huge, None, 1),
    "50 MB in chunks": (huge_in_chunks, None, 1),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_visit_lets_everybody_go_on(failure):
    """I098: counted by its reason, said once, not tried again, no callback called; all pages come."""
    handle, reasons, most = FAILURES[failure]

    async def handler(request):
        if request.path == "/" and request.host.startswith(f"{A}:"):
            return await handle(request)
        return await ok(request)

    with Site(handler, hosts=(A, B)) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(10)],
            settings={**WARM, "DOWNLOAD_TIMEOUT": 2, "PACING_FIRST_INTERVAL": 0.1, "PACING_MAX_INTERVAL": 0.1},
        )
        visits = [arrival for arrival in site.arrivals(host=A) if arrival.path.partition("?")[0] == "/"]
    assert len(result.ok()) == 10
    assert len(result.items) == 10
    assert len(visits) == most
    assert result.stats["pacing/warmup_failed"] == 1
    failed = [stat for stat in result.stats if stat.startswith("pacing/warmup_failed/")]
    assert len(failed) == 1
    if reasons is not None:
        assert failed[0].rpartition("/")[2] in reasons
    assert result.log.count("No warm-up of") == 1
    assert "pacing/warmups" not in result.stats
    assert quiet(result.log)
    # Nothing teaches the pace but a refusal.
    assert result.stats.get("pacing/throttled", 0) == (1 if failure == "429" else 0)
    assert "retry/count" not in result.stats


def test_a_redirect_elsewhere_is_not_followed():
    """The other host is asked for nothing, robots.txt included."""

    async def handler(request):
        return await (elsewhere(request) if request.path == "/" else ok(request))

    with Site(handler, hosts=(A, B)) as site:
        crawl(site.url("/1"), settings={**WARM, "ROBOTSTXT_OBEY": True})
        assert site.arrivals(host=B) == []


@pytest.mark.parametrize("settings", [{}, {"PACING_TRAIL": False, "PACING_FETCH_METADATA": False}], ids=str)
def test_a_refresh_elsewhere_is_not_followed(settings):
    """A compressed homepage that leads on by itself: the other host is asked for nothing, robots.txt included."""

    async def handler(request):
        if request.path != "/":
            return await ok(request)
        response = await refreshed_elsewhere(request)
        response.enable_compression(web.ContentCoding.gzip)
        return response

    with Site(handler, hosts=(A, B)) as site:
        result = crawl(site.url("/1"), settings={**WARM, "ROBOTSTXT_OBEY": True, **settings})
        assert site.arrivals(host=B) == []
    assert len(result.ok()) == 1
    assert result.stats["pacing/warmup_failed/elsewhere"] == 1
    assert quiet(result.log)


def test_a_refresh_that_nobody_waits_for_fails_no_visit():
    """A homepage that would lead elsewhere after ten minutes has been seen."""

    async def handler(request):
        if request.path != "/":
            return await ok(request)
        refresh = f"<meta http-equiv=refresh content='600; url=http://{B}:{request.url.port}/'>"
        return web.Response(text=refresh, content_type="text/html")

    with Site(handler, hosts=(A, B)) as site:
        result = crawl(site.url("/1"), settings=WARM)
    assert result.stats["pacing/warmups"] == 1
    assert "pacing/warmup_failed" not in result.stats


@pytest.mark.parametrize("cookie", [True, False])
def test_a_homepage_is_fetched_once_where_its_site_moves_everybody(cookie):
    """A site that sends each of its URLs to another origin of its own is arrived at once, with and without cookies."""

    async def new(request):
        response = await ok(request)
        if cookie:
            response.set_cookie("visit", "1")
        return response

    with Site(new) as there:

        async def old(request):
            raise web.HTTPMovedPermanently(there.url(request.path))

        with Site(old) as here:
            result = crawl(*[here.url(f"/{n}") for n in range(3)], settings=WARM)
            asked = [[arrival.path for arrival in site.log] for site in (here, there)]
    assert [paths[0] for paths in asked] == ["/", "/"]
    assert [sorted(paths) for paths in asked] == [["/", "/0", "/1", "/2"]] * 2
    assert len(result.ok()) == 3
    assert result.stats["pacing/warmups"] == 1


@pytest.mark.parametrize("metadata", [True, False])
def test_a_crawl_that_starts_at_a_homepage_that_redirects_fetches_it_once(metadata):
    """The redirect of the crawl's own homepage is the arrival: nothing sends it back to where it comes from."""

    async def handler(request):
        if request.path in {"/", "/choose"}:
            response = web.HTTPFound("/choose" if request.path == "/" else "/en/")
            response.set_cookie("visit", "1")
            raise response
        if request.path == "/en/":
            return web.Response(text="<a href=/1>1</a><a href=/2>2</a>", content_type="text/html")
        return await front_door(request)

    with Site(handler) as site:
        result = crawl(
            site.url("/"),
            spider="tests.support.spiders.FollowSpider",
            settings={**WARM, "PACING_TRAIL": metadata, "PACING_FETCH_METADATA": metadata},
        )
        paths = [arrival.path for arrival in site.log]
    assert paths[:3] == ["/", "/choose", "/en/"]
    assert sorted(paths[3:]) == ["/1", "/2"]
    assert "pacing/warmups" not in result.stats


def test_two_spiders_arrive_once_where_a_site_moves_everybody():
    """The spider that waited for the other one's visit has arrived where that ended, too."""

    async def new(request):
        response = await ok(request)
        response.set_cookie("visit", "1")
        return response

    with Site(new) as there:

        async def old(request):
            if request.path == "/":
                await asyncio.sleep(0.5)
            raise web.HTTPMovedPermanently(there.url(request.path))

        with Site(old) as here:
            jobs = [{"spider": LIST, "arguments": {"requests": requests(here.url(f"/{n}"))}} for n in range(2)]
            with running(jobs, WARM) as under_way:
                result = under_way.wait()
            asked = [sorted(arrival.path for arrival in site.log) for site in (here, there)]
    assert asked == [["/", "/0", "/1"]] * 2
    assert quiet(result.log)


def test_a_refused_visit_makes_the_page_wait():
    """A 429 with Retry-After to the homepage holds the site: the page comes no earlier."""

    async def handler(request):
        if request.path == "/":
            return web.Response(status=429, headers={"Retry-After": "2"})
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/1"), settings=WARM)
    assert [arrival.path for arrival in site.log] == ["/", "/1"]
    assert site.gaps()[0] > 1.95
    assert result.stats["pacing/held"] == 1
    assert len(result.ok()) == 1


def test_a_homepage_within_the_site_is_followed():
    """A redirect to the site's start page is what a visitor sees; its cookie counts, and it is the page in view."""

    async def handler(request):
        if request.path == "/":
            response = web.HTTPFound("/en/")
            response.set_cookie("visit", "1")
            raise response
        return await front_door(request)

    with Site(handler) as site:
        result = crawl(site.url("/1"), settings=WARM)
        log = [(arrival.path, arrival.headers.get("Referer")) for arrival in site.log]
    assert log == [("/", None), ("/en/", None), ("/1", site.url("/en/"))]
    assert result.stats["pacing/warmups"] == 1


def test_a_slow_homepage_of_one_site_holds_up_no_other():
    """While one site's homepage hangs, another site is crawled."""

    async def handler(request):
        if request.path == "/" and request.host.startswith(f"{A}:"):
            await asyncio.sleep(4)
        return await ok(request)

    with Site(handler, hosts=(A, B)) as site:
        urls = [site.url(f"/{n}", host) for n in range(8) for host in (A, B)]
        result = crawl(*urls, settings={**WARM, "CONCURRENT_REQUESTS": 4})
        last_of_b = site.arrivals(host=B)[-1].at
        first_page_of_a = site.arrivals(host=A)[1].at
    assert len(result.ok()) == 16
    assert last_of_b < first_page_of_a


# -- closing -------------------------------------------------------------------------------------------------------


@in_all_modes
@pytest.mark.parametrize("queue", ["scrapy_pacing.PacedPriorityQueue", "scrapy.pqueues.DownloaderAwarePriorityQueue"])
def test_closing_during_a_visit_ends_at_once_and_loses_nothing(mode, queue, tmp_path):
    """A homepage that hangs keeps no crawl open, and the next run sends what waited for it."""
    hanging = [True]

    async def handler(request):
        if request.path == "/" and hanging[0]:
            await asyncio.sleep(15)
        return await ok(request)

    settings = {**WARM, "JOBDIR": str(tmp_path), "SCHEDULER_PRIORITY_QUEUE": queue}
    with Site(handler) as site:
        job = {"spider": LIST, "arguments": {"requests": requests(*[site.url(f"/{n}") for n in range(5)])}}
        with running([job], settings, mode=mode) as under_way:
            while not site.log:
                time.sleep(0.02)
            time.sleep(0.3)
            interrupted = time.monotonic()
            under_way.interrupt()
            result = under_way.wait(20)
            seconds = time.monotonic() - interrupted
        assert [arrival.path for arrival in site.log] == ["/"]
        hanging[0] = False
        resumed = crawl(given="[]", settings=settings, mode=mode)
    # A second for the close, some for the process to end.
    assert seconds < 2
    assert result.stats["reason"] == "shutdown"
    assert "pacing/warmup_failed" not in result.stats
    assert quiet(result.log)
    assert len(resumed.ok()) == 5


def test_a_resumed_crawl_arrives_anew(tmp_path):
    """What was warmed and waited on disk since comes with an empty jar: the homepage is visited again."""
    settings = {**WARM, "JOBDIR": str(tmp_path), "PACING_INTERVAL": 30}
    with Site(front_door) as site:
        job = {"spider": LIST, "arguments": {"requests": requests(site.url("/1"))}}
        with running([job], settings) as under_way:
            while not site.log:
                time.sleep(0.02)
            time.sleep(0.5)
            under_way.interrupt()
            under_way.wait(20)
        assert [arrival.path for arrival in site.log] == ["/"]
        resumed = crawl(given="[]", settings={**settings, "PACING_INTERVAL": 0.05})
        assert [arrival.path for arrival in site.log] == ["/", "/", "/1"]
    assert len(resumed.ok()) == 1


def test_closing_one_crawl_leaves_the_other_its_visit():
    """The spider that began the visit closes; the other one, which waited for it, visits by itself and goes on."""
    visits = []

    async def handler(request):
        if request.path == "/":
            visits.append(time.monotonic())
            if len(visits) == 1:
                await asyncio.sleep(15)
        return await ok(request)

    with Site(handler, hosts=(A, B)) as site:
        closing = {
            "spider": "tests.support.spiders.ClosingSpider",
            "arguments": {
                # Its first answer comes from the other host, and lets it close.
                "requests": json.dumps(
                    [
                        {"url": site.url("/1")},
                        {"url": site.url("/now", B), "meta": {"dont_warmup": True}},
                    ]
                ),
                "after": 2,
            },
        }
        staying = {"spider": LIST, "arguments": {"requests": requests(site.url("/2"))}}
        with running([closing, staying], WARM) as under_way:
            result = under_way.wait(30)
        paths = [arrival.path for arrival in site.arrivals(host=A)]
    assert paths == ["/", "/", "/2"]
    assert result.seconds < 12
    assert quiet(result.log)


@in_all_modes
def test_a_cancelled_request_waits_for_no_visit(mode):
    """meta pacing_signal ends the wait of one request for the homepage; another one's goes on."""

    async def handler(request):
        if request.path == "/":
            await asyncio.sleep(3)
        return await ok(request)

    with Site(handler) as site:
        job = {"requests": given({"url": site.url("/mine"), "job": "job"}, {"url": site.url("/yours")}), "after": 1}
        settings = {**WARM, "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"}
        with running(
            [{"spider": "tests.support.asking.CancelSpider", "arguments": job}], settings, mode=mode
        ) as crawl_:
            result = crawl_.wait(30)
        assert sorted(arrival.path for arrival in site.log) == ["/", "/yours"]
    cancelled = next(item for item in result.items if "error" in item)
    assert cancelled["error"] == "RequestCancelledError"
    assert cancelled["at"] - result.stats["cancelled_at"] < 1
    assert quiet(result.log)
