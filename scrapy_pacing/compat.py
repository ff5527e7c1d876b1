"""Where Scrapy is touched beneath its public API: each place once, with the reason.

Checked on Scrapy 2.14 to 2.19. Scrapy's open work on throttling (its pull request 6931) may give a public way to both;
then only this file changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler


def _engine_slot(crawler: Crawler) -> Any:
    return getattr(getattr(crawler, "engine", None), "_slot", None)


def wake_engine(crawler: Crawler) -> None:
    """Let the engine ask its scheduler again in the next turn of the loop.

    The engine asks after each event of its own, and else at a heartbeat of 5 seconds; a scheduler that has said "not
    yet" has no public way to say "now". Does nothing before the spider is open and after it has closed.
    """
    slot = _engine_slot(crawler)
    if slot is not None and slot.closing is None:
        slot.nextcall.schedule()


def on_closing(crawler: Crawler, callback: Callable[[], None]) -> None:
    """Call ``callback`` once, at the moment when the spider is decided to close.

    All ways of closing meet in the ``close()`` of the engine's slot, before it waits for the requests under way. No
    signal is sent there: ``spider_closed`` comes after that wait, so a component that makes requests wait must know
    earlier. Call it when the spider is open; with an engine of another make it does nothing, and `is_closing` tells.
    """
    slot = _engine_slot(crawler)
    if slot is None or not hasattr(slot, "close"):
        return
    close = slot.close

    def close_and_tell() -> Any:
        slot.close = close
        # First the drain is begun (it marks the slot as closing), then the waits are ended, so that nothing that is
        # given back can be popped again.
        draining = close()
        callback()
        return draining

    slot.close = close_and_tell


def is_closing(crawler: Crawler) -> bool:
    """Return whether the spider is closing or closed."""
    slot = _engine_slot(crawler)
    return slot is not None and slot.closing is not None
