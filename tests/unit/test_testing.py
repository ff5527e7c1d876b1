"""The helpers that the package ships for tests, its users' among them."""

from __future__ import annotations

import random

import pytest

from scrapy_pacing.core.clock import Clock, SystemClock
from scrapy_pacing.testing import FakeClock, seeded


def test_a_fake_clock_stands_still_until_it_is_moved() -> None:
    """Reading it takes no time; advancing it moves both clocks by the same."""
    clock = FakeClock(monotonic=5.0, wall=100.0)
    assert [clock.monotonic() for _ in range(3)] == [5.0] * 3
    clock.advance(2.5)
    clock.advance(0)

    assert (clock.monotonic(), clock.wall()) == (7.5, 102.5)


def test_a_fake_clock_never_turns_back() -> None:
    """A negative advance would be something that no monotonic clock does."""
    clock = FakeClock(monotonic=5.0)
    with pytest.raises(ValueError, match=r"^seconds is -1; allowed: 0 or more"):
        clock.advance(-1)

    assert clock.monotonic() == 5.0


def test_the_wall_clock_steps_alone() -> None:
    """Setting the wall clock, back or forth, leaves the monotonic one alone."""
    clock = FakeClock(monotonic=5.0)
    for wall in (1.0, 2_000_000_000.0):
        clock.set_wall(wall)
        assert (clock.monotonic(), clock.wall()) == (5.0, wall)


def test_a_seeded_source_repeats_and_is_its_own() -> None:
    """The same seed draws the same numbers, another one others, and the global module is not touched."""
    state = random.getstate()
    first, again, other = seeded(3), seeded(3), seeded(4)
    numbers = [first.random() for _ in range(5)]

    assert numbers == [again.random() for _ in range(5)]
    assert numbers != [other.random() for _ in range(5)]
    assert seeded().random() == seeded(0).random()
    assert random.getstate() == state


def test_the_system_clock_runs() -> None:
    """The real clock is a clock too: monotonic time only grows, and the wall clock is past the year 2020."""
    clock: Clock = SystemClock()
    before = clock.monotonic()

    assert clock.monotonic() >= before
    assert clock.wall() > 1_577_836_800
    assert repr(clock) == "SystemClock()"
