"""What the unit tests share: hypothesis without a stop-watch, and policies of every kind that validates."""

from __future__ import annotations

import math

from hypothesis import settings, strategies as st

from scrapy_pacing import PacingPolicy

# The machines that run the suite share their cores: a slow example says nothing about the code.
settings.register_profile("unit", deadline=None, print_blob=True)
settings.load_profile("unit")


@st.composite
def policies(draw: st.DrawFn) -> PacingPolicy:
    """Draw a policy that validates, with every part of its law in play: clamps, pauses, extreme shapes."""
    interval = draw(st.floats(0.01, 10_000) | st.sampled_from([0.5, 1, 4.0, 86_400]))
    floor = draw(st.none() | st.just(0) | st.floats(0, 0.99).map(lambda part: part * interval))
    ceiling = draw(st.none() | st.just(math.inf) | st.floats(1.01, 50).map(lambda times: times * interval))
    numbers = {"interval": interval, "shape": draw(st.floats(0.5, 100)), "floor": floor, "ceiling": ceiling}
    bare = PacingPolicy(**numbers, pause_probability=0)
    if draw(st.booleans()):
        return bare
    # 16 intervals are longer than any law exceeds once in 10,000 gaps (shape 0.5: 15.1), so every such pause is allowed.
    pause_min = draw(st.floats(16, 60)) * interval
    pause_max = pause_min * draw(st.floats(1, 5))
    law = bare.law()
    most = (1 - law.floor) / ((pause_min + pause_max) / 2 / interval - law.floor)
    share = draw(st.floats(0.001, 0.99)) * min(most, 0.5)
    return PacingPolicy(**numbers, pause_min=pause_min, pause_max=pause_max, pause_probability=share)
