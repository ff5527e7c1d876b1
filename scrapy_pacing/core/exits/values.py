"""The values that the exit pool gives out, and the numbers it goes by."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .evidence import Cause
    from .parsing import Exit

LEAST_SESSIONS = 1
MOST_SESSIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRules:
    """How much evidence moves an origin, and for how long an exit then rests. All times are seconds.

    >>> ExitRules(ban_after=0)
    Traceback (most recent call last):
    ValueError: ban_after is 0; allowed: 1 to 1000
    """

    ban_after: int = 3
    """So many refusals in a row, on different URLs with no success between, end an origin's lease.

    So do so many failures without any answer, but never one alone.
    """
    doubting_origins: int = 3
    """So many origins in a row must hear nothing, or be told of a fault, before the whole exit counts as dead."""
    pair_cooldown: float = 3600.0
    """An exit that an origin has refused is kept from it for this long; twice that at the next refusal, and so on."""
    exit_cooldown: float = 60.0
    """A dead exit is probed after this long; twice that after a probe that fails, and so on."""
    max_cooldown: float = 86_400.0
    """No cool-down grows beyond this."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = field.name in _WHOLE
            kind = int if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
                raise ValueError(f"{field.name} is {value!r}; allowed: a {'whole' if whole else 'finite'} number")
            low, high, allowed = _WHOLE.get(field.name, (1.0, 30 * 86_400.0, "1 to 2592000 seconds"))
            if not low <= value <= high:
                raise ValueError(f"{field.name} is {value!r}; allowed: {allowed}")

    @property
    def silent_after(self) -> int:
        """How many failures without an answer, in a row and on different URLs, move an origin: never one alone."""
        return max(2, self.ban_after)

    def cooldown(self, base: float, times: int) -> float:
        """Return the cool-down for the ``times``-th time: doubling from ``base``, never above the cap."""
        # The exponent is bounded before the power: 2 ** 22 seconds are above any cap that is allowed.
        grown = base * 2.0 ** min(times - 1, 22)
        return max(base, min(self.max_cooldown, grown))


_WHOLE: Mapping[str, tuple[float, float, str]] = {
    "ban_after": (1, 1000, "1 to 1000"),
    "doubting_origins": (1, 1000, "1 to 1000"),
}


@dataclass(frozen=True, slots=True)
class Lease:
    """An origin's exit, until evidence ends it.

    ``generation`` grows with each rotation: a cookie jar is named by origin, exit id and generation, and never again
    after the lease has ended.
    """

    origin: str
    exit: Exit
    generation: int

    @property
    def jar(self) -> str:
        """A name for the lease's cookie jar: plain text without secrets."""
        return f"{self.origin} {self.exit.id} {self.generation}"


@dataclass(frozen=True, slots=True)
class Session:
    """One request in flight through an exit. The epochs say what was known when it left."""

    lease: Lease
    serial: int
    row_epoch: int
    exit_epoch: int
    exit_answers: int
    """How many answers the exit had delivered by then."""
    silence_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a piece of evidence has changed; ``lease`` is the one it spoke against."""

    lease: Lease
    cause: Cause
    exit_died: bool = False
    """The exit now gets one probe at a time, after its cool-down."""
    moves: bool = False
    """The origin has another exit to go on by."""
    exhausted: bool = False
    """True once when the last exit of all has died: say it loudly."""


@dataclass(frozen=True, slots=True)
class ExitStats:
    """One exit's numbers. ``sessions`` counts since the start, ``rotations`` by cause those that left this exit."""

    exit: Exit
    leases: int
    in_flight: int
    sessions: int
    rotations: Mapping[str, int]
    dead: str | None
    """Why the exit is dead, or None if it is not."""


def clamp_sessions(value: object, *, setting: str = "max_sessions_per_exit") -> tuple[int, str | None]:
    """Return the number within 1 to 4, and a warning if it had to be changed; raises ValueError if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{setting} is {value!r}; allowed: a whole number from {LEAST_SESSIONS} to {MOST_SESSIONS}")
    clamped = min(max(value, LEAST_SESSIONS), MOST_SESSIONS)
    if clamped == value:
        return value, None
    return clamped, (
        f"{setting} is {value}; {clamped} is used, since it is clamped to {LEAST_SESSIONS} to {MOST_SESSIONS}: "
        "many requests at once through one address are conspicuous by themselves"
    )
