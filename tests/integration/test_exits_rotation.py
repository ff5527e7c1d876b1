"""Another exit on evidence about the address, and only then; and what comes of the requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest
from aiohttp import web

from tests.proxies import LocalProxy, closed_port
from tests.support.crawl import crawl, in_all_modes, requests, running
from tests.support.secure_site import SecureSite
from tests.support.site import Site, ok

SPIDER = "tests.support.exit_spiders.ExitSpider"
ONE_BY_ONE = "tests.support.exit_spiders.OneByOneSpider"
QUICK = {
    "PACING_INTERVAL": 0.05,
    "PACING_PAUSE_PROBABILITY": 0,
    "PACING_REMEMBER": False,
    "PACING_MAX_INTERVAL": 0.2,
}
SLACK = 0.1
STANDARD_QUEUE = {"SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue"}


def rotations(result) -> Counter:
    """How many leases were ended, by cause."""
    counts = Counter()
    for stat, value in result.stats.items():
        if "/rotations/" in stat:
            counts[stat.rpartition("/")[2]] += value
    return counts


def refuses(name, *, after=0):
    """A site that refuses whoever comes by the proxy ``name``, after some requests."""
    served = [0]

    async def handler(request):
        if request.headers.get("Via") != f"1.1 {name}":
            return await ok(request)
        served[0] += 1
        return await ok(request) if served[0] <= after else web.Response(status=403)

    return handler


def answers(status, headers=None):
    async def handler(request):
        return web.Response(status=status, headers=headers or {})

    return handler


# -- evidence of the exit's own ------------------------------------------------------------------------------------------


BROKEN = {
    "407": ({"always_407": True}, "credentials"),
    "502-of-its-own": ({"own_status": 502}, "gateway"),
}


@in_all_modes
@pytest.mark.parametrize("make_site", [Site, SecureSite], ids=["http", "https"])
@pytest.mark.parametrize("broken", [*BROKEN, "refuses-connections"])
def test_i073_a_broken_exit_is_left_and_the_request_goes_by_another(mode, make_site, broken):
    """I073: refused connections, 407 and a gateway error move the origin; no request is lost, and no retry used up."""
    options, cause = BROKEN.get(broken, ({}, "unreachable"))
    with make_site() as site, LocalProxy(**options) as bad, LocalProxy() as good:
        if broken == "refuses-connections":
            bad.die()
        result = crawl(
            *[site.url(f"/{n}") for n in range(4)],
            settings={**QUICK, "PACING_EXITS": [bad.address, good.url]},
            spider=SPIDER,
            mode=mode,
        )
        seen_by_bad = len(bad.seen)
    assert len(result.ok()) == 4
    assert {item["retries"] for item in result.items} == {0}
    assert "retry/count" not in result.stats
    assert rotations(result) == {cause: 1}
    # So many can be in flight by it when the first fails.
    assert 1 <= result.stats["pacing/exit_faults"] <= 2
    assert seen_by_bad <= 2
    assert {stat for stat, value in result.stats.items() if stat.endswith("in_flight") and value} == set()


@pytest.mark.parametrize(
    ("handler", "settings"),
    [
        (answers(404), {}),
        (answers(429), {"PACING_MAX_THROTTLES": 1}),
        (answers(503), {}),
        (answers(503, {"Retry-After": "0"}), {"PACING_MAX_THROTTLES": 1}),
        (answers(500), {}),
        (answers(407), {"PACING_EXITS": ["direct", "http://127.0.0.1:9"]}),
        (answers(403), {"PACING_THROTTLE_STATUSES": [403], "PACING_MAX_THROTTLES": 1}),
    ],
    ids=["404", "429", "503", "503-retry-after", "500", "407-of-the-origin", "403-as-throttle"],
)
def test_i073_what_the_origin_says_of_pages_and_pace_moves_nobody(handler, settings):
    """I073: a 404, a 429, a 503 and a 500 of the origin's are no evidence about the address."""
    with Site(handler) as site, LocalProxy() as one, LocalProxy() as two:
        merged = {**QUICK, "PACING_EXITS": [one.url, two.url], "RETRY_TIMES": 1, **settings}
        result = crawl(*[site.url(f"/{n}") for n in range(6)], settings=merged, spider=SPIDER)
        arrived = len(site.log)
        seen_by_one = len(one.seen)
    assert len(result.items) == 6
    assert rotations(result) == {}
    assert two.seen == []
    assert seen_by_one == (0 if "PACING_EXITS" in settings else arrived)


