"""The one place where a request waits for its turn.

A request passes when its origin is due and the downloader has room for it at once, first come first served. Passing
draws the next gap (`Pacer.depart`). Whether there is room is asked last, and a yes is a departure: so asking may
already take what a departure needs. Waiting costs one timer for each origin, however many wait. The gate belongs to a
site rather than to a spider: several crawls share one, and closing one ends its own waits only.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import CallLaterResult

    from .core.lessons import Departure
    from .core.pacer import Pacer

# Room appears by events; this is the net below them, for requests that end without one.
_ROOM_RECHECK = 0.25


class _Waiter:
    __slots__ = ("departure", "granted", "has_room", "owner", "under")

    def __init__(self, owner: object, has_room: Callable[[], bool], under: object) -> None:
        self.owner = owner
        self.under = under
        self.has_room = has_room
        self.granted: Deferred[None] = Deferred()
        self.departure: Departure | None = None


class _Lane:
    """Those who wait for one origin, in the order they came, and the timer of the first."""

    __slots__ = ("busy", "timer", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[_Waiter] = deque()
        self.timer: CallLaterResult | None = None
        self.busy = False

    def disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Gate:
    """Lets requests leave one by one, each when its origin is due and has room."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._lanes: dict[str, _Lane] = {}
        # Origins that are due and wait for room only; dict as an ordered set.
        self._roomless: dict[str, None] = {}
        pacer.watch(self._moved)

    def pass_now(self, origin: str, has_room: Callable[[], bool]) -> Departure | None:
        """Let a request leave at once, or return None if it has to `wait`: it is early, or others came before."""
        if origin in self._lanes or self._pacer.next_delay(origin) > 0 or not has_room():
            return None
        return self._pacer.depart(origin)

    async def wait(
        self, origin: str, owner: object, has_room: Callable[[], bool], *, under: object = None
    ) -> Departure | None:
        """Wait for the turn; return the departure, or None if the ``owner`` closed meanwhile.

        ``has_room`` says whether a request that leaves now would be sent at once. A cancelled wait gives up its place;
        so does one whose ``under`` has ended, which also gets None.
        """
        lane = self._lanes.setdefault(origin, _Lane())
        waiter = _Waiter(owner, has_room, under)
        lane.waiters.append(waiter)
        self._pump(origin, lane)
        try:
            await maybe_deferred_to_future(waiter.granted)
        except BaseException:
            self._give_up(origin, waiter)
            raise
        return waiter.departure

    def waiting(self, owner: object) -> int:
        """Return how many requests of ``owner`` wait."""
        return sum(waiter.owner is owner for lane in self._lanes.values() for waiter in lane.waiters)

    def close(self, owner: object) -> None:
        """End the waits of ``owner``; the others' go on undisturbed."""
        for origin, lane in list(self._lanes.items()):
            leaving = [waiter for waiter in lane.waiters if waiter.owner is owner]
            if not leaving:
                continue
            lane.waiters = deque(waiter for waiter in lane.waiters if waiter.owner is not owner)
            self._pump(origin, lane)
            for waiter in leaving:
                waiter.granted.callback(None)

    def end(self, under: object) -> None:
        """End the waits under something that holds no longer (the lease of an exit), in the loop's next turn."""
        for origin, lane in list(self._lanes.items()):
            leaving = [waiter for waiter in lane.waiters if waiter.under == under]
            if not leaving:
                continue
            lane.waiters = deque(waiter for waiter in lane.waiters if waiter.under != under)
            self._pump(origin, lane)
            for waiter in leaving:
                # Not now: this can come out of the very question whether there is room.
                call_later(0, self._let_go, waiter)

    def ask_again(self, origin: str) -> None:
        """Look again whether those who wait for room have it; anything may have given it, not only ``origin``."""
        self._moved(origin)

    @staticmethod
    def _let_go(waiter: _Waiter) -> None:
        if not waiter.granted.called:
            waiter.granted.callback(None)

    def _give_up(self, origin: str, waiter: _Waiter) -> None:
        lane = self._lanes.get(origin)
        if lane is not None and waiter in lane.waiters:
            lane.waiters.remove(waiter)
            self._pump(origin, lane)
        elif waiter.departure is not None:
            self._pacer.land(waiter.departure)

    def _moved(self, _origin: str) -> None:
        """Something has left or landed: those who wait for room may have it now, also in another origin's lane."""
        for origin in list(self._roomless):
            lane = self._lanes.get(origin)
            if lane is not None:
                self._pump(origin, lane)

    def _on_timer(self, origin: str, lane: _Lane) -> None:
        lane.timer = None
        self._pump(origin, lane)

    def _pump(self, origin: str, lane: _Lane) -> None:
        """Let go whoever may go now, and arm the timer for the next."""
        if lane.busy:
            # `depart` told us of the very departure that we are making.
            return
        lane.busy = True
        granted: list[_Waiter] = []
        try:
            lane.disarm()
            self._roomless.pop(origin, None)
            while lane.waiters:
                delay = self._pacer.next_delay(origin)
                waiter = self._first_with_room(lane) if delay <= 0 else None
                if waiter is None:
                    if delay <= 0:
                        self._roomless[origin] = None
                        delay = _ROOM_RECHECK
                    lane.timer = call_later(delay, self._on_timer, origin, lane)
                    break
                lane.waiters.remove(waiter)
                waiter.departure = self._pacer.depart(origin)
                granted.append(waiter)
            if not lane.waiters and self._lanes.get(origin) is lane:
                del self._lanes[origin]
        finally:
            lane.busy = False
        for waiter in granted:
            waiter.granted.callback(None)

    @staticmethod
    def _first_with_room(lane: _Lane) -> _Waiter | None:
        return next((waiter for waiter in lane.waiters if waiter.has_room()), None)
