"""Exits as users write them, and the value that stands for one.

No message here quotes any part of an entry, not even its host: where a URL is written wrongly, the password may be
what was taken for the host or the port. The setting or file and the place in it are named instead.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, unquote

from scrapy_pacing.core.origins import normalise_host

DIRECT = "direct"
"""How the machine's own address is written, and its id."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_SOCKS = re.compile(r"socks[0-9a-z]{0,2}\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_ALL_DIGITS_LABEL = re.compile(r"[0-9]+\Z")
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ufeff]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_INLINE_COMMENT = re.compile(r"(?:^|\s)#.*\Z", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_LONGEST_ENTRY = 2048
_LARGEST_FILE = 8 * 1024 * 1024
_SHORTEST_KEY = 16
_PROBLEMS_SHOWN = 5
_PLACES_SHOWN = 10


@dataclass(frozen=True, slots=True, repr=False)
class Exit:
    """One address that requests can leave by: a proxy, or the machine's own.

    Two exits are equal when their ids are. Neither ``repr`` nor ``str`` shows a user name or a password, and an exit
    refuses to be pickled, so that no queue on disk ever holds one; keep its ``id`` instead.
    """

    id: str
    """Short and stable: a keyed hash over scheme, user, host and port, or ``"direct"``."""
    host: str = field(compare=False, default="")
    port: int = field(compare=False, default=0)
    scheme: str = field(compare=False, default="")
    url: str | None = field(compare=False, default=None)
    """For ``meta["proxy"]``, credentials included; None for the machine's own address."""

    @property
    def is_direct(self) -> bool:
        """Whether this is the machine's own address."""
        return self.url is None

    def __repr__(self) -> str:
        if self.is_direct:
            return "<Exit direct>"
        return f"<Exit {self.id} {self.scheme}://{self.host}:{self.port}>"

    def __copy__(self) -> Exit:
        return self

    def __deepcopy__(self, memo: object) -> Exit:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an Exit can hold a password and is not pickled; keep its id")


@dataclass(frozen=True, slots=True)
class ParsedExits:
    """What the settings gave: distinct exits in the order written, and what the user should hear about."""

    exits: tuple[Exit, ...]
    warnings: tuple[str, ...] = ()


def parse_exits(
    entries: str | Iterable[object] | None,
    *,
    key: bytes,
    setting: str = "PACING_EXITS",
    rotating_proxies_style: bool = False,
    auth_encoding: str | None = "latin-1",
    allow_slash: bool = True,
) -> ParsedExits:
    """Read the exits that a setting lists: URLs, and None or ``"direct"`` for the machine's own address.

    A string is split at its commas, as Scrapy does with lists on the command line. None gives no exits. ``key`` keys
    the hash that ids are made with. ``auth_encoding`` is Scrapy's ``HTTPPROXY_AUTH_ENCODING``. With
    ``rotating_proxies_style`` an entry without a scheme is an http proxy. Without ``allow_slash`` no user name or
    password may have a slash in it, percent-encoded or not. Raises ValueError with the setting, the number of each
    entry that can't be used, and what is allowed.
    """
    if entries is None:
        return ParsedExits(())
    if isinstance(entries, str):
        entries = entries.split(",") if entries.strip() else []
    elif isinstance(entries, (bytes, bytearray)) or not isinstance(entries, Iterable):
        raise ValueError(f"{setting} is a {type(entries).__name__}; allowed: a list of URLs, None or 'direct'")
    reader = _Reader(key, f"{setting}, entry", rotating_proxies_style, auth_encoding, allow_slash)
    for number, entry in enumerate(entries, 1):
        reader.take(number, entry)
    return reader.result()


def parse_exits_text(
    text: str,
    *,
    key: bytes,
    name: str = "PACING_EXITS_FILE",
    rotating_proxies_style: bool = False,
    auth_encoding: str | None = "latin-1",
    allow_slash: bool = True,
) -> ParsedExits:
    """Read a file's text: one exit a line, ``#`` starts a comment at the start of a line or after a space.

    A blank line is skipped with a warning that names it, or silently with ``rotating_proxies_style``, where the other
    package allows them. Otherwise like `parse_exits`; ``name`` is what messages call the file.
    """
    reader = _Reader(key, f"{name}, line", rotating_proxies_style, auth_encoding, allow_slash)
    blank: list[int] = []
    lines = _LINE_END.split(text.removeprefix("\ufeff"))
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        entry = _INLINE_COMMENT.sub("", line).strip()
        if entry:
            reader.take(number, entry)
        elif not line.strip():
            blank.append(number)
    if blank and not rotating_proxies_style:
        reader.warnings.append(f"{name}: blank lines skipped ({_places(blank)})")
    return reader.result()


def read_exits_file(
    path: str | Path,
    *,
    key: bytes,
    setting: str = "PACING_EXITS_FILE",
    rotating_proxies_style: bool = False,
    auth_encoding: str | None = "latin-1",
    allow_slash: bool = True,
) -> ParsedExits:
    """Read exits from a UTF-8 file (see `parse_exits_text`); raises ValueError if it can't be read."""
    name = f"{setting} ({path})"
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ValueError(f"{name} can't be read: {reason}; allowed: a text file with one exit a line") from None
    if len(data) > _LARGEST_FILE:
        raise ValueError(f"{name} is too large; allowed: up to {_LARGEST_FILE} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        # Not chained: the error holds the file's bytes, passwords among them.
        raise ValueError(f"{name}, line {line}: not UTF-8; allowed: a UTF-8 text file") from None
    return parse_exits_text(
        text,
        key=key,
        name=name,
        rotating_proxies_style=rotating_proxies_style,
        auth_encoding=auth_encoding,
        allow_slash=allow_slash,
    )


def join_exits(*parts: ParsedExits) -> ParsedExits:
    """Put the exits of several settings together; one that stands in two of them counts once, with a warning."""
    distinct: dict[str, Exit] = {}
    warnings: list[str] = []
    for part in parts:
        repeated = [found.id for found in part.exits if distinct.setdefault(found.id, found) is not found]
        warnings.extend(part.warnings)
        warnings.extend(f"exit {name} is given twice; the first counts" for name in repeated)
    return ParsedExits(tuple(distinct.values()), tuple(warnings))


class _Reader:
    """Collects exits, and every problem before it raises: a long list is not mended one error at a time."""

    def __init__(
        self, key: bytes, place: str, rotating_proxies_style: bool, auth_encoding: str | None, allow_slash: bool
    ) -> None:
        if len(key) < _SHORTEST_KEY:
            raise ValueError(f"key has {len(key)} bytes; allowed: {_SHORTEST_KEY} or more")
        self.warnings: list[str] = []
        self._key = key
        self._place = place
        self._rotating_proxies_style = rotating_proxies_style
        self._auth_encoding = auth_encoding or "utf-8"
        self._allow_slash = allow_slash
        self._exits: dict[str, tuple[int, Exit]] = {}
        self._problems: list[str] = []
        self._https: list[int] = []

    def take(self, number: int, entry: object) -> None:
        try:
            found = self._parse(entry)
        except _BadEntryError as error:
            self._problems.append(f"{self._place} {number}: {error}")
            return
        first, known = self._exits.setdefault(found.id, (number, found))
        if first != number:
            # The password is no part of an id: the same user at the same gateway is the same exit.
            other = "" if known.url == found.url else " with another password"
            self.warnings.append(f"{self._place} {number}: repeats {first}{other}; skipped")
        elif found.scheme == "https":
            self._https.append(number)

    def result(self) -> ParsedExits:
        if self._problems:
            more = len(self._problems) - _PROBLEMS_SHOWN
            shown = self._problems[:_PROBLEMS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
            raise ValueError("\n".join(shown))
        if self._https:
            self.warnings.append(
                f"{self._place} {_places(self._https)}: Scrapy's own download handler reaches only http:// pages "
                "through an https:// exit; https:// pages need another handler there"
            )
        return ParsedExits(tuple(found for _, found in self._exits.values()), tuple(self.warnings))

    def _parse(self, entry: object) -> Exit:
        if entry is None:
            return Exit(DIRECT)
        if not isinstance(entry, str):
            raise _BadEntryError(f"is a {type(entry).__name__}; allowed: a URL, None or 'direct'")
        entry = entry.strip()
        if not entry:
            raise _BadEntryError("is blank; allowed: a URL, None or 'direct'")
        if entry.lower() == DIRECT:
            return Exit(DIRECT)
        if len(entry) > _LONGEST_ENTRY:
            raise _BadEntryError(f"is too long; allowed: up to {_LONGEST_ENTRY} characters")
        if _UNPRINTABLE.search(entry):
            raise _BadEntryError("has a space or a control character; allowed: percent-encoded, as in %20")
        scheme, rest = _split_scheme(entry, self._rotating_proxies_style)
        userinfo, at, hostport = _split_authority(rest).rpartition("@")
        credentials = _credentials(userinfo, self._auth_encoding) if at else None
        if credentials and not self._allow_slash and any("/" in part for part in credentials):
            raise _BadEntryError(
                "has a slash in the user name or password, which Scrapy's download handler without a reactor "
                "(TWISTED_REACTOR_ENABLED = False) can't use; allowed: a user name and a password without one"
            )
        host, port = _split_port(hostport, _DEFAULT_PORTS[scheme])
        user = credentials[0] if credentials else ""
        authority = f"{host}:{port}"
        if credentials:
            authority = ":".join(quote(part, safe="") for part in credentials) + f"@{authority}"
        return Exit(
            id=_exit_id(self._key, scheme, user, host, str(port)),
            host=host,
            port=port,
            scheme=scheme,
            url=f"{scheme}://{authority}",
        )


class _BadEntryError(Exception):
    """Says what is wrong with an entry, in words that show nothing of it."""


def _split_scheme(entry: str, scheme_may_lack: bool) -> tuple[str, str]:
    scheme, separator, rest = entry.partition("://")
    # In "user:a://b@host" the separator stands inside the password.
    if not separator or not _SCHEME.match(scheme):
        if scheme_may_lack:
            return "http", entry
        raise _BadEntryError("has no scheme; allowed: http://… or https://…")
    scheme = scheme.lower()
    if scheme in _DEFAULT_PORTS:
        return scheme, rest
    if _SOCKS.match(scheme):
        raise _BadEntryError(
            "is a SOCKS proxy, which Scrapy's download handlers can't use; allowed: http://… or https://…"
        )
    raise _BadEntryError("has an unsupported scheme; allowed: http://… or https://…")


def _split_authority(rest: str) -> str:
    authority, _, path = rest.partition("/")
    if any(mark in rest for mark in "?#\\") or path:
        hint = "; in a user name or password / ? # \\ must be percent-encoded" if "@" in rest else ""
        raise _BadEntryError(f"has something after the port; allowed: scheme://user:password@host:port{hint}")
    if authority.count("@") > 1:
        raise _BadEntryError("has more than one @; allowed: %40 in a user name or password")
    return authority


def _credentials(userinfo: str, encoding: str) -> tuple[str] | tuple[str, str]:
    if _BARE_PERCENT.search(userinfo):
        raise _BadEntryError("has a % that starts no percent-encoding; allowed: %25 for the character itself")
    user, colon, password = userinfo.partition(":")
    try:
        parts = unquote(user, errors="strict"), unquote(password, errors="strict")
        ":".join(parts).encode(encoding)
    except (UnicodeError, LookupError):
        # Not chained: the error would hold the password.
        raise _BadEntryError(
            "has a user name or password that can't be encoded; allowed: UTF-8 percent-encoding of what "
            f"HTTPPROXY_AUTH_ENCODING ({encoding}) can hold"
        ) from None
    if not parts[0]:
        raise _BadEntryError("has an @ without a user name; allowed: user:password@host, or no @ at all")
    if ":" in parts[0] or _CONTROLS.search(":".join(parts)):
        # RFC 7617 section 2.
        raise _BadEntryError("has a colon in the user name or a control character; HTTP can't send either")
    return parts if colon else parts[:1]


def _split_port(hostport: str, default: int) -> tuple[str, int]:
    if hostport.startswith("["):
        address, bracket, after = hostport[1:].partition("]")
        if not bracket or (after and not after.startswith(":")):
            raise _BadEntryError("has an IPv6 address without its brackets; allowed: [2001:db8::1]:8080")
        host, port = _ipv6(address), after[1:]
    else:
        host, _, port = hostport.partition(":")
        if ":" in port:
            raise _BadEntryError(
                "has too many colons after the @, if any; allowed: host:port, IPv6 as [2001:db8::1]:8080"
            )
        host = _hostname(host)
    if not port:
        return host, default
    if not _PORT.match(port) or not 1 <= int(port) <= 65_535:
        raise _BadEntryError("has a port that is none; allowed: 1 to 65535")
    return host, int(port)


def _ipv6(address: str) -> str:
    try:
        return f"[{IPv6Address(address).compressed}]" if "%" not in address else _refuse_zone()
    except AddressValueError:
        raise _BadEntryError("has brackets without an IPv6 address; allowed: [2001:db8::1]:8080") from None


def _refuse_zone() -> NoReturn:
    raise _BadEntryError("has an IPv6 address with a zone; allowed: an address without one")


def _hostname(host: str) -> str:
    host = normalise_host(host)
    labels = host.split(".")
    if not host:
        raise _BadEntryError("has no host; allowed: a host name or an address")
    if len(host) > 253 or not all(map(_LABEL.match, labels)):
        raise _BadEntryError("has a host that is none; allowed: a host name or an address")
    if _ALL_DIGITS_LABEL.match(labels[-1]):
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise _BadEntryError("has an IPv4 address that is none; allowed: four numbers from 0 to 255") from None
    return host


def _exit_id(key: bytes, *parts: str) -> str:
    # No part can hold a NUL, so no two exits make the same text.
    text = "\0".join(parts).encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()[:16]


def _places(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_PLACES_SHOWN]))
    return shown if len(numbers) <= _PLACES_SHOWN else f"{shown} and {len(numbers) - _PLACES_SHOWN} more"
