"""The warm-up: a crawl arrives at a site through its homepage.

The homepage is fetched by a request of our own, which goes through all downloader middlewares like any other: paced,
asked of robots.txt, with the cookie jar and the exit of the request that it is for. That request waits for it.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from scrapy import Request
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.defer import deferred_from_coro

from scrapy_pacing.compat import is_closing
from scrapy_pacing.core.origins import host_of, origin_key
from scrapy_pacing.core.plan import Move, Remembered, RequestFacts, plan
from scrapy_pacing.core.sites import registrable_domain
from scrapy_pacing.core.warmup import homepage_of

from .doors import door_of
from .kinds import destination_of, is_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_pacing.settings import PacingSettings
    from scrapy_pacing.state import SharedState

    from .doors import Visit

logger = logging.getLogger(__name__)

# Meta keys of ours: the door that a warm-up is for; by which crawl and at which door a request has been warmed, until it
# departs.
WARMUP = "pacing_warmup"
WARMED = "pacing_warmed"

# A homepage is looked at, not read: what is larger or slower is given up.
_MOST_BYTES = 2 * 1024 * 1024
_LONGEST_SECONDS = 30.0
_MOST_REDIRECTS = 5
# What makes the homepage's visitor the one who asks for the page: jar, exit, handler and identity.
_CARRIED_META = (
    "cookiejar",
    "dont_merge_cookies",
    "pacing_exit",
    "pacing_lease",
    "proxy",
    "_auth_proxy",
    "_scheme_proxy",
    "bindaddress",
    "dont_obey_robotstxt",
    "playwright",
    "playwright_context",
    "playwright_context_kwargs",
    "impersonate",
    "impersonate_args",
    "dont_trail",
)
_CARRIED_HEADERS = (b"User-Agent", b"Accept-Language", b"Proxy-Authorization")


class LeadsElsewhere(IgnoreRequest):
    """A warm-up was sent on to another site, where it is not followed."""


class _Homepage(Request):
    """A warm-up whose redirects to another site make nobody ask for that site's robots.txt.

    They never leave (see `Warmups.check`), but robots.txt is asked for earlier. Whatever makes a redirect of an answer
    makes it of the request; some make it before they know whether to follow it, so it can't be refused there.
    """

    def replace(self, *args: Any, **kwargs: Any) -> Any:
        replaced = super().replace(*args, **kwargs)
        if _has_strayed(replaced):
            replaced.meta["dont_obey_robotstxt"] = True
        return replaced


class Warmups:
    """The warm-ups of one crawl."""

    def __init__(
        self,
        crawler: Crawler,
        state: SharedState,
        settings: PacingSettings,
        owner: object,
        count: Callable[[str], None],
    ) -> None:
        """``owner`` stands for the crawl in what is shared; ``count`` adds one to a stat."""
        self._crawler = crawler
        self._state = state
        self._settings = settings
        self._owner = owner
        self._count = count
        self._under_way: dict[Visit, Deferred[None]] = {}
        # A request that waited on disk was warmed by a crawl whose jar is gone.
        self._token = secrets.token_hex(8)

    def check(self, request: Request) -> None:
        """Raise `LeadsElsewhere` for a warm-up that was sent on to another site, by whatever means."""
        if _has_strayed(request):
            raise LeadsElsewhere(f"a warm-up is not followed to {request.url}")

    def is_wanted(self, request: Request, lane: str) -> bool:
        """Return whether the homepage comes before ``request``, which is paced under ``lane``."""
        meta = request.meta
        if self._settings.warmup == "never" or WARMUP in meta:
            return False
        origin = origin_key(request.url)
        if origin is None:
            return False
        door = door_of(request, origin)
        if meta.get(WARMED) == self._warmed(door) or self._state.doors.failed_lately(door):
            return False
        return Move.WARM in self._plan(request, door, origin, lane)

    async def arrive(self, request: Request) -> bool:
        """Wait until the homepage was visited, well or not; return False if crawl or request is closed before."""
        origin = origin_key(request.url)
        home = homepage_of(request.url)
        if origin is None or home is None:
            return True
        door = door_of(request, origin)
        while True:
            visit = self._state.doors.under_way(door)
            if visit is None:
                visit = self._state.doors.begin(door, origin, self._owner)
                self._begin(visit, _warmup(home, request, door))
            if not await visit.wait(self._owner, request) or is_closing(self._crawler):
                return False
            if visit.settled:
                break
        if visit.owner is not self._owner:
            self._share(visit, request)
        request.meta[WARMED] = self._warmed(door)
        return True

    def answered(self, request: Request, response: Response) -> None:
        """Learn from an answer that came over the network."""
        door = request.meta.get(WARMUP)
        if door is not None:
            self._passed(door, request, response)
            return
        url = request.url
        earlier = [hop for hop in request.meta.get("redirect_urls") or () if _is_homepage(hop)]
        if request.method != "GET" or not (earlier or _is_homepage(url)):
            return
        self._goes_on(request, response)
        if not is_page(response) or destination_of(request) != "document":
            return
        if _is_homepage(url):
            self._arrived(request, url, cookies=_left_cookies(request, response))
        for hop in earlier:
            # What an earlier hop has given is not seen here, so only this jar has it.
            if not _is_elsewhere(hop, url):
                self._arrived(request, hop, cookies=True, anew=False)
                self._arrived(request, url, cookies=True, anew=False)

    def close(self) -> None:
        """End the waits of this crawl, and its visits."""
        self._state.doors.close(self._owner)
        for visit, running in list(self._under_way.items()):
            self._state.doors.end(visit, settled=False)
            running.cancel()

    # -- deciding ---------------------------------------------------------------------------------------------------

    def _warmed(self, door: str) -> str:
        return f"{self._token} {door}"

    def _plan(self, request: Request, door: str, origin: str, lane: str) -> tuple[Move, ...]:
        memory, doors = self._state.memory, self._state.doors
        last, layer = doors.last_visit(door, self._owner), None
        if memory is not None:
            layer = memory.layer(origin)
            if last is None and doors.inherits(door, origin):
                last = memory.last_warmed(origin)
        return plan(
            RequestFacts(
                url=request.url,
                method=request.method,
                navigation=destination_of(request) == "document",
                dont_warmup=bool(request.meta.get("dont_warmup")),
            ),
            Remembered(layer=layer, last_warmed=last),
            now=self._state.pacer.clock.wall(),
            warmup_ttl=self._settings.policies.of(lane).warmup_ttl,
            warmup=self._settings.warmup,
        )

    # -- visiting ---------------------------------------------------------------------------------------------------

    def _begin(self, visit: Visit, warmup: Request) -> None:
        # By itself, so that none of those who wait has to close the spider with it.
        running = deferred_from_coro(self._run(visit, warmup))
        if not visit.ended:
            self._under_way[visit] = running
        running.addErrback(lambda _: None)

    async def _run(self, visit: Visit, warmup: Request) -> None:
        settled = False
        try:
            failure = await self._fetch(warmup)
            if visit.ended or is_closing(self._crawler):
                return
            settled = True
            if failure is None:
                self._count("pacing/warmups")
                self._visited_all(visit)
            else:
                self._failed(visit, failure)
        finally:
            self._under_way.pop(visit, None)
            self._state.doors.end(visit, settled=settled)

    async def _fetch(self, warmup: Request) -> str | None:
        """Fetch a homepage; return None, or in one word why it failed."""
        engine = self._crawler.engine
        assert engine is not None  # noqa: S101 - requests come from the engine
        try:
            response = await engine.download_async(warmup)
        except LeadsElsewhere:
            return "elsewhere"
        except IgnoreRequest as error:
            # Scrapy's word for an endless chain; what else is dropped, robots.txt or some middleware has dropped.
            return "redirects" if "redirection" in str(error) else "ignored"
        except Exception as error:  # noqa: BLE001 - whatever befalls a homepage, the pages go on
            return type(error).__name__
        if _is_elsewhere(warmup.url, response.url) or _leads_elsewhere(warmup.url, response):
            return "elsewhere"
        return None if 200 <= response.status < 300 else str(response.status)

    def _passed(self, door: str, request: Request, response: Response) -> None:
        """Look at one hop of a warm-up."""
        visit = self._state.doors.under_way(door)
        if visit is None:
            return
        given = response.headers.getlist(b"Set-Cookie")
        if given and not request.meta.get("dont_merge_cookies"):
            visit.cookies.append((request.url, given))
        origin = origin_key(request.url)
        if origin is not None and (_is_homepage(request.url) or is_page(response)):
            visit.further[door_of(request, origin)] = origin
        if _leads_elsewhere(visit.origin, response):
            # A visitor would follow, but what is there is not this site's homepage.
            request.meta["dont_redirect"] = True

    def _goes_on(self, request: Request, response: Response) -> None:
        """Let the redirect of a homepage be followed as it is: it is this visit, and wants none before it."""
        target = _redirect_of(response)
        if target is None or _is_elsewhere(request.url, target):
            return
        origin = origin_key(target)
        if origin is not None:
            request.meta[WARMED] = self._warmed(door_of(request, origin))

    def _arrived(self, request: Request, url: str, *, cookies: bool, anew: bool = True) -> None:
        origin = origin_key(url)
        if origin is None:
            return
        door = door_of(request, origin)
        # Not anew: the redirects may stand in meta that was copied from an earlier request, whose visit grows old.
        if anew or self._state.doors.last_visit(door, self._owner) is None:
            self._visited(door, origin, cookies=cookies)

    def _visited_all(self, visit: Visit) -> None:
        for door, origin in {**visit.further, visit.door: visit.origin}.items():
            self._visited(door, origin, cookies=bool(visit.cookies))

    def _visited(self, door: str, origin: str, *, cookies: bool) -> None:
        cookies = cookies and self._crawler.settings.getbool("COOKIES_ENABLED")
        self._state.doors.visited(door, self._owner, cookies=cookies)
        memory = self._state.memory
        if memory is not None:
            # The next run has an empty jar: what was given into this one's does not count there.
            memory.record_visit(origin, warmed=not cookies)

    def _failed(self, visit: Visit, reason: str) -> None:
        self._count("pacing/warmup_failed")
        self._count(f"pacing/warmup_failed/{reason}")
        if self._state.doors.failed(visit.door):
            logger.info(
                "No warm-up of %(origin)s (%(reason)s): requests go there without",
                {"origin": visit.origin, "reason": reason},
                extra={"spider": self._crawler.spider},
            )

    def _share(self, visit: Visit, request: Request) -> None:
        """Take what another crawl's visit was given into this crawl's jar: the two are one visitor."""
        if self._state.doors.failed_lately(visit.door):
            return
        cookies = self._crawler.get_downloader_middleware(CookiesMiddleware)
        if visit.cookies and cookies is not None:
            jar = request.meta.get("cookiejar")
            for url, given in visit.cookies:
                cookies.process_response(
                    Request(url, meta={"cookiejar": jar}), Response(url, headers={b"Set-Cookie": given})
                )
        self._visited_all(visit)


def _warmup(home: str, request: Request, door: str) -> Request:
    """Return the request for a homepage, by the visitor who makes ``request``."""
    meta = {key: request.meta[key] for key in _CARRIED_META if key in request.meta}
    timeout = request.meta.get("download_timeout")
    headers = {name: request.headers.getlist(name) for name in _CARRIED_HEADERS if name in request.headers}
    return _Homepage(
        home,
        callback=NO_CALLBACK,
        headers=headers,
        meta={
            **meta,
            WARMUP: door,
            "navigation": True,
            "dont_cache": True,
            "dont_retry": True,
            "redirect_ttl": _MOST_REDIRECTS,
            "download_maxsize": _MOST_BYTES,
            "download_timeout": min(timeout, _LONGEST_SECONDS) if timeout else _LONGEST_SECONDS,
        },
        dont_filter=True,
    )


def _left_cookies(request: Request, response: Response) -> bool:
    return b"Set-Cookie" in response.headers or b"Cookie" in request.headers


def _is_homepage(url: str) -> bool:
    origin = origin_key(url)
    return origin is not None and url.partition("#")[0] in {origin, f"{origin}/"}


def _has_strayed(request: Request) -> bool:
    """Return whether a warm-up leads to another site than its door's."""
    door = request.meta.get(WARMUP)
    return door is not None and _is_elsewhere(door.partition(" ")[0], request.url)


def _leads_elsewhere(url: str, response: Response) -> bool:
    """Return whether an answer is a redirect that leaves the site of ``url``."""
    target = _redirect_of(response)
    return target is not None and _is_elsewhere(url, target)


def _redirect_of(response: Response) -> str | None:
    """Return where a redirect leads; None if an answer is none, or leads nowhere."""
    location = response.headers.get(b"Location")
    if location is None or not 300 <= response.status < 400:
        return None
    try:
        return urljoin(response.url, location.decode("latin-1"))
    except ValueError:
        return None


def _is_elsewhere(url: str, target: str) -> bool:
    """Return whether two URLs have no registrable domain in common; scheme and port don't count."""
    origin, other_origin = origin_key(url), origin_key(target)
    if origin is None or other_origin is None:
        return False
    one, other = host_of(origin), host_of(other_origin)
    return one != other and (registrable_domain(one) is None or registrable_domain(one) != registrable_domain(other))
