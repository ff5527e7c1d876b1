"""The file holds credentials: private, never through a link, and whole whatever the disk does."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest

from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Memory, files

ORIGIN = "https://example.com"
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and links are POSIX's")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "pacing" / "memory.json"


@pytest.fixture
def learned(path):
    memory = Memory(path, lock_wait=0.2)
    memory.record(ORIGIN, Learned(5.0))
    return memory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def leftovers(path: Path) -> list[str]:
    return [found.name for found in path.parent.iterdir() if found.name.endswith(".tmp")]


@posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_private_under_any_umask(learned, path, umask, monkeypatch):
    """File and lock are 0600 and the directories 0700 from the first byte, whatever the umask."""
    modes_while_writing = []
    write = os.write

    def watching(descriptor: int, data: bytes) -> int:
        modes_while_writing.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return write(descriptor, data)

    monkeypatch.setattr(files.os, "write", watching)
    before = os.umask(umask)
    try:
        assert learned.flush()
    finally:
        os.umask(before)
    assert set(modes_while_writing) == {0o600}
    assert mode(path) == 0o600
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    locks = list(path.parent.glob("*.lock"))
    assert all(mode(lock) & 0o077 == 0 for lock in locks)


@posix
def test_open_file_is_made_private(path):
    """A file that anybody could read is private after the next save."""
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"schema":1,"origins":{}}')
    path.chmod(0o644)
    memory = Memory(path)
    memory.record(ORIGIN, Learned(5.0))
    assert memory.flush()
    assert mode(path) == 0o600


@posix
def test_existing_directory_keeps_its_mode(path, learned):
    """A directory that the user has made is the user's."""
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o750)
    assert learned.flush()
    assert mode(path.parent) == 0o750


@posix
@pytest.mark.parametrize("dangling", [True, False])
def test_symbolic_link_is_refused(path, dangling):
    """No credentials are read or written through a link; the message says so."""
    path.parent.mkdir(parents=True)
    target = path.parent / "elsewhere"
    if not dangling:
        target.write_bytes(b'{"schema":1,"origins":{"https://example.org":{}}}')
    path.symlink_to(target)
    before = target.read_bytes() if not dangling else None
    memory = Memory(path)
    assert len(memory) == 0
    memory.record(ORIGIN, Learned(5.0))
    assert not memory.flush()
    assert not memory.flush()
    notices = memory.take_notices()
    assert 1 <= len(notices) <= 2
    assert all("is a symbolic link" in notice for notice in notices)
    assert path.is_symlink()
    assert (target.read_bytes() if target.exists() else None) == before


@posix
def test_link_that_appears_during_the_crawl_is_refused(path, learned):
    """The same for a link that is put there later."""
    assert learned.flush()
    path.unlink()
    path.symlink_to(path.parent / "elsewhere")
    learned.record(ORIGIN, Learned(6.0))
    assert not learned.flush()
    assert not (path.parent / "elsewhere").exists()
    assert path.is_symlink()
    assert "is a symbolic link" in learned.take_notices()[0]
    path.unlink()
    assert learned.flush()


def test_directory_in_place_of_the_file(path):
    """A directory stays what it is; one warning each for reading and saving, and the crawl goes on (I056)."""
    path.mkdir(parents=True)
    memory = Memory(path)
    memory.record(ORIGIN, Learned(5.0))
    assert not memory.flush()
    assert not memory.flush()
    assert len(memory.take_notices()) == 2
    assert memory.recall(ORIGIN) == Learned(5.0)
    assert path.is_dir()
    assert leftovers(path) == []


@posix
def test_pipe_in_place_of_the_file(path):
    """A pipe does not hang the start of a crawl."""
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert "not a regular file" in Memory(path).take_notices()[0]


def test_file_in_place_of_the_directory(path):
    """Where no directory can be, nothing is saved, and it is said once."""
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file")
    memory = Memory(path)
    memory.record(ORIGIN, Learned(5.0))
    assert not memory.flush()
    assert not memory.flush()
    assert 1 <= len(memory.take_notices()) <= 2


@posix
def test_full_disk(path):
    """The old file is intact, one warning, nothing left over, and the crawl goes on (I056)."""
    script = f"""
import resource, os
from pathlib import Path
from scrapy_pacing.core.memory import Memory
from scrapy_pacing.core.lessons import Learned
path = Path({str(path)!r})
memory = Memory(path)
memory.record("https://old.example", Learned(5.0))
assert memory.flush()
old = path.read_bytes()
for page in range(200):
    memory.record_validators(f"https://new.example/{{page}}", etag=os.urandom(200).hex().encode())
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
assert not memory.flush()
assert not memory.flush()
assert path.read_bytes() == old
assert [name for name in os.listdir(path.parent) if name.endswith(".tmp")] == []
(notice,) = memory.take_notices()
assert "can't be saved" in notice and "File too large" in notice, notice
assert memory.dirty
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert memory.flush()
assert Memory(path).validators("https://new.example/0")
print("fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout.strip(), done.stderr) == ("fine", "")


@posix
def test_read_only_directory():
    """One warning, the old file intact (I056)."""
    # In a process of its own, which gives up what root may do.
    script = """
