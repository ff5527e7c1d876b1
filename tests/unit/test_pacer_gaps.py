"""A pacer never lets a request leave early, asks nothing twice, and is irregular for anyone."""

from __future__ import annotations

import math
import random

import pytest

from scrapy_pacing import Pacer, PacingPolicy
from scrapy_pacing.testing import FakeClock, seeded

ORIGIN = "https://example.com"
OTHER = "https://example.org"


class CountingSource(random.Random):
    """A random source that counts how often anything was drawn."""

    draws = 0

    def random(self) -> float:
        self.draws += 1
        return super().random()

    def gammavariate(self, alpha: float, beta: float) -> float:
        self.draws += 1
        return super().gammavariate(alpha, beta)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(monotonic=1000.0)


def test_the_first_request_to_a_site_leaves_at_once(clock: FakeClock) -> None:
    """Nothing is known of a site yet, so there is nothing to wait for."""
    pacer = Pacer(clock=clock)

    assert pacer.next_delay(ORIGIN) == 0.0
    assert pacer.ready_at(ORIGIN) == -math.inf
    assert pacer.interval(ORIGIN) == 4.0
    assert len(pacer) == 0


def test_the_gap_is_measured_from_the_departure(clock: FakeClock) -> None:
    """Time that has passed since the last departure is taken off, to the last moment and not beyond."""
    pacer = Pacer(clock=clock, source=seeded(1))
    departure = pacer.depart(ORIGIN)
    gap = pacer.next_delay(ORIGIN)

    assert departure.at == 1000.0
    assert gap >= 0.4
    clock.advance(gap / 2)
    assert pacer.next_delay(ORIGIN) == pytest.approx(gap / 2)
    clock.advance(gap)
    assert pacer.next_delay(ORIGIN) == 0.0


def test_asking_again_draws_nothing(clock: FakeClock) -> None:
    """However often the queue looks, the gap stays the one that was drawn: looking makes no crawl slower."""
    source = CountingSource(3)
    pacer = Pacer(clock=clock, source=source)
    pacer.depart(ORIGIN)
    drawn, ready = source.draws, pacer.ready_at(ORIGIN)

    for _ in range(100):
        assert pacer.ready_at(ORIGIN) == ready
        pacer.next_delay(ORIGIN)
        pacer.interval(ORIGIN)
        pacer.hold(ORIGIN)
        pacer.in_flight(ORIGIN)
        clock.advance(0.001)
    assert source.draws == drawn


def test_leaving_early_never_shortens_the_gap_that_was_promised(clock: FakeClock) -> None:
    """A departure that did not wait (an unpaced request) may lengthen the wait of the next one, never shorten it."""
    pacer = Pacer(clock=clock, source=seeded(2))
    ready = -math.inf
    for _ in range(200):
        pacer.depart(ORIGIN)
        assert pacer.ready_at(ORIGIN) >= ready
        ready = pacer.ready_at(ORIGIN)
        clock.advance(0.01)


def test_sites_wait_for_themselves_only(clock: FakeClock) -> None:
    """A departure to one site, or its refusal, makes no other site wait."""
    pacer = Pacer(clock=clock)
    pacer.depart(ORIGIN)
    pacer.throttled(ORIGIN, 600)

    assert pacer.next_delay(OTHER) == 0.0
    assert pacer.interval(OTHER) == 4.0


def test_an_interval_of_zero_costs_nothing_until_a_refusal(clock: FakeClock) -> None:
    """With interval 0 requests leave one after the other, and no number is drawn; a refusal teaches a gap."""
    source = CountingSource(1)
    pacer = Pacer(PacingPolicy(interval=0, first_interval=2.0), clock=clock, source=source)
    for _ in range(100):
        assert pacer.next_delay(ORIGIN) == 0.0
        pacer.depart(ORIGIN)
    assert source.draws == 0
    assert pacer.gap(ORIGIN) == 0.0

    lesson = pacer.throttled(ORIGIN)
    assert lesson is not None
    assert (lesson.old, lesson.new) == (0, 2.0)
    assert pacer.next_delay(ORIGIN) >= 0.2


