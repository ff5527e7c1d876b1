"""How somebody who saves a memory is told that there is something to save, and how old a page's last download is."""

from __future__ import annotations

import pytest

from scrapy_pacing.core.memory import Memory
from scrapy_pacing.testing import FakeClock

ORIGIN = "https://example.com"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def memory(tmp_path, clock):
    return Memory(tmp_path / "memory.json", clock=clock)


def test_a_watcher_is_told_once_until_the_next_save(memory):
    """One call for the first thing learned, none for the next ones, and one again after each save."""
    calls = []
    memory.watch(lambda: calls.append(memory.dirty))
    memory.record_tier(ORIGIN, "http")
    memory.record_tier(ORIGIN, "browser")
    assert calls == [True]
    assert memory.flush()
    memory.record_tier(ORIGIN, "http")
    assert calls == [True, True]


def test_a_watcher_that_is_gone_is_told_nothing(memory):
    """Taking it away twice does no harm."""
    calls = []
    watcher = calls.append
    memory.watch(watcher)
    memory.unwatch(watcher)
    memory.unwatch(watcher)
    memory.record_tier(ORIGIN, "http")
    assert calls == []


def test_saving_what_is_clean_makes_room_for_the_next_change(memory):
    """A change that was saved before its watcher was told does not silence the ones that follow."""
    calls = []
    memory.watch(lambda: calls.append(1))
    memory.record_tier(ORIGIN, "http")
    memory.flush()
    memory._changed()
    assert memory.flush()
    memory.record_tier(ORIGIN, "browser")
    assert len(calls) == 3


def test_a_page_keeps_the_time_of_its_last_download(memory, clock):
    """A 304 refreshes what is known, and not when the page was last there in full; a 200 does both."""
    page = f"{ORIGIN}/page"
    memory.record_validators(page, etag=b'"a"')
    first = clock.wall()
    clock.advance(1000)
    memory.record_validators(page, status=304)
    known = memory.validators(page)
    assert (known.full_at, known.at) == (first, clock.wall())
    memory.flush()
    assert Memory(memory.path, clock=clock).validators(page) == known
    clock.advance(1000)
    memory.record_validators(page, etag=b'"a"')
    assert memory.validators(page).full_at == clock.wall()
