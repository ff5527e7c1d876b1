"""What the memory costs, and whether it survives being killed: ``python tests/bench/memory.py``.

Prints numbers with the machine they were measured on; nothing here is a gate. `kill_rounds` and `crowd` are used by the
tests too, with fewer rounds.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from scrapy_pacing.core.lessons import Learned
from scrapy_pacing.core.memory import Memory

ORIGINS, VALIDATORS = 4096, 64


def kill_rounds(path: Path, rounds: int, *, seed: int = 0) -> list[str]:
    """Kill a process that saves again and again, ``rounds`` times; return what was wrong afterwards.

    The process says after each save which number it has saved: after the kill, the file must hold that number or a
    later one, and must not be broken.
    """
    source = random.Random(seed)
    wrong = []
    for number in range(rounds):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _save_for_ever(path, writer)
        os.close(writer)
        select.select([reader], [], [], 30)
        time.sleep(source.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said = b""
        while more := os.read(reader, 65536):
            said += more
        os.close(reader)
        finished = int(said.split(b"\n")[-2])
        memory = Memory(path)
        learned = memory.recall("https://counter.example")
        notices = memory.take_notices()
        if notices or learned is None or learned.interval < finished:
            wrong.append(f"round {number}: saved {finished}, found {learned}, {notices}")
    return wrong


def _save_for_ever(path: Path, writer: int) -> None:
    try:
        memory = Memory(path)
        learned = memory.recall("https://counter.example")
        value = int(learned.interval) if learned else 0
        for filler in range(50):
            memory.record_validators(f"https://s{filler}.example/", etag=os.urandom(400).hex().encode())
        while True:
            value += 1
            memory.record("https://counter.example", Learned(float(value)))
            if memory.flush():
                os.write(writer, b"%d\n" % value)
    finally:
        os._exit(1)


def crowd(path: Path, *, processes: int = 8, origins: int = 50, saves: int = 20) -> list[str]:
    """Let many processes save different origins on one path; return which values are missing afterwards."""
    children = []
    for process in range(processes):
        child = os.fork()
        if not child:
            _save_own_origins(path, process, origins, saves)
        children.append(child)
    wrong = [f"process {child} failed" for child in children if os.waitpid(child, 0)[1]]
    memory = Memory(path)
    for process in range(processes):
        for origin in range(origins):
            learned = memory.recall(f"https://p{process}-o{origin}.example")
            if learned is None or learned.interval != saves:
                wrong.append(f"p{process}-o{origin}: {learned}")
    return wrong


def _save_own_origins(path: Path, process: int, origins: int, saves: int) -> None:
    code = 1
    try:
        memory = Memory(path, lock_wait=60.0)
        for save in range(1, saves + 1):
            for origin in range(origins):
                memory.record(f"https://p{process}-o{origin}.example", Learned(float(save)))
            if not memory.flush():
                print(memory.take_notices(), flush=True)
                os._exit(2)
        code = 0
    finally:
        os._exit(code)


def fill(memory: Memory, *, origins: int = ORIGINS, validators: int = VALIDATORS) -> None:
    """Let a memory learn as much as a long crawl of many sites."""
    for site in range(origins):
        origin = f"https://www.site-{site}.example"
        memory.record(origin, Learned(5.0))
        for page in range(validators):
            memory.record_validators(
                f"{origin}/catalogue/item-{page}/page.html?session={page * 7}",
                etag=b'"%032x"' % random.getrandbits(128),
                last_modified=b"Wed, 21 Oct 2015 07:28:00 GMT",
            )


async def _stall_during(work: object) -> tuple[float, float]:
    """Run ``work`` in a thread beside a ticking loop; return the longest stall and the whole time, in seconds."""
    loop = asyncio.get_running_loop()
    task = loop.run_in_executor(None, work)  # type: ignore[arg-type]
    started = last = time.perf_counter()
    longest = 0.0
    while not task.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest = max(longest, now - last - 0.001)
        last = now
    if not await task:
        raise RuntimeError("the save failed")
    return longest, time.perf_counter() - started


def _show(label: str, value: str) -> None:
    print(f"{label:<58} {value}")


def main(kills: int = 300) -> None:
    """Measure everything and print it."""
    print(f"Python {platform.python_version()}, msgspec {msgspec.__version__}, {os.cpu_count()} CPUs, {sys.platform}")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "memory.json"
        memory = Memory(path)
        fill(memory)
        stall, took = asyncio.run(_stall_during(memory.flush))
        _show(f"first save, {ORIGINS} origins x {VALIDATORS} validators", f"{took:.3f} s")
        _show("  longest stall of the loop", f"{stall * 1000:.1f} ms")
        _show("  size of the file", f"{path.stat().st_size / 1e6:.1f} MB")

        started = time.perf_counter()
        again = Memory(path)
        _show("load", f"{time.perf_counter() - started:.3f} s")

        for site in range(100):
            again.record(f"https://www.site-{site}.example", Learned(9.0))
        stall, took = asyncio.run(_stall_during(again.flush))
        _show("save after 100 changes", f"{took:.3f} s")
        _show("  longest stall of the loop", f"{stall * 1000:.1f} ms")

        memory.record("https://www.site-7.example", Learned(11.0))
        stall, took = asyncio.run(_stall_during(memory.flush))
        _show("save that merges what another store has saved", f"{took:.3f} s")
        _show("  longest stall of the loop", f"{stall * 1000:.1f} ms")

        stall, took = asyncio.run(_stall_during(lambda: time.sleep(1.0) or True))
        _show("for comparison: stall of a loop beside an idle thread", f"{stall * 1000:.1f} ms")

    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        wrong = kill_rounds(Path(directory) / "memory.json", kills)
        _show(f"{kills} rounds of kill -9 during saves", f"{len(wrong)} wrong, {time.perf_counter() - started:.1f} s")
        print("\n".join(wrong))
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        wrong = crowd(Path(directory) / "memory.json")
        took = time.perf_counter() - started
        _show("8 processes x 50 origins x 20 saves on one path", f"{len(wrong)} missing, {took:.1f} s")
        print("\n".join(wrong[:20]))


if __name__ == "__main__":
    main()
