"""Runs a crawl in a process of its own, in one of Scrapy's three modes, and gives back what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import scrapy

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
ASYNCIO = {"TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor"}
SELECT = {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"}
NO_REACTOR = {"TWISTED_REACTOR_ENABLED": False}
MODES = {"asyncio": ASYNCIO, "select": SELECT, "no-reactor": NO_REACTOR}
ADDON = {"ADDONS": {"scrapy_pacing.Addon": 500}}
BASE = {
    "LOG_LEVEL": "DEBUG",
    "TELNETCONSOLE_ENABLED": False,
    "RETRY_ENABLED": True,
    # Most tests count what arrives; those about the warm-up switch it on.
    "PACING_WARMUP": "never",
    # No test leaves anything in the data directory of whoever runs it; those about memory name one of their own.
    "PACING_REMEMBER": False,
}

reactorless = scrapy.version_info >= (2, 15)
#: The mode of all crawls, where the environment names one; else asyncio, and all three in some tests.
ONLY_MODE = os.environ.get("TEST_MODE")
DEFAULT_MODE = ONLY_MODE or "asyncio"
#: Runs a test in each of Scrapy's modes.
in_all_modes = pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            mode,
            marks=pytest.mark.skipif(
                mode == "no-reactor" and not reactorless, reason="Scrapy before 2.15 always has a reactor"
            ),
        )
        for mode in ([ONLY_MODE] if ONLY_MODE else MODES)
    ],
)


@dataclass
class Crawl:
    """What came of a crawl."""

    returncode: int
    log: str
    stats: dict[str, Any] = field(default_factory=dict)
    items: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    all_stats: list[dict[str, Any]] = field(default_factory=list)
    """The stats of every spider, in the order in which they closed."""

    def ok(self) -> list[dict[str, Any]]:
        """The items of answers with status 200."""
        return [item for item in self.items if item.get("status") == 200]


def requests(*urls: str, **arguments: Any) -> str:
    """Say a list of requests as the argument of `ListSpider`."""
    return json.dumps([{"url": url, **arguments} for url in urls])


class Running:
    """A crawl under way."""

    def __init__(self, spiders: list[dict[str, Any]], settings: dict[str, Any], directory: Path) -> None:
        self.directory = directory
        self.job = directory / "job.json"
        self.out = directory / "out.json"
        self.log_path = directory / "log.txt"
        self.job.write_text(json.dumps({"spiders": spiders, "settings": settings, "out": str(self.out)}))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYTHONWARNINGS": "default",
        }
        self.started = time.monotonic()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.run_crawl", str(self.job)],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self, timeout: float = 60) -> Crawl:
        try:
            returncode = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the crawl did not end within {timeout} s; its log ends:\n{self.log()[-6000:]}")
        seconds = time.monotonic() - self.started
        result = json.loads(self.out.read_text()) if self.out.exists() else {}
        stats, all_stats = result.get("stats", {}), result.get("all_stats", [])
        return Crawl(returncode, self.log(), stats, result.get("items", []), seconds, all_stats)


@contextlib.contextmanager
def running(
    spiders: list[dict[str, Any]],
    settings: dict[str, Any] | None = None,
    *,
    mode: str = DEFAULT_MODE,
    addon: bool = True,
) -> Iterator[Running]:
    """Start a crawl of several spiders in one process; it is ended at the latest when the block is left."""
    merged = {**BASE, **MODES[mode], **(ADDON if addon else {}), **(settings or {})}
    with tempfile.TemporaryDirectory() as directory:
        crawl = Running(spiders, merged, Path(directory))
        try:
            yield crawl
        finally:
            if crawl.process.poll() is None:
                crawl.process.kill()
            crawl.process.wait()


def crawl(
    *urls: str,
    settings: dict[str, Any] | None = None,
    spider: str = "tests.support.spiders.ListSpider",
    mode: str = DEFAULT_MODE,
    addon: bool = True,
    timeout: float = 60,
    given: str | None = None,
    **arguments: Any,
) -> Crawl:
    """Crawl ``urls`` with one spider and wait for the end."""
    job = [{"spider": spider, "arguments": {"requests": given or requests(*urls, **arguments)}}]
    with running(job, settings, mode=mode, addon=addon) as under_way:
        return under_way.wait(timeout)
