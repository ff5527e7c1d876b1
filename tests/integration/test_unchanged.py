"""Asking whether a page has moved: what the site sees of the question, and what its answers mean."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from email.utils import formatdate

import pytest
from aiohttp import web

from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.site import Site

FAST = {"PACING_INTERVAL": 0}
VISIT = "tests.support.asking.VisitThenAskSpider"
ASK = "tests.support.asking.AskSpider"
START = "tests.support.asking.StartThenAskSpider"
PAGE = "<html><title>page</title></html>"


def remembering(directory, **settings):
    return {**FAST, "PACING_REMEMBER": True, "PACING_DATA_DIR": str(directory), **settings}


def page(text=PAGE, status=200, **headers):
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(text=text if status != 304 else None, status=status, content_type="text/html", headers=fields)


def tagged(etag='"a"', **headers):
    """A site whose pages have an entity tag, and answer 304 to whoever has it."""

    async def handler(request):
        if request.headers.get("If-None-Match") == etag:
            return page(status=304, ETag=etag, **headers)
        return page(ETag=etag, **headers)

    return handler


def once_then(first, later):
    """A site that gives ``first`` to the first request of each path, ``later`` to those that follow."""
    seen = set()

    async def handler(request):
        if request.path not in seen:
            seen.add(request.path)
            return await first(request)
        return await later(request)

    return handler


def asked(handler, tmp_path, *paths, spider=VISIT, mode="asyncio", settings=None, method="unchanged", times=1):
    """Let a spider parse pages of a site and then ask for them; return the answers, and what arrived."""
    with Site(handler) as site:
        job = {"requests": requests(*map(site.url, paths or ("/x/",))), "times": times, "method": method}
        with running(
            [{"spider": spider, "arguments": job}], remembering(tmp_path, **(settings or {})), mode=mode
        ) as under_way:
            result = under_way.wait()
        return [answer for item in result.items for answer in item["answers"]], site.log, result


def conditions(arrival):
    return {name: arrival.headers[name] for name in ("If-None-Match", "If-Modified-Since") if name in arrival.headers}


@in_all_modes
def test_a_304_says_unchanged_in_start_and_in_callbacks(mode, tmp_path):
    """A page that has not moved is said to be unchanged by the next run, in start() and in a callback."""
    with Site(tagged(Last_Modified="Mon, 06 May 2024 10:00:00 GMT")) as site:
        settings = remembering(tmp_path)
        urls = [site.url("/a"), site.url("/b")]
        crawl(*urls, settings=settings, mode=mode)
        first = len(site.log)
        result = crawl(*urls, settings=settings, mode=mode, spider=START)
        later = site.log[first:]
    answers = {item["url"]: item["answers"] for item in result.items}
    assert answers == {urls[0]: [True], urls[1]: [True]}
    assert [arrival.path for arrival in later] == ["/a", "/a?between", "/b"]
    expected = {"If-None-Match": '"a"', "If-Modified-Since": "Mon, 06 May 2024 10:00:00 GMT"}
    assert [conditions(arrival) for arrival in later] == [expected, {}, expected]
    assert result.stats["pacing/memory/unchanged"] == 2


@in_all_modes
def test_what_is_not_known_or_has_moved_is_work_to_do(mode, tmp_path):
    """Nothing recorded: False without a request. A body: False. Neither raises."""
    answers, log, result = asked(once_then(tagged('"a"'), tagged('"b"')), tmp_path, mode=mode)
    assert answers == [False]
    assert len(log) == 2
    answers, log, result = asked(tagged(), tmp_path / "other", spider=ASK, mode=mode)
    assert answers == [False]
    assert log == []
    assert result.stats["reason"] == "finished"


@in_all_modes
def test_a_question_that_fails_raises(mode, tmp_path):
    """I121: refused, 5xx, 404, 410, a lost connection and a time-out raise; the crawl goes on and ends."""

    async def later(request):
        kind = request.path.rpartition("/")[2]
        if kind == "slow":
            await asyncio.sleep(5)
        if kind == "lost":
            request.transport.abort()
        return page(status=int(kind) if kind.isdigit() else 200)

    kinds = ["404", "410", "403", "500", "503", "429", "slow", "lost"]
    answers, log, result = asked(
        once_then(tagged(), later),
        tmp_path,
        *[f"/x/{kind}" for kind in kinds],
        mode=mode,
        settings={"DOWNLOAD_TIMEOUT": 1, "PACING_MAX_INTERVAL": 0.1},
    )
    assert result.stats["reason"] == "finished"
    assert len(answers) == len(kinds)
    assert all(answer.startswith("failed: ") for answer in answers)
    assert {f"failed: the answer is a {kind}" for kind in kinds[:6]} < set(answers)
    # Asked once each: a question is not tried again. (Twisted repeats what a kept connection has lost.)
    counts = Counter(arrival.path for arrival in log)
    assert all(count == 2 for path, count in counts.items() if path != "/x/lost")


@in_all_modes
def test_closing_ends_a_question_that_waits(mode, tmp_path):
    """I121: a question that waits for its turn when the spider closes fails at once, and nothing is sent."""
    with Site(tagged()) as site:
        job = [{"spider": VISIT, "arguments": {"requests": requests(site.url("/x/"))}}]
        settings = {"PACING_INTERVAL": 60, "PACING_PAUSE_PROBABILITY": 0, "PACING_FLOOR": 50, "CLOSESPIDER_TIMEOUT": 2}
        with running(job, {**remembering(tmp_path), **settings}, mode=mode) as under_way:
            result = under_way.wait(20)
        assert len(site.log) == 1
    assert [item["answers"] for item in result.items] == [["failed: the spider is closing"]]
    assert "Traceback" not in result.log


def test_a_question_is_paced_like_any_request(tmp_path):
    """The question waits for the gap of its site."""
    settings = {"PACING_INTERVAL": 0.5, "PACING_FLOOR": 0.45, "PACING_PAUSE_PROBABILITY": 0}
    answers, log, _ = asked(tagged(), tmp_path, settings=settings, times=2)
    assert answers == [True, True]
    times = [arrival.at for arrival in log]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.41


def test_new_validators_come_from_every_answer(tmp_path):
    """I104: a 304 with a new tag refreshes what is sent; so does a 200 whose tag alone has changed."""
    tags = iter(['"one"', '"two"', '"three"'])
    modified = "Mon, 06 May 2024 10:00:00 GMT"

    async def handler(request):
        status = 304 if "If-None-Match" in request.headers else 200
        return page(status=status, ETag=next(tags), Last_Modified=modified)

    answers, log, _ = asked(handler, tmp_path, times=2)
    assert answers == [True, True]
    assert [arrival.headers.get("If-None-Match") for arrival in log] == [None, '"one"', '"two"']

    tags = iter(['"one"', '"two"'])
    with Site(handler) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path / "b"))
        crawl(site.url("/x/"), settings=remembering(tmp_path / "b"))
        tags = iter(['"two"'])
        crawl(site.url("/x/"), settings=remembering(tmp_path / "b"), spider=ASK)
        assert [arrival.headers.get("If-None-Match") for arrival in site.log] == [None, None, '"two"']


@pytest.mark.parametrize("mode", ["asyncio", "no-reactor"])
def test_tags_are_echoed_byte_for_byte(mode, tmp_path):
    """I105: valid or not, a tag comes back as it was; a bare star and an endless one never do."""
    tags = {
        "strong": b'"a"',
        "weak": b'W/"a"',
        "bare": b"a",
        "single": b"'a'",
        "empty": b'""',
        "comma": b'"a,b"',
        "latin": b'"caf\xe9"',
        "utf8": '"café"'.encode(),
        "star": b"*",
        "long": b'"' + b"x" * 8000 + b'"',
    }
    if mode == "no-reactor":
        # Scrapy's handler there can't read such an answer at all.
        del tags["latin"]
    received = {}

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        name = head.split(b" ")[1].decode().rpartition("/")[2]
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        received.setdefault(name, []).append(fields.get(b"If-None-Match"))
        status = b"304 Not Modified" if b"If-None-Match" in fields else b"200 OK"
        body = b"" if b"If-None-Match" in fields else PAGE.encode()
        length = b"" if not body else b"Content-Length: %d\r\n" % len(body)
        writer.write(
            b"HTTP/1.1 %s\r\nETag: %s\r\nContent-Type: text/html\r\nConnection: close\r\n%s\r\n%s"
            % (status, tags[name], length, body)
        )
        await writer.drain()
        writer.close()

    with raw_site(serve) as port:
        urls = [f"http://127.0.0.1:{port}/x/{name}" for name in tags]
        result = crawl(*urls, settings=remembering(tmp_path), spider=VISIT, mode=mode)
    answers = {item["path"]: item["answers"] for item in result.items}
    assert answers == {name: [name not in {"star", "long"}] for name in tags}
    for name, tag in tags.items():
        assert received[name] == ([None] if name in {"star", "long"} else [None, tag])


def test_a_304_counts_only_as_an_answer_to_conditions(tmp_path):
    """I106: a 304 that nobody asked for says nothing, leaves nothing behind, and is not asked again."""

    async def always(request):
        return page(status=304, ETag='"a"')

    with Site(always) as site:
        result = crawl(site.url("/x/"), settings=remembering(tmp_path))
        asked_ = crawl(site.url("/x/"), settings=remembering(tmp_path), spider=ASK)
        assert len(site.log) == 1
    assert result.stats["reason"] == "finished"
    assert asked_.items[0]["answers"] == [False]


def test_a_304_without_a_tag_or_with_a_body_is_a_304(tmp_path):
    """I106: 304 answers without the fields that they should have are answers all the same."""

    async def later(request):
        return page(status=304)

    answers, log, _ = asked(once_then(tagged(), later), tmp_path, times=2)
    assert answers == [True, True]
    assert [arrival.headers.get("If-None-Match") for arrival in log] == [None, '"a"', '"a"']


def test_fetching_a_page_that_always_answers_304_ends(tmp_path):
    """I106: where a page can't be had, fetch_if_changed says so after one try without conditions."""

    async def always(request):
        return page(status=304)

    with Site(always) as site:
        job = {"requests": requests(site.url("/x/")), "method": "fetch"}
        with running([{"spider": ASK, "arguments": job}], remembering(tmp_path)) as under_way:
            result = under_way.wait()
        assert len(site.log) == 1
    assert result.items[0]["answers"] == ["failed: the answer is a 304"]


