"""Age, size and clocks that step: what is kept stays true and bounded."""

from __future__ import annotations

import json

import pytest

from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Cookie, Memory
from scrapy_pacing.core.pacer import Pacer
from scrapy_pacing.core.policy import PacingPolicy
from scrapy_pacing.testing import FakeClock

ORIGIN = "https://example.com"
PAGE = f"{ORIGIN}/"
DAY = 86_400.0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.json"


def test_old_origins_are_forgotten(path, clock):
    """A site not seen for a week is a new one, in memory, in the file, and after a restart."""
    memory = Memory(path, clock=clock)
    memory.record_layer(ORIGIN, Layer.BROWSER)
    memory.record_layer("https://fresh.example", Layer.BROWSER)
    assert memory.flush()
    clock.advance(6 * DAY)
    memory.record_visit("https://fresh.example")
    clock.advance(1 * DAY + 1)
    assert memory.layer(ORIGIN) is None
    assert memory.layer("https://fresh.example") is Layer.BROWSER
    assert memory.flush()
    assert "example.com" not in path.read_text()
    clock.advance(8 * DAY)
    assert len(Memory(path, clock=clock)) == 0


def test_age_goes_before_size(path, clock):
    """An old conclusion is dropped although there is room for it."""
    memory = Memory(path, clock=clock, max_origins=1000, forget_after=10)
    memory.record_layer(ORIGIN, Layer.BROWSER)
    clock.advance(11)
    memory.record_layer("https://other.example", Layer.BROWSER)
    assert memory.flush()
    assert Memory(path, clock=clock).origins() == ["https://other.example"]


def test_least_recently_seen_go_first(path, clock):
    """Beyond the bound the sites go that were not seen for longest (I065)."""
    memory = Memory(path, clock=clock, max_origins=3)
    for name in "abcd":
        memory.record(f"https://{name}", Learned(5.0))
        clock.advance(1)
    memory.record_visit("https://b")
    for name in "ef":
        clock.advance(1)
        memory.record(f"https://{name}", Learned(5.0))
    assert memory.flush()
    assert sorted(Memory(path, clock=clock).origins()) == ["https://b", "https://e", "https://f"]


def test_memory_is_bounded_between_saves(path, clock):
    """Ten times as many sites as allowed do not pile up until somebody saves (I065)."""
    memory = Memory(path, clock=clock, max_origins=80)
    most = 0
    for number in range(800):
        memory.record_visit(f"https://h{number}.example")
        clock.advance(1)
        most = max(most, len(memory))
    assert most <= 91
    assert memory.flush()
    assert len(Memory(path, clock=clock)) == 80


def test_a_hold_is_the_last_to_go(path, clock):
    """A site that asked to be left alone is not forgotten for the sake of room, or of age (I065)."""
    memory = Memory(path, clock=clock, max_origins=2, forget_after=100)
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 1000, 1000.0))
    for number in range(20):
        clock.advance(20)
        memory.record_visit(f"https://h{number}.example")
        assert memory.flush()
        memory = Memory(path, clock=clock, max_origins=2, forget_after=100)
    assert memory.recall(ORIGIN).asked == 1000
    clock.advance(1000)
    assert memory.recall(ORIGIN) is None


def test_more_holds_than_room(path, clock):
    """Not even holds grow without bound; those that end soonest go."""
    memory = Memory(path, clock=clock, max_origins=5)
    for number in range(50):
        memory.record(f"https://h{number}.example", Learned(5.0, clock.wall() + 100 + number, 100.0))
    assert memory.flush()
    assert sorted(Memory(path, clock=clock).origins()) == [f"https://h{number}.example" for number in range(45, 50)]


