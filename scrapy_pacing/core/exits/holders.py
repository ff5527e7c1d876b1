"""What the pool knows of each origin, bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .evidence import Cause, RefusalRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .values import ExitRules, Lease, Session


@dataclass(slots=True)
class _Retired:
    """An exit that is kept from one origin."""

    until: float
    times: int


class Holder:
    """The state of one origin."""

    __slots__ = (
        "_retired",
        "answered",
        "doubted",
        "exit_epoch",
        "in_flight",
        "lease",
        "row",
        "silences",
        "silent",
        "stranded",
    )

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.exit_epoch = -1
        """The exit's epoch when the lease began: a death before that is no evidence against the lease."""
        self.row = RefusalRow()
        self.silences = RefusalRow()
        """What brought no answer by the present lease, in a row."""
        self.silent: set[str] = set()
        """The exits that this origin was moved away from since its last answer, because nothing came back."""
        self.answered = False
        """Whether an answer has come by the present lease."""
        self.doubted: str | None = None
        """The exit that this origin has spoken against since its last answer."""
        self.in_flight = 0
        self.stranded = False
        """Whether it was told that no exit is left."""
        self._retired: dict[str, _Retired] = {}

    def take(self, lease: Lease, exit_epoch: int) -> None:
        """Begin a lease: nothing that was said about an earlier one counts."""
        self.lease = lease
        self.exit_epoch = exit_epoch
        self.row = RefusalRow()
        self.silences = RefusalRow()
        self.answered = False

    def hear(self) -> None:
        """Note an answer by the present lease."""
        self.answered = True
        self.doubted = None
        self.silences.restart()
        self.silent.clear()

    def is_silent(self, session: Session, url: str, rules: ExitRules) -> bool:
        """Count a failure without an answer; return whether it was the last of the row."""
        if not self.silences.refused(session.silence_epoch, url) or len(self.silences) < rules.silent_after:
            return False
        # It may stay for want of another exit: then the next row is a new one, and no row outgrows its length.
        self.silences.restart()
        return True

    def may_doubt(self, exit_id: str) -> bool:
        """Tell whether a failure speaks against the exit: one at a second exit speaks against the origin instead."""
        if self.doubted is None:
            self.doubted = exit_id
        return self.doubted == exit_id

    def retire(self, exit_id: str, cause: Cause, now: float, rules: ExitRules) -> None:
        """Keep an exit from this origin for a while, and for longer each time."""
        times = self._retired[exit_id].times + 1 if exit_id in self._retired else 1
        by_the_origin = cause in (Cause.REFUSED, Cause.REPORTED)
        base = rules.pair_cooldown if by_the_origin else rules.exit_cooldown
        self._retired[exit_id] = _Retired(now + rules.cooldown(base, times), times)

    def kept_until(self, exit_id: str) -> float:
        """Return until when an exit is kept from this origin, monotonic; ``-inf`` if it never was."""
        retired = self._retired.get(exit_id)
        return -math.inf if retired is None else retired.until

    def welcome(self, exit_id: str) -> None:
        """Forget that an exit was ever kept from this origin."""
        self._retired.pop(exit_id, None)


class Holders:
    """The origins in memory, in the order of use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: dict[str, Holder] = {}

    def find(self, origin: str) -> Holder | None:
        """Return the state of an origin, or None, without counting that as use."""
        return self._holders.get(origin)

    def use(self, origin: str) -> Holder:
        """Return the state of an origin, a new one if need be, and put it last in the order of use."""
        holder = self._holders.pop(origin, None) or Holder()
        self._holders[origin] = holder
        return holder

    def drop_surplus(self) -> Iterator[tuple[str, Holder]]:
        """Drop the longest unused origins that are too many, and yield them; those with requests in flight stay.

        Few are skipped: no more can be in flight than all exits have room for.
        """
        while len(self._holders) > self._most:
            unused = next((origin for origin, holder in self._holders.items() if not holder.in_flight), None)
            # The last is the one that is being used now.
            if unused is None or unused == next(reversed(self._holders)):
                return
            yield unused, self._holders.pop(unused)

    def take_stranded(self) -> list[str]:
        """Return the origins that were told that no exit is left, and count them as told of one."""
        stranded = [origin for origin, holder in self._holders.items() if holder.stranded]
        for origin in stranded:
            self._holders[origin].stranded = False
        return stranded

    def __len__(self) -> int:
        return len(self._holders)