@pytest.mark.parametrize(("status", "times_asked"), [(301, 1), (308, 1), (302, 2), (303, 2), (307, 2)])
def test_conditions_do_not_follow_a_redirect(status, times_asked, tmp_path):
    """I107: the other URL never sees the validators; they are forgotten if the page has moved there for good."""
    elsewhere = {}

    async def handler(request):
        if request.path == "/x/page":
            if "If-None-Match" in request.headers:
                return page(status=status, Location=f"http://127.0.0.2:{request.url.port}/other")
            return page(ETag='"x"')
        elsewhere.update(request.headers)
        return page(status=304)

    with Site(handler, hosts=("127.0.0.1", "127.0.0.2")) as site:
        job = {"requests": requests(site.url("/x/page")), "times": 2}
        with running([{"spider": VISIT, "arguments": job}], remembering(tmp_path)) as under_way:
            result = under_way.wait()
        assert [arrival.path for arrival in site.log] == ["/x/page"] * (1 + times_asked)
    assert result.items[0]["answers"] == [False, False]
    assert elsewhere == {}


def walled(etag):
    """A site that lets nobody in without the cookie of its homepage."""

    async def handler(request):
        if request.path == "/":
            response = page()
            response.set_cookie("visit", "1")
            return response
        if request.path == "/wall":
            return page("a wall", ETag='"wall"')
        if "visit" not in request.cookies:
            raise web.HTTPFound("/wall")
        return await tagged(etag)(request)

    return handler


