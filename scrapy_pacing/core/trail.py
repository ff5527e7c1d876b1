"""The page in view of each origin, and what the next request says of where it came from.

1. A request begins at the page that held its link, where that is known; else at the page in view of its own origin;
   else its address was typed.
2. Only a GET of a document can be typed. Anything else always has a page behind it in a browser; where we know none, it
   counts as a page of the request's own origin that hides its address.
3. A redirect changes neither the page that began the chain nor the Sec-Fetch-User: each hop cuts the referrer anew,
   what was cut is never restored, and the worst hop decides the Sec-Fetch-Site.
4. Pages are kept per security origin (scheme, host and port) and bounded: the one used longest ago goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .fetch_metadata import destination, fetch_metadata, site_of_chain
from .origins import origin_key
from .referrer_policy import PolicyFields, cut_referrer, parse_referrer_policy, referrer_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Page(NamedTuple):
    """A page that requests begin at: its address, cut to what a Referer may carry, and its referrer policy."""

    url: str
    referrer_policy: str = ""


TYPED = Page("")
"""No page: the address was typed."""
# A page without an origin, by the name that an Origin header has for it.
_NOBODY = Page("null", "no-referrer")

Initiator = Page | tuple[str, str] | str
Hop = str | tuple[str, PolicyFields]


class Trail:
    """Keeps the page in view of each origin and tells the headers of the next request.

    >>> trail = Trail()
    >>> trail.page("https://example.com/list?page=2#top")
    >>> trail.headers_for("https://example.com/item/7")["Referer"]
    'https://example.com/list?page=2'
    >>> trail.headers_for("https://example.org/")["Sec-Fetch-Site"]
    'none'
    """

    def __init__(self, *, max_origins: int = 4096) -> None:
        """Make a trail that keeps the pages of at most ``max_origins``; raises ValueError if that is below 1."""
        if max_origins < 1:
            raise ValueError(f"max_origins is {max_origins!r}; allowed: 1 or more")
        self._max_origins = max_origins
        self._pages: dict[str, Page] = {}

    def page(self, url: str, *, referrer_policy: PolicyFields = "") -> None:
        """Record that the page at ``url`` is in view now.

        ``referrer_policy`` is what its Referrer-Policy header says, or its meta element. A URL that is neither http
        nor https changes nothing.
        """
        shown = referrer_of(url)
        origin = origin_key(url.strip())
        if shown is None or origin is None:
            return
        self._pages.pop(origin, None)
        if len(self._pages) >= self._max_origins:
            del self._pages[next(iter(self._pages))]
        self._pages[origin] = Page(shown, parse_referrer_policy(referrer_policy))

    def in_view(self, url: str) -> Page | None:
        """Return the page in view of a URL's origin, or None."""
        origin = origin_key(url.strip())
        if origin is None:
            return None
        page = self._pages.pop(origin, None)
        if page is not None:
            self._pages[origin] = page
        return page

    def forget(self, origin: str) -> None:
        """Forget the page of an origin, since what comes next is another visitor's; does nothing if there is none."""
        self._pages.pop(origin, None)

    def __len__(self) -> int:
        """Return the number of origins with a page in view."""
        return len(self._pages)

    def initiator_of(
        self,
        url: str,
        *,
        method: str = "GET",
        dest: str = "document",
        initiator: Initiator | None = None,
        referrer_policy: PolicyFields = "",
    ) -> Page:
        """Return the page that a request to ``url`` begins at, `TYPED` if none.

        ``initiator`` is the page that really held the link (its Referer, as it stands on the request), ``""`` for a
        typed address, None to take the page in view. ``referrer_policy`` is the link's own, and wins over the page's.
        Keep the answer with the request (a plain tuple serves as well) and give it to `headers_for` for every hop of a
        redirect chain: meanwhile another page may have come into view.
        """
        page = self.in_view(url) if initiator is None else self._known(initiator)
        if page is None:
            if dest == "document" and method.upper() == "GET":
                return TYPED
            own = referrer_of(url)
            return _NOBODY if own is None else Page(own[: own.index("/", 8) + 1], "no-referrer")
        policy = parse_referrer_policy(referrer_policy) if referrer_policy else ""
        return Page(page.url, policy) if policy else page

    def headers_for(
        self,
        url: str,
        *,
        method: str = "GET",
        navigation: bool = True,
        dest: str | None = None,
        accept: bytes | str | None = None,
        initiator: Initiator | None = None,
        referrer_policy: PolicyFields = "",
        redirects: Sequence[Hop] = (),
        user: bool | None = None,
    ) -> dict[str, str]:
        """Return Referer, Sec-Fetch headers and Upgrade-Insecure-Requests of a request, in a browser's order.

        ``navigation``, ``dest`` and ``accept`` tell its destination (see `destination`); ``initiator`` and
        ``referrer_policy`` where it begins (see `initiator_of`). ``redirects`` are the earlier hops of its chain, first
        one first: each a URL, or a URL and the Referrer-Policy of the redirecting answer, which counts from the next
        hop on. ``user`` is whether a user began it; None: yes if it is a navigation to a document.

        Changes nothing but which pages count as used last. Empty for a URL that is neither http nor https. Raises
        ValueError for a ``dest`` that the Fetch standard doesn't have; nothing else raises.
        """
        dest = destination(url, method=method, navigation=navigation, dest=dest, accept=accept)
        target = origin_key(url.strip())
        if target is None:
            return {}
        hops = [(hop, "") if isinstance(hop, str) else hop for hop in redirects]
        page = self.initiator_of(
            hops[0][0] if hops else url,
            method=method,
            dest=dest,
            initiator=initiator,
            referrer_policy=referrer_policy,
        )
        chain = [origin_key(hop.strip()) for hop, _ in hops]
        chain.append(target)
        site = site_of_chain(origin_key(page.url), chain) if page.url else "none"
        if user is None:
            user = navigation and dest == "document"
        headers = fetch_metadata(target, site=site, dest=dest, user=user)
        referrer = _referrer_after(page, chain, [policy for _, policy in hops])
        if referrer is not None:
            headers["Referer"] = referrer
        return headers

    def _known(self, initiator: Initiator) -> Page | None:
        """Return a named page with the policy that it has; None where the name stands for a typed address."""
        if isinstance(initiator, str):
            url, policy = initiator, ""
        else:
            url, policy = initiator
        # A new tab has this address, and what is typed into it is typed.
        if url in {"", "about:blank"}:
            return None
        shown = referrer_of(url)
        if shown is None:
            return _NOBODY
        if not policy:
            in_view = self._pages.get(shown[: shown.index("/", 8)])
            if in_view is not None and in_view.url == shown:
                return in_view
        return Page(shown, policy)


def _referrer_after(page: Page, chain: Sequence[str | None], policies: Sequence[PolicyFields]) -> str | None:
    """Return what the last hop of a chain shows of the page that began it."""
    referrer = page.url if "://" in page.url else None
    policy = page.referrer_policy
    for index, target in enumerate(chain):
        if referrer is None:
            return None
        if index and policies[index - 1]:
            policy = parse_referrer_policy(policies[index - 1]) or policy
        referrer = cut_referrer(referrer, target, policy)
    return referrer
