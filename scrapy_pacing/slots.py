"""Whether Scrapy's downloader would send a request at once.

A request that has passed the gate must not wait again, or the gap that the site sees is not the one that was drawn. So
the gate asks here first, and Scrapy's own delays are taken out of its download slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals

from .core.origins import host_of

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from .core.pacer import Departure, Pacer


class DownloadSlots:
    """The download slots of one crawl, with what is on its way to them."""

    def __init__(self, crawler: Crawler, pacer: Pacer) -> None:
        self._crawler = crawler
        self._pacer = pacer
        # Requests that have left the gate and not landed, and those of them that have not reached their slot yet.
        self._departed: dict[Request, Departure] = {}
        self._on_the_way: dict[Request, str] = {}
        self._reap_at = 64
        self._concurrency = crawler.settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")
        self._slot_settings = crawler.settings.getdict("DOWNLOAD_SLOTS")
        crawler.signals.connect(self._reached, signal=signals.request_reached_downloader)

    def has_room(self, request: Request, origin: str) -> bool:
        """Return whether ``request``, leaving now, would be sent at once."""
        return self._has_room(self._downloader().get_slot_key(request), origin)

    def origin_has_room(self, origin: str) -> bool:
        """Return whether a request to ``origin`` would, as far as its URL alone tells (it may name another slot)."""
        return self._has_room(host_of(origin).strip("[]"), origin)

    def _has_room(self, key: str, origin: str) -> bool:
        downloader = self._downloader()
        slot = downloader.slots.get(key)
        limit = self._limit(key, slot)
        if self._pacer.in_flight(origin) >= limit:
            self._reap(downloader)
            if self._pacer.in_flight(origin) >= limit:
                return False
        active = 0 if slot is None else len(slot.active)
        return active + sum(other == key for other in self._on_the_way.values()) < limit

    def depart(self, request: Request, departure: Departure) -> None:
        """Record that ``request`` has left the gate."""
        if len(self._departed) >= self._reap_at:
            self._reap(self._downloader())
            self._reap_at = 2 * len(self._departed) + 64
        self._departed[request] = departure
        self._on_the_way[request] = self._downloader().get_slot_key(request)

    def land(self, request: Request) -> Departure | None:
        """Record the end of ``request``; return its departure, or None if it did not leave by the gate."""
        departure = self._departed.pop(request, None)
        if departure is not None:
            self._on_the_way.pop(request, None)
            self._pacer.land(departure)
        return departure

    def close(self) -> None:
        """Let everything land: the crawl is over."""
        for request in list(self._departed):
            self.land(request)

    def _downloader(self) -> Any:
        engine = self._crawler.engine
        assert engine is not None  # noqa: S101 - requests come from the engine
        return engine.downloader

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
        """Take out the slot's own delay, just before the slot looks at it."""
        self._on_the_way.pop(request, None)
        downloader = self._downloader()
        slot = downloader.slots.get(downloader.get_slot_key(request))
        if slot is not None and slot.delay:
            slot.delay = 0.0
