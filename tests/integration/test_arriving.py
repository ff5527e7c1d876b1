"""A crawl arrives and moves on as a visitor does: what two hosts of a local site saw of it."""

from __future__ import annotations

from collections import Counter

import pytest
from aiohttp import web

from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.site import Site, ok

A, B = "127.0.0.1", "127.0.0.2"
EVEN = {"PACING_INTERVAL": 0.05, "PACING_PAUSE_PROBABILITY": 0, "PACING_REMEMBER": False}
WARM = {**EVEN, "PACING_WARMUP": "always"}
FOLLOW = "tests.support.spiders.FollowSpider"
NOISE = ("Traceback", "never awaited", "Unhandled error", "Task was destroyed")


def html(body, **arguments):
    return web.Response(text=f"<html><body>{body}</body></html>", content_type="text/html", **arguments)


def quiet(log):
    return not [noise for noise in NOISE if noise in log]


def shown(arrival):
    """What an arrival says of where it came from; the port is always the site's."""
    port = arrival.host.partition(":")[2]
    referer = arrival.headers.get("Referer")
    return (
        f"{arrival.host.partition(':')[0]}{arrival.path}",
        arrival.headers.get("Sec-Fetch-Site"),
        None if referer is None else referer.replace(f":{port}", "").removeprefix("http://"),
    )


@in_all_modes
def test_the_sites_log_shows_the_chain(mode):
    """I085, I092: homepage, list, item; a redirect to another host and back names the list's origin, never its query."""

    async def handler(request):
        other = f"http://{B}:{request.url.port}"
        if request.path == "/list":
            return html(f"<a href='/go?tok=1'>go</a> <a href='{other}/direct'>there</a>")
        if request.path == "/go":
            raise web.HTTPFound(f"{other}/land?tok=2")
        if request.path == "/land":
            raise web.HTTPFound(f"http://{A}:{request.url.port}/home")
        return await ok(request)

    with Site(handler, hosts=(A, B)) as site:
        # Plain addresses have no registrable domain: the two hosts are two sites.
        result = crawl(
            site.url("/list?secret=1"),
            spider=FOLLOW,
            settings={**WARM, "PACING_ORIGINS": {B: {"interval": 0.01}}},
            mode=mode,
        )
        log = [shown(arrival) for arrival in site.log]
    assert log[:2] == [(f"{A}/", "none", None), (f"{A}/list?secret=1", "same-origin", f"{A}/")]
    # The order in which the two sites see the rest is chance; what each request says is not.
    assert sorted(log[2:], key=str) == sorted(
        [
            (f"{A}/go?tok=1", "same-origin", f"{A}/list?secret=1"),
            # Where the link led, and the hop of the redirect: both began at the list. The homepage was typed.
            (f"{B}/", "none", None),
            (f"{B}/direct", "cross-site", f"{A}/"),
            (f"{B}/land?tok=2", "cross-site", f"{A}/"),
            (f"{A}/home", "cross-site", f"{A}/"),
        ],
        key=str,
    )
    assert result.stats["pacing/warmups"] == 2
    assert quiet(result.log)


@in_all_modes
def test_a_compressed_pages_own_policy_is_obeyed(mode):
    """A meta element in a compressed page hides its address from what follows."""

    async def handler(request):
        response = html("<meta name=referrer content=no-referrer><a href=/item>item</a>")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    with Site(handler) as site:
        crawl(site.url("/hidden"), site.url("/also"), spider=FOLLOW, settings=EVEN, mode=mode)
        log = [shown(arrival) for arrival in site.log]
    assert {referer for _, _, referer in log} == {None}
    assert {related for path, related, _ in log if path.endswith("/item")} == {"same-origin"}


def test_a_retried_and_a_refused_request_say_each_thing_once():
    """I095: through retries, refusals and the scheduler no header is doubled."""
    seen = Counter()

    async def handler(request):
        seen[request.path] += 1
        if request.path == "/broken" and seen[request.path] < 3:
            return web.Response(status=500)
        if request.path == "/busy" and seen[request.path] < 3:
            return web.Response(status=429)
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/broken"), site.url("/busy"), settings={**EVEN, "PACING_MAX_INTERVAL": 0.2})
        names = [Counter(name.lower() for name in arrival.headers) for arrival in site.log]
    assert len(result.ok()) == 2
    assert len(names) == 6
    assert max(max(counter.values()) for counter in names) == 1


def test_a_resumed_crawl_goes_on_with_the_trail(tmp_path):
    """What waited on disk still knows the page that held its link."""
    links = "".join(f"<a href=/item{n}>x</a>" for n in range(6))

    async def handler(request):
        return html(links) if request.path == "/list" else await ok(request)

    settings = {**EVEN, "PACING_INTERVAL": 0.3, "JOBDIR": str(tmp_path), "CLOSESPIDER_ITEMCOUNT": 3}
    with Site(handler) as site:
        crawl(site.url("/list"), spider=FOLLOW, settings=settings)
        before = len(site.log)
        crawl(spider=FOLLOW, settings={**settings, "CLOSESPIDER_ITEMCOUNT": 0}, given="[]")
        resumed = [shown(arrival) for arrival in site.log[before:]]
    assert 0 < before < 7
    assert len(resumed) >= 2
    assert {referer for _, _, referer in resumed} == {f"{A}/list"}


def test_two_spiders_are_one_visitor():
    """Two spiders of a process on one site: one warm-up, whose cookie both bring, and one chain of pages."""

    async def handler(request):
        if request.path == "/":
            response = await ok(request)
            response.set_cookie("visit", "1")
            return response
        if "visit" not in request.cookies:
            raise web.HTTPFound("/wall")
        return await ok(request)

    with Site(handler) as site:
        jobs = [
            {"spider": "tests.support.spiders.ListSpider", "arguments": {"requests": requests(site.url(f"/{n}"))}}
            for n in range(2)
        ]
        with running(jobs, WARM) as under_way:
            result = under_way.wait()
        paths = [arrival.path for arrival in site.log]
        referers = [shown(arrival)[2] for arrival in site.log]
    assert paths[0] == "/"
    assert sorted(paths[1:]) == ["/0", "/1"]
    assert referers[1] == f"{A}/"
    assert None not in referers[1:]
    assert quiet(result.log)


@pytest.mark.parametrize("location", ["http://[::1", "http://%zz:99999999/", "http:///", "data:text/html,x", ""])
def test_a_garbage_location_does_not_disturb_the_crawl(location):
    """A homepage and a page that redirect to nonsense: the other pages come."""

    async def handler(request):
        if request.path in {"/", "/odd"}:
            return web.Response(status=302, headers={"Location": location})
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/odd"), site.url("/1"), site.url("/2"), settings={**WARM, "RETRY_ENABLED": False})
    assert len(result.ok()) >= 2
    assert result.stats["pacing/warmup_failed"] == 1
    assert result.stats["reason"] == "finished"
