"""What a site says of its limit before it refuses: quota fields, and robots.txt's Crawl-delay and Request-rate.

Four generations of fields say how much of a quota is left and until when:

- ``RateLimit: "default";r=50;t=30`` with ``RateLimit-Policy: "default";q=100;w=60`` (the IETF draft
  draft-ietf-httpapi-ratelimit-headers since its version 08, structured fields);
- ``RateLimit: limit=100, remaining=50, reset=30`` (version 07);
- ``RateLimit-Limit``, ``-Remaining``, ``-Reset`` (the versions before; GitLab, which counts Reset from 1970);
- ``X-RateLimit-Limit``, ``-Remaining``, ``-Reset`` and ``X-Rate-Limit-...`` (never written down: Reset is seconds,
  or a point in time in seconds or milliseconds since 1970 as GitHub has it);

and Shopify's ``X-Shopify-Shop-Api-Call-Limit: 32/40`` how full a leaking bucket is.

All of it is a server's text: nothing here raises because of it, what can't be read is absent, and all sizes are bounded.
Of several quotas the tightest counts. Retry-After, where it says anything, is the better word and leaves no quota; and
an answer out of somebody's cache (Age) says nothing about now.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import http_sf

from .retry_after import http_date_seconds, retry_after_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Headers = Callable[[str], list[bytes]]

_MOST_LINES = 16
# No gap of a robots.txt counts as longer, and no rate as higher.
_LONGEST_GAP = 10.0**10
_MOST_BYTES = 2048
_MOST_ITEMS = 16
_MOST_REMAINING = 1e12
# A quota that starts anew later than this is not one that a crawl could wait for or reckon with.
_LONGEST_RESET = 366 * 86_400.0
# A number this near to the present is a point in time and not a number of seconds.
_EPOCH_PAST = 86_400.0
# Shopify's buckets, of whatever size, drain in this many seconds.
_DRAIN = 20.0
_PREFIXES = ("RateLimit-", "X-RateLimit-", "X-Rate-Limit-")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?\Z", re.ASCII)
_FILL = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quota:
    """How many requests a site still allows, and in how many seconds it starts counting anew."""

    remaining: float
    reset: float

    @property
    def gap(self) -> float:
        """The mean gap at which the quota lasts until it starts anew; endless where nothing is left."""
        return self.reset / self.remaining if self.remaining >= 1 else math.inf


def quota_of(headers: Headers, *, now: float, beside_retry_after: bool = False) -> Quota | None:
    """Return the tightest quota that an answer states, or None.

    ``headers`` returns all values of a field by its name, whatever its case; ``now`` is wall-clock seconds, used where
    the answer has no Date of its own. None too where the answer has an Age, or a Retry-After that can be read, unless
    the quota is wanted ``beside_retry_after``: where nobody else heeds that field.
    """
    date = next(iter(headers("Date")), None)
    reference = http_date_seconds(date, now=now) if date is not None else None
    if reference is None:
        reference = now
    if any((_number(_text(age)) or 0.0) > 0 for age in headers("Age")[:_MOST_LINES]):
        return None
    if not beside_retry_after and retry_after_seconds(headers("Retry-After"), date=date, now=now) is not None:
        return None
    found = [
        quota
        for quota in (*_structured(headers), *_numbered(headers, reference), *_filled(headers))
        if 0 <= quota.remaining <= _MOST_REMAINING and 0 < quota.reset <= _LONGEST_RESET
    ]
    # Where nothing is left, the longest wait; else the longest gap.
    return max(found, key=lambda quota: (quota.gap, quota.reset), default=None)


def robots_gap(crawl_delay: float | None, request_rate: tuple[float, float] | None = None) -> float:
    """Return the least gap that a robots.txt asks for, in seconds; 0.0 for none.

    ``crawl_delay`` is seconds, ``request_rate`` so many requests in so many seconds, as Protego gives them. The longer
    of the two counts. Negative, zero and NaN count as absent.
    """
    gaps = [0.0]
    if crawl_delay is not None and crawl_delay > 0:
        gaps.append(float(min(crawl_delay, _LONGEST_GAP)))
    if request_rate is not None:
        requests, seconds = request_rate
        if requests > 0 and seconds > 0:
            # Capped before the division, which whole numbers of many digits would not survive.
            gaps.append(min(seconds, _LONGEST_GAP) / min(requests, _LONGEST_GAP))
    return max(gaps)


# -- the generations ----------------------------------------------------------------------------------------------------


def _structured(headers: Headers) -> Iterator[Quota]:
    """Read RateLimit, in the form of the present draft or the one before."""
    lines = _lines(headers("RateLimit"))
    if not lines:
        return
    items = _items(lines)
    if items is None:
        for line in lines:
            if (quota := _dictionary(line)) is not None:
                yield quota
        return
    windows = _windows(headers)
    for name, parameters in items:
        window, counts_requests = windows.get(name, (None, True))
        remaining = _finite(parameters.get("r"))
        # Without a reset of its own a quota starts anew at the end of its window at the latest.
        reset = _finite(parameters.get("t", window))
        if remaining is not None and reset is not None and counts_requests:
            yield Quota(remaining, reset)


def _windows(headers: Headers) -> dict[str, tuple[object, bool]]:
    """Map the names of RateLimit-Policy to the length of their window, and whether they count requests."""
    items = _items(_lines(headers("RateLimit-Policy"))) or []
    return {
        name: (parameters.get("w"), str(parameters.get("qu", "requests")) == "requests") for name, parameters in items
    }


def _items(lines: Sequence[bytes]) -> list[tuple[str, dict[str, object]]] | None:
    """Parse a structured list of names with parameters; None if it is none.

    Lines are joined before they are parsed (RFC 9651 section 4.2), so a broken one spoils them all.
    """
    try:
        members = http_sf.parse(b", ".join(lines), tltype="list")
    except ValueError:
        return None
    if not isinstance(members, list):
        return None
    found: list[tuple[str, dict[str, object]]] = []
    for member in members[:_MOST_ITEMS]:
        value, parameters = member if isinstance(member, tuple) else (member, {})
        # Names are strings; some drafts have tokens.
        if isinstance(value, (str, http_sf.Token)) and isinstance(parameters, dict):
            found.append((str(value), dict(parameters)))
    return found if len(found) == len(members[:_MOST_ITEMS]) else None


def _dictionary(line: bytes) -> Quota | None:
    try:
        members = http_sf.parse(line, tltype="dictionary")
    except ValueError:
        return None
    if not isinstance(members, dict):
        return None
    numbers = []
    for key in ("remaining", "reset"):
        member = members.get(key)
        value = _finite(member[0] if isinstance(member, tuple) else member)
        if value is None:
            return None
        numbers.append(value)
    return Quota(*numbers)


def _numbered(headers: Headers, reference: float) -> Iterator[Quota]:
    """Read ...-Remaining and ...-Reset, one number each or lists of them."""
    for prefix in _PREFIXES:
        remaining = [_number(part) for part in _parts(headers(prefix + "Remaining"))]
        resets = [_reset(part, reference) for part in _resets(headers(prefix + "Reset"))]
        if not remaining or not resets or None in remaining or None in resets:
            continue
        left = [number for number in remaining if number is not None]
        times = [number for number in resets if number is not None]
        if len(left) == len(times):
            yield from map(Quota, left, times)
        else:
            # Which belongs to which can't be told.
            yield Quota(min(left), max(times))


def _filled(headers: Headers) -> Iterator[Quota]:
    """Read Shopify's fill of a leaking bucket: "used/size"."""
    for line in headers("X-Shopify-Shop-Api-Call-Limit")[:_MOST_LINES]:
        found = _FILL.match(_text(line))
        if found is None:
            continue
        used, size = int(found[1]), int(found[2])
        if not 0 < used <= size:
            continue
        # Spread over the time until it is empty, half full is where the pace equals the leak. Full: until one leaks out.
        yield Quota(size - used, _DRAIN * used / size if used < size else _DRAIN / size)


