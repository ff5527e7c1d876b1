"""Crawl the bookshop, and tell what the bookshop saw of it.

``python run.py`` opens the shop in a process of its own, runs ``scrapy crawl books`` against it twice, and prints a table
made from the shop's log. The second crawl starts from what the first one has remembered. Everything that is left behind is in ``output/``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from bookshop import settings
from demo.processes import PROJECT, Crawl, DemoError, Shop
from demo.progress import Progress
from demo.report import Run, explanation, table
from shop.arrivals import Arrival, ArrivalReader

OUTPUT = PROJECT / "output"
FEED = "books.jsonl"
LONGEST_CRAWL_SECONDS = 120.0
_LOOK_SECONDS = 0.2


def crawl(shop: Shop, reader: ArrivalReader, *, number: int, paced: bool) -> Run:
    """Run the spider once, with a progress line; raise DemoError if it fails."""
    arrivals: list[Arrival] = []
    progress = Progress(shop.facts.pages, label=f"crawl {number}")
    started_at = time.monotonic()
    log, feed = OUTPUT / f"crawl-{number}.log", OUTPUT / FEED
    feed.unlink(missing_ok=True)
    spider = Crawl(shop.facts.shop, log=log, settings={} if paced else {"PACING_ENABLED": "False"})
    try:
        while spider.is_running():
            shop.check()
            if time.monotonic() - started_at > LONGEST_CRAWL_SECONDS:
                raise DemoError(f"the crawl took longer than {LONGEST_CRAWL_SECONDS:.0f} s; see {relative(log)}")
            arrivals += reader.new()
            progress.show(arrivals)
            time.sleep(_LOOK_SECONDS)
    finally:
        spider.stop()
        arrivals += reader.new()
        progress.finish(arrivals)
    return Run(
        number=number,
        arrivals=tuple(arrivals),
        seconds=time.monotonic() - started_at,
        log=log,
        feed=feed,
        books=len(feed.read_text(encoding="utf-8").splitlines()) if feed.exists() else 0,
    )


def demonstrate(*, runs: int, paced: bool, front_door: bool) -> None:
    """Open the shop, crawl it ``runs`` times, and print what it saw; raise DemoError if a book is missing."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    with tempfile.TemporaryDirectory() as directory:
        arrivals = Path(directory) / "arrivals.jsonl"
        with Shop(arrivals=arrivals, log=OUTPUT / "shop.log", front_door=front_door) as shop:
            facts = shop.facts
            print(f"The bookshop is open at {facts.shop}: {facts.books} books, {facts.pages} pages in all.")
            reader = ArrivalReader(arrivals)
            done = [crawl(shop, reader, number=n, paced=paced) for n in range(1, runs + 1)]
    interval = settings.PACING_INTERVAL if paced else None
    print(f"\nWhat the shop saw:\n\n{table(done, facts)}\n\n{explanation(done, facts, interval=interval)}")
    for run in done:
        print_lessons(run)
    print()
    for run in done:
        print(f"{run.books} of {facts.books} books are in {relative(run.feed)}, after {run.seconds:.0f} s.")
    if paced and any(run.books != facts.books for run in done):
        raise DemoError(f"books are missing; see {relative(OUTPUT)}")


def print_lessons(run: Run) -> None:
    """Print what the crawler logged about intervals that it changed."""
    lessons = [
        line.partition(" INFO: ")[2]
        for line in run.log.read_text(encoding="utf-8", errors="replace").splitlines()
        if "[scrapy_pacing." in line and " INFO: " in line
    ]
    if lessons:
        print("\n".join([f"\nWhat the crawler learned ({relative(run.log)}):", *(f"- {line}" for line in lessons)]))


def relative(path: Path) -> Path:
    return path.relative_to(PROJECT)


def interrupt(_signal: int, _frame: object) -> NoReturn:
    """End as Ctrl-C does, so that the shop and the crawl are ended first."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description="Crawl the example bookshop, and tell what it saw.")
    parser.add_argument("--runs", type=int, default=2, help="how often to crawl (default: 2)")
    parser.add_argument("--plain", action="store_true", help="switch pacing off, to see the difference")
    parser.add_argument(
        "--front-door",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let the shop show no book before its homepage (default)",
    )
    options = parser.parse_args()
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)
    try:
        demonstrate(runs=options.runs, paced=not options.plain, front_door=options.front_door)
    except DemoError as error:
        print(f"\nThe demonstration failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped; the shop is closed.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
