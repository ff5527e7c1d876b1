"""Leaving by exits: an origin has one, keeps it, and the user's own word wins."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from aiohttp import web

from tests.proxies import LocalProxy
from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.secure_site import SecureSite
from tests.support.site import Site

SPIDER = "tests.support.exit_spiders.ExitSpider"
QUICK = {
    "PACING_INTERVAL": 0.05,
    "PACING_PAUSE_PROBABILITY": 0,
    "PACING_REMEMBER": False,
    "PACING_FETCH_METADATA": False,
}
HOSTS = tuple(f"127.0.0.{n}" for n in range(1, 7))
both_schemes = pytest.mark.parametrize("make_site", [Site, SecureSite], ids=["http", "https"])


def targets(proxy: LocalProxy) -> set[str]:
    return {seen.target for seen in proxy.seen}


@in_all_modes
@both_schemes
def test_an_origin_keeps_the_exit_that_it_was_given(mode, make_site):
    """Every proxy sees its own origins and no others, all exits have their share, and credentials are accepted."""
    with (
        make_site(hosts=HOSTS) as site,
        LocalProxy(credentials=("ann", "secret-pw")) as one,
        LocalProxy() as two,
        LocalProxy(credentials=("bob", "p%40ss:w@rd")) as three,
    ):
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(4) for host in HOSTS],
            settings={**QUICK, "PACING_EXITS": [one.url, two.url, three.url]},
            spider=SPIDER,
            mode=mode,
        )
        seen = [targets(proxy) for proxy in (one, two, three)]
    assert len(result.ok()) == 24
    # The fewest leases count among the exits that have room at that moment.
    assert min(len(each) for each in seen) >= 1
    assert sum(len(each) for each in seen) == len(set().union(*seen)) == 6
    assert {note.status for proxy in (one, two, three) for note in proxy.seen} == {200}
    assert all(len({item["exit"] for item in result.items if f"{host}:" in item["url"]}) == 1 for host in HOSTS)
    assert not [stat for stat in result.stats if "rotations" in stat]
    assert sum(value for stat, value in result.stats.items() if stat.endswith("/leases")) == 6
    assert {value for stat, value in result.stats.items() if stat.endswith("/in_flight")} == {0}


def test_direct_is_an_exit_like_any_other():
    """None and "direct" stand for the machine's own address, and are leased like a proxy."""
    with Site(hosts=HOSTS[:2]) as site, LocalProxy(via="one") as one:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(3) for host in HOSTS[:2]],
            settings={**QUICK, "PACING_EXITS": [None, one.url]},
            spider=SPIDER,
        )
    assert len(result.ok()) == 6
    assert len(one.seen) == 3
    assert {item["exit"] for item in result.items if f"{HOSTS[0]}:" in item["url"]} == {"direct"}


def test_the_users_own_proxy_wins_none_included():
    """`meta["proxy"]` of a request decides alone; such requests hold no room and teach nothing."""
    with Site() as site, LocalProxy(via="exit") as leased, LocalProxy(via="own") as own:
        given = [
            {"url": site.url("/own"), "meta": {"proxy": own.url}},
            {"url": site.url("/none"), "meta": {"proxy": None}},
            {"url": site.url("/leased")},
        ]
        result = crawl(given=json.dumps(given), settings={**QUICK, "PACING_EXITS": [leased.url]}, spider=SPIDER)
        via = {arrival.path: arrival.headers.get("Via") for arrival in site.log}
    assert via == {"/own": "1.1 own", "/none": None, "/leased": "1.1 exit"}
    exits = {item["url"].rpartition("/")[2]: item["exit"] for item in result.items}
    assert exits["own"] is None
    assert exits["none"] is None
    assert exits["leased"] is not None


def test_the_users_own_cookie_jar_wins():
    """A request that names a jar keeps it; the others have the jar of their origin's lease, and never each other's."""

    async def handler(request):
        answer = web.Response(text=request.headers.get("Cookie", "none"))
        answer.set_cookie("last", request.path[1:])
        return answer

    with Site(handler) as site, LocalProxy() as proxy:
        given = [
            {"url": site.url("/a1"), "meta": {"cookiejar": "mine"}},
            {"url": site.url("/b1")},
            {"url": site.url("/a2"), "meta": {"cookiejar": "mine"}},
            {"url": site.url("/b2")},
        ]
        result = crawl(
            given=json.dumps(given),
            settings={**QUICK, "PACING_EXITS": [proxy.url]},
            spider="tests.support.exit_spiders.OneByOneSpider",
        )
    assert [item["body"] for item in result.items] == ["none", "none", "last=a1", "last=b1"]
    assert "'cookiejar': 'mine'" in result.items[0]["meta"]
    assert "cookiejar" not in result.items[1]["meta"]


def test_a_redirect_to_another_origin_leaves_by_that_origins_exit():
    """What a redirect goes on with is the exit and the jar of where it goes to."""

    async def handler(request):
        if request.path == "/from":
            port = request.host.partition(":")[2]
            answer = web.Response(status=302, headers={"Location": f"http://{HOSTS[1]}:{port}/to"})
            answer.set_cookie("of", "the-first")
            return answer
        return web.Response(text=request.headers.get("Cookie", "none"))

    with Site(handler, hosts=HOSTS[:2]) as site, LocalProxy() as one, LocalProxy() as two:
        given = [{"url": site.url("/x", HOSTS[0])}, {"url": site.url("/y", HOSTS[1])}, {"url": site.url("/from")}]
        result = crawl(
            given=json.dumps(given),
            settings={**QUICK, "PACING_EXITS": [one.url, two.url]},
            spider="tests.support.exit_spiders.OneByOneSpider",
        )
        seen = [Counter(note.url.rpartition("/")[2] for note in proxy.seen) for proxy in (one, two)]
    assert seen == [Counter(["x", "from"]), Counter(["y", "to"])]
    assert result.items[-1]["body"] == "none"


