"""What a site's refusals do to a crawl: nothing is lost, and the pace is learned."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from aiohttp import web

from tests.support.crawl import crawl, in_all_modes
from tests.support.site import Bucket, Site, ok


def refuse_first(times, *, status=429, headers=None):
    """A site that refuses its first requests, whatever they are."""
    left = [times]

    async def handler(request):
        if left[0] > 0:
            left[0] -= 1
            return web.Response(status=status, headers=headers or {})
        return await ok(request)

    return handler


def refuse_always(status=429, headers=None):
    async def handler(request):
        return web.Response(status=status, headers=headers or {})

    return handler


@in_all_modes
def test_retry_after_holds_the_whole_origin_and_loses_nothing(mode):
    """I001: after a refusal nothing leaves until the asked time has passed, and retries are not used up."""
    with Site(refuse_first(1, headers={"Retry-After": "2"})) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(4)],
            settings={"PACING_INTERVAL": 0.5, "PACING_FLOOR": 0.45, "PACING_PAUSE_PROBABILITY": 0},
            mode=mode,
        )
    assert len(result.ok()) == 4
    assert site.gaps()[0] > 1.9
    assert {item["retries"] for item in result.items} == {0}
    assert "retry/count" not in result.stats
    assert result.stats["pacing/throttled"] == 1


@pytest.mark.parametrize("retry_after", ["1", None])
def test_no_page_is_lost_to_a_limit(retry_after):
    """A site that allows five requests a second loses no page of a crawl that starts at ten."""
    bucket = Bucket(5, 5, retry_after=retry_after)
    with Site(bucket) as site:
        result = crawl(*[site.url(f"/{n}") for n in range(25)], settings={"PACING_INTERVAL": 0.1}, timeout=100)
    assert len(result.ok()) == 25
    assert bucket.refused >= 1
    assert result.stats["pacing/sent_back"] == bucket.refused


@pytest.mark.parametrize(
    "value", ["0", "Sun, 06 Nov 1994 08:49:37 GMT", "-5", "nan", "1e3", "soon", ""], ids=lambda value: value or "empty"
)
def test_a_useless_retry_after_counts_as_none(value):
    """I002, I004, I005: a wait of nothing, or one that can't be read, never makes the crawl faster."""
    with Site(refuse_first(1, headers={"Retry-After": value})) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(3)],
            settings={"PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.25, "PACING_PAUSE_PROBABILITY": 0},
        )
    assert len(result.ok()) == 3
    assert "0.3 -> 0.6 s (status 429)" in result.log
    # The law is twice as slow after the lesson, its floor included.
    assert min(site.gaps()) > 0.45


def test_a_long_retry_after_is_capped_and_shown():
    """I003: the wait is capped by PACING_MAX_HOLD, and the log keeps what was asked."""
    with Site(refuse_first(1, headers={"Retry-After": "9" * 400})) as site:
        result = crawl(
            site.url("/a"), settings={"PACING_INTERVAL": 0.1, "PACING_MAX_HOLD": 1.5, "PACING_MAX_INTERVAL": 0.2}
        )
    assert len(result.ok()) == 1
    assert 1.4 < site.gaps()[0] < 4
    assert "nothing leaves for 1.5 s (it asked for 10000000000 s)" in result.log


def test_a_site_that_always_refuses_ends_within_the_setting():
    """I027: after PACING_MAX_THROTTLES refusals the answer goes on as usual, and the log says why."""
    with Site(refuse_always()) as site:
        result = crawl(
            site.url("/a"),
            settings={
                "PACING_INTERVAL": 0.05,
                "PACING_MAX_INTERVAL": 0.1,
                "PACING_MAX_THROTTLES": 3,
                "RETRY_TIMES": 2,
                "HTTPERROR_ALLOW_ALL": True,
            },
        )
    # Three sent back, then the answer goes on and Scrapy's own two retries follow.
    assert len(site.log) == 4 + 2
    assert [item["status"] for item in result.items] == [429]
    assert result.stats["pacing/given_up"] == 3
    assert "Gave up pacing" in result.log


def test_dont_retry_and_a_spider_that_handles_the_status_get_the_answer():
    """I013: with dont_retry, or where the spider handles 429 itself, a refusal goes on at once, and still teaches."""
    with Site(refuse_always(headers={"Retry-After": "1"})) as site:
        result = crawl(
            site.url("/a"),
            settings={"PACING_INTERVAL": 0.1},
            meta={"dont_retry": True, "handle_httpstatus_list": [429]},
        )
        handled = crawl(
            site.url("/b"),
            settings={"PACING_INTERVAL": 0.1, "RETRY_ENABLED": False},
            meta={"handle_httpstatus_list": [429]},
        )
    assert [item["status"] for item in result.items + handled.items] == [429, 429]
    assert len(site.log) == 2
    assert result.stats["pacing/throttled"] == 1


def test_a_burst_of_refusals_teaches_once():
    """Refusals of requests that had left before the first was learned widen the interval once."""
    with Site(refuse_first(4)) as site:
        result = crawl(
            *[site.url(f"/{n}") for n in range(4)],
            settings={"PACING_INTERVAL": 0, "PACING_FIRST_INTERVAL": 0.2, "CONCURRENT_REQUESTS_PER_DOMAIN": 4},
        )
    assert len(result.ok()) == 4
    assert result.stats["pacing/throttled"] == 4
    assert result.stats["pacing/backed_off"] == 1


