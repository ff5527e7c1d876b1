"""No password of a proxy goes astray: not to a site, not to another proxy, not into anything that is written."""

from __future__ import annotations

import base64
import json
import time

import pytest
from aiohttp import web

from tests.proxies import LocalProxy, closed_port
from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.secure_site import SecureSite
from tests.support.site import Site, ok

SPIDER = "tests.support.exit_spiders.ExitSpider"
QUICK = {"PACING_INTERVAL": 0.05, "PACING_PAUSE_PROBABILITY": 0, "PACING_REMEMBER": False}
USER, PASSWORD = "ann", "s3cret/pa:ss"
WRITTEN = (PASSWORD, "s3cret", base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())


def shown(*texts: str) -> list[str]:
    """Which forms of the password stand in any of the texts."""
    return [form for form in WRITTEN for text in texts if form in text]


def files_below(directory) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in directory.rglob("*") if path.is_file())


@in_all_modes
def test_i068_credentials_go_to_their_own_proxy_and_nowhere_else(mode):
    """I068: by http and by CONNECT no origin sees them; after a redirect to the other scheme and after a retry the
    request is logged in again, and the proxy without credentials is sent none."""
    failed = [False]

    async def handler(request):
        if request.path == "/to-https":
            return web.Response(status=302, headers={"Location": secure.url("/landed")})
        if request.path == "/to-http":
            return web.Response(status=302, headers={"Location": plain.url("/landed")})
        if request.path == "/once-503" and not failed[0]:
            failed[0] = True
            return web.Response(status=503)
        return await ok(request)

    hosts = ("127.0.0.1", "127.0.0.2")
    with (
        Site(handler, hosts=hosts) as plain,
        SecureSite(handler, hosts=hosts) as secure,
        LocalProxy(credentials=(USER, "pass:word")) as closed,
        LocalProxy() as free,
    ):
        urls = [site.url(path, host) for site in (plain, secure) for host in hosts for path in ("/a", "/b")]
        result = crawl(
            *urls,
            plain.url("/to-https"),
            secure.url("/to-http"),
            plain.url("/once-503"),
            settings={**QUICK, "PACING_EXITS": [closed.url, free.url]},
            spider=SPIDER,
            mode=mode,
        )
        arrivals = plain.log + secure.log
        by_closed, by_free = list(closed.seen), list(free.seen)
    assert len(result.ok()) == 11
    assert max(item["retries"] for item in result.items) == 1
    assert not [arrival for arrival in arrivals if "Proxy-Authorization" in arrival.headers]
    assert {note.status for note in by_closed} == {200}
    assert {note.proxy_authorization for note in by_free} == {None}


@in_all_modes
def test_i068_a_request_that_moves_takes_no_credentials_along(mode):
    """I068: what one exit refuses goes by the next one with that one's credentials, or with none."""
    with Site() as site, LocalProxy(always_407=True, credentials=(USER, "pw-one")) as bad, LocalProxy() as good:
        result = crawl(
            *[site.url(f"/{n}") for n in range(3)],
            settings={**QUICK, "PACING_EXITS": [bad.url, good.url]},
            spider=SPIDER,
            mode=mode,
        )
        got = {note.proxy_authorization for note in good.seen}
    assert len(result.ok()) == 3
    assert len(bad.seen) >= 1
    assert got == {None}


@pytest.mark.parametrize("make_site", [Site, SecureSite], ids=["http", "https"])
def test_i083_passwords_are_in_no_log_stat_item_trace_or_file(make_site, tmp_path):
    """I083: with exits that work, refuse, hang and are dead, every output is searched for the password."""

    async def handler(request):
        if request.path == "/captcha":
            return web.Response(status=302, headers={"Location": "/other"})
        return web.Response(status=403) if request.path.startswith("/no") else await ok(request)

    hosts = tuple(f"127.0.0.{n}" for n in range(1, 6))
    with (
        make_site(handler, hosts=hosts) as site,
        LocalProxy(credentials=(USER, PASSWORD)) as works,
        LocalProxy(credentials=(USER, "another")) as refuses,
        LocalProxy(credentials=(USER, PASSWORD), own_status=502) as broken,
        closed_port() as dead,
    ):
        with_password = "s3cret%2Fpa%3Ass"
        exits = [
            works.url,
            refuses.url.replace("another", with_password),
            broken.url,
            dead.replace("http://", f"http://{USER}:{with_password}@"),
        ]
        result = crawl(
            *[site.url(path, host) for path in ("/a", "/no/1", "/no/2", "/no/3", "/captcha") for host in hosts],
            settings={
                **QUICK,
                "PACING_EXITS": exits,
                "PACING_REMEMBER": True,
                "PACING_DATA_DIR": str(tmp_path / "data"),
                "PACING_EXIT_WAIT": 1,
                "HTTPCACHE_ENABLED": True,
                "HTTPCACHE_DIR": str(tmp_path / "cache"),
                "COOKIES_DEBUG": True,
                "LOGSTATS_INTERVAL": 1,
                "FEEDS": {str(tmp_path / "items.jsonl"): {"format": "jsonlines"}},
            },
            spider=SPIDER,
        )
    assert len(result.items) >= 20
    assert len(result.ok()) >= 2
    assert any("rotations" in stat for stat in result.stats)
    files = files_below(tmp_path)
    assert "200" in files
    assert shown(result.log, repr(result.stats), repr(result.items), files) == []
    assert with_password not in result.log + repr(result.stats) + repr(result.items) + files


