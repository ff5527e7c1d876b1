"""Clearances: the cookies that prove a solved challenge, kept between runs and given back to the same visitor only.

A clearance is bound to what solved the challenge: the user agent, the exit, and the origin with its scheme and port.
It goes back into the jar only where all of these are the same, and as a cookie that no other origin is sent.
"""

from __future__ import annotations

from http.cookiejar import Cookie as JarCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http.cookies import CookieJar
from w3lib.url import safe_url_string

from .core.memory import Cookie, fingerprint
from .core.origins import origin_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from .core.memory import Memory

# How many origins and jars one crawl notes that it has looked after; beyond that it looks again.
_MOST_RESTORED = 4096


class Clearances:
    """The clearances that one crawl gets and gives back; without a memory, none. ``count`` counts a stat."""

    def __init__(
        self, crawler: Crawler, memory: Memory | None, names: Iterable[str], *, count: Callable[..., None]
    ) -> None:
        self._crawler = crawler
        self._memory = memory
        self._names = frozenset(names)
        self._count = count
        # Origin, jar, user agent and exit that have been looked after; dict as an ordered set.
        self._restored: dict[tuple[Any, ...], None] = {}

    def keep(self, request: Request, response: Response) -> None:
        """Keep the clearance that an answer brings, together with what is known of the same visitor's."""
        if self._memory is None or not self._names or not self._brings_one(response):
            return
        fresh = [
            _kept(cookie)
            for cookie in CookieJar().make_cookies(response, request)
            if cookie.name in self._names and cookie.value is not None
        ]
        if not fresh:
            return
        user_agent, exit_id = identity_of(request)
        known = self._memory.clearance(response.url, user_agent=user_agent, exit_id=exit_id)
        names = {cookie.name for cookie in fresh}
        older = [] if known is None else [cookie for cookie in known.cookies if cookie.name not in names]
        if self._memory.record_clearance(response.url, [*older, *fresh], user_agent=user_agent, exit_id=exit_id):
            self._count("pacing/memory/clearances")

    def restore(self, request: Request) -> None:
        """Put the clearance of a request's origin into its jar, and into its header, if it is this visitor's.

        Once for each origin, jar and visitor: what the site takes away later stays away.
        """
        if self._memory is None or not self._names or request.meta.get("dont_merge_cookies"):
            return
        user_agent, exit_id = identity_of(request)
        jar_key = request.meta.get("cookiejar")
        done = (origin_key(request.url), jar_key, user_agent, exit_id)
        if done in self._restored:
            return
        if len(self._restored) >= _MOST_RESTORED:
            del self._restored[next(iter(self._restored))]
        self._restored[done] = None
        clearance = self._memory.clearance(request.url, user_agent=user_agent, exit_id=exit_id)
        cookies = self._crawler.get_downloader_middleware(CookiesMiddleware)
        if clearance is None or cookies is None:
            return
        jar = cookies.jars[jar_key]
        host = urlsplit(request.url).hostname or ""
        present = {cookie.name for cookie in jar if cookie.domain.lstrip(".") == host}
        missing = [cookie for cookie in clearance.cookies if cookie.name in self._names - present]
        for cookie in missing:
            jar.set_cookie(_restored(cookie, request.url))
        if missing:
            # As CookiesMiddleware does it, which has passed already.
            request.headers.pop("Cookie", None)
            jar.add_cookie_header(request)
            self._count("pacing/memory/clearances_restored")

    def withdraw(self, response: Response) -> None:
        """Forget the clearance of an origin that challenges again."""
        if self._memory is not None:
            self._memory.forget_clearance(response.url)

    def _brings_one(self, response: Response) -> bool:
        return any(
            field.partition(b"=")[0].strip().decode("latin-1") in self._names
            for field in response.headers.getlist(b"Set-Cookie")
        )


def identity_of(request: Request) -> tuple[str, str]:
    """Return the user agent and the exit of a request as it leaves; an exit is named without its password."""
    user_agent = (request.headers.get(b"User-Agent") or b"").decode("latin-1")
    exit_id = request.meta.get("pacing_exit")
    if isinstance(exit_id, str):
        return user_agent, exit_id
    proxy = request.meta.get("proxy")
    return user_agent, fingerprint(str(proxy).rpartition("@")[2].encode()) if proxy else ""


def _kept(cookie: JarCookie) -> Cookie:
    return Cookie(
        name=cookie.name,
        value=cookie.value or "",
        domain=cookie.domain,
        path=cookie.path,
        expires=None if cookie.expires is None else float(cookie.expires),
        secure=cookie.secure,
        http_only=cookie.has_nonstandard_attr("HttpOnly"),
    )


def _restored(cookie: Cookie, url: str) -> JarCookie:
    """Return a cookie for the jar that is sent to the origin of ``url`` and to no other."""
    parts = urlsplit(safe_url_string(url))
    host = parts.hostname or ""
    return JarCookie(
        version=0,
        name=cookie.name,
        value=cookie.value,
        # The jar takes any default port for 80.
        port=str(parts.port or 80),
        port_specified=True,
        # The jar files names without a dot under .local.
        domain=host if "." in host or ":" in host else f"{host}.local",
        domain_specified=False,
        domain_initial_dot=False,
        path=cookie.path,
        path_specified=True,
        secure=cookie.secure or parts.scheme == "https",
        expires=None if cookie.expires is None else int(cookie.expires),
        discard=cookie.expires is None,
        comment=None,
        comment_url=None,
        rest={"HttpOnly": ""} if cookie.http_only else {},
    )
