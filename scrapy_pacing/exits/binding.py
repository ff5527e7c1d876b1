"""Which exit a request leaves by, as Scrapy's other middlewares read it in its meta.

A request is bound from the moment that its lease is known until its answer is there. Only then does its meta hold
``proxy``, a cookie jar of ours and credentials; what is made of it (a retry, a redirect, a copy on disk) holds none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request

    from scrapy_pacing.core.exits import Exit, Lease

EXIT = "pacing_exit"
"""The id of the exit that the request left by; stays, for spiders to read."""
LEASE = "pacing_lease"
"""The name of the lease, while the request is bound."""

# Scrapy's HttpProxyMiddleware notes there which proxy the credentials in the header belong to.
_AUTH_PROXY = "_auth_proxy"
_PROXY_AUTHORIZATION = b"Proxy-Authorization"


def bind(request: Request, lease: Lease) -> None:
    """Make ``request`` leave by the exit of ``lease``, with the lease's cookie jar where it names none itself."""
    meta = request.meta
    meta[EXIT] = lease.exit.id
    meta[LEASE] = lease.jar
    meta["proxy"] = lease.exit.url
    if meta.get("cookiejar") is None:
        meta["cookiejar"] = lease.jar
    if has_credentials(lease.exit):
        # Those of another proxy; HttpProxyMiddleware writes this one's.
        drop_credentials(request)


def unbind(request: Request, exits: Mapping[str, Exit]) -> None:
    """Take out of ``request`` what `bind` and HttpProxyMiddleware have put in, and nothing of the user's."""
    meta = request.meta
    name = meta.pop(LEASE, None)
    jar = meta.get("cookiejar")
    if jar is not None and (jar == name or _is_of_a_lease(jar, exits)):
        del meta["cookiejar"]
    if name is None:
        return
    leaving_by = exits.get(meta.get(EXIT, ""))
    if "proxy" not in meta or (leaving_by is not None and meta["proxy"] not in _ways_to_write(leaving_by)):
        return
    del meta["proxy"]
    if leaving_by is None or has_credentials(leaving_by):
        drop_credentials(request)


def drop_credentials(request: Request) -> None:
    """Take the proxy's credentials out of the headers."""
    request.headers.pop(_PROXY_AUTHORIZATION, None)
    request.meta.pop(_AUTH_PROXY, None)


def has_credentials(leaving_by: Exit) -> bool:
    """Tell whether the exit's URL holds a user name."""
    return leaving_by.url is not None and "@" in leaving_by.url


def _is_of_a_lease(jar: object, exits: Mapping[str, Exit]) -> bool:
    """Tell whether a jar is named like a lease's: whoever copies the meta of a request under way gets one by that."""
    if not isinstance(jar, str) or jar.count(" ") != 2:
        return False
    origin, exit_id, generation = jar.split(" ")
    return "://" in origin and exit_id in exits and generation.isdigit()


def _ways_to_write(leaving_by: Exit) -> tuple[str | None, ...]:
    if leaving_by.is_direct:
        return (None,)
    # With credentials as we wrote it, without as HttpProxyMiddleware leaves it.
    return leaving_by.url, f"{leaving_by.scheme}://{leaving_by.host}:{leaving_by.port}"
