"""Draws the plots of the documentation as SVG, from the law that the package itself draws its gaps from.

``python docs/make_plots.py`` writes them to ``docs/_static``; a build does so too.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_pacing import Pacer, PacingPolicy
from scrapy_pacing.testing import FakeClock, seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WIDTH = 720
INK, SOFT, RULE, BLUE, ORANGE = "#1f2933", "#5f6b7a", "#d5dae1", "#2f6fb3", "#c9602b"
SITE = "https://example.com"
_DRAWS = 20_000
_PAUSES_TALLER = 150


class Drawing:
    """An SVG under construction: a light card, so that it reads on a dark page too."""

    def __init__(self, height: int, title: str) -> None:
        self._height = height
        self._title = title
        self._parts: list[str] = []

    def line(self, points: Iterable[tuple[float, float]], *, colour: str, width: float = 1, dash: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
            + (f' stroke-dasharray="{dash}"' if dash else "")
            + "/>"
        )

    def bar(self, x: float, y: float, width: float, height: float, *, colour: str, opacity: float = 1) -> None:
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"'
            f' fill-opacity="{opacity}"/>'
        )

    def text(
        self, x: float, y: float, words: str, *, colour: str = SOFT, anchor: str = "start", size: int = 13
    ) -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{words}</text>'
        )

    def write(self, path: Path) -> None:
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self._height}" role="img"'
            ' font-family="system-ui, sans-serif">\n'
            f"<title>{self._title}</title>\n"
            f'<rect width="{WIDTH}" height="{self._height}" rx="6" fill="#fbfcfd"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n",
            encoding="utf-8",
        )


class Panel:
    """A part of a drawing with axes of its own: seconds to the right, density upwards."""

    top, bottom = 54, 290

    def __init__(
        self, drawing: Drawing, left: float, right: float, *, seconds: tuple[float, float], peak: float
    ) -> None:
        self._drawing = drawing
        self._left, self._right = left, right
        self._from, self._to = seconds
        self._peak = peak

    def x(self, seconds: float) -> float:
        return self._left + (self._right - self._left) * (seconds - self._from) / (self._to - self._from)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self._peak

    def axis(self, ticks: Iterable[float]) -> None:
        self._drawing.line([(self._left, self.bottom), (self._right, self.bottom)], colour=SOFT)
        for seconds in ticks:
            at = self.x(seconds)
            self._drawing.line([(at, self.bottom), (at, self.bottom + 5)], colour=SOFT)
            self._drawing.text(at, self.bottom + 20, f"{seconds:g}", anchor="middle", size=12)

    def histogram(self, gaps: Iterable[float], *, of: int, bin_width: float, colour: str) -> None:
        for number, count in sorted(Counter(int(gap / bin_width) for gap in gaps).items()):
            low, high = self.x(number * bin_width), self.x((number + 1) * bin_width)
            top = self.y(count / of / bin_width)
            self._drawing.bar(low, top, high - low, self.bottom - top, colour=colour, opacity=0.4)

    def mark(self, seconds: float, name: str, *, top: float, anchor: str) -> None:
        at = self.x(seconds)
        self._drawing.line([(at, self.bottom), (at, top + 5)], colour=INK, dash="4 4")
        self._drawing.text(at, top, name, colour=INK, anchor=anchor)


def gaps_of(policy: PacingPolicy, count: int, *, seed: int) -> list[float]:
    """Draw gaps as a crawl under ``policy`` would."""
    pacer = Pacer(policy, clock=FakeClock(), source=seeded(seed))
    return [pacer.gap(SITE) for _ in range(count)]


def density(policy: PacingPolicy) -> Callable[[float], float]:
    """Return the density of a policy's gaps in seconds, between the clamps and without the pauses."""
    law = policy.law()
    scale = law.scale * policy.interval
    weight = (1 - law.pause_probability) / (math.gamma(law.shape) * scale**law.shape)
    return lambda seconds: weight * seconds ** (law.shape - 1) * math.exp(-seconds / scale)


