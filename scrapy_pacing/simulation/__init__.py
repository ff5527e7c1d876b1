"""What a limit does to a crawl, played on a clock that is moved by hand: no network, no waiting.

A limiter is a model of a site: asked at a moment, it serves or refuses. `crawl` runs a real `Pacer` against one,
`steady` asks at one constant mean interval, and `oracle` finds the best such interval in hindsight: the measure of
what learning is worth, since irregular gaps cost a part of any limit.

>>> from scrapy_pacing import PacingPolicy
>>> policy = PacingPolicy(interval=0.1, pause_probability=0)
>>> run = crawl(TokenBucket(5, 5, retry_after=True), 200, policy=policy, seed=1)
>>> run.pages, run.refusals < 10, run.seconds > 39
(200, True, True)
"""

from .limiters import Changing, FixedWindow, Limiter, PenaltyBox, SlidingWindow, TokenBucket
from .runs import Notebook, Oracle, Run, crawl, oracle, steady

__all__ = [
    "Changing",
    "FixedWindow",
    "Limiter",
    "Notebook",
    "Oracle",
    "PenaltyBox",
    "Run",
    "SlidingWindow",
    "TokenBucket",
    "crawl",
    "oracle",
    "steady",
]
