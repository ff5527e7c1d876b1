"""What refusals teach and successes earn back: the server's number first, one burst once, and never faster by chance."""

from __future__ import annotations

import math

import pytest

from scrapy_pacing import Departure, Learned, Lesson, Pacer, PacingPolicy, PolicyBook
from scrapy_pacing.testing import FakeClock, seeded

ORIGIN = "https://example.com"
OTHER = "https://example.org"
START = 1_800_000_000.0


class Notebook:
    """Lessons in a dict, as a memory of earlier runs would have them."""

    def __init__(self) -> None:
        self.known: dict[str, Learned] = {}
        self.records: list[tuple[str, Learned]] = []

    def recall(self, origin: str) -> Learned | None:
        return self.known.get(origin)

    def record(self, origin: str, learned: Learned) -> None:
        self.known[origin] = learned
        self.records.append((origin, learned))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(monotonic=500.0, wall=START)


def make(clock: FakeClock, lessons: Notebook | None = None, **fields: float) -> Pacer:
    return Pacer(PacingPolicy(**{"interval": 1.0, **fields}), clock=clock, source=seeded(1), lessons=lessons)


def taught(lesson: Lesson | None) -> Lesson:
    assert lesson is not None
    return lesson


def leave(pacer: Pacer, clock: FakeClock) -> Departure:
    """Wait until the origin is due, and depart."""
    while (delay := pacer.next_delay(ORIGIN)) > 0:
        clock.advance(max(delay, math.ulp(clock.monotonic())))
    departure = pacer.depart(ORIGIN)
    pacer.land(departure)
    return departure


def succeed(pacer: Pacer, clock: FakeClock, times: int) -> list[float]:
    """Answer so many requests well; return the intervals that were learned by it."""
    lessons = [pacer.eased(ORIGIN, departure=leave(pacer, clock)) for _ in range(times)]
    return [lesson.new for lesson in lessons if lesson is not None]


# -- refusals -----------------------------------------------------------------------------------------------------------


def test_refusals_without_a_number_multiply_the_interval_up_to_the_cap(clock: FakeClock) -> None:
    """Each refusal doubles the interval, until `max_interval`; a hostile site can't stop the crawl for good (I016)."""
    pacer = make(clock, max_interval=20)
    lessons = [taught(pacer.throttled(ORIGIN)) for _ in range(7)]

    assert [lesson.new for lesson in lessons] == [2, 4, 8, 16, 20, 20, 20]
    assert [lesson.old for lesson in lessons] == [1, 2, 4, 8, 16, 20, 20]
    assert all(lesson.hold is None and lesson.asked is None for lesson in lessons)
    assert pacer.interval(ORIGIN) == 20
    assert pacer.hold(ORIGIN) is None


def test_the_factor_is_the_policys(clock: FakeClock) -> None:
    """`backoff_factor` says by how much a refusal widens."""
    assert taught(make(clock, backoff_factor=3.5).throttled(ORIGIN)).new == 3.5


def test_endless_refusals_neither_overflow_nor_pass_the_cap(clock: FakeClock) -> None:
    """After thousands of refusals the interval is the cap, and the next gap is still one that ends."""
    pacer = make(clock, backoff_factor=100)
    for _ in range(5000):
        pacer.throttled(ORIGIN)

    assert pacer.interval(ORIGIN) == 300
    assert pacer.next_delay(ORIGIN) <= 300 * 16


def test_the_servers_own_number_becomes_the_interval(clock: FakeClock) -> None:
    """A number that the server chose beats a guess, and nothing leaves before it has passed (I001)."""
    pacer = make(clock)
    lesson = taught(pacer.throttled(ORIGIN, 30.0, why="status 429"))

    assert (lesson.origin, lesson.old, lesson.new, lesson.why) == (ORIGIN, 1, 30, "status 429")
    assert (lesson.hold, lesson.asked) == (30, 30)
    assert pacer.next_delay(ORIGIN) >= 30
    clock.advance(29.999)
    assert pacer.next_delay(ORIGIN) > 0


