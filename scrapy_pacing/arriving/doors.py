"""Which homepages were visited, and the visits under way, for all crawls of a process.

1. A door is an origin together with the cookie jar that a visit's cookies go to: another jar is another visitor.
2. One visit to a door at a time; whoever comes meanwhile waits for it. Crawls that share a door share the visit.
3. A visit that left cookies counts for the jars that got them; one that left none counts for every crawl.
4. A visit that failed is not tried again for a while, so a broken homepage isn't asked for by each request.
5. A wait ends with the visit, or with the crawl that waits, and never otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_pacing.core.clock import Clock

RETRY_FAILED_AFTER = 600.0
"""Seconds."""


def door_of(request: Request, origin: str) -> str:
    """Return the door by which ``request`` arrives at ``origin``, the origin of its URL."""
    jar = request.meta.get("cookiejar")
    return origin if jar is None else f"{origin} {jar!r}"


class Visit:
    """A visit to a homepage under way, and those who wait for it."""

    def __init__(self, door: str, origin: str, owner: object) -> None:
        self.door = door
        self.origin = origin
        self.owner = owner
        self.cookies: list[tuple[str, list[bytes]]] = []
        """The Set-Cookie fields of each hop, with its URL."""
        self.further: dict[str, str] = {}
        """The doors of other origins of the site that its redirects led to, with their origins."""
        self.ended = False
        self.settled = False
        """Whether it ended by itself, well or not; False: its crawl closed before."""
        self._waiting: list[tuple[object, Request, Deferred[bool]]] = []

    async def wait(self, owner: object, request: Request) -> bool:
        """Wait until the visit has ended; return False if the ``owner`` or the request itself was closed before."""
        if self.ended:
            return True
        ended: Deferred[bool] = Deferred()
        place = (owner, request, ended)
        self._waiting.append(place)
        try:
            return await maybe_deferred_to_future(ended)
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            raise

    def end(self, *, settled: bool) -> None:
        """Let everybody go on; a second end changes nothing."""
        if self.ended:
            return
        self.ended, self.settled = True, settled
        waiting, self._waiting = self._waiting, []
        for *_, ended in waiting:
            ended.callback(True)

    def close(self, owner: object) -> None:
        """Let go those of ``owner``, whose crawl is closing, or a single request by itself."""
        leaving = [place for place in self._waiting if owner in place[:2]]
        self._waiting = [place for place in self._waiting if owner not in place[:2]]
        for *_, ended in leaving:
            ended.callback(False)


class _Door:
    """What is known of a door."""

    __slots__ = ("failed", "said", "visited")

    def __init__(self) -> None:
        # The visit that counts for every crawl, wall clock; the failure, monotonic clock.
        self.visited: float | None = None
        self.failed: float | None = None
        self.said = False


class FrontDoors:
    """What the crawls of a process know of homepages; bounded, what was used longest ago goes first."""

    def __init__(self, clock: Clock, *, max_doors: int = 4096) -> None:
        self._clock = clock
        self._max_doors = max_doors
        self._doors: dict[str, _Door] = {}
        self._with_cookies: dict[object, dict[str, float]] = {}
        self._visits: dict[str, Visit] = {}
        self._heirs: dict[str, str] = {}

    def last_visit(self, door: str, owner: object) -> float | None:
        """Return when ``owner`` was last visitor at a door (wall clock), as far as this process knows."""
        own = self._with_cookies.get(owner)
        known = self._doors.get(door)
        times = [own.get(door) if own else None, known.visited if known else None]
        return max((at for at in times if at is not None), default=None)

    def inherits(self, door: str, origin: str) -> bool:
        """Return whether what earlier runs knew of ``origin`` counts for ``door``.

        It does for the first door of the origin that asks: a further one has another jar, or another exit.
        """
        heir = self._heirs.setdefault(origin, door)
        if len(self._heirs) > self._max_doors:
            del self._heirs[next(iter(self._heirs))]
        return heir == door

    def visited(self, door: str, owner: object, *, cookies: bool) -> None:
        """Record that ``owner`` has just visited a door; ``cookies``: only its own jar has what was given there."""
        known = self._door(door)
        known.failed, known.said = None, False
        if not cookies:
            known.visited = self._clock.wall()
            return
        own = self._with_cookies.setdefault(owner, {})
        own.pop(door, None)
        own[door] = self._clock.wall()
        if len(own) > self._max_doors:
            del own[next(iter(own))]

    def failed(self, door: str) -> bool:
        """Record that a visit has failed; return whether that is news."""
        known = self._door(door)
        known.failed = self._clock.monotonic()
        news, known.said = not known.said, True
        return news

    def failed_lately(self, door: str) -> bool:
        """Return whether a visit has failed, and it is too early for another one."""
        known = self._doors.get(door)
        if known is None or known.failed is None:
            return False
        return self._clock.monotonic() - known.failed < RETRY_FAILED_AFTER

    def under_way(self, door: str) -> Visit | None:
        """Return the visit under way, or None."""
        return self._visits.get(door)

    def begin(self, door: str, origin: str, owner: object) -> Visit:
        """Begin a visit; there must be none under way."""
        visit = self._visits[door] = Visit(door, origin, owner)
        return visit

    def end(self, visit: Visit, *, settled: bool) -> None:
        """End a visit."""
        if self._visits.get(visit.door) is visit:
            del self._visits[visit.door]
        visit.end(settled=settled)

    def close(self, owner: object) -> None:
        """End the waits of ``owner``, or of a single request; the others' go on."""
        for visit in list(self._visits.values()):
            visit.close(owner)

    def leave(self, owner: object) -> None:
        """Forget a crawl, whose jars are gone; what it learned that counts for every crawl stays."""
        self.close(owner)
        self._with_cookies.pop(owner, None)

    def __len__(self) -> int:
        """Return the number of doors that something is known of."""
        return len(self._doors)

    def _door(self, door: str) -> _Door:
        known = self._doors.pop(door, None) or _Door()
        self._doors[door] = known
        if len(self._doors) > self._max_doors:
            del self._doors[next(iter(self._doors))]
        return known
