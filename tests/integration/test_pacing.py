"""A paced crawl, measured at the site."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.support.crawl import crawl, in_all_modes, requests
from tests.support.site import Site, ok

# How much earlier an arrival may look than its departure was: connections take unequal times on a busy machine.
SLACK = 0.1


async def slow(request):
    await asyncio.sleep(0.5)
    return await ok(request)


@in_all_modes
def test_gaps_are_irregular_and_never_below_the_floor(mode):
    """The site sees gaps that differ, none below the policy's floor, with a mean near the interval."""
    with Site() as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(18)],
            settings={"PACING_INTERVAL": 0.5, "PACING_FLOOR": 0.25, "PACING_PAUSE_PROBABILITY": 0},
            mode=mode,
        )
    gaps = site.gaps()
    assert len(result.ok()) == 18
    assert min(gaps) > 0.25 - SLACK
    assert max(gaps) > 1.5 * min(gaps)
    assert 0.33 < sum(gaps) / len(gaps) < 0.85


@in_all_modes
def test_gaps_hold_on_the_wire_with_one_slot_and_slow_answers(mode):
    """With one request at a time and slow answers, a gap is still counted between departures, never shortened."""
    with Site(slow) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(6)],
            settings={
                "PACING_INTERVAL": 0.2,
                "PACING_FLOOR": 0.19,
                "PACING_PAUSE_PROBABILITY": 0,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
            },
            mode=mode,
        )
    assert len(result.ok()) == 6
    # One at a time: the next leaves when the answer is there, half a second later.
    assert min(site.gaps()) > 0.5 - SLACK


def test_origins_do_not_wait_for_each_other():
    """Three addresses are three origins: each has its own gaps, and they overlap in time."""
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    with Site(hosts=hosts) as site:
        urls = [site.url(f"/{n}", host) for n in range(6) for host in hosts]
        result = crawl(*urls, settings={"PACING_INTERVAL": 0.4, "PACING_PAUSE_PROBABILITY": 0}, timeout=40)
    assert len(result.ok()) == 18
    first = {host: site.arrivals(host=host)[0].at for host in hosts}
    assert max(first.values()) - min(first.values()) < 0.4


def test_zero_interval_adds_no_gap():
    """PACING_INTERVAL = 0 lets a site without a limit be crawled as fast as Scrapy goes."""
    with Site() as site:
        result = crawl(*[site.url(f"/{n}") for n in range(60)], settings={"PACING_INTERVAL": 0})
        times = [arrival.at for arrival in site.log]
    assert len(result.ok()) == 60
    assert times[-1] - times[0] < 5
    assert "pacing/seconds_waited" not in result.stats or result.stats["pacing/seconds_waited"] < 5


def test_dont_pace_passes_at_once():
    """meta dont_pace lets a request pass without a gap, and without a lesson."""
    with Site() as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(8)], settings={"PACING_INTERVAL": 30}, meta={"dont_pace": True}
        )
        times = [arrival.at for arrival in site.log]
    assert len(result.ok()) == 8
    assert times[-1] - times[0] < 3
    assert "pacing/requests" not in result.stats


def test_robots_txt_is_paced_like_any_request():
    """The request for robots.txt has its gap too, although it never goes through the scheduler."""
    with Site() as site:
        crawl(
            site.url("/a"),
            settings={"PACING_INTERVAL": 1, "PACING_FLOOR": 0.9, "PACING_PAUSE_PROBABILITY": 0, "ROBOTSTXT_OBEY": True},
        )
    assert [arrival.path for arrival in site.log] == ["/robots.txt", "/a"]
    assert site.gaps()[0] > 0.9 - SLACK


def test_a_redirect_to_another_host_is_paced_as_that_host():
    """I030: the hop to another host waits for that host's gap, whatever slot Scrapy has copied along."""

    async def handler(request):
        if request.path == "/away":
            raise web.HTTPFound(f"http://127.0.0.2:{request.url.port}/landed")
        return await ok(request)

    with Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site:
        result = crawl(
            site.url("/first", "127.0.0.2"),
            site.url("/away"),
            settings={"PACING_INTERVAL": 1.5, "PACING_FLOOR": 1.4, "PACING_PAUSE_PROBABILITY": 0},
        )
    assert len(result.ok()) == 2
    assert site.gaps(host="127.0.0.2")[0] > 1.4 - SLACK