@in_all_modes
def test_spiders_of_one_process_share_the_leases(mode):
    """Three crawls of one site leave by one exit together, and hold its room together."""

    with Site() as site, LocalProxy(delay=0.1) as one, LocalProxy() as two:
        spiders = [
            {"spider": SPIDER, "arguments": {"requests": requests(*[site.url(f"/{spider}/{n}") for n in range(4)])}}
            for spider in "abc"
        ]
        settings = {**QUICK, "PACING_EXITS": [one.url, two.url], "PACING_MAX_SESSIONS_PER_EXIT": 1}
        with running(spiders, settings, mode=mode) as under_way:
            result = under_way.wait()
    assert len(result.ok()) == 12
    assert sorted([len(one.seen), len(two.seen)]) == [0, 12]
    assert one.most_in_flight == 1


def test_the_next_run_leaves_by_the_same_exits(tmp_path):
    """Memory keeps which exit an origin holds, in whatever order the exits are then written, and no password."""
    with Site(hosts=HOSTS) as site, LocalProxy(credentials=("ann", "secret-pw")) as one, LocalProxy() as two:
        exits = [one.url, two.url]
        settings = {**QUICK, "PACING_REMEMBER": True, "PACING_DATA_DIR": str(tmp_path)}
        urls = [site.url("/", host) for host in HOSTS]
        crawl(*urls, settings={**settings, "PACING_EXITS": exits}, spider=SPIDER)
        before = [targets(one), targets(two)]
        one.seen.clear()
        two.seen.clear()
        crawl(*urls[::-1], settings={**settings, "PACING_EXITS": exits[::-1]}, spider=SPIDER)
        after = [targets(one), targets(two)]
    assert before == after
    assert before[0]
    assert before[1]
    key = tmp_path / "exits.key"
    assert key.stat().st_mode & 0o777 == 0o600
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"http://127.0.0.1" in written
    assert b"secret-pw" not in written


def test_a_file_of_exits_and_that_of_the_other_package(tmp_path):
    """PACING_EXITS_FILE has one exit a line; a ROTATING_PROXY_LIST_PATH file works as it is, without schemes."""
    with Site() as site, LocalProxy() as one:
        file = tmp_path / "proxies.txt"
        file.write_text(f"# mine\n{one.url}  # the first\n")
        first = crawl(site.url(), settings={**QUICK, "PACING_EXITS_FILE": str(file)}, spider=SPIDER)
        file.write_text(f"{one.url.removeprefix('http://')}\n\n")
        settings = {**QUICK, "PACING_EXITS_FILE": str(file), "ROTATING_PROXY_LIST_PATH": str(file)}
        second = crawl(site.url(), settings=settings, spider=SPIDER)
        third = crawl(site.url(), settings={**QUICK, "PACING_EXITS_FILE": str(file)}, spider=SPIDER)
    assert len(first.ok()) == len(second.ok()) == 1
    assert len(one.seen) == 2
    assert "line 1: has no scheme" in third.log
    assert third.items == []


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"PACING_EXITS": ["127.0.0.1:1/secret-pw"]}, "PACING_EXITS, entry 1: has no scheme"),
        ({"PACING_EXITS": ["http://a:secret-pw@h:1", " "]}, "PACING_EXITS, entry 2: is blank"),
        ({"PACING_EXITS": ["socks5://u:secret-pw@h:1"]}, "PACING_EXITS, entry 1: is a SOCKS proxy"),
        ({"PACING_EXITS": ["http://h:1"], "HTTPPROXY_ENABLED": False}, "HttpProxyMiddleware is switched off"),
        (
            {"PACING_EXITS": ["http://h:1"], "DOWNLOADER_MIDDLEWARES": {"scrapy_pacing.ExitMiddleware": 720}},
            "ExitMiddleware is at 720",
        ),
        ({"PACING_EXITS": ["http://h:1"], "PACING_BAN_STATUSES": [429]}, "PACING_BAN_STATUSES is [429]; allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_not_be_used_stops_the_crawl_at_its_start(settings, text):
    """The message names the setting and the entry, and never shows a password; nothing is sent."""
    with Site() as site:
        result = crawl(site.url(), settings={**QUICK, **settings}, spider=SPIDER)
    assert text in result.log
    assert "secret-pw" not in result.log
    assert site.log == []


def test_too_much_room_is_clamped_with_a_warning():
    """PACING_MAX_SESSIONS_PER_EXIT is 4 at the most, and the log says so."""

    with Site() as site, LocalProxy(delay=0.2) as proxy:
        result = crawl(
            *[site.url(f"/{n}") for n in range(12)],
            settings={
                **QUICK,
                "PACING_INTERVAL": 0,
                "PACING_EXITS": [proxy.url],
                "PACING_MAX_SESSIONS_PER_EXIT": 50,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 12,
            },
            spider=SPIDER,
        )
    assert len(result.ok()) == 12
    assert proxy.most_in_flight == 4
    assert "PACING_MAX_SESSIONS_PER_EXIT is 50; 4 is used" in result.log


def test_without_exits_the_middleware_is_not_there():
    """A project that names no exits has no ExitMiddleware, and its requests have nothing of it."""
    with Site() as site:
        result = crawl(site.url(), settings=QUICK, spider=SPIDER)
    assert "ExitMiddleware" not in result.log
    assert "proxy" not in result.items[0]["meta"]
