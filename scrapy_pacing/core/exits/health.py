"""The state of one exit: who leases it, what is in flight, and whether it lives.

Everything that was said of an exit carries the epoch in which the request left. A death opens the next epoch, so what
was in flight then can neither kill the exit a second time nor bring it back; only a probe, which left later, can.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .values import ExitRules, ExitStats, Session

if TYPE_CHECKING:
    from .evidence import Cause
    from .parsing import Exit


class ExitHealth:
    """One exit of a pool."""

    __slots__ = (
        "_claims",
        "_deaths",
        "_timeouts",
        "answers",
        "epoch",
        "exit",
        "in_flight",
        "leases",
        "order",
        "probe",
        "probe_at",
        "rotations",
        "sessions",
        "waiters",
        "why_dead",
    )

    def __init__(self, leaving_by: Exit, order: int) -> None:
        self.exit = leaving_by
        self.order = order
        self.leases = 0
        self.in_flight = 0
        self.sessions = 0
        self.rotations: Counter[str] = Counter()
        self.waiters: dict[str, None] = {}
        """Origins that were told that there is no room, the longest waiting first."""
        self.epoch = 0
        self.answers = 0
        self.why_dead: Cause | None = None
        self.probe_at = -math.inf
        """From when the dead exit may be probed, monotonic."""
        self.probe: int | None = None
        """The serial of the probe in flight."""
        self._deaths = 0
        self._timeouts: set[str] = set()
        self._claims: set[str] = set()

    @property
    def is_dead(self) -> bool:
        """Whether no request may leave by it but a probe."""
        return self.why_dead is not None

    @property
    def is_suspect(self) -> bool:
        """Whether an origin was told of a fault, and none has had an answer since."""
        return bool(self._claims)

    def has_room(self, now: float, most: int) -> bool:
        """Tell whether one more request may leave by it now."""
        if self.in_flight >= most:
            return False
        return not self.is_dead or (self.probe is None and self.probe_at <= now)

    def depart(self, serial: int, now: float, rules: ExitRules) -> None:
        """Take room for a request; by a dead exit it is the probe."""
        self.in_flight += 1
        self.sessions += 1
        if self.is_dead:
            self.probe = serial
            # A probe that ends without a word must not be followed by the next at once.
            self.probe_at = now + rules.cooldown(rules.exit_cooldown, self._deaths)

    def land(self, serial: int) -> None:
        """Give the room of a request back."""
        self.in_flight -= 1
        if self.probe == serial:
            self.probe = None

    def answered(self, epoch: int) -> bool:
        """Note that an answer came through; return whether that brought the exit back to life."""
        if epoch != self.epoch:
            return False
        self.answers += 1
        self._timeouts.clear()
        self._claims.clear()
        if self.why_dead is None:
            return False
        self.why_dead = None
        self._deaths = 0
        return True

    def die(self, cause: Cause, now: float, rules: ExitRules) -> None:
        """Note a death, or a probe that failed: the next probe comes after a cool-down that grows."""
        self.epoch += 1
        self._deaths += 1
        self._timeouts.clear()
        self._claims.clear()
        self.why_dead = cause
        self.probe_at = now + rules.cooldown(rules.exit_cooldown, self._deaths)

    def is_news(self, session: Session) -> bool:
        """Tell whether a silence says anything: not where an answer has come after the request left, or a death."""
        return session.exit_epoch == self.epoch and session.exit_answers == self.answers

    def timed_out(self, origin: str, rules: ExitRules) -> bool:
        """Count a time-out; return whether it is enough to call the exit dead."""
        self._timeouts.add(origin)
        return self.is_dead or len(self._timeouts) >= rules.doubting_origins

    def claimed(self, origin: str, rules: ExitRules) -> bool:
        """Count a fault that one origin's answer told of; return whether it is enough to call the exit dead."""
        self._claims.add(origin)
        return self.is_dead or len(self._claims) >= rules.doubting_origins

    def stats(self) -> ExitStats:
        """Return the numbers as they are now."""
        return ExitStats(
            exit=self.exit,
            leases=self.leases,
            in_flight=self.in_flight,
            sessions=self.sessions,
            rotations=dict(self.rotations),
            dead=None if self.why_dead is None else self.why_dead.value,
        )
