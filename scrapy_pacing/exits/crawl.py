"""What one crawl holds of the exits: its leases, its requests in flight, and what it has heard of them.

Both middlewares call this object. Room is taken by whoever lets a request go (`CrawlExits.take`), and given back
wherever the request ends: with its answer or failure, when the downloader no longer holds it, at the latest when the
spider closes.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.exceptions import IgnoreRequest

from scrapy_pacing.answers import Answer, classify
from scrapy_pacing.core.exits import Cause, Fault

from .binding import EXIT, LEASE, bind, drop_credentials, has_credentials, unbind
from .evidence import brought_no_answer, fault_of_failure, fault_of_response
from .key import exit_key
from .telling import tell_finding, tell_rotation
from .waits import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_pacing.core.exits import Exit, ExitPool, Finding, Lease, Session
    from scrapy_pacing.settings import PacingSettings
    from scrapy_pacing.state import SharedState

    from .settings import ExitSettings

logger = logging.getLogger(__name__)

_TOO_MANY_REQUESTS = 429
# Word comes when there is room; this is the net below it.
_ROOM_RECHECK = 1.0


class NoExitLeft(IgnoreRequest):
    """No exit was left for the request's origin within ``PACING_EXIT_WAIT``; the request's errback gets this."""


class CrawlExits:
    """The exits of one crawl."""

    def __init__(
        self, crawler: Crawler, settings: PacingSettings, state: SharedState, pool: ExitPool, exits: Iterable[Exit]
    ) -> None:
        self.pool = pool
        self.settings: ExitSettings = settings.exits
        self._crawler = crawler
        self._state = state
        self._throttle_statuses = settings.throttle_statuses
        self._max_origins = settings.max_origins
        self._exits = {leaving_by.id: leaving_by for leaving_by in exits}
        # In the order of use, and bounded: the origins that leave by an exit, and those that no exit is left for.
        self._leasing: dict[str, Lease] = {}
        self._stranded: dict[str, float] = {}
        self._bound: WeakKeyDictionary[Request, Lease] = WeakKeyDictionary()
        self._sessions: dict[Request, Session] = {}
        self._in_flight: Counter[str] = Counter()
        self._faults: WeakKeyDictionary[Request, Fault] = WeakKeyDictionary()
        self.waits = Waits()
        self._listeners: list[Callable[[str], None]] = []
        self.on_ended: list[Callable[[Lease], None]] = []
        pool.watch(self._told)
        pool.follow(self._ended)
        crawler.signals.connect(self._downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(self._scheduled, signal=signals.request_scheduled)

    # -- leases ------------------------------------------------------------------------------------------------------

    def lease(self, origin: str) -> Lease | None:
        """Return the origin's lease, a new one if need be; None if no exit is left for it now."""
        memory = self._state.memory
        prefer = None if memory is None or origin in self._leasing else memory.exit_of(origin)
        lease = self.pool.lease(origin, prefer=prefer)
        known = self._leasing.pop(origin, None)
        if lease is None:
            self._count_lease(known, -1)
            self._stranded.setdefault(origin, self.pool.clock.monotonic())
            self._drop_surplus(self._stranded)
            return None
        self._stranded.pop(origin, None)
        self._leasing[origin] = lease
        if known != lease:
            self._count_lease(known, -1)
            self._count_lease(lease, 1)
            if memory is not None:
                memory.record_exit(origin, lease.exit.id)
            for dropped in self._drop_surplus(self._leasing):
                self._count_lease(dropped, -1)
        return lease

    def forget(self, origin: str) -> None:
        """Note that requests of the origin leave by no exit of ours: the queue need not wait for one."""
        self._count_lease(self._leasing.pop(origin, None), -1)

    def is_stranded(self, origin: str) -> bool:
        """Tell whether no exit was left for ``origin`` when it last asked."""
        return origin in self._stranded

    def patience(self, origin: str) -> float:
        """Return for how many seconds yet a request may wait for an exit of its origin; 0 or less: no longer."""
        now = self.pool.clock.monotonic()
        return self._stranded.get(origin, now) + self.settings.wait - now

    def look_again_in(self, origin: str) -> float:
        """Return in how many seconds ``origin`` may have what it waits for, if no word comes before."""
        if origin not in self._stranded:
            return _ROOM_RECHECK
        return min(self.patience(origin), self.pool.available_at(origin) - self.pool.clock.monotonic())

    def bind(self, request: Request, lease: Lease) -> None:
        """Make ``request`` leave by the exit of ``lease``."""
        bind(request, lease)
        self._bound[request] = lease

    def unbind(self, request: Request) -> None:
        """Take out of ``request`` what `bind` has put in."""
        unbind(request, self._exits)

    def lease_of(self, request: Request) -> Lease | None:
        """Return the lease that a request is bound to, or None."""
        return self._bound.get(request) if LEASE in request.meta else None

    def holds(self, request: Request) -> bool:
        """Tell whether what ``request`` was bound to still holds: else its answer is another visitor's."""
        lease = self.lease_of(request)
        return lease is None or self.pool.is_current(lease)

    def is_stale(self, request: Request) -> bool:
        """Tell whether the request is bound to a lease that has ended on its way here."""
        lease = self.lease_of(request)
        return lease is not None and self.lease(lease.origin) != lease

    # -- room --------------------------------------------------------------------------------------------------------

    def take(self, request: Request) -> bool:
        """Take the room that ``request`` needs to leave now; False if there is none, or if its lease has ended.

        A request that leaves by no exit needs none. What was taken once is not taken again.
        """
        lease = self.lease_of(request)
        if lease is None or request in self._sessions:
            return True
        if self.lease(lease.origin) != lease:
            return False
        session = self.pool.acquire(lease)
        if session is None and self._reap():
            session = self.pool.acquire(lease)
        if session is None:
            return False
        self._sessions[request] = session
        self._count_flight(session, 1)
        self._stats(f"pacing/exits/{lease.exit.id}/requests")
        return True

    def release(self, request: Request) -> None:
        """Give the room of ``request`` back; does nothing if it holds none."""
        session = self._sessions.pop(request, None)
        if session is not None:
            self._count_flight(session, -1)
            self.pool.release(session)

    def lacks_room(self, request: Request, origin: str) -> bool:
        """Tell whether what ``request`` waits for is room, so that it can wait for it in the queue of ``origin``."""
        lease = self.lease_of(request)
        return lease is not None and lease.origin == origin and not self.pool.has_room(origin)

    def may_go(self, origin: str, on_their_way: Mapping[str, int]) -> bool:
        """Tell whether a request that a queue gives out now would find room, with those that are on their way.

        An origin that no request was leased an exit for yet may go. One that no exit is left for may when it has
        waited long enough to fail.
        """
        if origin not in self._leasing and origin not in self._stranded:
            return True
        lease = self.lease(origin)
        if lease is None:
            return self.patience(origin) <= 0
        if not self.pool.has_room(origin) and not (self._reap() and self.pool.has_room(origin)):
            return False
        promised = 0
        for other, count in on_their_way.items():
            its = self._leasing.get(other)
            if its is not None and its.exit.id == lease.exit.id:
                promised += count
        return self._in_flight[lease.exit.id] + promised < self.pool.max_sessions_per_exit

    # -- what came of a request --------------------------------------------------------------------------------------

    def answered(self, request: Request, response: Response) -> None:
        """Learn from an answer, and give the room back. The second call for the same answer does nothing."""
        session = self._sessions.get(request)
        if session is None:
            return
        finding = None
        # From the cache, where the room was taken before that was known: no exit had a part in it.
        if "cached" not in response.flags:
            finding = self._judge(request, response, session)
        self.release(request)
        self._tell(finding)

    def failed(self, request: Request, exception: BaseException) -> None:
        """Learn from a failure, and give the room back. The second call for the same failure does nothing."""
        session = self._sessions.get(request)
        if session is None:
            return
        finding = None
        # The machine's own address has no proxy that could fail.
        if not session.lease.exit.is_direct:
            finding = self._judge_failure(request, exception, session)
        self.release(request)
        self._tell(finding)

    def fault_of(self, request: Request) -> Fault | None:
        """Return the fault of the exit that ended ``request``: then its outcome says nothing of the origin."""
        return self._faults.get(request)

    def take_fault(self, request: Request) -> Fault | None:
        """Return, once, the fault of the exit that ended ``request``."""
        return self._faults.pop(request, None)

    def report_ban(self, request: Request) -> bool:
        """Take the spider's word that the origin has banned the exit that ``request`` left by."""
        lease = self._bound.get(request)
        if lease is None:
            return False
        finding = self.pool.report_ban(lease.origin, lease=lease)
        self._tell(finding)
        return finding is not None and finding.moves

    def _judge(self, request: Request, response: Response, session: Session) -> Finding | None:
        status = response.status
        fault = None
        if not session.lease.exit.is_direct:
            fault = fault_of_response(response, tunnelled=_is_tunnelled(request))
        if fault is not None:
            self._faults[request] = fault
            return self.pool.exit_fault(session, fault)
        answer = classify(response, self._throttle_statuses)
        if status == _TOO_MANY_REQUESTS or answer is Answer.REFUSED:
            self.pool.answered(session)
        elif status in self.settings.ban_statuses:
            return self.pool.refused(session, request.url)
        elif answer is Answer.SERVED:
            self.pool.succeeded(session)
        else:
            self.pool.answered(session)
        return None

    def _judge_failure(self, request: Request, exception: BaseException, session: Session) -> Finding | None:
        silence = brought_no_answer(exception)
        if silence is not Cause.TIMEOUTS:
            fault = fault_of_failure(exception, tunnelled=_is_tunnelled(request))
            if fault is not None:
                self._faults[request] = fault
                return self.pool.exit_fault(session, fault)
        if silence is None:
            return None
        finding = self.pool.timed_out(session, request.url, cause=silence)
        if finding is not None and finding.moves and not finding.exit_died:
            # The last of the row has met the fault, as it turns out: it need not spend one of Scrapy's retries.
            self._faults[request] = Fault(silence, whole_exit=False)
        return finding

    # -- the crawl ---------------------------------------------------------------------------------------------------

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with an origin that was told to wait, when it should ask again."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Give everything back: the crawl is over."""
        self.pool.unwatch(self._told)
        self.waits.end()
        for request in list(self._sessions):
            self.release(request)
        self.pool.unfollow(self._ended)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _told(self, origin: str) -> None:
        self.waits.tell(origin)
        for listener in self._listeners:
            listener(origin)

    def _ended(self, lease: Lease, cause: Cause) -> None:
        memory = self._state.memory
        if memory is not None and memory.exit_of(lease.origin) == lease.exit.id:
            memory.record_exit(lease.origin, None)
        if self._leasing.get(lease.origin) == lease:
            del self._leasing[lease.origin]
            self._count_lease(lease, -1)
            self._stats(f"pacing/exits/{lease.exit.id}/rotations/{cause.value}")
            tell_rotation(lease, cause, spider=self._crawler.spider)
        for callback in self.on_ended:
            callback(lease)

    def _tell(self, finding: Finding | None) -> None:
        if finding is not None:
            tell_finding(finding, exits=len(self._exits), wait=self.settings.wait, spider=self._crawler.spider)

    def _downloaded(self, request: Request) -> None:
        """Take the credentials out as soon as the answer is there: a cache may write the request's headers down."""
        lease = self.lease_of(request)
        if lease is not None and has_credentials(lease.exit):
            drop_credentials(request)

    def _scheduled(self, request: Request) -> None:
        """Let nothing of ours into the queues, which may be on disk; it may leave by another exit when it comes up."""
        if LEASE in request.meta:
            # Some middleware may have sent it back from behind the gate, where nobody else is told of its end.
            self._reap()
        self.unbind(request)
        request.meta.pop(EXIT, None)

    def _reap(self) -> bool:
        """Give the room back of what the downloader no longer holds; return whether there was any."""
        # Typed as never None, which it is until the crawl starts.
        engine: Any = self._crawler.engine
        if engine is None:
            return False
        active = engine.downloader.active
        lost = [request for request in self._sessions if request not in active]
        for request in lost:
            self.release(request)
        return bool(lost)

    def _drop_surplus(self, by_origin: dict[str, Any]) -> list[Any]:
        dropped = []
        while len(by_origin) > self._max_origins:
            dropped.append(by_origin.pop(next(iter(by_origin))))
        return dropped

    def _count_lease(self, lease: Lease | None, count: int) -> None:
        if lease is not None:
            self._stats(f"pacing/exits/{lease.exit.id}/leases", count)

    def _count_flight(self, session: Session, count: int) -> None:
        self._in_flight[session.lease.exit.id] += count
        self._stats(f"pacing/exits/{session.lease.exit.id}/in_flight", count)

    def _stats(self, name: str, count: int = 1) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(name, count)