def test_i073_a_503_that_the_proxy_does_not_sign_is_the_origins():
    """I073: without a header that says so, a gateway status could be anybody's: it moves nobody."""
    with Site() as site, LocalProxy(own_status=503, signed=False) as one, LocalProxy() as two:
        result = crawl(
            site.url(), settings={**QUICK, "PACING_EXITS": [one.url, two.url], "RETRY_TIMES": 1}, spider=SPIDER
        )
    assert [item["status"] for item in result.items] == [503]
    assert two.seen == []
    assert rotations(result) == {}


def test_i073_one_time_out_is_no_evidence_and_one_at_each_of_three_origins_is():
    """I073: a slow page says nothing about its exit; an exit by which three origins in a row hear nothing is dead."""
    hosts = tuple(f"127.0.0.{n}" for n in range(1, 7))
    settings = {**QUICK, "DOWNLOAD_TIMEOUT": 0.6, "RETRY_TIMES": 1}
    with Site(hosts=hosts) as site, LocalProxy(delay=5) as slow, closed_port() as dead:
        one = crawl(site.url(), settings={**settings, "PACING_EXITS": [slow.url, dead]}, spider=SPIDER)
    assert [item.get("error") for item in one.items] in (["DownloadTimeoutError"], ["TimeoutError"])
    assert rotations(one) == {}
    with Site(hosts=hosts) as site, LocalProxy(delay=5) as slow, LocalProxy() as quick:
        exits = [slow.url, quick.url]
        # Six origins, three of which are leased the slow exit.
        three = crawl(
            *[site.url("/", host) for host in hosts],
            settings={**settings, "PACING_EXITS": exits, "PACING_MAX_SESSIONS_PER_EXIT": 4, "RETRY_TIMES": 4},
            spider=SPIDER,
        )
    assert len(three.ok()) == 6
    assert rotations(three) == {"timeouts": 3}
    assert three.log.count("is dead: timeouts") == 1


def test_a_proxy_that_dies_in_the_middle_loses_nothing():
    """An exit that resets a connection and then refuses all is left; every page comes, most by the other exit."""
    with Site() as site, LocalProxy() as dying, LocalProxy() as other:
        job = [{"spider": SPIDER, "arguments": {"requests": requests(*[site.url(f"/{n}") for n in range(12)])}}]
        settings = {**QUICK, "PACING_INTERVAL": 0.4, "PACING_FLOOR": 0.25, "PACING_EXITS": [dying.url, other.url]}
        with running(job, settings) as under_way:
            wait_for(lambda: len(site.log) >= 3)
            dying.die()
            result = under_way.wait()
        served = len(dying.seen), len(other.seen)
    assert len(result.ok()) == 12
    assert min(served) > 0
    assert sum(rotations(result).values()) == 1
    assert min(site.gaps()) > 0.25 - SLACK


# -- evidence of the origin's --------------------------------------------------------------------------------------------