def test_what_already_waits_waits_a_gap_at_the_new_interval(clock: FakeClock) -> None:
    """A refusal moves the next departure at once: not before a gap at the widened interval has passed."""
    pacer = make(clock, floor=0.9, pause_probability=0)
    leave(pacer, clock)
    clock.advance(100)
    assert pacer.next_delay(ORIGIN) == 0
    pacer.throttled(ORIGIN)

    assert pacer.next_delay(ORIGIN) >= 2 * 0.9


def test_a_number_below_the_interval_never_narrows_it(clock: FakeClock) -> None:
    """The larger of the server's wait and the own back-off holds (I014)."""
    pacer = make(clock)
    for _ in range(5):
        pacer.throttled(ORIGIN)
    assert pacer.interval(ORIGIN) == 32
    lesson = taught(pacer.throttled(ORIGIN, 1.0))

    assert (lesson.old, lesson.new, lesson.hold) == (32, 32, 1)
    assert pacer.interval(ORIGIN) == 32


@pytest.mark.parametrize("nothing", [0, 0.0, -0.0, -1, -math.inf, math.nan, None], ids=repr)
def test_zero_negative_and_nan_count_as_no_number(clock: FakeClock, nothing: float | None) -> None:
    """A Retry-After of nothing does not switch the own back-off off (I002, I005)."""
    pacer = make(clock)
    lesson = taught(pacer.throttled(ORIGIN, nothing))

    assert (lesson.new, lesson.hold, lesson.asked) == (2, None, None)
    assert pacer.hold(ORIGIN) is None
    assert pacer.next_delay(ORIGIN) > 0


@pytest.mark.parametrize("asked", [7200.0, 10.0**10, math.inf, 10**400], ids=["two hours", "1e10", "inf", "10**400"])
def test_a_hostile_number_is_capped_and_the_true_one_is_kept(clock: FakeClock, asked: float) -> None:
    """The interval stops at `max_interval`, the hold at `max_hold`; what was asked for is still shown (I003)."""
    pacer = make(clock)
    lesson = taught(pacer.throttled(ORIGIN, asked))

    assert (lesson.new, lesson.hold, lesson.asked) == (300, 3600, asked)
    hold = pacer.hold(ORIGIN)
    assert hold is not None
    assert (hold.interval, hold.hold_until, hold.asked) == (300, START + 3600, asked)
    clock.advance(3599)
    assert pacer.next_delay(ORIGIN) >= 1
    clock.advance(300 * 16)
    assert pacer.next_delay(ORIGIN) == 0
    assert pacer.hold(ORIGIN) is None


def test_a_policy_slower_than_the_cap_is_not_made_faster(clock: FakeClock) -> None:
    """Where `interval` itself exceeds `max_interval`, a refusal leaves it where it is."""
    pacer = make(clock, interval=600)
    lesson = taught(pacer.throttled(ORIGIN, 30))

    assert (lesson.old, lesson.new) == (600, 600)


def test_a_hold_of_nothing_allowed_is_no_hold(clock: FakeClock) -> None:
    """With `max_hold=0` a Retry-After teaches an interval and holds nothing."""
    pacer = make(clock, max_hold=0)
    assert taught(pacer.throttled(ORIGIN, 30)).new == 30
    assert pacer.hold(ORIGIN) is None


# -- bursts -------------------------------------------------------------------------------------------------------------


def test_a_burst_of_refusals_teaches_once(clock: FakeClock) -> None:
    """Of requests that had all left before the first refusal came, only that one widens the interval."""
    pacer = make(clock)
    burst = [pacer.depart(ORIGIN) for _ in range(8)]
    lessons = [pacer.throttled(ORIGIN, departure=departure) for departure in burst]

    assert taught(lessons[0]).new == 2
    assert lessons[1:] == [None] * 7
    assert pacer.interval(ORIGIN) == 2


