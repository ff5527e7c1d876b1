"""What makes the gaps of a site longer for a while: trouble, slow answers, a stated quota, a robots.txt."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing import Pacer, PacingPolicy
from scrapy_pacing.core.ratelimit_fields import robots_gap
from scrapy_pacing.testing import FakeClock, seeded

ORIGIN = "https://example.com"
OTHER = "https://example.org"
NONSENSE = [-1, 0, -math.inf, math.nan]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(monotonic=1000.0)


def make(clock: FakeClock, **fields: float) -> Pacer:
    return Pacer(PacingPolicy(**{"interval": 1.0, "pause_probability": 0, **fields}), clock=clock, source=seeded(1))


# -- trouble ------------------------------------------------------------------------------------------------------------


def test_three_failures_in_a_row_widen_the_gaps_and_each_further_one_does(clock: FakeClock) -> None:
    """A site that fails again and again is asked less and less; the learned interval stays what it is (I016)."""
    pacer = make(clock)
    lessons = [pacer.troubled(ORIGIN) for _ in range(5)]

    assert lessons[:2] == [None, None]
    assert [(lesson.old, lesson.new) for lesson in lessons[2:] if lesson] == [(1, 2), (2, 4), (4, 8)]
    assert pacer.mean_gap(ORIGIN) == 8
    assert pacer.interval(ORIGIN) == 1
    assert pacer.next_delay(ORIGIN) > 0


def test_a_success_in_between_starts_the_row_again_and_forgives_nothing(clock: FakeClock) -> None:
    """Now and then a failure is normal; and one page that came through does not end the trouble of a site."""
    pacer = make(clock)
    for _ in range(5):
        pacer.troubled(ORIGIN)
        pacer.troubled(ORIGIN)
        pacer.eased(ORIGIN)
    assert pacer.mean_gap(ORIGIN) == 1
    for _ in range(3):
        pacer.troubled(ORIGIN)
    pacer.eased(ORIGIN)

    assert pacer.mean_gap(ORIGIN) == 2


def test_a_quiet_time_forgives(clock: FakeClock) -> None:
    """Ten minutes after the last failure the site has its pace back, and the row starts again (I016)."""
    pacer = make(clock, trouble_quiet=600)
    for _ in range(6):
        pacer.troubled(ORIGIN)
    clock.advance(599)
    assert pacer.mean_gap(ORIGIN) == 16
    clock.advance(1)

    assert pacer.mean_gap(ORIGIN) == 1
    assert pacer.troubled(ORIGIN) is None


def test_what_was_under_way_when_a_site_broke_down_counts_once(clock: FakeClock) -> None:
    """Twenty requests that time out together are one lesson, not eighteen."""
    pacer = make(clock)
    flying = [pacer.depart(ORIGIN) for _ in range(20)]
    clock.advance(30)
    lessons = [pacer.troubled(ORIGIN, departure=departure) for departure in flying]

    assert sum(lesson is not None for lesson in lessons) == 1
    assert pacer.mean_gap(ORIGIN) == 2


def test_endless_failures_stop_at_the_cap(clock: FakeClock) -> None:
    """A site that is down for a day is still asked every `max_interval` seconds on average."""
    pacer = make(clock)
    for _ in range(3000):
        pacer.troubled(ORIGIN)

    assert pacer.mean_gap(ORIGIN) == 300


def test_a_crawl_without_gaps_gets_one_by_trouble(clock: FakeClock) -> None:
    """With `interval=0` the first widening is `first_interval`."""
    pacer = make(clock, interval=0, first_interval=1.5)
    for _ in range(3):
        pacer.troubled(ORIGIN)

    assert pacer.mean_gap(ORIGIN) == 1.5


# -- slow answers -------------------------------------------------------------------------------------------------------


def test_a_slow_site_is_not_asked_faster_than_it_answers(clock: FakeClock) -> None:
    """Answers of 5 s make the mean gap 5 s, whatever the interval is; quick ones change nothing."""
    pacer = make(clock)
    pacer.answered(ORIGIN, 0.2)
    assert pacer.mean_gap(ORIGIN) == 1
    for _ in range(60):
        pacer.answered(ORIGIN, 5)

    assert pacer.mean_gap(ORIGIN) == pytest.approx(5, rel=0.01)
    assert pacer.interval(ORIGIN) == 1
    assert pacer.mean_gap(OTHER) == 1


def test_one_slow_answer_among_many_hardly_counts(clock: FakeClock) -> None:
    """The time of an answer is smoothed."""
    pacer = make(clock)
    for _ in range(20):
        pacer.answered(ORIGIN, 2)
    pacer.answered(ORIGIN, 10)

    assert pacer.mean_gap(ORIGIN) == 3


def test_errors_never_lower_the_floor(clock: FakeClock) -> None:
    """Errors are quick; ten of them in 5 ms make no slow site look fast (I022)."""
    pacer = make(clock)
    for _ in range(10):
        pacer.answered(ORIGIN, 4)
    for _ in range(10):
        pacer.answered(ORIGIN, 0.005, served=False)
    assert pacer.mean_gap(ORIGIN) == 4
    pacer.answered(ORIGIN, 60, served=False)

    assert pacer.mean_gap(ORIGIN) > 4


def test_the_factor_scales_the_floor_or_switches_it_off(clock: FakeClock) -> None:
    """`latency_factor` says how many answers' time a gap lasts."""
    double, off = make(clock, latency_factor=2), make(clock, latency_factor=0)
    for pacer in (double, off):
        pacer.answered(ORIGIN, 3)

    assert double.mean_gap(ORIGIN) == 6
    assert off.mean_gap(ORIGIN) == 1