import os, shutil, tempfile
from pathlib import Path
from scrapy_pacing.core.memory import Memory
from scrapy_pacing.core.lessons import Learned
home = Path(tempfile.mkdtemp())
warm = Memory(home / "warm" / "memory.json")
warm.record("https://warm.example", Learned(5.0))
assert warm.flush()
shutil.rmtree(home / "warm")
if os.geteuid() == 0:
    os.chown(home, 65534, 65534)
    os.setuid(65534)
path = home / "memory.json"
memory = Memory(path)
memory.record("https://example.com", Learned(5.0))
assert memory.flush(), memory.take_notices()
old = path.read_bytes()
home.chmod(0o500)
memory.record("https://example.com", Learned(6.0))
assert not memory.flush()
assert not memory.flush()
(notice,) = memory.take_notices()
assert "Permission denied" in notice, notice
assert path.read_bytes() == old
home.chmod(0o700)
assert memory.flush()
shutil.rmtree(home, ignore_errors=True)
print("fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert (done.stdout.strip(), done.stderr) == ("fine", "")


@pytest.mark.parametrize("failing", ["open", "fsync", "write"])
def test_any_refusal_of_the_disk(path, learned, failing, monkeypatch):
    """Whichever step the system refuses, the old file is intact and the next try may succeed."""
    assert learned.flush()
    old = path.read_bytes()
    learned.record(ORIGIN, Learned(6.0))

    def refuse(*args: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, failing, refuse)
        assert not learned.flush()
        assert not learned.flush()
    assert len(learned.take_notices()) == 1
    assert path.read_bytes() == old
    assert leftovers(path) == []
    assert learned.flush()
    assert Memory(path).recall(ORIGIN) == Learned(6.0)


def test_a_fault_of_our_own_stays_inside(learned, monkeypatch):
    """Not even a fault in the saving itself reaches the crawl."""
    monkeypatch.setattr(files, "replace_file", lambda *_: 1 / 0)
    assert not learned.flush()
    assert "ZeroDivisionError" in learned.take_notices()[0]
    assert learned.dirty


def test_reader_that_is_in_the_way_for_a_moment(tmp_path, monkeypatch):
    """A replacement that is refused while somebody reads is tried again (I061)."""
    refusals = [PermissionError(), PermissionError()]
    replace = Path.replace

    def sometimes(source: Path, target: Path) -> Path:
        if refusals:
            raise refusals.pop()
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", sometimes)
    pauses: list[float] = []
    target = tmp_path / "file"
    files.replace_file(target, [b"new"], sleep=pauses.append)
    assert target.read_bytes() == b"new"
    assert len(pauses) == 2


def test_reader_that_is_in_the_way_for_ever(tmp_path, monkeypatch):
    """After half a second it is given up, and the old file and no other is there (I061)."""
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def never(source: Path, target: Path) -> Path:
        raise PermissionError(errno.EACCES, "in use")

    monkeypatch.setattr(Path, "replace", never)
    pauses: list[float] = []
    with pytest.raises(PermissionError):
        files.replace_file(target, [b"new"], sleep=pauses.append)
    assert sum(pauses) <= 1.0
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"old"


def test_leftovers_of_the_killed_are_removed(path, learned):
    """What a kill -9 during a save has left is gone after the next one; other files stay."""
    path.parent.mkdir(parents=True)
    (path.parent / ".memory.json.0123.tmp").write_bytes(b"half")
    (path.parent / ".other.json.0123.tmp").write_bytes(b"another's")
    assert learned.flush()
    assert leftovers(path) == [".other.json.0123.tmp"]


def test_lock_that_is_held_elsewhere(path, learned):
    """Who can't have the lock says so once, keeps what was learned and succeeds later (I059)."""
    path.parent.mkdir(parents=True)
    with filelock.FileLock(f"{path}.lock", thread_local=False), ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(learned.flush).result() is False
        assert elsewhere.submit(learned.flush).result() is False
        (notice,) = learned.take_notices()
        assert "another process has held its lock for 0.2 s" in notice
        assert learned.dirty
        assert not path.exists()
    assert learned.flush()


@pytest.mark.parametrize("junk", [b"", b"junk", b"4194305\n", bytes(range(256))])
def test_lock_file_of_the_dead(path, learned, junk):
    """A lock file that a crash has left, whatever it holds, is no lock (I059)."""
    path.parent.mkdir(parents=True)
    Path(f"{path}.lock").write_bytes(junk)
    assert learned.flush()
    assert learned.take_notices() == []


def test_locks_that_the_system_does_not_know(path, learned, monkeypatch):
    """Where locking is not supported, the save fails with a word and not with a crash (I059)."""

    class NoLock:
        def __init__(self, *args: object, **options: object) -> None: ...

        def __enter__(self) -> None:
            raise NotImplementedError("no locks on this file system")

        def __exit__(self, *args: object) -> None: ...

    monkeypatch.setattr(files, "FileLock", NoLock)
    assert not learned.flush()
    assert "no locks on this file system" in learned.take_notices()[0]
