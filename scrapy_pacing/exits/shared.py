"""The exit pools of a process: crawls with the same exits share one, so that an origin keeps its exit across them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_pacing.core.exits import ExitPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_pacing.core.clock import Clock
    from scrapy_pacing.core.exits import Cause, Exit, Lease
    from scrapy_pacing.gate import Gate

    from .settings import ExitSettings

logger = logging.getLogger(__name__)

# With URLs, in memory only: whoever changes a password must not go on with the old one.
_List = tuple[tuple[str, "str | None"], ...]
_MOST_POOLS = 16


class SharedExits:
    """The pools of a set of crawls, and who wants to know of rotations."""

    def __init__(self, gate: Gate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._pools: dict[_List, ExitPool] = {}
        self._callbacks: list[Callable[[str], None]] = []

    def pool(self, exits: Sequence[Exit], settings: ExitSettings, *, max_origins: int) -> ExitPool:
        """Return the pool of exactly these exits, made if it is the first time; who made it has set its numbers."""
        key = tuple(sorted((leaving_by.id, leaving_by.url) for leaving_by in exits))
        pool = self._pools.pop(key, None)
        if pool is None:
            self._warn_of_overlap({leaving_by.id for leaving_by in exits})
            pool = ExitPool(
                exits,
                max_sessions_per_exit=settings.max_sessions,
                rules=settings.rules,
                clock=self._clock,
                max_origins=max_origins,
            )
            pool.watch(self._gate.ask_again)
            pool.follow(self._ended)
        elif (pool.max_sessions_per_exit, pool.rules) != (settings.max_sessions, settings.rules):
            logger.warning(
                "PACING_MAX_SESSIONS_PER_EXIT and PACING_BAN_AFTER stay as the first crawl of this process has set "
                "them, %d and %d: the exits are shared",
                pool.max_sessions_per_exit,
                pool.rules.ban_after,
            )
        self._pools[key] = pool
        while len(self._pools) > _MOST_POOLS:
            unused = next(iter(self._pools))
            del self._pools[unused]
        return pool

    def on_rotation(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with an origin whenever evidence has ended its lease: it is a stranger there again."""
        self._callbacks.append(callback)

    def _ended(self, lease: Lease, cause: Cause) -> None:  # noqa: ARG002 - the pool's arguments
        self._gate.end(lease)
        for callback in tuple(self._callbacks):
            callback(lease.origin)

    def _warn_of_overlap(self, ids: set[str]) -> None:
        if any(ids & {name for name, _ in key} for key in self._pools):
            logger.warning(
                "Another crawl of this process has some of these exits in a different list; each list holds "
                "PACING_MAX_SESSIONS_PER_EXIT for itself. Give both the same exits"
            )
