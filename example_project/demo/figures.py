"""What the shop's log says, in numbers: nothing in here comes from the crawler."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shop.arrivals import Arrival

_TOO_MANY_REQUESTS = 429
_NOT_MODIFIED = 304
_SUCCESSES = range(200, 300)


def is_page(arrival: Arrival) -> bool:
    """Tell whether something was asked for that the crawl is after; robots.txt is not."""
    return arrival.path != "/robots.txt"


def is_got(arrival: Arrival) -> bool:
    return arrival.status in _SUCCESSES or arrival.status == _NOT_MODIFIED


def is_unmoved(arrival: Arrival) -> bool:
    return arrival.status == _NOT_MODIFIED


def is_refusal(arrival: Arrival) -> bool:
    return arrival.status == _TOO_MANY_REQUESTS


def is_arrived_well(arrival: Arrival) -> bool:
    """Tell whether a request came as a visitor's do: by the homepage, or from a page of the shop.

    A page needs the homepage's cookie as well; covers and stock are loaded by a page, from sites that give none.
    """
    if arrival.path == "/":
        return arrival.fetch.get("site") == "none" and arrival.referer is None
    from_a_page = arrival.referer is not None and arrival.fetch.get("site") not in {None, "none"}
    return from_a_page and (arrival.cookie or arrival.fetch.get("mode") != "navigate")


@dataclass(frozen=True, slots=True)
class OriginFigures:
    """What one origin saw of one crawl; a gap is the time between two arrivals, in seconds."""

    requests: int
    gaps: tuple[float, ...]
    refusals: int
    unmoved: int
    """How many pages were asked for that had not moved, so that only this was said."""
    arrived: int
    """How many requests came as a visitor's do, robots.txt apart."""
    wanted: int
    """How many there were, robots.txt apart."""
    asked: int
    got: int

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.gaps) if self.gaps else None

    @property
    def spread(self) -> float | None:
        """The standard deviation; None for fewer than two gaps."""
        return statistics.stdev(self.gaps) if len(self.gaps) > 1 else None

    @property
    def mean_error(self) -> float | None:
        """The standard error of the mean: how far off chance alone puts it, with so few gaps."""
        return None if self.spread is None else self.spread / math.sqrt(len(self.gaps))

    @classmethod
    def of(cls, arrivals: Iterable[Arrival]) -> OriginFigures:
        """Work out the figures of one origin's arrivals."""
        ordered = sorted(arrivals, key=lambda arrival: arrival.at)
        asked = [arrival for arrival in ordered if is_page(arrival)]
        return cls(
            requests=len(ordered),
            gaps=tuple(later.at - earlier.at for earlier, later in pairwise(ordered)),
            refusals=sum(map(is_refusal, ordered)),
            unmoved=sum(map(is_unmoved, ordered)),
            arrived=sum(map(is_arrived_well, asked)),
            wanted=len(asked),
            asked=len({arrival.path for arrival in asked}),
            got=len({arrival.path for arrival in asked if is_got(arrival)}),
        )


def by_origin(arrivals: Sequence[Arrival], origins: Iterable[str]) -> dict[str, OriginFigures]:
    """Work out the figures of every origin of a crawl, in the order of ``origins``."""
    return {origin: OriginFigures.of(arrival for arrival in arrivals if arrival.origin == origin) for origin in origins}
