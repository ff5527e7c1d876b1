"""The numbers that a simulation can be asked for."""

from __future__ import annotations

import math


def above_zero(name: str, value: float) -> float:
    """Return ``value``; raises ValueError unless it is above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; allowed: above 0, finite")
    return value


def at_least_one(name: str, value: int) -> int:
    """Return ``value``; raises ValueError if it is below 1."""
    if not value >= 1:
        raise ValueError(f"{name} is {value!r}; allowed: 1 or more")
    return value
