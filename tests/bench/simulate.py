"""How near learning comes to the best constant interval in hindsight, simulated: every limiter, twenty seeds each."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from scrapy_pacing import PacingPolicy
from scrapy_pacing.core import estimator
from scrapy_pacing.simulation import (
    Changing,
    FixedWindow,
    Notebook,
    PenaltyBox,
    SlidingWindow,
    TokenBucket,
    crawl,
    oracle,
)
from scrapy_pacing.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scrapy_pacing.simulation import Limiter, Run

PAGES, SEEDS = 1000, 20
DAY = 86_400.0


@dataclass(frozen=True)
class Site:
    name: str
    make: Callable[[], Limiter]
    rate: float
    """What it allows, in requests a second."""
    interval: float = 0.1
    named: bool = False
    """Whether it sends Retry-After."""


SITES = (
    Site("bucket 2/s, burst 5", lambda: TokenBucket(2, 5), 2),
    Site("bucket 5/s, burst 5, Retry-After", lambda: TokenBucket(5, 5, retry_after=True), 5, named=True),
    Site("60 a fixed minute, Retry-After", lambda: FixedWindow(60, 60, retry_after=True), 1, named=True),
    Site("60 a fixed minute", lambda: FixedWindow(60, 60), 1),
    Site("60 a sliding minute, Retry-After", lambda: SlidingWindow(60, 60, retry_after=True), 1, named=True),
    Site("10 a fixed second, Retry-After", lambda: FixedWindow(10, 1, retry_after=True), 10, named=True),
    Site("10 a fixed second", lambda: FixedWindow(10, 1), 10),
    Site("100 a fixed minute, Retry-After", lambda: FixedWindow(100, 60, retry_after=True), 100 / 60, named=True),
    Site("1000 an hour at 1 s, Retry-After", lambda: FixedWindow(1000, 3600, retry_after=True), 1, 1.0, named=True),
    Site("bucket 2/s, penalty 60 s, R.-A.", lambda: PenaltyBox(TokenBucket(2, 5), 60, retry_after=True), 2, named=True),
    Site("bucket 2/s, penalty 60 s", lambda: PenaltyBox(TokenBucket(2, 5), 60), 2),
)
CHANGES = (
    ("bucket 2/s becomes 4/s", lambda: TokenBucket(2, 5), lambda: TokenBucket(4, 5)),
    (
        "60 a fixed minute become 120, R.-A.",
        lambda: FixedWindow(60, 60, retry_after=True),
        lambda: FixedWindow(120, 60, retry_after=True),
    ),
    ("bucket 2/s becomes 1/s", lambda: TokenBucket(2, 5), lambda: TokenBucket(1, 5)),
    (
        "120 a fixed minute become 60, R.-A.",
        lambda: FixedWindow(120, 60, retry_after=True),
        lambda: FixedWindow(60, 60, retry_after=True),
    ),
)


def policy_of(interval: float) -> PacingPolicy:
    return PacingPolicy(interval=interval, pause_probability=0)


def two_runs(site: Site, seed: int, *, by_rule: bool = False) -> tuple[Run, Run]:
    """A crawl, and another one a day later that starts with what the first has learned."""
    notebook, clock = Notebook(), FakeClock()
    policy = policy_of(site.interval)

    def run(number: int) -> Run:
        return crawl(site.make(), PAGES, policy=policy, seed=number, lessons=notebook, clock=clock, by_rule=by_rule)

    first = run(seed)
    clock.advance(DAY)
    return first, run(seed + 5000)


def medians(runs: Sequence[Run], best: float) -> tuple[float, float]:
    return median(run.refusals for run in runs), median(run.goodput for run in runs) / best


def table(seeds: Sequence[int]) -> None:
    print("   site                                oracle | the plain rule          | learning")
    print("                                of the rate | 1st run      2nd run    | 1st run      2nd run   (missed)")
    for site in SITES:
        best = oracle(site.make, policy=policy_of(site.interval))
        if best is None:
            print(f"   {site.name:36} no constant interval")
            continue
        cells: list[float] = []
        for by_rule in (True, False):
            pairs = [two_runs(site, seed, by_rule=by_rule) for seed in seeds]
            for runs in zip(*pairs, strict=True):
                cells.extend(medians(runs, best.goodput))
        missed = misses(site, cells[4:])
        print(
            f"   {site.name:36}  {best.goodput / site.rate:5.2f} |"
            f" {cells[0]:5.1f} {cells[1]:4.2f}   {cells[2]:5.1f} {cells[3]:4.2f} |"
            f" {cells[4]:5.1f} {cells[5]:4.2f}   {cells[6]:5.1f} {cells[7]:4.2f}   {missed}",
            flush=True,
        )


def misses(site: Site, cells: Sequence[float]) -> str:
    refusals, share, again, share_again = cells
    most = 6 if site.named else 12
    found = [
        ("1st refusals", refusals > most),
        ("1st rate", share < 0.85),
        ("2nd refusals", again > 3),
        ("2nd rate", share_again < 0.9),
    ]
    return ", ".join(name for name, is_missed in found if is_missed)


def changes(seeds: Sequence[int]) -> None:
    print("   a limit that changes after 1000 pages: refusals after that, share of the new oracle's rate")
    for name, before, after in CHANGES:
        policy = policy_of(0.1)
        best = oracle(after, policy=policy)
        assert best is not None
        raised = "become 120" in name or "becomes 4" in name
        pages = 3000 if raised else 2000
        runs = [crawl(Changing(before(), after(), pages=1000), pages, policy=policy, seed=seed) for seed in seeds]
        refusals, share = medians([run.part(1000) for run in runs], best.goodput)
        _, late = medians([run.part(pages - 500) for run in runs], best.goodput)
        print(
            f"   {name:36} {refusals:4.1f} refusals, {share:4.2f} of all, {late:4.2f} of the last 500 pages", flush=True
        )


def trade_off(seeds: Sequence[int]) -> None:
    """One constant of the estimator, moved: what more caution costs and saves, over all sites but the penalty boxes."""
    print("   successes for a step below the target (in tens): refusals and share of the oracle's rate, first run")
    kept = estimator._PATIENCE, estimator._MOST_PATIENCE
    sites = SITES[:8]
    bests = [oracle(site.make, policy=policy_of(site.interval)) for site in sites]
    try:
        for patience in (1.0, 2.0, 4.0, 7.0, 12.0, 25.0):
            estimator._PATIENCE, estimator._MOST_PATIENCE = patience, max(patience, 12.0)
            first, second = [], []
            for site, best in zip(sites, bests, strict=True):
                assert best is not None
                pairs = [two_runs(site, seed) for seed in seeds]
                first.append(medians([pair[0] for pair in pairs], best.goodput))
                second.append(medians([pair[1] for pair in pairs], best.goodput))
            doubled = [
                crawl(
                    Changing(TokenBucket(2, 5), TokenBucket(4, 5), pages=1000), 3000, policy=policy_of(0.1), seed=seed
                )
                for seed in seeds
            ]
            late = median(run.part(2500).goodput for run in doubled) / 3.218
            print(
                f"   {patience:5.0f}: first run {mean(first, 0):4.1f} {mean(first, 1):4.2f},"
                f" second run {mean(second, 0):4.1f} {mean(second, 1):4.2f},"
                f" 2000 pages after a doubled limit {late:4.2f}",
                flush=True,
            )
    finally:
        estimator._PATIENCE, estimator._MOST_PATIENCE = kept


def mean(cells: Sequence[tuple[float, float]], column: int) -> float:
    return sum(cell[column] for cell in cells) / len(cells)


def main() -> None:
    print(f"   {PAGES} pages, medians of {SEEDS} seeds: refusals and share of the oracle's rate")
    seeds = range(SEEDS)
    table(seeds)
    changes(seeds)
    trade_off(range(8))


if __name__ == "__main__":
    main()
