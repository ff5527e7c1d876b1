"""Two stores on one path lose nothing; one process has one; a crash costs what was not yet saved."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scrapy_pacing.core.layers import Layer
from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Cookie, Memory
from scrapy_pacing.testing import FakeClock

ORIGIN = "https://example.com"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.json"


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)


def test_two_stores_learn_different_sites(path, clock):
    """The one that saves last does not wipe what the other has saved (I058)."""
    one, two = Memory(path, clock=clock), Memory(path, clock=clock)
    one.record("https://one.example", Learned(5.0))
    two.record("https://two.example", Learned(6.0))
    assert one.flush()
    assert two.flush()
    assert len(Memory(path, clock=clock)) == 2
    assert two.recall("https://one.example") == Learned(5.0)


def test_two_stores_learn_about_one_site(path, clock):
    """Of each field the file has what was learned last, whoever learned it and in whatever order they save."""
    one, two = Memory(path, clock=clock), Memory(path, clock=clock)
    one.record(ORIGIN, Learned(5.0))
    two.record_layer(ORIGIN, Layer.HEADERS)
    two.record_validators(f"{ORIGIN}/b", etag=b'"2"')
    clock.advance(1)
    two.record(ORIGIN, Learned(6.0))
    one.record_layer(ORIGIN, Layer.BROWSER)
    one.record_validators(f"{ORIGIN}/a", etag=b'"1"')
    one.record_clearance(ORIGIN, [Cookie("c", "v")], user_agent="u")
    one.mark_decoy(f"{ORIGIN}/trap")
    for store in (two, one, two):
        store.record_visit("https://other.example")
        clock.advance(61)
        store.record_visit("https://other.example")
        assert store.flush()
    for store in (two, Memory(path, clock=clock)):
        assert store.recall(ORIGIN) == Learned(6.0)
        assert store.layer(ORIGIN) is Layer.BROWSER
        assert store.validators(f"{ORIGIN}/a").etag == b'"1"'
        assert store.validators(f"{ORIGIN}/b").etag == b'"2"'
        assert store.clearance(ORIGIN, user_agent="u")
        assert store.is_decoy(f"{ORIGIN}/trap")


def test_a_hold_that_another_process_was_given(path, clock):
    """A Retry-After that one process met is not lost by what another learns later (I064)."""
    one, two = Memory(path, clock=clock), Memory(path, clock=clock)
    one.record(ORIGIN, Learned(60.0, clock.wall() + 60, 60.0))
    assert one.flush()
    clock.advance(10)
    two.record(ORIGIN, Learned(5.0))
    assert two.flush()
    assert Memory(path, clock=clock).recall(ORIGIN) == Learned(5.0, clock.wall() + 50, 60.0)


def test_saving_when_nothing_was_learned_touches_nothing(path, clock):
    """A run that only read leaves no trace in the directory."""
    memory = Memory(path, clock=clock)
    memory.recall(ORIGIN)
    assert memory.flush()
    assert list(path.parent.iterdir()) == []


def test_saving_again_after_each_change(path, clock):
    """A change is dirty until it is saved, and what is learned during a save is saved by the next."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0))
    assert memory.dirty
    assert memory.flush()
    assert not memory.dirty
    before = path.read_bytes()
    assert memory.flush()
    assert path.read_bytes() == before
    memory.record(ORIGIN, Learned(6.0))
    assert memory.dirty


def test_what_is_learned_during_a_save_is_saved_by_the_next(path, clock, monkeypatch):
    """A lesson that comes while the file is already being written counts as not saved yet."""
    memory = Memory(path, clock=clock)
    memory.record(ORIGIN, Learned(5.0))

    def synchronising(descriptor: int) -> None:
        memory.record(ORIGIN, Learned(6.0))

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", synchronising)
        assert memory.flush()
    assert memory.dirty
    assert Memory(path, clock=clock).recall(ORIGIN) == Learned(5.0)
    assert memory.flush()
    assert Memory(path, clock=clock).recall(ORIGIN) == Learned(6.0)


