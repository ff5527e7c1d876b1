"""What a Retry-After asks for: every form that servers send, and never an exception, a negative or an endless wait."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, settings, strategies as st

from scrapy_pacing.core.retry_after import LONGEST, http_date_seconds, retry_after_seconds

# Sunday, 6 September 2026, 12:00:00 GMT
MOMENT = datetime(2026, 9, 6, 12, 0, 0, tzinfo=timezone.utc)
NOW = MOMENT.timestamp()


def wait(*fields: bytes | str, date: bytes | str | None = None, now: float = NOW) -> float | None:
    return retry_after_seconds(fields, date=date, now=now)


def imf(seconds: float) -> str:
    return format_datetime(MOMENT + timedelta(seconds=seconds), usegmt=True)


# -- the ordinary --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120), (b"120", 120), ("1", 1), (" 7\t", 7), ("0007", 7), ("86400", 86_400)],
)
def test_seconds_are_read(value: bytes | str, seconds: float) -> None:
    """A plain number of seconds is that many seconds, as text or as bytes."""
    assert wait(value) == seconds


def test_no_field_asks_for_nothing() -> None:
    """An answer without the header asks for no wait."""
    assert wait() is None


def test_a_date_is_measured_against_the_answers_own() -> None:
    """A server whose clock is an hour ahead still gets the wait that it meant; without a Date our clock counts."""
    assert wait(imf(3600 + 30), date=imf(3600)) == 30
    assert wait(imf(3600 + 30), date=imf(3600).encode()) == 30
    assert wait(imf(30)) == 30
    assert wait(imf(30), date="yesterday, or so") == 30
    assert wait("30", date=imf(3600)) == 30


def test_parts_of_a_second_are_rounded_up() -> None:
    """A date that is 29.2 seconds away means 30: never a moment early."""
    assert wait(imf(30), now=NOW + 0.8) == 30


# -- the odd, row by row of the collected cases --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["0", "00", "0.0", ".0", imf(0), imf(-60), imf(-86_400 * 400)], ids=lambda value: f"I002-{value}"
)
def test_nothing_and_the_past_count_as_absent(value: str) -> None:
    """I002: zero, and a date that has passed, switch no back-off off."""
    assert wait(value) is None


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("9999999999", id="I003-ten-digits"),
        pytest.param("99999999999", id="I003-eleven-digits"),
        pytest.param("9" * 400, id="I003-400-digits"),
        pytest.param("9" * 5000, id="I003-5000-digits"),
        pytest.param(b"9" * 5000, id="I003-5000-bytes"),
        pytest.param("1" + "0" * 60 + ".5", id="I003-fraction"),
        pytest.param("Fri, 31 Dec 9999 23:59:59 GMT", id="I003-year-9999"),
    ],
)
def test_a_huge_number_means_very_long_and_no_more(value: bytes | str) -> None:
    """I003: what is longer than anybody waits is a large finite number, which the policy caps."""
    seconds = wait(value)

    assert seconds is not None
    assert 9_999_999_999 <= seconds <= LONGEST


def test_an_impossible_year_counts_as_absent() -> None:
    """I003: the year 99999 is no date that anybody could wait for."""
    assert wait("Fri, 31 Dec 99999 23:59:59 GMT") is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0.493", 1), ("0.5", 1), ("2.0", 2), ("2.000001", 3), (".5", 1), ("7.", 7), ("59.99", 60)],
    ids=lambda value: f"I004-{value}",
)
def test_fractions_are_rounded_up(value: str, seconds: float) -> None:
    """I004: fractions break the RFC but are common, and what they ask for is not thrown away."""
    assert wait(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *("1e3", "1E3", "inf", "Infinity", "nan", "NaN", "+5", "1_000", "0x10", "", " ", "\t", ".", "..", "1.2.3"),
        *(
            "5 s",
            "5s",
            "1 000",
            "1;000",
            "soon",
            "None",
            "null",
            "true",
            "[5]",
            '"5"',
            "5\n",
            "5\x00",
            "\u0663",
            "\uff15",
        ),
        *("²", "½", "\ud800", "\N{ZERO WIDTH SPACE}5"),
    ],
    ids=lambda value: f"I004-{value!a}",
)
def test_what_is_no_number_counts_as_absent(value: str) -> None:
    """I004: exponents, signs, words, digits of other scripts and emptiness are no numbers here."""
    assert wait(value) is None


@pytest.mark.parametrize("value", ["-1", "-5", "-0", "-0.5", "--5", "\u22125"], ids=lambda value: f"I005-{value!a}")
def test_a_negative_number_counts_as_absent(value: str) -> None:
    """I005: a wait in the past is none."""
    assert wait(value) is None


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        pytest.param(["120", "5"], 120, id="I007-two-lines"),
        pytest.param(["5", "120"], 120, id="I007-the-longer-last"),
        pytest.param(["120, 5"], 120, id="I007-joined"),
        pytest.param(["2814, 2"], 2814, id="I007-joined-long"),
        pytest.param(["7, 7"], 7, id="I007-joined-twice"),
        pytest.param(["7,7"], 7, id="I007-joined-close"),
        pytest.param([",,5,"], 5, id="I007-empty-parts"),
        pytest.param(["soon", "5"], 5, id="I007-one-unreadable"),
        pytest.param(["soon, 5, -3"], 5, id="I007-joined-unreadable"),
        pytest.param(["0", "5"], 5, id="I007-zero-and-five"),
        pytest.param(["5", imf(90)], 90, id="I007-number-and-date"),
        pytest.param(["nan", "-1", "0"], None, id="I007-nothing-in-it"),
    ],
)
def test_of_repeated_fields_the_longest_counts(fields: list[str], seconds: float | None) -> None:
    """I007: a field that is sent twice, on two lines or joined by a proxy, means its longest value."""
    assert wait(*fields) == seconds


def test_thousands_of_fields_are_not_all_read() -> None:
    """I007: a server that sends the field without end costs no more than one that sends it a few times."""

    def endless() -> object:
        for number in range(1_000):
            yield str(number % 10)
        raise AssertionError("read to the end")

    assert retry_after_seconds(endless(), now=NOW) == 9  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("Sun, 06 Sep 2026 12:00:30 GMT", 30, id="I008-imf"),
        pytest.param("Sunday, 06-Sep-26 12:00:30 GMT", 30, id="I008-rfc850"),
        pytest.param("Sun Sep  6 12:00:30 2026", 30, id="I008-asctime"),
        pytest.param("Sun Sep 16 12:00:30 2026", 864_030, id="I008-asctime-two-digits"),
        pytest.param("Sun, 6 Sep 2026 12:00:30 GMT", 30, id="I008-one-digit-day"),
        pytest.param("sun, 06 sep 2026 12:00:30 gmt", 30, id="I008-lower-case"),
        pytest.param("Mon, 06 Sep 2026 12:00:30 GMT", 30, id="I008-wrong-day-name"),
        pytest.param("Sun, 06 Sep 2026 12:00:30 UTC", 30, id="I008-utc"),
        pytest.param("Sun, 06 Sep 2026 12:00:30 +0000", 30, id="I008-plus-0000"),
        pytest.param("Sun, 06 Sep 2026 12:00:30 -0000", 30, id="I008-minus-0000"),
        pytest.param("2026-09-06T12:00:30Z", 30, id="I008-iso-z"),
        pytest.param("2026-09-06T14:00:30+02:00", 30, id="I008-iso-offset"),
        pytest.param("2026-09-06 12:00:29.500000+00:00", 30, id="I008-iso-fraction"),
        pytest.param("Sun, 06 Sep 2026 12:00:60 GMT", 60, id="I008-leap-second"),
        pytest.param("Sun, 06 Sep 2026 12:00:61 GMT", None, id="I008-second-61"),
        pytest.param("Wednesday, 21-Oct-26 12:00:00 GMT", 45 * 86_400, id="I008-rfc850-october"),
        pytest.param("Wed, 31 Feb 2027 12:00:00 GMT", None, id="I008-31-february"),
        pytest.param("Sun, 06 Sep 2026 25:00:00 GMT", None, id="I008-hour-25"),
        pytest.param("Sun, 06 Sep 2026 12:61:00 GMT", None, id="I008-minute-61"),
        pytest.param("Sun, 00 Sep 2026 12:00:30 GMT", None, id="I008-day-0"),
        pytest.param("Sun, 06 Foo 2026 12:00:30 GMT", None, id="I008-no-month"),
        pytest.param("Sun, 06 Sep 2026 12:00:30", None, id="I008-no-zone"),
        pytest.param("Sun, 06 Sep 2026 12:00:30 PST", None, id="I008-other-zone"),
        pytest.param("Sun, 06 Sep 2026", None, id="I008-no-time"),
        pytest.param("2026-13-06T12:00:30Z", None, id="I008-iso-month-13"),
        pytest.param("2026-09-06T12:00:30", None, id="I008-iso-no-zone"),
        pytest.param("0001-01-01T00:00:00+14:00", None, id="I008-iso-year-1"),
        pytest.param("9999-12-31T23:59:59-14:00", LONGEST, id="I008-iso-year-9999"),
    ],
)
def test_the_date_forms_are_read(value: str, seconds: float | None) -> None:
    """I008: the three forms of RFC 9110 and their common variants are dates, impossible ones are nothing."""
    assert wait(value) == seconds


@pytest.mark.parametrize(
    ("text", "year"),
    [("26", 2026), ("70", 2070), ("76", 2076), ("77", 1977), ("99", 1999), ("00", 2000)],
    ids=lambda value: f"I008-{value}",
)
def test_two_digits_of_a_year_mean_the_nearest_in_fifty_years(text: str, year: int) -> None:
    """I008: a year of two digits that seems more than 50 years ahead has passed (RFC 9110 section 5.6.7)."""
    expected = datetime(year, 1, 2, tzinfo=timezone.utc).timestamp()

    assert http_date_seconds(f"Monday, 02-Jan-{text} 00:00:00 GMT", now=NOW) == expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param(f"{NOW + 30:.0f}", 30, id="I010-seconds"),
        pytest.param(f"{NOW + 30.25:.2f}", 31, id="I010-fraction"),
        pytest.param(f"{(NOW + 30) * 1000:.0f}", 30, id="I010-milliseconds"),
        pytest.param(f"{(NOW + 29.5) * 1000:.0f}", 30, id="I010-milliseconds-rounded-up"),
        pytest.param(f"{NOW - 30:.0f}", None, id="I010-passed"),
        pytest.param(f"{(NOW - 30) * 1000:.0f}", None, id="I010-milliseconds-passed"),
        pytest.param(f"{NOW + 300 * 86_400:.0f}", 300 * 86_400, id="I010-far"),
        pytest.param("1000000000", 1_000_000_000, id="I010-not-near"),
    ],
)
def test_a_time_stamp_is_a_point_in_time(value: str, seconds: float | None) -> None:
    """I010: a number near to now, counted from 1970, is a moment and not half a century."""
    assert wait(value) == seconds


def test_a_time_stamp_is_measured_against_the_answers_date() -> None:
    """I010: the clock of the server that wrote the stamp counts, as for a date."""
    assert wait(f"{NOW + 3630:.0f}", date=imf(3600)) == 30


# -- dates alone ----------------------------------------------------------------------------------------------------------


@given(st.datetimes(datetime(1970, 1, 1), datetime(2400, 1, 1), timezones=st.just(timezone.utc)))  # noqa: DTZ001
def test_every_date_in_the_standard_form_is_read_exactly(moment: datetime) -> None:
    """What Python's own e-mail package writes as an HTTP-date is read back to the second."""
    moment = moment.replace(microsecond=0)

    assert http_date_seconds(format_datetime(moment, usegmt=True), now=NOW) == moment.timestamp()
    assert http_date_seconds(moment.ctime(), now=NOW) == moment.timestamp()
    assert http_date_seconds(moment.isoformat(), now=NOW) == moment.timestamp()


