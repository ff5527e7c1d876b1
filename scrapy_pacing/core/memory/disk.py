"""Loading and saving: what happens between the records in memory and the file, and what to say when it goes wrong.

The rules:

1. Nothing that the file system or the file's content does leaves here as an exception.
2. A file is replaced only under the lock, after what others have written since was merged.
3. What can't be read is moved aside, not written over.
4. Each kind of trouble is told once.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from filelock import Timeout

from . import files, format as form

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .shelf import Shelf

_MOST_NOTICES = 32


class Disk:
    """One file, and the `Shelf` that is kept in it."""

    def __init__(self, path: Path, shelf: Shelf, *, lock_wait: float, most_bytes: int) -> None:
        self.path = path
        self._shelf = shelf
        self._lock_wait = lock_wait
        self._most_bytes = most_bytes
        self._mark: str | None = None
        self._newer_aside = path.with_name(f"{path.name}.newer")
        self._aside_checked = False
        self._unreadable_kept = 0
        self._told: set[str] = set()
        self._notices: list[str] = []
        self._notices_lock = threading.Lock()

    def take_notices(self) -> list[str]:
        """Return what there is to say since the last call."""
        with self._notices_lock:
            taken, self._notices = self._notices, []
        return taken

    def load(self) -> None:
        """Read the file into the shelf, which starts empty. A file that can't be used leaves it empty."""
        try:
            self._shelf.absorb(self._read())
        except (form.UnreadableError, form.NewerError):
            # Only under the lock is it sure that this is not somebody else's newer, good file by now.
            self._guarded(self._load_again, "can't be read", "starting without what was remembered")
        except OSError as error:
            self.mention("load", f"can't be read ({error}); starting without what was remembered")
        self._mention_unreadable()

    def save(self) -> bool:
        """Write the shelf; return whether it is in the file now."""
        saved = self._guarded(self._save, "can't be saved", "what is learned stays in memory, and is tried again")
        self._mention_unreadable()
        return saved

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _load_again(self) -> None:
        self._absorb_or_set_aside(saving=False)

    def _save(self) -> None:
        if self._written_by_others():
            self._absorb_or_set_aside(saving=True)
        self._shelf.prepare()
        if self._shelf.unreadable > self._unreadable_kept and files.check_regular(self.path):
            files.keep_copy(self.path, files.name_aside(self.path, "broken"))
            self._unreadable_kept = self._shelf.unreadable
        mark = secrets.token_hex(8)
        files.replace_file(self.path, form.lines(mark, self._shelf.encoded()))
        self._mark = mark
        if not self._aside_checked:
            self._aside_checked = True
            with suppress(FileNotFoundError):
                self._newer_aside.unlink()

    def _absorb_or_set_aside(self, *, saving: bool) -> None:
        try:
            self._shelf.absorb(self._read())
        except form.UnreadableError as error:
            aside = files.name_aside(self.path, "broken")
            files.replace_patiently(self.path, aside)
            self.mention("broken", f"is broken ({error}); moved to {aside.name}, starting without what it held")
        except form.NewerError as error:
            if saving:
                # A later version has written it since this crawl began, and is perhaps at work: it must not lose.
                raise
            files.replace_patiently(self.path, self._newer_aside)
            self.mention(
                "newer",
                f"is from a later version ({error}); kept as {self._newer_aside.name} until the next save, "
                "starting without what it held",
            )

    def _written_by_others(self) -> bool:
        file = files.open_regular(self.path)
        if file is None:
            return False
        with file:
            return self._mark is None or form.read_mark(file) != self._mark

    def _read(self) -> list[tuple[str, bytes]]:
        file = files.open_regular(self.path)
        if file is None:
            return []
        with file:
            content = form.read(file, most_bytes=self._most_bytes)
        self._mark = content.save or None
        return content.records

    # -- trouble ------------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None], trouble: str, consequence: str) -> bool:
        """Do ``work`` under the lock; return whether it went well."""
        try:
            files.make_private_directory(self.path.parent)
            with files.locked(self.path, wait=self._lock_wait):
                work()
        except Timeout:
            self.mention(
                "lock", f"{trouble}: another process has held its lock for {self._lock_wait:g} s; {consequence}"
            )
        except form.NewerError as error:
            self.mention("newer", f"{trouble}: a later version has written it meanwhile ({error}); {consequence}")
        except OSError as error:
            self.mention(trouble, f"{trouble} ({error}); {consequence}")
        except Exception as error:  # noqa: BLE001 - a crawl must not end because of what it would like to remember
            self.mention(trouble, f"{trouble} ({type(error).__name__}: {error}); {consequence}")
        else:
            return True
        return False

    def _mention_unreadable(self) -> None:
        if self._shelf.unreadable:
            self.mention(
                "records", f"holds {self._shelf.unreadable} records of the wrong form; those origins start without"
            )

    def mention(self, kind: str, text: str) -> None:
        """Have `take_notices` say something about the file; each kind is said once."""
        with self._notices_lock:
            if kind not in self._told and len(self._notices) < _MOST_NOTICES:
                self._told.add(kind)
                self._notices.append(f"{os.fspath(self.path)} {text}")
