"""The paces of all origins, bounded: which policy each has, what was remembered of it, and which are dropped.

The state of an origin is dropped only when it is idle: nothing in flight, no deadline ahead. What is dropped without
having been kept for the next run is learned anew, so those that have learned nothing go first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pace import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .clock import Clock
    from .lessons import Learned, Lessons
    from .policy import PacingPolicy, PolicyBook


class Paces:
    """The state of each origin, in the order of use."""

    def __init__(self, book: PolicyBook, *, clock: Clock, lessons: Lessons | None, max_origins: int) -> None:
        self._books = [book]
        self._clock = clock
        self._lessons = lessons
        self._paces: dict[str, Pace] = {}
        self._max_origins = max_origins
        self._prune_at = max_origins

    def known(self, origin: str) -> Pace | None:
        """Return the state of an origin that is in memory, else None."""
        return self._paces.get(origin)

    def use(self, origin: str) -> Pace:
        """Return the state of an origin, made if need be, and note that it was used."""
        pace = self._paces.pop(origin, None) or self._new(origin)
        # Last in the order of use, so that pruning meets the longest unused first.
        self._paces[origin] = pace
        return pace

    def of(self, origin: str) -> Pace:
        """Return the state of an origin, made if need be."""
        pace = self._paces.get(origin)
        if pace is None:
            pace = self._paces[origin] = self._new(origin)
        return pace

    def find(self, origin: str) -> Pace | None:
        """Return the state of an origin without making one, unless something is remembered of it."""
        pace = self._paces.get(origin)
        if pace is None and self._lessons is not None and self._lessons.recall(origin) is not None:
            pace = self._paces[origin] = self._new(origin)
        return pace

    def kept(self, pace: Pace) -> Learned:
        """Return what the next run shall know of an origin."""
        return pace.kept(now=self._clock.monotonic(), wall=self._clock.wall())

    def remember(self, origin: str, pace: Pace) -> None:
        """Keep for the next run what was learned."""
        if self._lessons is not None:
            self._lessons.record(origin, self.kept(pace))

    def policy_of(self, origin: str) -> PacingPolicy:
        """Return the policy that holds for an origin: the slowest of all books."""
        if len(self._books) == 1:
            return self._books[0].of(origin)
        return max((book.of(origin) for book in self._books), key=lambda policy: policy.interval)

    def share(self, books: Sequence[PolicyBook]) -> None:
        """Go on under other policies."""
        self._books = list(books)
        for origin, pace in self._paces.items():
            pace.adopt(self.policy_of(origin))

    def __len__(self) -> int:
        return len(self._paces)

    def _new(self, origin: str) -> Pace:
        if len(self._paces) >= self._prune_at:
            self._prune()
        pace = Pace(self.policy_of(origin))
        learned = self._lessons.recall(origin) if self._lessons is not None else None
        if learned is not None:
            pace.recall(learned, now=self._clock.monotonic(), wall=self._clock.wall())
        return pace

    def _prune(self) -> None:
        """Drop idle origins, the longest unused first; those with nothing learned before those with something."""
        now = self._clock.monotonic()
        keep = self._max_origins * 3 // 4
        for spare_learned in (self._lessons is None, False):
            for origin, pace in list(self._paces.items()):
                if len(self._paces) <= keep:
                    break
                learned = pace.interval != pace.policy.interval
                if pace.is_idle(now) and not (learned and spare_learned):
                    del self._paces[origin]
        # Where most origins still wait, look again only when a good many more have come: pruning stays O(1) a request.
        self._prune_at = max(self._max_origins, len(self._paces) * 5 // 4)
