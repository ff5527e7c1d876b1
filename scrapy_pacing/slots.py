"""Whether Scrapy's downloader would send a request at once.

A request that has passed the gate must not wait again, or the gap that the site sees is not the one that was drawn. So
the gate asks here first, and Scrapy's own delays are taken out of its download slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals

from .core.origins import host_of, origin_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from .core.lessons import Departure
    from .core.pacer import Pacer
    from .exits import CrawlExits


class DownloadSlots:
    """The download slots of one crawl, with what is on its way to them."""

    def __init__(self, crawler: Crawler, pacer: Pacer) -> None:
        self._crawler = crawler
        self._pacer = pacer
        # Requests that have left the gate and not landed, and those of them that have not reached their slot yet.
        self._departed: dict[Request, Departure] = {}
        self._on_the_way: dict[Request, str] = {}
        self._reap_at = 64
        self._known_downloader: Any = None
        self.exits: CrawlExits | None = None
        """The exits that requests leave by, if there are any."""
        self._concurrency = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._slot_settings = crawler.settings.getdict("DOWNLOAD_SLOTS")

    def take_out_delays(self) -> None:
        """Let Scrapy's download slots delay nothing, for a project that sets delays beside the gaps."""
        self._crawler.signals.connect(self._reached, signal=signals.request_reached_downloader)

    def has_room(self, request: Request, origin: str) -> bool:
        """Return whether ``request``, leaving now, would be sent at once; if so, the room of its exit is taken."""
        if not self._has_room(self._downloader().get_slot_key(request), origin, 0):
            return False
        return self.exits is None or self.exits.take(request)

    def origin_has_room(self, origin: str, on_their_way: int = 0) -> bool:
        """Return whether ``origin`` has room for one request more than ``on_their_way`` to the gate.

        As far as its URL alone tells: a request may name another slot.
        """
        return self._has_room(host_of(origin).strip("[]"), origin, on_their_way)

    def is_scarce(self, origin: str, on_their_way: int) -> bool:
        """Return whether ``origin`` has requests under way while only the last quarter of the places is free."""
        if not on_their_way and not self._pacer.in_flight(origin):
            return False
        downloader = self._downloader()
        total: int = downloader.total_concurrency
        return 0 < total - len(downloader.active) <= total // 4

    def exit_has_room(self, origin: str, on_their_way: Mapping[str, int]) -> bool:
        """Return whether the exit of ``origin`` has room for one request more than those ``on_their_way``."""
        return self.exits is None or self.exits.may_go(origin, on_their_way)

    def depart(self, request: Request, departure: Departure) -> None:
        """Record that ``request`` has left the gate."""
        downloader = self._downloader()
        if len(self._departed) >= self._reap_at:
            self._reap(downloader)
            self._reap_at = 2 * len(self._departed) + 64
        self._departed[request] = departure
        self._on_the_way[request] = downloader.get_slot_key(request)

    def land(self, request: Request) -> Departure | None:
        """Record the end of ``request``; return its departure, or None if it did not leave by the gate."""
        if self.exits is not None:
            self.exits.release(request)
        departure = self._departed.pop(request, None)
        if departure is not None:
            self._on_the_way.pop(request, None)
            self._pacer.land(departure)
        return departure

    def close(self) -> None:
        """Let everything land: the crawl is over."""
        for request in list(self._departed):
            self.land(request)

    def _has_room(self, key: str, origin: str, more: int) -> bool:
        downloader = self._downloader()
        slot = downloader.slots.get(key)
        limit = self._limit(key, slot) - more
        if self._pacer.in_flight(origin) >= limit:
            self._reap(downloader)
            if self._pacer.in_flight(origin) >= limit:
                return False
        active = self._arrive(downloader, key)
        return (active if slot is None else active + len(slot.active)) < limit

    def _arrive(self, downloader: Any, key: str) -> int:
        """Forget who has reached its slot; return how many are on the way to the slot ``key``."""
        count = 0
        for request, its_key in list(self._on_the_way.items()):
            slot = downloader.slots.get(its_key)
            if slot is not None and request in slot.active:
                del self._on_the_way[request]
            elif its_key == key:
                count += 1
        return count

    def _downloader(self) -> Any:
        if self._known_downloader is None:
            engine = self._crawler.engine
            assert engine is not None  # noqa: S101 - requests come from the engine
            self._known_downloader = engine.downloader
        return self._known_downloader

    def _limit(self, key: str, slot: Any) -> int:
        if slot is not None:
            concurrency: int = slot.concurrency
            return concurrency
        own = self._slot_settings.get(key)
        return int(own.get("concurrency", self._concurrency)) if own else self._concurrency

    def _reap(self, downloader: Any) -> None:
        """Let land what the downloader no longer holds: another middleware swallowed it after the gate."""
        for request in [request for request in self._departed if request not in downloader.active]:
            self.land(request)

    def _reached(self, request: Request, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        """Take out the slot's own delay, just before the slot looks at it; what is not paced keeps it."""
        if origin_key(request.url) is None:
            return
        downloader = self._downloader()
        slot = downloader.slots.get(downloader.get_slot_key(request))
        if slot is not None and slot.delay:
            slot.delay = 0.0