def test_endless_hold_is_capped(path, clock):
    """A server's 300 years do not make its site unforgettable."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 1e10, 1e10))
    assert memory.recall(ORIGIN).hold_until == clock.wall() + 7 * DAY


def test_endless_hold_in_a_file_is_capped(path, clock):
    """Nor does a number in the file: it holds for a week from when it was learned, and the site is forgotten."""
    now = clock.wall()
    record = {"seen": now, "hold": {"at": now, "until": 1e18, "asked": 1e18}}
    path.write_text(json.dumps({"schema": 1, "origins": {ORIGIN: record}}))
    assert Memory(path, clock=clock).recall(ORIGIN).hold_until == now + 7 * DAY
    memory = Memory(path, clock=clock)
    clock.advance(7 * DAY + 1)
    assert memory.recall(ORIGIN) is None
    assert memory.flush()
    assert Memory(path, clock=clock).origins() == []


def test_bytes_are_bounded(path, clock):
    """A trap of endless hosts with long pages can't fill the disk; the last seen stay."""
    memory = Memory(path, clock=clock, max_megabytes=1)
    for host in range(30):
        for page in range(100):
            memory.record_validators(f"https://h{host}.example/{page}", etag=b"%d" % page + b"x" * 800)
        clock.advance(1)
    assert memory.flush()
    assert path.stat().st_size < 1.01 * (1 << 20)
    kept = Memory(path, clock=clock).origins()
    assert 5 < len(kept) < 30
    assert kept[-1] == "https://h29.example"


def test_hold_after_the_clock_was_set_back(path, clock):
    """Thirty seconds stay thirty seconds although the clock is now a day early (I062)."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 30, 30.0))
    assert memory.flush()
    early = FakeClock(wall=clock.wall() - DAY)
    again = Memory(path, clock=early)
    assert again.recall(ORIGIN) == Learned(5.0, early.wall() + 30, 30.0)
    assert Pacer(PacingPolicy(), clock=early, lessons=again).next_delay(ORIGIN) == pytest.approx(30)
    assert again.flush()
    early.advance(20)
    assert Memory(path, clock=early).recall(ORIGIN).hold_until == early.wall() + 10


def test_hold_after_the_clock_was_set_forward(path, clock):
    """A day later by the clock the hold has ended, and the interval is still known (I062)."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 30, 30.0))
    assert memory.flush()
    assert Memory(path, clock=FakeClock(wall=clock.wall() + DAY)).recall(ORIGIN) == Learned(5.0)


def test_what_is_learned_after_a_step_back_wins(path, clock):
    """Facts dated into the future do not outrank what is learned now, not even by way of the file (I062)."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0))
    memory.record_layer(ORIGIN, Layer.HEADERS)
    memory.record_clearance(PAGE, [Cookie("c", "old", expires=clock.wall() + 60)], user_agent="u")
    memory.record_validators(PAGE, etag=b'"old"')
    assert memory.flush()
    stale = path.read_bytes()

    early = FakeClock(wall=clock.wall() - 3 * DAY)
    again = Memory(path, clock=early)
    assert again.last_seen(ORIGIN) == early.wall()
    assert again.clearance(PAGE, user_agent="u").cookies[0].expires == early.wall() + 60
    early.advance(5)
    again.record(ORIGIN, Learned(9.0))
    again.record_layer(ORIGIN, Layer.BROWSER)
    again.record_validators(PAGE, etag=b'"new"')
    # Another process puts the old facts back meanwhile, with another mark of its save.
    path.write_bytes(stale.replace(b'"save":"', b'"save":"x', 1))
    early.advance(5)
    assert again.flush()
    last = Memory(path, clock=early)
    assert last.recall(ORIGIN) == Learned(9.0)
    assert last.layer(ORIGIN) is Layer.BROWSER
    assert last.validators(PAGE).etag == b'"new"'


def test_future_origins_age_like_others(path, clock):
    """A file from the future does not stay for ever because it is renewed at each start (I062)."""
    memory = Memory(path, clock=clock)
    memory.record_visit(ORIGIN)
    assert memory.flush()
    early = FakeClock(wall=clock.wall() - 365 * DAY)
    again = Memory(path, clock=early)
    assert again.dirty
    assert again.flush()
    early.advance(8 * DAY)
    assert len(Memory(path, clock=early)) == 0


def test_step_back_within_a_run(path, clock):
    """Ages and order stay sensible when the clock steps while the crawl runs (I062)."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0, clock.wall() + 30, 30.0))
    clock.set_wall(clock.wall() - DAY)
    assert memory.last_seen(ORIGIN) == clock.wall()
    assert memory.recall(ORIGIN).hold_until == clock.wall() + 30
    memory.record_visit(ORIGIN, warmed=True)
    assert memory.last_warmed(ORIGIN) == clock.wall()
    assert memory.flush()
    assert Memory(path, clock=clock).recall(ORIGIN).hold_until == clock.wall() + 30
