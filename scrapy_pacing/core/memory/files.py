"""Files that hold credentials: private from their first byte, replaced whole or not at all, never through a link.

Everything here blocks and may raise OSError; it is called in a thread.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Writing in pieces of this size gives other threads their turn; one join of a big file would take tens of milliseconds.
_PIECE = 1 << 18
# On Windows a file can't be replaced while somebody reads it, and reading it takes about this long.
_REPLACE_TRIES = 10
_REPLACE_PAUSE = 0.05
_KEPT_ASIDE = 3
# The bits that not every platform has.
_FOLLOW_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class NotRegularError(OSError):
    """The path holds something that is not a regular file of its own: a link, a directory, a device."""


def check_regular(path: Path) -> os.stat_result | None:
    """Return the state of a regular file, or None if nothing is there; raises `NotRegularError` for anything else."""
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(state.st_mode):
        raise NotRegularError(f"{path} is a symbolic link, through which no credentials are read or written")
    if not stat.S_ISREG(state.st_mode):
        raise NotRegularError(f"{path} is not a regular file")
    return state


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file for reading, or return None if nothing is there."""
    if check_regular(path) is None:
        return None
    try:
        # Not blocking, in case a pipe has taken the file's place since.
        descriptor = os.open(path, os.O_RDONLY | _FOLLOW_NO_LINK | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    return os.fdopen(descriptor, "rb", buffering=_PIECE)


def make_private_directory(path: Path) -> None:
    """Make a directory and what is missing above it, open to nobody else; leaves existing ones as they are."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)


@contextmanager
def locked(path: Path, *, wait: float) -> Iterator[None]:
    """Hold the lock that belongs to ``path``; raises `filelock.Timeout` if it can't be had in ``wait`` seconds.

    The lock is the operating system's: it ends with the process that holds it, however that ends.
    """
    with FileLock(f"{path}.lock", timeout=wait, mode=0o600):
        yield


def replace_file(path: Path, content: Iterable[bytes], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Put ``content`` in the place of ``path``, whole or not at all, readable by its owner alone.

    Call it while the lock is held. Whatever goes wrong, the old file is as it was and no temporary one is left.
    """
    remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FOLLOW_NO_LINK, 0o600)
    try:
        try:
            _write(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        replace_patiently(temporary, path, sleep=sleep)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_directory(path.parent)


def replace_patiently(source: Path, target: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Rename a file over another, and try again for half a second while somebody's reading forbids it."""
    for tries_left in range(_REPLACE_TRIES - 1, -1, -1):
        try:
            source.replace(target)
        except PermissionError:  # noqa: PERF203 - a handful of tries
            if not tries_left:
                raise
            sleep(_REPLACE_PAUSE)
        else:
            return


def remove_leftovers(path: Path) -> None:
    """Remove what writers that were killed have left. While the lock is held nobody else has a temporary file."""
    prefix = f".{path.name}."
    with os.scandir(path.parent) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix) and entry.name.endswith(".tmp")]
    for leftover in found:
        with suppress(OSError):
            leftover.unlink()


def name_aside(path: Path, why: str) -> Path:
    """Return a name beside ``path`` for a file that is moved out of the way: a free one of three, or the oldest."""
    names = [path.with_name(f"{path.name}.{why}-{number}") for number in range(1, _KEPT_ASIDE + 1)]
    for name in names:
        if not os.path.lexists(name):
            return name
    return min(names, key=lambda name: name.lstat().st_mtime)


def keep_copy(path: Path, copy: Path) -> None:
    """Keep the present content of ``path`` under a second name; ``path`` itself stays where it is."""
    with suppress(FileNotFoundError):
        copy.unlink()
    try:
        os.link(path, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        # A file system without hard links.
        data = path.read_bytes()
        descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FOLLOW_NO_LINK, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    with suppress(OSError):
        copy.chmod(0o600)


def _write(descriptor: int, content: Iterable[bytes]) -> None:
    pending: list[bytes] = []
    size = 0
    for part in content:
        pending.append(part)
        size += len(part)
        if size >= _PIECE:
            _write_all(descriptor, b"".join(pending))
            pending, size = [], 0
    _write_all(descriptor, b"".join(pending))


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    """Make the renaming last. Not every platform can; the file is whole either way."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