# -- anything at all ------------------------------------------------------------------------------------------------------

NUMBERLIKE = st.text("0123456789.,+-eExX_ \t:", max_size=40)
DATELIKE = st.from_regex(r"[A-Za-z]{3,9},? ?[0-9]{0,2}[- ][A-Za-z]{3}[- ][0-9]{1,5} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?")
ISOLIKE = st.from_regex(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?")
ANY_TEXT = st.text(st.characters(), max_size=200)
FIELD = st.one_of(ANY_TEXT, st.binary(max_size=200), NUMBERLIKE, DATELIKE, ISOLIKE, st.integers().map(str))
NOWS = st.floats(0, 4e9) | st.just(NOW)


@given(fields=st.lists(FIELD, max_size=20), date=st.none() | FIELD, now=NOWS)
@settings(max_examples=500)
def test_nothing_that_a_server_sends_raises_or_lasts_for_ever(
    fields: list[bytes | str], date: bytes | str | None, now: float
) -> None:
    """Whatever stands in the fields and in Date, the result is None or a positive, finite number of whole seconds."""
    seconds = retry_after_seconds(fields, date=date, now=now)

    assert seconds is None or (0 < seconds <= LONGEST and seconds == math.ceil(seconds))


@given(value=FIELD, now=NOWS)
@settings(max_examples=300)
def test_no_date_raises(value: bytes | str, now: float) -> None:
    """Whatever stands in a date, the result is None or a finite number."""
    moment = http_date_seconds(value, now=now)

    assert moment is None or math.isfinite(moment)


@given(st.lists(FIELD, min_size=1, max_size=8))
def test_the_order_of_the_fields_does_not_matter(fields: list[bytes | str]) -> None:
    """The longest wait is the longest, in whatever order the fields come."""
    assert retry_after_seconds(fields, now=NOW) == retry_after_seconds(fields[::-1], now=NOW)


@given(st.integers(1, 10**8))
def test_a_number_means_itself(seconds: int) -> None:
    """A number that is no time stamp means that many seconds, whatever blanks and zeros stand around it."""
    assert wait(f"  000{seconds}\t") == seconds