@in_all_modes
@pytest.mark.parametrize("queue", [{}, STANDARD_QUEUE], ids=["paced-queue", "scrapys-queue"])
def test_i066_nothing_leaves_by_an_exit_that_the_origin_has_lost_meanwhile(mode, queue):
    """I066: ten requests wait for their turn; from the moment that the exit is refused none leaves by it."""
    with Site(refuses("one")) as site, LocalProxy(via="one") as one, LocalProxy(via="two") as two:
        result = crawl(
            *[site.url(f"/{n}") for n in range(10)],
            settings={
                **QUICK,
                **queue,
                "PACING_INTERVAL": 0.4,
                "PACING_FLOOR": 0.25,
                "PACING_EXITS": [one.url, two.url],
            },
            spider=SPIDER,
            mode=mode,
        )
        via = [arrival.headers["Via"] for arrival in site.log]
    assert via == ["1.1 one"] * 3 + ["1.1 two"] * 7
    assert len(one.seen) == 3
    assert len(result.ok()) == 7
    assert rotations(result) == {"refused": 1}
    assert min(site.gaps()) > 0.25 - SLACK
    if queue:
        assert result.stats["pacing/exit_changed"] >= 1


def test_two_refusals_and_a_success_between_move_nobody():
    """Refusals count in a row only: a page that is refused for its own sake says nothing about the address."""

    async def handler(request):
        return web.Response(status=403) if request.path.startswith("/no") else await ok(request)

    with Site(handler) as site, LocalProxy() as one, LocalProxy() as two:
        paths = ["/no/1", "/no/2", "/yes/1", "/no/3", "/no/4", "/yes/2", "/no/5", "/no/5", "/no/5"]
        given = json.dumps([{"url": site.url(path), "dont_filter": True} for path in paths])
        result = crawl(given=given, settings={**QUICK, "PACING_EXITS": [one.url, two.url]}, spider=ONE_BY_ONE)
    assert len(result.items) == 9
    assert rotations(result) == {}
    assert two.seen == []


def test_i067_users_of_one_gateway_are_exits_of_their_own():
    """I067: three users at one host and port are three exits; a ban of one leaves the other two where they are."""
    hosts = tuple(f"127.0.0.{n}" for n in range(1, 4))

    async def handler(request):
        return web.Response(status=403) if request.host.startswith("127.0.0.1:") else await ok(request)

    with Site(handler, hosts=hosts) as site, LocalProxy() as gateway:
        exits = [f"http://s{n}:pw@127.0.0.1:{gateway.port}" for n in (1, 2, 3)]
        urls = [site.url(f"/{n}", host) for n in range(6) for host in hosts]
        result = crawl(*urls, settings={**QUICK, "PACING_EXITS": exits}, spider=SPIDER)
        users = {host: [] for host in hosts}
        for note in gateway.seen:
            users[note.target.partition(":")[0]].append(note.proxy_authorization)
    assert len(result.items) == 18
    assert rotations(result)["refused"] >= 1
    assert len(set(users[hosts[0]])) >= 2
    assert [len(set(users[host])) for host in hosts[1:]] == [1, 1]
    assert len({users[host][0] for host in hosts}) == 3


def test_i071_after_a_rotation_a_kept_tunnel_is_not_used_again():
    """I071: https requests leave by the new exit's tunnel from the next one on, though the old tunnel is still open."""
    count = [0]

    async def handler(request):
        count[0] += 1
        return web.Response(status=403) if 2 <= count[0] <= 4 else await ok(request)

    with SecureSite(handler) as site, LocalProxy() as one, LocalProxy() as two:
        given = json.dumps([{"url": site.url(f"/{n}")} for n in range(8)])
        result = crawl(given=given, settings={**QUICK, "PACING_EXITS": [one.url, two.url]}, spider=ONE_BY_ONE)
        tunnels = [sum(proxy.connections_to.values()) for proxy in (one, two)]
    assert [item["status"] for item in result.items] == [200, 403, 403, 403, 200, 200, 200, 200]
    exits = [item["exit"] for item in result.items]
    assert len(set(exits[:4])) == len(set(exits[4:])) == 1
    assert exits[0] != exits[4]
    assert tunnels == [1, 1]