def test_a_refusal_after_the_lesson_teaches_again(clock: FakeClock) -> None:
    """A request that left under the new interval and is refused too says that it is still too short."""
    pacer = make(clock)
    first = leave(pacer, clock)
    pacer.throttled(ORIGIN, departure=first)
    second = leave(pacer, clock)

    assert second.epoch != first.epoch
    assert taught(pacer.throttled(ORIGIN, departure=second)).new == 4


def test_the_longest_hold_wins_and_a_late_success_ends_none(clock: FakeClock) -> None:
    """Answers in the order Retry-After 30, Retry-After 1, a late 200: it is still 30 seconds (I017)."""
    pacer = make(clock)
    first, second, third = (pacer.depart(ORIGIN) for _ in range(3))
    pacer.throttled(ORIGIN, 30, departure=first)
    clock.advance(0.5)
    assert pacer.throttled(ORIGIN, 1, departure=second) is None
    clock.advance(0.5)
    assert pacer.eased(ORIGIN, departure=third) is None

    assert pacer.next_delay(ORIGIN) >= 29
    assert pacer.interval(ORIGIN) == 30
    hold = pacer.hold(ORIGIN)
    assert hold is not None
    assert hold.asked == 30


def test_a_longer_number_of_the_same_burst_lengthens_the_hold_only(clock: FakeClock) -> None:
    """A late refusal that asks for more is obeyed, but it is no second lesson."""
    pacer = make(clock)
    first, second = pacer.depart(ORIGIN), pacer.depart(ORIGIN)
    pacer.throttled(ORIGIN, 10, departure=first)
    assert pacer.throttled(ORIGIN, 60, departure=second) is None

    assert pacer.interval(ORIGIN) == 10
    assert pacer.next_delay(ORIGIN) >= 60


# -- recovery -----------------------------------------------------------------------------------------------------------


def test_successes_in_a_row_ease_and_stop_at_the_policy(clock: FakeClock) -> None:
    """After every `recover_after` successes the interval shrinks by `recover_factor`, never below the policy's."""
    pacer = make(clock, recover_after=3, recover_factor=0.5)
    pacer.throttled(ORIGIN, 6)

    assert succeed(pacer, clock, 2) == []
    assert succeed(pacer, clock, 1) == [3]
    assert succeed(pacer, clock, 30) == [1.5, 1.0]
    assert pacer.interval(ORIGIN) == 1.0


def test_a_lesson_of_easing_says_why(clock: FakeClock) -> None:
    """The log line of an eased interval names old, new and the row of successes."""
    pacer = make(clock, recover_after=1, recover_factor=0.5)
    pacer.throttled(ORIGIN)
    lesson = taught(pacer.eased(ORIGIN))

    assert (lesson.origin, lesson.old, lesson.new, lesson.why) == (ORIGIN, 2, 1, "1 successes in a row")
    assert lesson.hold is None


def test_a_failure_starts_the_row_again(clock: FakeClock) -> None:
    """Successes have to come in a row."""
    pacer = make(clock, recover_after=3)
    pacer.throttled(ORIGIN)
    succeed(pacer, clock, 2)
    pacer.failed(ORIGIN)

    assert succeed(pacer, clock, 2) == []
    assert succeed(pacer, clock, 1) == [pytest.approx(1.8)]
    pacer.failed(OTHER)
    assert len(pacer) == 1, "a failure of a site that nothing is known of leaves nothing behind"


def test_a_refusal_starts_the_row_again(clock: FakeClock) -> None:
    """What had been earned before a refusal does not count after it."""
    pacer = make(clock, recover_after=3)
    pacer.throttled(ORIGIN)
    succeed(pacer, clock, 2)
    pacer.throttled(ORIGIN, departure=leave(pacer, clock))

    assert succeed(pacer, clock, 2) == []
    assert pacer.interval(ORIGIN) == 4


