"""Writes into memory what the answers of one crawl say about their sites; the pace is the pacer's business.

The rules:

1. An answer that some cache gave, that was cut off, or that an error page is, says nothing about a page.
2. Validators are kept only of pages that were parsed: textual 200 answers to GET navigations that went to a callback,
   under the URL that answered. What a callback failed on is asked for in full next time.
3. An answer that is judged a block tells the binding layer, and nothing else.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from scrapy.http import TextResponse
from scrapy.http.request import NO_CALLBACK

from . import findings
from .conditions import CONDITIONS, validators_of, vary_of
from .core.layers import Layer
from .core.origins import origin_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.http import Response

    from .core.clock import Clock
    from .core.memory import Memory
    from .settings import Diagnose

logger = logging.getLogger(__name__)

TIER = "pacing_tier"
_HINTED = "pacing_tier_hinted"
_NOT_WHOLE = frozenset({"cached", "partial", "dataloss", "download_stopped"})
# What Scrapy finds text in may be declared to be something else, which nobody parses; no declaration is none against.
_TEXTUAL = re.compile(r"|text/.*|application/.*(?:xml|json)")
_OK = 200
# How many origins one crawl notes the tier of; beyond that it is noted again.
_MOST_TIERS = 4096


class Recorder:
    """What one crawl tells its memory; ``count`` counts a stat."""

    def __init__(
        self, memory: Memory, *, clock: Clock, count: Callable[..., None], diagnose: Diagnose | None = None
    ) -> None:
        self.memory = memory
        self.clock = clock
        self._count = count
        self._diagnose = diagnose or findings.diagnose
        self._diagnose_failed = False
        # Origins whose first accepted page has told the tier; dict as an ordered set.
        self._tiers: dict[str, None] = {}

    def hint(self, request: Request) -> None:
        """Put the tier that worked on a request that does not ask for one."""
        origin = origin_key(request.url)
        if origin is None or TIER in request.meta:
            return
        tier = self.memory.tier(origin)
        if tier is not None and tier != "http":
            request.meta[TIER] = tier
            request.meta[_HINTED] = True

    def learn(self, request: Request, response: Response) -> Layer | None:
        """Learn from an answer that has come through all middlewares; return what it was judged to be."""
        origin = origin_key(response.url)
        if origin is None or not _NOT_WHOLE.isdisjoint(response.flags):
            return None
        self.memory.record_visit(origin)
        layer = self.judge(response)
        if layer is not None:
            self.memory.record_layer(origin, layer)
            self._count("pacing/memory/layers")
        elif response.status == _OK and request.method == "GET":
            self._learn_endpoints(response)
            if _is_parsed_page(request, response):
                self._learn_tier(origin, request, response)
                self.keep_validators(response)
        return layer

    def judge(self, response: Response) -> Layer | None:
        """Return the layer that an answer shows to be binding, or None for one that is what was asked for."""
        try:
            return Layer.of(self._diagnose(response))
        except Exception:
            if not self._diagnose_failed:
                logger.exception("PACING_DIAGNOSE raised for %s; such answers count as accepted", response)
                self._diagnose_failed = True
            return None

    def keep_validators(self, response: Response) -> None:
        """Keep the validators of a page that is put to use."""
        etag, last_modified = validators_of(response, now=self.clock.wall())
        vary = vary_of(response)
        if vary is None:
            self.memory.forget_validators(response.url)
        elif self.memory.record_validators(response.url, etag=etag, last_modified=last_modified, vary=vary):
            self._count("pacing/memory/validators")

    def refresh_validators(self, url: str, response: Response) -> None:
        """Keep what a 304 has brought."""
        etag, last_modified = validators_of(response, now=self.clock.wall())
        self.memory.record_validators(url, etag=etag, last_modified=last_modified, status=response.status)

    def _learn_tier(self, origin: str, request: Request, response: Response) -> None:
        if origin in self._tiers:
            return
        tier: object = findings.tier_of(response)
        if not request.meta.get(_HINTED) or tier == "http":
            # The spider knows best; and whoever heeded a hint may have used a handler that is not known here.
            tier = request.meta.get(TIER, tier)
        if not isinstance(tier, str):
            return
        if len(self._tiers) >= _MOST_TIERS:
            del self._tiers[next(iter(self._tiers))]
        self._tiers[origin] = None
        if self.memory.tier(origin) != tier:
            self.memory.record_tier(origin, tier)
            self._count("pacing/memory/tiers")

    def _learn_endpoints(self, response: Response) -> None:
        for origin, url, kind in findings.endpoints_in(response):
            if self.memory.record_endpoint(origin, url, kind=kind):
                self._count("pacing/memory/endpoints")


def _is_parsed_page(request: Request, response: Response) -> bool:
    return (
        isinstance(response, TextResponse)
        and _TEXTUAL.fullmatch(findings.media_type(response)) is not None
        and request.meta.get("navigation") is not False
        and CONDITIONS not in request.meta
        and request.callback is not NO_CALLBACK
    )
