"""Which page held the link of a request, and what its referrer policy is.

Scrapy's RefererMiddleware is the one that knows the page, but it writes only a Referer; this notes the page beside it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from parsel import Selector
from scrapy.http import HtmlResponse

from scrapy_pacing.core.referrer_policy import meta_referrer_policy, parse_referrer_policy, referrer_of

from .kinds import keeps_its_headers

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

# Meta keys of ours: the page that held the link, until the request departs; where it came from, after that.
INITIATOR = "pacing_initiator"
TRAIL = "pacing_trail"

# Where a policy stands in a page, it stands early; no page makes us read it all.
_HEAD = 16_384
_META_REFERRER = re.compile(rb"<meta\b[^>]{0,1024}?\breferrer\b", re.IGNORECASE)


class Links:
    """Notes which page held the link of a request, in the request's meta."""

    def __init__(self, settings: BaseSettings, *, referer: bool = True) -> None:
        """``referer``: the Referer is ours to write, so that of a redirect is not left to Scrapy."""
        self._referer = referer
        self._pages: WeakKeyDictionary[Response, tuple[str, str]] = WeakKeyDictionary()
        # None: a policy that only Scrapy knows, so what Scrapy writes stands.
        self._general: str | None = ""
        if (settings.getpriority("REFERRER_POLICY") or 0) > 0:
            self._general = parse_referrer_policy(str(settings.get("REFERRER_POLICY"))) or None

    def followed(self, request: Request, response: Response) -> None:
        """Note that ``request`` comes from ``response``, and that its Referer is Scrapy's work."""
        meta = request.meta
        before = meta.pop(INITIATOR, None)
        written = request.headers.get(b"Referer")
        shown = None if written is None else written.decode("latin-1")
        if response.request is None:
            self._redirected(request, response, before, shown)
            return
        url, policy = self._page(response)
        own = meta.get("referrer_policy")
        policy_that_holds = (parse_referrer_policy(str(own)) or None) if own is not None else (policy or self._general)
        if policy_that_holds is not None:
            meta[INITIATOR] = (url, policy_that_holds, shown)

    def _redirected(
        self, request: Request, response: Response, before: tuple[str, str, str | None] | None, shown: str | None
    ) -> None:
        """Note a redirect or a meta refresh, still inside the downloader."""
        meta = request.meta
        if keeps_its_headers(meta):
            if self._referer:
                # The redirecting URL, which no browser shows, and nothing of ours takes its place.
                request.headers.pop(b"Referer", None)
        elif TRAIL not in meta:
            meta[INITIATOR] = ("", "", shown) if before is None else (*before[:2], shown)
        elif not 300 <= response.status < 400:
            # A page that leads on by itself. Of redirects, the trail knows where they began.
            url, policy = self._page(response)
            policy_that_holds = policy or self._general
            if policy_that_holds is not None:
                meta[INITIATOR] = (url, policy_that_holds, shown)

    def _page(self, response: Response) -> tuple[str, str]:
        page = self._pages.get(response)
        if page is None:
            policy = policy_in(response) or parse_referrer_policy(response.headers.getlist(b"Referrer-Policy"))
            page = self._pages[response] = (referrer_of(response.url) or "null", policy)
        return page


def policy_in(response: Response) -> str:
    """Return the policy that the page's own meta element names, or ``""``. The body must be decoded; never raises."""
    if not isinstance(response, HtmlResponse):
        return ""
    head = response.body[:_HEAD]
    if not _META_REFERRER.search(head):
        return ""
    # Latin-1 reads any bytes, and the words that count are ASCII.
    names = Selector(head.decode("latin-1")).xpath(
        "//meta[translate(normalize-space(@name), 'REFERRER', 'referrer') = 'referrer']/@content"
    )
    policy = ""
    for name in names.getall():
        policy = meta_referrer_policy(name) or policy
    return policy