def test_i079_what_was_refused_together_is_one_piece_of_evidence():
    """I079: four refusals that were in flight together count once; with two pieces of evidence there is one rotation."""

    async def handler(request):
        if request.headers["Via"] == "1.1 two":
            return await ok(request)
        await asyncio.sleep(0.6)
        return web.Response(status=403)

    with Site(handler) as site, LocalProxy(via="one") as one, LocalProxy(via="two") as two:
        result = crawl(
            *[site.url(f"/{n}") for n in range(11)],
            settings={
                **QUICK,
                "PACING_INTERVAL": 0,
                "PACING_EXITS": [one.url, two.url],
                "PACING_BAN_AFTER": 2,
                "PACING_MAX_SESSIONS_PER_EXIT": 4,
            },
            spider=SPIDER,
        )
        seen = len(one.seen), len(two.seen)
    assert rotations(result) == {"refused": 1}
    # Room comes back one by one, so some of the second burst leave before the second piece of evidence is there.
    assert 5 <= seen[0] <= 8
    assert sum(seen) == 11
    assert len(result.items) == 11


def test_i082_a_rotated_origin_gets_a_new_cookie_jar_that_old_answers_do_not_fill():
    """I082: the cookie of the old address is not sent from the new one, not even when an old answer comes late."""

    async def handler(request):
        via = request.headers["Via"][-3:]
        if request.path == "/slow":
            await asyncio.sleep(1.5)
        status = 403 if request.path.startswith("/no") and via == "one" else 200
        answer = web.Response(status=status)
        answer.set_cookie("exit", via)
        return answer

    with Site(handler) as site, LocalProxy(via="one") as one, LocalProxy(via="two") as two:
        paths = ["/first", "/slow", "/no/1", "/no/2", "/no/3", "/a", "/b"]
        paths += [f"/later/{n}" for n in range(6)]
        given = json.dumps([{"url": site.url(path), "priority": -n} for n, path in enumerate(paths)])
        result = crawl(
            given=given,
            settings={**QUICK, "PACING_INTERVAL": 0.3, "PACING_FLOOR": 0.25, "PACING_EXITS": [one.url, two.url]},
            spider=SPIDER,
        )
        sent = [(arrival.path, arrival.headers["Via"][-3:], arrival.headers.get("Cookie")) for arrival in site.log]
    assert len(result.items) == len(paths)
    by_two = [(path, cookie) for path, via, cookie in sent if via == "two"]
    assert len(by_two) >= 6
    assert by_two[0][1] is None
    assert {cookie for _, cookie in by_two[1:]} <= {None, "exit=two"}
    assert by_two[-1][1] == "exit=two"
    assert "exit=one" in {cookie for _, via, cookie in sent if via == "one"}


@in_all_modes
def test_a_rotated_origin_is_arrived_at_through_the_front_door_again(mode):
    """After the move the site is visited as by somebody new: homepage first, no page in view, none of the cookies."""
    refuse = refuses("one", after=2)

    async def handler(request):
        answer = await refuse(request)
        answer.set_cookie("exit", request.headers["Via"][-3:])
        return answer

    with Site(handler) as site, LocalProxy(via="one") as one, LocalProxy(via="two") as two:
        result = crawl(
            *[site.url(f"/{n}") for n in range(8)],
            settings={
                **QUICK,
                "PACING_WARMUP": "always",
                "PACING_INTERVAL": 0.2,
                "PACING_EXITS": [one.url, two.url],
            },
            spider=SPIDER,
            mode=mode,
        )
        log = list(site.log)
    assert log[0].path == "/"
    assert log[0].headers["Via"] == "1.1 one"
    by_two = [arrival for arrival in log if arrival.headers["Via"] == "1.1 two"]
    assert by_two[0].path == "/"
    assert "Referer" not in by_two[0].headers
    assert "Cookie" not in by_two[0].headers
    assert {arrival.headers.get("Cookie") for arrival in by_two[1:]} == {"exit=two"}
    assert all(arrival.headers["Referer"].startswith(site.url("/")) for arrival in by_two[1:])
    assert len(result.items) == 8
    assert rotations(result) == {"refused": 1}


# -- no exit left --------------------------------------------------------------------------------------------------------