def test_a_question_arrives_as_a_visitor_does(tmp_path):
    """The first request of a run may be a question: it has the homepage's cookie, and looks like a visit."""
    settings = remembering(tmp_path, PACING_WARMUP="always")
    with Site(walled('"a"')) as site:
        url = site.url("/x/page")
        crawl(url, settings=settings)
        first = len(site.log)
        result = crawl(url, settings=settings, spider=ASK)
        later = site.log[first:]
        site.handler = walled('"b"')
        job = {"requests": requests(url), "method": "fetch"}
        with running([{"spider": ASK, "arguments": job}], settings) as under_way:
            fetched = under_way.wait()
    assert result.items[0]["answers"] == [True]
    assert [arrival.path for arrival in later] == ["/", "/x/page"]
    assert (later[1].headers["Sec-Fetch-Mode"], later[1].headers["Sec-Fetch-Dest"]) == ("navigate", "document")
    assert fetched.items[0]["answers"] == [PAGE]


def test_a_wall_does_not_make_a_page_forgotten(tmp_path):
    """A temporary redirect says nothing about the page behind it, which can be asked for again later."""
    settings = remembering(tmp_path, PACING_WARMUP="never")
    with Site(tagged()) as site:
        url = site.url("/x/page")
        crawl(url, settings=settings)
        site.handler = walled('"a"')
        shut_out = crawl(url, settings=settings, spider=ASK)
        site.handler = tagged()
        let_in = crawl(url, settings=settings, spider=ASK)
    assert [shut_out.items[0]["answers"], let_in.items[0]["answers"]] == [[False], [True]]


