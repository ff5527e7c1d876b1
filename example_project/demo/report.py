"""The table at the end, with one row for each origin and run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from demo.figures import OriginFigures, by_origin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shop.arrivals import Arrival

    from demo.processes import ShopFacts


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl as the shop saw it, and what came of it."""

    number: int
    arrivals: tuple[Arrival, ...]
    seconds: float
    log: Path
    feed: Path
    books: int
    """How many items are in the feed."""


_HEADINGS = (
    "origin",
    "serves",
    "run",
    "requests",
    "mean gap",
    "spread",
    "shortest",
    "longest",
    "refused",
    "not moved",
    "arrived",
    "got/asked",
)
_LEFT = 3


def table(runs: Sequence[Run], facts: ShopFacts) -> str:
    """Return what each origin saw, run by run; the column of runs is left out where there was one."""
    figures = [by_origin(run.arrivals, facts.origins()) for run in runs]
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for origin, serves in facts.origins().items():
        for position, run in enumerate(runs):
            name = (origin, serves) if position == 0 else ("", "")
            rows.append((*name, str(run.number), *_cells(figures[position][origin])))
    if len(runs) == 1:
        rows = [row[:2] + row[3:] for row in rows]
    return _aligned(rows, left=_LEFT if len(runs) > 1 else _LEFT - 1)


def _cells(figures: OriginFigures) -> tuple[str, ...]:
    return (
        str(figures.requests),
        _mean(figures),
        _seconds(figures.spread),
        _seconds(min(figures.gaps, default=None)),
        _seconds(max(figures.gaps, default=None)),
        str(figures.refusals),
        str(figures.unmoved),
        f"{figures.arrived}/{figures.wanted}",
        f"{figures.got}/{figures.asked}",
    )


def _mean(figures: OriginFigures) -> str:
    if figures.mean is None or figures.mean_error is None:
        return _seconds(figures.mean)
    return f"{figures.mean:.2f} ± {figures.mean_error:.2f} s"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def explanation(runs: Sequence[Run], facts: ShopFacts, *, interval: float | None) -> str:
    """Return what the table means, for a newcomer; ``interval`` is None where pacing was off."""
    lines = [
        "These numbers come from the shop's own log; the crawler has no say in them. A gap is the time between",
        "two arrivals at one origin. Behind ± stands how far chance alone puts the mean of so few gaps; spread",
        "is the standard deviation of the gaps. Arrived: how many requests came as a visitor's do, by the homepage",
        "or from a page of the shop (Referer, Sec-Fetch), and for pages with the homepage's cookie.",
    ]
    if interval is None:
        lines += ["Pacing was off: requests came as fast as Scrapy sends them."]
    else:
        lines += [
            f"The crawl was to leave {interval:g} s between two requests on the average (PACING_INTERVAL), and never the",
            "same gap twice: only machines keep a beat. Where an origin refused what came too fast, it left more.",
        ]
    if interval is not None and len(runs) > 1:
        lines += [
            "The next run starts from what was remembered (output/memory): at the pace that an origin turned out to bear,",
            "and it reads no page again that has not moved. Such a page costs one request that is answered by a 304.",
        ]
    for origin, serves in facts.origins().items():
        total = [by_origin(run.arrivals, [origin])[origin] for run in runs]
        refusals = sum(figures.refusals for figures in total)
        lost = sum(figures.asked - figures.got for figures in total)
        if refusals:
            lines += [
                f"- {serves}: {_counted(refusals, 'request')} refused with 429 (too many requests), {_outcome(lost)}"
            ]
    return "\n".join(lines)


def _outcome(lost: int) -> str:
    if lost:
        return f"and {_counted(lost, 'page')} never came."
    return "then asked more slowly; all of it came later."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
