"""Waiting for an exit or for room, where the queue does not do it: woken by word, by a timer, or by the end."""

from __future__ import annotations

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred


class Waits:
    """Those who wait, by origin."""

    def __init__(self) -> None:
        self._waiters: dict[str, list[Deferred[None]]] = {}

    async def word(self, origin: str, seconds: float) -> None:
        """Wait until `tell` is called for ``origin``, for ``seconds`` at most, or until `end`."""
        waiter: Deferred[None] = Deferred()
        self._waiters.setdefault(origin, []).append(waiter)
        timer = call_later(max(0.0, seconds), _fire, waiter)
        try:
            await maybe_deferred_to_future(waiter)
        finally:
            timer.cancel()
            waiting = self._waiters.get(origin, [])
            if waiter in waiting:
                waiting.remove(waiter)
            if not waiting:
                self._waiters.pop(origin, None)

    def tell(self, origin: str) -> None:
        """Wake those who wait for ``origin``, in the order they came."""
        for waiter in tuple(self._waiters.get(origin, ())):
            _fire(waiter)

    def end(self) -> None:
        """Wake everybody."""
        for origin in tuple(self._waiters):
            self.tell(origin)


def _fire(waiter: Deferred[None]) -> None:
    if not waiter.called:
        waiter.callback(None)
