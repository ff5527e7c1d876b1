"""What to do before a request leaves, decided from what is known and carried out elsewhere.

The moves come in the order in which they are made: a known decoy is not fetched at all; a clearance and the tier that
worked come before the warm-up, since the homepage is asked for in the same way and is refused for the same reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .warmup import needs_warmup

WARMUP_MODES = ("always", "learned", "never")
# Layers that judge by accumulated history, for which arriving cold is a fault; 8 is the behaviour layer.
_READING_HISTORY = frozenset({8})


class Move(Enum):
    """One step before a request leaves."""

    SKIP_DECOY = "skip-decoy"
    """Don't send it: the URL has behaved like a trap."""
    REUSE_CLEARANCE = "reuse-clearance"
    """Put the stored clearance into its cookie jar."""
    USE_TIER = "use-tier"
    """Start with the tier that worked, instead of the cheapest."""
    WARM = "warm"
    """Fetch the homepage first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What counts of a request that is about to leave."""

    url: str
    method: str = "GET"
    navigation: bool = True
    is_warmup: bool = False
    is_robots: bool = False
    dont_warmup: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is remembered of the request's origin, and of its URL; the defaults are those of a cold start."""

    layer: int | None = None
    """The layer that was found binding."""
    tier: str | None = None
    """The tier that worked."""
    decoy: bool = False
    """The URL has behaved like a decoy."""
    clearance: bool = False
    """There is a clearance that has not expired and belongs to the present identity and exit."""
    last_warmed: float | None = None
    """When the origin was last visited through its homepage, in wall-clock seconds."""


COLD = Remembered()


def plan(
    request: RequestFacts,
    remembered: Remembered = COLD,
    *,
    now: float,
    warmup_ttl: float,
    warmup: str = "always",
) -> tuple[Move, ...]:
    """Return what to do before a request leaves, in order; empty: send it.

    ``now`` is wall-clock seconds, ``warmup_ttl`` seconds. ``warmup`` says which cold origins are warmed: ``"always"``
    all, ``"learned"`` those whose binding layer reads accumulated history, ``"never"`` none. Raises ValueError for any
    other word.

    >>> plan(RequestFacts(url="https://example.com/item/7"), now=0.0, warmup_ttl=3600.0)
    (<Move.WARM: 'warm'>,)
    """
    check_warmup_mode(warmup)
    if remembered.decoy and not request.is_robots:
        return (Move.SKIP_DECOY,)
    moves = []
    if remembered.clearance:
        moves.append(Move.REUSE_CLEARANCE)
    if remembered.tier is not None:
        moves.append(Move.USE_TIER)
    if _wants_warmup(request, remembered, warmup) and needs_warmup(
        request.url,
        last_warmed=remembered.last_warmed,
        now=now,
        ttl=warmup_ttl,
        method=request.method,
        navigation=request.navigation,
        is_warmup=request.is_warmup,
        is_robots=request.is_robots,
    ):
        moves.append(Move.WARM)
    return tuple(moves)


def check_warmup_mode(warmup: object) -> str:
    """Return a warm-up mode; raises ValueError if there is none of that name."""
    if not isinstance(warmup, str) or warmup not in WARMUP_MODES:
        raise ValueError(f"PACING_WARMUP is {warmup!r}; allowed: {', '.join(WARMUP_MODES)}")
    return warmup


def _wants_warmup(request: RequestFacts, remembered: Remembered, warmup: str) -> bool:
    if request.dont_warmup or warmup == "never":
        return False
    return warmup == "always" or remembered.layer in _READING_HISTORY
