"""Whose turn it is among many origins."""

from __future__ import annotations

import math

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scrapy_pacing.core.turns import Turns


def made(due=None):
    times = due or {}
    return Turns(lambda origin: times.get(origin, -math.inf)), times


def test_the_origin_that_has_waited_longest_goes_first():
    """Origins that are due take turns in the order they came."""
    turns, _ = made()
    for origin in "abc":
        turns.add(origin, now=0)
    assert [turns.next(0) for _ in range(3)] == ["a", "b", "c"]
    assert turns.next(0) is None


def test_sleepers_come_in_the_order_of_their_due_times():
    """What was not due comes up when it is, the earliest first."""
    turns, _ = made({"a": 5, "b": 3, "c": 4})
    for origin in "abc":
        turns.add(origin, now=0)
    assert turns.next(2.9) is None
    assert turns.wake_at() == 3
    assert [turns.next(9) for _ in range(3)] == ["b", "c", "a"]


def test_a_due_time_that_has_moved_later_is_heeded():
    """A refusal moves the due time of what already sleeps, or is ready."""
    turns, due = made({"a": 5})
    turns.add("a", now=0)
    turns.add("b", now=0)
    due["a"], due["b"] = 50, 60
    assert turns.next(10) is None
    assert turns.wake_at() == 50
    assert turns.next(50) == "a"


def test_a_parked_origin_has_no_turn_until_it_is_unparked():
    """An origin whose request is on its way waits for that, whatever the time."""
    turns, _ = made()
    turns.add("a", now=0)
    assert turns.next(0) == "a"
    assert turns.next(math.inf) is None
    assert turns.wake_at() is None
    assert turns.unpark("a", now=1)
    assert not turns.unpark("a", now=1)
    assert turns.next(1) == "a"


def test_peeking_changes_nothing():
    """`first` names the next origin, and `next` then gives it."""
    turns, _ = made({"b": 7})
    turns.add("b", now=0)
    turns.add("a", now=0)
    assert turns.first(0) == "a"
    assert turns.first(0) == "a"
    assert turns.next(0) == "a"
    assert turns.first(1) is None
    assert turns.first(7) == "b"


def test_origins_that_come_and_go_leave_nothing_behind():
    """What was removed is cleared, so a million short visits take no memory."""
    turns, _ = made({f"sleeper-{n}": 10.0**9 for n in range(100_000)})
    for n in range(100_000):
        turns.add(f"ready-{n}", now=0)
        turns.add(f"sleeper-{n}", now=0)
        turns.remove(f"ready-{n}")
        turns.remove(f"sleeper-{n}")
    assert len(turns) == 0
    assert len(turns._ready) + len(turns._snoozed) < 200


def test_the_census_counts_each_origin_once():
    """Ready, snoozed and parked origins are told apart."""
    turns, _ = made({"later": 9})
    for origin in ("away", "now", "later"):
        turns.add(origin, now=0)
    assert turns.next(0) == "away"
    assert turns.census() == {"ready": 1, "snoozed": 1, "parked": 1}


class Model(RuleBasedStateMachine):
    """The order against a plain model that looks at everything each time."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.due = {}
        self.places = {}
        self.turns = Turns(lambda origin: self.due.get(origin, -math.inf))

    names = st.sampled_from("abcdefgh")

    @rule(origin=names, wait=st.floats(0, 10))
    def add(self, origin, wait):
        if origin not in self.places:
            self.due[origin] = self.now + wait
            self.places[origin] = "waiting"
        self.turns.add(origin, self.now)

    @rule(origin=names)
    def remove(self, origin):
        self.places.pop(origin, None)
        self.turns.remove(origin)

    @rule(origin=names, more=st.floats(0, 10))
    def move_later(self, origin, more):
        self.due[origin] = self.due.get(origin, 0) + more

    @rule(seconds=st.floats(0, 5))
    def pass_time(self, seconds):
        self.now += seconds

    @rule()
    def take(self):
        origin = self.turns.next(self.now)
        ready = {name for name, place in self.places.items() if place == "waiting" and self.due[name] <= self.now}
        if origin is None:
            assert not ready
        else:
            assert origin in ready
            self.places[origin] = "away"

    @precondition(lambda self: any(place == "away" for place in self.places.values()))
    @rule(data=st.data())
    def unpark(self, data):
        away = sorted(name for name, place in self.places.items() if place == "away")
        origin = data.draw(st.sampled_from(away))
        assert self.turns.unpark(origin, self.now)
        self.places[origin] = "waiting"

    @invariant()
    def nobody_is_forgotten(self):
        assert len(self.turns) == len(self.places)
        sleeping = [self.due[name] for name, place in self.places.items() if place == "waiting"]
        late = [due for due in sleeping if due > self.now]
        if late and self.turns.first(self.now) is None:
            # As a queue does it: the wake is asked for when there was nothing to take.
            assert self.turns.next(self.now) is None
            wake = self.turns.wake_at()
            assert wake is not None
            assert wake <= min(late)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
