"""The shop's three web applications, and what they have in common.

Every answer carries an ETag and a Last-Modified date, and is a 304 to whoever still has it (RFC 9110 section 13).
Every arrival is logged as it came, refused ones too.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from aiohttp import web

from shop import pages
from shop.arrivals import Arrival, ArrivalLog
from shop.catalogue import BY_SLUG, CATALOGUE, LISTS, Title
from shop.limit import TokenBucket

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

VISIT_COOKIE = "visit"
_NEWEST = max(title.modified for title in CATALOGUE)


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the shop's three sites are, without a final slash."""

    shop: str
    covers: str
    api: str


def shop_app(origins: Origins, log: ArrivalLog, *, front_door: bool) -> web.Application:
    """Make the site with the pages.

    With ``front_door``, a visitor without the homepage's cookie who asks for a book is sent to a wall.
    """

    async def home(request: web.Request) -> web.StreamResponse:
        response = _answer(request, pages.home(), "text/html", _NEWEST)
        response.set_cookie(VISIT_COOKIE, "1", httponly=True, samesite="Lax")
        return response

    async def book_list(request: web.Request) -> web.StreamResponse:
        number = request.query.get("page", "1")
        if number not in {str(page) for page in range(1, LISTS + 1)}:
            raise web.HTTPNotFound
        return _answer(request, pages.book_list(int(number)), "text/html", _NEWEST)

    async def book(request: web.Request) -> web.StreamResponse:
        if front_door and VISIT_COOKIE not in request.cookies:
            raise web.HTTPFound("/welcome")
        title = _title(request.match_info["slug"])
        html = pages.book(title, covers=origins.covers, api=origins.api)
        return _answer(request, html, "text/html", title.modified)

    async def welcome(request: web.Request) -> web.StreamResponse:
        return _answer(request, pages.wall(), "text/html", _NEWEST)

    async def staff(_: web.Request) -> web.StreamResponse:
        return web.Response(text="You should not have come here.")

    app = _app(origins.shop, log, TokenBucket(rate=8, burst=12))
    app.router.add_get("/", home)
    app.router.add_get("/books/", book_list)
    app.router.add_get("/books/{slug}", book)
    app.router.add_get("/welcome", welcome)
    app.router.add_get("/staff/", staff)
    return app


def covers_app(origins: Origins, log: ArrivalLog) -> web.Application:
    """Make the site with the pictures."""

    async def cover(request: web.Request) -> web.StreamResponse:
        title = _title(request.match_info["slug"])
        return _answer(request, pages.cover(title), "image/png", title.modified)

    app = _app(origins.covers, log, TokenBucket(rate=8, burst=12))
    app.router.add_get("/{slug}.png", cover)
    return app


def api_app(origins: Origins, log: ArrivalLog) -> web.Application:
    """Make the JSON API, which bears less than the other two."""

    async def stock(request: web.Request) -> web.StreamResponse:
        title = _title(request.match_info["slug"])
        answer = json.dumps({"price": title.price, "in_stock": title.in_stock})
        return _answer(request, answer, "application/json", title.modified)

    app = _app(origins.api, log, TokenBucket(rate=1.5, burst=3))
    app.router.add_get("/stock/{slug}", stock)
    return app


def _app(origin: str, log: ArrivalLog, limit: TokenBucket) -> web.Application:
    """Make an application that logs, refuses what is too much, and has a robots.txt."""

    @web.middleware
    async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
        at = time.monotonic()
        status = 500
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as refusal:
            status = refusal.status
            raise
        finally:
            log.write(_arrival(request, at, origin, status))
        return response

    @web.middleware
    async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
        retry_after = limit.refuses(time.monotonic())
        if retry_after is not None:
            raise web.HTTPTooManyRequests(headers={"Retry-After": str(retry_after)})
        return await handler(request)

    async def robots(request: web.Request) -> web.StreamResponse:
        return _answer(request, pages.ROBOTS, "text/plain", _NEWEST)

    app = web.Application(middlewares=[logged, limited])
    app.router.add_get("/robots.txt", robots)
    return app


def _arrival(request: web.Request, at: float, origin: str, status: int) -> Arrival:
    prefix = "sec-fetch-"
    return Arrival(
        at=at,
        origin=origin,
        method=request.method,
        path=request.path_qs,
        status=status,
        referer=request.headers.get("Referer"),
        fetch={
            name.lower().removeprefix(prefix): value
            for name, value in request.headers.items()
            if name.lower().startswith(prefix)
        },
        cookie=VISIT_COOKIE in request.cookies,
    )


def _answer(request: web.Request, content: str | bytes, content_type: str, modified: datetime) -> web.Response:
    """Answer with ``content``, or with a 304 if the visitor has it already."""
    body = content.encode() if isinstance(content, str) else content
    etag = hashlib.sha256(body).hexdigest()[:16]
    if _is_current(request, etag, modified):
        response = web.Response(status=304)
    else:
        charset = "utf-8" if isinstance(content, str) else None
        response = web.Response(body=body, content_type=content_type, charset=charset)
    response.etag = etag
    response.last_modified = modified
    response.headers["Cache-Control"] = "no-cache"
    return response


def _is_current(request: web.Request, etag: str, modified: datetime) -> bool:
    # Where both conditions are sent, the date is ignored (RFC 9110 section 13.1.3).
    if request.if_none_match is not None:
        return any(known.value in {etag, "*"} for known in request.if_none_match)
    since = request.if_modified_since
    return since is not None and modified.astimezone(timezone.utc) <= since


def _title(slug: str) -> Title:
    title = BY_SLUG.get(slug)
    if title is None:
        raise web.HTTPNotFound
    return title