def test_seeding_the_global_random_module_changes_nothing(clock: FakeClock) -> None:
    """Unrelated code that seeds `random` does not make the gaps of a crawl predictable."""
    state = random.getstate()
    try:
        runs = []
        for _ in range(2):
            random.seed(1)  # noqa: TID251 - the very thing that must not matter
            pacer = Pacer(clock=clock)
            runs.append([pacer.gap(ORIGIN) for _ in range(20)])
        again = Pacer(clock=clock)
        before = random.getstate()
        again.gap(ORIGIN)
        again.depart(ORIGIN)
        assert random.getstate() == before
    finally:
        random.setstate(state)
    assert runs[0] != runs[1]


def test_a_seeded_source_repeats_the_gaps(clock: FakeClock) -> None:
    """For tests, the same seed draws the same gaps."""
    first, second = (Pacer(clock=clock, source=seeded(5)) for _ in range(2))

    assert [first.gap(ORIGIN) for _ in range(50)] == [second.gap(ORIGIN) for _ in range(50)]


def test_a_pacer_without_a_clock_runs_on_the_machines_own() -> None:
    """Outside of tests nobody has to pass a clock."""
    pacer = Pacer(PacingPolicy(interval=3600, pause_probability=0))
    pacer.depart(ORIGIN)

    assert 300 < pacer.next_delay(ORIGIN) <= 6 * 3600


def test_requests_in_flight_are_counted_until_they_land(clock: FakeClock) -> None:
    """Each departure counts until its answer or failure has come; a landing too many does not count below zero."""
    pacer = Pacer(clock=clock)
    first, second = pacer.depart(ORIGIN), pacer.depart(ORIGIN)
    assert pacer.in_flight(ORIGIN) == 2
    pacer.land(first)
    pacer.land(second)
    pacer.land(second)
    assert pacer.in_flight(ORIGIN) == 0
    assert pacer.in_flight(OTHER) == 0


# -- watchers -----------------------------------------------------------------------------------------------------------


def test_watchers_hear_of_every_move_of_a_deadline(clock: FakeClock) -> None:
    """Departure, landing, refusal and postponement are told, with the origin; questions and old news are not."""
    pacer = Pacer(clock=clock)
    heard: list[str] = []
    pacer.watch(heard.append)

    departure = pacer.depart(ORIGIN)
    assert heard == [ORIGIN]
    pacer.land(departure)
    assert heard == [ORIGIN] * 2
    pacer.throttled(ORIGIN, 30, departure=departure)
    assert heard == [ORIGIN] * 3
    pacer.throttled(ORIGIN, 60, departure=departure)
    assert heard == [ORIGIN] * 4, "a longer hold moves the deadline, though it teaches nothing else"
    pacer.postpone(ORIGIN, 90)
    assert heard == [ORIGIN] * 5
    pacer.postpone(ORIGIN, 1)
    pacer.throttled(ORIGIN, 1, departure=departure)
    pacer.next_delay(ORIGIN)
    assert heard == [ORIGIN] * 5


def test_a_watcher_that_left_hears_nothing(clock: FakeClock) -> None:
    """After `unwatch` there are no more calls; leaving twice is no error."""
    pacer = Pacer(clock=clock)
    heard: list[str] = []
    pacer.watch(heard.append)
    pacer.unwatch(heard.append)
    pacer.unwatch(heard.append)
    pacer.depart(ORIGIN)

    assert heard == []


def test_a_watcher_may_leave_while_it_is_called(clock: FakeClock) -> None:
    """A watcher that stops watching from inside its own call keeps no other one from hearing the news."""
    pacer = Pacer(clock=clock)
    heard: list[str] = []

    def once(origin: str) -> None:
        pacer.unwatch(once)

    pacer.watch(once)
    pacer.watch(heard.append)
    pacer.depart(ORIGIN)

    assert heard == [ORIGIN]
