"""What a Retry-After header asks for (RFC 9110 section 10.2.3).

The field is a server's text, so nothing in it may raise, shorten a wait or stand for an endless one. What can't be
read counts as absent, and so does a wait of nothing: it would switch off the back-off that was already reached.
"""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A number of more digits stands for "longer than anybody waits"; policies cap it further (`max_hold`).
LONGEST = 10.0**10
_MOST_DIGITS = 10
_MOST_FIELDS = 16
_MOST_CHARACTERS = 128

_NUMBER = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?\Z")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})"
_ZONE = r"(?:GMT|UTC|[+-]00:?00)"
# The three forms of RFC 9110 section 5.6.7: IMF-fixdate, RFC 850, asctime.
_DATES = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"[a-z]{{3}}, (?P<day>\d{{1,2}}) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_CLOCK} {_ZONE}\Z",
        rf"[a-z]{{6,9}}, (?P<day>\d{{1,2}})-(?P<month>[a-z]{{3}})-(?P<year>\d{{2}}) {_CLOCK} {_ZONE}\Z",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) +(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})\Z",
    )
)
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?(?:Z|[+-]\d{2}:\d{2})\Z", re.ASCII)
# A number this near to the present, as seconds since the epoch, is a point in time and not 55 years (CASES I010).
_EPOCH_PAST, _EPOCH_FUTURE = 86_400.0, 366 * 86_400.0


def retry_after_seconds(fields: Iterable[bytes | str], *, date: bytes | str | None = None, now: float) -> float | None:
    """Return the longest wait that the Retry-After fields ask for, in whole seconds, or None.

    ``fields`` are all values of the header, ``date`` is the answer's own Date (a date is measured against the clock
    of the server that wrote it), ``now`` is wall-clock seconds, used where there is no Date. The value is not capped
    by a policy, but never more than 10**10. None: absent, malformed, negative, zero, or a date that has passed.
    """
    reference = http_date_seconds(date, now=now) if date is not None else None
    if reference is None:
        reference = now
    longest = 0.0
    for index, field in enumerate(fields):
        if index == _MOST_FIELDS:
            break
        longest = max(longest, _seconds(_text(field), reference))
    return longest or None


def http_date_seconds(value: bytes | str, *, now: float) -> float | None:
    """Return an HTTP-date as seconds since the epoch, or None where it is not one. Never raises.

    Reads the three forms of RFC 9110 section 5.6.7 and, since servers send it, ISO 8601 with an offset. ``now`` (wall
    clock) decides which century two digits stand for.
    """
    text = _text(value)
    try:
        if _ISO.match(text):
            return datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00")).timestamp()
        for form in _DATES:
            if found := form.match(text):
                return _timestamp(found, now)
    except (ValueError, OverflowError):
        pass
    return None


def _text(value: bytes | str) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return text[:_MOST_CHARACTERS].strip(" \t")


def _seconds(text: str, reference: float) -> float:
    """Read one field value: a date, a number, or several that some proxy has joined; 0 means nothing."""
    moment = http_date_seconds(text, now=reference)
    if moment is not None:
        return _until(moment, reference)
    # A comma inside a date was taken above, so this one joins two fields (CASES I007).
    return max(
        (_number(part.strip(" \t"), reference) for part in text.split(",")[:_MOST_FIELDS]),
        default=0.0,
    )


def _number(text: str, reference: float) -> float:
    found = _NUMBER.match(text)
    if not found or not (found["whole"] or found["fraction"]):
        return 0.0
    whole = found["whole"].lstrip("0")
    if len(whole) > _MOST_DIGITS:
        # Milliseconds since the epoch have thirteen digits; anything else this long is only "very long".
        if len(whole) == 13 and _near(int(whole) / 1000, reference):
            return _until(int(whole) / 1000, reference)
        return LONGEST
    seconds = float(math.ceil(float(text)))
    if _near(seconds, reference):
        return _until(seconds, reference)
    return min(seconds, LONGEST)


def _near(moment: float, reference: float) -> bool:
    return reference - _EPOCH_PAST <= moment <= reference + _EPOCH_FUTURE and reference > _EPOCH_FUTURE


def _until(moment: float, reference: float) -> float:
    return min(max(0.0, float(math.ceil(moment - reference))), LONGEST)


def _timestamp(found: re.Match[str], now: float) -> float | None:
    month = found["month"].lower()
    if month not in _MONTHS:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        year = _full_year(year, now)
    moment = datetime(
        year,
        _MONTHS.index(month) + 1,
        int(found["day"]),
        int(found["hour"]),
        int(found["minute"]),
        tzinfo=timezone.utc,
    )
    second = int(found["second"])
    if second > 60:
        return None
    # Added, not set: a leap second is written as 60.
    return (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) / timedelta(seconds=1) + second


def _full_year(year: int, now: float) -> int:
    """Return the year that two digits stand for: at most 50 years ahead (RFC 9110 section 5.6.7)."""
    this_year = datetime.fromtimestamp(now, tz=timezone.utc).year
    full = this_year - this_year % 100 + year
    return full - 100 if full > this_year + 50 else full
