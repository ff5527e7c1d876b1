"""What the pacer says that it has learned, and what of it is kept between runs.

Kept is what the next run can use: the interval, a hold that still lasts, and the evidence about the site's limit.
Monotonic seconds mean nothing to another run, so what is kept has wall-clock seconds instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .estimator import LIFE, LONGEST, Estimator, Evidence


@dataclass(frozen=True, slots=True)
class Departure:
    """One request that has left: where to, when (monotonic), and in which epoch of the origin's learning."""

    origin: str
    at: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a refusal or a row of successes has changed; ``old`` and ``new`` are intervals in seconds."""

    origin: str
    old: float
    new: float
    why: str
    hold: float | None = None
    """For how long nothing leaves now, where the server named a time."""
    asked: float | None = None
    """What the server asked for, before `PacingPolicy.max_hold` capped it."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What is kept of an origin between runs; ``hold_until`` and ``refused_at`` are wall-clock seconds.

    The fields from ``sustained`` on are the evidence about its limit (`scrapy_pacing.core.estimator.Evidence`), zero
    where nothing is known.
    """

    interval: float
    hold_until: float = 0.0
    asked: float = 0.0
    sustained: float = 0.0
    wall: float = 0.0
    refusals: int = 0
    sure: bool = False
    shut: float = 0.0
    refused_at: float = 0.0


# The fields of `Learned` that are evidence about the limit.
EVIDENCE = ("sustained", "wall", "refusals", "sure", "shut", "refused_at")


class Lessons(Protocol):
    """Where learned intervals are kept; `scrapy_pacing.Memory` is one."""

    def recall(self, origin: str) -> Learned | None:
        """What was learned of an origin earlier, or None."""

    def record(self, origin: str, learned: Learned) -> None:
        """Keep what was learned; called at every change, so it must be cheap."""


def with_evidence(
    interval: float, hold_until: float, asked: float, limit: Estimator, *, now: float, wall: float
) -> Learned:
    """Return what is kept of an origin; ``now`` and ``wall`` are one moment, monotonic and wall-clock."""
    known = limit.known
    if not known.refusals:
        return Learned(interval, hold_until, asked)
    return Learned(
        interval,
        hold_until,
        asked,
        known.sustained,
        known.wall,
        known.refusals,
        known.sure,
        known.shut,
        wall - max(0.0, now - limit.known_at),
    )


def evidence_in(learned: Learned, *, now: float, wall: float) -> Estimator:
    """Return what an earlier run knew of a limit; nothing where it is too old, or makes no sense."""
    age = wall - learned.refused_at
    numbers = (learned.sustained, learned.wall, learned.shut)
    if learned.refusals < 1 or not age <= LIFE or not all(0 <= number <= LONGEST for number in numbers):
        return Estimator()
    known = Evidence(learned.sustained, learned.wall, learned.refusals, learned.sure, learned.shut)
    return Estimator(known, now - max(0.0, age))