def test_bounds_hold_after_a_merge(path, clock):
    """Two stores that have each filled up leave no more pages than one may have, the last recorded."""
    one, two = (Memory(path, clock=clock, max_validators=4) for _ in range(2))
    for page in range(4):
        for store, name in ((one, "one"), (two, "two")):
            store.record_validators(f"{ORIGIN}/{name}-{page}", etag=b'"x"')
            clock.advance(1)
    assert one.flush()
    assert two.flush()
    written = json.loads(path.read_bytes())["origins"][ORIGIN]["validators"]
    assert sorted(written) == ["/one-2", "/one-3", "/two-2", "/two-3"]


def test_learning_while_a_thread_saves(path):
    """Nothing is lost or torn when the crawl records while another thread saves over and over."""
    memory = Memory(path)
    stop = threading.Event()
    results: list[bool] = []

    def save() -> None:
        while not stop.is_set():
            results.append(memory.flush())

    thread = threading.Thread(target=save)
    thread.start()
    try:
        for number in range(3000):
            site = f"https://s{number % 40}.example"
            memory.record(site, Learned(float(number)))
            memory.record_validators(f"{site}/{number}", etag=b'"%d"' % number)
            memory.mark_decoy(f"{site}/{number % 90}")
    finally:
        stop.set()
        thread.join()
    assert results
    assert all(results)
    assert memory.flush()
    json.loads(path.read_bytes())
    again = Memory(path)
    for number in range(2960, 3000):
        assert again.recall(f"https://s{number % 40}.example") == Learned(float(number))
    assert all(again.validators(f"https://s{number % 40}.example/{number}") for number in range(3000))
    assert again.take_notices() == []


