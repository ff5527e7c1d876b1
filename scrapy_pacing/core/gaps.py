"""The law of the gaps, for a mean of one interval.

A gap is drawn in units of the interval and multiplied by the interval of the moment, so the whole law scales when a
limit is learned. With probability ``pause_probability`` it is a reading pause, uniform between two lengths; else it is
gamma distributed and clamped to a floor and a ceiling.

Clamps and pauses move the mean. It is not tuned back but solved for: with G of shape k and scale t, and P the
regularised lower incomplete gamma function,

    E[clamp(G)] = floor * P(k, floor/t) + ceiling * (1 - P(k, ceiling/t))
                  + k * t * (P(k+1, ceiling/t) - P(k+1, floor/t))

grows with t from the floor to the ceiling, and the t is taken for which the mean of the mixture is exactly one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

# The incomplete gamma function is summed until a term no longer changes the result, and never longer than this.
_MOST_TERMS = 10_000
_TINY = 1e-300
# One gap in this many of the bare gamma stream is longer than the shortest pause: practically none.
PAUSE_RARITY = 10_000


class RandomSource(Protocol):
    """The part of ``random.Random`` that the law draws from."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def uniform(self, a: float, b: float) -> float:
        """A number between two others."""

    def gammavariate(self, alpha: float, beta: float) -> float:
        """A gamma distributed number of shape ``alpha`` and scale ``beta``."""


def lower_gamma(shape: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P(shape, x), good to about 1e-12.

    It is the probability that a gamma distributed number of scale 1 is at most ``x`` (DLMF 8.2.4).
    """
    if x <= 0.0:
        return 0.0
    if math.isinf(x):
        return 1.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1.0:
        return min(1.0, front * _series(shape, x))
    return max(0.0, 1.0 - front * _continued_fraction(shape, x))


def _series(shape: float, x: float) -> float:
    """Sum of DLMF 8.7.1, which converges fast left of the peak."""
    term = total = 1.0 / shape
    for n in range(1, _MOST_TERMS):
        term *= x / (shape + n)
        total += term
        if term < total * 1e-16:
            break
    return total


def _continued_fraction(shape: float, x: float) -> float:
    """Value of DLMF 8.9.2 by the modified Lentz method, which converges fast right of the peak."""
    b = x + 1.0 - shape
    c = 1.0 / _TINY
    d = 1.0 / b
    value = d
    for n in range(1, _MOST_TERMS):
        a = -n * (n - shape)
        b += 2.0
        d = 1.0 / ((a * d + b) or _TINY)
        c = (b + a / c) or _TINY
        step = d * c
        value *= step
        if abs(step - 1.0) < 1e-15:
            break
    return value


def clamped_mean(shape: float, scale: float, floor: float, ceiling: float) -> float:
    """Return the mean of a gamma distributed number that is clamped to ``floor`` and ``ceiling``."""
    low, high = floor / scale, ceiling / scale
    mean = shape * scale * (lower_gamma(shape + 1.0, high) - lower_gamma(shape + 1.0, low))
    mean += floor * lower_gamma(shape, low)
    if not math.isinf(ceiling):
        mean += ceiling * (1.0 - lower_gamma(shape, high))
    return mean


def gamma_quantile(shape: float, probability: float) -> float:
    """Return what a gamma distributed number of mean 1 stays below with ``probability``."""
    low, high = 0.0, 1.0
    while lower_gamma(shape, high * shape) < probability:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if lower_gamma(shape, middle * shape) < probability:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True)
class GapLaw:
    """How gaps are drawn, in units of the interval; the mean of `draw` is 1.

    Built by `solve`, which finds the scale. Immutable, and shared by all origins that have one policy.
    """

    shape: float
    scale: float
    floor: float
    ceiling: float
    pause_probability: float
    pause_min: float
    pause_max: float

    @classmethod
    def solve(
        cls,
        shape: float,
        floor: float,
        ceiling: float,
        pause_probability: float,
        pause_min: float,
        pause_max: float,
    ) -> GapLaw:
        """Return the law whose mean is 1; all lengths are in intervals.

        Raises ValueError if no scale gives that mean (the pauses alone are longer, or the clamps exclude it).
        """
        pauses = pause_probability * (pause_min + pause_max) / 2.0
        target = (1.0 - pauses) / (1.0 - pause_probability)
        if not floor < target < ceiling:
            raise ValueError(f"the mean would have to be {target:.4g} between {floor:.4g} and {ceiling:.4g}")
        scale = target / shape
        if floor > 0.0 or not math.isinf(ceiling):
            scale = _solve_scale(shape, floor, ceiling, target)
        return cls(shape, scale, floor, ceiling, pause_probability, pause_min, pause_max)

    def draw(self, source: RandomSource) -> float:
        """Draw one gap in intervals."""
        if self.pause_probability and source.random() < self.pause_probability:
            return source.uniform(self.pause_min, self.pause_max)
        gap = source.gammavariate(self.shape, self.scale)
        return min(max(gap, self.floor), self.ceiling)


def _solve_scale(shape: float, floor: float, ceiling: float, target: float) -> float:
    """Bisect for the scale at which the clamped mean is ``target``; it grows with the scale."""
    low = high = target / shape
    while clamped_mean(shape, low, floor, ceiling) > target and low > 1e-12:
        low /= 4.0
    while clamped_mean(shape, high, floor, ceiling) < target and high < 1e12:
        high *= 4.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2.0
        if clamped_mean(shape, middle, floor, ceiling) < target:
            low = middle
        else:
            high = middle
    return high
