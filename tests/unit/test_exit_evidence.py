"""What an answer or an exception says about the exit, by whichever of Scrapy's download handlers it came."""

from __future__ import annotations

import ssl

import pytest
import scrapy
from hypothesis import given, strategies as st
from scrapy.core.downloader.handlers.http11 import TunnelError
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Headers, Response
from twisted.internet.error import NoRouteError
from twisted.web._newclient import ParseError, ResponseFailed, ResponseNeverReceived

from scrapy_pacing.core.exits import Cause, Fault
from scrapy_pacing.core.exits.evidence import UNREACHABLE
from scrapy_pacing.exits import fault_of_failure, fault_of_response
from scrapy_pacing.exits.evidence import brought_no_answer

if scrapy.version_info < (2, 15):
    pytest.skip("Scrapy before 2.15 has none of these exceptions", allow_module_level=True)

from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
)

REFUSED = DownloadConnectionRefusedError("Connection was refused by other side")


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


class ClientHttpProxyError(Exception):
    """As aiohttp raises it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"{status}, message='nope'")
        self.status = status


class ProxyError(Exception):
    """As httpx raises it."""


class ServerDisconnectedError(Exception):
    """As aiohttp raises it."""


class ClientOSError(OSError):
    """As aiohttp raises it."""


class ClientConnectionResetError(ConnectionResetError):
    """As aiohttp raises it."""


class ClientConnectorError(ClientOSError):
    """As aiohttp raises it."""


class ClientProxyConnectionError(ClientConnectorError):
    """As aiohttp raises it."""


def tunnel(extra: str) -> TunnelError:
    return TunnelError(f"Could not open CONNECT tunnel with proxy 192.0.2.1:8000 [{extra}]")


EVERYBODY = True
ONE_ORIGIN = False


@pytest.mark.parametrize(
    ("error", "tunnelled", "fault"),
    [
        (REFUSED, False, Fault(Cause.UNREACHABLE, EVERYBODY)),
        (REFUSED, True, Fault(Cause.UNREACHABLE, EVERYBODY)),
        (CannotResolveHostError("proxy.example"), True, Fault(Cause.UNREACHABLE, EVERYBODY)),
        (NoRouteError(), False, Fault(Cause.UNREACHABLE, EVERYBODY)),
        (tunnel("{'status': 407, 'reason': b'Auth'}"), True, Fault(Cause.CREDENTIALS, EVERYBODY)),
        (tunnel("{'status': 403, 'reason': b'No'}"), True, Fault(Cause.TUNNEL, ONE_ORIGIN)),
        (tunnel("{'status': 502, 'reason': b'Bad'}"), True, Fault(Cause.GATEWAY, ONE_ORIGIN)),
        (tunnel("b'SSH-2.0-OpenSSH'"), True, Fault(Cause.TUNNEL, EVERYBODY)),
        (caused(DownloadFailedError("x"), ClientHttpProxyError(407)), True, Fault(Cause.CREDENTIALS, EVERYBODY)),
        (caused(DownloadFailedError("x"), ClientHttpProxyError(504)), True, Fault(Cause.GATEWAY, ONE_ORIGIN)),
        (
            caused(DownloadConnectionRefusedError("x"), ProxyError("407 Proxy Authentication Required")),
            True,
            Fault(Cause.CREDENTIALS, EVERYBODY),
        ),
        (caused(DownloadConnectionRefusedError("x"), ProxyError("gone")), True, Fault(Cause.UNREACHABLE, EVERYBODY)),
        (caused(DownloadFailedError("x"), ResponseNeverReceived([])), False, Fault(Cause.UNREACHABLE, ONE_ORIGIN)),
        (caused(DownloadFailedError("x"), ServerDisconnectedError()), False, Fault(Cause.UNREACHABLE, ONE_ORIGIN)),
        (caused(DownloadFailedError("x"), ClientOSError()), False, Fault(Cause.UNREACHABLE, ONE_ORIGIN)),
        (caused(DownloadFailedError("x"), ClientConnectionResetError()), False, Fault(Cause.UNREACHABLE, ONE_ORIGIN)),
        (caused(DownloadFailedError("x"), ConnectionResetError()), False, Fault(Cause.UNREACHABLE, ONE_ORIGIN)),
        (caused(DownloadConnectionRefusedError("x"), ClientProxyConnectionError()), True, UNREACHABLE),
        # What a tunnel carries is between us and the origin.
        (caused(DownloadConnectionRefusedError("x"), ClientConnectorError()), True, None),
        (caused(DownloadFailedError("x"), ResponseNeverReceived([])), True, None),
        (caused(DownloadConnectionRefusedError("x"), ssl.SSLError(1, "bad certificate")), True, None),
        (caused(DownloadConnectionRefusedError("x"), ssl.SSLCertVerificationError("self-signed")), True, None),
        (DownloadFailedError("x"), False, None),
        (ResponseDataLossError(), False, None),
        (DownloadCancelledError(), False, None),
        (IgnoreRequest(), False, None),
        (RuntimeError("'status': 407"), False, None),
    ],
    ids=lambda value: value if isinstance(value, bool) else repr(value)[:50],
)
def test_what_a_failure_says(error: BaseException, tunnelled: bool, fault: Fault | None) -> None:
    """A failure counts against the exit only where it can be nobody else's."""
    assert fault_of_failure(error, tunnelled=tunnelled) == fault


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (DownloadTimeoutError("x"), Cause.TIMEOUTS),
        (caused(DownloadFailedError("x"), ResponseNeverReceived([])), Cause.LOST),
        (caused(DownloadFailedError("x"), ParseError("no status line", b"SSH-2.0")), Cause.LOST),
        (ResponseFailed([]), Cause.LOST),
        (caused(DownloadConnectionRefusedError("x"), ConnectionResetError()), Cause.LOST),
        (ResponseDataLossError(), Cause.LOST),
        (caused(DownloadFailedError("x"), ssl.SSLCertVerificationError("self-signed")), None),
        (caused(DownloadCancelledError(), ResponseFailed([])), None),
        (IgnoreRequest(), None),
        (RuntimeError("x"), None),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_counts_as_no_answer(error: BaseException, cause: Cause | None) -> None:
    """Time-outs, lost connections and bytes that are no answer are alike; what was answered or called off is not."""
    assert brought_no_answer(error) == cause


