"""What belongs to a site rather than to a spider, shared by all crawls of a process.

Two spiders on one site are one visitor: they have one clock, one gate, one learned interval and one memory between them.

The rules:

1. Crawls that remember in the same directory share a state, whichever project or spider they come from. So do those
   that remember nothing. A crawl with ``PACING_STATE`` has the one that it names.
2. A state outlives its last crawl: the next one must not start before the last one's gap has passed. Of states that
   no crawl uses a few are kept, and the longest unused goes first.
3. Making a state does file work (it loads the memory), and happens when a crawl is set up; importing does none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .arriving.doors import FrontDoors
from .core.memory import FILE_NAME, Memory
from .core.pacer import Pacer
from .core.policy import PacingPolicy, PolicyBook
from .core.trail import Trail
from .exits.shared import SharedExits
from .gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scrapy.crawler import Crawler

    # typing.Self came with Python 3.11
    from typing_extensions import Self

    from .settings import PacingSettings

# How many states that no crawl uses are kept.
_KEPT_UNUSED = 16


class SharedState:
    """What a set of crawls shares: pacer, gate, memory, and the policies that these crawls have brought.

    A crawl finds its own by ``PACING_DATA_DIR``. To give a site a state of its own, make one and name it in the
    setting ``PACING_STATE``; with one `Memory` for all of them, everything learned still lies in one file.

    >>> state = SharedState.create(PacingPolicy(interval=10))
    >>> state.pacer.interval("https://example.com")
    10
    """

    def __init__(self, pacer: Pacer, *, memory: Memory | None = None, max_origins: int = 4096) -> None:
        """Make a state around a pacer; ``memory`` is None for one that forgets. See `create` for the usual way."""
        self.pacer = pacer
        self.gate = Gate(pacer)
        self.exits = SharedExits(self.gate, pacer.clock)
        self.memory = memory
        self.trail = Trail(max_origins=max_origins)
        self.doors = FrontDoors(pacer.clock, max_doors=max_origins)
        self.exits.on_rotation(self.trail.forget)
        self._books: dict[object, PolicyBook] = {}

    @classmethod
    def create(
        cls,
        policy: PacingPolicy | PolicyBook | None = None,
        *,
        memory: Memory | None = None,
        max_origins: int = 4096,
    ) -> Self:
        """Make a state with a pacer that starts from what ``memory`` holds, and writes there what it learns.

        ``memory`` stays the caller's; several states may share it. Raises ValueError if ``max_origins`` is below 1.
        """
        book = policy if isinstance(policy, PolicyBook) else PolicyBook(policy or PacingPolicy())
        pacer = Pacer(book.general, overrides=book.overrides, lessons=memory, max_origins=max_origins)
        return cls(pacer, memory=memory, max_origins=max_origins)

    @property
    def crawls(self) -> int:
        """How many crawls take part at present."""
        return len(self._books)

    def on_rotation(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with an origin whenever evidence has ended its lease of an exit."""
        self.exits.on_rotation(callback)

    def join(self, owner: object, policies: PolicyBook) -> None:
        """Let a crawl take part under its own policies; to a site that several crawl, the slowest one's hold."""
        self._books[owner] = policies
        self.pacer.share(list(self._books.values()))

    def leave(self, owner: object) -> None:
        """Let a crawl go: its waits end, its policies go, and the others keep everything."""
        self.gate.close(owner)
        self.doors.leave(owner)
        if self._books.pop(owner, None) is not None and self._books:
            self.pacer.share(list(self._books.values()))

    def __repr__(self) -> str:
        return f"<SharedState of {self.crawls} crawls, {self.memory!r}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the very same state: Scrapy copies settings deeply, and a copy would share nothing."""
        return self


# By real directory; None is the state of crawls that remember nothing. In the order of their last use.
_states: dict[str | None, SharedState] = {}
_of_crawler: WeakKeyDictionary[Crawler, SharedState] = WeakKeyDictionary()


def state_of(crawler: Crawler, settings: PacingSettings) -> SharedState:
    """Return the state that ``crawler`` shares with others, made if there is none yet."""
    state = _of_crawler.get(crawler)
    if state is None:
        state = _of_crawler[crawler] = _given(crawler, settings) or _of_directory(settings)
    return state


def known_state_of(crawler: Crawler) -> SharedState | None:
    """Return the state of a crawl that has pacing switched on, or None."""
    return _of_crawler.get(crawler)


def _given(crawler: Crawler, settings: PacingSettings) -> SharedState | None:
    given = settings.state
    if given is None or isinstance(given, SharedState):
        return given
    state = given(crawler)
    if not isinstance(state, SharedState):
        raise ValueError(f"PACING_STATE returned {state!r}; allowed: a SharedState")
    return state


def _of_directory(settings: PacingSettings) -> SharedState:
    directory = settings.data_dir
    key = None if directory is None else os.path.realpath(directory)
    state = _states.pop(key, None)
    if state is None:
        state = SharedState.create(
            settings.policies,
            memory=None if directory is None else _open_memory(directory, settings),
            max_origins=settings.max_origins,
        )
        _drop_unused()
    _states[key] = state
    return state


def _open_memory(directory: Path, settings: PacingSettings) -> Memory:
    return Memory.open(
        directory / FILE_NAME,
        max_origins=settings.max_origins,
        forget_after=settings.forget_after,
        max_validators=settings.max_validators,
    )


def _drop_unused() -> None:
    unused = [key for key, state in _states.items() if not state.crawls]
    for key in unused[: max(0, len(unused) - _KEPT_UNUSED)]:
        memory = _states.pop(key).memory
        if memory is not None:
            memory.close()
