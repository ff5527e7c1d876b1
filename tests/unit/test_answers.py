"""Which answers slow a crawl down, which ease it, and which say nothing about the pace."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, strategies as st
from scrapy.http import HtmlResponse, Response

from scrapy_pacing.answers import Answer, classify, retry_after
from scrapy_pacing.testing import FakeClock

THROTTLE = frozenset({429})
CLOCK = FakeClock(wall=1_800_000_000.0)


def answer(status: int, *, kind: type[Response] = Response, **headers: str | list[str]) -> Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return kind("https://example.com/page", status=status, headers=names)


@pytest.mark.parametrize("status", [200, 201, 204, 206, 299, 304])
def test_what_was_served_is_a_success(status: int) -> None:
    """A page, a part of one, or word that it has not changed: the site did what it was asked."""
    assert classify(answer(status), THROTTLE) is Answer.SERVED
    assert classify(answer(status, Retry_After="60"), THROTTLE) is Answer.SERVED


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
def test_a_redirect_is_neither_a_success_nor_a_refusal(status: int) -> None:
    """What counts is the answer at the end of the chain; the wait that a redirect asks for is read (I011)."""
    redirect = answer(status, Location="/next", Retry_After="2")

    assert classify(redirect, THROTTLE) is Answer.REDIRECTED
    assert retry_after(redirect, CLOCK) == 2


def test_429_is_a_refusal_with_and_without_a_number() -> None:
    """The status that says "too many requests" is obeyed, whether or not it says for how long (I016)."""
    assert classify(answer(429), THROTTLE) is Answer.REFUSED
    assert classify(answer(429, Retry_After="30"), THROTTLE) is Answer.REFUSED
    assert classify(answer(429, kind=HtmlResponse), THROTTLE) is Answer.REFUSED
    assert retry_after(answer(429), CLOCK) is None
    assert retry_after(answer(429, Retry_After="30"), CLOCK) == 30


def test_503_is_a_refusal_only_if_it_says_when_to_come_back() -> None:
    """A site that is down is not one that is asked too fast, unless it names a time or the project says so."""
    assert classify(answer(503), THROTTLE) is Answer.FAILED
    assert classify(answer(503, Retry_After="30"), THROTTLE) is Answer.REFUSED
    assert classify(answer(503, retry_after="30"), THROTTLE) is Answer.REFUSED
    assert classify(answer(503), THROTTLE | {503}) is Answer.REFUSED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 410, 451, 500, 502, 504])
def test_other_errors_say_nothing_about_the_pace(status: int) -> None:
    """A missing page or a broken server is no refusal, with or without Retry-After."""
    assert classify(answer(status), THROTTLE) is Answer.FAILED
    assert classify(answer(status, Retry_After="30"), THROTTLE) is Answer.FAILED


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "30"}], ids=["bare", "with Retry-After"])
@pytest.mark.parametrize("status", [430, 420, 422, 509, 529, 599, 999], ids=lambda status: f"I020-{status}")
def test_limits_under_other_codes_are_refusals_where_the_project_says_so(status: int, headers: dict[str, str]) -> None:
    """I020: an unknown code is an error like any other, until it is among the throttle statuses."""
    assert classify(answer(status, **headers), THROTTLE) is Answer.FAILED
    assert classify(answer(status, **headers), THROTTLE | {status}) is Answer.REFUSED
    assert retry_after(answer(status, **headers), CLOCK) == (30 if headers else None)


def test_429_is_no_refusal_where_the_project_says_so() -> None:
    """The statuses that mean "too fast" are the project's choice."""
    assert classify(answer(429, Retry_After="30"), frozenset({503})) is Answer.FAILED


