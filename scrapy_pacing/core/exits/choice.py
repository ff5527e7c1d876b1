"""Which exit an origin gets, of those that could serve it.

A living exit comes before a dead one that is due for a probe. Of the dead, its own origins probe it first; others only
where those are done with it, or where they have nobody else. An exit by which the origin heard nothing comes after the
others. Then counts who has room, and the fewest leases.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .health import ExitHealth
    from .holders import Holder
    from .values import ExitRules


def may_still_probe(holder: Holder, health: ExitHealth, now: float) -> bool:
    """Tell whether a lease of a dead exit stands: it was leased dead, to be probed, and still can be."""
    return holder.exit_epoch == health.epoch and (health.probe is not None or health.probe_at <= now)


def available_at(exits: Iterable[ExitHealth], holder: Holder, rules: ExitRules) -> float:
    """Return the instant from which there is an exit for the holder; ``inf`` where there is none at all."""
    return min((at for _, at, _ in _options(exits, holder, rules)), default=math.inf)


def choose(
    exits: Iterable[ExitHealth],
    holder: Holder,
    *,
    prefer: str | None,
    now: float,
    rules: ExitRules,
    max_sessions: int,
) -> ExitHealth | None:
    """Return the exit for a new lease of the holder, or None if there is none now.

    ``prefer`` is the id of an exit that is taken where the holder has no lease and that exit lives.
    """
    ready = [(health, rank) for health, at, rank in _options(exits, holder, rules) if at <= now]
    if holder.lease is None and prefer is not None:
        for health, _ in ready:
            if health.exit.id == prefer and not health.is_dead:
                return health
    if not ready:
        return None

    def readiness(option: tuple[ExitHealth, int]) -> tuple[int, bool, bool, bool, int, int, int]:
        health, rank = option
        full = not health.has_room(now, max_sessions)
        silent = health.exit.id in holder.silent
        return rank, silent, health.is_suspect, full, health.leases, health.in_flight, health.order

    return min(ready, key=readiness)[0]


def _options(exits: Iterable[ExitHealth], holder: Holder, rules: ExitRules) -> Iterator[tuple[ExitHealth, float, int]]:
    """Yield the exits that a holder could go by: from when on, and how readily (0 first)."""
    held = holder.lease
    for health in exits:
        kept_until = holder.kept_until(health.exit.id)
        if not health.is_dead:
            yield health, kept_until, 0
            continue
        if held is not None and held.exit.id == health.exit.id:
            yield health, max(health.probe_at, kept_until), 1
            continue
        # Its own origins have the first turn to probe it; where they are done, somebody else must.
        overdue_at = health.probe_at + (rules.exit_cooldown if health.leases and held is not None else 0.0)
        rank = 2 if held is not None else 1 if health.leases else 0
        yield health, max(overdue_at, kept_until), rank