def test_a_circle_of_causes_ends() -> None:
    """Exceptions that name each other as their cause are read for a while, not for ever."""
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert fault_of_failure(one, tunnelled=False) is None


@pytest.mark.parametrize(
    ("status", "headers", "cause"),
    [
        (407, {}, Cause.CREDENTIALS),
        (502, {"Proxy-Status": "p; error=dns_timeout"}, Cause.GATEWAY),
        (503, {"X-Squid-Error": "ERR_DNS_FAIL 0"}, Cause.GATEWAY),
        (502, {}, None),
        (200, {"Proxy-Status": "p; error=dns_timeout"}, None),
        (403, {}, None),
        (429, {"X-Squid-Error": "ERR 0"}, None),
    ],
)
def test_what_an_answer_says(status: int, headers: dict[str, str], cause: Cause | None) -> None:
    """Without a tunnel a proxy can answer in the origin's place; through one it can't."""
    response = Response("http://site.example", status=status, headers=headers)
    fault = fault_of_response(response, tunnelled=False)
    assert (fault and fault.cause) == cause
    assert fault_of_response(response, tunnelled=True) is None


@given(st.integers(100, 999), st.dictionaries(st.binary(min_size=1, max_size=20), st.lists(st.binary(max_size=60))))
def test_no_answer_can_raise(status: int, headers: dict[bytes, list[bytes]]) -> None:
    """Whatever a server sends is read without an exception."""
    response = Response("http://site.example", status=status, headers=Headers(headers))
    fault_of_response(response, tunnelled=False)
