"""What a crawl keeps for the next one, and how little is lost when it ends badly."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import stat
import time

import pytest
from aiohttp import web

from scrapy_pacing import Layer, Memory
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Cookie
from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.site import Bucket, Site, ok

FAST = {"PACING_INTERVAL": 0}
EVEN = {"PACING_PAUSE_PROBABILITY": 0}
SLACK = 0.04


def remembering(directory, **settings):
    return {**FAST, "PACING_REMEMBER": True, "PACING_DATA_DIR": str(directory), **settings}


def remembered(directory):
    return json.loads((directory / "memory.json").read_text())["origins"]


def dumped(result, stat_name):
    """What the stats at the end of the log say; those of a test's own are taken before the last save."""
    found = re.search(rf"'{re.escape(stat_name)}': ([\d.]+)", result.log)
    return None if found is None else float(found[1])


def refusing_first(retry_after):
    """A site that refuses its very first request."""
    seen = []

    async def handler(request):
        seen.append(request.path)
        if len(seen) == 1:
            return web.Response(status=429, headers={"Retry-After": retry_after} if retry_after else {})
        return await ok(request)

    return handler


def hanging(handler):
    """The same site, with one page that never comes."""

    async def hang(request):
        if request.path == "/hang":
            await asyncio.sleep(20)
        return await handler(request)

    return hang


@in_all_modes
def test_the_second_run_starts_where_the_first_ended(mode, tmp_path):
    """The interval that a 429 taught holds from the first gap of the next run."""
    with Site(refusing_first("1")) as site:
        settings = remembering(tmp_path, **EVEN, PACING_FIRST_INTERVAL=1)
        first = crawl(site.url("/a"), settings=settings, mode=mode)
        before = len(site.log)
        second = crawl(*[site.url(f"/{n}") for n in range(6)], settings=settings, mode=mode)
        times = [arrival.at for arrival in site.log[before:]]
    assert first.stats["pacing/backed_off"] == 1
    assert len(second.ok()) == 6
    assert "pacing/throttled" not in second.stats
    assert second.stats["pacing/memory/recalled"] == 1
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert sum(gaps) > 1.5


def test_a_learned_limit_earns_no_refusal_in_the_next_run(tmp_path):
    """A site that refused the first run has nothing to refuse in the second."""
    bucket = Bucket(rate=2, burst=3)
    with Site(bucket) as site:
        settings = {**remembering(tmp_path), "PACING_INTERVAL": 0.1, **EVEN, "PACING_SHAPE": 20}
        crawl(*[site.url(f"/{n}") for n in range(8)], settings=settings)
        assert bucket.refused
        bucket.refused = 0
        time.sleep(1.5)
        result = crawl(*[site.url(f"/{n}") for n in range(8)], settings=settings)
    assert len(result.ok()) == 8
    assert bucket.refused == 0


@pytest.mark.parametrize("job", [False, True], ids=["plain", "jobdir"])
def test_a_hold_survives_a_restart(job, tmp_path):
    """I064: what a Retry-After forbade, the next run does not do either, with a job directory and without."""
    with Site(refusing_first("9")) as site:
        settings = remembering(tmp_path / "memory", **EVEN)
        if job:
            settings["JOBDIR"] = str(tmp_path / "job")
        spider = [{"spider": "tests.support.spiders.ListSpider", "arguments": {"requests": requests(site.url("/a"))}}]
        with running(spider, settings) as under_way:
            while not site.log:
                time.sleep(0.05)
            time.sleep(0.5)
            under_way.interrupt()
            under_way.wait(10)
        assert len(site.log) == 1
        urls = [] if job else [site.url("/a")]
        result = crawl(*urls, settings=settings)
        assert len(site.log) == 2
        gap = site.gaps()[0]
    assert len(result.ok()) == 1
    assert 9 - SLACK < gap < 14


