"""What a memory keeps of a site and its pages, and what it refuses to keep."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Cookie, Memory, fingerprint
from scrapy_pacing.core.pacer import Pacer
from scrapy_pacing.core.policy import PacingPolicy
from scrapy_pacing.testing import FakeClock, seeded

ORIGIN = "https://example.com"
PAGE = "https://example.com/a?b=1"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pacing" / "memory.json"


@pytest.fixture
def memory(path, clock):
    return Memory(path, clock=clock)


def reopened(memory: Memory, clock: FakeClock, **options) -> Memory:
    assert memory.flush(), memory.take_notices()
    assert not memory.take_notices()
    return Memory(memory.path, clock=clock, **options)


# -- pace ---------------------------------------------------------------------------------------------------------------


def test_pacer_starts_where_the_last_run_ended(memory, clock):
    """A learned interval and the rest of a hold are there after a restart (I064)."""
    Pacer(PacingPolicy(interval=4.0), clock=clock, source=seeded(), lessons=memory).throttled(ORIGIN, 60)
    clock.advance(10)
    pacer = Pacer(PacingPolicy(interval=4.0), clock=clock, lessons=reopened(memory, clock))
    assert pacer.interval(ORIGIN) == 60
    assert pacer.next_delay(ORIGIN) == pytest.approx(50)


def test_ended_hold_is_gone(memory, clock):
    """A hold that has passed delays nobody, in memory or in the file."""
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 30, 30.0))
    clock.advance(31)
    assert memory.recall(ORIGIN) == Learned(5.0)
    reopened(memory, clock)
    assert '"hold"' not in memory.path.read_text()


def test_hold_is_never_shortened(memory, clock):
    """A lesson without a hold, or with a shorter one, leaves the promised wait."""
    until = clock.wall() + 100
    memory.record(ORIGIN, Learned(5.0, until, 100.0))
    memory.record(ORIGIN, Learned(6.0, clock.wall() + 10, 10.0))
    memory.record(ORIGIN, Learned(7.0))
    assert memory.recall(ORIGIN) == Learned(7.0, until, 100.0)


def test_support_is_counted(memory):
    """How often an interval was widened and eased can be read."""
    for interval in (5.0, 10.0, 9.0, 8.0):
        memory.record(ORIGIN, Learned(interval))
    pace = memory.pace(ORIGIN)
    assert (pace.interval, pace.widened, pace.eased) == (8.0, 2, 2)


@pytest.mark.parametrize("learned", [Learned(math.inf), Learned(math.nan), Learned(-1.0), Learned(1.0, math.inf)])
def test_impossible_numbers_are_not_kept(memory, learned):
    """A number that no file could hold leaves things as they were."""
    memory.record(ORIGIN, learned)
    assert memory.recall(ORIGIN) is None
    assert not memory.dirty


def test_unknown_origin(memory):
    """Nothing is known of a new site, and asking makes no record."""
    assert memory.recall(ORIGIN) is None
    assert memory.layer(ORIGIN) is memory.tier(ORIGIN) is memory.exit_of(ORIGIN) is memory.pace(ORIGIN) is None
    assert memory.last_seen(ORIGIN) is memory.last_warmed(ORIGIN) is memory.validators(PAGE) is None
    assert memory.clearance(PAGE, user_agent="a") is None
    assert not memory.is_decoy(PAGE)
    assert memory.endpoints(ORIGIN) == {}
    assert memory.decoys(ORIGIN) == []
    assert len(memory) == 0
    assert not memory.dirty


# -- visits, layer, tier, exit ------------------------------------------------------------------------------------------


def test_what_bound_and_what_worked(memory, clock):
    """Layer, tier and exit are known in the next run, and can be unlearned."""
    memory.record_layer(ORIGIN, Layer.CHALLENGE)
    memory.record_tier(ORIGIN, "browser")
    memory.record_exit(ORIGIN, "exit-3")
    again = reopened(memory, clock)
    assert (again.layer(ORIGIN), again.tier(ORIGIN), again.exit_of(ORIGIN)) == (Layer.CHALLENGE, "browser", "exit-3")
    clock.advance(1)
    again.record_layer(ORIGIN, None)
    again.record_tier(ORIGIN, None)
    again.record_exit(ORIGIN, None)
    last = reopened(again, clock)
    assert last.layer(ORIGIN) is last.tier(ORIGIN) is last.exit_of(ORIGIN) is None


def test_visits(memory, clock):
    """When a site was visited, and when through its front door, survives."""
    memory.record_visit(ORIGIN, warmed=True)
    warmed = clock.wall()
    clock.advance(500)
    memory.record_visit(ORIGIN)
    again = reopened(memory, clock)
    assert again.last_warmed(ORIGIN) == warmed
    assert again.last_seen(ORIGIN) == warmed + 500


def test_a_stream_of_visits_is_not_a_stream_of_saves(memory, clock):
    """Requests to a known site within a minute give no reason to write the file again."""
    memory.record_visit(ORIGIN)
    assert memory.flush()
    clock.advance(30)
    memory.record_visit(ORIGIN)
    assert not memory.dirty
    assert memory.last_seen(ORIGIN) == clock.wall()
    clock.advance(31)
    memory.record_visit(ORIGIN)
    assert memory.dirty


def test_learning_the_same_again_is_no_news(memory, clock):
    """Recording per answer costs nothing while it says what is known."""
    for _ in range(2):
        memory.record_layer(ORIGIN, 3)
        memory.record_tier(ORIGIN, "http")
        memory.record_endpoint(ORIGIN, "https://api.example.com/x.json", kind="application/json")
        memory.mark_decoy(PAGE)
        memory.record_validators(PAGE, etag=b'"a"')
        assert memory.dirty == (not memory.path.exists())
        assert memory.flush()
    clock.advance(61)
    memory.record_tier(ORIGIN, "http")
    assert memory.dirty


# -- clearances ---------------------------------------------------------------------------------------------------------


def test_clearance_is_bound_to_its_identity(memory, clock):
    """A clearance comes back to the same user agent, exit and origin only."""
    cookie = Cookie("cf_clearance", "value", "example.com", expires=clock.wall() + 100)
    assert memory.record_clearance(PAGE, [cookie], user_agent="agent", exit_id="e1")
    again = reopened(memory, clock)
    assert again.clearance("https://example.com/other", user_agent="agent", exit_id="e1").cookies == (cookie,)
    assert again.clearance(PAGE, user_agent="agent", exit_id="e2") is None
    assert again.clearance(PAGE, user_agent="other", exit_id="e1") is None
    assert again.clearance("http://example.com/a", user_agent="agent", exit_id="e1") is None
    assert again.clearance("https://www.example.com/a", user_agent="agent", exit_id="e1") is None


def test_clearance_expires(memory, clock):
    """What has expired is not presented: each cookie by itself, and the whole."""
    cookies = [Cookie("a", "1", expires=clock.wall() + 10), Cookie("b", "2", expires=clock.wall() + 20)]
    memory.record_clearance(PAGE, [*cookies, Cookie("s", "session")], user_agent="u", expires=clock.wall() + 30)
    clock.advance(15)
    assert [c.name for c in memory.clearance(PAGE, user_agent="u").cookies] == ["b", "s"]
    clock.advance(15)
    assert memory.clearance(PAGE, user_agent="u") is None


def test_clearance_without_expiry_ages(path, clock):
    """A session cookie is not believed for ever, even where the site is visited daily."""
    memory = Memory(path, clock=clock, forget_after=100)
    memory.record_clearance(PAGE, [Cookie("s", "v")], user_agent="u")
    for _ in range(3):
        clock.advance(40)
        memory.record_visit(ORIGIN)
    assert memory.clearance(PAGE, user_agent="u") is None


def test_forgotten_clearance(memory, clock):
    """A clearance that was refused is not tried again in the next run."""
    memory.record_clearance(PAGE, [Cookie("s", "v")], user_agent="u")
    again = reopened(memory, clock)
    clock.advance(1)
    again.forget_clearance(PAGE)
    assert again.clearance(PAGE, user_agent="u") is None
    assert reopened(again, clock).clearance(PAGE, user_agent="u") is None
    assert '"v"' not in again.path.read_text()


@pytest.mark.parametrize(
    "cookies",
    [
        [],
        [Cookie(f"c{n}", "v") for n in range(17)],
        [Cookie("c", "v" * 4097)],
        [Cookie("n" * 300, "v")],
        [Cookie("c", "\udcff")],
        [Cookie("c", "v", expires=math.inf)],
    ],
    ids=["none", "many", "long value", "long name", "surrogate", "endless"],
)
def test_unfit_clearances_are_not_kept(memory, cookies):
    """A server can't fill the file with cookies."""
    assert not memory.record_clearance(PAGE, cookies, user_agent="u")
    assert not memory.dirty