@pytest.mark.parametrize("addon", [True, False], ids=["addon", "by hand"])
def test_scrapys_own_delay_becomes_the_interval_and_is_not_counted_twice(addon):
    """DOWNLOAD_DELAY is taken over as the interval; with the middleware added by hand too, with one warning."""
    by_hand = {"DOWNLOADER_MIDDLEWARES": {"scrapy_pacing.PacingMiddleware": 950}}
    settings = {"DOWNLOAD_DELAY": 0.3, "PACING_PAUSE_PROBABILITY": 0, **({} if addon else by_hand)}
    with Site() as site:
        result = crawl(*[site.url(f"/{n}") for n in range(20)], settings=settings, addon=addon)
    gaps = site.gaps()
    assert len(result.ok()) == 20
    # Scrapy's own delay is never below half of it; the gamma law is, about every eighth time.
    assert min(gaps) < 0.15
    assert sum(gaps) / len(gaps) < 0.5
    assert result.log.count("DOWNLOAD_DELAY set beside scrapy-pacing") == (0 if addon else 1)


def test_autothrottle_is_switched_off_with_a_line():
    """With the add-on AutoThrottle is off, and the log says so."""
    with Site() as site:
        result = crawl(site.url(), settings={"AUTOTHROTTLE_ENABLED": True, "PACING_INTERVAL": 0})
    assert "AutoThrottle is switched off" in result.log
    assert "scrapy.extensions.throttle.AutoThrottle" not in result.log


def test_autothrottle_left_on_by_hand_does_not_change_the_gaps():
    """With the middleware added by hand AutoThrottle stays on, but delays nothing: its start delay would be 5 s."""
    with Site() as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(5)],
            settings={
                "AUTOTHROTTLE_ENABLED": True,
                "PACING_INTERVAL": 0.1,
                "DOWNLOADER_MIDDLEWARES": {"scrapy_pacing.PacingMiddleware": 950},
            },
            addon=False,
        )
    assert len(result.ok()) == 5
    assert max(site.gaps()) < 2.5
    assert result.log.count("AUTOTHROTTLE_ENABLED set beside scrapy-pacing") == 1


def test_an_origin_of_its_own_has_its_own_interval():
    """PACING_ORIGINS slows one site and leaves the others."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site:
        urls = [site.url(f"/{n}", host) for n in range(3) for host in site.hosts]
        crawl(
            *urls,
            settings={
                "PACING_INTERVAL": 0.1,
                "PACING_ORIGINS": {"127.0.0.2": {"interval": 1, "floor": 0.9, "pause_probability": 0}},
            },
        )
    assert min(site.gaps("127.0.0.2")) > 0.9 - SLACK
    assert sum(site.gaps("127.0.0.1")) < 2 * sum(site.gaps("127.0.0.2"))


def test_a_bad_setting_stops_the_crawl_at_the_start():
    """A bad value is said with its setting, and no request is sent."""
    with Site() as site:
        result = crawl(site.url(), settings={"PACING_SHAPE": "very"})
    assert "PACING_SHAPE is 'very'; allowed: a number" in result.log
    assert site.log == []


def test_an_unknown_setting_is_reported_with_the_nearest_name():
    """A misspelt setting is said once, with the name that was probably meant."""
    with Site() as site:
        result = crawl(site.url(), settings={"PACING_INTERVALL": 3, "PACING_INTERVAL": 0})
    assert result.log.count("PACING_INTERVALL is not a setting of scrapy-pacing") == 1
    assert "did you mean PACING_INTERVAL?" in result.log


def test_other_schemes_pass_untouched():
    """I127: data: and file: URLs are neither paced nor counted."""
    result = crawl("data:,x", "data:,y", settings={"PACING_INTERVAL": 30})
    assert len(result.items) == 2
    assert "pacing/requests" not in result.stats
    assert result.seconds < 15


def test_hosts_are_grouped_by_a_key_function():
    """I034: PACING_ORIGIN_KEY puts several hosts under one gate."""
    with Site(hosts=("127.0.0.1", "127.0.0.2", "127.0.0.3")) as site:
        urls = [site.url("/", host) for host in site.hosts]
        crawl(
            given=requests(*urls),
            settings={
                "PACING_INTERVAL": 0.5,
                "PACING_FLOOR": 0.45,
                "PACING_PAUSE_PROBABILITY": 0,
                "PACING_ORIGIN_KEY": "tests.integration.test_pacing.one_key",
            },
        )
    assert min(site.gaps()) > 0.45 - SLACK


def one_key(request, origin):
    """Put everything under one key."""
    return "all"
