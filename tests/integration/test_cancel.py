"""Cancelling one retrieval among others with ``meta["pacing_signal"]``."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tests.support.asking import given
from tests.support.crawl import in_all_modes, running
from tests.support.site import Site

SPIDER = "tests.support.asking.CancelSpider"
CANCELLED = ["RequestCancelledError", "StopDownload", "IgnoreRequest"]


def cancelling(site, *requests, settings, mode="asyncio", after=0.5, timeout=30, **arguments):
    job = {"requests": given(*requests), "after": after, **arguments}
    with running([{"spider": SPIDER, "arguments": job}], settings, mode=mode) as under_way:
        result = under_way.wait(timeout)
    return {item["asked"].partition(site.url(""))[2]: item for item in result.items}, result


def slow_pace(**settings):
    return {"PACING_INTERVAL": 30, "PACING_FLOOR": 29, "PACING_SHAPE": 100, "PACING_PAUSE_PROBABILITY": 0, **settings}


@in_all_modes
def test_a_cancelled_request_waits_no_longer_in_the_queue(mode):
    """Of two jobs that wait for one site, one is cancelled: its requests fail at once, and nothing of it is sent."""
    with Site() as site:
        requests = [{"url": site.url("/first")}] + [{"url": site.url(f"/{n}"), "job": "job"} for n in range(5)]
        items, result = cancelling(site, *requests, settings=slow_pace(), mode=mode)
        assert [arrival.path for arrival in site.log] == ["/first"]
    assert result.seconds < 20
    assert items["/first"]["status"] == 200
    for number in range(5):
        item = items[f"/{number}"]
        assert item["kinds"][:3] == CANCELLED
        assert item["at"] - result.stats["cancelled_at"] < 1
    assert result.stats["pacing/cancelled"] == 5
    assert result.stats["reason"] == "finished"
    assert "Traceback" not in result.log


@in_all_modes
def test_a_cancelled_request_waits_no_longer_at_the_gate(mode):
    """The same where requests wait in the middleware, since the queue is Scrapy's own."""
    with Site() as site:
        requests = [{"url": site.url("/first")}] + [{"url": site.url(f"/{n}"), "job": "job"} for n in range(3)]
        queue = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"}
        items, result = cancelling(site, *requests, settings=slow_pace(**queue), mode=mode)
        assert len(site.log) == 1
    assert result.seconds < 20
    cancelled = [item for item in items.values() if "kinds" in item]
    assert len(cancelled) == 3
    assert all(item["kinds"][:3] == CANCELLED for item in cancelled)
    assert all(item["at"] - result.stats["cancelled_at"] < 1 for item in cancelled)
    assert "Traceback" not in result.log


@in_all_modes
def test_others_keep_their_turns(mode):
    """Who waits behind a cancelled request goes on waiting for no more than its own turn, and no less."""
    with Site() as site:
        requests = [
            {"url": site.url("/first")},
            {"url": site.url("/mine"), "job": "job"},
            {"url": site.url("/yours"), "job": "other"},
            {"url": site.url("/free")},
        ]
        settings = slow_pace(PACING_INTERVAL=1.5, PACING_FLOOR=1.4)
        items, _ = cancelling(site, *requests, settings=settings, mode=mode)
        assert {arrival.path for arrival in site.log} == {"/first", "/yours", "/free"}
        gaps = site.gaps()
    assert min(gaps) > 1.35
    assert max(gaps) < 2.6
    assert items["/mine"]["kinds"][:3] == CANCELLED
    assert items["/yours"]["status"] == items["/free"]["status"] == 200


@in_all_modes
def test_a_download_is_stopped_between_two_chunks(mode):
    """A body that is under way when its signal is set is not read to the end; another one is."""

    async def dripping(request):
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            for _ in range(40):
                await response.write(b"x" * 1000)
                await asyncio.sleep(0.1)
        except (ConnectionError, asyncio.CancelledError):
            pass
        return response

    with Site(dripping) as site:
        items, result = cancelling(
            site,
            {"url": site.url("/mine"), "job": "job"},
            {"url": site.url("/yours"), "job": "other"},
            settings={"PACING_INTERVAL": 0},
            mode=mode,
            after=1,
        )
        assert len(site.log) == 2
    assert items["/mine"]["kinds"][:3] == CANCELLED
    assert items["/mine"]["at"] - result.stats["cancelled_at"] < 1
    assert items["/yours"]["size"] == 40_000
    assert "Traceback" not in result.log


def test_a_request_that_is_cancelled_already_never_leaves():
    """Where the signal is set before the turn comes, nothing is sent and no gap is drawn."""
    with Site() as site:
        items, result = cancelling(
            site,
            *[{"url": site.url(f"/{n}")} for n in range(3)],
            {"url": site.url("/late"), "job": "job", "priority": -1},
            settings={"PACING_INTERVAL": 1, "PACING_FLOOR": 0.9, "PACING_PAUSE_PROBABILITY": 0},
            after=0.2,
        )
        assert "/late" not in {arrival.path for arrival in site.log}
    assert items["/late"]["error"] == "RequestCancelledError"
    assert result.stats["pacing/requests"] == 3


def test_what_is_no_signal_is_said_where_it_is_used():
    """A pacing_signal without is_set() fails the request with what is allowed."""
    with Site() as site:
        items, _ = cancelling(
            site, {"url": site.url("/a"), "meta": {"pacing_signal": 5}}, settings={"PACING_INTERVAL": 0}
        )
        assert site.log == []
    assert items["/a"]["error"] == "ValueError"
