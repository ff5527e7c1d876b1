"""Benchmarks: ``make bench``, or ``python -m tests.bench NAME ...`` for some of them.

Every figure of a crawl comes from the site's own log of arrivals, with plain Scrapy beside it in the same run. Nothing
here is a test: machines are noisy, and the environment is printed with the figures.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time

import scrapy

BENCHES = {
    "law": "the law of the gaps, as the site sees it",
    "mixed": "a broad crawl of fast and slow sites",
    "queue": "what the paced queue costs",
    "cost": "what pacing costs a request and a page",
    "simulate": "learning a limit, simulated",
    "limit": "200 pages from a site that allows five requests a second",
    "limits": "learning a limit, by crawls of a real site with each limiter",
    "exits": "20 origins over 4 exits",
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    print(f"Python {platform.python_version()}, Scrapy {scrapy.__version__}, {os.cpu_count()} cores\n", flush=True)
    for name in names:
        print(f"== {name}: {BENCHES[name]}", flush=True)
        started = time.monotonic()
        importlib.import_module(f"tests.bench.{name}").main()
        print(f"   ({time.monotonic() - started:.0f} s)\n", flush=True)


main()