def test_two_stores_in_two_threads(path):
    """Two stores of one process that save at once, over and over, lose nothing."""
    stores = [Memory(path, lock_wait=60) for _ in range(2)]

    def learn(which: int) -> None:
        for number in range(30):
            stores[which].record(f"https://t{which}-{number}.example", Learned(5.0))
            assert stores[which].flush()

    threads = [threading.Thread(target=learn, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Memory(path)) == 60


def test_a_crowd_of_processes(path):
    """Eight processes with fifty sites each save twenty times on one path: all is there, the newest of each (I058)."""
    done = run(
        "from pathlib import Path; from tests.bench.memory import crowd; "
        f"print(crowd(Path({str(path)!r}), processes=8, origins=50, saves=20))"
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_kill_at_any_moment(path):
    """Killed at random moments during saves, the file always loads and has the last finished save (I048)."""
    done = run(
        f"from pathlib import Path; from tests.bench.memory import kill_rounds; print(kill_rounds(Path({str(path)!r}), 30))"
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    memory = Memory(path)
    memory.record(ORIGIN, Learned(5.0))
    assert memory.flush()
    assert [name.name for name in path.parent.iterdir() if name.name.endswith(".tmp")] == []


def test_interpreter_exit_saves(path):
    """A second Ctrl-C, which closes no spider, still saves when the interpreter ends (I048)."""
    done = run(
        "from scrapy_pacing.core.memory import Memory; from scrapy_pacing.core.lessons import Learned\n"
        f"memory = Memory({str(path)!r})\n"
        f"memory.record({ORIGIN!r}, Learned(5.0))\n"
        "raise KeyboardInterrupt"
    )
    assert "KeyboardInterrupt" in done.stderr
    assert Memory(path).recall(ORIGIN) == Learned(5.0)


def test_interpreter_exit_says_what_went_wrong(tmp_path):
    """A save that fails at the very end is said on standard error, since nobody else is left to say it."""
    (tmp_path / "file").write_text("")
    done = run(
        "from scrapy_pacing.core.memory import Memory; from scrapy_pacing.core.lessons import Learned\n"
        f"memory = Memory({str(tmp_path / 'file' / 'memory.json')!r})\n"
        "memory.take_notices()\n"
        f"memory.record({ORIGIN!r}, Learned(5.0))"
    )
    assert done.returncode == 0
    assert "can't be saved" in done.stderr


def test_exit_hook_only_while_there_is_something_to_save(path, clock, monkeypatch):
    """Nothing hangs on interpreter exit before anything was learned, nor after it was saved."""
    hooks: list[object] = []
    monkeypatch.setattr("atexit.register", hooks.append)
    monkeypatch.setattr("atexit.unregister", hooks.remove)
    memory = Memory(path, clock=clock)
    memory.recall(ORIGIN)
    assert hooks == []
    memory.record(ORIGIN, Learned(5.0))
    memory.record(ORIGIN, Learned(6.0))
    assert len(hooks) == 1
    assert memory.flush()
    assert hooks == []
    memory.record(ORIGIN, Learned(7.0))
    assert len(hooks) == 1


def test_one_store_for_a_path(tmp_path, monkeypatch):
    """Two crawlers that name one file, each in its own way, share one store; the last to close saves."""
    directory = tmp_path / "real"
    directory.mkdir()
    (tmp_path / "link").symlink_to(directory)
    monkeypatch.chdir(directory)
    one = Memory.open(directory / "memory.json", max_origins=10)
    two = Memory.open(str(tmp_path / "link" / "memory.json"), max_origins=10)
    three = Memory.open("memory.json", max_origins=10)
    try:
        assert one is two is three
        one.record(ORIGIN, Learned(5.0))
        assert one.close()
        assert two.close()
        assert not (directory / "memory.json").exists()
        assert three.recall(ORIGIN) == Learned(5.0)
        assert three.take_notices() == []
    finally:
        assert three.close()
    assert (directory / "memory.json").exists()
    fresh = Memory.open(directory / "memory.json")
    assert fresh is not one
    assert fresh.recall(ORIGIN) == Learned(5.0)
    fresh.close()


def test_other_options_for_an_open_store(path):
    """Who opens a store with other bounds is told that the first one's hold."""
    one = Memory.open(path, max_origins=10)
    two = Memory.open(path, max_origins=20)
    assert one is two
    assert "is open already" in one.take_notices()[0]
    one.close()
    two.close()


def test_bad_options_open_nothing(path):
    """A store that could not be made is not left half open."""
    with pytest.raises(ValueError, match="max_origins"):
        Memory.open(path, max_origins=0)
    store = Memory.open(path)
    assert store.close()
    assert path not in Memory._stores


def test_other_paths_are_other_stores(tmp_path):
    """Two data directories in one process have nothing in common (I052)."""
    one, two = Memory.open(tmp_path / "a" / "memory.json"), Memory.open(tmp_path / "b" / "memory.json")
    one.record(ORIGIN, Learned(5.0))
    assert two.recall(ORIGIN) is None
    one.close()
    two.close()
    assert not (tmp_path / "b").exists()


def test_importing_does_nothing(tmp_path):
    """Importing the package makes no file, no directory and no exit hook."""
    done = run(
        "import atexit; before = atexit._ncallbacks(); from scrapy_pacing.core.memory import Memory, store\n"
        "import logging, filelock; print(Memory._stores)"
    )
    assert done.stdout.strip() == "{}"


def test_many_sites_are_saved_in_time(path, clock):
    """Ten thousand sites are saved well within what a killer grants (I049)."""
    import time

    memory = Memory(path, clock=clock, max_origins=10_000)
    for number in range(10_000):
        memory.record(f"https://h{number}.example", Learned(5.0))
    started = time.perf_counter()
    assert memory.flush()
    # Loosely bounded, since machines that run tests are busy; the bench has the number.
    assert time.perf_counter() - started < 5.0
    assert len(Memory(path, clock=clock, max_origins=10_000)) == 10_000
