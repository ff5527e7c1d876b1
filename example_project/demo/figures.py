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


def is_refusal(arrival: Arrival) -> bool:
    return arrival.status == _TOO_MANY_REQUESTS


@dataclass(frozen=True, slots=True)
class OriginFigures:
    """What one origin saw of one crawl; a gap is the time between two arrivals, in seconds."""

    requests: int
    gaps: tuple[float, ...]
    refusals: int
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
            asked=len({arrival.path for arrival in asked}),
            got=len({arrival.path for arrival in asked if is_got(arrival)}),
        )


def by_origin(arrivals: Sequence[Arrival], origins: Iterable[str]) -> dict[str, OriginFigures]:
    """Work out the figures of every origin of a crawl, in the order of ``origins``."""
    return {origin: OriginFigures.of(arrival for arrival in arrivals if arrival.origin == origin) for origin in origins}