@pytest.mark.parametrize("alone", [False, True], ids=["with-pacing", "alone"])
def test_i083_a_job_directory_holds_no_proxy_and_goes_on_by_the_exits_of_its_day(alone, tmp_path):
    """I083: requests that wait on disk (retried, redirected, given back) name no proxy; the next run binds them anew."""
    job = tmp_path / "job"
    settings = {
        **QUICK,
        "JOBDIR": str(job),
        "PACING_INTERVAL": 1,
        "PACING_FLOOR": 0.8,
        "RETRY_TIMES": 20,
        "CONCURRENT_REQUESTS": 1 if alone else 16,
    }
    if alone:
        settings["DOWNLOADER_MIDDLEWARES"] = {"scrapy_pacing.ExitMiddleware": 690}
        settings["DOWNLOAD_DELAY"] = 0.3

    async def handler(request):
        if request.headers.get("Via") != "1.1 new":
            kind = request.path.rpartition("/")[0]
            if kind == "/from":
                return web.Response(status=302, headers={"Location": request.path.replace("from", "to")})
            return web.Response(status=503 if kind == "/retry" else 429 if kind == "/slow" else 200)
        return await ok(request)

    with (
        Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site,
        LocalProxy(credentials=(USER, PASSWORD), via="old") as old,
        LocalProxy(credentials=(USER, "of-today"), via="new") as new,
    ):
        urls = [site.url(f"/{kind}/{n}", host) for n in range(3) for kind in ("from", "retry") for host in site.hosts]
        spiders = [{"spider": SPIDER, "arguments": {"requests": requests(*urls)}}]
        with running(spiders, {**settings, "PACING_EXITS": [old.url]}, addon=not alone) as under_way:
            until = time.monotonic() + 20
            while len(site.log) < 6 and time.monotonic() < until:
                time.sleep(0.05)
            under_way.interrupt()
            first = under_way.wait()
        files = files_below(job)
        before = len(old.seen)
        quick = {**settings, "PACING_INTERVAL": 0.02, "PACING_FLOOR": 0, "DOWNLOAD_DELAY": 0}
        second = crawl(given="[]", settings={**quick, "PACING_EXITS": [new.url]}, spider=SPIDER, addon=not alone)
        after = len(old.seen)
    assert files
    assert "/retry/" in files
    assert shown(files, first.log) == []
    assert f"127.0.0.1:{old.port}" not in files
    assert "pacing_exit" not in files
    assert before == after
    assert len(new.seen) >= 3
    asked = {item["asked"].replace("/to/", "/from/") for item in first.items + second.items}
    assert asked == set(urls)
    assert {item["status"] for item in second.items} == {200}


def test_the_users_own_credentials_are_left_alone():
    """A request with its own proxy and its own Proxy-Authorization is sent as it is."""
    with Site() as site, LocalProxy() as leased, LocalProxy(credentials=("me", "mine")) as own:
        header = "Basic " + base64.b64encode(b"me:mine").decode()
        given = json.dumps(
            [
                {
                    "url": site.url("/own"),
                    "meta": {"proxy": own.address},
                    "headers": {"Proxy-Authorization": header},
                },
                {"url": site.url("/leased")},
            ]
        )
        result = crawl(given=given, settings={**QUICK, "PACING_EXITS": [leased.url]}, spider=SPIDER)
    assert len(result.ok()) == 2
    assert [note.proxy_authorization for note in own.seen] == [header]
    assert [note.proxy_authorization for note in leased.seen] == [None]
