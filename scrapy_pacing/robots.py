"""The Crawl-delay and Request-rate of a robots.txt, as a least gap.

Neither is in RFC 9309, but sites write them and expect them to be kept. Scrapy 2.19 says when it has parsed a
robots.txt; before that the answer itself is read, and parsed once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protego import Protego
from scrapy import signals

from .core.ratelimit_fields import robots_gap

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from .core.pacer import Pacer

# A robots.txt is read as far as Google reads it (RFC 9309 section 2.5: at least 500 kibibytes).
_MOST_BYTES = 512 * 1024


class RobotsGaps:
    """Tells the pacer what the robots.txt files of a crawl ask for."""

    def __init__(
        self,
        crawler: Crawler,
        pacer: Pacer,
        lane_of: Callable[[Request], str | None],
        *,
        count: Callable[..., None],
    ) -> None:
        self._crawler = crawler
        self._pacer = pacer
        self._lane_of = lane_of
        self._count = count
        parsed = getattr(signals, "robots_parsed", None)
        if parsed is not None:
            crawler.signals.connect(self._parsed, signal=parsed)
        else:
            crawler.signals.connect(self._received, signal=signals.response_received)

    def _parsed(self, robotparser: Any, request: Request) -> None:
        agent = self._agent(request)
        # Scrapy's parsers know the delay; the rate is Protego's own.
        rules: Any = getattr(robotparser, "rp", None)
        rate = rules.request_rate(agent) if hasattr(rules, "request_rate") else None
        self._heed(request, robotparser.crawl_delay(agent), rate)

    def _received(self, response: Response, request: Request) -> None:
        if not request.meta.get("dont_obey_robotstxt") or not request.url.endswith("/robots.txt"):
            return
        rules = Protego.parse(response.body[:_MOST_BYTES].decode("utf-8", "ignore"))
        agent = self._agent(request)
        self._heed(request, rules.crawl_delay(agent), rules.request_rate(agent))

    def _heed(self, request: Request, delay: float | None, rate: Any) -> None:
        lane = self._lane_of(request)
        gap = robots_gap(delay, None if rate is None else (rate.requests, rate.seconds))
        if lane is not None and gap > 0:
            self._count("pacing/crawl_delays")
            self._pacer.minimum(lane, gap)

    def _agent(self, request: Request) -> str:
        """Return the user agent that Scrapy's robots.txt middleware goes by."""
        settings = self._crawler.settings
        agent = settings["ROBOTSTXT_USER_AGENT"] or request.headers.get("User-Agent") or settings["USER_AGENT"]
        return agent.decode("latin-1") if isinstance(agent, bytes) else str(agent)
