"""What this package raises for a spider to catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest, StopDownload

if TYPE_CHECKING:
    from scrapy.http import Response


class RevalidationError(Exception):
    """Whether a page has moved could not be found out; nothing is known about it, least of all that it has not."""

    def __init__(self, url: str, reason: str, response: Response | None = None) -> None:
        """Say which page, and why; ``response`` is the answer, if there was one."""
        super().__init__(f"could not find out whether {url} has moved: {reason}")
        self.url = url
        self.reason = reason
        self.response = response


class RequestCancelledError(StopDownload, IgnoreRequest):
    """A request was cancelled by its ``pacing_signal``.

    An `IgnoreRequest` for whoever gets it. It is a `StopDownload` too, since that is what ends a download under way.
    """

    def __init__(self, url: str) -> None:
        super().__init__(fail=True)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} was cancelled by its pacing_signal"
