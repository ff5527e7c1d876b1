"""The numbers of a crawl's behaviour. Their defaults live here and nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn

from .gaps import PAUSE_RARITY, GapLaw, gamma_quantile
from .origins import host_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingPolicy:
    """How a crawl behaves towards a site. All times are seconds.

    A policy is checked when it is made: a number that can't be honoured raises ValueError with the field, the value
    and what is allowed. Derive one from another with ``dataclasses.replace``.

    >>> PacingPolicy(interval=-1)
    Traceback (most recent call last):
    ValueError: interval is -1; allowed: 0 to 86400 seconds
    """

    interval: float = 4.0
    """Mean of the gaps between two requests to a site. 0: no gaps until a refusal teaches some."""
    shape: float = 2.5
    """Shape of the gamma law: 1 is exponential (bursts), 100 nearly a fixed beat."""
    floor: float | None = None
    """No gap is shorter. None: a tenth of the interval."""
    ceiling: float | None = None
    """No gap but a reading pause is longer. None: six intervals; ``inf``: no ceiling."""
    pause_probability: float = 0.02
    """Share of the gaps that are reading pauses."""
    pause_min: float | None = None
    """Shortest pause. None: eight intervals, or what the gamma stream exceeds once in 10,000 gaps if that is longer."""
    pause_max: float | None = None
    """Longest pause. None: twice the shortest."""
    backoff_factor: float = 2.0
    """A refusal without a number of the server's multiplies the interval by this."""
    first_interval: float = 1.0
    """What such a refusal teaches where the interval is 0."""
    max_interval: float = 300.0
    """No refusal makes the interval longer than this (or than ``interval``, if that is longer)."""
    max_hold: float = 3600.0
    """The longest wait that a Retry-After can impose; what it asked for is kept and shown."""
    recover_after: int = 10
    """So many successes in a row ease the interval once."""
    recover_factor: float = 0.9
    """Easing multiplies a widened interval by this, and stops at ``interval``."""
    evidence_after: int = 5
    """So many requests between refusals are enough to estimate what a site sustains; below, only the numbers above."""
    latency_factor: float = 1.0
    """The mean gap is no shorter than this times the time that an answer takes. 0: whatever it takes."""
    trouble_after: int = 3
    """So many failures in a row (no connection, a time-out, 5xx) widen the gaps, and each further one does."""
    trouble_quiet: float = 600.0
    """That widening is forgiven this long after the last failure."""
    warmup_ttl: float = 6 * 3600.0
    """An origin not visited through its homepage for this long is cold again."""

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_number(field.name)
        self._check("interval", 0 <= self.interval <= 86_400, "0 to 86400 seconds")
        self._check("shape", 0.5 <= self.shape <= 100, "0.5 to 100")
        self._check("pause_probability", 0 <= self.pause_probability <= 0.5, "0 to 0.5")
        self._check("backoff_factor", 1 < self.backoff_factor <= 100, "above 1, at most 100")
        self._check("first_interval", 0 < self.first_interval <= 3600, "above 0, at most 3600 seconds")
        self._check("max_interval", 0 < self.max_interval <= 86_400, "above 0, at most 86400 seconds")
        self._check("max_hold", 0 <= self.max_hold <= 7 * 86_400, "0 to 604800 seconds")
        self._check("recover_after", isinstance(self.recover_after, int), "a whole number")
        self._check("recover_after", 1 <= self.recover_after <= 1_000_000, "1 to 1000000 successes")
        self._check("recover_factor", 0 < self.recover_factor < 1, "above 0, below 1")
        self._check("evidence_after", isinstance(self.evidence_after, int), "a whole number")
        self._check("evidence_after", 1 <= self.evidence_after <= 1_000_000_000, "1 to 1000000000 requests")
        self._check("latency_factor", 0 <= self.latency_factor <= 100, "0 to 100")
        self._check("trouble_after", isinstance(self.trouble_after, int), "a whole number")
        self._check("trouble_after", 1 <= self.trouble_after <= 1_000_000, "1 to 1000000 failures")
        self._check("trouble_quiet", 0 <= self.trouble_quiet <= 7 * 86_400, "0 to 604800 seconds")
        self._check("warmup_ttl", 0 <= self.warmup_ttl <= 365 * 86_400, "0 to 31536000 seconds")
        self.law()

    def law(self) -> GapLaw:
        """Return the law of this policy's gaps, in units of the interval (see `scrapy_pacing.core.gaps`)."""
        return _law_of(self)

    def interval_cap(self) -> float:
        """Return the longest interval that refusals can teach."""
        return max(self.max_interval, self.interval)

    def _check_number(self, name: str) -> None:
        value = getattr(self, name)
        if value is None and name in DERIVED_FIELDS:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._fail(name, "a number")
        if isinstance(value, int) and abs(value) > 10**15:
            self._fail(name, "a smaller number")
        if math.isnan(value) or (math.isinf(value) and not (name == "ceiling" and value > 0)):
            self._fail(name, "a finite number")

    def _check(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            self._fail(name, allowed)

    def _fail(self, name: str, allowed: str) -> NoReturn:
        raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {allowed}")


class PolicyBook:
    """Which policy holds for which origin: a general one, and overrides for an origin or a bare host."""

    __slots__ = ("general", "overrides")

    def __init__(self, general: PacingPolicy, overrides: Mapping[str, PacingPolicy] | None = None) -> None:
        self.general = general
        self.overrides = dict(overrides or {})

    def of(self, origin: str) -> PacingPolicy:
        """Return the policy of ``origin``: its own, its host's, or the general one."""
        if not self.overrides:
            return self.general
        return self.overrides.get(origin) or self.overrides.get(host_of(origin)) or self.general

    def __repr__(self) -> str:
        return f"PolicyBook({self.general!r}, {len(self.overrides)} overrides)"


# The fields that follow from the others where they are None.
DERIVED_FIELDS = frozenset({"floor", "ceiling", "pause_min", "pause_max"})


@lru_cache(maxsize=256)
def _law_of(policy: PacingPolicy) -> GapLaw:
    """Solve a policy's law; raises ValueError where no law has the policy's mean."""
    unit = policy.interval
    if unit == 0:
        for name in sorted(DERIVED_FIELDS):
            if getattr(policy, name) not in (None, 0, math.inf):
                raise ValueError(
                    f"{name} is {getattr(policy, name)!r} while interval is 0; allowed: None, since without an "
                    "interval there are no gaps that it could bound"
                )
        unit = 1.0
    check = policy._check  # noqa: SLF001 - same module, same class
    floor = unit / 10 if policy.floor is None else policy.floor
    check("floor", 0 <= floor < unit, f"0 up to, not including, the interval ({unit:g})")
    ceiling = unit * 6 if policy.ceiling is None else policy.ceiling
    check("ceiling", ceiling > unit, f"above the interval ({unit:g})")
    if policy.pause_probability == 0:
        return GapLaw.solve(policy.shape, floor / unit, ceiling / unit, 0.0, 0.0, 0.0)

    longest_gap = unit * gamma_quantile(policy.shape, 1 - 1 / PAUSE_RARITY)
    pause_min = policy.pause_min
    if pause_min is None:
        pause_min = max(8 * unit, min(longest_gap, ceiling))
    bound = min(ceiling, longest_gap)
    check(
        "pause_min",
        pause_min >= bound,
        f"at least {bound:.4g}, which the other gaps practically never exceed",
    )
    pause_max = 2 * pause_min if policy.pause_max is None else policy.pause_max
    check("pause_max", pause_max >= pause_min, f"at least pause_min ({pause_min:.4g})")
    mean_pause = (pause_min + pause_max) / 2
    most = (unit - floor) / (mean_pause - floor)
    check(
        "pause_probability",
        policy.pause_probability < most,
        f"below {most:.4g}, since pauses of {mean_pause:.4g} s would else make up the whole interval of {unit:g} s",
    )
    try:
        return GapLaw.solve(
            policy.shape, floor / unit, ceiling / unit, policy.pause_probability, pause_min / unit, pause_max / unit
        )
    except ValueError:
        # Within a rounding step of the limit.
        check("pause_probability", False, f"below {most:.4g}")
        raise
