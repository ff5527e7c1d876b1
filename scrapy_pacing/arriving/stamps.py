"""The headers that tell where a request came from, put on it as it departs.

1. A header that the spider has set stays. What stands on a request that comes back (a retry, a redirect) because it
   was put there before is known by its value, and made anew.
2. The page that held the link is the one that Scrapy's RefererMiddleware knew, else the page in view.
3. A redirect keeps the page that began it; the Referer that Scrapy writes then, the redirecting URL, is dropped.
4. A page that leads on by a meta refresh and whose own word on its referrer was not read is shown to no other origin.
5. What is kept in meta is plain: it may have to wait on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_pacing.compat import put_headers
from scrapy_pacing.core.fetch_metadata import check_destination
from scrapy_pacing.core.origins import origin_key
from scrapy_pacing.core.referrer_policy import parse_referrer_policy, referrer_of

from .kinds import destination_of, is_page, keeps_its_headers
from .links import INITIATOR, TRAIL, policy_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy import Request
    from scrapy.http import Headers, Response

    from scrapy_pacing.core.trail import Initiator, Trail

_META_REFRESH = "meta refresh"
# Policies that hide a page's address from its own origin, too.
_NEVER_WHOLE = frozenset({"no-referrer", "origin", "strict-origin"})
# As Scrapy's Headers keep them.
_FIELDS = {
    name: name.title().encode()
    for name in (
        "Upgrade-Insecure-Requests",
        "Sec-Fetch-Site",
        "Sec-Fetch-Mode",
        "Sec-Fetch-User",
        "Sec-Fetch-Dest",
        "Referer",
    )
}


class Stamps:
    """Stamps the requests of one crawl, and shows its pages to the trail."""

    def __init__(self, trail: Trail, *, referer: bool, metadata: bool) -> None:
        """``referer``: keep the trail and write Referer; ``metadata``: write Sec-Fetch headers and their like."""
        self._trail = trail
        self._referer = referer
        self._metadata = metadata

    def check(self, request: Request) -> None:
        """Raise ValueError for a bad pacing_dest, before the request has cost anything."""
        if "pacing_dest" in request.meta:
            check_destination(request.meta["pacing_dest"])

    def stamp(self, request: Request) -> None:
        """Put on a request, which departs now, what a browser's would say; raises ValueError for a bad pacing_dest."""
        meta, url = request.meta, request.url
        if not (self._referer or self._metadata) or keeps_its_headers(meta) or origin_key(url) is None:
            return
        headers = request.headers
        last = meta.get(TRAIL)
        noted = meta.pop(INITIATOR, None)
        if last is not None:
            _take_off(headers, last["stamped"])
        visit = None if last is None else self._continued(request, last, noted)
        if visit is None:
            visit = self._begun(request, self._initiator(headers, noted))
        wanted = self._trail.headers_for(
            url,
            method=request.method,
            dest=visit["dest"],
            initiator=visit["page"],
            redirects=visit["hops"],
            user=visit["user"],
        )
        there = headers.keys()
        stamped = visit["stamped"] = {
            name: value
            for name, value in wanted.items()
            if (self._referer if name == "Referer" else self._metadata) and _FIELDS[name] not in there
        }
        put_headers(headers, {_FIELDS[name]: value.encode() for name, value in stamped.items()})
        meta[TRAIL] = visit

    def answered(self, request: Request, response: Response) -> None:
        """Learn from an answer that came over the network: a page that is in view now, a policy for the next hop."""
        if 300 <= response.status < 400:
            visit = request.meta.get(TRAIL)
            if visit is not None and b"Referrer-Policy" in response.headers:
                policy = parse_referrer_policy(response.headers.getlist(b"Referrer-Policy"))
                # A new dict: the request that left may be looked at by others.
                request.meta[TRAIL] = {**visit, "policy": policy}
        elif self._keeps(request) and is_page(response) and destination_of(request) == "document":
            self._trail.page(response.url, referrer_policy=response.headers.getlist(b"Referrer-Policy"))

    def read(self, response: Response) -> None:
        """Obey the page's own word on its referrer, now that its body is decoded."""
        if not self._referer:
            return
        policy = policy_in(response)
        if not policy:
            return
        page = self._trail.in_view(response.url)
        if page is not None and page.url == referrer_of(response.url):
            self._trail.page(response.url, referrer_policy=policy)

    def _keeps(self, request: Request) -> bool:
        return self._referer and not request.meta.get("dont_trail")

    def _begun(self, request: Request, initiator: Initiator | None, *, user: bool | None = None) -> dict[str, Any]:
        dest = destination_of(request)
        page = self._trail.initiator_of(request.url, method=request.method, dest=dest, initiator=initiator)
        return {
            "url": request.url,
            "redirects": len(request.meta.get("redirect_urls") or ()),
            "page": tuple(page),
            "hops": (),
            "dest": dest,
            "user": dest == "document" if user is None else user,
        }

    def _continued(self, request: Request, last: Mapping[str, Any], noted: tuple[str, str, str | None] | None) -> Any:
        """Return the visit that goes on by this request; None if it is another one, whose meta was copied."""
        earlier: Sequence[str] = request.meta.get("redirect_urls") or ()
        headers = request.headers
        if len(earlier) == last["redirects"] + 1 and earlier[-1] == last["url"]:
            if self._referer:
                headers.pop(b"Referer", None)
            if _META_REFRESH in (request.meta.get("redirect_reasons") or ())[-1:]:
                return self._begun(request, self._refreshing(last["url"], noted), user=False)
            hops = (*last["hops"], (last["url"], last.get("policy", "")))
            return {**last, "url": request.url, "redirects": len(earlier), "hops": hops, "policy": ""}
        if len(earlier) == last["redirects"] and request.url == last["url"]:
            if self._referer and noted is not None and _text(headers.get(b"Referer")) == noted[2]:
                headers.pop(b"Referer", None)
            return {**last, "policy": ""}
        return None

    def _refreshing(self, url: str, noted: tuple[str, str, str | None] | None) -> tuple[str, str]:
        """Return the page at ``url``, which leads on by itself, with its policy."""
        shown = referrer_of(url) or "null"
        if noted is not None and noted[0] == shown:
            return noted[:2]
        # Without Scrapy's RefererMiddleware nobody has read its body, and what its header allows may be forbidden there.
        page = self._trail.in_view(url)
        hides = page is not None and page.url == shown and page.referrer_policy in _NEVER_WHOLE
        return shown, "no-referrer" if hides else "same-origin"

    def _initiator(self, headers: Headers, noted: tuple[str, str, str | None] | None) -> Initiator | None:
        """Return the page that held the link, ``""`` for none, None if that is not known; drop Scrapy's Referer."""
        if b"Referer" not in headers:
            shown = None
            if noted is None:
                return None if self._referer else ""
        else:
            shown = _text(headers.get(b"Referer"))
        if noted is not None and noted[2] == shown:
            if self._referer:
                headers.pop(b"Referer", None)
            return noted[0], noted[1]
        return shown or ""


def _take_off(headers: Headers, stamped: Mapping[str, str]) -> None:
    for name, value in stamped.items():
        if _text(headers.get(name)) == value:
            del headers[name]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
