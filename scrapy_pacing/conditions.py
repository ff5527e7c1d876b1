"""Conditional requests: which validators an answer brings, and which a request may carry (RFC 9110 section 13).

The rules:

1. A validator is echoed byte for byte or not at all; nothing here repairs one.
2. Conditions are put on a request when all its other fields are there, at the gate, and only if the fields that the
   page varies by are what they were. So they can't be seen by a cache, and can't follow a redirect.
   What the gate itself adds counts as absent: it says how the visitor came, not which page is wanted.
3. A 304 means something only if it answers the conditions that were sent, to the URL that was asked.
4. A date that can't be meant is no validator: invalid, older than HTTP, or later than the answer that brings it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import IgnoreRequest

from .arriving.links import TRAIL
from .core.memory import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request
    from scrapy.http import Response

    from .core.memory import Validators

CONDITIONS = "pacing_conditions"
"""The meta key of a request that asks whether a page has moved."""

IF_NONE_MATCH, IF_MODIFIED_SINCE = b"If-None-Match", b"If-Modified-Since"
# By the question itself no answer can vary.
_CONDITIONAL = frozenset({"if-none-match", "if-modified-since"})
# The first draft of HTTP is of 1991; a page that claims to be older has a clock that was never set.
_EARLIEST = datetime(1991, 1, 1, tzinfo=timezone.utc)
# Python reads the year 0001 as 2001.
_YEAR_OF_NOBODY = re.compile(rb"(?:[A-Za-z][ -]|:\d\d )0\d{3}\b")
# Clocks differ; by more than that only where one is wrong.
_TOLERANCE = timedelta(days=1)


class OtherPageError(IgnoreRequest):
    """The request would now ask for another variant of the page than the one whose validators are known."""


def conditions_of(validators: Validators) -> dict[str, Any]:
    """Return validators as plain values for `CONDITIONS`."""
    return {
        "etag": validators.etag,
        "last_modified": validators.last_modified,
        "vary": dict(validators.vary),
    }


def apply(request: Request) -> None:
    """Put the conditions of a request, if it has any, into its header.

    Raises `OtherPageError` if one of the fields that the page varies by is not what it was.
    """
    conditions: Mapping[str, Any] | None = request.meta.get(CONDITIONS)
    if conditions is None:
        return
    known = conditions["vary"]
    if varying(request, known) != known:
        raise OtherPageError(f"{request.url} varies by what has changed since")
    _set(request, IF_NONE_MATCH, conditions["etag"])
    _set(request, IF_MODIFIED_SINCE, conditions["last_modified"])


def are_answered(request: Request | None, conditions: Mapping[str, Any]) -> bool:
    """Return whether a request, as it left, carried exactly these conditions."""
    if request is None:
        return False
    sent = (request.headers.get(IF_NONE_MATCH), request.headers.get(IF_MODIFIED_SINCE))
    return sent == (conditions["etag"], conditions["last_modified"])


def validators_of(response: Response, *, now: float) -> tuple[bytes | None, bytes | None]:
    """Return the ETag and the Last-Modified field of an answer, byte for byte, each None if it is of no use.

    ``now`` is wall-clock seconds, for an answer that has no Date.
    """
    etag = response.headers.get(b"ETag")
    last_modified = response.headers.get(b"Last-Modified")
    if last_modified is None:
        return etag, None
    modified = _date(last_modified)
    if modified is None:
        return etag, None
    answered = _date(response.headers.get(b"Date")) or datetime.fromtimestamp(now, timezone.utc)
    if not _EARLIEST <= modified <= answered + _TOLERANCE:
        return etag, None
    return etag, last_modified


def vary_of(response: Response) -> dict[str, str] | None:
    """Return the request fields that an answer varies by, with fingerprints of what was sent; None: by anything."""
    names = {
        name.strip().lower()
        for field in response.headers.getlist(b"Vary")
        for name in field.decode("latin-1").split(",")
        if name.strip()
    }
    names -= _CONDITIONAL
    if "*" in names or response.request is None:
        return None if names else {}
    return varying(response.request, names)


def varying(request: Request, names: Any) -> dict[str, str]:
    """Return fingerprints of the fields of a request by their names; those that were stamped on it count as absent."""
    ours = _stamped(request)
    # Not the values: a Cookie or Authorization field is a credential.
    return {
        name: fingerprint(b"" if name in ours else b", ".join(request.headers.getlist(name))) for name in sorted(names)
    }


def _stamped(request: Request) -> set[str]:
    """Return the names, in lower case, of the fields on a request that tell where it came from and are not the user's."""
    visit = request.meta.get(TRAIL)
    if visit is None:
        return set()
    headers = request.headers
    # By value: meta is handed on, and the request that has it now may have a field of the user's own.
    return {name.lower() for name, value in visit["stamped"].items() if headers.get(name) == value.encode()}


def same_etag(a: bytes | None, b: bytes | None) -> bool:
    """Compare two entity tags weakly (RFC 9110 section 8.8.3.2)."""
    return a is not None and b is not None and a.removeprefix(b"W/") == b.removeprefix(b"W/")


def _set(request: Request, name: bytes, value: bytes | None) -> None:
    if value is None:
        request.headers.pop(name, None)
    else:
        request.headers[name] = value


def _date(value: bytes | None) -> datetime | None:
    """Read a date in any form that mail or HTTP has had; None for what is none."""
    if value is None or _YEAR_OF_NOBODY.search(value):
        return None
    try:
        date = parsedate_to_datetime(value.decode("ascii"))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    try:
        return date.replace(tzinfo=timezone.utc) if date.tzinfo is None else date.astimezone(timezone.utc)
    except (OverflowError, ValueError):
        return None
