"""What a site says of its limits before it refuses, and what its troubles say."""

from __future__ import annotations

import asyncio
import itertools
import json
import re

import pytest
from aiohttp import web

from tests.support.crawl import crawl, in_all_modes
from tests.support.site import Site, ok

SLACK = 0.1
EVEN = {"PACING_PAUSE_PROBABILITY": 0}
ROBOTS = {"ROBOTSTXT_OBEY": True, "PACING_INTERVAL": 0.05, **EVEN}


def with_headers(**headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def handler(request):
        return web.Response(text="<html></html>", content_type="text/html", headers=named)

    return handler


def with_robots(text):
    async def handler(request):
        if request.path == "/robots.txt":
            return web.Response(text=f"User-agent: other\nCrawl-delay: 50\n\nUser-agent: *\n{text}\n")
        return await ok(request)

    return handler


@in_all_modes
@pytest.mark.parametrize("line", ["Crawl-delay: 0.8", "Request-rate: 5/4"])
def test_the_delay_of_a_robots_txt_is_a_least_gap(mode, line):
    """I100: Crawl-delay and Request-rate of the group that is meant hold between all requests, also the first."""
    with Site(with_robots(line)) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(3)], settings=ROBOTS, mode=mode)
    assert len(result.ok()) == 3
    assert min(site.gaps()) > 0.8 - SLACK
    assert result.stats["pacing/crawl_delays"] == 1


@pytest.mark.parametrize(
    "line", ["Crawl-delay: 10s", "Crawl-delay: \u00b2", "Crawl-delay: -5", "Request-rate: 9/0", "Crawl-delay: 0"]
)
def test_an_odd_delay_counts_as_none(line):
    """I100: what can't be read, and nothing, change no gap and raise nothing."""
    with Site(with_robots(line)) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(3)], settings=ROBOTS)
    assert len(result.ok()) == 3
    assert sum(site.gaps()) < 3
    assert "Traceback" not in result.log


def test_a_long_crawl_delay_is_capped():
    """I100: a delay of a day is kept to PACING_MAX_HOLD."""
    with Site(with_robots("Crawl-delay: 86400")) as site:
        result = crawl(site.url("/a"), settings={**ROBOTS, "PACING_MAX_HOLD": 1})
    assert len(result.ok()) == 1
    assert 1 - SLACK < site.gaps()[0] < 4


def test_crawl_delay_can_be_left_out():
    """PACING_OBEY_CRAWL_DELAY = False leaves the gaps to the policy."""
    with Site(with_robots("Crawl-delay: 30")) as site:
        result = crawl(site.url("/a"), settings={**ROBOTS, "PACING_OBEY_CRAWL_DELAY": False})
    assert len(result.ok()) == 1
    assert site.gaps()[0] < 5


def test_an_unreachable_robots_txt_is_no_endless_retry():
    """I101, I103: a robots.txt that always fails ends with the crawl, and its failures count as trouble."""

    async def handler(request):
        if request.path == "/robots.txt":
            return web.Response(status=500)
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/a"), settings={**ROBOTS, "CLOSESPIDER_TIMEOUT": 20, "PACING_MAX_INTERVAL": 0.2})
    assert result.seconds < 15
    assert len(site.arrivals("/robots.txt")) <= 3


@in_all_modes
def test_a_stated_quota_paces_before_anything_is_refused(mode):
    """I025: five requests left for four seconds are a mean gap of 0.8 s, without one refusal."""
    with Site(with_headers(RateLimit='"default";r=5;t=4')) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(12)], settings={"PACING_INTERVAL": 0.05, **EVEN}, mode=mode, timeout=90
        )
        gaps = site.gaps()
    assert len(result.ok()) == 12
    assert sum(gaps) / len(gaps) > 0.35
    assert result.stats["pacing/quotas"] == 12


def test_an_exhausted_quota_is_a_hold_until_the_reset():
    """Nothing left for two seconds: nothing leaves for two seconds."""
    with Site(with_headers(X_RateLimit_Limit="10", X_RateLimit_Remaining="0", X_RateLimit_Reset="2")) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(2)], settings={"PACING_INTERVAL": 0.05, **EVEN})
    assert len(result.ok()) == 2
    assert site.gaps()[0] > 2 - SLACK


@pytest.mark.parametrize(
    "headers",
    [
        {"RateLimit": '"broken;r=0;t=60'},
        {"RateLimit": "limit=9, remaining=x, reset=50"},
        {"X_RateLimit_Remaining": "0"},
        {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "-1"},
        {"RateLimit": '"default";r=0;t=600', "Age": "30"},
    ],
    ids=str,
)
def test_a_malformed_or_stale_quota_is_ignored(headers):
    """I025: what can't be read, or comes out of a cache on the way, changes nothing."""
    with Site(with_headers(**headers)) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(3)], settings={"PACING_INTERVAL": 0.05, **EVEN})
    assert len(result.ok()) == 3
    assert result.seconds < 20
    assert "Traceback" not in result.log


