"""Paces Scrapy like one returning visitor for each site.

``ADDONS = {"scrapy_pacing.Addon": 500}`` in a project's settings is all that it takes.
"""

from importlib.metadata import version as _version

from .addon import Addon
from .core.exits import ExitPool
from .core.layers import Layer
from .core.lessons import Departure, Learned, Lesson, Lessons
from .core.memory import Memory, default_data_dir
from .core.origins import origin_key
from .core.pacer import Pacer
from .core.plan import Move, Remembered, RequestFacts, plan
from .core.policy import PacingPolicy, PolicyBook
from .core.trail import Trail
from .core.warmup import needs_warmup
from .downloadermiddlewares.exits import ExitMiddleware
from .downloadermiddlewares.pacing import PacingMiddleware
from .exceptions import RequestCancelledError, RevalidationError
from .exits import NoExitLeft, report_ban
from .extensions.memory import MemoryExtension
from .findings import endpoints, forget_decoy, mark_decoy, record_layer
from .links import visible_links
from .pqueues import PacedPriorityQueue
from .state import SharedState
from .unchanged import PacedSpiderMixin, fetch_if_changed, unchanged

__all__ = [
    "Addon",
    "Departure",
    "ExitMiddleware",
    "ExitPool",
    "Layer",
    "Learned",
    "Lesson",
    "Lessons",
    "Memory",
    "MemoryExtension",
    "Move",
    "NoExitLeft",
    "PacedPriorityQueue",
    "PacedSpiderMixin",
    "Pacer",
    "PacingMiddleware",
    "PacingPolicy",
    "PolicyBook",
    "Remembered",
    "RequestCancelledError",
    "RequestFacts",
    "RevalidationError",
    "SharedState",
    "Trail",
    "default_data_dir",
    "endpoints",
    "fetch_if_changed",
    "forget_decoy",
    "mark_decoy",
    "needs_warmup",
    "origin_key",
    "plan",
    "record_layer",
    "report_ban",
    "unchanged",
    "visible_links",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return _version("scrapy-pacing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