def test_successes_from_before_the_lesson_do_not_count(clock: FakeClock) -> None:
    """Answers to requests that left at the old pace say nothing about the new one."""
    pacer = make(clock, recover_after=2)
    early = [pacer.depart(ORIGIN) for _ in range(10)]
    pacer.throttled(ORIGIN, departure=early[0])
    for departure in early[1:]:
        assert pacer.eased(ORIGIN, departure=departure) is None

    assert succeed(pacer, clock, 1) == []
    assert pacer.interval(ORIGIN) == 2


def test_successes_at_the_policys_pace_are_not_saved_up(clock: FakeClock) -> None:
    """A long time without refusals does not make the first lesson fade at once."""
    pacer = make(clock, recover_after=5)
    succeed(pacer, clock, 50)
    pacer.throttled(ORIGIN)

    assert succeed(pacer, clock, 4) == []
    assert pacer.interval(ORIGIN) == 2


def test_an_interval_taught_to_a_crawl_without_gaps_ends_at_none_again(clock: FakeClock) -> None:
    """With `interval=0` easing does not go on for ever towards zero but arrives there."""
    pacer = make(clock, interval=0, recover_after=1, recover_factor=0.1)
    pacer.throttled(ORIGIN)
    intervals = succeed(pacer, clock, 20)

    assert intervals == [pytest.approx(0.1), pytest.approx(0.01), pytest.approx(0.001), 0]
    assert pacer.interval(ORIGIN) == 0


def test_easing_never_shortens_a_wait_that_was_promised(clock: FakeClock) -> None:
    """A narrower interval counts from the next departure; gap and hold of the last one stay."""
    pacer = make(clock, recover_after=1, recover_factor=0.1)
    pacer.throttled(ORIGIN, 60)
    ready = pacer.ready_at(ORIGIN)
    assert taught(pacer.eased(ORIGIN)).new == 6

    assert pacer.ready_at(ORIGIN) == ready


def test_a_success_of_an_unknown_site_leaves_nothing_behind(clock: FakeClock) -> None:
    """Nothing to ease, nothing to remember."""
    pacer = make(clock)

    assert pacer.eased(ORIGIN) is None
    assert len(pacer) == 0


# -- postponing ---------------------------------------------------------------------------------------------------------


def test_a_postponement_holds_and_teaches_nothing(clock: FakeClock) -> None:
    """A redirect that asks for a wait gets it, and the interval stays what it is (I011)."""
    pacer = make(clock)
    departure = leave(pacer, clock)
    pacer.postpone(ORIGIN, 40)

    assert pacer.next_delay(ORIGIN) == 40
    assert pacer.interval(ORIGIN) == 1
    assert taught(pacer.throttled(ORIGIN, departure=departure)).new == 2, "it opened no new epoch"


def test_a_postponement_shortens_nothing_and_is_capped(clock: FakeClock) -> None:
    """The longer hold stays; nobody can be sent away for longer than `max_hold`."""
    pacer = make(clock)
    pacer.postpone(ORIGIN, 60)
    pacer.postpone(ORIGIN, 5)
    assert pacer.next_delay(ORIGIN) == 60
    pacer.postpone(ORIGIN, math.inf)
    assert pacer.next_delay(ORIGIN) == 3600


@pytest.mark.parametrize("nothing", [0, -5, -math.inf, math.nan], ids=repr)
def test_a_postponement_of_nothing_is_none(clock: FakeClock, nothing: float) -> None:
    """Zero, negative and NaN hold nothing, and end no hold that is in force."""
    pacer = make(clock)
    pacer.postpone(ORIGIN, nothing)
    assert pacer.hold(ORIGIN) is None
    assert pacer.next_delay(ORIGIN) == 0
    pacer.postpone(OTHER, 60)
    pacer.postpone(OTHER, nothing)
    assert pacer.next_delay(OTHER) == 60


# -- policies of their own, and of several crawls -----------------------------------------------------------------------