@in_all_modes
def test_a_killed_crawl_loses_no_more_than_the_flush_interval(mode, tmp_path):
    """I048: kill -9 leaves a file with all that was learned until an interval ago."""
    with Site(hanging(refusing_first(None))) as site:
        job = {"requests": requests(site.url("/0"), site.url("/1"), site.url("/hang")), "after": 1.5}
        settings = remembering(tmp_path, PACING_FLUSH_INTERVAL=0.4, PACING_FIRST_INTERVAL=0.2, **EVEN)
        spider = [{"spider": "tests.support.asking.KilledSpider", "arguments": job}]
        with running(spider, settings, mode=mode) as under_way:
            result = under_way.wait()
        origin = site.url("")
    assert result.returncode == -9
    assert remembered(tmp_path)[origin]["pace"]["interval"] > 0
    assert Memory(tmp_path / "memory.json").take_notices() == []


@in_all_modes
def test_a_second_ctrl_c_loses_nothing(mode, tmp_path):
    """I048: a shutdown that is forced leaves out the close, and what was learned is saved all the same."""
    with Site(hanging(refusing_first(None))) as site:
        job = {"requests": requests(site.url("/a"), site.url("/hang"))}
        settings = remembering(tmp_path, PACING_FLUSH_INTERVAL=600, PACING_FIRST_INTERVAL=0.1, **EVEN)
        with running(
            [{"spider": "tests.support.spiders.ListSpider", "arguments": job}], settings, mode=mode
        ) as under_way:
            while not site.arrivals("/hang"):
                time.sleep(0.05)
            under_way.interrupt()
            time.sleep(0.7)
            under_way.interrupt()
            under_way.wait(15)
        origin = site.url("")
    assert remembered(tmp_path)[origin]["pace"]["interval"] > 0


@in_all_modes
def test_the_file_is_private_and_valid_after_the_crawl(mode, tmp_path):
    """The file and its directory are their owner's alone, and the log says what was remembered."""
    directory = tmp_path / "data"
    with Site() as site:
        result = crawl(site.url("/a"), settings=remembering(directory), mode=mode)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "memory.json").stat().st_mode) == 0o600
    assert "Remembering 0 origins in " in result.log
    assert dumped(result, "pacing/memory/kept") == 1
    assert dumped(result, "pacing/memory/saves") == 1
    assert "Task was destroyed" not in result.log
    assert "Unhandled" not in result.log


def test_saving_happens_only_when_there_is_something_to_save(tmp_path):
    """A crawl that learns nothing new writes no file over and over."""
    with Site() as site:
        settings = {
            **remembering(tmp_path, PACING_FLUSH_INTERVAL=0.1),
            "PACING_INTERVAL": 0.3,
            "PACING_FLOOR": 0.29,
            "PACING_SHAPE": 100,
            **EVEN,
        }
        result = crawl(*[site.url(f"/{n}") for n in range(10)], settings=settings)
    # One save for the first visit, and perhaps one at the end.
    assert 1 <= dumped(result, "pacing/memory/saves") <= 2


def test_a_big_memory_is_saved_beside_the_crawl(tmp_path):
    """Saving 1,000 origins with 64 pages each holds up nobody: the event loop goes on meanwhile."""
    job = {"count": 1000, "seconds": 2.5}
    settings = remembering(tmp_path, PACING_FLUSH_INTERVAL=0.5)
    with running([{"spider": "tests.support.asking.ManyOriginsSpider", "arguments": job}], settings) as under_way:
        result = under_way.wait()
    [item] = result.items
    assert item["origins"] == 1000
    assert dumped(result, "pacing/memory/saves") >= 1
    # 20 ms is what the code gives; a busy machine adds to it.
    assert item["worst"] < 0.25


def test_closing_with_ten_thousand_origins_is_prompt(tmp_path):
    """I049: the last save takes less than a second."""
    memory = Memory(tmp_path / "memory.json", max_origins=20_000)
    for number in range(10_000):
        memory.record(f"https://host{number}.example", Learned(5.0))
    memory.flush()
    with Site() as site:
        result = crawl(site.url("/a"), settings=remembering(tmp_path, PACING_MAX_ORIGINS=20_000))
    assert dumped(result, "pacing/memory/kept") == 10_001
    assert seconds_between(result.log, "Closing spider", "Spider closed") < 1


