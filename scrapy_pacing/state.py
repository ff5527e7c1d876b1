"""What belongs to a site rather than to a spider, shared by all crawls of a process.

Two spiders on one site are one visitor: they have one clock, one gate and one learned interval between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .core.pacer import Pacer
from .gate import Gate

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from .core.policy import PolicyBook
    from .settings import PacingSettings


class SharedState:
    """The pacer and the gate of a set of crawls, and the policies that these crawls have brought."""

    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer
        self.gate = Gate(pacer)
        self._books: dict[object, PolicyBook] = {}

    def join(self, owner: object, policies: PolicyBook) -> None:
        """Let a crawl take part under its own policies; to a site that several crawl, the slowest one's hold."""
        self._books[owner] = policies
        self.pacer.share(list(self._books.values()))

    def leave(self, owner: object) -> None:
        """Let a crawl go: its waits end, its policies go, and the others keep everything."""
        self.gate.close(owner)
        if self._books.pop(owner, None) is not None and self._books:
            self.pacer.share(list(self._books.values()))


# Kept as long as the process: the next crawl of a site must not start before the last one's gap has passed.
_process_state: SharedState | None = None
_of_crawler: WeakKeyDictionary[Crawler, SharedState] = WeakKeyDictionary()


def state_of(crawler: Crawler, settings: PacingSettings) -> SharedState:
    """Return the state that ``crawler`` shares with the other crawls of this process."""
    global _process_state  # noqa: PLW0603 - one per process is what it is for
    state = _of_crawler.get(crawler)
    if state is None:
        if _process_state is None:
            _process_state = SharedState(
                Pacer(
                    settings.policies.general,
                    overrides=settings.policies.overrides,
                    max_origins=settings.max_origins,
                )
            )
        state = _of_crawler[crawler] = _process_state
    return state