def test_quotas_can_be_left_out():
    """PACING_RATELIMIT_HEADERS = False reads none of these fields."""
    with Site(with_headers(RateLimit='"default";r=0;t=600')) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(3)],
            settings={"PACING_INTERVAL": 0.05, "PACING_RATELIMIT_HEADERS": False, **EVEN},
        )
    assert len(result.ok()) == 3
    assert "pacing/quotas" not in result.stats


def test_a_site_in_trouble_is_asked_less_often():
    """I016: after three failures in a row the gaps widen, though the site names no number."""

    async def handler(request):
        return web.Response(status=502)

    with Site(handler) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(5)],
            settings={"PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.27, "RETRY_ENABLED": False, **EVEN},
        )
        gaps = site.gaps()
    assert result.stats["pacing/troubled"] >= 2
    # The gap is doubled by the third failure, and again by the fourth.
    assert gaps[-1] > 2 * 0.27 - SLACK
    assert "(status 502)" in result.log


def test_refused_connections_are_trouble_too():
    """A port where nobody listens is asked less often after three refused connections in a row."""
    result = crawl(
        *[f"http://127.0.0.9:9/{n}" for n in range(8)],
        settings={"PACING_INTERVAL": 0.1, "PACING_FLOOR": 0.09, "RETRY_ENABLED": False, **EVEN},
    )
    assert len(result.items) == 8
    assert result.stats["pacing/troubled"] >= 1
    assert re.search(r"0\.1 -> 0\.2 s \(\w*ConnectionRefused\w*\)", result.log)


def test_a_slow_site_is_not_asked_faster_than_it_answers():
    """A site that takes 0.6 s to answer gets gaps of that mean, though the interval is shorter."""

    async def slow(request):
        await asyncio.sleep(0.6)
        return await ok(request)

    with Site(slow) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(14)], settings={"PACING_INTERVAL": 0.1, **EVEN}, timeout=90)
        gaps = site.gaps()
    assert len(result.ok()) == 14
    # The first gaps are drawn before anything was answered.
    late = gaps[8:]
    assert sum(late) / len(late) > 0.3


@pytest.mark.parametrize("status", [200, 403])
def test_a_spent_quota_beside_retry_after_is_heeded(status):
    """Where nobody else reads Retry-After, a quota of 0 holds until the later of the two."""
    first = []

    async def handler(request):
        headers = {}
        if not first:
            first.append(request.path)
            headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1", "Retry-After": "2"}
            return web.Response(status=status, headers=headers, text="<html></html>", content_type="text/html")
        return await ok(request)

    with Site(handler) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(3)], settings={"PACING_INTERVAL": 1.5, "PACING_FLOOR": 1.2, **EVEN}
        )
    assert len(result.ok()) == 3
    assert site.gaps()[0] > 2 - SLACK


def test_the_delay_of_a_robots_txt_holds_whichever_request_asked_for_it():
    """A first request with dont_pace brings the robots.txt; the others keep its delay all the same."""
    with Site(with_robots("Crawl-delay: 0.8")) as site:
        given = [{"url": site.url("/first"), "meta": {"dont_pace": True}}]
        given += [{"url": site.url(f"/{n}")} for n in range(3)]
        result = crawl(given=json.dumps(given), settings=ROBOTS)
        paced = [arrival.at for arrival in site.log if arrival.path not in {"/robots.txt", "/first"}]
    assert len(result.ok()) == 4
    assert min(later - earlier for earlier, later in itertools.pairwise(paced)) > 0.8 - SLACK


def test_the_delay_of_a_robots_txt_holds_for_both_schemes():
    """Scrapy reads a robots.txt once for a host and port: what it asked for counts for https too."""
    from scrapy import Request, signals
    from scrapy.robotstxt import ProtegoRobotParser

    from scrapy_pacing import Pacer, PacingPolicy, origin_key
    from scrapy_pacing.robots import RobotsGaps
    from scrapy_pacing.testing import FakeClock
    from tests.support.queues import Crawler

    if not hasattr(signals, "robots_parsed"):
        pytest.skip("Scrapy before 2.19 sends no such signal; the crawls above cover it")
    crawler = Crawler({"USER_AGENT": "x"})
    pacer = Pacer(PacingPolicy(interval=0), clock=FakeClock())
    gaps = RobotsGaps(crawler, pacer, lambda request: origin_key(request.url), count=lambda *_: None)
    parser = ProtegoRobotParser(b"User-agent: *\nCrawl-delay: 5\n", None)
    crawler.signals.send_catch_log(signals.robots_parsed, robotparser=parser, request=Request("http://a.example/"))
    secure = Request("https://a.example/1")
    gaps.heed(secure, "https://a.example")
    pacer.depart("https://a.example")
    assert pacer.next_delay("https://a.example") == 5