def test_a_fragment_is_no_part_of_the_question(tmp_path):
    """A link to a place in a page asks whether the page has moved."""
    with Site(tagged()) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path))
        result = crawl(site.url("/x/#part"), settings=remembering(tmp_path), spider=ASK)
    assert result.items[0]["answers"] == [True]


@pytest.mark.parametrize(
    "vary", ["Sec-Fetch-Site, Sec-Fetch-Mode, Sec-Fetch-Dest, Sec-Fetch-User", "Upgrade-Insecure-Requests, Referer"]
)
def test_a_page_that_varies_by_what_is_stamped_can_be_asked_for(vary, tmp_path):
    """Fields that the package itself puts on keep no page from being asked for, in the next run and in this one."""
    with Site(tagged(Vary=vary)) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path), spider="tests.support.spiders.ListSpider")
        result = crawl(site.url("/x/"), settings=remembering(tmp_path), spider=ASK)
    assert result.items[0]["answers"] == [True]
    answers, _, _ = asked(tagged(Vary=vary), tmp_path / "other", times=2)
    assert answers == [True, True]


def test_validators_belong_to_the_url_that_answered(tmp_path):
    """I107: what a redirect led to is known by its own URL, and nothing is asked of the one that redirects."""

    async def handler(request):
        if request.path == "/a":
            raise web.HTTPFound("/b")
        return await tagged()(request)

    with Site(handler) as site:
        crawl(site.url("/a"), settings=remembering(tmp_path))
        result = crawl(site.url("/a"), site.url("/b"), settings=remembering(tmp_path), spider=ASK)
        assert [arrival.path for arrival in site.log] == ["/a", "/b", "/b"]
    assert [item["answers"] for item in result.items] == [[False], [True]]


