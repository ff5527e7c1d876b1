"""What counts as evidence about an address, and how it is counted.

1. Evidence: the proxy can't be reached, refuses the tunnel or the credentials, or says itself that it failed; refusals
   in a row by the origin; the spider's own report; pages of one origin in a row that brought no answer; the same at
   several origins.
2. Never evidence: a 429, a 404, a 503 of the origin's, one time-out, the passing of time.
3. What an answer's headers claim could come from the origin. A claim moves that origin alone; it takes several origins
   to speak against the whole exit, so that no site can take an exit from the others.
4. What left together is one piece of evidence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import http_sf


class Cause(str, Enum):
    """Why an exit was given up; the values are what stats show."""

    UNREACHABLE = "unreachable"
    CREDENTIALS = "credentials"
    TUNNEL = "tunnel"
    GATEWAY = "gateway"
    TIMEOUTS = "timeouts"
    LOST = "lost"
    REFUSED = "refused"
    REPORTED = "reported"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure of the exit itself. ``whole_exit``: it concerns every origin, not only the one that met it."""

    cause: Cause
    whole_exit: bool


UNREACHABLE: Final = Fault(Cause.UNREACHABLE, whole_exit=True)
"""No connection to the proxy: refused, reset before an answer, no route, its name unknown."""

PROXY_ERROR_HEADERS: Final = frozenset({"x-squid-error", "x-brd-error", "x-luminati-error"})
"""Header names, in lower case, with which well-known proxies mark an error page as their own."""

_PROXY_AUTHENTICATION_REQUIRED = 407
# RFC 9110 sections 15.6.3 to 15.6.5: what an intermediary says when it could not get an answer.
_GATEWAY_STATUSES = frozenset({502, 503, 504})
_LONGEST_FIELD = 4096


def fault_of_tunnel(status: int | None) -> Fault:
    """Return the fault of an exit that answered CONNECT with ``status`` (None: with nothing that is HTTP).

    The origin can't have a part in that answer. But a gateway status says that the proxy could not reach this one
    origin, which may be down itself, so it concerns this origin alone.
    """
    if status == _PROXY_AUTHENTICATION_REQUIRED:
        return Fault(Cause.CREDENTIALS, whole_exit=True)
    if status in _GATEWAY_STATUSES:
        return Fault(Cause.GATEWAY, whole_exit=False)
    return Fault(Cause.TUNNEL, whole_exit=status is None)


def fault_of_answer(
    status: int,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    *,
    markers: frozenset[str] = PROXY_ERROR_HEADERS,
) -> Fault | None:
    """Return the fault that an answer through a proxy claims, or None if it speaks for the origin alone.

    For answers that no tunnel carried: in a tunnel every answer is the origin's. A 407 is always the proxy's; a
    gateway status is, where a header says so (RFC 9209, or one of ``markers``). Never raises.
    """
    if status == _PROXY_AUTHENTICATION_REQUIRED:
        return Fault(Cause.CREDENTIALS, whole_exit=False)
    if status not in _GATEWAY_STATUSES:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    last_hop: str | None = None
    for name, value in pairs:
        lowered = name.lower()
        if lowered in markers:
            return Fault(Cause.GATEWAY, whole_exit=False)
        if lowered == "proxy-status":
            last_hop = value
    if last_hop is not None and _proxy_status_has_error(last_hop):
        return Fault(Cause.GATEWAY, whole_exit=False)
    return None


def _proxy_status_has_error(value: str) -> bool:
    """Tell whether the hop nearest to us, the last in the list, reports an error (RFC 9209 section 2)."""
    if len(value) > _LONGEST_FIELD:
        return False
    try:
        hops = http_sf.parse(value.encode("latin-1", "replace"), tltype="list")
    except ValueError:
        return False
    if not isinstance(hops, list) or not hops:
        return False
    last = hops[-1]
    return isinstance(last, tuple) and isinstance(last[1], dict) and "error" in last[1]


class RefusalRow:
    """Refusals of one lease in a row (or failures without an answer), on different URLs, with no success between.

    A request carries the epoch in which it left. The refusal that counts opens the next epoch, so those that were in
    flight with it no longer count.
    """

    __slots__ = ("_urls", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self._urls: set[bytes] = set()

    def __len__(self) -> int:
        """Return how many refusals have counted."""
        return len(self._urls)

    def refused(self, epoch: int, url: str) -> bool:
        """Count a refusal; return whether it was a new piece of evidence."""
        if epoch != self.epoch:
            return False
        # A digest, since a URL can be as long as a server likes.
        page = url.partition("#")[0].encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(page, digest_size=16).digest()
        if digest in self._urls:
            return False
        self._urls.add(digest)
        self.epoch += 1
        return True

    def succeeded(self) -> None:
        """Start again: the address is welcome."""
        self._urls.clear()

    def restart(self) -> None:
        """Start again, and count nothing that is in flight now."""
        self._urls.clear()
        self.epoch += 1