# -- validators ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "etag",
    [
        b'"a"',
        b'W/"a"',
        b"a",
        b"'a'",
        b'""',
        b'"a,b"',
        b'"caf\xe9"',
        b'"\xff\xfe\x80"',
        b' "a"',
        b'"' + b"x" * 1022 + b'"',
    ],
)
def test_validators_come_back_byte_for_byte(memory, clock, etag):
    """An ETag is echoed as the server wrote it, valid or not (I105)."""
    assert memory.record_validators(PAGE, etag=etag, last_modified=b"Wed, 21 Oct 2015 07:28:00 CET")
    found = reopened(memory, clock).validators(PAGE)
    assert found.etag == etag
    assert found.last_modified == b"Wed, 21 Oct 2015 07:28:00 CET"
    assert found.status == 200


@pytest.mark.parametrize("etag", [b"*", b" * ", b'"a\r\nX: y"', b'"a\x00"', b'"a\x7f"', b"", b'"' + b"x" * 8192 + b'"'])
def test_unfit_etags_are_not_kept(memory, etag):
    """A bare star, control characters and 8 KB are not stored; a Last-Modified beside them is (I105)."""
    assert not memory.record_validators(PAGE, etag=etag)
    assert memory.validators(PAGE) is None
    assert memory.record_validators(PAGE, etag=etag, last_modified=b"date")
    assert (memory.validators(PAGE).etag, memory.validators(PAGE).last_modified) == (None, b"date")