DATES = {
    "Sun, 06 Nov 1994 08:49:37 GMT": True,
    "Sunday, 06-Nov-94 08:49:37 GMT": True,
    "Sun Nov  6 08:49:37 1994": True,
    "Mon, 06 May 2024 10:00:00 CET": True,
    "Mon, 06 May 2024 10:00:00 +0000": True,
    "Mon, 06 May 2024 10:00:00 UTC": True,
    "Thu, 01 Jan 1970 00:00:00 GMT": False,
    "Tue, 01 Jan 1980 00:00:00 GMT": False,
    "Tue, 01 Jan 2041 00:00:00 GMT": False,
    "Mon, 01 Jan 0001 00:00:00 GMT": False,
    "0": False,
    "-1": False,
    "yesterday": False,
}


def test_dates_are_echoed_as_they_are_and_impossible_ones_never(tmp_path):
    """I109, I110: any form of a date that can be meant comes back unread; one that can't freezes no page."""
    dates = list(DATES)

    async def handler(request):
        return page(Last_Modified=dates[int(request.path.rpartition("/")[2])], Date=formatdate(usegmt=True))

    answers, log, _ = asked(handler, tmp_path, *[f"/x/{number}" for number in range(len(dates))])
    assert answers == [False] * len(dates)
    sent = {
        dates[int(arrival.path.rpartition("/")[2])]: arrival.headers["If-Modified-Since"]
        for arrival in log
        if "If-Modified-Since" in arrival.headers
    }
    assert sent == {date: date for date, meant in DATES.items() if meant}


def test_a_site_that_ignores_conditions_is_found_out(tmp_path):
    """I112: a tag that comes back with a whole page every time saves nothing; a stat says so."""

    async def handler(request):
        return page(ETag='"a-gzip"')

    answers, _, result = asked(handler, tmp_path)
    assert answers == [False]
    assert result.stats["pacing/memory/conditions_ignored"] == 1


def test_a_page_that_is_always_unchanged_is_seen_in_full_now_and_then(tmp_path):
    """I112: a site that answers 304 to anything can't freeze a page for longer than thirty days."""

    async def later(request):
        return page(status=304)

    with Site(once_then(tagged(), later)) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path))
        age_by(tmp_path / "memory.json", 31 * 86_400)
        result = crawl(site.url("/x/"), settings=remembering(tmp_path), spider=ASK)
        assert len(site.log) == 1
    assert result.items[0]["answers"] == [False]


def test_a_tag_that_turned_weak_is_the_sites_own_business(tmp_path):
    """I113: a strong tag is sent as it was; a 304 with its weak form says unchanged, and is sent from then on."""

    async def later(request):
        return page(status=304, ETag='W/"a"')

    answers, log, _ = asked(once_then(tagged(), later), tmp_path, times=2)
    assert answers == [True, True]
    assert [arrival.headers.get("If-None-Match") for arrival in log] == [None, '"a"', 'W/"a"']


@pytest.mark.parametrize(
    ("vary", "change", "still_asked"),
    [
        ("Accept-Language", {"DEFAULT_REQUEST_HEADERS": {"Accept-Language": "fr"}}, False),
        ("User-Agent", {"USER_AGENT": "another"}, False),
        ("Accept-Language, User-Agent", {"USER_AGENT": "another"}, False),
        ("*", {}, False),
        ("Accept-Language", {"USER_AGENT": "another"}, True),
        ("Cookie", {}, True),
    ],
)
def test_another_variant_of_a_page_is_another_page(vary, change, still_asked, tmp_path):
    """I115: validators are sent only while the fields that the page varies by are what they were."""
    with Site(tagged(Vary=vary)) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path))
        result = crawl(site.url("/x/"), settings=remembering(tmp_path, **change), spider=ASK)
        assert len(site.log) == 1 + still_asked
    assert result.items[0]["answers"] == [still_asked]


