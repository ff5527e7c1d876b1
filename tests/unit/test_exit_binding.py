"""What a request says of its exit, and what is taken out of it again."""

from __future__ import annotations

import pickle

import pytest
from scrapy import Request
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware

from scrapy_pacing.core.exits import Exit, ExitPool, Lease, parse_exits
from scrapy_pacing.exits import bind, unbind
from scrapy_pacing.testing import FakeClock

ORIGIN = "http://site.example"
SECRET = "http://ann:s3cret@192.0.2.1:8000"
OPEN = "http://192.0.2.2:8000"
PARSED = parse_exits([SECRET, OPEN, None], key=bytes(16)).exits
EXITS = {leaving_by.id: leaving_by for leaving_by in PARSED}
WITH_PASSWORD, WITHOUT, DIRECT = PARSED


def lease_of(leaving_by: Exit) -> Lease:
    lease = ExitPool([leaving_by], clock=FakeClock()).lease(ORIGIN)
    assert lease is not None
    return lease


def bound(leaving_by: Exit, **arguments: object) -> Request:
    """A request on its way, as HttpProxyMiddleware leaves it."""
    request = Request(ORIGIN + "/page", **arguments)  # type: ignore[arg-type]
    bind(request, lease_of(leaving_by))
    HttpProxyMiddleware().process_request(request)
    return request


@pytest.mark.parametrize("leaving_by", PARSED, ids=["password", "open", "direct"])
def test_what_was_bound_is_unbound_without_a_trace(leaving_by: Exit) -> None:
    """After the answer a request is as it was before, but for the id of the exit that it came by."""
    request = bound(leaving_by, meta={"mine": 1}, headers={"X-Mine": "1"})
    assert request.meta["proxy"] == (leaving_by.url or "").replace("ann:s3cret@", "") or leaving_by.is_direct
    assert request.meta["cookiejar"] == request.meta["pacing_lease"]
    unbind(request, EXITS)
    assert request.meta == {"mine": 1, "pacing_exit": leaving_by.id}
    assert dict(request.headers) == {b"X-Mine": [b"1"]}


def test_a_request_can_be_bound_again_to_another_exit() -> None:
    """What one exit needed is not sent to the next."""
    request = bound(WITH_PASSWORD)
    assert b"Proxy-Authorization" in request.headers
    unbind(request, EXITS)
    bind(request, lease_of(WITHOUT))
    HttpProxyMiddleware().process_request(request)
    assert b"Proxy-Authorization" not in request.headers
    assert request.meta["proxy"] == OPEN


def test_nothing_secret_is_left_to_be_pickled() -> None:
    """A copy that waits on disk holds neither proxy nor password."""
    request = bound(WITH_PASSWORD)
    unbind(request, EXITS)
    stored = pickle.dumps(request.copy().to_dict())
    assert b"s3cret" not in stored
    assert b"192.0.2.1" not in stored
    assert b"Basic" not in stored


def test_the_users_own_jar_proxy_and_credentials_stay() -> None:
    """Only what was put in is taken out, also where the user has changed it since."""
    request = bound(WITH_PASSWORD, meta={"cookiejar": "mine"})
    assert request.meta["cookiejar"] == "mine"
    request.meta["proxy"] = "http://192.0.2.9:9"
    request.headers["Proxy-Authorization"] = "Basic own"
    unbind(request, EXITS)
    assert request.meta["cookiejar"] == "mine"
    assert request.meta["proxy"] == "http://192.0.2.9:9"
    assert request.headers["Proxy-Authorization"] == b"Basic own"


def test_a_request_that_was_never_bound_is_left_alone() -> None:
    """Without the mark everything is the user's, None included."""
    request = Request(ORIGIN, meta={"proxy": None, "cookiejar": 1, "pacing_exit": WITHOUT.id})
    unbind(request, EXITS)
    assert request.meta == {"proxy": None, "cookiejar": 1, "pacing_exit": WITHOUT.id}


def test_a_jar_that_was_copied_from_a_request_under_way_is_no_word_of_the_users() -> None:
    """A request made of another one's meta gets the jar of its own lease, not that of an earlier one."""
    copied = Request(ORIGIN, meta={"cookiejar": bound(WITHOUT).meta["cookiejar"]})
    unbind(copied, EXITS)
    assert "cookiejar" not in copied.meta
    mine = Request(ORIGIN, meta={"cookiejar": "http://site.example mine 1"})
    unbind(mine, EXITS)
    assert mine.meta["cookiejar"] == "http://site.example mine 1"


def test_an_exit_that_is_not_there_any_more_is_taken_out_all_the_same() -> None:
    """What another run has bound is unbound, though its exits are not known here."""
    request = bound(WITH_PASSWORD)
    unbind(request, {})
    assert set(request.meta) == {"pacing_exit"}
    assert b"Proxy-Authorization" not in request.headers


def test_the_mark_is_plain_text() -> None:
    """Meta holds picklable values only, and none of them shows the proxy."""
    request = Request(ORIGIN)
    bind(request, lease_of(WITH_PASSWORD))
    for key in ("pacing_exit", "pacing_lease", "cookiejar"):
        assert isinstance(request.meta[key], str)
        assert "192.0.2.1" not in request.meta[key]
