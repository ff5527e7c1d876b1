"""What the answers of a crawl teach its pacer, and the log lines and stats of that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest
from scrapy.utils.misc import load_object

from .answers import Answer, classify, retry_after, states_limits
from .core.origins import origin_key
from .core.ratelimit_fields import quota_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from .core.lessons import Departure, Lesson
    from .core.pacer import Pacer
    from .settings import PacingSettings

logger = logging.getLogger(__name__)

# An easing by less than this share is a small step of many: it is logged for debugging only.
_NOTABLE = 0.05


class Learning:
    """Reads the answers of one crawl, and tells the pacer."""

    def __init__(self, crawler: Crawler, pacer: Pacer, settings: PacingSettings, *, count: Callable[..., None]) -> None:
        self._crawler = crawler
        self._pacer = pacer
        self._settings = settings
        self._count = count
        # What Scrapy itself takes for a fault that may pass.
        self._troubles = tuple(
            load_object(kind) if isinstance(kind, str) else kind
            for kind in crawler.settings.getlist("RETRY_EXCEPTIONS")
        )

    def answered(self, request: Request, response: Response, departure: Departure) -> Answer:
        """Learn from the answer to a request that has landed; return what kind of answer it was."""
        answer = classify(response, self._settings.throttle_statuses)
        origin = departure.origin
        if answer is not Answer.REDIRECTED:
            self._take_time(request, origin, served=answer is Answer.SERVED)
        if answer is Answer.SERVED:
            self._tell(self._pacer.eased(origin, departure=departure), "pacing/eased")
        elif answer is Answer.REFUSED:
            self._refused(response, departure)
        elif answer is Answer.REDIRECTED:
            self._redirected(response, origin)
        elif answer is Answer.CHALLENGED:
            self._count("pacing/challenged")
            self._pacer.failed(origin)
        elif response.status >= 500:
            # A page that is not there (404) says nothing about the pace, a server in trouble does.
            self._troubled(departure, f"status {response.status}")
        if self._settings.ratelimit_headers:
            self._heed_quota(response, origin, answer)
        return answer

    def failed(self, request: Request, exception: Exception, departure: Departure) -> None:
        """Learn from a request that got no answer."""
        if isinstance(exception, self._troubles) and not request.meta.get("proxy"):
            # With a proxy between, nobody knows whose fault it was.
            self._troubled(departure, type(exception).__name__)
        elif not isinstance(exception, IgnoreRequest):
            self._pacer.failed(departure.origin)

    def _refused(self, response: Response, departure: Departure) -> None:
        asked = retry_after(response, self._pacer.clock)
        self._count("pacing/throttled")
        if asked is not None:
            self._count("pacing/held")
        why = f"status {response.status}" + ("" if asked is None else f", Retry-After {asked:.0f} s")
        lesson = self._pacer.throttled(departure.origin, asked, departure=departure, why=why)
        self._tell(lesson, "pacing/backed_off")

    def _redirected(self, response: Response, origin: str) -> None:
        wait = retry_after(response, self._pacer.clock)
        if wait is not None and _leads_home(response, origin):
            self._count("pacing/held")
            self._pacer.postpone(origin, wait)

    def _troubled(self, departure: Departure, why: str) -> None:
        self._tell(self._pacer.troubled(departure.origin, departure=departure, why=why), "pacing/troubled")

    def _take_time(self, request: Request, origin: str, *, served: bool) -> None:
        seconds = request.meta.get("download_latency")
        if isinstance(seconds, (int, float)):
            self._pacer.answered(origin, seconds, served=served)

    def _heed_quota(self, response: Response, origin: str, answer: Answer) -> None:
        if not states_limits(response):
            return
        # On a refusal and on a redirect Retry-After has been heeded, and wins; on anything else it was read by nobody.
        unread = answer not in {Answer.REFUSED, Answer.REDIRECTED}
        clock = self._pacer.clock
        quota = quota_of(response.headers.getlist, now=clock.wall(), beside_retry_after=unread)
        if quota is None:
            return
        self._count("pacing/quotas")
        reset = quota.reset
        if unread and quota.remaining < 1:
            reset = max(reset, retry_after(response, clock) or 0.0)
        self._pacer.quota(origin, quota.remaining, reset)

    def _tell(self, lesson: Lesson | None, stat: str) -> None:
        """Count a lesson and log it, one line for each change of an interval."""
        if lesson is None:
            return
        self._count(stat)
        if lesson.old == lesson.new and lesson.hold is None:
            return
        hold = ""
        if lesson.hold is not None:
            capped = "" if lesson.asked == lesson.hold else f" (it asked for {lesson.asked:.0f} s)"
            hold = f"; nothing leaves for {lesson.hold:.3g} s{capped}"
        small_step = lesson.old * (1 - _NOTABLE) < lesson.new < lesson.old
        logger.log(
            logging.DEBUG if small_step else logging.INFO,
            "Interval of %(origin)s: %(old).3g -> %(new).3g s (%(why)s)%(hold)s",
            {"origin": lesson.origin, "old": lesson.old, "new": lesson.new, "why": lesson.why, "hold": hold},
            extra={"spider": self._crawler.spider},
        )


def _leads_home(response: Response, origin: str) -> bool:
    """Return whether a redirect stays with its site; no site can make another one wait."""
    location = response.headers.get(b"Location")
    if location is None:
        return False
    try:
        target = response.urljoin(location.decode("latin-1"))
    except ValueError:
        return False
    return origin_key(target) in {origin, origin_key(response.url)}
