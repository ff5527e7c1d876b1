"""The middleware that paces: it lets requests through the gate, and learns from the answers."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import IgnoreRequest, NotConfigured

from scrapy_pacing.answers import Answer, classify, retry_after
from scrapy_pacing.compat import is_closing, on_closing
from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.dispatch import Dispatch
from scrapy_pacing.settings import pacing_enabled, read_settings, scrapy_delays, unknown_settings
from scrapy_pacing.slots import DownloadSlots
from scrapy_pacing.state import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    # typing.Self came with Python 3.11
    from typing_extensions import Self

    from scrapy_pacing.core.pacer import Departure, Lesson

logger = logging.getLogger(__name__)

# Meta keys of our own bookkeeping: plain values, so that a request that was given back can wait on disk.
_THROTTLES = "pacing_throttles"
_DONT_FILTER = "pacing_dont_filter"
_CLOSING = "pacing_closing"

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
        self._waiting = 0
        self._warned_of_waiting = False
        self._origin_key_failed = False
        self._autothrottle = crawler.settings.getbool("AUTOTHROTTLE_ENABLED")
        self._say_what_is_odd()
        self._state.join(self, self._settings.policies)
        crawler.signals.connect(self._spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self._spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware of a crawler."""
        return cls(crawler)

    # -- on the way out ---------------------------------------------------------------------------------------------

    async def process_request(self, request: Request) -> Request | None:
        """Let the request go when its origin is due; give it back to the scheduler if the spider closes meanwhile."""
        origin = self.lane_of(request)
        if origin is None:
            return None
        if is_closing(self.crawler):
            return self._give_back(request)

        def has_room() -> bool:
            return self._slots.has_room(request, origin)

        departure = self._state.gate.pass_now(origin, has_room)
        if departure is None:
            if self.dispatch.came_by_queue(request) and self._pacer.next_delay(origin) > _SHORT_WAIT:
                self._inc("pacing/requeued")
                self.dispatch.off_its_way(request)
                return self._again(request)
            departure = await self._wait(origin, has_room)
            if departure is None:
                return self._give_back(request)
        self._depart(request, departure)
        return None

    async def _wait(self, origin: str, has_room: Callable[[], bool]) -> Departure | None:
        clock = self._pacer.clock
        since = clock.monotonic()
        self._waiting += 1
        self._warn_of_waiting()
        try:
            return await self._state.gate.wait(origin, self, has_room)
        finally:
            self._waiting -= 1
            self._inc("pacing/seconds_waited", clock.monotonic() - since)

    def _depart(self, request: Request, departure: Departure) -> None:
        self._slots.depart(request, departure)
        self.dispatch.off_its_way(request)
        self._inc("pacing/requests")
        meta = request.meta
        meta.pop(_CLOSING, None)
        if _DONT_FILTER in meta:
            # It was set to bring the request back past the dupe filter; what comes of it is filtered as ever.
            request.dont_filter = meta.pop(_DONT_FILTER)
        if self._autothrottle:
            # Documented by Scrapy: AutoThrottle leaves the delay of this request's slot alone.
            meta["autothrottle_dont_adjust_delay"] = True

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
        """Return the request for the scheduler to keep, since the spider is closing.

        A request that some component downloads inline never goes to the scheduler but comes straight back: the second
        time it is dropped.
        """
        if request.meta.get(_CLOSING):
            raise IgnoreRequest("the spider is closing")
        self._inc("pacing/given_back")
        return self._again(request, {_CLOSING: True})

    @staticmethod
    def _again(request: Request, meta: Mapping[str, object] = MappingProxyType({})) -> Request:
        """Return the request for the scheduler, past the dupe filter and with ``meta`` added."""
        again = request.replace(dont_filter=True)
        again.meta.setdefault(_DONT_FILTER, request.dont_filter)
        again.meta.update(meta)
        return again

    # -- on the way back --------------------------------------------------------------------------------------------

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Learn from an answer of the site; send a refused request back to the scheduler."""
        departure = self._slots.land(request)
        if departure is None:
            # Cached, made up by another middleware, or not paced: it teaches nothing.
            return response
        origin = departure.origin
        answer = classify(response, self._settings.throttle_statuses)
        if answer is Answer.REFUSED:
            return self._refused(request, response, departure)
        if answer is Answer.SERVED:
            self._tell(self._pacer.eased(origin, departure=departure), "pacing/eased")
        elif answer is Answer.REDIRECTED:
            wait = retry_after(response, self._pacer.clock)
            if wait is not None and self._leads_home(response, origin):
                self._inc("pacing/held")
                self._pacer.postpone(origin, wait)
        elif answer is Answer.CHALLENGED:
            self._inc("pacing/challenged")
            self._pacer.failed(origin)
        elif response.status >= 500:
            # A page that is not there (404) says nothing about the pace, a server in trouble does.
            self._pacer.failed(origin)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:  # noqa: ARG002 - Scrapy's
        """Record that the request is no longer in flight."""
        departure = self._slots.land(request)
        if departure is not None:
            self._pacer.failed(departure.origin)

    def _refused(self, request: Request, response: Response, departure: Departure) -> Request | Response:
        asked = retry_after(response, self._pacer.clock)
        self._inc("pacing/throttled")
        if asked is not None:
            self._inc("pacing/held")
        why = f"status {response.status}" + ("" if asked is None else f", Retry-After {asked:.0f} s")
        self._tell(
            self._pacer.throttled(departure.origin, asked, departure=departure, why=why),
            "pacing/backed_off",
        )
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
        return self._again(request, {_THROTTLES: throttles})

    def _spider_handles(self, request: Request, status: int) -> bool:
        """Return whether the spider wants to see such answers itself (as Scrapy's HttpErrorMiddleware tells it)."""
        meta = request.meta
        if meta.get("handle_httpstatus_all"):
            return True
        wanted = meta.get("handle_httpstatus_list")
        if wanted is None:
            wanted = getattr(self.crawler.spider, "handle_httpstatus_list", None)
        if wanted is None:
            wanted = self.crawler.settings.getlist("HTTPERROR_ALLOWED_CODES")
        return status in {int(code) for code in wanted}

    def _leads_home(self, response: Response, origin: str) -> bool:
        """Return whether a redirect stays with its site; no site can make another one wait."""
        location = response.headers.get(b"Location")
        if location is None:
            return False
        try:
            target = response.urljoin(location.decode("latin-1"))
        except ValueError:
            return False
        return origin_key(target) in {origin, origin_key(response.url)}

    # -- the crawl --------------------------------------------------------------------------------------------------

    def _spider_opened(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        on_closing(self.crawler, self._closing)

    def _closing(self) -> None:
        self._state.gate.close(self)

    def _spider_closed(self, spider: Spider) -> None:  # noqa: ARG002 - the signal's arguments
        self.dispatch.close()
        self._slots.close()
        self._state.leave(self)

    def _tell(self, lesson: Lesson | None, stat: str) -> None:
        """Count a lesson and log it, one line for each change of an interval."""
        if lesson is None:
            return
        self._inc(stat)
        if lesson.old == lesson.new and lesson.hold is None:
            return
        hold = ""
        if lesson.hold is not None:
            capped = "" if lesson.asked == lesson.hold else f" (it asked for {lesson.asked:.0f} s)"
            hold = f"; nothing leaves for {lesson.hold:.0f} s{capped}"
        logger.info(
            "Interval of %(origin)s: %(old).3g -> %(new).3g s (%(why)s)%(hold)s",
            {
                "origin": lesson.origin,
                "old": lesson.old,
                "new": lesson.new,
                "why": lesson.why,
                "hold": hold,
            },
            extra={"spider": self.crawler.spider},
        )

    def _warn_of_waiting(self) -> None:
        """Say once that requests which wait here hold the places of other sites."""
        places = self.crawler.settings.getint("CONCURRENT_REQUESTS")
        if self._warned_of_waiting or not places or self._waiting * 2 <= places:
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
