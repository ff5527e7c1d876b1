"""What users may write, checked by mypy and never run.

A line with an ignore comment is one that must *not* type-check: mypy reports an ignore that nothing needs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typing_extensions import assert_type

from scrapy_pacing import (
    Addon,
    Departure,
    Learned,
    Lesson,
    Lessons,
    Pacer,
    PacingMiddleware,
    PacingPolicy,
    PolicyBook,
    SharedState,
    origin_key,
)
from scrapy_pacing.core.clock import Clock, SystemClock
from scrapy_pacing.testing import FakeClock, seeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

    from scrapy_pacing.core.gaps import RandomSource


def policies() -> None:
    policy = PacingPolicy(interval=4, shape=2.5, floor=None, ceiling=float("inf"), recover_after=3)
    assert_type(policy.interval, float)
    assert_type(policy.floor, float | None)
    assert_type(policy.recover_after, int)
    assert_type(replace(policy, interval=2.0), PacingPolicy)
    PacingPolicy(4.0)  # type: ignore[call-arg]
    PacingPolicy(interval="4")  # type: ignore[arg-type]
    PacingPolicy(interval=None)  # type: ignore[arg-type]
    PacingPolicy(intervall=4)  # type: ignore[call-arg]
    policy.interval = 3.0  # type: ignore[misc]

    book = PolicyBook(policy, {"example.com": replace(policy, interval=10)})
    assert_type(book.of("https://example.com"), PacingPolicy)


def pacers() -> None:
    Pacer()
    Pacer(PacingPolicy())
    Pacer(PacingPolicy(), overrides={"example.com": PacingPolicy(interval=10)}, max_origins=100)
    Pacer(PacingPolicy(), {})  # type: ignore[call-arg]
    Pacer({"interval": 4})  # type: ignore[arg-type]
    pacer = Pacer(clock=FakeClock(), source=seeded(1))
    Pacer(clock=SystemClock(), source=random.SystemRandom())

    assert_type(pacer.gap("https://example.com"), float)
    assert_type(pacer.next_delay("https://example.com"), float)
    assert_type(pacer.ready_at("https://example.com"), float)
    assert_type(pacer.interval("https://example.com"), float)
    assert_type(pacer.in_flight("https://example.com"), int)
    assert_type(pacer.hold("https://example.com"), Learned | None)
    assert_type(pacer.policy_of("https://example.com"), PacingPolicy)
    assert_type(len(pacer), int)

    departure = pacer.depart("https://example.com")
    assert_type(departure, Departure)
    assert_type(departure.at, float)
    departure.at = 3.0  # type: ignore[misc]
    pacer.land(departure)
    pacer.land("https://example.com")  # type: ignore[arg-type]

    lesson = pacer.throttled("https://example.com", 30, departure=departure, why="status 429")
    assert_type(lesson, Lesson | None)
    assert_type(pacer.throttled("https://example.com"), Lesson | None)
    assert_type(pacer.eased("https://example.com"), Lesson | None)
    pacer.throttled("https://example.com", "30")  # type: ignore[arg-type]
    pacer.throttled("https://example.com", 30, departure)  # type: ignore[call-arg]
    pacer.eased("https://example.com", departure)  # type: ignore[call-arg]
    print(lesson.new)  # type: ignore[union-attr]
    if lesson is not None:
        assert_type(lesson.old, float)
        assert_type(lesson.hold, float | None)
        assert_type(lesson.asked, float | None)
    pacer.failed("https://example.com")
    pacer.postpone("https://example.com", 5)
    pacer.share([PolicyBook(PacingPolicy())])

    def watcher(origin: str) -> None:
        print(origin)

    pacer.watch(watcher)
    pacer.unwatch(watcher)
    pacer.watch(lambda: None)  # type: ignore[arg-type, misc]


class MyClock:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 0.0


class MySource:
    def random(self) -> float:
        return 0.5

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2

    def gammavariate(self, alpha: float, beta: float) -> float:
        return alpha * beta


class MyLessons:
    def __init__(self, known: Mapping[str, Learned]) -> None:
        self.known = dict(known)

    def recall(self, origin: str) -> Learned | None:
        return self.known.get(origin)

    def record(self, origin: str, learned: Learned) -> None:
        self.known[origin] = learned


class HalfAClock:
    def monotonic(self) -> float:
        return 0.0


def parts_of_ones_own() -> None:
    clock: Clock = MyClock()
    source: RandomSource = MySource()
    lessons: Lessons = MyLessons({"https://example.com": Learned(8.0)})
    Pacer(clock=clock, source=source, lessons=lessons)
    Pacer(clock=MyClock(), source=MySource(), lessons=MyLessons({}))
    Pacer(clock=HalfAClock())  # type: ignore[arg-type]
    Pacer(lessons={})  # type: ignore[arg-type]


def fake_clocks() -> None:
    clock = FakeClock(monotonic=1.0, wall=2.0)
    clock.advance(3)
    clock.set_wall(4)
    assert_type(seeded(), random.Random)
    FakeClock(1.0)  # type: ignore[call-arg]


def origins() -> None:
    assert_type(origin_key("https://example.com/a"), str | None)
    origin_key(b"https://example.com/a")  # type: ignore[arg-type]


def by_account(request: Request, origin: str) -> str:
    """Write a PACING_ORIGIN_KEY of one's own."""
    return f"{origin} {request.meta.get('account', '')}"


def scrapy_side(settings: Settings, crawler: Crawler) -> None:
    Addon().update_settings(settings)
    assert_type(PacingMiddleware.from_crawler(crawler), PacingMiddleware)
    state = SharedState(Pacer())
    assert_type(state.pacer, Pacer)


class Thriftier(PacingMiddleware):
    """A subclass may add to what the middleware does."""

    async def process_request(self, request: Request) -> Request | None:
        request.headers.setdefault("Save-Data", "on")
        return await super().process_request(request)


SETTINGS: dict[str, Any] = {
    "ADDONS": {Addon: 500},
    "PACING_ORIGIN_KEY": by_account,
    "PACING_ORIGINS": {"example.com": {"interval": 10}},
}
