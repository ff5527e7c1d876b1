"""The middleware that paces: it lets requests through the gate, and learns from the answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy import signals
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http.request import NO_CALLBACK

from scrapy_pacing import conditions
from scrapy_pacing.again import again, give_back, settle
from scrapy_pacing.answers import Answer
from scrapy_pacing.arriving.links import Links
from scrapy_pacing.arriving.stamps import Stamps
from scrapy_pacing.arriving.warmups import WARMED, Warmups
from scrapy_pacing.cancel import Cancellations, signal_of
from scrapy_pacing.clearances import Clearances
from scrapy_pacing.compat import Places, is_closing, on_closing, on_followed, send_once
from scrapy_pacing.core.memory.texts import may_be_decoy
from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.dispatch import Dispatch
from scrapy_pacing.learning import Learning
from scrapy_pacing.robots import RobotsGaps
from scrapy_pacing.settings import pacing_enabled, read_settings, scrapy_delays, unknown_settings
from scrapy_pacing.slots import DownloadSlots
from scrapy_pacing.state import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    # typing.Self came with Python 3.11
    from typing_extensions import Self

    from scrapy_pacing.core.lessons import Departure
    from scrapy_pacing.exits import CrawlExits

logger = logging.getLogger(__name__)

# A meta key of our own bookkeeping, a plain value like those of `again`: a request that goes back can wait on disk.
_THROTTLES = "pacing_throttles"

# A request that came by the paced queue waits here no longer than this many seconds: longer waits belong to the queue,
# where they hold no place of CONCURRENT_REQUESTS. It happens where robots.txt or a warm-up took the origin's turn.
_SHORT_WAIT = 0.25


class PacingMiddleware:
    """Keeps the gaps between requests to a site irregular, and as long as the site wants them.

    Belongs at order 950 of DOWNLOADER_MIDDLEWARES, nearest to the network: what has passed here must not wait again,
    cached answers (900) never get here, and an answer is seen here before a redirect or a retry is made of it.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Read the settings of ``crawler``; raises ValueError for a bad one, NotConfigured if pacing is off."""
        if not pacing_enabled(crawler.settings):
            raise NotConfigured
        self.crawler = crawler
        # Bound once: the collector's attributes pass a check of deprecated names at each access. It adds whatever
        # numbers it is given, though its annotation says int.
        self._inc: Callable[..., None] = crawler.stats.inc_value
        self._settings = read_settings(crawler.settings, crawler.spider)
        self._state = state_of(crawler, self._settings)
        self._pacer = self._state.pacer
        self._slots = DownloadSlots(crawler, self._pacer)
        self.dispatch = Dispatch(crawler, self._pacer, self._slots)
        self._stamps = Stamps(self._state.trail, referer=self._settings.trail, metadata=self._settings.fetch_metadata)
        self._links = Links(crawler.settings, referer=self._settings.trail)
        # Those that left without being paced, until they are answered.
        self._unpaced: WeakSet[Request] = WeakSet()
        self._warmups = Warmups(crawler, self._state, self._settings, self, self._inc)
        self._exits: CrawlExits | None = None
        self.cancellations = Cancellations(crawler, self._state.gate, count=self._inc)
        self._clearances = Clearances(crawler, self._state.memory, self._settings.clearance_cookies, count=self._inc)
        self._learning = Learning(crawler, self._pacer, self._settings, count=self._inc)
        self._robots: RobotsGaps | None = None
        if self._settings.obey_crawl_delay:
            self._robots = RobotsGaps(crawler, self._pacer, self.lane_of, count=self._inc)
        self._places = Places(crawler)
        self._waiting = 0
        self._warned_of_waiting = False
        self._origin_key_failed = False
        self._autothrottle = crawler.settings.getbool("AUTOTHROTTLE_ENABLED")
        self._say_what_is_odd()
        self._state.join(self, self._settings.policies)
        crawler.signals.connect(self._spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signal=signals.spider_closed)
        crawler.signals.connect(self._response_received, signal=signals.response_received)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware of a crawler."""
        return cls(crawler)

    def leave_by(self, exits: CrawlExits) -> None:
        """Take the room of these exits together with passing the gate; `ExitMiddleware` says so at the start."""
        self._exits = self._slots.exits = exits
        exits.listen(self.dispatch.ask_again)

    # -- on the way out ---------------------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | None:
        """Let the request go when its origin is due; give it back to the scheduler if the spider closes meanwhile."""
        self._check(request)
        origin = self.lane_of(request)
        if origin is None:
            self._stamps.stamp(request)
            self._unpaced.add(request)
            return None
        self._stamps.check(request)
        if is_closing(self.crawler):
            return self._give_back(request)
        if self._robots is not None:
            self._robots.heed(request, origin)
        if self._warmups.is_wanted(request, origin):
            return await self._warm_up(request)
        return await self._pass_the_gate(request, origin)

    async def _pass_the_gate(self, request: Request, origin: str) -> Request | None:
        if self._exits is not None and self._exits.is_stale(request):
            return self._exit_changed(request)

        def has_room() -> bool:
            return self._slots.has_room(request, origin)

        self.cancellations.check(request)
        departure = self._state.gate.pass_now(origin, has_room)
        if departure is None:
            if self._belongs_to_the_queue(request, origin):
                return self.requeue(request)
            departure = await self._wait(request, origin, has_room)
            if departure is None:
                self.cancellations.check(request)
                return self._give_back(request) if is_closing(self.crawler) else self._exit_changed(request)
        self._depart(request, departure)
        return None

    def _belongs_to_the_queue(self, request: Request, origin: str) -> bool:
        """Return whether a request has to wait so long, or for its exit, that it had better wait where it came from."""
        if not self.dispatch.came_by_queue(request):
            return False
        lacks_exit = self._exits is not None and self._exits.lacks_room(request, origin)
        return lacks_exit or self._pacer.next_delay(origin) > _SHORT_WAIT

    def requeue(self, request: Request) -> Request:
        """Return a request that came by the queue for the scheduler: waiting costs nothing there."""
        self._inc("pacing/requeued")
        self.dispatch.off_its_way(request)
        return again(request)

    def _exit_changed(self, request: Request) -> Request:
        """Return the request for the scheduler: its cookies and credentials are those of an exit that it has lost."""
        self._inc("pacing/exit_changed")
        self.dispatch.off_its_way(request)
        return again(request)

    def _check(self, request: Request) -> None:
        """Drop a request that must not leave, and give the others what memory has for them."""
        try:
            self.cancellations.check(request)
            self._warmups.check(request)
            memory = self._state.memory
            if memory is not None and memory.is_decoy(request.url) and not _is_led(request):
                self._inc("pacing/decoys_dropped")
                raise IgnoreRequest(f"{request.url} is a known decoy")
            self._clearances.restore(request)
            conditions.apply(request)
        except Exception:
            self.dispatch.off_its_way(request)
            raise

    async def _warm_up(self, request: Request) -> Request:
        """Let the homepage be visited first; then the request goes round again, to take the cookies along."""
        signal = signal_of(request)
        if signal is not None:
            self.cancellations.watch(request, signal, self._state.doors.close)
        try:
            arrived = await self._warmups.arrive(request)
        finally:
            self.cancellations.let_go(request)
        if arrived:
            return self.requeue(request)
        self.dispatch.off_its_way(request)
        self.cancellations.check(request)
        return self._give_back(request)

    async def _wait(self, request: Request, origin: str, has_room: Callable[[], bool]) -> Departure | None:
        under = None if self._exits is None else self._exits.lease_of(request)
        lent = self._lend_places(request, origin)
        clock = self._pacer.clock
        since = clock.monotonic()
        self._waiting += 1
        self._warn_of_waiting()
        try:
            return await self._state.gate.wait(origin, self.cancellations.waiter(request, self), has_room, under=under)
        except BaseException:
            # Cancelled in the very moment of its turn, it has the room of its exit already.
            self._slots.land(request)
            raise
        finally:
            self._places.take_back(lent)
            self.cancellations.let_go(request)
            self._waiting -= 1
            self._inc("pacing/seconds_waited", clock.monotonic() - since)

    def _lend_places(self, request: Request, origin: str) -> int:
        """Lend places for a request that has to wait long, and did not come by the queue, which could take it back.

        It is a robots.txt, a warm-up or a component's own download: what came by the queue and waits for that is idle
        too.
        """
        if self.dispatch.came_by_queue(request) or not self.dispatch.has_queue:
            return 0
        if self._pacer.next_delay(origin) <= _SHORT_WAIT:
            return 0
        return self._places.lend(1 + self.dispatch.on_their_way(origin))

    def _depart(self, request: Request, departure: Departure) -> None:
        self._slots.depart(request, departure)
        self.dispatch.off_its_way(request)
        self._inc("pacing/requests")
        settle(request)
        meta = request.meta
        meta.pop(WARMED, None)
        if self._autothrottle:
            # Documented by Scrapy: AutoThrottle leaves the delay of this request's slot alone.
            meta["autothrottle_dont_adjust_delay"] = True
        self._stamps.stamp(request)

    def lane_of(self, request: Request) -> str | None:
        """Return the key that ``request`` is paced under, or None if it is not paced.

        Always from the URL in hand: a redirect to another host changes it.
        """
        if request.meta.get("dont_pace"):
            return None
        origin = origin_key(request.url)
        grouped = self._settings.origin_key
        if origin is None or grouped is None:
            return origin
        try:
            key = grouped(request, origin)
        except Exception:
            key = None
            if not self._origin_key_failed:
                logger.exception("PACING_ORIGIN_KEY raised for %s; such requests are paced by origin", request)
                self._origin_key_failed = True
        return key if isinstance(key, str) and key else origin

    def _give_back(self, request: Request) -> Request:
        returning = give_back(request)
        self._inc("pacing/given_back")
        return returning

    # -- on the way back --------------------------------------------------------------------------------------------

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Learn from an answer of the site; send a refused request back to the scheduler."""
        if self._exits is not None:
            self._exits.answered(request, response)
        departure = self._slots.land(request)
        unpaced = request in self._unpaced
        self._unpaced.discard(request)
        if self._exits is not None and self._exits.fault_of(request) is not None:
            # It is the proxy's answer: the site has not been heard. ExitMiddleware sends the request by another exit.
            if departure is not None:
                self._pacer.failed(departure.origin)
            return response
        if (departure is not None or unpaced) and (self._exits is None or self._exits.holds(request)):
            self._stamps.answered(request, response)
        if departure is None:
            # Cached, made up by another middleware, or not paced: it teaches nothing.
            return response
        self._warmups.answered(request, response)
        if self._learning.answered(request, response, departure) is Answer.REFUSED:
            return self._refused(request, response)
        # Callbacks hand their response's meta on to other requests, which have been refused nothing yet.
        request.meta.pop(_THROTTLES, None)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Record that the request is no longer in flight, and learn from that."""
        if self._exits is not None:
            self._exits.failed(request, exception)
        self._unpaced.discard(request)
        departure = self._slots.land(request)
        if departure is None:
            return
        if self._exits is not None and self._exits.fault_of(request) is not None:
            self._pacer.failed(departure.origin)
        else:
            self._learning.failed(request, exception, departure)

    def _refused(self, request: Request, response: Response) -> Request | Response:
        """Send a refused request back to the scheduler, unless somebody wants the answer, or it was often enough."""
        if request.meta.get("dont_retry") or self._spider_handles(request, response.status):
            return response
        throttles = request.meta.get(_THROTTLES, 0) + 1
        if throttles > self._settings.max_throttles:
            self._inc("pacing/given_up")
            logger.warning(
                "Gave up pacing %(request)s: refused %(times)d times (PACING_MAX_THROTTLES)",
                {"request": request, "times": throttles},
                extra={"spider": self.crawler.spider},
            )
            return response
        self._inc("pacing/sent_back")
        returning = again(request, {_THROTTLES: throttles})
        # As Scrapy does with retries: the site's other pages come first, lest one page that is always refused stops all.
        returning.priority += self.crawler.settings.getint("RETRY_PRIORITY_ADJUST")
        return returning

    def _spider_handles(self, request: Request, status: int) -> bool:
        """Return whether the spider wants to see answers of this very status itself.

        As Scrapy's HttpErrorMiddleware tells it, but for HTTPERROR_ALLOW_ALL, which names no status.
        """
        meta = request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        wanted = meta.get("handle_httpstatus_list")
        if wanted is None:
            wanted = getattr(self.crawler.spider, "handle_httpstatus_list", None)
        if wanted is None:
            wanted = self.crawler.settings.getlist("HTTPERROR_ALLOWED_CODES")
        return status in {int(code) for code in wanted}

    # -- the crawl --------------------------------------------------------------------------------------------------

    def _spider_opened(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        on_closing(self.crawler, self._closing)
        send_once(self.crawler)
        if self._settings.trail or self._settings.fetch_metadata:
            on_followed(self.crawler, self._followed)

    def _followed(self, request: Request, response: Response) -> None:
        if response.request is None:
            # Inside the downloader: a page that becomes a meta refresh is never reported as received.
            self._stamps.read(response)
        self._links.followed(request, response)

    def _response_received(self, response: Response) -> None:
        self._stamps.read(response)

    def _closing(self) -> None:
        self._warmups.close()
        self._state.gate.close(self)
        self.cancellations.close()

    def _spider_closed(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        self.dispatch.close()
        self._slots.close()
        self._state.leave(self)

    def _warn_of_waiting(self) -> None:
        """Say once that requests which wait here hold the places of other sites."""
        places = self.crawler.settings.getint("CONCURRENT_REQUESTS")
        if self._warned_of_waiting or self.dispatch.has_queue or not places or self._waiting * 2 <= places:
            return
        self._warned_of_waiting = True
        logger.warning(
            "%d of CONCURRENT_REQUESTS = %d requests wait for their site, so other sites wait for them. "
            "SCHEDULER_PRIORITY_QUEUE = 'scrapy_pacing.PacedPriorityQueue' lets them wait in the scheduler instead.",
            self._waiting,
            places,
            extra={"spider": self.crawler.spider},
        )

    def _say_what_is_odd(self) -> None:
        for sentence in unknown_settings(self.crawler.settings):
            logger.warning(sentence)
        delay, host_delays = scrapy_delays(self.crawler.settings, self.crawler.spider)
        conflicts = [
            name
            for name, is_set in (
                ("DOWNLOAD_DELAY", delay is not None),
                ("DOWNLOAD_SLOTS delays", bool(host_delays)),
                ("AUTOTHROTTLE_ENABLED", self._autothrottle),
            )
            if is_set
        ]
        if conflicts:
            self._slots.take_out_delays()
            logger.warning(
                "%s set beside scrapy-pacing: the delays count as intervals where no PACING_ setting says otherwise, "
                "and Scrapy itself no longer delays anything. ADDONS = {'scrapy_pacing.Addon': 500} settles this.",
                " and ".join(conflicts),
            )


def _is_led(request: Request) -> bool:
    """Return whether a robots.txt or a homepage that a component asked for has led here: the crawl chose no decoy."""
    began = (request.meta.get("redirect_urls") or (request.url,))[0]
    return request.callback is NO_CALLBACK and not may_be_decoy(began)