_of_crawler: WeakKeyDictionary[Crawler, CrawlExits] = WeakKeyDictionary()


def exits_of(crawler: Crawler) -> CrawlExits | None:
    """Return the exits of a crawl, or None if `ExitMiddleware` is not part of it."""
    return _of_crawler.get(crawler)


def open_exits(crawler: Crawler, settings: PacingSettings, state: SharedState) -> CrawlExits:
    """Make the exits of a crawl; raises ValueError for an entry that can't be used."""
    memory = state.memory
    parsed = settings.exits.parse(exit_key(None if memory is None else memory.path.parent))
    for sentence in (*settings.exits.warnings, *parsed.warnings):
        logger.warning(sentence)
    pool = state.exits.pool(parsed.exits, settings.exits, max_origins=settings.max_origins)
    exits = _of_crawler[crawler] = CrawlExits(crawler, settings, state, pool, parsed.exits)
    return exits


def report_ban(spider: Spider, response: Response) -> bool:
    """Say that the site has banned the address that ``response`` came by; return whether it has another one now.

    For what no status tells: a captcha page, an empty result. A report about an exit that the site has been moved away
    from meanwhile changes nothing, and so does one about a request that chose its proxy itself. Asking for the page
    again is the spider's business, for example with Scrapy's ``get_retry_request``, which bounds it.
    """
    exits = exits_of(spider.crawler)
    if exits is None or response.request is None:
        return False
    return exits.report_ban(response.request)


def _is_tunnelled(request: Request) -> bool:
    return request.url[:6].lower() == "https:"
