"""What is known of homepages, and which requests want one visited first."""

from __future__ import annotations

import pytest
from scrapy import FormRequest, Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import JsonRequest
from scrapy.http.request import NO_CALLBACK

from scrapy_pacing import Layer, Memory, Pacer, PacingPolicy, SharedState
from scrapy_pacing.arriving.doors import RETRY_FAILED_AFTER, FrontDoors, door_of
from scrapy_pacing.testing import FakeClock
from tests.support.road import Road, page

SHOP = "https://shop.example"
ONE, TWO = object(), object()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def doors(clock):
    return FrontDoors(clock, max_doors=3)


def wanting(state=None, **settings):
    """A crawl that warms up, and the question whether it would."""
    road = Road(state, **{"PACING_WARMUP": "always", **settings})

    def wants(request, **arguments):
        asked = Request(request, **arguments) if isinstance(request, str) else request
        return road.pacing._warmups.is_wanted(asked, SHOP)

    return road, wants


def test_a_visit_without_cookies_counts_for_every_crawl(doors, clock):
    """Where a homepage gave nothing, any crawl of the process has arrived."""
    doors.visited(SHOP, ONE, cookies=False)
    clock.advance(5)
    assert doors.last_visit(SHOP, TWO) == clock.wall() - 5


def test_a_visit_with_cookies_counts_for_its_own_jar_only(doors):
    """Another crawl has another jar, so the site does not know it."""
    doors.visited(SHOP, ONE, cookies=True)
    assert doors.last_visit(SHOP, ONE) is not None
    assert doors.last_visit(SHOP, TWO) is None
    doors.leave(ONE)
    assert doors.last_visit(SHOP, ONE) is None


def test_a_failure_is_said_once_and_not_tried_again_for_a_while(doors, clock):
    """A broken homepage is not asked for by each request."""
    assert doors.failed(SHOP) is True
    assert doors.failed_lately(SHOP)
    clock.advance(RETRY_FAILED_AFTER)
    assert not doors.failed_lately(SHOP)
    assert doors.failed(SHOP) is False
    doors.visited(SHOP, ONE, cookies=False)
    assert not doors.failed_lately(SHOP)


def test_what_is_known_is_bounded(doors):
    """However many sites a crawl sees, no more doors are kept than allowed."""
    for number in range(10):
        doors.visited(f"https://h{number}.example", ONE, cookies=False)
        doors.visited(f"https://h{number}.example", ONE, cookies=True)
        doors.failed(f"https://f{number}.example")
        doors.inherits(f"https://h{number}.example", f"https://h{number}.example")
    assert len(doors) == 3
    assert doors.last_visit("https://h0.example", ONE) is None
    assert doors.last_visit("https://h9.example", ONE) is not None
    assert len(doors._with_cookies[ONE]) == 3
    assert len(doors._heirs) <= 3


def test_each_jar_has_a_door_of_its_own():
    """meta cookiejar makes another visitor, of whatever type it is."""
    doors = {door_of(Request(SHOP, meta={"cookiejar": jar}), SHOP) for jar in (None, 0, "0", 1, ("a", 1))}
    assert len(doors) == 5


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (Request(f"{SHOP}/item"), True),
        (Request(f"{SHOP}/?page=2"), True),
        (Request(f"{SHOP}/"), False),
        (Request(f"{SHOP}/#top"), False),
        (Request(SHOP), False),
        (Request(f"{SHOP}/robots.txt"), False),
        (Request(f"{SHOP}/item", meta={"dont_warmup": True}), False),
        (Request(f"{SHOP}/item", meta={"navigation": False}), False),
        (Request(f"{SHOP}/item", meta={"pacing_warmup": SHOP}), False),
        (Request(f"{SHOP}/item", callback=NO_CALLBACK), False),
        (Request(f"{SHOP}/item", headers={"Accept": "application/json"}), False),
        (JsonRequest(f"{SHOP}/api", data={}), False),
        (FormRequest(f"{SHOP}/login", formdata={"a": "b"}), False),
        (Request(f"{SHOP}/item", method="HEAD"), False),
    ],
    ids=str,
)
def test_which_requests_arrive_through_the_homepage(request_, wanted):
    """Pages do; the homepage, sub-resources, robots.txt, what is sent and what the spider exempts do not."""
    _, wants = wanting()
    assert wants(request_) is wanted


def test_a_homepage_that_the_crawl_itself_got_counts():
    """Who starts at the homepage needs no other visit; a failed one does not count."""
    road, wants = wanting()
    broken = Request(f"{SHOP}/")
    road.ask(broken)
    road.answer(broken, page(f"{SHOP}/", status=500))
    assert wants(f"{SHOP}/item")
    road.visit(f"{SHOP}/")
    assert not wants(f"{SHOP}/item")
    assert wants(f"{SHOP}/item", meta={"cookiejar": 1})
    assert wants("https://www.shop.example/item")


def redirected_home(road, start, *targets, **arguments):
    """Get a homepage that redirects; return the page that it ends at."""
    request = Request(start, **arguments)
    road.ask(request)
    for target in targets:
        request = road.redirect(request, target)
        road.ask(request)
    return road.answer(request, page(request.url))


