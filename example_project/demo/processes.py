"""The two processes that a demonstration runs: the shop, and ``scrapy crawl``.

Both are started in a session of their own, so a Ctrl-C reaches only the parent, which then ends them in order. The
shop ends by itself when its standard input does; so does it, and with it the crawl, if the parent is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import TracebackType

PROJECT = Path(__file__).resolve().parent.parent
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


class DemoError(Exception):
    """The shop or the crawl failed; the message is for whoever started the demonstration."""


@dataclass(frozen=True, slots=True)
class ShopFacts:
    """What the shop says of itself when it opens: its origins, and how much there is to crawl."""

    shop: str
    covers: str
    api: str
    books: int
    pages: int

    def origins(self) -> dict[str, str]:
        """Map each origin to what it serves."""
        return {self.shop: "pages", self.covers: "covers", self.api: "stock API"}


class Shop:
    """The shop's process, as a context manager."""

    def __init__(self, *, arrivals: Path, log: Path, front_door: bool = True) -> None:
        self._log = log
        command = [sys.executable, "-m", "shop", "--log", str(arrivals)]
        if not front_door:
            command.append("--no-front-door")
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        try:
            self.facts = self._read_facts()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise DemoError if the shop has ended."""
        if self._process.poll() is not None:
            self._fail("the shop ended in the middle of the crawl")

    def close(self) -> None:
        """Close the shop, and wait until its process has ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        _wait_or_kill(self._process)

    def __enter__(self) -> Shop:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_facts(self) -> ShopFacts:
        if self._process.stdout is None:
            self._fail("the shop can't be heard")
        impatience = threading.Timer(_START_SECONDS, self._process.kill)
        impatience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            impatience.cancel()
        if not line:
            self._fail("the shop did not open")
        return ShopFacts(**json.loads(line))

    def _fail(self, what: str) -> NoReturn:
        raise DemoError(f"{what}. {_last_lines(self._log)}")


class Crawl:
    """A running ``scrapy crawl``, whose log goes to a file."""

    def __init__(self, shop: str, *, log: Path, settings: dict[str, str]) -> None:
        self._log = log
        command = [sys.executable, "-m", "scrapy", "crawl", "books", "-a", f"shop={shop}"]
        for name, value in settings.items():
            command += ["-s", f"{name}={value}"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=PROJECT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        """Tell whether the crawl goes on; raise DemoError if it has failed."""
        code = self._process.poll()
        if code:
            raise DemoError(f"scrapy ended with code {code}. {_last_lines(self._log)}")
        return code is None

    def stop(self) -> None:
        """End the crawl, which closes its files first, and wait until its process has ended."""
        if self._process.poll() is None:
            self._process.terminate()
        _wait_or_kill(self._process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_lines(log: Path, *, count: int = 12) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    if not lines:
        return f"It left no word in {log}."
    return "\n".join([f"The last lines of {log}:", *(f"    {line}" for line in lines)])
