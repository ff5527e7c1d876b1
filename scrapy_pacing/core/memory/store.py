"""`Memory`: what a crawl knows of each site, kept from one run to the next.

The rules:

1. Recording and recalling never touch the disk. Making a `Memory` and `Memory.flush` do; call
   `flush` in a thread, as often as wanted, while the crawl goes on recording.
2. After construction nothing raises: what can't be loaded or saved is told by `take_notices`, and what can't be kept
   (too long, not of http, of no finite number) is not kept.
3. Everything is bounded: origins by age, then by number; what belongs to one origin by number; texts by length.
4. In one process there is one store for a path (`Memory.open`). Between processes, saving merges.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy_pacing.core.clock import Clock, SystemClock

from .disk import Disk
from .pages import Pages
from .records import Limits
from .shelf import Bounds, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

_MEBIBYTE = 1 << 20


class Memory(Pages):
    """Remembers sites in one file.

    Times are wall-clock seconds. See `Facts` and `Pages` for what can be recorded and recalled.

    >>> import tempfile
    >>> from scrapy_pacing.core.layers import Layer
    >>> path = Path(tempfile.mkdtemp()) / "memory.json"
    >>> memory = Memory(path)
    >>> memory.record_layer("https://example.com", Layer.HEADERS)
    >>> memory.flush()
    True
    >>> Memory(path).layer("https://example.com")
    <Layer.HEADERS: 3>
    """

    _stores: ClassVar[dict[Path, Memory]] = {}
    _stores_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        max_origins: int = 4096,
        forget_after: float = 7 * 86_400.0,
        max_validators: int = 512,
        max_endpoints: int = 64,
        max_decoys: int = 512,
        max_megabytes: int = 256,
        lock_wait: float = 5.0,
    ) -> None:
        """Make a store and load what ``path`` holds; see `Memory.open` for one that a process shares.

        ``forget_after`` is in seconds since an origin was last seen. ``max_validators``, ``max_endpoints`` and
        ``max_decoys`` hold for each origin. ``lock_wait`` is how many seconds a save waits for another process.
        Raises ValueError for a number that is out of range, and nothing else.
        """
        for name, value in (
            ("max_origins", max_origins),
            ("max_validators", max_validators),
            ("max_endpoints", max_endpoints),
            ("max_decoys", max_decoys),
            ("max_megabytes", max_megabytes),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; allowed: whole numbers from 1")
        for name, seconds, least in (("forget_after", forget_after, 1e-3), ("lock_wait", lock_wait, 0.0)):
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not least <= seconds < math.inf:
                raise ValueError(f"{name} is {seconds!r}; allowed: {least:g} or more seconds")
        self.path = _real_path(path)
        self._clock: Clock = clock or SystemClock()
        self._shown = {}
        self._limits = Limits(max_validators, max_endpoints, max_decoys)
        most_bytes = max_megabytes * _MEBIBYTE
        self._shelf = Shelf(self._clock, Bounds(max_origins, forget_after, most_bytes, self._limits))
        # What another process with other bounds has written is read all the same.
        self._disk = Disk(self.path, self._shelf, lock_wait=lock_wait, most_bytes=4 * most_bytes)
        self._forget_after = forget_after
        self._lock_wait = lock_wait
        self._saving = threading.Lock()
        self._saved_changes = 0
        self._users = 0
        self._options: dict[str, Any] = {}
        self._flushes_at_exit = False
        self._watchers: list[Callable[[], None]] = []
        self._disk.load()

    def __repr__(self) -> str:
        return f"<Memory of {len(self)} origins in {os.fspath(self.path)!r}{', dirty' if self.dirty else ''}>"

    # -- one store for a path -----------------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Memory:
        """Return this process's store for a path, made with ``options`` if there is none yet.

        Call `close` once for each call of this.
        """
        real = _real_path(path)
        with cls._stores_lock:
            store = cls._stores.get(real)
            if store is None:
                store = cls._stores[real] = cls(real, **options)
                store._options = options
            elif options != store._options:
                store._disk.mention("options", "is open already; the options of who opened it first hold")
            store._users += 1
            return store

    def close(self) -> bool:
        """End one use; the last one saves, and blocks meanwhile. Return whether all that was learned is in the file.

        The store can still be used afterwards, and is then flushed by hand or when the interpreter exits.
        """
        with self._stores_lock:
            self._users = max(0, self._users - 1)
            if self._users:
                return True
            if self._stores.get(self.path) is self:
                del self._stores[self.path]
        return self.flush()

    # -- saving -------------------------------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Whether something was learned that is not in the file."""
        return self._shelf.changes != self._saved_changes

    def flush(self) -> bool:
        """Save what was learned, merged with what others have saved; return whether it is in the file.

        Blocks: call it in a thread. The crawl may go on recording meanwhile. Does nothing if nothing was learned.
        Raises nothing; `take_notices` says what went wrong.
        """
        if not self._saving.acquire(timeout=2 * self._lock_wait + 10):
            return False
        try:
            with self._shelf.guard:
                if not self.dirty:
                    self._flush_at_exit(False)
                    return True
            if not self._disk.save():
                return False
            with self._shelf.guard:
                self._saved_changes = self._shelf.prepared_changes
                if self._saved_changes == self._shelf.changes:
                    self._flush_at_exit(False)
            return True
        finally:
            self._saving.release()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` whenever something is learned while nothing waited to be saved; see `dirty` for the rest.

        It is called by whoever records, in that thread, and must be cheap.
        """
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Stop calling ``watcher``; does nothing if it is not watching."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def take_notices(self) -> list[str]:
        """Return, once, what there is to tell the user: a file that was broken, a save that failed."""
        return self._disk.take_notices()

    def _changed(self) -> None:
        if not self._flushes_at_exit:
            self._flush_at_exit(True)
            for watcher in list(self._watchers):
                watcher()

    def _flush_at_exit(self, wanted: bool) -> None:
        """Have `atexit` keep hold of this store while it has something to save, and no longer."""
        with self._shelf.guard:
            if wanted == self._flushes_at_exit:
                return
            self._flushes_at_exit = wanted
            if wanted:
                atexit.register(self._at_exit)
            else:
                atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        self.flush()
        # Nobody is left to ask for them.
        for notice in self.take_notices():
            logging.getLogger("scrapy_pacing").warning("%s", notice)


def _real_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that is the same for each way of naming a file; a link in the file's own place is kept."""
    path = Path(path).absolute()
    return Path(os.path.realpath(path.parent)) / path.name