@pytest.mark.parametrize(
    ("targets", "visited", "unvisited"),
    [
        ([f"{SHOP}/en/"], [SHOP], ["https://www.shop.example"]),
        (["https://www.shop.example/"], [SHOP, "https://www.shop.example"], ["http://shop.example"]),
        (["https://www.shop.example/en/"], [SHOP, "https://www.shop.example"], ["http://shop.example"]),
        (["https://other.example2/"], ["https://other.example2"], [SHOP]),
    ],
    ids=str,
)
def test_a_homepage_that_redirects_counts_where_it_began_and_ended(targets, visited, unvisited):
    """Who starts at a homepage is not sent there again by its redirect within the site."""
    road, wants = wanting()
    redirected_home(road, f"{SHOP}/", *targets)
    assert [wants(f"{origin}/item") for origin in visited] == [False] * len(visited)
    assert [wants(f"{origin}/item") for origin in unvisited] == [True] * len(unvisited)
    assert wants(f"{visited[0]}/item", meta={"cookiejar": 1})


def test_copied_redirects_make_no_visit_young():
    """meta=response.meta brings a homepage's redirects to other pages, whose visit grows old all the same."""
    clock = FakeClock()
    state = SharedState(Pacer(PacingPolicy(interval=0), clock=clock))
    road, wants = wanting(state, PACING_WARMUP_TTL=100)
    got = redirected_home(road, f"{SHOP}/", f"{SHOP}/en/")
    clock.advance(90)
    road.visit(f"{SHOP}/item", meta=dict(got.meta))
    clock.advance(11)
    assert wants(f"{SHOP}/item")


def test_the_mark_of_another_crawl_is_not_believed():
    """A request that was warmed and then kept on disk comes to a crawl whose jar is empty: it is warmed anew."""
    one, _ = wanting()
    _, wants = wanting()
    mark = one.pacing._warmups._warmed(SHOP)
    assert wants(f"{SHOP}/item", meta={"pacing_warmed": mark})
    assert wants(f"{SHOP}/item", meta={"pacing_warmed": SHOP})
    assert not one.pacing._warmups.is_wanted(Request(f"{SHOP}/item", meta={"pacing_warmed": mark}), SHOP)


@pytest.mark.parametrize("url", ["https://other.example2/", "https://other.example2/x?y", "http://127.0.0.1/"])
@pytest.mark.parametrize("door", [SHOP, f"{SHOP} 'jar'"])
def test_a_warm_up_never_leaves_for_another_site(url, door):
    """However it was sent there: a request of another site that is a warm-up's is dropped, and costs no gap."""
    road, _ = wanting()
    with pytest.raises(IgnoreRequest, match="not followed to"):
        road.ask(Request(url, meta={"pacing_warmup": door}))
    assert "pacing/requests" not in road.crawler.stats.get_stats()
    assert road.ask(Request("http://www.shop.example/en/", meta={"pacing_warmup": door}))


def test_a_visit_grows_old():
    """After warmup_ttl the crawl arrives anew, by the policy of the site."""
    clock = FakeClock()
    state = SharedState(Pacer(PacingPolicy(interval=0), clock=clock))
    _, wants = wanting(state, PACING_WARMUP_TTL=100, PACING_ORIGINS={"shop.example": {"warmup_ttl": 10}})
    state.doors.visited(SHOP, None, cookies=False)
    assert not wants(f"{SHOP}/item")
    clock.advance(11)
    assert wants(f"{SHOP}/item")


def test_the_modes(tmp_path):
    """never warms nothing; learned only what memory knows to judge by behaviour."""
    _, wants = wanting(PACING_WARMUP="never")
    assert not wants(f"{SHOP}/item")
    memory = Memory(tmp_path / "memory.json")
    state = SharedState.create(PacingPolicy(interval=0), memory=memory)
    _, wants = wanting(state, PACING_WARMUP="learned")
    assert not wants(f"{SHOP}/item")
    memory.record_layer(SHOP, Layer.HEADERS)
    assert not wants(f"{SHOP}/item")
    memory.record_layer(SHOP, Layer.BEHAVIOUR)
    assert wants(f"{SHOP}/item")


def test_an_earlier_runs_visit_counts_unless_it_left_cookies(tmp_path):
    """Memory tells that the site was visited; a jar that was filled then is empty now."""
    memory = Memory(tmp_path / "memory.json")
    first = SharedState.create(PacingPolicy(interval=0), memory=memory)
    road, _ = wanting(first)
    road.visit(f"{SHOP}/", headers={"Set-Cookie": "visit=1"})
    road.visit("https://plain.example/")

    _, wants = wanting(SharedState.create(PacingPolicy(interval=0), memory=memory))
    assert wants(f"{SHOP}/item")
    assert not wants("https://plain.example/item")
    # Another jar, or another exit, was not there.
    assert wants("https://plain.example/item", meta={"cookiejar": 1})


def test_without_cookies_a_visit_counts_whatever_was_given(tmp_path):
    """COOKIES_ENABLED = False: there is no jar that could lack something."""
    memory = Memory(tmp_path / "memory.json")
    road, _ = wanting(SharedState.create(PacingPolicy(interval=0), memory=memory), COOKIES_ENABLED=False)
    road.visit(f"{SHOP}/", headers={"Set-Cookie": "visit=1"})
    _, wants = wanting(SharedState.create(PacingPolicy(interval=0), memory=memory))
    assert not wants(f"{SHOP}/item")