@pytest.mark.parametrize("policy", ["DummyPolicy", "RFC2616Policy"])
def test_the_site_answers_and_not_scrapys_cache(policy, tmp_path):
    """I116: with HTTPCACHE on, a question goes to the site, and leaves the cache as it is."""
    cache = {
        "HTTPCACHE_ENABLED": True,
        "HTTPCACHE_POLICY": f"scrapy.extensions.httpcache.{policy}",
        "HTTPCACHE_DIR": str(tmp_path / "cache"),
    }
    with Site(once_then(tagged(Cache_Control="max-age=3600"), tagged('"b"'))) as site:
        url = site.url("/x/")
        crawl(url, settings=remembering(tmp_path, **cache))
        asked_ = crawl(url, settings=remembering(tmp_path, **cache), spider=ASK)
        cached = crawl(url, settings=remembering(tmp_path, **cache))
        again = crawl(url, settings=remembering(tmp_path, **cache), spider=ASK)
        assert len(site.log) == 3
    assert asked_.items[0]["answers"] == [False]
    assert cached.stats["httpcache/hit"] == 1
    # A cached answer refreshes nothing: it is the one of long ago.
    assert again.items[0]["answers"] == [False]
    assert site.log[-1].headers["If-None-Match"] == '"a"'


@pytest.mark.parametrize("status", [404, 403, 503, 206])
def test_validators_come_from_pages_only(status, tmp_path):
    """I118: an error answer with a tag leaves nothing behind."""

    async def handler(request):
        return page(status=status, ETag='"error"')

    with Site(handler) as site:
        settings = remembering(tmp_path, RETRY_ENABLED=False, HTTPERROR_ALLOW_ALL=True)
        crawl(site.url("/x/"), settings=settings)
        result = crawl(site.url("/x/"), settings=settings, spider=ASK)
        assert len(site.log) == 1
    assert result.items[0]["answers"] == [False]


def is_block(response):
    """What a project puts into PACING_DIAGNOSE."""
    from scrapy_pacing import Layer

    return Layer.SCRIPT if b"Enable JavaScript" in response.body else None


def test_a_block_page_leaves_no_validators(tmp_path):
    """I119: a block page with status 200 is no page, whether the project's function or the spider judges it."""
    block = page

    async def handler(request):
        if "If-None-Match" in request.headers:
            return page(status=304)
        return block("Enable JavaScript", ETag='"block"')

    with Site(handler) as site:
        judged = remembering(tmp_path, PACING_DIAGNOSE="tests.integration.test_unchanged.is_block")
        crawl(site.url("/x/"), settings=judged)
        first = crawl(site.url("/x/"), settings=judged, spider=ASK)
        settings = remembering(tmp_path / "b")
        crawl(site.url("/x/block"), settings=settings, spider="tests.support.asking.JudgingSpider")
        second = crawl(site.url("/x/block"), settings=settings, spider=ASK)
        assert len(site.log) == 2
    assert first.items[0]["answers"] == second.items[0]["answers"] == [False]


def test_a_block_page_in_answer_to_a_question_is_a_failure(tmp_path):
    """I119: a block page instead of the page does not read as a page that has changed."""

    async def later(request):
        return page("Enable JavaScript", ETag='"block"')

    answers, _, _ = asked(
        once_then(tagged(), later),
        tmp_path,
        times=2,
        settings={"PACING_DIAGNOSE": "tests.integration.test_unchanged.is_block"},
    )
    assert answers == ["failed: the answer is judged a block (script)"] * 2


def test_a_page_that_a_callback_failed_on_is_work_to_do(tmp_path):
    """What could not be parsed is not skipped the next time."""
    with Site(tagged()) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path), spider="tests.support.asking.FailingSpider")
        result = crawl(site.url("/x/"), settings=remembering(tmp_path), spider=ASK)
        assert len(site.log) == 1
    assert result.items[0]["answers"] == [False]