# -- numbers ------------------------------------------------------------------------------------------------------------


def _lines(values: Iterable[bytes]) -> list[bytes]:
    lines = [value.strip() for value in list(values)[:_MOST_LINES]]
    return lines if sum(map(len, lines)) <= _MOST_BYTES else []


def _text(value: bytes) -> str:
    return value[:128].decode("latin-1").strip(" \t")


def _parts(values: Iterable[bytes]) -> list[str]:
    """Split lines at commas; a parameter (``100;w=60``) is cut off."""
    parts = [part for line in _lines(values) for part in line.decode("latin-1").split(",")]
    return [part.partition(";")[0].strip(" \t") for part in parts[:_MOST_ITEMS]]


def _resets(values: list[bytes]) -> list[str]:
    """Split like `_parts`, but leave a date, which has a comma in it, whole."""
    lines = _lines(values)
    if len(lines) == 1 and not lines[0][:1].isdigit():
        return [_text(lines[0])]
    return _parts(values)


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.match(text) else None


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    return float(value)


def _reset(text: str, reference: float) -> float | None:
    """Return the seconds until a reset that is written as seconds or as a point in time."""
    number = _number(text)
    if number is None:
        moment = http_date_seconds(text, now=reference)
        return None if moment is None else moment - reference
    for moment in (number, number / 1000):
        if reference > _LONGEST_RESET and reference - _EPOCH_PAST <= moment <= reference + _LONGEST_RESET:
            return moment - reference
    return number
