"""Closing is prompt: nothing waits, nothing more is sent, nothing is lost."""

from __future__ import annotations

import time

import pytest
from aiohttp import web

from tests.support.crawl import in_all_modes, requests, running
from tests.support.site import Site, ok

# How much earlier an arrival may look than its departure was: connections take unequal times on a busy machine.
SLACK = 0.1
EVEN = {"PACING_PAUSE_PROBABILITY": 0}
LIST = "tests.support.spiders.ListSpider"
NOISE = ("Task was destroyed", "Unhandled error in Deferred", "Traceback", "never awaited")


def hold_everything(request_count):
    """A site that answers some requests, and then asks everybody to come back in ten minutes."""
    left = [request_count]

    async def handler(request):
        if left[0] > 0:
            left[0] -= 1
            return await ok(request)
        return web.Response(status=429, headers={"Retry-After": "600"})

    return handler


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def spider(*urls, kind=LIST, **arguments):
    return {"spider": kind, "arguments": {"requests": requests(*urls), **arguments}}


QUEUES = {
    "paced queue": {},
    "Scrapy's queue": {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"},
}


@in_all_modes
@pytest.mark.parametrize("queue", QUEUES)
def test_an_interrupt_during_a_long_hold_ends_at_once(mode, queue):
    """I047: one Ctrl-C during a hold of 600 s ends the crawl within 2 s, and no further request is sent."""
    with Site(hold_everything(0)) as site:
        job = spider(*[site.url(f"/{n}") for n in range(20)])
        with running([job], {"PACING_INTERVAL": 0.1, **QUEUES[queue], **EVEN}, mode=mode) as crawl:
            wait_for(lambda: "nothing leaves for 600 s" in crawl.log())
            time.sleep(0.3)
            sent = len(site.log)
            interrupted = time.monotonic()
            crawl.interrupt()
            result = crawl.wait(20)
            seconds = time.monotonic() - interrupted
        assert len(site.log) == sent
    assert seconds < 2
    assert result.stats["reason"] == "shutdown"
    assert [item for item in result.items if "error" in item] == []
    assert not [noise for noise in NOISE if noise in result.log]


@in_all_modes
@pytest.mark.parametrize(
    "setting", [{"CLOSESPIDER_TIMEOUT": 2}, {"CLOSESPIDER_ITEMCOUNT": 2}, {"CLOSESPIDER_PAGECOUNT": 2}], ids=str
)
def test_closespider_settings_end_the_waits(mode, setting):
    """CLOSESPIDER_* end a crawl with 50 waiting requests without waiting for one of them (I050)."""
    with Site() as site:
        job = spider(*[site.url(f"/{n}") for n in range(50)])
        settings = {"PACING_INTERVAL": 1.5, "PACING_FLOOR": 0.5, **setting, **EVEN}
        with running([job], settings, mode=mode) as crawl:
            result = crawl.wait(30)
        sent = len(site.log)
    assert sent < 8
    assert result.seconds < 12
    assert result.stats["reason"].startswith("closespider_")
    assert not [noise for noise in NOISE if noise in result.log]
    # From the decision to the end: the log's own times, in whole seconds.
    times = [line[11:19] for line in result.log.splitlines() if "Closing spider" in line or "Spider closed" in line]
    seconds = [int(stamp[:2]) * 3600 + int(stamp[3:5]) * 60 + int(stamp[6:]) for stamp in times]
    assert seconds[1] - seconds[0] <= 1


@in_all_modes
@pytest.mark.parametrize("kind", ["CloseSpiderSpider", "StopEngineSpider"])
def test_a_spider_that_closes_itself_ends_at_once(mode, kind):
    """CloseSpider raised in a callback, and engine.stop, end the waits of the queue and of the gate."""
    with Site() as site:
        job = spider(*[site.url(f"/{n}") for n in range(30)], kind=f"tests.support.spiders.{kind}")
        settings = {"PACING_INTERVAL": 20, "PACING_FLOOR": 15, "PACING_ORIGINS": {}, **EVEN}
        with running([job], settings, mode=mode) as crawl:
            result = crawl.wait(30)
        sent = len(site.log)
    assert sent == 1
    assert result.seconds < 8
    assert not [noise for noise in NOISE if noise in result.log]


def test_an_error_in_another_component_ends_the_waits():
    """A component that fails and closes the spider leaves nothing waiting."""
    with Site() as site:
        job = spider(*[site.url(f"/{n}") for n in range(10)])
        settings = {
            "PACING_INTERVAL": 20,
            "PACING_FLOOR": 15,
            "CLOSESPIDER_ERRORCOUNT": 1,
            **EVEN,
        }
        job["spider"] = "tests.support.spiders.RaisingSpider"
        with running([job], settings) as crawl:
            result = crawl.wait(30)
    assert result.seconds < 8
    assert result.stats["reason"] == "closespider_errorcount"
    assert len(site.log) == 1


def test_inline_downloads_that_wait_end_too():
    """A request that a callback downloads inline never goes to the scheduler: at the close it fails, and at once."""
    with Site() as site:
        job = spider(site.url("/a"), kind="tests.support.spiders.InlineSpider")
        settings = {"PACING_INTERVAL": 30, "PACING_FLOOR": 25, "CLOSESPIDER_TIMEOUT": 2, **EVEN}
        with running([job], settings) as crawl:
            result = crawl.wait(20)
    assert result.seconds < 10
    assert len(site.log) == 1
    assert [item["error"] for item in result.items] == ["IgnoreRequest"]


@in_all_modes
@pytest.mark.parametrize("queue", QUEUES)
def test_a_job_that_stops_during_a_hold_is_resumed_without_loss_or_repetition(mode, queue, tmp_path):
    """With JOBDIR a crawl stopped while its site holds goes on later: each page is got once."""
    pages = 12
    refused = set()

    async def handler(request):
        if request.path == "/6" and not refused:
            refused.add(request.path)
            return web.Response(status=429, headers={"Retry-After": "600"})
        return await ok(request)

    with Site(handler) as site:
        job = spider(*[site.url(f"/{n}") for n in range(pages)])
        settings = {"PACING_INTERVAL": 0.1, "JOBDIR": str(tmp_path / "job"), **QUEUES[queue], **EVEN}
        with running([job], settings, mode=mode) as crawl:
            wait_for(lambda: "nothing leaves for 600 s" in crawl.log())
            time.sleep(0.2)
            crawl.interrupt()
            first = crawl.wait(20)
        with running([job], {**settings, "PACING_MAX_HOLD": 1}, mode=mode) as crawl:
            second = crawl.wait(40)
        got = [arrival.path for arrival in site.log]
    assert first.stats["reason"] == "shutdown"
    assert second.stats["reason"] == "finished"
    assert sorted(got) == sorted([f"/{n}" for n in range(pages)] + ["/6"])
    assert len(first.ok()) + len(second.ok()) == pages


def test_a_job_of_scrapys_own_queue_is_resumed_by_the_paced_one(tmp_path):
    """A job directory that Scrapy's queue has written is taken over, request by request."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        urls = [site.url(f"/{n}", host) for n in range(5) for host in site.hosts]
        settings = {"JOBDIR": str(tmp_path / "job"), "LOG_LEVEL": "INFO"}
        with running(
            [spider(*urls)], {**settings, "CLOSESPIDER_PAGECOUNT": 1, "DOWNLOAD_DELAY": 1}, addon=False
        ) as crawl:
            crawl.wait(30)
        before = len(site.log)
        with running([spider(*urls)], {**settings, "PACING_INTERVAL": 0.1, **EVEN}) as crawl:
            result = crawl.wait(40)
        paths = sorted((arrival.host, arrival.path) for arrival in site.log)
    assert 1 <= before < 10
    assert len(paths) == len(set(paths)) == 10
    assert result.stats["reason"] == "finished"


@in_all_modes
def test_the_first_spider_to_close_disturbs_nobody(mode):
    """I051: a spider that closes while another one crawls the same site takes no request, no gap and no lesson."""
    with Site() as site:
        quick = spider(
            *[site.url(f"/quick/{n}") for n in range(30)], kind="tests.support.spiders.ClosingSpider", after=1
        )
        steady = spider(*[site.url(f"/steady/{n}") for n in range(12)])
        settings = {"PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.25, **EVEN}
        with running([quick, steady], settings, mode=mode) as crawl:
            result = crawl.wait(40)
    assert len([item for item in result.ok() if item["spider"] == "list"]) == 12
    assert min(site.gaps()) > 0.25 - SLACK
    assert not [noise for noise in NOISE if noise in result.log]


def test_spiders_one_after_another_keep_the_gap_between_them():
    """I052: the next spider of a process starts when the last one's gap has passed."""
    with Site() as site:
        settings = {"PACING_INTERVAL": 2, "PACING_FLOOR": 1.9, **EVEN}
        jobs = [spider(site.url(f"/{n}")) for n in range(2)]
        with running(jobs, {**settings, "TEST_SEQUENTIAL": True}) as crawl:
            result = crawl.wait(40)
    assert len(result.ok()) == 2
    assert site.gaps()[0] > 1.9 - SLACK