def seconds_between(log, first, second):
    times = [
        time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))
        for text in (first, second)
        for line in log.splitlines()
        if text in line
    ][:2]
    # The log has whole seconds: a difference of 1 may be far less.
    return times[1] - times[0] - 0.999


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"schema":1', b'{"schema":99,"origins":{}}'])
def test_a_bad_file_costs_one_warning_and_no_crawl(content, tmp_path):
    """I055: whatever is in the file, the crawl starts cold, says so once, and saves."""
    (tmp_path / "memory.json").write_bytes(content)
    with Site() as site:
        result = crawl(site.url("/a"), settings=remembering(tmp_path))
        assert list(remembered(tmp_path)) == [site.url("")]
    assert len(result.ok()) == 1
    assert len(re.findall(r"WARNING.*memory\.json", result.log)) == 1


def test_a_directory_that_cannot_be_written_costs_one_warning(tmp_path):
    """I056: what can't be saved is said once, and the crawl goes on."""
    (tmp_path / "memory.json").mkdir()
    with Site() as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(3)], settings=remembering(tmp_path, PACING_FLUSH_INTERVAL=0.1)
        )
    assert len(result.ok()) == 3
    assert 1 <= len(re.findall(r"WARNING.*memory\.json", result.log)) <= 2
    assert dumped(result, "pacing/memory/failed_saves") >= 1


def test_another_process_holding_the_lock_delays_nothing_but_the_last_save(tmp_path):
    """I059: a lock that somebody else holds costs a bounded wait at the close, a warning, and nothing else."""
    from filelock import FileLock

    with Site() as site, FileLock(f"{tmp_path / 'memory.json'}.lock"):
        started = time.monotonic()
        result = crawl(
            *[site.url(f"/{n}") for n in range(20)], settings=remembering(tmp_path, PACING_FLUSH_INTERVAL=0.1)
        )
        seconds = time.monotonic() - started
        arrived = site.log[-1].at - site.log[0].at
    assert len(result.ok()) == 20
    assert arrived < 2
    assert seconds < 25
    assert "has held its lock" in result.log


def test_where_it_is_remembered(tmp_path):
    """In a Scrapy project below .scrapy, elsewhere in the user's data directory, unless the environment says more."""
    with Site() as site:
        for name, environment, expected in (
            ("project", {}, "project/.scrapy/pacing"),
            ("elsewhere", {}, "home/scrapy-pacing"),
            ("named", {"PACING_DATA_DIR": str(tmp_path / "volume")}, "volume"),
        ):
            place = tmp_path / name / "deep"
            place.mkdir(parents=True)
            if name == "project":
                (tmp_path / name / "scrapy.cfg").write_text("[settings]\n")
            result = run_here(place, site.url("/a"), XDG_DATA_HOME=str(tmp_path / "home"), **environment)
            assert (tmp_path / expected / "memory.json").is_file(), result


def run_here(place, url, **environment):
    """Run a crawl with the package's defaults in a directory."""
    import subprocess
    import sys

    from tests.support.crawl import ROOT

    code = (
        "import scrapy, sys\n"
        "from scrapy.crawler import CrawlerProcess\n"
        "class S(scrapy.Spider):\n"
        "    name = 's'\n"
        "    start_urls = [sys.argv[1]]\n"
        "    def parse(self, response): pass\n"
        "p = CrawlerProcess({'ADDONS': {'scrapy_pacing.Addon': 500}, 'PACING_WARMUP': 'never'})\n"
        "p.crawl(S)\n"
        "p.start()\n"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "PACING_DATA_DIR"}
    return subprocess.run(
        [sys.executable, "-c", code, url],
        cwd=place,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        check=True,
        timeout=60,
        text=True,
    ).stderr[-3000:]


# -- what else is learned -----------------------------------------------------------------------------------------------

TRAP_PAGE = """<html><body>
<a href="/seen">Seen</a>
<div style="display:none"><a href="/trap">Trap</a><a href="/seen">Seen too</a></div>
<a hidden href="/trap2">Trap</a>
<div style="position:absolute; left:-9999px"><a href="http://127.0.0.2:1/other-site">Elsewhere</a></div>
</body></html>"""


