"""What a request is for, and whether an answer is a page: as far as Scrapy's objects tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.http import HtmlResponse
from scrapy.http.request import NO_CALLBACK

from scrapy_pacing.core.fetch_metadata import DESTINATIONS, destination

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from scrapy import Request
    from scrapy.http import Response

_PAGE_TYPES = frozenset({b"text/html", b"application/xhtml+xml"})


def keeps_its_headers(meta: Mapping[str, Any]) -> bool:
    """Return whether the headers of a request with such meta are not ours to fill in.

    A handler that drives or imitates a browser writes those of its browser.
    """
    return bool(meta.get("dont_trail") or meta.get("playwright") or meta.get("impersonate"))


def destination_of(request: Request) -> str:
    """Return what a request is for, in the words of Sec-Fetch-Dest; raises ValueError for a bad ``pacing_dest``.

    What the spider says counts first, also in a Sec-Fetch header of its own. A request that has no callback was made by
    a component (robots.txt, a media pipeline), and is no navigation unless it says so.
    """
    meta, headers = request.meta, request.headers
    navigation = meta.get("navigation")
    navigates = request.callback is not NO_CALLBACK if navigation is None else bool(navigation)
    dest = meta.get("pacing_dest")
    if dest is None:
        if b"Sec-Fetch-Dest" in headers:
            named = (headers.get(b"Sec-Fetch-Dest") or b"").decode("latin-1")
            dest = named if named in DESTINATIONS else None
        if navigates and b"Sec-Fetch-Mode" in headers:
            navigates = headers.get(b"Sec-Fetch-Mode") == b"navigate"
    return destination(
        request.url, method=request.method, navigation=navigates, dest=dest, accept=headers.get(b"Accept")
    )


def is_page(response: Response) -> bool:
    """Return whether an answer is a page that comes into view: not an error, a challenge, a picture or a download."""
    if response.status != 200:
        return False
    headers = response.headers
    kind = headers.get(b"Content-Type")
    shown = isinstance(response, HtmlResponse) if kind is None else _mime(kind) in _PAGE_TYPES
    return (
        shown
        and b"Cf-Mitigated" not in headers
        and not (headers.get(b"Content-Disposition") or b"").strip().lower().startswith(b"attachment")
    )


def _mime(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()
