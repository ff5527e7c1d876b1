"""How two origins are related, as the Fetch standard sees it.

Same-origin: scheme, host and port are equal. Same-site: the schemes are equal, and so are the registrable domains;
the port does not count. Everything else is cross-site, ``http`` to ``https`` of one host included. A host that has no
registrable domain (an IP address, ``localhost``, a public suffix itself) is a site only with itself.

The public suffixes are those that come with tldextract, private ones included as in browsers; nothing is ever
downloaded. A suffix that the list doesn't know is its last label (the list's own default rule).

All functions take origins as `origin_key` makes them, and none raises, whatever the string.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from tldextract import TLDExtract

from .origins import host_of

SiteRelation = Literal["same-origin", "same-site", "cross-site"]

_LABEL = r"[a-z0-9_-]{1,63}"
_WEB_ORIGIN = re.compile(rf"https?://(?:\[[0-9a-f:.]{{2,45}}\]|(?:{_LABEL}\.)*{_LABEL})(?::[0-9]{{1,5}})?\Z", re.ASCII)
# A host whose last label is a number can only be an IPv4 address (URL standard, "ends in a number").
_IPV4 = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\Z", re.ASCII)
_LOOPBACK_IPV4 = re.compile(r"127(?:\.[0-9]{1,3}){3}\Z", re.ASCII)

_split = TLDExtract(cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True)


@lru_cache(maxsize=4096)
def relation(one: str, other: str) -> SiteRelation:
    """Return how two origins are related.

    >>> relation("https://www.example.co.uk", "https://example.co.uk:8443")
    'same-site'
    >>> relation("http://example.com", "https://example.com")
    'cross-site'
    """
    if one == other:
        return "same-origin"
    if one.partition("://")[0] != other.partition("://")[0]:
        return "cross-site"
    host, other_host = host_of(one), host_of(other)
    if host == other_host:
        return "same-site"
    domain = registrable_domain(host)
    if domain is not None and domain == registrable_domain(other_host):
        return "same-site"
    return "cross-site"


@lru_cache(maxsize=4096)
def registrable_domain(host: str) -> str | None:
    """Return the part of a normalised host that somebody registered, or None where there is none.

    >>> registrable_domain("a.b.example.co.uk")
    'example.co.uk'
    >>> registrable_domain("alice.github.io")
    'alice.github.io'
    >>> registrable_domain("co.uk") is None
    True
    """
    if not is_web_origin(f"http://{host}") or host.startswith("[") or _IPV4.match(host):
        return None
    parts = _split(host)
    if parts.suffix:
        return f"{parts.domain}.{parts.suffix}" if parts.domain else None
    labels = host.split(".")
    return ".".join(labels[-2:]) if len(labels) > 1 else None


@lru_cache(maxsize=4096)
def is_trustworthy(origin: str) -> bool:
    """Tell whether a browser takes an origin for potentially trustworthy: https, or loopback by any scheme."""
    if origin.startswith("https://"):
        return True
    host = host_of(origin)
    if host in {"localhost", "[::1]"} or host.endswith(".localhost"):
        return True
    return _LOOPBACK_IPV4.match(host) is not None


@lru_cache(maxsize=4096)
def is_web_origin(origin: str) -> bool:
    """Tell whether an origin can stand in a header or a URL: its host and port are ones that a server can have."""
    return _WEB_ORIGIN.match(origin) is not None