@pytest.mark.parametrize("seconds", [10.0**9, math.inf])
def test_an_endless_answer_is_capped(clock: FakeClock, seconds: float) -> None:
    """The floor is `max_interval` at the most."""
    pacer = make(clock)
    pacer.answered(ORIGIN, seconds)

    assert pacer.mean_gap(ORIGIN) == 300


# -- quotas -------------------------------------------------------------------------------------------------------------


def test_a_quota_is_spread_over_its_time(clock: FakeClock) -> None:
    """10 requests for 60 s are a mean gap of 6 s, until the minute has passed."""
    pacer = make(clock)
    pacer.quota(ORIGIN, 10, 60)
    assert pacer.mean_gap(ORIGIN) == 6
    assert pacer.interval(ORIGIN) == 1
    pacer.quota(ORIGIN, 9, 45)
    assert pacer.mean_gap(ORIGIN) == 5
    clock.advance(45)

    assert pacer.mean_gap(ORIGIN) == 1


def test_an_ample_quota_makes_nobody_faster(clock: FakeClock) -> None:
    """A thousand requests for a minute do not beat the interval that the user set."""
    pacer = make(clock)
    pacer.quota(ORIGIN, 1000, 60)

    assert pacer.mean_gap(ORIGIN) == 1


def test_an_empty_quota_is_a_hold(clock: FakeClock) -> None:
    """With nothing left nothing leaves until the reset; the interval stays."""
    pacer = make(clock)
    pacer.quota(ORIGIN, 0, 50)

    assert pacer.next_delay(ORIGIN) == 50
    assert pacer.interval(ORIGIN) == 1


def test_a_hostile_quota_is_capped(clock: FakeClock) -> None:
    """Nobody can hold a crawl for longer than `max_hold`, or stretch its gaps beyond `max_interval`."""
    pacer = make(clock)
    pacer.quota(ORIGIN, 1, 1e9)
    assert pacer.mean_gap(ORIGIN) == 300
    clock.advance(3600)
    assert pacer.mean_gap(ORIGIN) == 1
    pacer.quota(ORIGIN, 0, math.inf)

    assert pacer.next_delay(ORIGIN) == 3600


@pytest.mark.parametrize(("remaining", "seconds"), [(-1, 5), (math.nan, 5), (5, 0), (0, 0), (0, -1), (0, math.nan)])
def test_a_quota_of_nonsense_is_none(clock: FakeClock, remaining: float, seconds: float) -> None:
    """Negative numbers, no time and NaN say nothing."""
    pacer = make(clock)
    pacer.quota(ORIGIN, remaining, seconds)

    assert pacer.next_delay(ORIGIN) == 0
    assert pacer.mean_gap(ORIGIN) == 1


def test_a_crawl_that_is_told_its_quota_is_never_refused() -> None:
    """60 a minute, stated with every answer: at an interval of 0.1 s no request is one too many."""
    clock = FakeClock()
    pacer = make(clock, interval=0.1)
    window, left = 0.0, 60
    for _ in range(400):
        while (delay := pacer.next_delay(ORIGIN)) > 0:
            clock.advance(max(delay, math.ulp(clock.monotonic())))
        now = clock.monotonic()
        if now >= window + 60:
            window, left = now - now % 60, 60
        pacer.land(pacer.depart(ORIGIN))
        left -= 1
        assert left >= 0
        pacer.quota(ORIGIN, left, window + 60 - now)

    assert 400 / clock.monotonic() > 0.85


# -- robots.txt ---------------------------------------------------------------------------------------------------------


