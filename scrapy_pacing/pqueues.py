"""The priority queue in which requests wait for their site, where waiting costs nothing.

For ``SCHEDULER_PRIORITY_QUEUE``; the add-on sets it.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.pqueues import ScrapyPriorityQueue

from .cancel import SIGNAL
from .compat import fail_request, wake_engine
from .core.turns import Turns
from .downloadermiddlewares.pacing import PacingMiddleware

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.pqueues import QueueProtocol
    from typing_extensions import Self

# The lane of requests that are not paced (data:, file:, dont_pace): always ready, and any number may be on its way.
_UNPACED = "unpaced"


class PacedPriorityQueue:
    """Gives out a request only when its origin may send one.

    Each origin has a Scrapy priority queue of its own. Among the origins that are due the one that has waited longest
    goes first; ``Request.priority`` decides within an origin, and never lets one site overtake another's turn. While
    a request of an origin is on its way to the gate, no second one of that origin is given out.

    Takes what Scrapy's ``DownloaderAwarePriorityQueue`` takes, start queues and disk queues included, and resumes a
    job that was started with that one.
    """

    @classmethod
    def from_crawler(
        cls,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        startprios: Mapping[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> Self:
        """Make the queue of a crawler, as Scrapy's scheduler does."""
        return cls(crawler, downstream_queue_cls, key, startprios, start_queue_cls=start_queue_cls)

    def __init__(
        self,
        crawler: Crawler,
        downstream_queue_cls: type[QueueProtocol],
        key: str,
        startprios: Mapping[str, Iterable[int]] | None = None,
        *,
        start_queue_cls: type[QueueProtocol] | None = None,
    ) -> None:
        """Make a queue; raises ValueError without `PacingMiddleware`, or for the state of another kind of queue."""
        middleware = crawler.get_downloader_middleware(PacingMiddleware)
        if middleware is None:
            raise ValueError(
                f"SCHEDULER_PRIORITY_QUEUE is {type(self).__name__}, which works together with "
                "scrapy_pacing.PacingMiddleware only; allowed: both (ADDONS = {'scrapy_pacing.Addon': 500} sets them "
                "up), or neither"
            )
        if startprios and not isinstance(startprios, dict):
            raise ValueError(
                f"the job directory holds the state of a queue without origins ({type(startprios).__name__}); allowed: "
                "that of PacedPriorityQueue or DownloaderAwarePriorityQueue. Resume with the SCHEDULER_PRIORITY_QUEUE "
                "that the job was started with"
            )
        self._crawler = crawler
        self._downstream_queue_cls = downstream_queue_cls
        self._start_queue_cls = start_queue_cls
        self._key = key
        self._lane_of = middleware.lane_of
        self._dispatch = middleware.dispatch
        self._cancellations = middleware.cancellations
        # Requests that were cancelled while they waited here: the spider knows, and they go when their turn comes.
        self._cancelled: set[Request] = set()
        self._clock = self._dispatch.pacer.clock
        self._turns = Turns(self._ready_at)
        self.pqueues: dict[str, ScrapyPriorityQueue] = {}
        self._length = 0
        for origin, priorities in (startprios or {}).items():
            queue = self._new_queue(origin, priorities)
            if len(queue):
                self.pqueues[origin] = queue
                self._length += len(queue)
                self._turns.add(origin, self._clock.monotonic())
        self._dispatch.register(self)

    def push(self, request: Request) -> None:
        """Keep a request; raises what the downstream queue raises for one that can't be stored."""
        origin = self._lane_of(request) or _UNPACED
        queue = self.pqueues.get(origin)
        if queue is None:
            queue = self._new_queue(origin)
            queue.push(request)
            self.pqueues[origin] = queue
        else:
            queue.push(request)
        self._length += 1
        self._turns.add(origin, self._clock.monotonic())
        if SIGNAL in request.meta and not self._key:
            self._cancellations.watch_queued(request, self._cancel)

    def pop(self) -> Request | None:
        """Return a request of an origin that is due, or None; the engine is woken when the next one is."""
        if not self._length:
            return None
        self._dispatch.look_after()
        request = self._pop_due()
        if request is None and self._length:
            if self._dispatch.look_after(everything=True):
                request = self._pop_due()
            if request is None:
                self._dispatch.wake_at(self._turns.wake_at())
        return request

    def peek(self) -> Request | None:
        """Return the request that `pop` would give now, without removing it.

        Raises NotImplementedError if the downstream queue can't peek.
        """
        origin = self._turns.first(self._clock.monotonic())
        return None if origin is None else self.pqueues[origin].peek()

    def unpark(self, origin: str, now: float) -> float | None:
        """Let a parked origin have its turn again; return when it is due, or None if it was not parked here."""
        if not self._turns.unpark(origin, now):
            return None
        return self._ready_at(origin)

    def has_others(self) -> bool:
        """Return whether requests of more than one origin wait here."""
        return len(self.pqueues) > 1

    def close(self) -> dict[str, list[int]]:
        """Close all downstream queues; return the priorities in use by origin, for ``startprios``."""
        active = {origin: queue.close() for origin, queue in self.pqueues.items()}
        self.pqueues.clear()
        self._cancelled.clear()
        self._length = 0
        return active

    def census(self) -> dict[str, int]:
        """Return how many origins are ready, snoozed and parked."""
        return self._turns.census()

    def __len__(self) -> int:
        return self._length

    def __contains__(self, origin: str) -> bool:
        return origin in self.pqueues

    def _ready_at(self, origin: str) -> float:
        return self._dispatch.pacer.ready_at(origin)

    def _pop_due(self) -> Request | None:
        while True:
            now = self._clock.monotonic()
            origin = self._turns.next(now)
            if origin is None:
                return None
            if origin != _UNPACED and not self._dispatch.may_go(origin):
                continue
            request = self._take(origin)
            if request is None:
                continue
            lane = self._lane_of(request) or _UNPACED
            if lane == origin != _UNPACED:
                self._dispatch.popped(origin, request)
            if origin in self.pqueues and (lane == _UNPACED or lane != origin or self._dispatch.may_go(origin)):
                # Nothing to wait for, or no gap to keep: it goes on behind the others that are due.
                self._turns.unpark(origin, now)
            if lane != origin:
                # Stored under another key: by Scrapy's own queue, or before PACING_ORIGIN_KEY was changed.
                self.push(request)
                continue
            return request

    def _take(self, origin: str) -> Request | None:
        """Pop from the queue of an origin, and drop the queue if that was the last one."""
        queue = self.pqueues[origin]
        request = queue.pop()
        gone = request is not None and SIGNAL in request.meta and self._let_go(request)
        self._length -= request is not None and not gone
        if request is None or not len(queue):
            # A queue that gives None although it counts some has lost them (a damaged job directory).
            self._length -= len(queue)
            del self.pqueues[origin]
            self._turns.remove(origin)
            queue.close()
            if self._key:
                # Only empty directories go; Scrapy's disk queues remove their files when they close empty.
                with suppress(OSError):
                    Path(self._key, _path_safe(origin)).rmdir()
        if gone:
            self._turns.unpark(origin, self._clock.monotonic())
            return None
        return request

    def _cancel(self, request: Request) -> None:
        """Let a request fail that still waits here; downstream queues give nothing out but in their own order."""
        failing = fail_request(self._crawler, request, self._cancellations.failure(request))
        if failing is None:
            return
        self._cancelled.add(request)
        self._length -= 1
        failing.addBoth(lambda _: wake_engine(self._crawler))

    def _let_go(self, request: Request) -> bool:
        """Return whether a request that comes out of its queue was cancelled there; its signal is looked at no more."""
        self._cancellations.let_go(request)
        if request not in self._cancelled:
            return False
        self._cancelled.discard(request)
        return True

    def _new_queue(self, origin: str, priorities: Iterable[int] = ()) -> ScrapyPriorityQueue:
        return ScrapyPriorityQueue(
            self._crawler,
            self._downstream_queue_cls,
            # Without a directory there is nothing to name; 100,000 names would take 11 MB.
            f"{self._key}/{_path_safe(origin)}" if self._key else "",
            priorities,
            start_queue_cls=self._start_queue_cls,
        )


def _path_safe(text: str) -> str:
    """Return a directory name for an origin: readable, and unique by a digest (the names that Scrapy gives)."""
    readable = "".join(character if character.isalnum() or character in "-._" else "_" for character in text)
    return f"{readable[:200]}-{hashlib.md5(text.encode('utf8'), usedforsecurity=False).hexdigest()}"
