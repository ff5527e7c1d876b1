"""What an answer says about the pace of its site."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING

from .core.ratelimit_fields import quota_of
from .core.retry_after import retry_after_seconds

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy.http import Response

    from .core.clock import Clock


class Answer(Enum):
    """The kinds of answers, as far as the pace is concerned."""

    SERVED = "served"
    """The site did what it was asked."""
    REFUSED = "refused"
    """Too fast: the site wants fewer requests."""
    REDIRECTED = "redirected"
    """Neither: what counts is the answer at the end of the chain."""
    FAILED = "failed"
    """An error that is not about the pace."""
    CHALLENGED = "challenged"
    """A challenge page, whatever its status: waiting longer does not clear it."""


def classify(response: Response, throttle_statuses: Collection[int]) -> Answer:
    """Tell what ``response`` says about the pace.

    A 503 that carries Retry-After is a refusal (RFC 9110 section 15.6.4), one without is not, unless it is among
    ``throttle_statuses``. A challenge page is none, though some are sent as 429 (CASES I019). A 403 is one if it states
    a quota of which nothing is left, which is how GitHub says "too fast".
    """
    status = response.status
    if b"challenge" in (response.headers.get(b"Cf-Mitigated") or b"").lower():
        return Answer.CHALLENGED
    if 200 <= status < 300 or status == 304:
        return Answer.SERVED
    if status < 400:
        return Answer.REDIRECTED
    if status in throttle_statuses or (status == 503 and b"Retry-After" in response.headers):
        return Answer.REFUSED
    if status == 403 and _states_spent_quota(response):
        return Answer.REFUSED
    return Answer.FAILED


def states_limits(response: Response) -> bool:
    """Return whether the answer may state a quota.

    All of these fields have "limit" in their names; looking each of them up costs more than this.
    """
    return any(b"imit" in name for name in response.headers)


def _states_spent_quota(response: Response) -> bool:
    if not states_limits(response):
        return False
    quota = quota_of(response.headers.getlist, now=time.time(), beside_retry_after=True)
    return quota is not None and quota.remaining < 1


def retry_after(response: Response, clock: Clock) -> float | None:
    """Return the seconds that the answer's Retry-After fields ask for, the longest of them, or None."""
    # Not headers.get(): of a field sent twice it gives the last one only (CASES I007).
    values = response.headers.getlist(b"Retry-After")
    if not values:
        return None
    return retry_after_seconds(values, date=response.headers.get(b"Date"), now=clock.wall())
