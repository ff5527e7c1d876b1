"""Whether a request should arrive through the front door: its origin's homepage, fetched first.

The homepage itself, a warm-up and robots.txt never need one, so a warm-up can't lead to another.
"""

from __future__ import annotations

import re

from .origins import origin_key
from .sites import is_web_origin

_PATH_START = re.compile(r"[/?#]")
_ROBOTS = "/robots.txt"


def homepage_of(url: str) -> str | None:
    """Return the homepage of a URL's origin, or None where it can't have one. Never raises.

    >>> homepage_of("https://user:pw@example.com/a?b#c")
    'https://example.com/'
    """
    origin = origin_key(url.strip())
    return f"{origin}/" if origin is not None and is_web_origin(origin) else None


def needs_warmup(
    url: str,
    *,
    last_warmed: float | None,
    now: float,
    ttl: float,
    method: str = "GET",
    navigation: bool = True,
    is_warmup: bool = False,
    is_robots: bool = False,
) -> bool:
    """Tell whether the homepage of a request's origin should be fetched first.

    ``last_warmed`` is when the origin was last visited through its homepage, None for never; with ``now`` it is
    wall-clock seconds, since it outlives a run. A time that lies more than ``ttl`` ahead of ``now`` comes from a clock
    that was set, and counts as never.

    >>> needs_warmup("https://example.com/item/7", last_warmed=None, now=0.0, ttl=3600.0)
    True
    >>> needs_warmup("https://example.com/", last_warmed=None, now=0.0, ttl=3600.0)
    False
    """
    if is_warmup or is_robots or not navigation or method.upper() != "GET":
        return False
    if last_warmed is not None and abs(now - last_warmed) < ttl:
        return False
    return homepage_of(url) is not None and _tail(url) not in {"", "/", _ROBOTS}


def _tail(url: str) -> str:
    """Return the path and query of a URL; an empty query counts as none, for the server sees the same page."""
    rest = url.strip().partition("://")[2].partition("#")[0]
    start = _PATH_START.search(rest)
    return rest[start.start() :].removesuffix("?") if start else ""
