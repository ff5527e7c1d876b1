"""What must hold whatever happens in whatever order, checked by playing random crawls against a simple model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scrapy_pacing import Departure, Pacer, PacingPolicy, PolicyBook
from scrapy_pacing.testing import FakeClock, seeded

from .conftest import policies

ORIGINS = ("https://example.com", "http://example.com:8080", "https://example.org")
SECONDS = st.floats(0, 100) | st.sampled_from([0.001, 1.0, 30.0, 3600.0])
ASKED = (
    st.none() | st.floats() | st.floats(0, 5000) | st.sampled_from([0, -1, 1, 30, 10**10, math.inf, math.nan, 10**400])
)


@dataclass
class Site:
    """What a plain reading of the rules says of one site."""

    interval: float
    hold_until: float = -math.inf
    gap_until: float = -math.inf
    ready_at: float = -math.inf
    last_lesson: int = -1
    in_flight: int = 0


@dataclass
class Sent:
    departure: Departure
    number: int


@dataclass
class Model:
    policy: PacingPolicy
    sites: dict[str, Site] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    events: int = 0


class Crawl(RuleBasedStateMachine):
    """Requests leave, land, are served, refused, redirected or fail, while time passes."""

    @initialize(
        interval=st.sampled_from([0, 0.5, 4.0, 400.0]),
        recover_after=st.integers(1, 3),
        recover_factor=st.sampled_from([0.1, 0.5, 0.9]),
        max_hold=st.sampled_from([0, 60.0, 3600.0]),
        seed=st.integers(0, 1000),
    )
    def start(self, interval: float, recover_after: int, recover_factor: float, max_hold: float, seed: int) -> None:
        self.clock = FakeClock(monotonic=1e5)
        policy = PacingPolicy(
            interval=interval,
            recover_after=recover_after,
            recover_factor=recover_factor,
            max_hold=max_hold,
            # The model knows the plain rule; what evidence changes has tests of its own.
            evidence_after=1_000_000_000,
        )
        self.pacer = Pacer(policy, clock=self.clock, source=seeded(seed))
        self.model = Model(policy, {origin: Site(interval) for origin in ORIGINS})

    # -- what happens ----------------------------------------------------------------------------------------------

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(origin=st.sampled_from(ORIGINS))
    def leave_when_due(self, origin: str) -> None:
        for _ in range(100):
            delay = self.pacer.next_delay(origin)
            if delay == 0:
                break
            self.clock.advance(max(delay, math.ulp(self.clock.monotonic())))
        site, now = self.model.sites[origin], self.clock.monotonic()
        assert now >= site.hold_until, "a request left while the server's time ran"
        assert now >= site.gap_until, "a request left within the shortest gap of its law"
        self._depart(origin)

    @rule(origin=st.sampled_from(ORIGINS))
    def leave_unasked(self, origin: str) -> None:
        self._depart(origin)

    def _depart(self, origin: str) -> None:
        site = self.model.sites[origin]
        site.gap_until = max(site.gap_until, self.clock.monotonic() + site.interval * self._floor() * (1 - 1e-12))
        site.in_flight += 1
        departure = self.pacer.depart(origin)
        assert (departure.origin, departure.at) == (origin, self.clock.monotonic())
        self.model.events += 1
        self.model.sent.append(Sent(departure, self.model.events))

    def _floor(self) -> float:
        return self.model.policy.law().floor

    def _answer(self, which: int) -> tuple[Sent, Site]:
        sent = self.model.sent.pop(which % len(self.model.sent))
        site = self.model.sites[sent.departure.origin]
        site.in_flight -= 1
        self.pacer.land(sent.departure)
        return sent, site

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 100), asked=ASKED)
    def refused(self, which: int, asked: float | None) -> None:
        sent, site = self._answer(which)
        policy, now = self.model.policy, self.clock.monotonic()
        lesson = self.pacer.throttled(sent.departure.origin, asked, departure=sent.departure)
        names_a_time = asked is not None and asked > 0
        if names_a_time:
            site.hold_until = max(site.hold_until, now + min(asked, policy.max_hold))
        assert (lesson is not None) == (sent.number > site.last_lesson)
        if lesson is None:
            return
        wanted = asked if names_a_time else site.interval * policy.backoff_factor or policy.first_interval
        cap = max(policy.max_interval, policy.interval)
        assert (lesson.old, lesson.asked) == (site.interval, asked if names_a_time else None)
        assert max(site.interval, min(wanted, cap)) <= lesson.new <= cap
        site.interval = lesson.new
        site.gap_until = max(site.gap_until, now + site.interval * self._floor() * (1 - 1e-12))
        self.model.events += 1
        site.last_lesson = self.model.events

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 100))
    def served(self, which: int) -> None:
        sent, site = self._answer(which)
        policy = self.model.policy
        lesson = self.pacer.eased(sent.departure.origin, departure=sent.departure)
        if lesson is None:
            return
        assert sent.number > site.last_lesson, "a request that had left before the lesson made the site faster"
        assert (lesson.old, lesson.hold) == (site.interval, None)
        assert policy.interval <= lesson.new < lesson.old
        site.interval = lesson.new

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 100))
    def failed(self, which: int) -> None:
        sent, _ = self._answer(which)
        self.pacer.failed(sent.departure.origin)

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 100), seconds=st.floats(-10, 5000))
    def redirected(self, which: int, seconds: float) -> None:
        sent, site = self._answer(which)
        self.pacer.postpone(sent.departure.origin, seconds)
        if seconds > 0:
            site.hold_until = max(site.hold_until, self.clock.monotonic() + min(seconds, self.model.policy.max_hold))

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 100))
    def landed_twice(self, which: int) -> None:
        sent, _ = self._answer(which)
        if not self.pacer.in_flight(sent.departure.origin):
            self.pacer.land(sent.departure)

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def deadlines_never_move_nearer(self) -> None:
        for origin, site in self.model.sites.items():
            ready = self.pacer.ready_at(origin)
            assert ready >= site.ready_at
            site.ready_at = ready

    @invariant()
    def holds_are_kept_to_the_moment(self) -> None:
        now = self.clock.monotonic()
        for origin, site in self.model.sites.items():
            hold = self.pacer.hold(origin)
            assert (hold is not None) == (site.hold_until > now)
            assert self.pacer.next_delay(origin) >= max(0.0, site.hold_until - now)
            assert math.isfinite(self.pacer.next_delay(origin))

    @invariant()
    def intervals_change_by_lessons_only(self) -> None:
        policy = self.model.policy
        for origin, site in self.model.sites.items():
            interval = self.pacer.interval(origin)
            assert interval == site.interval
            assert policy.interval <= interval <= max(policy.max_interval, policy.interval)

    @invariant()
    def requests_in_flight_are_counted(self) -> None:
        for origin, site in self.model.sites.items():
            assert self.pacer.in_flight(origin) == site.in_flight >= 0


Crawl.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestCrawl = Crawl.TestCase


@given(policy=policies(), seed=st.integers(0, 2**32), pauses=st.lists(st.floats(0, 10), min_size=5, max_size=30))
@settings(max_examples=150)
def test_a_crawl_that_does_its_own_work_is_never_early(policy: PacingPolicy, seed: int, pauses: list[float]) -> None:
    """However long a crawl works between two requests, their distance is one of the policy's gaps or longer."""
    clock = FakeClock()
    pacer = Pacer(policy, clock=clock, source=seeded(seed))
    last = -math.inf
    shortest = policy.law().floor * policy.interval
    for pause in pauses:
        clock.advance(pause * policy.interval / 10)
        while (delay := pacer.next_delay(ORIGINS[0])) > 0:
            clock.advance(max(delay, math.ulp(clock.monotonic())))
        now = pacer.depart(ORIGINS[0]).at
        assert now - last >= shortest * (1 - 1e-9)
        last = now


@given(
    st.lists(st.lists(policies(), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.none() | st.floats(1, 500), max_size=2),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_set_of_crawls_goes_faster_than_any_of_them_wants(
    crews: list[list[PacingPolicy]], refusals: list[float | None]
) -> None:
    """Whichever crawls come and go, a site is never visited faster than the slowest of those present allows."""
    pacer = Pacer(crews[0][0], clock=FakeClock(), source=seeded())
    pacer.depart(ORIGINS[0])
    for asked in refusals:
        pacer.throttled(ORIGINS[0], asked)
    for crew in crews:
        pacer.share([PolicyBook(policy) for policy in crew])
        slowest = max(policy.interval for policy in crew)
        assert pacer.interval(ORIGINS[0]) >= slowest
        assert pacer.interval(ORIGINS[1]) == slowest
        if not refusals:
            assert pacer.interval(ORIGINS[0]) == slowest
