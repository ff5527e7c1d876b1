"""How much a site puts up with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class TokenBucket:
    """Allows ``rate`` requests a second on the average, and up to ``burst`` at once."""

    rate: float
    burst: int
    _tokens: float = field(init=False)
    _counted_at: float = field(init=False, default=-math.inf)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def refuses(self, now: float) -> int | None:
        """Take a token at monotonic time ``now``; return None, or the Retry-After of a refusal in whole seconds."""
        self._tokens = min(self.burst, self._tokens + (now - self._counted_at) * self.rate)
        self._counted_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return None
        return max(1, math.ceil((1 - self._tokens) / self.rate))