@pytest.mark.parametrize("status", [430, 420, 509, 529])
def test_other_refusal_statuses_are_a_setting(status):
    """I020: PACING_THROTTLE_STATUSES says which statuses mean "too fast"."""
    with Site(refuse_first(1, status=status)) as site:
        result = crawl(site.url("/a"), settings={"PACING_INTERVAL": 0.1, "PACING_THROTTLE_STATUSES": [429, status]})
    assert len(result.ok()) == 1
    assert result.stats["pacing/throttled"] == 1


def test_503_counts_with_retry_after_only_and_a_challenge_never():
    """I019: an overloaded site says Retry-After; an error and a challenge page do not slow the crawl."""
    answers = {
        "/busy": {"Retry-After": "1"},
        "/broken": {},
        "/wall": {"Retry-After": "5", "Cf-Mitigated": "challenge"},
    }
    seen = Counter()

    async def handler(request):
        seen[request.path] += 1
        if seen[request.path] == 1:
            return web.Response(status=503, headers=answers[request.path])
        return await ok(request)

    with Site(handler) as site:
        result = crawl(*[site.url(path) for path in answers], settings={"PACING_INTERVAL": 0.1})
    assert len(result.ok()) == 3
    assert result.stats["pacing/throttled"] == 1
    assert result.stats["pacing/challenged"] == 1
    assert seen == {"/busy": 2, "/broken": 2, "/wall": 2}


def test_quick_refusals_never_make_the_crawl_faster():
    """I022: a site that refuses within milliseconds is asked ever more slowly."""
    with Site(refuse_first(5)) as site:
        result = crawl(
            site.url("/a"), settings={"PACING_INTERVAL": 0.1, "PACING_FLOOR": 0.09, "PACING_PAUSE_PROBABILITY": 0}
        )
    gaps = site.gaps()
    assert len(result.ok()) == 1
    # Floors of 0.18, 0.36, 0.72 … seconds.
    assert all(gap > 0.09 * 2 ** (n + 1) - 0.04 for n, gap in enumerate(gaps))


def test_a_redirect_with_retry_after_waits():
    """I011: hops of a redirect chain wait as long as they are asked to."""

    async def handler(request):
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/here", "Retry-After": "1"})
        return await ok(request)

    with Site(handler) as site:
        result = crawl(site.url("/moved"), settings={"PACING_INTERVAL": 0.05})
    assert len(result.ok()) == 1
    assert site.gaps()[0] > 0.95


def test_no_site_makes_another_one_wait():
    """A redirect with Retry-After to another site does not hold that site."""

    async def handler(request):
        if request.path == "/moved":
            where = f"http://127.0.0.2:{request.url.port}/there"
            return web.Response(status=302, headers={"Location": where, "Retry-After": "600"})
        return await ok(request)

    with Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site:
        result = crawl(site.url("/moved"), settings={"PACING_INTERVAL": 0.05})
    assert len(result.ok()) == 1
    assert result.seconds < 20


def test_a_request_that_was_sent_back_is_filtered_as_ever_afterwards():
    """Sending a request back past the dupe filter leaves no dont_filter behind for what comes of it."""
    with Site(refuse_first(1)) as site:
        result = crawl(site.url("/a"), settings={"PACING_INTERVAL": 0.05})
    assert [item["dont_filter"] for item in result.ok()] == [False]


def test_hostile_headers_do_not_disturb_the_crawl():
    """Odd Retry-After and Date fields raise nothing; the crawl goes on at its own back-off."""
    odd = [
        {"Retry-After": "x" * 5000, "Date": "yesterday"},
        {"Retry-After": "120, 5,,;", "Date": "Fri, 99 Foo 99999 99:99:99 GMT"},
        {"Retry-After": "\u0663", "Date": "\u00ff"},
        {"Retry-After": "Wed, 31 Feb 2026 25:61:61 GMT"},
    ]
    left = list(odd)

    async def handler(request):
        if left:
            return web.Response(status=429, headers=left.pop())
        return await ok(request)

    with Site(handler) as site:
        result = crawl(
            site.url("/a"),
            settings={"PACING_INTERVAL": 0.05, "PACING_MAX_HOLD": 0.5, "PACING_MAX_INTERVAL": 0.2},
        )
    assert len(result.ok()) == 1
    assert "Traceback" not in result.log


def test_the_wait_is_not_slept_in_a_thread_of_the_loop():
    """I038: while one site holds, another one is crawled at its own pace."""
    start = time.monotonic()
    with Site(refuse_first(1, headers={"Retry-After": "4"})) as slow_site, Site() as quick_site:
        result = crawl(
            slow_site.url("/a"), *[quick_site.url(f"/{n}") for n in range(8)], settings={"PACING_INTERVAL": 0.1}
        )
        last_quick = quick_site.log[-1].at
    assert len(result.ok()) == 9
    assert last_quick < slow_site.log[-1].at
    assert time.monotonic() - start < 20
