"""A crawl of very many sites stays small, and forgets nothing that somebody still waits for."""

from __future__ import annotations

import pytest

from scrapy_pacing import Learned, Pacer, PacingPolicy
from scrapy_pacing.core.pace import Pace
from scrapy_pacing.testing import FakeClock, seeded

SITES = 100_000
LIMIT = 4096


def origins(count: int) -> list[str]:
    return [f"https://site-{number}.example" for number in range(count)]


def make(clock: FakeClock, limit: int = LIMIT, lessons: object = None) -> Pacer:
    policy = PacingPolicy(interval=1, pause_probability=0)
    return Pacer(policy, clock=clock, source=seeded(), max_origins=limit, lessons=lessons)  # type: ignore[arg-type]


def test_a_hundred_thousand_sites_fit_in_the_limit() -> None:
    """However many sites a crawl visits, no more than `max_origins` of them are in memory once their gap has passed."""
    clock = FakeClock()
    pacer = make(clock)
    largest = 0
    for origin in origins(SITES):
        pacer.land(pacer.depart(origin))
        clock.advance(1)
        largest = max(largest, len(pacer))

    # A gap of this policy lasts 6 seconds at the most, and so many sites are never dropped.
    assert LIMIT // 2 < largest <= LIMIT + 6


def test_holds_outlive_a_hundred_thousand_other_sites() -> None:
    """A site that asked for an hour gets it, whatever the crawl does meanwhile."""
    clock = FakeClock()
    pacer = make(clock)
    held = [f"https://held-{number}.example" for number in range(500)]
    for origin in held[::2]:
        pacer.throttled(origin, 3600)
    for origin in held[1::2]:
        pacer.postpone(origin, 3600)
    for origin in origins(SITES):
        pacer.land(pacer.depart(origin))
        clock.advance(0.01)

    assert len(pacer) <= LIMIT
    for origin in held:
        assert pacer.next_delay(origin) >= 3600 - SITES * 0.01 - 1
    assert all(pacer.interval(origin) == 300 for origin in held[::2])


def test_requests_in_flight_outlive_a_hundred_thousand_other_sites() -> None:
    """An answer that takes very long still finds its site, with its count and its epoch."""
    clock = FakeClock()
    pacer = make(clock)
    slow = {f"https://slow-{number}.example": 0 for number in range(500)}
    departures = [pacer.depart(origin) for origin in slow]
    for origin in origins(SITES):
        pacer.land(pacer.depart(origin))
        clock.advance(1)

    assert len(pacer) <= LIMIT
    assert all(pacer.in_flight(origin) == 1 for origin in slow)
    for departure in departures:
        pacer.land(departure)
        lesson = pacer.throttled(departure.origin, departure=departure)
        assert lesson is not None
        assert lesson.new == 2


def test_sites_that_all_still_wait_are_all_kept() -> None:
    """Where every site is within its gap none may be dropped; once they are idle, memory shrinks again."""
    clock = FakeClock()
    pacer = make(clock, 100)
    sites = origins(1000)
    for origin in sites:
        pacer.land(pacer.depart(origin))
    assert len(pacer) == 1000
    assert all(pacer.next_delay(origin) > 0 for origin in sites)

    clock.advance(100)
    for origin in [f"https://late-{number}.example" for number in range(200)]:
        pacer.land(pacer.depart(origin))
        clock.advance(10)
    assert len(pacer) <= 100


def test_the_longest_unused_go_first_and_the_learned_last() -> None:
    """What was learned is kept longer than what any new visit would find out, and fresh sites longer than old ones."""
    clock = FakeClock()
    pacer = make(clock, 100)
    sites = origins(100)
    for origin in sites[:10]:
        pacer.throttled(origin)
    for origin in sites:
        pacer.land(pacer.depart(origin))
        clock.advance(100)
    pacer.land(pacer.depart("https://one-more.example"))

    assert all(pacer.interval(origin) == 2 for origin in sites[:10])
    assert [pacer.ready_at(origin) > 0 for origin in sites[10:]] == [False] * 25 + [True] * 65


def test_a_pruned_site_comes_back_from_memory() -> None:
    """Where a memory keeps what was learned, a site that was dropped is as slow as before when it is met again."""

    class Notebook(dict[str, Learned]):
        recall = dict.get

        def record(self, origin: str, learned: Learned) -> None:
            self[origin] = learned

    clock = FakeClock()
    pacer = make(clock, 10, Notebook())
    pacer.throttled("https://slow.example", 60)
    clock.advance(5000)
    for origin in origins(50):
        pacer.land(pacer.depart(origin))
        clock.advance(100)
    assert len(pacer) <= 10

    assert pacer.interval("https://slow.example") == 60


def test_questions_about_unknown_sites_fill_no_memory() -> None:
    """Looking at a site that was never visited leaves nothing behind."""
    pacer = make(FakeClock(), 10)
    for origin in origins(1000):
        pacer.next_delay(origin)
        pacer.ready_at(origin)
        pacer.interval(origin)
        pacer.hold(origin)
        pacer.in_flight(origin)
        pacer.eased(origin)
        pacer.failed(origin)

    assert len(pacer) == 0


def test_a_limit_of_one_works() -> None:
    """The smallest limit forgets a site as soon as the next one comes, once its gap has passed."""
    clock = FakeClock()
    pacer = make(clock, 1)
    for origin in origins(20):
        pacer.land(pacer.depart(origin))
        clock.advance(100)
        assert len(pacer) == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int) -> None:
    """The message names the value and what is allowed."""
    with pytest.raises(ValueError, match=rf"^max_origins is {limit}; allowed: 1 or more$"):
        Pacer(max_origins=limit)


def test_sites_that_all_wait_cost_no_more_the_more_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Departing to many sites that all still wait looks at each of them a few times, however many there are."""
    looks = 0
    is_idle = Pace.is_idle

    def counting(pace: Pace, now: float) -> bool:
        nonlocal looks
        looks += 1
        return is_idle(pace, now)

    monkeypatch.setattr(Pace, "is_idle", counting)
    pacer = make(FakeClock())
    for origin in origins(80_000):
        pacer.depart(origin)

    assert looks < 20 * 80_000
