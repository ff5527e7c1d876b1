"""Which validators an answer brings, and when a request may carry them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, strategies as st
from scrapy import Request
from scrapy.http import HtmlResponse, Response

from scrapy_pacing.arriving.links import TRAIL
from scrapy_pacing.conditions import (
    CONDITIONS,
    OtherPageError,
    apply,
    are_answered,
    conditions_of,
    same_etag,
    validators_of,
    vary_of,
)
from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.memory import Memory
from scrapy_pacing.exceptions import RequestCancelledError, RevalidationError
from scrapy_pacing.findings import diagnose, endpoints_in, tier_of
from scrapy_pacing.testing import FakeClock

URL = "https://example.com/page"
NOW = 1_800_000_000.0


def answer(headers, request=None, status=200):
    return Response(URL, status=status, headers=headers, request=request)


def question(etag=b'"a"', last_modified=None, vary=None, headers=None):
    conditions = {"etag": etag, "last_modified": last_modified, "vary": vary or {}}
    return Request(URL, headers=headers or {}, meta={CONDITIONS: conditions}), conditions


def test_what_is_known_of_a_page_goes_into_plain_values(tmp_path):
    """A request with conditions can be pickled, and carries byte for byte what came."""
    memory = Memory(tmp_path / "memory.json", clock=FakeClock())
    memory.record_validators(URL, etag=b'"caf\xe9"', last_modified=b"yesterday")
    conditions = conditions_of(memory.validators(URL))
    request = Request(URL, meta={CONDITIONS: pickle.loads(pickle.dumps(conditions))})
    apply(request)
    assert request.headers[b"If-None-Match"] == b'"caf\xe9"'
    assert request.headers[b"If-Modified-Since"] == b"yesterday"
    assert are_answered(request, conditions)


def test_a_request_without_conditions_is_left_alone():
    """An ordinary request gets nothing, and keeps what the user has set."""
    request = Request(URL, headers={"If-None-Match": '"mine"'})
    apply(request)
    assert request.headers.getlist("If-None-Match") == [b'"mine"']


def test_the_conditions_are_the_questions_own():
    """What a default header would add is replaced: the 304 must answer what was recorded."""
    request, conditions = question(headers={"If-None-Match": '"mine"', "If-Modified-Since": "once"})
    apply(request)
    assert request.headers.getlist("If-None-Match") == [b'"a"']
    assert "If-Modified-Since" not in request.headers
    assert are_answered(request, conditions)


def test_a_304_answers_only_what_was_sent():
    """Where something on the way took the conditions out, a 304 says nothing."""
    request, conditions = question()
    assert not are_answered(request, conditions)
    assert not are_answered(None, conditions)
    apply(request)
    assert are_answered(request, conditions)
    del request.headers["If-None-Match"]
    assert not are_answered(request, conditions)


def test_another_variant_is_not_asked_for():
    """I115: conditions are kept back if a field that the page varies by is another than it was."""
    before = Request(URL, headers={"Accept-Language": "de", "User-Agent": "one"})
    vary = vary_of(answer({"Vary": "Accept-Language, COOKIE"}, before))
    assert set(vary) == {"accept-language", "cookie"}
    same, _ = question(vary=vary, headers={"Accept-Language": "de", "User-Agent": "two"})
    apply(same)
    for headers in ({"Accept-Language": "fr"}, {}, {"Accept-Language": "de", "Cookie": "a=b"}):
        other, _ = question(vary=vary, headers=headers)
        with pytest.raises(OtherPageError):
            apply(other)
        assert "If-None-Match" not in other.headers


def test_what_is_stamped_on_a_request_is_no_variant():
    """Fields put on at departure count as absent, so a question that has none yet, or others, can be sent."""
    stamped = {"Sec-Fetch-Site": "none", "Referer": "https://example.com/"}
    left = Request(URL, headers=stamped, meta={TRAIL: {"stamped": stamped}})
    vary = vary_of(answer({"Vary": "Referer, sec-fetch-site, If-None-Match, If-Modified-Since"}, left))
    assert set(vary) == {"referer", "sec-fetch-site"}
    fresh, conditions = question(vary=vary)
    again = left.replace(meta={**left.meta, CONDITIONS: conditions})
    for request in (fresh, again):
        apply(request)
        # A request that comes back to the gate has its conditions already.
        apply(request)
        assert are_answered(request, conditions)


def test_a_users_own_referer_is_a_variant():
    """The same field counts if the spider has set it, though the meta of another request was handed on."""
    vary = vary_of(answer({"Vary": "Referer"}, Request(URL)))
    request, _ = question(vary=vary, headers={"Referer": "https://example.com/mine"})
    request.meta[TRAIL] = {"stamped": {"Referer": "https://example.com/other"}}
    with pytest.raises(OtherPageError):
        apply(request)


def test_fields_with_secrets_are_kept_as_fingerprints():
    """What the page varies by can be a credential; only what tells two values apart is kept."""
    request = Request(URL, headers={"Authorization": "Bearer secret"})
    assert "secret" not in str(vary_of(answer({"Vary": "authorization"}, request)))


@pytest.mark.parametrize("vary", ["*", "Accept, *", " * "])
def test_a_page_that_varies_by_anything_is_never_asked_for(vary):
    """Vary: * says that no request will do."""
    assert vary_of(answer({"Vary": vary}, Request(URL))) is None


def test_no_vary_is_no_condition():
    """Most pages vary by nothing."""
    assert vary_of(answer({}, Request(URL))) == {}
    assert vary_of(answer({"Vary": ","}, Request(URL))) == {}


@pytest.mark.parametrize(
    ("last_modified", "date", "kept"),
    [
        (b"Mon, 06 May 2024 10:00:00 GMT", None, True),
        (b"Mon, 06 May 2024 10:00:00 GMT", b"Mon, 06 May 2024 10:00:05 GMT", True),
        (b"Mon, 06 May 2024 10:00:00 GMT", b"Mon, 06 May 2024 09:00:00 GMT", True),
        (b"Mon, 06 May 2024 10:00:00 GMT", b"Mon, 01 Jan 2024 09:00:00 GMT", False),
        (b"Mon, 06 May 2024 10:00:00 GMT", b"nonsense", True),
        (b"Fri, 01 Jan 2060 00:00:00 GMT", None, False),
        (b"Fri, 01 Jan 2060 00:00:00 GMT", b"Fri, 02 Jan 2060 00:00:00 GMT", True),
        (b"Thu, 01 Jan 1970 00:00:00 GMT", b"Thu, 01 Jan 1970 00:00:00 GMT", False),
        (b"Mon Jan  1 00:00:00 0001", None, False),
        (b"01-Jan-0001 00:00:00 GMT", None, False),
        (b"Mon, 06 May 2024 10:00:00 +0000", None, True),
    ],
)
def test_a_date_is_measured_by_the_sites_own_clock(last_modified, date, kept):
    """I109, I110: a site whose clock is wrong is believed as long as its dates agree with one another."""
    headers = {"Last-Modified": last_modified, "ETag": b'"a"'}
    if date is not None:
        headers["Date"] = date
    assert validators_of(answer(headers), now=NOW) == (b'"a"', last_modified if kept else None)


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_any_fields_can_be_read(etag, last_modified, vary):
    """Whatever a site sends, nothing raises, and what is kept is what came."""
    response = answer({"ETag": etag, "Last-Modified": last_modified, "Date": etag, "Vary": vary}, Request(URL))
    assert validators_of(response, now=NOW)[0] == etag
    assert validators_of(response, now=NOW)[1] in (None, last_modified)
    vary_of(response)
    diagnose(response)
    list(endpoints_in(response))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (b'"a"', b'"a"', True),
        (b'W/"a"', b'"a"', True),
        (b'"a"', b'W/"a"', True),
        (b'"a"', b'"b"', False),
        (None, b'"a"', False),
        (None, None, False),
    ],
)
def test_tags_are_compared_weakly(a, b, same):
    """I113: whether a tag is weak says nothing about whether it is another one."""
    assert same_etag(a, b) is same


# -- what else an answer says -------------------------------------------------------------------------------------------


def test_the_built_in_diagnosis_is_modest():
    """Only a challenge says what it is: a 429 or a 403 may mean anything."""
    assert diagnose(answer({"Cf-Mitigated": "challenge"}, status=403)) is Layer.CHALLENGE
    assert diagnose(answer({"Cf-Mitigated": "challenge"}, status=200)) is Layer.CHALLENGE
    for status in (200, 403, 429, 503):
        assert diagnose(answer({"Retry-After": "5"}, status=status)) is None


@pytest.mark.parametrize(
    ("meta", "tier"),
    [({}, "http"), ({"playwright": True}, "browser"), ({"impersonate": "chrome"}, "impersonated")],
)
def test_the_tier_is_told_by_the_handler_that_served(meta, tier):
    """scrapy-playwright and scrapy-impersonate are known by the meta keys that switch them on."""
    assert tier_of(answer({}, Request(URL, meta=meta))) == tier


def html(head, url=URL):
    return HtmlResponse(url, body=f"<html><head>{head}</head></html>".encode(), request=Request(url))


@pytest.mark.parametrize(
    ("link", "kind"),
    [
        ('<link rel="alternate" type="application/json" href="/x">', "application/json"),
        ('<link rel="Alternate other" type="application/ld+json; x=y" href="/x">', "application/ld+json"),
        ('<link rel="alternate" type="application/feed+json" href="/x">', "application/feed+json"),
        ('<link rel="alternate" type="application/atom+xml" href="/x">', "application/atom+xml"),
        ('<link rel="alternate" hreflang="de" href="/x">', None),
        ('<link rel="alternate" type="text/html" href="/x">', None),
        ('<link rel="stylesheet" type="application/json" href="/x">', None),
        ('<link rel="alternate" type="application/json" href="http://[broken">', None),
    ],
)
def test_data_that_a_page_links_to_is_found(link, kind):
    """JSON and feeds in the head of a page are endpoints of its origin."""
    expected = [] if kind is None else [("https://example.com", "https://example.com/x", kind)]
    assert list(endpoints_in(html(link))) == expected


def test_data_belongs_to_the_page_that_asked_for_it():
    """JSON from another origin is known by the pages that it lies behind; as a page of its own it is none."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    api = "https://api.example.com/1"
    request = Request(api, meta={"navigation": False}, headers={"Referer": URL})
    assert list(endpoints_in(Response(api, headers=headers, request=request))) == [
        ("https://example.com", api, "application/json")
    ]
    assert list(endpoints_in(Response(api, headers=headers, request=Request(api)))) == []


def test_a_page_has_a_bounded_number_of_endpoints():
    """A head full of links fills no memory."""
    links = "".join(f'<link rel="alternate" type="application/json" href="/{n}">' for n in range(500))
    assert len(list(endpoints_in(html(links)))) == 16


# -- what is raised -----------------------------------------------------------------------------------------------------


def test_a_failure_names_the_page_and_the_reason():
    """Whoever catches it can tell what happened."""
    error = RevalidationError(URL, "the answer is a 503", answer({}, status=503))
    assert str(error) == f"could not find out whether {URL} has moved: the answer is a 503"
    assert (error.url, error.reason, error.response.status) == (URL, "the answer is a 503", 503)


def test_a_cancelled_request_says_so():
    """It is an IgnoreRequest, and names its URL."""
    assert str(RequestCancelledError(URL)) == f"{URL} was cancelled by its pacing_signal"