def gaps(pacer: Pacer, clock: FakeClock, count: int = 200) -> list[float]:
    times = []
    for _ in range(count):
        while (delay := pacer.next_delay(ORIGIN)) > 0:
            clock.advance(max(delay, math.ulp(clock.monotonic())))
        times.append(pacer.depart(ORIGIN).at)
    return [later - sooner for sooner, later in pairwise(times)]


def test_the_larger_of_crawl_delay_and_gap_counts(clock: FakeClock) -> None:
    """No gap is shorter than the Crawl-delay, and the longer ones stay as they are drawn (I100)."""
    pacer = make(clock)
    pacer.minimum(ORIGIN, robots_gap(0.5))
    seen = gaps(pacer, clock)

    assert min(seen) >= 0.5 - 1e-9
    assert max(seen) > 1.5
    assert len(set(seen)) > 100
    assert pacer.interval(ORIGIN) == 1


def test_a_long_crawl_delay_is_kept_to(clock: FakeClock) -> None:
    """Ten seconds are ten seconds, though the interval is one (I100)."""
    pacer = make(clock)
    pacer.minimum(ORIGIN, 10)

    assert min(gaps(pacer, clock, 50)) >= 10 - 1e-9


def test_it_holds_for_the_gap_that_runs_already(clock: FakeClock) -> None:
    """The request for robots.txt itself counts as a departure."""
    pacer = make(clock)
    heard: list[str] = []
    pacer.depart(ORIGIN)
    pacer.watch(heard.append)
    pacer.minimum(ORIGIN, 30)

    assert pacer.next_delay(ORIGIN) == 30
    assert heard == [ORIGIN]


def test_a_day_of_crawl_delay_is_capped(clock: FakeClock) -> None:
    """86400 becomes `max_hold`, so that the crawl ends some time (I100)."""
    pacer = make(clock)
    pacer.minimum(ORIGIN, 86_400)
    pacer.depart(ORIGIN)

    assert pacer.next_delay(ORIGIN) == 3600


@pytest.mark.parametrize("seconds", NONSENSE)
def test_no_crawl_delay_is_none(clock: FakeClock, seconds: float) -> None:
    """Zero and nonsense take an earlier one back, for the gaps to come."""
    pacer = make(clock)
    pacer.minimum(ORIGIN, 10)
    pacer.minimum(ORIGIN, seconds)
    pacer.depart(ORIGIN)

    assert pacer.next_delay(ORIGIN) <= 6


def test_a_crawl_without_gaps_keeps_a_crawl_delay(clock: FakeClock) -> None:
    """`interval=0` means no gaps of our own."""
    pacer = make(clock, interval=0)
    pacer.minimum(ORIGIN, 3)
    pacer.depart(ORIGIN)

    assert pacer.next_delay(ORIGIN) == 3


def test_a_crawl_delay_outlives_many_other_sites(clock: FakeClock) -> None:
    """A site that was dropped from memory as idle still has its Crawl-delay when it is met again; and all is bounded."""
    pacer = Pacer(PacingPolicy(interval=1), clock=clock, source=seeded(), max_origins=10)
    pacer.minimum(ORIGIN, 20)
    for number in range(100):
        pacer.land(pacer.depart(f"https://{number}.example"))
        clock.advance(100)
    pacer.depart(ORIGIN)
    assert pacer.next_delay(ORIGIN) == 20
    for number in range(1000):
        pacer.minimum(f"https://{number}.example", 20)

    assert len(pacer._minimums) == 160


# -- together -----------------------------------------------------------------------------------------------------------

NUMBER = st.floats() | st.sampled_from([0, 1, 5.0, 10**400, -1])


@given(st.lists(st.tuples(st.sampled_from(["answered", "quota", "minimum", "troubled", "leave"]), NUMBER, NUMBER)))
def test_no_number_shortens_a_gap_or_makes_it_endless(calls: list[tuple[str, float, float]]) -> None:
    """Whatever is said in whatever order, no call raises, moves a deadline nearer or leaves a wait without an end."""
    clock = FakeClock()
    pacer = make(clock)
    for name, first, second in calls:
        ready = pacer.ready_at(ORIGIN)
        if name == "answered":
            pacer.answered(ORIGIN, first, served=second > 0)
        elif name == "quota":
            pacer.quota(ORIGIN, first, second)
        elif name == "minimum":
            pacer.minimum(ORIGIN, first)
        elif name == "troubled":
            pacer.troubled(ORIGIN)
        else:
            pacer.depart(ORIGIN)
            clock.advance(1)
        assert pacer.ready_at(ORIGIN) >= ready
        assert pacer.next_delay(ORIGIN) <= 3600
        assert 1 <= pacer.mean_gap(ORIGIN) <= 300
        assert pacer.interval(ORIGIN) == 1
