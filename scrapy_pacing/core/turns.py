"""Whose turn it is: origins that wait in a queue, ordered by when they may go.

An origin that has waiting requests is in one of three places:

- *ready*: may go now, first in, first out, so that the one that has waited longest goes first;
- *snoozed*: may go later, in a heap by due time;
- *parked*: waits for an event instead of a time (a request of it is on its way, or it lacks room).

Taking the next costs O(log origins), whatever the number that sleeps. Deadlines move later while an origin sleeps (a
refusal, another spider's departure); its entry in the heap is then corrected when it comes up, not before. Entries of
origins that left and came again are skipped when they come up, and cleared once they outnumber the live ones.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_READY, _SNOOZED, _PARKED = range(3)
_NAMES = {"ready": _READY, "snoozed": _SNOOZED, "parked": _PARKED}


class Turns:
    """The order of the origins of one queue. Times are monotonic seconds; ``ready_at`` is the pacer's."""

    def __init__(self, ready_at: Callable[[str], float]) -> None:
        self._ready_at = ready_at
        self._place: dict[str, int] = {}
        self._ready: deque[str] = deque()
        # (due, number, origin); the number keeps equal times in the order they came.
        self._snoozed: list[tuple[float, int, str]] = []
        self._number = itertools.count()

    def __len__(self) -> int:
        """Return how many origins wait, in whichever place."""
        return len(self._place)

    def __contains__(self, origin: str) -> bool:
        return origin in self._place

    def add(self, origin: str, now: float) -> None:
        """Let an origin take part that has waiting requests; does nothing if it does already."""
        if origin not in self._place:
            self._sort_in(origin, now)

    def remove(self, origin: str) -> None:
        """Take an origin out that has no more waiting requests; what is left of it in the order is skipped later."""
        self._place.pop(origin, None)
        if len(self._snoozed) + len(self._ready) > 2 * len(self._place) + 64:
            self._rebuild()

    def unpark(self, origin: str, now: float) -> bool:
        """Sort a parked origin in again; return whether it was parked."""
        if self._place.get(origin) != _PARKED:
            return False
        self._sort_in(origin, now)
        return True

    def next(self, now: float) -> str | None:
        """Take the origin whose turn it is out of the order, or return None if none is due.

        It is parked then, until the caller unparks or removes it.
        """
        self._wake(now)
        while self._ready:
            origin = self._ready.popleft()
            if self._place.get(origin) != _READY:
                continue
            due = self._ready_at(origin)
            if due > now:
                self._snooze(origin, due)
                continue
            self._place[origin] = _PARKED
            return origin
        return None

    def first(self, now: float) -> str | None:
        """Return the origin that `next` would take, and leave it in its place."""
        self._wake(now)
        for origin in self._ready:
            if self._place.get(origin) == _READY and self._ready_at(origin) <= now:
                return origin
        return None

    def wake_at(self) -> float | None:
        """Return when the next snoozed origin is due, at the earliest; None if none is snoozed."""
        while self._snoozed and self._is_stale(self._snoozed[0]):
            heapq.heappop(self._snoozed)
        return self._snoozed[0][0] if self._snoozed else None

    def census(self) -> dict[str, int]:
        """Return how many origins are ready, snoozed and parked."""
        places = list(self._place.values())
        return {name: places.count(place) for name, place in _NAMES.items()}

    def _sort_in(self, origin: str, now: float) -> None:
        due = self._ready_at(origin)
        if due > now:
            self._snooze(origin, due)
        else:
            self._place[origin] = _READY
            self._ready.append(origin)

    def _snooze(self, origin: str, due: float) -> None:
        self._place[origin] = _SNOOZED
        heapq.heappush(self._snoozed, (due, next(self._number), origin))

    def _is_stale(self, entry: tuple[float, int, str]) -> bool:
        return self._place.get(entry[2]) != _SNOOZED

    def _wake(self, now: float) -> None:
        """Move every snoozed origin that is due to the ready ones, in the order of their due times."""
        while self._snoozed and self._snoozed[0][0] <= now:
            entry = heapq.heappop(self._snoozed)
            if not self._is_stale(entry):
                self._sort_in(entry[2], now)

    def _rebuild(self) -> None:
        """Drop the entries of removed origins, once they are more than the live ones."""
        self._ready = deque(origin for origin in dict.fromkeys(self._ready) if self._place.get(origin) == _READY)
        live: dict[str, tuple[float, int, str]] = {}
        for entry in self._snoozed:
            if not self._is_stale(entry):
                live[entry[2]] = min(entry, live.get(entry[2], entry))
        self._snoozed = list(live.values())
        heapq.heapify(self._snoozed)
