"""How a request goes back to the scheduler: neither lost, nor counted as tried, nor dropped as a duplicate."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request

# Plain values, so that a request that was given back can wait on disk.
DONT_FILTER = "pacing_dont_filter"
CLOSING = "pacing_closing"


def again(request: Request, meta: Mapping[str, object] = MappingProxyType({})) -> Request:
    """Return the request for the scheduler, past the dupe filter and with ``meta`` added."""
    returning = request.replace(dont_filter=True)
    returning.meta.setdefault(DONT_FILTER, request.dont_filter)
    returning.meta.update(meta)
    return returning


def give_back(request: Request) -> Request:
    """Return the request for the scheduler to keep, since the spider is closing.

    A request that some component downloads inline never goes to the scheduler but comes straight back: the second
    time it is dropped, with IgnoreRequest.
    """
    if request.meta.get(CLOSING):
        raise IgnoreRequest("the spider is closing")
    return again(request, {CLOSING: True})


def settle(request: Request) -> None:
    """Take out what `again` has put in, now that the request leaves; what comes of it is filtered as ever."""
    meta = request.meta
    meta.pop(CLOSING, None)
    if DONT_FILTER in meta:
        request.dont_filter = meta.pop(DONT_FILTER)
