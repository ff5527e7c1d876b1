"""The records in memory: decoded when they are first asked for, encoded again only when they have changed.

The crawl's thread reads and changes records while another thread saves. Each step that touches a record holds the
guard, and no step is longer than the coding of one record, so the crawl never waits for a save.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import records, texts
from .records import Limits, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy_pacing.core.clock import Clock

# A visit counts as a change of the file only if the one that is noted there is older than this.
_SEEN_STEP = 60.0


class _Entry:
    """One origin: its record, its record's bytes, or both where they say the same."""

    __slots__ = ("hold_until", "raw", "record", "seen", "used")

    def __init__(self, record: Record | None, raw: bytes | None, seen: float, hold_until: float) -> None:
        self.record = record
        self.raw = raw
        self.seen = seen
        self.hold_until = hold_until
        self.used = True


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept; ``forget_after`` in seconds."""

    origins: int
    forget_after: float
    bytes: int
    limits: Limits


class Shelf:
    """Records by origin, bounded, safe to use from several threads. Does no file work."""

    def __init__(self, clock: Clock, bounds: Bounds) -> None:
        self.guard = threading.RLock()
        self.changes = 0
        """Grows with every change; a saver compares."""
        self.prepared_changes = 0
        """What `changes` was when `prepare` ended: what is encoded after that contains them."""
        self.unreadable = 0
        """How many records of the file had to be dropped because they were not of the right type."""
        self._clock = clock
        self._bounds = bounds
        self._entries: dict[str, _Entry] = {}
        # What a file dates into the future counts as learned when the file was last read: before anything since.
        self._read_at = clock.wall()

    def __len__(self) -> int:
        return len(self._entries)

    def origins(self) -> list[str]:
        """Return the origins of which something is known, the least recently seen first."""
        with self.guard:
            return sorted(self._entries, key=lambda origin: self._entries[origin].seen)

    # -- one record; the guard must be held as long as what is returned is in use -------------------------------------

    def find(self, origin: str) -> Record | None:
        """Return the record of an origin, or None."""
        entry = self._entries.get(origin)
        if entry is None:
            return None
        if self._is_stale(entry, self._clock.wall()):
            # Older than anybody wants to know, though no save has come by to drop it yet.
            del self._entries[origin]
            self.changes += 1
            return None
        entry.used = True
        return self._open(origin, entry)

    def edit(self, origin: str) -> Record:
        """Return the record of an origin for a change that follows now; makes one if there is none."""
        record = self.find(origin)
        now = self._clock.wall()
        if record is None:
            if len(self._entries) >= self._bounds.origins + self._bounds.origins // 8 + 1:
                self._drop_surplus(now)
            record = Record()
            self._entries[origin] = _Entry(record, None, now, 0.0)
        entry = self._entries[origin]
        entry.raw = None
        entry.seen = now
        self.changes += 1
        return record

    def seen(self, origin: str) -> float | None:
        """Return when an origin was last seen, or None."""
        entry = self._entries.get(origin)
        return None if entry is None else min(entry.seen, self._clock.wall())

    def touch(self, origin: str) -> None:
        """Note that an origin is seen now."""
        record = self.find(origin)
        now = self._clock.wall()
        if record is None or not 0.0 <= now - record.seen < _SEEN_STEP:
            self.edit(origin).seen = now
        else:
            self._entries[origin].seen = now

    def note_hold(self, origin: str, until: float) -> None:
        """Let pruning know of a hold that was just put into the record."""
        self._entries[origin].hold_until = until

    # -- all of them, for loading and saving; these take the guard themselves, a record at a time ---------------------

    def absorb(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """Merge what a file says into what is known here."""
        now = self._clock.wall()
        for origin, raw in pairs:
            with self.guard:
                self._absorb(origin, raw, now)
        with self.guard:
            self._drop_surplus(now)
            self._read_at = now

    def prepare(self) -> None:
        """Encode what has changed, and drop what is too old or too much."""
        now = self._clock.wall()
        with self.guard:
            self._drop_surplus(now)
            origins = list(self._entries)
        total = 0
        for origin in origins:
            with self.guard:
                total += len(self._encoded(origin))
                self._cool(origin)
        if total > self._bounds.bytes:
            with self.guard:
                self._drop_bytes(total - self._bounds.bytes, now)
        with self.guard:
            self.prepared_changes = self.changes

    def encoded(self) -> Iterator[tuple[str, bytes]]:
        """Return all records as bytes, each as it is at the moment when its turn comes."""
        with self.guard:
            origins = list(self._entries)
        for origin in origins:
            with self.guard:
                raw = self._encoded(origin)
            if raw:
                yield origin, raw

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open(self, origin: str, entry: _Entry) -> Record | None:
        """Decode an entry's record if that hasn't been done; None, and no entry any more, if it can't be read."""
        if entry.record is None and entry.raw is not None:
            try:
                record = records.decode(entry.raw)
            except (ValueError, RecursionError):
                self._drop_unreadable(origin)
                return None
            if records.settle(record, now=self._clock.wall(), latest=self._read_at):
                entry.raw = None
                self.changes += 1
            records.trim(record, self._bounds.limits)
            entry.record = record
        return entry.record

    def _absorb(self, origin: str, raw: bytes, now: float) -> None:
        entry = self._entries.get(origin)
        if entry is not None and entry.raw == raw:
            return
        if not texts.fits(origin, texts.LONGEST_URL):
            self._drop_unreadable(None)
            return
        try:
            glance = records.glance(raw)
            hold = records.settled_hold(glance.hold, now)
            fresh = _Entry(None, raw, min(glance.seen, now), hold.until if hold else 0.0)
            if entry is None:
                self._entries[origin] = fresh
                # Dated into the future, or laid out by somebody's editor: to be written in our own way.
                if glance.seen > now or hold is not glance.hold or b"\n" in raw or b"\r" in raw:
                    self._rewrite(origin, fresh)
                return
            theirs = records.decode(raw)
        except (ValueError, RecursionError):
            self._drop_unreadable(None)
            return
        ours = self._open(origin, entry)
        if ours is None:
            self._entries[origin] = fresh
            return
        records.settle(theirs, now=now, latest=min(self._read_at, now))
        ours.seen = entry.seen
        merged = records.merge(ours, theirs)
        records.trim(merged, self._bounds.limits)
        entry.record, entry.raw = merged, None
        entry.seen = merged.seen
        entry.hold_until = merged.hold.until if merged.hold else 0.0

    def _rewrite(self, origin: str, entry: _Entry) -> None:
        if self._open(origin, entry) is not None:
            entry.raw = None
            self.changes += 1

    def _drop_unreadable(self, origin: str | None) -> None:
        if origin is not None:
            del self._entries[origin]
        self.unreadable += 1
        self.changes += 1

    def _encoded(self, origin: str) -> bytes:
        entry = self._entries.get(origin)
        if entry is None:
            return b""
        if entry.raw is None and entry.record is not None:
            record = entry.record
            record.seen = entry.seen
            if record.hold is not None and record.hold.until <= self._clock.wall():
                record.hold = None
            entry.raw = records.encode(record)
        return entry.raw or b""

    def _cool(self, origin: str) -> None:
        """Keep only the bytes of a record that nobody has asked for since the last save: they are a tenth of it."""
        entry = self._entries.get(origin)
        if entry is not None:
            if not entry.used:
                entry.record = None
            entry.used = False

    def _is_stale(self, entry: _Entry, now: float) -> bool:
        return now - entry.seen > self._bounds.forget_after and entry.hold_until <= now

    def _drop_surplus(self, now: float) -> None:
        """Drop by age, then by number; origins that hold go last, the hold that ends soonest first."""
        stale = [origin for origin, entry in self._entries.items() if self._is_stale(entry, now)]
        for origin in stale:
            del self._entries[origin]
        surplus = len(self._entries) - self._bounds.origins
        if surplus > 0:
            for origin in self._by_worth(now)[:surplus]:
                del self._entries[origin]
        if stale or surplus > 0:
            self.changes += 1

    def _drop_bytes(self, surplus: int, now: float) -> None:
        for origin in self._by_worth(now):
            if surplus <= 0:
                return
            surplus -= len(self._entries.pop(origin).raw or b"")

    def _by_worth(self, now: float) -> list[str]:
        def worth(origin: str) -> tuple[float, float]:
            entry = self._entries[origin]
            return max(0.0, entry.hold_until - now), min(entry.seen, now)

        return sorted(self._entries, key=worth)