def test_only_pages_are_recorded(tmp_path):
    """Images, sub-resources, robots.txt and what other components download leave no validators."""

    async def handler(request):
        kind = "image/png" if request.path.endswith(".png") else "text/html"
        return web.Response(body=b"User-agent: *", content_type=kind, headers={"ETag": '"a"'})

    with Site(handler) as site:
        given = json.dumps(
            [
                {"url": site.url("/picture.png")},
                {"url": site.url("/api"), "meta": {"navigation": False}},
                {"url": site.url("/form"), "method": "POST"},
                {"url": site.url("/page")},
            ]
        )
        crawl(given=given, settings=remembering(tmp_path, ROBOTSTXT_OBEY=True))
    [origin] = json.loads((tmp_path / "memory.json").read_text())["origins"].values()
    assert list(origin["validators"]) == ["/page"]


def test_no_other_request_carries_validators_but_the_users_own(tmp_path):
    """An ordinary request for a known page asks for all of it; a condition that the user sets stays."""
    with Site(tagged()) as site:
        crawl(site.url("/x/"), settings=remembering(tmp_path))
        crawl(site.url("/x/"), settings=remembering(tmp_path))
        crawl(
            site.url("/x/"),
            settings=remembering(tmp_path, HTTPERROR_ALLOW_ALL=True),
            headers={"If-None-Match": '"mine"'},
        )
        assert [conditions(arrival) for arrival in site.log] == [{}, {}, {"If-None-Match": '"mine"'}]


@in_all_modes
def test_the_new_page_can_be_had_at_once(mode, tmp_path):
    """fetch_if_changed: None where a page has not moved, the page where it has, or where nothing is known."""

    async def handler(request):
        text = current["text"]
        if request.headers.get("If-None-Match") == f'"{text}"':
            return page(status=304)
        return page(text, ETag=f'"{text}"')

    current = {"text": "one"}
    with Site(handler) as site:
        job = {"requests": requests(site.url("/x/")), "method": "fetch", "times": 2}
        with running([{"spider": ASK, "arguments": job}], remembering(tmp_path), mode=mode) as under_way:
            first = under_way.wait()
        current["text"] = "two"
        with running([{"spider": ASK, "arguments": job}], remembering(tmp_path), mode=mode) as under_way:
            second = under_way.wait()
        assert len(site.log) == 4
    assert first.items[0]["answers"] == ["one", None]
    assert second.items[0]["answers"] == ["two", None]


def test_fetching_what_redirects_now_follows_it(tmp_path):
    """fetch_if_changed brings the page that a known URL leads to now, asked for without conditions."""

    async def first(request):
        return page("old", ETag='"old"')

    async def later(request):
        raise web.HTTPFound("/new")

    moving = once_then(first, later)

    async def handler(request):
        return page("new", ETag='"new"') if request.path == "/new" else await moving(request)

    with Site(handler) as site:
        crawl(site.url("/x/old"), settings=remembering(tmp_path))
        job = {"requests": requests(site.url("/x/old")), "method": "fetch"}
        with running([{"spider": ASK, "arguments": job}], remembering(tmp_path)) as under_way:
            result = under_way.wait()
        assert [conditions(arrival) for arrival in site.arrivals("/new")] == [{}]
    assert result.items[0]["answers"] == ["new"]


def test_without_a_memory_everything_is_work_to_do(tmp_path):
    """PACING_REMEMBER = False: nothing is recorded, no question is sent, no file is written."""
    answers, log, _ = asked(tagged(), tmp_path, settings={"PACING_REMEMBER": False})
    assert answers == [False]
    assert len(log) == 1
    assert list(tmp_path.iterdir()) == []


def raw_site(serve):
    """Serve connections by hand, for bytes that no HTTP library would send."""
    import contextlib
    import threading

    @contextlib.contextmanager
    def running_site():
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            server.close()
            loop.close()

    return running_site()


def age_by(path, seconds):
    """Let what a memory knows of pages be older by some seconds."""
    content = json.loads(path.read_text())
    for origin in content["origins"].values():
        for validators in origin.get("validators", {}).values():
            validators["full_at"] -= seconds
    path.write_text(json.dumps(content))