def test_every_200_replaces_and_every_304_refreshes(memory, clock):
    """The next request shows what the last answer brought, whichever of the two changed (I104)."""
    memory.record_validators(PAGE, etag=b'"1"', last_modified=b"d1")
    memory.record_validators(PAGE, etag=b'"2"', last_modified=b"d1")
    assert memory.validators(PAGE).etag == b'"2"'
    assert memory.record_validators(PAGE, etag=b'"3"', status=304)
    found = reopened(memory, clock).validators(PAGE)
    assert (found.etag, found.last_modified, found.status) == (b'"3"', b"d1", 304)
    assert memory.record_validators(PAGE, status=304)
    assert memory.validators(PAGE).etag == b'"3"'


def test_a_page_without_validators_is_forgotten(memory, clock):
    """A 200 that brings none makes the old ones void, in the next run too."""
    memory.record_validators(PAGE, etag=b'"1"')
    again = reopened(memory, clock)
    clock.advance(1)
    assert not again.record_validators(PAGE)
    assert again.validators(PAGE) is None
    assert reopened(again, clock).validators(PAGE) is None


@pytest.mark.parametrize("status", [404, 403, 503, 206, 301, 304])
def test_errors_teach_no_validators(memory, status):
    """An ETag of an error, or a 304 to what was never known, is not kept (I118)."""
    assert not memory.record_validators(PAGE, etag=b'"x"', status=status)
    assert memory.validators(PAGE) is None
    memory.record_validators(PAGE, etag=b'"1"')
    if status != 304:
        memory.record_validators(PAGE, etag=b'"x"', status=status)
        assert memory.validators(PAGE).etag == b'"1"'


def test_varying_fields_are_kept(memory, clock):
    """What the answer varied by is known, so that it is only used for the same request (I115)."""
    vary = {"Accept-Language": fingerprint(b"de"), "Cookie": fingerprint(b"secret=1")}
    memory.record_validators(PAGE, etag=b'"1"', vary=vary)
    memory.record_validators(PAGE, etag=b'"2"', status=304)
    found = reopened(memory, clock).validators(PAGE)
    assert found.vary == {"accept-language": fingerprint(b"de"), "cookie": fingerprint(b"secret=1")}
    assert "secret" not in memory.path.read_text()


@pytest.mark.parametrize("vary", [{f"x-{n}": "v" for n in range(17)}, {"x" * 300: "v"}, {"x": "v" * 300}])
def test_endless_vary_means_no_validators(memory, vary):
    """What varies by more than can be kept is asked for in full."""
    assert not memory.record_validators(PAGE, etag=b'"1"', vary=vary)
    assert memory.validators(PAGE) is None


def test_url_as_a_key(memory):
    """Fragment, default port, case of the host and userinfo make no other page; the query does."""
    memory.record_validators("HTTPS://user:pw@EXAMPLE.com:443/a?b=1#frag", etag=b'"1"')
    assert memory.validators(PAGE) is not None
    assert memory.validators("https://example.com/a?b=2") is None
    assert memory.validators("http://example.com/a?b=1") is None
    memory.flush()
    assert "pw" not in memory.path.read_text()


@pytest.mark.parametrize("url", ["data:text/html,x", "mailto:x", "", "/relative", "https://e.com/" + "x" * 3000])
def test_urls_that_are_not_kept(memory, url):
    """Other schemes and endless URLs are no keys."""
    assert not memory.record_validators(url, etag=b'"1"')
    assert not memory.mark_decoy(url)
    assert not memory.is_decoy(url)
    assert not memory.record_endpoint(ORIGIN, url)
    assert not memory.record_clearance(url, [Cookie("a", "b")], user_agent="u")
    memory.forget_clearance(url)
    memory.forget_validators(url)
    assert memory.clearance(url, user_agent="u") is memory.validators(url) is None
    assert not memory.dirty