@in_all_modes
def test_a_decoy_is_never_asked_for(mode, tmp_path):
    """Links that nobody sees are recorded, and requests for them dropped, in this run and in the next."""

    async def handler(request):
        return web.Response(text=TRAP_PAGE, content_type="text/html")

    with Site(handler) as site:
        settings = remembering(tmp_path)
        first = crawl(site.url("/page"), settings=settings, mode=mode, spider="tests.support.asking.LinksSpider")
        second = crawl(site.url("/trap"), settings=settings, mode=mode)
        assert {arrival.path for arrival in site.log} == {"/page", "/seen"}
    assert first.items[0]["visible"] == [site.url("/seen")]
    assert first.stats["pacing/decoys_dropped"] == 2
    assert first.stats["pacing/memory/decoys"] == 2
    assert second.items == [{"asked": site.url("/trap"), "error": "IgnoreRequest", "spider": "list"}]


HIDING_PAGE = """<html><body><a href="/seen">seen</a>
<p hidden><a href="/robots.txt">rules</a><a href="/rules.txt">rules</a></p></body></html>"""


def test_no_hidden_link_makes_a_crawl_ignore_robots_txt(tmp_path):
    """robots.txt is read though a page hides a link to it, and to where it leads."""

    async def handler(request):
        if request.path == "/robots.txt":
            raise web.HTTPFound("/rules.txt")
        if request.path == "/rules.txt":
            return web.Response(text="User-agent: *\nDisallow: /private")
        return web.Response(text=HIDING_PAGE, content_type="text/html")

    with Site(handler) as site:
        settings = remembering(tmp_path, ROBOTSTXT_OBEY=True)
        crawl(site.url("/page"), settings=settings, spider="tests.support.asking.LinksSpider")
        assert Memory(tmp_path / "memory.json").decoys(site.url("")) == ["/rules.txt"]
        result = crawl(site.url("/private"), settings=settings)
        assert "/private" not in {arrival.path for arrival in site.log}
    assert result.stats["robotstxt/forbidden"] == 1


def is_script_wall(response):
    """A project's PACING_DIAGNOSE."""
    return Layer.SCRIPT if b"Enable JavaScript" in response.body else None


def test_the_binding_layer_is_found_and_kept(tmp_path):
    """A challenge is known by its header; anything else by the project's own function."""

    async def handler(request):
        if request.path == "/wall":
            return web.Response(text="Enable JavaScript", content_type="text/html")
        return web.Response(status=403, headers={"Cf-Mitigated": "challenge"})

    with Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site:
        settings = remembering(tmp_path, PACING_DIAGNOSE="tests.integration.test_memory.is_script_wall")
        crawl(site.url("/wall"), settings=settings)
        crawl(site.url("/403", "127.0.0.2"), settings=remembering(tmp_path))
        memory = Memory(tmp_path / "memory.json")
        assert memory.layer(site.url("")) is Layer.SCRIPT
        assert memory.layer(site.url("", "127.0.0.2")) is Layer.CHALLENGE


def raises(response):
    """A PACING_DIAGNOSE with a fault."""
    raise KeyError("no such field")


def test_a_diagnosis_that_raises_is_said_once(tmp_path):
    """The crawl goes on as if there were none."""
    with Site() as site:
        settings = remembering(tmp_path, PACING_DIAGNOSE="tests.integration.test_memory.raises")
        result = crawl(site.url("/a"), site.url("/b"), settings=settings)
    assert len(result.ok()) == 2
    assert result.log.count("PACING_DIAGNOSE raised") == 1


