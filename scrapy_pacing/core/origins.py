"""The key under which a site is paced: scheme, host and port, normalised.

RFC 3986 section 6 names what is equal: case, an internationalised host and its ``xn--`` form, a default or empty
port, a percent-encoded letter. One final dot is dropped too, since ``example.com.`` reaches the same server. Userinfo,
path and fragment are never part of a key, so no password can reach a log or a file by this way.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import unquote

import idna

_DEFAULT_PORTS = {"http": "80", "https": "443"}
# Not the backslash, at which browsers stop too: the host must be the one that Scrapy connects to.
_AUTHORITY_END = re.compile(r"[/?#]")
_DELIMITERS = re.compile(r"[\x00-\x20\x7f/?#@:\[\]%\\]")
# What IDNA takes for a dot (RFC 5890 section 2.3.2.3 and UTS 46).
_FULL_STOPS = {0x3002: ".", 0xFF0E: ".", 0xFF61: "."}
_PORT = re.compile(r"[0-9]*\Z", re.ASCII)
# A DNS name has 253 characters at the most; what is longer can't be resolved, and must not fill memory either.
_LONGEST_HOST = 253


def origin_key(url: str) -> str | None:
    """Return the normalised origin of an http or https URL, or None for any other scheme.

    Never raises: a host or port that no rule can read stands in the key as it is, in lower case.

    >>> origin_key("HTTPS://user:pw@Example.COM.:443/a?b#c")
    'https://example.com'
    >>> origin_key("http://[2001:DB8:0::1]:8080/")
    'http://[2001:db8::1]:8080'
    >>> origin_key("data:text/plain,x") is None
    True
    """
    if len(url) > _LONGEST_HOST or "@" in url:
        # Not kept: what a server made up must fill no cache, and no password stays in one.
        return _key_of(url)
    return _kept_key_of(url)


def _key_of(url: str) -> str | None:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return None
    scheme = scheme.strip().lower()
    if scheme not in _DEFAULT_PORTS:
        return None
    end = _AUTHORITY_END.search(rest)
    hostport = (rest[: end.start()] if end else rest).rpartition("@")[2]
    if len(hostport) > _LONGEST_HOST:
        # Not kept: what a server made up must fill no cache.
        return _make_key(scheme, hostport)
    return _cached_key(scheme, hostport)


# A request is looked at some ten times on its way, so the last few URLs are remembered.
_kept_key_of = lru_cache(maxsize=512)(_key_of)


def host_of(origin: str) -> str:
    """Return the host of a key made by `origin_key`: no scheme, no port, brackets kept.

    >>> host_of("https://example.com:8443")
    'example.com'
    """
    authority = origin.partition("://")[2] or origin
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


def normalise_host(host: str) -> str:
    """Return a host in the form that keys have it (lower case, IDNA, one final dot dropped).

    >>> normalise_host("Bücher.Example.")
    'xn--bcher-kva.example'
    """
    if host.startswith("["):
        return _normalise_ipv6(host)
    if "%" in host:
        decoded = unquote(host)
        # RFC 3986 section 6.2.2.2: what is decoded must not become a delimiter.
        host = host if _DELIMITERS.search(decoded) else decoded
    host = host.strip().lower().translate(_FULL_STOPS).removesuffix(".").rstrip()
    if not host.isascii():
        with contextlib.suppress(idna.IDNAError, UnicodeError):
            host = idna.encode(host, uts46=True).decode("ascii")
    return host


def _make_key(scheme: str, hostport: str) -> str:
    if hostport.startswith("["):
        host, bracket, port = hostport.partition("]")
        host, port = host + bracket, port.removeprefix(":")
    else:
        host, _, port = hostport.partition(":")
    host = normalise_host(host)
    if len(host) > _LONGEST_HOST:
        digest = hashlib.sha256(host.encode("utf-8", "surrogatepass")).hexdigest()
        host = f"{host[:64]}-{digest}"
    port = port.strip().lower()[:64]
    if _PORT.match(port):
        port = port.lstrip("0")
    if not port or port == _DEFAULT_PORTS[scheme]:
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{port}"


_cached_key = lru_cache(maxsize=4096)(_make_key)


def _normalise_ipv6(host: str) -> str:
    address, percent, zone = host.strip("[]").partition("%")
    try:
        return f"[{IPv6Address(address).compressed}{percent}{zone}]"
    except AddressValueError:
        return host.lower()