# -- endpoints and decoys -----------------------------------------------------------------------------------------------


def test_endpoints(memory, clock):
    """The data behind a page is known by URL and kind, on whatever host it is."""
    memory.record_endpoint(ORIGIN, "https://u:p@api.example.com/v1?q=1#x", kind="application/json")
    memory.record_endpoint(ORIGIN, "https://example.com/feed")
    assert reopened(memory, clock).endpoints(ORIGIN) == {
        "https://api.example.com/v1?q=1": "application/json",
        "https://example.com/feed": "",
    }


def test_decoys(memory, clock):
    """A link that only a robot would follow is known in the next run."""
    assert memory.mark_decoy("https://example.com/trap#now")
    again = reopened(memory, clock)
    assert again.is_decoy("https://example.com/trap")
    assert not again.is_decoy("https://example.com/")
    assert not again.is_decoy("https://example.org/trap")
    assert again.decoys(ORIGIN) == ["/trap"]


@pytest.mark.parametrize("path_", ["", "/", "/?", "/robots.txt", "/robots.txt#x"])
def test_robots_txt_and_the_homepage_are_no_decoys(memory, path_):
    """Whoever says so: without them no site can be crawled as it wants to be."""
    assert not memory.mark_decoy(ORIGIN + path_)
    assert not memory.is_decoy(ORIGIN + path_)
    assert memory.mark_decoy(f"{ORIGIN}/robots.txt/x")


def test_robots_txt_in_an_older_file_is_no_decoy(path, clock):
    """A mark that was kept before it was known to be none does no harm."""
    path.parent.mkdir()
    path.write_text(
        '{"schema":1,"origins":{"https://example.com":'
        '{"seen":1799999999,"decoys":{"/":{"at":1},"/robots.txt":{"at":1},"/trap":{"at":1}}}}}'
    )
    memory = Memory(path, clock=clock)
    assert [memory.is_decoy(ORIGIN + target) for target in ("/", "/robots.txt", "/trap")] == [False, False, True]
    assert memory.decoys(ORIGIN) == ["/trap"]


@pytest.mark.parametrize("by_page", [True, False])
def test_a_decoy_that_is_none_stays_none(memory, clock, by_page):
    """What a page has shown, or the spider has said, outlives what another process still has in the file."""
    url = f"{ORIGIN}/contact"
    memory.mark_decoy(url, found=True)
    other = reopened(memory, clock)
    assert other.is_decoy(url)
    assert memory.note_shown(url) if by_page else memory.forget_decoy(url)
    other.mark_decoy(f"{ORIGIN}/trap")
    assert other.flush()
    again = reopened(memory, clock)
    assert again.decoys(ORIGIN) == ["/trap"]
    assert not again.is_decoy(url)
    assert not again.mark_decoy(url, found=True)
    assert again.mark_decoy(url)
    assert again.is_decoy(url)


def test_a_decoy_can_be_forgotten_before_it_is_found(memory):
    """The spider's word counts more than markup, in either direction."""
    assert not memory.forget_decoy(f"{ORIGIN}/a")
    assert not memory.mark_decoy(f"{ORIGIN}/a", found=True)
    assert memory.mark_decoy(f"{ORIGIN}/b")
    assert not memory.note_shown(f"{ORIGIN}/b")
    assert memory.is_decoy(f"{ORIGIN}/b")
    assert memory.forget_decoy(f"{ORIGIN}/b")
    assert not memory.is_decoy(f"{ORIGIN}/b")
    assert not memory.forget_decoy("mailto:x@example.com")
    assert not memory.note_shown("mailto:x@example.com")


def test_what_pages_show_is_noted_within_bounds(memory, monkeypatch):
    """A site of endless pages fills no memory with the links that they show, and nothing of it is saved."""
    monkeypatch.setattr("scrapy_pacing.core.memory.pages._MOST_SHOWN", 3)
    for number in range(10):
        memory.note_shown(f"{ORIGIN}/{number}")
    found = [number for number in range(10) if memory.mark_decoy(f"{ORIGIN}/{number}", found=True)]
    assert found == list(range(7))