@in_all_modes
def test_i074_a_site_that_refuses_every_exit_is_said_loudly_and_holds_up_nobody(mode):
    """I074: with every exit refused the site's requests fail clearly, and soon; the other site gets all its pages."""
    hosts = ("127.0.0.1", "127.0.0.2")

    async def handler(request):
        return web.Response(status=403) if request.host.startswith("127.0.0.1:") else await ok(request)

    with Site(handler, hosts=hosts) as site, LocalProxy() as one, LocalProxy() as two:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(12) for host in hosts],
            settings={
                **QUICK,
                "PACING_EXITS": [one.url, two.url],
                "PACING_BAN_AFTER": 1,
                "PACING_EXIT_WAIT": 1,
            },
            spider=SPIDER,
            mode=mode,
        )
        refused = len(site.arrivals(host=hosts[0]))
    assert len(result.ok()) == 12
    failures = [item for item in result.items if "error" in item]
    assert {item["error"] for item in failures} == {"NoExitLeft"}
    assert len(failures) == 12 - refused
    assert 2 <= refused <= 4
    assert "no exit was left for http://127.0.0.1" in failures[0]["message"]
    assert result.log.count("NO EXIT IS LEFT for http://127.0.0.1") == 1
    assert result.log.count("Requests fail: no exit was left") == 1
    # The wait is the origin's, not each request's.
    assert result.seconds < 12


def test_i074_all_exits_dead_is_said_once_and_ends_the_rotation():
    """I074: with every proxy's port closed the crawl says so once, in capitals, and fails its requests in time."""
    with Site(hosts=("127.0.0.1", "127.0.0.2")) as site, closed_port() as one, closed_port() as two:
        result = crawl(
            *[site.url(f"/{n}", host) for n in range(3) for host in site.hosts],
            settings={**QUICK, "PACING_EXITS": [one, two], "PACING_EXIT_WAIT": 1},
            spider=SPIDER,
        )
    assert {item["error"] for item in result.items} == {"NoExitLeft"}
    assert len(result.items) == 6
    assert result.log.count("ALL EXITS ARE DEAD") == 1
    assert site.log == []


def test_a_dead_exit_is_probed_by_one_request_and_comes_back():
    """I080: after an outage of the only exit one request probes it; the gaps afterwards are those from before."""
    with Site() as site, LocalProxy() as only:
        job = [{"spider": SPIDER, "arguments": {"requests": requests(*[site.url(f"/{n}") for n in range(8)])}}]
        settings = {
            **QUICK,
            "PACING_INTERVAL": 0.4,
            "PACING_FLOOR": 0.3,
            "PACING_EXITS": [only.url],
            "PACING_EXIT_COOLDOWN": 1,
        }
        with running(job, settings) as under_way:
            wait_for(lambda: len(site.log) >= 3)
            only.die()
            time.sleep(1.5)
            before = len(site.log)
            only.revive()
            result = under_way.wait()
        gaps = site.gaps()
    assert len(result.ok()) == 8
    assert 3 <= before <= 5
    assert min(gaps) > 0.3 - SLACK
    assert max(item["faults"] for item in result.items) <= 3
    assert result.log.count("ALL EXITS ARE DEAD") == 1


def test_closing_ends_the_wait_for_an_exit(tmp_path):
    """A spider that closes while requests wait for an exit is closed at once, and JOBDIR keeps the requests."""
    job = tmp_path / "job"
    with Site() as site, closed_port() as dead, LocalProxy() as alive:
        urls = [site.url(f"/{n}") for n in range(4)]
        settings = {**QUICK, "JOBDIR": str(job), "PACING_EXITS": [dead]}
        first = crawl(*urls, settings={**settings, "CLOSESPIDER_TIMEOUT": 2}, spider=SPIDER)
        second = crawl(settings={**settings, "PACING_EXITS": [alive.url]}, given="[]", spider=SPIDER)
    assert first.items == []
    assert first.stats["reason"] == "closespider_timeout"
    assert first.seconds < 8
    assert len(second.ok()) == 4


# -- the pace ------------------------------------------------------------------------------------------------------------


