"""Several spiders in one process: one visitor to each site, one memory for each directory."""

from __future__ import annotations

import json

from aiohttp import web

from scrapy_pacing import Memory, PacingPolicy, SharedState
from tests.support.crawl import in_all_modes, requests, running
from tests.support.site import Site, ok

EVEN = {"PACING_PAUSE_PROBABILITY": 0}
SLACK = 0.1
LIST = "tests.support.spiders.ListSpider"
CLOSING = "tests.support.spiders.ClosingSpider"


def spider(*urls, kind=LIST, settings=None, **arguments):
    job = {"spider": kind, "arguments": {"requests": requests(*urls), **arguments}}
    return job if settings is None else {**job, "settings": settings}


def remembering(directory, **settings):
    return {"PACING_REMEMBER": True, "PACING_DATA_DIR": str(directory), **EVEN, **settings}


def remembered(directory):
    return json.loads((directory / "memory.json").read_text())["origins"]


@in_all_modes
def test_two_spiders_on_one_site_keep_the_gaps_of_one(mode, tmp_path):
    """The site sees one law of gaps, and what one spider is refused slows the other."""
    refused = []

    async def handler(request):
        if request.path == "/a/2" and not refused:
            refused.append(request.path)
            return web.Response(status=429, headers={"Retry-After": "2"})
        return await ok(request)

    with Site(handler) as site:
        spiders = [spider(*[site.url(f"/{name}/{n}") for n in range(4)]) for name in "ab"]
        settings = remembering(tmp_path, PACING_INTERVAL=0.3, PACING_FLOOR=0.25)
        # The plain rule: few pages are evidence enough to come back from two seconds at once.
        settings["PACING_EVIDENCE_AFTER"] = 1_000_000
        with running(spiders, settings, mode=mode) as under_way:
            result = under_way.wait()
        gaps = site.gaps()
        after = site.log.index(next(arrival for arrival in site.log if arrival.path == "/a/2")) + 1
    assert len(result.ok()) == 8
    assert min(gaps) > 0.25 - SLACK
    assert site.log[after].at - site.log[after - 1].at > 2 - SLACK
    assert remembered(tmp_path)[site.url("")]["pace"]["interval"] >= 1.5


@in_all_modes
def test_the_first_to_close_leaves_the_others_everything(mode, tmp_path):
    """I051: one spider closes in the middle; the other keeps its waits, the pace and the memory, and the file has both."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        one = spider(*[site.url(f"/one/{n}") for n in range(20)], kind=CLOSING, after=0.7)
        other = spider(
            *[site.url(f"/other/{n}") for n in range(8)], *[site.url(f"/{n}", "127.0.0.2") for n in range(3)]
        )
        settings = remembering(tmp_path, PACING_INTERVAL=0.4, PACING_FLOOR=0.35)
        with running([one, other], settings, mode=mode) as under_way:
            result = under_way.wait()
        paths = [arrival.path for arrival in site.arrivals(host="127.0.0.1")]
        gaps = site.gaps("127.0.0.1")
    first, last = result.all_stats
    assert first["spider"] == "closing"
    assert last["spider"] == "list"
    assert len([item for item in result.ok() if item["spider"] == "list"]) == 11
    assert len([path for path in paths if path.startswith("/one/")]) < 10
    assert min(gaps) > 0.35 - SLACK
    known = remembered(tmp_path)
    assert set(known) == {site.url(""), site.url("", "127.0.0.2")}
    assert "Unhandled" not in result.log
    assert "Task was destroyed" not in result.log


def test_spiders_one_after_another_share_what_was_learned(tmp_path):
    """I052: a process that runs three crawls in a row starts each where the last one ended, without reading a file."""
    refused = []

    async def handler(request):
        if not refused:
            refused.append(request.path)
            return web.Response(status=429)
        return await ok(request)

    with Site(handler) as site:
        spiders = [spider(*[site.url(f"/{name}/{n}") for n in range(3)]) for name in "abc"]
        settings = remembering(tmp_path, PACING_INTERVAL=0, PACING_FIRST_INTERVAL=0.5, TEST_SEQUENTIAL=True)
        with running(spiders, settings) as under_way:
            result = under_way.wait()
        # The first three left before there was anything to learn.
        gaps = site.gaps()[2:]
    assert len(result.ok()) == 9
    assert sum(gaps) > len(gaps) * 0.25
    assert [stats["pacing/memory/recalled"] for stats in result.all_stats] == [0, 1, 1]


@in_all_modes
def test_two_directories_are_two_visitors(mode, tmp_path):
    """I052: spiders that remember in different places share nothing, not even the pace."""
    with Site() as site:
        spiders = [
            spider(site.url(f"/{name}"), settings={"PACING_DATA_DIR": str(tmp_path / name)}) for name in ("a", "b")
        ]
        with running(spiders, remembering(tmp_path, PACING_INTERVAL=10), mode=mode) as under_way:
            result = under_way.wait()
        assert site.gaps()[0] < 5
    assert len(result.ok()) == 2
    for name in ("a", "b"):
        assert list(remembered(tmp_path / name)) == [site.url("")]
    assert not (tmp_path / "memory.json").exists()


def state_for(crawler):
    """A project's PACING_STATE: a state for each spider, over one memory."""
    memory = Memory.open(f"{crawler.settings['PACING_DATA_DIR']}/memory.json")
    return SharedState.create(PacingPolicy(interval=0.01), memory=memory)


def test_a_project_can_bring_its_own_states(tmp_path):
    """PACING_STATE: each spider has a clock of its own, and one file has what both have learned."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        spiders = [spider(site.url("/a"), site.url("/b")), spider(site.url("/c", "127.0.0.2"))]
        settings = remembering(
            tmp_path, PACING_INTERVAL=0.5, PACING_STATE="tests.integration.test_shared_state.state_for"
        )
        with running(spiders, settings) as under_way:
            result = under_way.wait()
    assert len(result.ok()) == 3
    assert set(remembered(tmp_path)) == {site.url(""), site.url("", "127.0.0.2")}


def test_a_state_that_is_none_stops_the_crawl(tmp_path):
    """A PACING_STATE that returns something else is said with what is allowed, and nothing is sent."""
    with Site() as site:
        settings = remembering(tmp_path, PACING_STATE="tests.integration.test_shared_state.remembered")
        with running([spider(site.url("/a"))], {**settings, "PACING_STATE": "builtins.str"}) as under_way:
            result = under_way.wait()
        assert site.log == []
    assert "PACING_STATE returned" in result.log
    assert "allowed: a SharedState" in result.log
