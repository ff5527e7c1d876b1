"""The two clocks of a crawl, read in one place.

Monotonic seconds measure waits: they never step. Wall-clock seconds (since the epoch) are for HTTP dates and for
what is kept in a file. The two never mix: a value is converted once, where it enters or leaves.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a pacer needs to know of time; tests pass ``scrapy_pacing.testing.FakeClock``."""

    def monotonic(self) -> float:
        """Seconds that only grow, from an arbitrary zero."""

    def wall(self) -> float:
        """Seconds since the epoch, which may step when somebody sets the clock."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def __repr__(self) -> str:
        return "SystemClock()"
