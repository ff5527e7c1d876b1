"""The Crawl-delay and Request-rate of a robots.txt, as a least gap.

Neither is in RFC 9309, but sites write them and expect them to be kept. Scrapy 2.19 says when it has parsed a
robots.txt; before that the answer itself is read, and parsed once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protego import Protego
from scrapy import signals
from scrapy.utils.httpobj import urlparse_cached

from .core.ratelimit_fields import robots_gap

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from .core.pacer import Pacer

# A robots.txt is read as far as Google reads it (RFC 9309 section 2.5: at least 500 kibibytes).
_MOST_BYTES = 512 * 1024
# So many sites that ask for a gap are remembered; a crawl of more reads their robots.txt files but once, as Scrapy does.
_MOST_SITES = 100_000


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
        # The gap that each host and port asks for, and the lanes that have been told.
        self._gaps: dict[str, float] = {}
        self._kept: set[str] = set()
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

    def heed(self, request: Request, lane: str) -> None:
        """Keep what the robots.txt of this request's site asked for, before it passes the gate under ``lane``.

        Scrapy reads a robots.txt once for a host and port, whichever scheme and whichever request asked first.
        """
        if not self._gaps:
            return
        gap = self._gaps.get(urlparse_cached(request).netloc)
        if gap is not None and lane not in self._kept:
            self._kept.add(lane)
            self._pacer.minimum(lane, gap)

    def _heed(self, request: Request, delay: float | None, rate: Any) -> None:
        gap = robots_gap(delay, None if rate is None else (rate.requests, rate.seconds))
        if not gap > 0:
            return
        self._count("pacing/crawl_delays")
        if len(self._gaps) >= _MOST_SITES:
            self._gaps.clear()
            self._kept.clear()
        self._gaps[urlparse_cached(request).netloc] = gap
        lane = self._lane_of(request)
        if lane is not None:
            # At once: the gap that runs since robots.txt itself was fetched counts already.
            self.heed(request, lane)

    def _agent(self, request: Request) -> str:
        """Return the user agent that Scrapy's robots.txt middleware goes by."""
        settings = self._crawler.settings
        agent = settings["ROBOTSTXT_USER_AGENT"] or request.headers.get("User-Agent") or settings["USER_AGENT"]
        return agent.decode("latin-1") if isinstance(agent, bytes) else str(agent)