@pytest.mark.parametrize("kind", ["validators", "endpoints", "decoys"])
def test_pages_are_bounded(path, clock, kind):
    """However many pages a site has, only the last recorded stay, in memory and in the file."""
    memory = Memory(path, clock=clock, max_validators=3, max_endpoints=3, max_decoys=3)

    def put(page: int) -> None:
        url = f"{ORIGIN}/{page}"
        if kind == "validators":
            memory.record_validators(url, etag=b'"%d"' % page)
        elif kind == "endpoints":
            memory.record_endpoint(ORIGIN, url)
        else:
            memory.mark_decoy(url)
        clock.advance(100)

    def kept(store: Memory) -> list[int]:
        if kind == "validators":
            return [page for page in range(10) if store.validators(f"{ORIGIN}/{page}")]
        if kind == "endpoints":
            return [page for page in range(10) if f"{ORIGIN}/{page}" in store.endpoints(ORIGIN)]
        return [page for page in range(10) if store.is_decoy(f"{ORIGIN}/{page}")]

    for page in (0, 1, 2, 3, 4):
        put(page)
    assert kept(memory) == [2, 3, 4]
    put(2)
    put(5)
    assert kept(memory) == [2, 4, 5]
    assert kept(reopened(memory, clock)) == [2, 4, 5]
    assert len(kept(reopened(memory, clock, max_validators=1, max_endpoints=1, max_decoys=1))) == 1


@settings(max_examples=200)
@given(st.text(max_size=60), st.text(max_size=60), st.binary(max_size=40))
def test_no_text_raises(tmp_path_factory, origin, url, value):
    """Nothing that a server sends can raise or make a file that can't be read."""
    memory = Memory(tmp_path_factory.getbasetemp() / "any" / "memory.json", clock=FakeClock())
    for target in (url, f"https://{url}", f"https://example.com/{url}"):
        memory.record_validators(target, etag=value, last_modified=value, vary={origin: url})
        memory.mark_decoy(target)
        memory.record_endpoint(origin, target, kind=origin)
        memory.record_clearance(target, [Cookie(origin, url, url, url)], user_agent=origin, exit_id=url)
    memory.record(origin, Learned(5.0))
    memory.record_layer(origin, len(value))
    memory.record_tier(origin, url)
    memory.record_visit(origin, warmed=True)
    assert memory.flush()
    assert Memory(memory.path, clock=FakeClock()).last_seen(origin) == memory.last_seen(origin)
    assert not memory.take_notices()


def test_surrogates_are_no_keys(memory):
    """A text that has no UTF-8 form is not kept, and does not spoil the next save."""
    memory.record("\ud800", Learned(5.0))
    memory.record_visit("\ud800")
    memory.record_tier(ORIGIN, "\ud800")
    memory.mark_decoy("https://example.com/\ud800")
    assert not memory.dirty


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_origins", 0),
        ("max_validators", -1),
        ("max_decoys", 1.5),
        ("max_endpoints", True),
        ("max_megabytes", "8"),
        ("forget_after", 0),
        ("forget_after", math.inf),
        ("forget_after", math.nan),
        ("lock_wait", -1),
        ("lock_wait", None),
    ],
)
def test_bad_options_are_named(path, option, value):
    """A bad bound is refused with its name, its value and what is allowed."""
    with pytest.raises(ValueError, match=rf"{option} is .*; allowed: "):
        Memory(path, **{option: value})


def test_layers_of_other_versions():
    """A number that is no layer is no knowledge."""
    assert [Layer.of(number) for number in (1, 8, 0, 9, None)] == [Layer.ADDRESS, Layer.BEHAVIOUR, None, None, None]
    assert [layer for layer in Layer if layer.reads_history] == [Layer.BEHAVIOUR]


def test_the_evidence_about_a_limit_is_kept(tmp_path):
    """What refusals have shown of a site's limit comes back from the file as it was recorded."""
    clock = FakeClock()
    learned = Learned(2.5, sustained=1.2, wall=0.9, refusals=3, sure=True, shut=30.0, refused_at=clock.wall() - 5)
    with_file = Memory(tmp_path / "memory.json", clock=clock)
    with_file.record("https://a.example", learned)
    assert with_file.flush()

    again = Memory(tmp_path / "memory.json", clock=clock).recall("https://a.example")

    assert again == learned


def test_evidence_that_makes_no_sense_is_not_kept(tmp_path):
    """A number that is none, or negative, is recorded nowhere."""
    memory = Memory(tmp_path / "memory.json", clock=FakeClock())
    memory.record("https://a.example", Learned(2.5, sustained=float("nan"), refusals=1))
    memory.record("https://b.example", Learned(2.5, wall=-1.0, refusals=1))

    assert memory.recall("https://a.example") is None
    assert memory.recall("https://b.example") is None