def test_the_tier_that_worked_is_hinted_to_the_next_run(tmp_path):
    """What served the first page is on the next run's requests, for whoever can act on it; plain HTTP needs no hint."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        spider, settings = "tests.support.asking.TierSpider", remembering(tmp_path)
        crawl(site.url("/a"), settings=settings, spider=spider, meta={"pacing_tier": "browser"})
        crawl(site.url("/a", "127.0.0.2"), settings=settings, spider=spider)
        result = crawl(site.url("/b"), site.url("/c"), site.url("/b", "127.0.0.2"), settings=settings, spider=spider)
        again = crawl(site.url("/b"), settings=settings, spider=spider)
    assert sorted(str(item["tier"]) for item in result.items) == ["None", "browser", "browser"]
    assert again.items[0]["tier"] == "browser"


def test_endpoints_behind_pages_are_known_to_the_next_run(tmp_path):
    """JSON that a page's requests brought, and feeds that it links to, can be asked for by origin."""

    async def handler(request):
        if request.path.startswith("/api"):
            return web.json_response({"price": 1})
        links = '<link rel="alternate" type="application/rss+xml" href="/feed"><link rel="alternate" hreflang="de" href="/de">'
        return web.Response(text=f"<html><head>{links}</head></html>", content_type="text/html")

    with Site(handler) as site:
        settings, spider = remembering(tmp_path), "tests.support.asking.EndpointsSpider"
        given = json.dumps([{"url": site.url("/api/1"), "meta": {"navigation": False}}, {"url": site.url("/page")}])
        crawl(given=given, settings=settings, spider=spider)
        result = crawl(site.url("/other"), settings=settings, spider=spider)
    assert result.items[0]["endpoints"] == {
        site.url("/api/1"): "application/json",
        site.url("/feed"): "application/rss+xml",
    }


@in_all_modes
def test_a_clearance_goes_back_to_the_same_visitor(mode, tmp_path):
    """The cookie that proves a solved challenge is sent again by the next run, to its origin only."""

    async def handler(request):
        response = await ok(request)
        if request.path == "/solved":
            response.set_cookie("cf_clearance", "proof", max_age=3600)
            response.set_cookie("session", "other")
        return response

    with Site(handler) as site, Site(handler) as neighbour:
        settings = remembering(tmp_path, USER_AGENT="visitor")
        crawl(site.url("/solved"), settings=settings, mode=mode)
        crawl(site.url("/a"), neighbour.url("/a"), site.url("/b"), settings=settings, mode=mode)
        crawl(site.url("/c"), settings={**settings, "USER_AGENT": "another"}, mode=mode)
        crawl(site.url("/d"), settings={**settings, "COOKIES_ENABLED": False}, mode=mode)
        sent = {arrival.path: arrival.headers.get("Cookie") for arrival in site.log}
        elsewhere = [arrival.headers.get("Cookie") for arrival in neighbour.log]
    assert sent == {"/solved": None, "/a": "cf_clearance=proof", "/b": "cf_clearance=proof", "/c": None, "/d": None}
    assert elsewhere == [None]


def test_a_clearance_is_bound_to_its_exit(tmp_path):
    """What one exit has solved is not shown by another."""
    from tests.proxies import LocalProxy

    with Site() as site, LocalProxy() as one:
        memory = Memory(tmp_path / "memory.json")
        memory.record_clearance(
            site.url("/"), [Cookie("cf_clearance", "proof")], user_agent="visitor", exit_id="elsewhere"
        )
        memory.flush()
        crawl(site.url("/a"), settings=remembering(tmp_path, USER_AGENT="visitor"), meta={"proxy": one.url})
        crawl(site.url("/b"), settings=remembering(tmp_path, USER_AGENT="visitor"))
        assert [arrival.headers.get("Cookie") for arrival in site.log] == [None, None]


def test_a_new_challenge_ends_a_clearance(tmp_path):
    """A site that challenges in spite of the clearance gets it no more."""

    async def handler(request):
        return web.Response(status=403, headers={"Cf-Mitigated": "challenge"})

    with Site(handler) as site:
        memory = Memory(tmp_path / "memory.json")
        memory.record_clearance(site.url("/"), [Cookie("cf_clearance", "proof")], user_agent="visitor")
        memory.flush()
        settings = remembering(tmp_path, USER_AGENT="visitor")
        crawl(site.url("/a"), settings=settings)
        crawl(site.url("/b"), settings=settings)
        assert [arrival.headers.get("Cookie") for arrival in site.log] == ["cf_clearance=proof", None]


def test_nothing_is_remembered_of_other_schemes(tmp_path):
    """I127: data: URLs leave no entry."""
    crawl("data:,x", settings=remembering(tmp_path))
    assert not (tmp_path / "memory.json").exists()