def test_overrides_hold_for_an_origin_or_a_host(clock: FakeClock) -> None:
    """A policy for one origin beats one for its host, and both beat the general one."""
    pacer = Pacer(
        PacingPolicy(interval=1),
        overrides={
            "example.com": PacingPolicy(interval=10, backoff_factor=3),
            "https://example.com": PacingPolicy(interval=20),
        },
        clock=clock,
    )

    assert pacer.interval("http://example.com:8080") == 10
    assert pacer.policy_of("https://example.com").interval == 20
    assert pacer.interval("https://other.example") == 1
    assert taught(pacer.throttled("http://example.com:8080")).new == 30
    pacer.depart("https://example.com")
    assert pacer.next_delay("https://example.com") >= 2


def books(*intervals: float, **fields: float) -> list[PolicyBook]:
    return [PolicyBook(PacingPolicy(interval=interval, **fields)) for interval in intervals]


def test_several_crawls_of_a_site_go_as_slowly_as_the_slowest(clock: FakeClock) -> None:
    """Crawls that share a pacer are one visitor; when the slowest leaves, the others get their pace back."""
    pacer = make(clock)
    pacer.depart(ORIGIN)
    pacer.share(books(1, 10, 5))
    assert pacer.interval(ORIGIN) == 10
    assert pacer.interval(OTHER) == 10, "origins not seen yet, too"
    pacer.share(books(1, 5))
    assert pacer.interval(ORIGIN) == 5
    pacer.share(books(1))
    assert pacer.interval(ORIGIN) == 1
    assert taught(pacer.throttled(ORIGIN)).new == 2


def test_the_slowest_is_found_for_each_site(clock: FakeClock) -> None:
    """One crawl may be the slowest for one site and another for the next."""
    pacer = make(clock)
    pacer.share(
        [
            PolicyBook(PacingPolicy(interval=2), {"example.com": PacingPolicy(interval=20)}),
            PolicyBook(PacingPolicy(interval=4)),
        ]
    )

    assert pacer.interval(ORIGIN) == 20
    assert pacer.interval(OTHER) == 4


def test_a_crawl_that_joins_forgets_nothing_and_frees_nobody(clock: FakeClock) -> None:
    """A learned interval, a hold and the gap of the last departure stay when the set of crawls changes."""
    pacer = make(clock)
    pacer.depart(ORIGIN)
    pacer.throttled(ORIGIN, 30)
    ready = pacer.ready_at(ORIGIN)
    pacer.share(books(1, 10))

    assert pacer.interval(ORIGIN) == 30
    assert pacer.ready_at(ORIGIN) == ready
    assert pacer.in_flight(ORIGIN) == 1
    pacer.share(books(1))
    assert pacer.interval(ORIGIN) == 30


def test_what_was_learned_survives_a_slower_crawl_that_came_and_went(clock: FakeClock) -> None:
    """A learned 20 s that was hidden for a while by another crawl's 30 s is still 20 s when that crawl has left."""
    pacer = make(clock)
    pacer.throttled(ORIGIN, 20)
    pacer.share(books(1, 30))
    assert pacer.interval(ORIGIN) == 30
    pacer.share(books(1))

    assert pacer.interval(ORIGIN) == 20


def test_sharing_among_nobody_is_refused(clock: FakeClock) -> None:
    """A pacer always has a policy."""
    with pytest.raises(ValueError, match="books is empty; allowed: one or more"):
        make(clock).share([])


# -- the next run -------------------------------------------------------------------------------------------------------


def test_every_change_is_recorded(clock: FakeClock) -> None:
    """Refusals, holds and easing are handed to the memory as they happen; what changes nothing is not."""
    notebook = Notebook()
    pacer = make(clock, notebook, recover_after=1, recover_factor=0.5)
    departure = pacer.depart(ORIGIN)
    pacer.throttled(ORIGIN, 10, departure=departure)
    pacer.throttled(ORIGIN, 4, departure=departure)
    pacer.throttled(ORIGIN, 20, departure=departure)
    pacer.postpone(ORIGIN, 50)
    clock.advance(60)
    pacer.eased(ORIGIN)
    pacer.eased(OTHER)

    assert {origin for origin, _ in notebook.records} == {ORIGIN}
    assert [(learned.interval, learned.hold_until, learned.asked) for _, learned in notebook.records] == [
        (10, START + 10, 10),
        (10, START + 20, 20),
        (10, START + 50, 50),
        (5, 0, 0),
    ]


