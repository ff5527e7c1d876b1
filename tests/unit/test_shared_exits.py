"""The exit pools of a process: one for each list of exits, and word of every rotation to whoever asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.settings import Settings

from scrapy_pacing import Pacer, PacingPolicy, SharedState
from scrapy_pacing.core.exits import Exit, ExitPool, parse_exits
from scrapy_pacing.exits import read_exit_settings
from scrapy_pacing.testing import FakeClock

if TYPE_CHECKING:
    import pytest

KEY = bytes(16)
ORIGIN = "http://site.example"


def make_state() -> SharedState:
    return SharedState(Pacer(PacingPolicy(interval=1), clock=FakeClock()))


def exits(*urls: str) -> tuple[Exit, ...]:
    return parse_exits(list(urls), key=KEY).exits


def pool_of(state: SharedState, *urls: str, **values: object) -> ExitPool:
    return state.exits.pool(exits(*urls), read_exit_settings(Settings(values)), max_origins=10)


ONE, TWO, THREE = (f"http://192.0.2.{n}:8000" for n in (1, 2, 3))


def test_crawls_with_the_same_exits_share_a_pool_in_whatever_order_they_name_them() -> None:
    """An origin that one spider has leased an exit keeps it for the next spider."""
    state = make_state()
    pool = pool_of(state, ONE, TWO)
    assert pool_of(state, TWO, ONE) is pool
    assert pool_of(make_state(), ONE, TWO) is not pool


def test_other_exits_are_another_pool_and_an_overlap_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """No crawl leaves by an exit that it did not name; that the clamp then holds for each list is said."""
    state = make_state()
    pool = pool_of(state, ONE)
    with caplog.at_level(logging.WARNING):
        assert pool_of(state, THREE) is not pool
        assert caplog.text == ""
        assert pool_of(state, ONE, TWO) is not pool
    assert "in a different list" in caplog.text


def test_a_changed_password_is_not_ignored() -> None:
    """The same user at the same gateway with a new password leaves with the new one."""
    state = make_state()
    pool = pool_of(state, "http://ann:old@192.0.2.1:8000")
    lease = pool_of(state, "http://ann:new@192.0.2.1:8000").lease(ORIGIN)
    assert lease is not None
    assert lease.exit.url == "http://ann:new@192.0.2.1:8000"
    assert lease.exit in [each.exit for each in pool.stats()]


def test_other_numbers_for_a_shared_pool_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """The first crawl's clamp holds, and the second one hears of it."""
    state = make_state()
    pool_of(state, ONE, PACING_MAX_SESSIONS_PER_EXIT=1)
    with caplog.at_level(logging.WARNING):
        assert pool_of(state, ONE, PACING_MAX_SESSIONS_PER_EXIT=3).max_sessions_per_exit == 1
    assert "stay as the first crawl of this process has set them, 1 and 3" in caplog.text


def test_lists_come_and_go_in_bounded_memory() -> None:
    """A process that makes up a new list for every crawl keeps a few."""
    state = make_state()
    for number in range(100):
        pool_of(state, f"http://192.0.2.1:{8000 + number}")
    assert len(state.exits._pools) == 16


def test_every_rotation_is_told_once_with_its_origin() -> None:
    """Whoever keeps something for an origin as a visitor knows it hears when the origin becomes a stranger there."""
    state = make_state()
    rotated: list[str] = []
    state.on_rotation(rotated.append)
    pool = pool_of(state, ONE, TWO)
    lease = pool.lease(ORIGIN)
    assert lease is not None
    session = pool.acquire(lease)
    assert session is not None
    pool.succeeded(session)
    assert rotated == []
    pool.report_ban(ORIGIN, lease=lease)
    pool.report_ban(ORIGIN, lease=lease)
    assert rotated == [ORIGIN]
