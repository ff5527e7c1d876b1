"""Between the queues of one crawl and its gate: which requests are on their way, and when to wake the engine.

A request is on its way from the moment it is popped until it departs, or until the downloader no longer holds it
(answered from the cache, dropped by a middleware, failed): a lost request must never block its origin.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later

from .compat import wake_engine

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from .core.pacer import Pacer
    from .pqueues import PacedPriorityQueue
    from .slots import DownloadSlots

# Room appears by events; this is the net below them.
_ROOM_RECHECK = 0.25
# How many requests on their way are looked after at each pop, lest popping costs the more the more there are.
_LOOKED_AFTER = 2


class Dispatch:
    """What the queues of one crawl share; the memory and the disk queue see one set of origins."""

    def __init__(self, crawler: Crawler, pacer: Pacer, slots: DownloadSlots) -> None:
        self.pacer = pacer
        self._crawler = crawler
        self._slots = slots
        self._queues: list[PacedPriorityQueue] = []
        # What is on its way, and how much of it for each origin: more than one only where there is no gap to keep.
        self._on_their_way: dict[Request, str] = {}
        self._counts: dict[str, int] = {}
        # Origins that lack room only; dict as an ordered set.
        self._roomless: dict[str, None] = {}
        self._timer: CallLaterResult | None = None
        self._timer_due = 0.0
        pacer.watch(self._moved)

    # -- the queues' side -------------------------------------------------------------------------------------------

    def register(self, queue: PacedPriorityQueue) -> None:
        """Let a queue take part."""
        self._queues.append(queue)

    def may_go(self, origin: str) -> bool:
        """Return whether an origin that is due may send a request now; else it is unparked when it may."""
        count = self._counts.get(origin, 0)
        if count and self.pacer.interval(origin) > 0:
            return False
        if self._slots.is_scarce(origin, count) and any(queue.has_others() for queue in self._queues):
            # The last places are for sites that have nothing under way: a slow one never takes them all.
            self._roomless[origin] = None
            return False
        if self._slots.origin_has_room(origin, count) and self._slots.exit_has_room(origin, self._counts):
            return True
        self._roomless[origin] = None
        return False

    def popped(self, origin: str, request: Request) -> None:
        """Record that a request of ``origin`` is on its way to the gate."""
        self._on_their_way[request] = origin
        self._counts[origin] = self._counts.get(origin, 0) + 1

    def look_after(self, *, everything: bool = False) -> bool:
        """Release origins whose request on its way was lost; return whether there were any."""
        if not self._on_their_way:
            return False
        held = self._held_by_the_downloader()
        count = len(self._on_their_way) if everything else _LOOKED_AFTER
        found = False
        for request in list(islice(self._on_their_way, count)):
            if request in held:
                # Behind the others, so that each has its turn of being looked after.
                self._on_their_way[request] = self._on_their_way.pop(request)
            else:
                found = True
                self.off_its_way(request)
        return found

    def wake_at(self, due: float | None) -> None:
        """Wake the engine at ``due`` (monotonic), or soon if some origin lacks room; an earlier wake stays."""
        now = self.pacer.clock.monotonic()
        if self._roomless:
            due = now + _ROOM_RECHECK if due is None else min(due, now + _ROOM_RECHECK)
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = call_later(max(0.0, due - now), self._wake)

    # -- the gate's side --------------------------------------------------------------------------------------------

    @property
    def has_queue(self) -> bool:
        """Whether requests of this crawl wait in a paced queue."""
        return bool(self._queues)

    def on_their_way(self, origin: str) -> int:
        """Return how many requests of ``origin`` the queue has sent on their way and that have not departed."""
        return self._counts.get(origin, 0)

    def came_by_queue(self, request: Request) -> bool:
        """Return whether a queue has sent this request on its way, so that it can take it back."""
        return request in self._on_their_way

    def off_its_way(self, request: Request) -> None:
        """Record that a request has departed, goes back to the queue, or is lost."""
        origin = self._on_their_way.pop(request, None)
        if origin is None:
            return
        count = self._counts.pop(origin) - 1
        if count:
            self._counts[origin] = count
        self._unpark(origin)

    def close(self) -> None:
        """Wake nobody any more."""
        self._queues.clear()
        self.pacer.unwatch(self._moved)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ask_again(self, origin: str) -> None:
        """Look again whether ``origin``, which was told that it lacks room, has some now."""
        self._moved(origin)

    # -- events -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._timer = None
        for origin in list(self._roomless):
            self._unpark(origin)
        wake_engine(self._crawler)

    def _moved(self, origin: str) -> None:
        """Something of ``origin`` has left or landed: it may have room, and so may one that shares its slot."""
        if not self._roomless:
            return
        if origin in self._roomless:
            self._unpark(origin)
        for other in list(islice(self._roomless, _LOOKED_AFTER)):
            self._unpark(other)

    def _unpark(self, origin: str) -> None:
        self._roomless.pop(origin, None)
        now = self.pacer.clock.monotonic()
        for queue in self._queues:
            due = queue.unpark(origin, now)
            if due is None:
                continue
            if due <= now:
                wake_engine(self._crawler)
            else:
                self.wake_at(due)

    def _held_by_the_downloader(self) -> Any:
        engine = self._crawler.engine
        return () if engine is None else engine.downloader.active