def test_the_next_run_starts_at_what_was_learned(clock: FakeClock) -> None:
    """Interval and hold go over to a new process, whose monotonic clock starts anywhere."""
    notebook = Notebook()
    make(clock, notebook).throttled(ORIGIN, 100)
    later = FakeClock(monotonic=3.0, wall=START + 40)
    pacer = make(later, notebook)

    assert pacer.interval(ORIGIN) == 100
    assert pacer.next_delay(ORIGIN) == pytest.approx(60)
    hold = pacer.hold(ORIGIN)
    assert hold is not None
    assert (hold.hold_until, hold.asked) == (START + 100, 100)
    assert pacer.next_delay(OTHER) == 0
    later.advance(60)
    assert pacer.next_delay(ORIGIN) == 0
    assert pacer.hold(ORIGIN) is None


def test_a_remembered_interval_can_be_eased(clock: FakeClock) -> None:
    """What an earlier run learned is earned back by successes of this one."""
    notebook = Notebook()
    notebook.known[ORIGIN] = Learned(8)
    pacer = make(clock, notebook, recover_after=1, recover_factor=0.5)

    assert succeed(pacer, clock, 4) == [4, 2, 1]
    assert notebook.known[ORIGIN].interval == 1


@pytest.mark.parametrize(
    ("remembered", "interval"),
    [(0.2, 1), (-5, 1), (50, 50), (1e9, 300), (math.inf, 300), (math.nan, 1)],
)
def test_a_remembered_interval_is_kept_within_the_policy(clock: FakeClock, remembered: float, interval: float) -> None:
    """A file can't make a crawl faster than its policy or slower than the cap, whatever stands in it."""
    notebook = Notebook()
    notebook.known[ORIGIN] = Learned(remembered)

    assert make(clock, notebook).interval(ORIGIN) == interval


@pytest.mark.parametrize(
    ("until", "delay"),
    [
        (START - 1, 0),
        (START + 90, 90),
        (START + 10**9, 3600),
        (math.inf, 3600),
        (-math.inf, 0),
        (math.nan, 0),
    ],
)
def test_a_remembered_hold_is_capped(clock: FakeClock, until: float, delay: float) -> None:
    """A hold that has passed is none; one that a stepped clock or a broken file makes endless ends at `max_hold`."""
    notebook = Notebook()
    notebook.known[ORIGIN] = Learned(2, until, 90)

    assert make(clock, notebook).next_delay(ORIGIN) == pytest.approx(delay)


def test_a_step_of_the_wall_clock_moves_no_deadline_of_this_run(clock: FakeClock) -> None:
    """Somebody sets the clock by a day, either way: the gap and the hold last as long as promised."""
    pacer = make(clock, Notebook())
    pacer.throttled(ORIGIN, 100)
    for step in (86_400, -86_400):
        clock.set_wall(START + step)
        assert pacer.next_delay(ORIGIN) >= 100
        hold = pacer.hold(ORIGIN)
        assert hold is not None
        assert hold.hold_until == START + step + 100, "what is kept for the next run is in today's wall clock"
    clock.advance(2000)
    assert pacer.next_delay(ORIGIN) == 0


def test_asking_about_a_remembered_site_is_enough_to_hold_it(clock: FakeClock) -> None:
    """The first request of a new run waits out the hold, though nothing has departed yet; nothing is forgotten."""
    notebook = Notebook()
    notebook.known[ORIGIN] = Learned(30, START + 20, 20)
    pacer = make(clock, notebook)

    assert pacer.ready_at(ORIGIN) == 500.0 + 20
    clock.advance(20)
    departure = pacer.depart(ORIGIN)
    assert pacer.next_delay(ORIGIN) >= 3
    assert taught(pacer.throttled(ORIGIN, departure=departure)).new == 60