def gap_law() -> Drawing:
    """The law of the gaps under the default policy: what is drawn, over the curve that was solved for."""
    policy = PacingPolicy()
    law = policy.law()
    floor, ceiling = law.floor * policy.interval, law.ceiling * policy.interval
    curve = density(policy)
    gaps = gaps_of(policy, _DRAWS, seed=1)
    drawing = Drawing(346, "The law of the gaps at the default policy")
    drawing.text(24, 26, f"{_DRAWS:,} gaps at the default policy (interval {policy.interval:g} s)", colour=INK, size=15)

    peak = 1.15 * max(curve(step / 20) for step in range(1, 400))
    left = Panel(drawing, 24, 470, seconds=(0, ceiling + 1), peak=peak)
    left.histogram([gap for gap in gaps if gap <= ceiling], of=_DRAWS, bin_width=0.25, colour=BLUE)
    left.axis(range(0, round(ceiling) + 1, 4))
    steps = [floor + (ceiling - floor) * step / 400 for step in range(401)]
    drawing.line([(left.x(s), left.y(curve(s))) for s in steps], colour=BLUE, width=2)
    left.mark(floor, f"floor {floor:g} s", top=52, anchor="start")
    left.mark(policy.interval, "mean of all gaps = interval", top=74, anchor="start")
    left.mark(ceiling, f"ceiling {ceiling:g} s", top=150, anchor="end")

    shortest, longest = law.pause_min * policy.interval, law.pause_max * policy.interval
    right = Panel(drawing, 500, WIDTH - 24, seconds=(shortest - 6, longest + 6), peak=peak / _PAUSES_TALLER)
    right.histogram([gap for gap in gaps if gap > ceiling], of=_DRAWS, bin_width=4, colour=ORANGE)
    right.axis((32, 48, 64))
    middle = right.x((shortest + longest) / 2)
    drawing.text(middle, 92, f"reading pauses: {law.pause_probability:.0%} of the gaps", colour=ORANGE, anchor="middle")
    drawing.text(middle, 110, f"(drawn {_PAUSES_TALLER} times taller)", anchor="middle", size=12)
    drawing.text(WIDTH / 2, 334, "gap in seconds", anchor="middle")
    return drawing


def arrivals() -> Drawing:
    """What three sites write into their logs, at one mean gap of 4 seconds."""
    window, left, right = 200.0, 24, WIDTH - 24
    source = seeded(11)
    rows: Sequence[tuple[str, list[float]]] = (
        ("one fixed delay", [4.0] * 60),
        ("a delay drawn evenly between half and one and a half of it", [source.uniform(2, 6) for _ in range(80)]),
        ("scrapy-pacing: gamma gaps and reading pauses", gaps_of(PacingPolicy(), 120, seed=24)),
    )
    drawing = Drawing(74 + 70 * len(rows), "Arrivals at a site, at one mean gap")
    drawing.text(left, 26, "Arrivals at a site within 200 seconds, mean gap 4 seconds", colour=INK, size=15)
    bottom = 0
    for number, (name, gaps) in enumerate(rows):
        top = 48 + 70 * number
        bottom = top + 46
        drawing.text(left, top + 6, name, colour=INK)
        drawing.line([(left, bottom), (right, bottom)], colour=RULE)
        for moment in accumulate(gaps):
            if moment <= window:
                at = left + (right - left) * moment / window
                colour = BLUE if number == len(rows) - 1 else SOFT
                drawing.line([(at, top + 18), (at, bottom)], colour=colour, width=1.6)
    for seconds, anchor in ((0, "start"), (50, "middle"), (100, "middle"), (150, "middle"), (200, "end")):
        at = left + (right - left) * seconds / window
        drawing.text(at, bottom + 20, f"{seconds} s", anchor=anchor, size=12)
    return drawing


def write_all(directory: Path) -> None:
    """Write every plot into ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    gap_law().write(directory / "gap-law.svg")
    arrivals().write(directory / "arrivals.svg")


if __name__ == "__main__":
    write_all(Path(__file__).resolve().parent / "_static")
