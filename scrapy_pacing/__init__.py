"""Paces Scrapy like one returning visitor for each site.

``ADDONS = {"scrapy_pacing.Addon": 500}`` in a project's settings is all that it takes.
"""

from importlib.metadata import version as _version

from .addon import Addon
from .core.origins import origin_key
from .core.pacer import Departure, Learned, Lesson, Lessons, Pacer
from .core.policy import PacingPolicy, PolicyBook
from .downloadermiddlewares.pacing import PacingMiddleware
from .pqueues import PacedPriorityQueue
from .state import SharedState

__all__ = [
    "Addon",
    "Departure",
    "Learned",
    "Lesson",
    "Lessons",
    "PacedPriorityQueue",
    "Pacer",
    "PacingMiddleware",
    "PacingPolicy",
    "PolicyBook",
    "SharedState",
    "origin_key",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return _version("scrapy-pacing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
