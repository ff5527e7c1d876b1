"""What refusals show of a site's limit decides how an interval comes back: quickly to what it sustains, then slowly."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from scrapy_pacing import Learned, Lesson, Pacer, PacingPolicy
from scrapy_pacing.simulation import FixedWindow, Notebook, TokenBucket, crawl
from scrapy_pacing.testing import FakeClock, seeded

if TYPE_CHECKING:
    from scrapy_pacing import Departure

ORIGIN = "https://example.com"
DAY = 86_400.0


class Crawl:
    """A crawl whose answers the test decides: one request every ``gap`` seconds."""

    def __init__(self, lessons: Notebook | None = None, clock: FakeClock | None = None, **fields: float) -> None:
        self.clock = clock or FakeClock()
        self.lessons = lessons
        policy = PacingPolicy(**{"interval": 0.1, "pause_probability": 0, **fields})
        self.pacer = Pacer(policy, clock=self.clock, source=seeded(1), lessons=lessons)

    def leave(self) -> Departure:
        while (delay := self.pacer.next_delay(ORIGIN)) > 0:
            self.clock.advance(max(delay, math.ulp(self.clock.monotonic())))
        departure = self.pacer.depart(ORIGIN)
        self.pacer.land(departure)
        return departure

    def served(self, times: int = 1) -> list[Lesson]:
        lessons = [self.pacer.eased(ORIGIN, departure=self.leave()) for _ in range(times)]
        return [lesson for lesson in lessons if lesson is not None]

    def refused(self, asked: float | None = None) -> Lesson:
        lesson = self.pacer.throttled(ORIGIN, asked, departure=self.leave())
        assert lesson is not None
        return lesson

    @property
    def interval(self) -> float:
        return self.pacer.interval(ORIGIN)

    def known(self) -> Learned:
        assert self.lessons is not None
        learned = self.lessons.recall(ORIGIN)
        assert learned is not None
        return learned


def test_one_success_brings_a_long_retry_after_back_to_what_the_site_sustains() -> None:
    """60 pages and a hold of 54 s are about a page a second: not a page every 54 seconds for the next ten."""
    site = Crawl()
    site.served(60)
    assert site.refused(54).new == 54
    (lesson,) = site.served()

    assert lesson.old == 54
    assert lesson.why == "the pace that the site has sustained"
    assert 1.0 <= lesson.new <= 1.3
    assert site.interval == lesson.new


def test_the_hold_stands_whatever_is_known() -> None:
    """Knowing the limit shortens no wait that the server asked for."""
    site = Crawl()
    site.served(60)
    site.refused(54)
    site.served()
    site.served(5)
    site.refused(30)

    assert site.pacer.next_delay(ORIGIN) >= 30


def test_without_a_number_the_interval_doubles_and_then_comes_back() -> None:
    """Backing off follows the policy at the refusal; one success ends it, at what the site was seen to sustain."""
    site = Crawl()
    site.served(60)
    intervals = [site.refused().new for _ in range(8)]
    assert intervals == pytest.approx([0.1 * 2**k for k in range(1, 9)])
    (lesson,) = site.served()

    assert lesson.new < 3


def test_too_few_requests_are_no_evidence() -> None:
    """After two pages and a refusal nothing is known: ten successes ease the interval once, as the policy says."""
    site = Crawl()
    site.served(2)
    site.refused(10)
    assert site.served(9) == []
    (lesson,) = site.served()

    assert (lesson.new, lesson.why) == (9, "10 successes in a row")


def test_a_crawl_may_do_without_evidence() -> None:
    """A high `evidence_after` leaves the plain rule of back-off and easing."""
    site = Crawl(evidence_after=1_000_000_000)
    site.served(60)
    site.refused(54)
    assert site.served(9) == []

    assert site.served()[0].new == pytest.approx(54 * 0.9)


def test_refusals_without_a_departure_are_no_evidence() -> None:
    """Who only says "refused" and "served" gets the plain rule, however many requests have left."""
    site = Crawl()
    site.served(60)
    site.pacer.throttled(ORIGIN, 54)
    for _ in range(9):
        site.leave()
        assert site.pacer.eased(ORIGIN) is None
    lesson = site.pacer.eased(ORIGIN)

    assert lesson is not None
    assert lesson.new == pytest.approx(54 * 0.9)


def test_a_server_whose_number_is_shorter_than_the_pace_it_refuses_is_not_asked_at_that_pace_again() -> None:
    """Retry-After 1 at an interval of about 1 s teaches no wider interval by itself; the refusal does."""
    site = Crawl()
    for _ in range(2):
        site.served(60)
        site.refused(54)
        site.served()
    before = site.interval
    site.served(20)
    lesson = site.refused(1)

    assert lesson.new >= before * 1.1


def test_near_the_refused_pace_it_takes_patience() -> None:
    """Two refusals that agree make the limit known: many more than `recover_after` successes, and small steps."""
    site = Crawl()
    for _ in range(2):
        site.served(60)
        site.refused(54)
        site.served()
    assert site.served(60) == []
    (lesson,) = site.served(40)

    assert 0.9 < lesson.new / lesson.old < 1


def test_far_above_the_refused_pace_a_first_estimate_is_not_believed() -> None:
    """A hold may be a punishment: after one refusal each success narrows an interval that lies far above the wall."""
    site = Crawl()
    site.served(6)
    site.refused(60)
    (first,) = site.served()
    assert first.new > 10
    lessons = site.served(20)

    assert len(lessons) == 20
    assert site.interval == pytest.approx(first.new * 0.9**20)


def test_a_hold_that_is_always_the_same_is_a_punishment_and_no_quota() -> None:
    """60 s after 6 pages and 60 s after 100: the site sustains more than the quota that this would be."""
    site = Crawl()
    site.served(6)
    site.refused(60)
    site.served(100)
    start = site.clock.monotonic()
    site.refused(60)
    assert site.clock.monotonic() - start < 60, "the request that is refused comes after a gap, not after the hold"
    (lesson,) = site.served()

    assert lesson.new < 4


def test_a_shut_site_is_not_knocked_at_again_and_again() -> None:
    """Where a site that names no time was shut for a minute, the next time the first wait is of that order."""
    site = Crawl()
    site.served(60)
    start = site.clock.monotonic()
    while site.clock.monotonic() < start + 60:
        site.refused()
    site.served()
    site.served(60)
    site.refused()

    assert site.pacer.next_delay(ORIGIN) > 5
    assert site.pacer.next_delay(ORIGIN) <= 6 * 300


def test_a_failure_starts_the_row_again() -> None:
    """Successes count in a row below the sustained pace too."""
    site = Crawl()
    for _ in range(2):
        site.served(60)
        site.refused(54)
        site.served()
    site.served(60)
    site.pacer.failed(ORIGIN)

    assert site.served(60) == []


def test_a_crawl_that_had_nothing_to_ask_is_not_held_against_the_site() -> None:
    """An hour without requests between two refusals does not make the site look a hundred times slower."""
    site = Crawl()
    site.served(30)
    site.clock.advance(3600)
    site.served(30)
    site.refused(54)
    (lesson,) = site.served()

    assert lesson.new < 1.5


def test_errors_and_the_row_of_quick_refusals_never_narrow() -> None:
    """Ten refusals within milliseconds each make the gap no shorter (I022)."""
    site = Crawl()
    site.served(20)
    before = site.interval
    for _ in range(10):
        lesson = site.refused()
        site.pacer.answered(ORIGIN, 0.005, served=False)
        assert lesson.new >= before
        assert site.pacer.mean_gap(ORIGIN) >= before
        before = lesson.new


def test_bare_refusals_wait_ever_longer_and_are_forgiven() -> None:
    """Four 429 without a number, then 200: the waits grow with jitter, and successes bring the pace back (I016)."""
    site = Crawl(interval=1, floor=0.99, ceiling=1.01)
    site.served(20)
    waits = []
    for _ in range(4):
        site.refused()
        waits.append(site.pacer.next_delay(ORIGIN))
    assert all(later > sooner * 1.5 for sooner, later in pairwise(waits))
    site.served(2000)

    assert site.interval == 1


def test_a_site_with_ten_a_minute_is_refused_rarely_once_it_is_known() -> None:
    """A bucket of ten a minute, crawled for an hour: a few refusals in the first minutes and hardly any after (I023)."""
    early, late, pages = [], [], []
    for seed in range(5):
        policy = PacingPolicy(interval=1, pause_probability=0)
        run = crawl(TokenBucket(1 / 6, 10, retry_after=True), 500, policy=policy, seed=seed)
        early.append(sum(at < 600 for at in run.refused))
        late.append(sum(600 <= at < 3600 for at in run.refused))
        pages.append(sum(at < 3600 for at in run.served))

    assert max(early) <= 12
    assert max(late) <= 3
    assert sorted(pages)[2] > 600 * 0.7


# -- the next run -------------------------------------------------------------------------------------------------------


def learned_site(notebook: Notebook, clock: FakeClock) -> Crawl:
    site = Crawl(notebook, clock)
    for _ in range(2):
        site.served(60)
        site.refused(54)
        site.served()
    site.served(10)
    return site


def test_the_evidence_goes_over_to_the_next_run() -> None:
    """A run that starts where the last one was held comes back to the known pace after one success."""
    notebook, clock = Notebook(), FakeClock()
    site = learned_site(notebook, clock)
    site.served(60)
    site.refused(200)
    known = site.known()
    assert known.interval == 200
    assert known.sustained > 0
    assert known.refusals == 3
    clock.advance(300)
    again = Crawl(notebook, clock)
    assert again.interval == 200
    (lesson,) = again.served()

    assert lesson.new < 6


def test_patience_fades_with_the_age_of_a_refusal() -> None:
    """A limit may have been raised: weeks later it takes fewer successes to try a faster pace."""
    needed = []
    for days in (0, 20):
        notebook, clock = Notebook(), FakeClock()
        learned_site(notebook, clock)
        clock.advance(days * DAY)
        again = Crawl(notebook, clock)
        count = 1
        while not again.served():
            count += 1
        needed.append(count)

    assert needed[0] > 60
    assert needed[1] == 10


@pytest.mark.parametrize(
    "changes",
    [
        {"refused_at": 0.0},
        {"sustained": math.nan},
        {"sustained": math.inf},
        {"sustained": -1.0},
        {"wall": math.inf},
        {"shut": -5.0},
        {"refusals": 0},
        {"refusals": -3},
        {"refused_at": math.nan},
    ],
    ids=str,
)
def test_old_or_broken_evidence_is_none(changes: dict[str, float]) -> None:
    """What is too old, or what a file makes no sense of, leaves the plain rule and the remembered interval."""
    notebook, clock = Notebook(), FakeClock()
    learned_site(notebook, clock)
    learned = notebook.recall(ORIGIN)
    assert learned is not None
    notebook.record(ORIGIN, dataclasses.replace(learned, interval=20.0, **changes))  # type: ignore[arg-type]
    again = Crawl(notebook, clock)
    assert again.served(9) == []

    assert [lesson.new for lesson in again.served()] == [18]


def test_evidence_from_the_future_is_as_good_as_new() -> None:
    """A wall clock that was set back makes nothing negative."""
    notebook, clock = Notebook(), FakeClock()
    learned_site(notebook, clock)
    clock.set_wall(clock.wall() - 365 * DAY)

    assert Crawl(notebook, clock).served(60) == []


# -- whatever happens ---------------------------------------------------------------------------------------------------

EVENT = st.tuples(st.sampled_from(["served", "refused", "lost", "failed", "idle"]), st.floats(0, 4000) | st.none())


@given(
    st.lists(EVENT, max_size=120),
    st.sampled_from([0, 0.1, 4.0, 400.0]),
    st.integers(1, 20),
    st.sampled_from([0.0, 60.0, 3600.0]),
    st.integers(0, 1000),
)
@settings(deadline=None)
def test_only_successes_narrow_and_never_below_the_policy(
    events: list[tuple[str, float | None]], interval: float, evidence_after: int, max_hold: float, seed: int
) -> None:
    """In any order of answers the interval stays within policy and cap, and nothing but a success makes it narrower."""
    clock, notebook = FakeClock(), Notebook()
    policy = PacingPolicy(interval=interval, evidence_after=evidence_after, max_hold=max_hold)
    pacer = Pacer(policy, clock=clock, source=seeded(seed), lessons=notebook)
    flying: list[Departure] = []
    for kind, number in events:
        clock.advance(min(pacer.next_delay(ORIGIN), 5000) if number is None else number / 100)
        before, ready = pacer.interval(ORIGIN), pacer.ready_at(ORIGIN)
        departure = pacer.depart(ORIGIN)
        flying.append(departure)
        if kind == "lost":
            continue
        if kind == "idle":
            clock.advance(number or 0)
            departure = flying[0]
        pacer.land(departure)
        flying.remove(departure)
        if kind in {"served", "idle"}:
            lesson = pacer.eased(ORIGIN, departure=departure)
            assert pacer.interval(ORIGIN) <= before
            assert (lesson is None) == (pacer.interval(ORIGIN) == before)
        elif kind == "refused":
            pacer.throttled(ORIGIN, number, departure=departure)
            assert pacer.interval(ORIGIN) >= before
        else:
            pacer.failed(ORIGIN)
            assert pacer.interval(ORIGIN) == before
        assert policy.interval <= pacer.interval(ORIGIN) <= max(policy.interval, 300)
        assert ready <= pacer.ready_at(ORIGIN) < clock.monotonic() + max(16 * 400.0, 3600.0) + 1
    learned = notebook.recall(ORIGIN)
    if learned is not None:
        assert all(math.isfinite(value) for value in dataclasses.astuple(learned))


@pytest.mark.parametrize("seed", range(3))
def test_a_limit_that_is_not_there_costs_nothing(seed: int) -> None:
    """A site that never refuses is crawled at the policy's pace from the first page to the last."""
    run = crawl(FixedWindow(10**6, 1), 300, policy=PacingPolicy(interval=1, pause_probability=0), seed=seed)

    assert run.refusals == 0
    assert run.path == ((0.0, 1),)
