"""What answers teach about a site beside its pace, and how a spider reports what it has found out itself.

For a spider there are `record_layer`, `mark_decoy`, `forget_decoy`, `endpoints` and `visible_links`; they take the
spider, so that each finding goes to the memory of the crawl that made it. Without a memory (``PACING_REMEMBER = False``) they do nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from parsel import Selector
from scrapy.http import HtmlResponse, Response

from .core.layers import Layer
from .core.origins import origin_key
from .state import known_state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler

    from .core.memory import Memory

_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json|text/json")
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml"})
# Links to data stand in a page's head; what comes later is not read.
_HEAD_BYTES = 1 << 16
_MOST_ENDPOINTS_OF_A_PAGE = 16

_crawler_of_request: WeakKeyDictionary[Request, ref[Crawler]] = WeakKeyDictionary()


# -- for the spider -----------------------------------------------------------------------------------------------------


def record_layer(spider: Spider, page: Response | str, layer: Layer | int | None) -> None:
    """Record which layer was found to bind the origin of ``page``, a URL or a response.

    A response that is reported so was no answer to what was asked: its validators are forgotten. None says that no
    layer is known any more.
    """
    memory = memory_of(spider)
    url = page if isinstance(page, str) else page.url
    origin = origin_key(url)
    if memory is None or origin is None:
        return
    memory.record_layer(origin, layer)
    if isinstance(page, Response) and layer is not None:
        memory.forget_validators(url)


def mark_decoy(spider: Spider, url: str) -> bool:
    """Record that ``url`` is one that no visitor would ask for; requests for it are dropped from now on.

    Return whether it is kept: URLs that are too long, or not of http, are not, nor a homepage or a robots.txt.
    """
    memory = memory_of(spider)
    kept = memory is not None and memory.mark_decoy(url)
    if kept:
        spider.crawler.stats.inc_value("pacing/memory/decoys")
    return kept


def forget_decoy(spider: Spider, url: str) -> bool:
    """Record that ``url`` is no decoy; requests for it are sent, and `visible_links` does not mark it again.

    Return whether it was marked.
    """
    memory = memory_of(spider)
    return memory is not None and memory.forget_decoy(url)


def endpoints(spider: Spider, page: Response | str) -> dict[str, str]:
    """Return the URLs of data that lie behind the pages of an origin, with their media types, the last found last.

    ``page`` is a URL of that origin, or a response from it.
    """
    memory = memory_of(spider)
    origin = origin_key(page if isinstance(page, str) else page.url)
    return {} if memory is None or origin is None else memory.endpoints(origin)


def memory_of(spider: Spider) -> Memory | None:
    """Return the memory of a spider's crawl, or None if it remembers nothing."""
    return _memory(getattr(spider, "crawler", None))


def memory_behind(response: Response) -> Memory | None:
    """Return the memory of the crawl that ``response`` came to, or None if that is not known."""
    crawler = None if response.request is None else _crawler_of_request.get(response.request)
    return None if crawler is None else _memory(crawler())


def came_to(request: Request, crawler: Crawler) -> None:
    """Note which crawl a request belongs to, as long as the request is in use."""
    _crawler_of_request[request] = ref(crawler)


def _memory(crawler: Crawler | None) -> Memory | None:
    state = None if crawler is None else known_state_of(crawler)
    return None if state is None else state.memory


# -- from answers -------------------------------------------------------------------------------------------------------


def diagnose(response: Response) -> Layer | None:
    """Return which layer an answer shows to be binding, as far as the answer says so itself; None: it does not.

    This is modest on purpose. A 429 or a Retry-After is about pace and no layer, and a 403 alone can mean anything.
    """
    if b"challenge" in (response.headers.get(b"Cf-Mitigated") or b"").lower():
        return Layer.CHALLENGE
    return None


def tier_of(response: Response) -> str:
    """Return by which kind of handler a response came, as far as its request tells."""
    meta = {} if response.request is None else response.request.meta
    if meta.get("playwright") or "playwright" in response.flags:
        return "browser"
    if meta.get("impersonate") or "impersonate" in response.flags:
        return "impersonated"
    return "http"


def media_type(response: Response) -> str:
    """Return the media type of an answer, in lower case and without parameters."""
    field = response.headers.get(b"Content-Type") or b""
    return field.partition(b";")[0].strip().lower().decode("latin-1")


def endpoints_in(response: Response) -> Iterator[tuple[str, str, str]]:
    """Yield the endpoints that an answer shows: the origin whose pages they belong to, URL, media type.

    That is a JSON answer to a sub-resource itself, and what an HTML page's head links to as JSON or a feed.
    """
    kind = media_type(response)
    request = response.request
    if request is not None and request.meta.get("navigation") is False and _JSON_TYPE.fullmatch(kind):
        referer = (request.headers.get(b"Referer") or b"").decode("latin-1")
        origin = origin_key(referer) or origin_key(response.url)
        if origin is not None:
            yield origin, response.url, kind
    elif isinstance(response, HtmlResponse):
        yield from _linked_endpoints(response)


def _linked_endpoints(response: HtmlResponse) -> Iterator[tuple[str, str, str]]:
    head = response.body[:_HEAD_BYTES]
    origin = origin_key(response.url)
    if origin is None or b"alternate" not in head.lower():
        return
    selector = Selector(text=head.decode(response.encoding, "replace"))
    for link in selector.css("link[rel][type][href]")[:_MOST_ENDPOINTS_OF_A_PAGE]:
        if "alternate" not in link.attrib["rel"].lower().split():
            continue
        kind = link.attrib["type"].partition(";")[0].strip().lower()
        if kind in _FEED_TYPES or _JSON_TYPE.fullmatch(kind):
            try:
                url = response.urljoin(link.attrib["href"].strip())
            except ValueError:
                continue
            yield origin, url, kind
