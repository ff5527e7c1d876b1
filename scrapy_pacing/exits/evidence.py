"""What the outcome of a request says about its exit, in Scrapy's terms.

A tunnel (https pages) hides the origin's answers from the proxy: what comes through is the origin's, and what fails
while the tunnel is opened is the proxy's. Without one (http pages) the proxy answers in the origin's place.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from scrapy.core.downloader.handlers.http11 import TunnelError
from twisted.internet.error import ConnectError

from scrapy_pacing.compat import CannotResolveHostError, DownloadConnectionRefusedError, DownloadTimeoutError
from scrapy_pacing.core.exits import Cause, Fault
from scrapy_pacing.core.exits.evidence import UNREACHABLE, fault_of_answer, fault_of_tunnel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

# TunnelError's text holds the status and the reason of the proxy's answer to CONNECT.
_STATUS_OF_TUNNEL = re.compile(r"'status': (\d{3})")
_STATUS_FIRST = re.compile(r"(\d{3}) ")
# Named, since they belong to handlers that may not be installed: no certificate or handshake is the proxy's fault.
_TLS_FAILURES = frozenset({"SSLError", "ClientSSLError", "CertificateError", "VerificationError"})
_PROXY_ERRORS = frozenset({"ClientHttpProxyError", "ProxyError"})
_NO_ANSWER = frozenset(
    {
        "ResponseNeverReceived",
        "ServerDisconnectedError",
        "ClientOSError",
        "ClientConnectionResetError",
        "ConnectionResetError",
    }
)
# Of a request that left and brought no answer, or no whole one: those of Scrapy, Twisted and aiohttp, with all beneath.
_LOSSES = frozenset(
    {
        "DownloadFailedError",
        "ResponseDataLossError",
        "ResponseFailed",
        "ParseError",
        "ConnectionClosed",
        "ConnectionError",
        "ClientError",
        "HttpProcessingError",
    }
)
# aiohttp's name for a tunnel that is open and breaks in the handshake; with the proxy itself it has another.
_TUNNEL_LOST = "ClientConnectorError"
_LONGEST_CHAIN = 8


def fault_of_response(response: Response, *, tunnelled: bool) -> Fault | None:
    """Return the fault of the exit that an answer tells of, or None if it is the origin's answer."""
    if tunnelled:
        return None
    headers = response.headers
    pairs = (
        (name.decode("latin-1"), value.decode("latin-1"))
        for name in tuple(headers)
        for value in headers.getlist(name)
        if isinstance(value, bytes)
    )
    return fault_of_answer(response.status, pairs)


def fault_of_failure(exception: BaseException, *, tunnelled: bool) -> Fault | None:
    """Return the fault of the exit that an exception tells of, or None if it could be anything else."""
    chain = tuple(_chain(exception))
    if any(_is_tls_failure(link) for link in chain):
        return None
    for link in chain:
        fault = _fault_of_link(link, tunnelled=tunnelled)
        if fault is not None:
            return fault
    return None


def brought_no_answer(exception: BaseException) -> Cause | None:
    """Return what to call a failure that leaves open whether the exit or the origin kept silent; None for any other.

    One says nothing. A bad certificate is an answer, and so is a handshake that was refused.
    """
    if isinstance(exception, DownloadTimeoutError):
        return Cause.TIMEOUTS
    chain = tuple(_chain(exception))
    if any(_is_tls_failure(link) or type(link).__name__ == "DownloadCancelledError" for link in chain):
        return None
    return Cause.LOST if any(cls.__name__ in _LOSSES for link in chain for cls in type(link).__mro__) else None


def _fault_of_link(link: BaseException, *, tunnelled: bool) -> Fault | None:
    name = type(link).__name__
    if isinstance(link, TunnelError):
        found = _STATUS_OF_TUNNEL.search(str(link))
        return fault_of_tunnel(int(found[1]) if found else None)
    if name in _PROXY_ERRORS:
        # aiohttp has the status as an attribute, httpx in its text.
        found = _STATUS_FIRST.match(f"{getattr(link, 'status', link)} ")
        return fault_of_tunnel(int(found[1])) if found else UNREACHABLE
    cause = type(link.__cause__).__name__
    if cause in _PROXY_ERRORS or (tunnelled and cause == _TUNNEL_LOST):
        # Scrapy's handlers say "refused" of these; the cause knows better.
        return None
    if isinstance(link, (DownloadConnectionRefusedError, CannotResolveHostError, ConnectError)):
        # The only connection that is opened, and the only name that is looked up, is the proxy's.
        return UNREACHABLE
    if name in _NO_ANSWER and not tunnelled:
        # The proxy has reset the connection, or repeats what the origin did: this origin's claim.
        return Fault(Cause.UNREACHABLE, whole_exit=False)
    return None


def _chain(exception: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exception
    for _ in range(_LONGEST_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__


def _is_tls_failure(link: BaseException) -> bool:
    if isinstance(link, ssl.SSLError) or type(link).__module__.startswith("OpenSSL"):
        return True
    return any(cls.__name__ in _TLS_FAILURES for cls in type(link).__mro__)