def test_the_pace_is_the_sites_and_a_429_keeps_its_exit():
    """A site that always says 429 is asked more and more slowly, by one exit, until PACING_MAX_THROTTLES."""
    with Site(answers(429)) as site, LocalProxy() as one, LocalProxy() as two, LocalProxy() as three:
        result = crawl(
            site.url("/1"),
            settings={
                **QUICK,
                "PACING_MAX_INTERVAL": 300,
                "PACING_FLOOR": 0.04,
                "PACING_EXITS": [one.url, two.url, three.url],
                "PACING_MAX_THROTTLES": 4,
                "RETRY_ENABLED": False,
            },
        )
        gaps = site.gaps()
    assert len(site.log) == len(one.seen) == 5
    assert two.seen == three.seen == []
    assert result.stats["pacing/given_up"] == 1
    assert gaps[-1] > gaps[0]
    assert rotations(result) == {}


# -- one owner for each kind of retry ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "hits"),
    [
        # 403: nobody asks again. 503: Scrapy, twice. 429: ours, up to PACING_MAX_THROTTLES, and then Scrapy, twice.
        (403, 1),
        (503, 3),
        (429, 1 + 3 + 2),
    ],
)
def test_i077_each_kind_of_answer_has_one_owner_who_asks_again(status, hits):
    """I077: the exits add no tries of their own to 403, 429 and 503."""
    with Site(answers(status)) as site, LocalProxy() as one, LocalProxy() as two:
        settings = {**QUICK, "PACING_EXITS": [one.url, two.url], "RETRY_TIMES": 2, "PACING_MAX_THROTTLES": 3}
        result = crawl(site.url(), settings=settings, spider=SPIDER)
        assert len(site.log) == hits
    assert len(one.seen) == hits
    assert "pacing/exit_faults" not in result.stats


def test_i077_faults_of_exits_are_ours_up_to_a_limit_and_then_scrapys():
    """I077: PACING_MAX_EXIT_FAULTS bounds how often a request is sent back; dont_retry sends it back never."""
    with Site() as site, LocalProxy(own_status=502) as one, LocalProxy(own_status=502) as two:
        settings = {**QUICK, "PACING_EXITS": [one.url, two.url], "PACING_EXIT_COOLDOWN": 1, "RETRY_TIMES": 1}
        result = crawl(site.url(), settings={**settings, "PACING_MAX_EXIT_FAULTS": 2}, spider=SPIDER)
        hits = len(one.seen) + len(two.seen)
        one.seen.clear()
        two.seen.clear()
        given = json.dumps([{"url": site.url(), "meta": {"dont_retry": True}}])
        never = crawl(given=given, settings=settings, spider=SPIDER)
        assert len(one.seen) + len(two.seen) == 1
    assert hits == 1 + 2 + 1
    assert [item["status"] for item in result.items + never.items] == [502, 502]
    assert result.items[0]["faults"] == 2


def test_i076_ban_pages_behind_a_redirect_use_up_a_bounded_number_of_tries():
    """I076: with /captcha behind every exit, what the spider reports moves the origin, and its retries are counted."""

    async def handler(request):
        if request.path == "/captcha":
            return web.Response(text="<html>captcha</html>", content_type="text/html")
        return web.Response(status=302, headers={"Location": "/captcha"})

    with Site(handler) as site, LocalProxy() as one, LocalProxy() as two, LocalProxy() as three:
        result = crawl(
            site.url("/page"),
            settings={
                **QUICK,
                "PACING_EXITS": [one.url, two.url, three.url],
                "PACING_EXIT_WAIT": 1,
                "RETRY_TIMES": 2,
            },
            spider="tests.support.exit_spiders.BanningSpider",
        )
        hits = [len(site.arrivals(path)) for path in ("/page", "/captcha")]
        seen = [len(proxy.seen) for proxy in (one, two, three)]
    assert hits == [3, 3]
    assert seen == [2, 2, 2]
    assert [item["moved"] for item in result.items] == [True, True, False]
    assert rotations(result) == {"reported": 3}


def wait_for(condition, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