@pytest.mark.parametrize("status", [403, 429, 503], ids=lambda status: f"I019-{status}")
def test_a_challenge_page_is_no_refusal(status: int) -> None:
    """I019: waiting longer clears no challenge, so its status and its Retry-After teach nothing about the pace."""
    assert classify(answer(status, Cf_Mitigated="challenge", Retry_After="5"), THROTTLE) is Answer.CHALLENGED
    assert classify(answer(status, Cf_Mitigated="Challenge"), THROTTLE) is Answer.CHALLENGED
    plain = Answer.FAILED if status == 403 else Answer.REFUSED
    assert classify(answer(status, Retry_After="5"), THROTTLE) is plain
    assert classify(answer(status, Cf_Mitigated="block", Retry_After="5"), THROTTLE) is plain


def test_a_challenge_page_that_pretends_to_be_a_success_is_one_still() -> None:
    """A challenge is told by its marker whatever its status: it earns no easing."""
    assert classify(answer(200, Cf_Mitigated="challenge"), THROTTLE) is Answer.CHALLENGED


@pytest.mark.parametrize(
    ("values", "seconds"),
    [(["120", "5"], 120), (["5", "120"], 120), (["120, 5"], 120), (["soon", "5"], 5), (["soon"], None), ([""], None)],
    ids=lambda value: f"I007-{value}",
)
def test_of_repeated_fields_the_longest_counts(values: list[str], seconds: float | None) -> None:
    """I007: a field that arrives twice means its longest value, not its last."""
    assert retry_after(answer(429, Retry_After=values), CLOCK) == seconds


def test_a_date_is_measured_by_the_clock_of_its_server() -> None:
    """A server whose clock is a day behind gets the wait that it meant; without a Date our own clock counts."""
    then = datetime.fromtimestamp(CLOCK.wall() - 86_400 + 30, tz=timezone.utc)
    sent = datetime.fromtimestamp(CLOCK.wall() - 86_400, tz=timezone.utc)
    until = format_datetime(then, usegmt=True)

    assert retry_after(answer(429, Retry_After=until, Date=format_datetime(sent, usegmt=True)), CLOCK) == 30
    assert retry_after(answer(429, Retry_After=until), CLOCK) is None
    soon = format_datetime(datetime.fromtimestamp(CLOCK.wall() + 45, tz=timezone.utc), usegmt=True)
    assert retry_after(answer(429, Retry_After=soon, Date="?"), CLOCK) == 45


@given(
    status=st.integers(100, 999),
    marker=st.binary(max_size=20),
    fields=st.lists(st.binary(max_size=40), max_size=4),
    date=st.binary(max_size=40),
)
def test_no_answer_of_a_server_raises(status: int, marker: bytes, fields: list[bytes], date: bytes) -> None:
    """Whatever status and header bytes a server sends, the answer has a kind and its wait is None or positive."""
    headers = {b"Cf-Mitigated": [marker], b"Retry-After": fields, b"Date": [date]}
    response = Response("https://example.com/", status=status, headers=headers)

    assert isinstance(classify(response, THROTTLE), Answer)
    seconds = retry_after(response, CLOCK)
    assert seconds is None or 0 < seconds <= 10**10


@pytest.mark.parametrize(
    "fields",
    [
        {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "60"},
        {"X_RateLimit_Remaining": "0", "X_RateLimit_Reset": "60", "Retry_After": "60"},
        {"RateLimit": '"default";r=0;t=60'},
    ],
    ids=str,
)
def test_a_403_with_a_spent_quota_is_too_fast(fields: dict[str, str]) -> None:
    """GitHub answers 403 when its quota is spent: a matter of pace, and none of the address."""
    assert classify(answer(403, **fields), THROTTLE) is Answer.REFUSED
    assert classify(answer(404, **fields), THROTTLE) is Answer.FAILED


def test_a_403_with_a_quota_left_is_a_403() -> None:
    """A site that states a quota of which something is left means what it says."""
    assert classify(answer(403, X_RateLimit_Remaining="5", X_RateLimit_Reset="60"), THROTTLE) is Answer.FAILED
