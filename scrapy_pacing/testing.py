"""For tests: a clock that moves when told, and random sources that repeat.

Pass them to the core's constructors. Nothing here changes global state, and nothing waits.
"""

from __future__ import annotations

import random

__all__ = ["FakeClock", "seeded"]


class FakeClock:
    """A `Clock` that stands still until `advance` is called.

    >>> clock = FakeClock()
    >>> clock.advance(2.5)
    >>> clock.monotonic()
    2.5
    """

    def __init__(self, *, monotonic: float = 0.0, wall: float = 1_800_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall

    def monotonic(self) -> float:
        """Seconds since this clock was made, plus its start."""
        return self._monotonic

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let both clocks run; raises ValueError for a negative time, since a monotonic clock never turns back."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds!r}; allowed: 0 or more (set_wall steps the wall clock)")
        self._monotonic += seconds
        self._wall += seconds

    def set_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an administrator or a time server does."""
        self._wall = seconds


def seeded(seed: int = 0) -> random.Random:
    """Return a random source that draws the same numbers for the same seed."""
    return random.Random(seed)
