"""Cancelling single requests by ``meta["pacing_signal"]``: anything that has ``is_set()``.

The rules:

1. A signal is looked at every `_LOOK` seconds while a request with one waits, at the gate or in the queue, at each
   chunk of its body, and just before it is sent; where nothing with a signal waits, there is no timer.
2. A request that is cancelled fails with `RequestCancelledError`, once. Nothing else is touched: not the gap of the
   origin, not those who wait behind it.
3. A signal can't be kept on disk. Scrapy keeps requests that it can't store in memory.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from scrapy import signals
from scrapy.utils.asyncio import call_later

from .exceptions import RequestCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.asyncio import CallLaterResult

    from .gate import Gate

logger = logging.getLogger(__name__)

SIGNAL = "pacing_signal"
_LOOK = 0.1


class Signal(Protocol):
    """What ``meta["pacing_signal"]`` has to be, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return whether whoever waits under this signal is to give up."""


def signal_of(request: Request) -> Signal | None:
    """Return the signal of a request, or None; raises ValueError for a value that is none."""
    signal: Signal | None = request.meta.get(SIGNAL)
    if signal is not None and not callable(getattr(signal, "is_set", None)):
        raise ValueError(f"meta[{SIGNAL!r}] is {signal!r}; allowed: anything with a method is_set()")
    return signal


class Cancellations:
    """Those requests of one crawl that carry a signal; ``count`` counts a stat."""

    def __init__(self, crawler: Crawler, gate: Gate, *, count: Callable[..., None]) -> None:
        self._crawler = crawler
        self._gate = gate
        self._count = count
        # By request that waits: its signal, and what is to be done when that is set.
        self._waits: dict[Request, tuple[Signal, Callable[[Request], None]]] = {}
        self._timer: CallLaterResult | None = None
        self._hears_bytes = False

    def check(self, request: Request) -> None:
        """Raise `RequestCancelledError` if a request is cancelled; its body is watched from here on.

        Raises ValueError if its signal is none.
        """
        signal = signal_of(request)
        if signal is None:
            return
        if signal.is_set():
            raise self.failure(request)
        if not self._hears_bytes:
            # A handler of these costs something at each chunk of every answer: nobody pays it who has no signal.
            self._hears_bytes = True
            self._crawler.signals.connect(self._received, signal=signals.headers_received)
            self._crawler.signals.connect(self._received, signal=signals.bytes_received)

    def failure(self, request: Request) -> RequestCancelledError:
        """Count a cancelled request, and return what it fails with."""
        self._count("pacing/cancelled")
        return RequestCancelledError(request.url)

    def waiter(self, request: Request, owner: object) -> object:
        """Return by what name a request waits at the gate: ``owner``, or its own where a signal ends its wait alone."""
        signal = signal_of(request)
        if signal is None:
            return owner
        self.watch(request, signal, self._gate.close)
        return request

    def watch_queued(self, request: Request, cancel: Callable[[Request], None]) -> None:
        """Call ``cancel`` once when the signal of a request in a queue is set; what is no signal is told later."""
        with suppress(ValueError):
            signal = signal_of(request)
            if signal is not None:
                self.watch(request, signal, cancel)

    def watch(self, request: Request, signal: Signal, cancel: Callable[[Request], None]) -> None:
        """Call ``cancel`` once when ``signal`` is set, unless the request is let go before."""
        self._waits[request] = (signal, cancel)
        if self._timer is None:
            self._timer = call_later(_LOOK, self._look)

    def let_go(self, request: Request) -> None:
        """Stop watching for a request; does nothing if it is not watched for."""
        if self._waits.pop(request, None) is not None and not self._waits:
            self._disarm()

    def close(self) -> None:
        """End all waits at the gate under a signal, and watch for nobody any more."""
        waiting = list(self._waits)
        self._waits.clear()
        self._disarm()
        for request in waiting:
            self._gate.close(request)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        # Many requests of one job share a signal: it is asked once.
        states: dict[int, bool] = {}
        for request, (signal, cancel) in list(self._waits.items()):
            state = states.get(id(signal))
            if state is None:
                state = states[id(signal)] = self._is_set(signal)
            if state and self._waits.pop(request, None) is not None:
                cancel(request)
        if self._waits and self._timer is None:
            self._timer = call_later(_LOOK, self._look)

    @staticmethod
    def _is_set(signal: Signal) -> bool:
        try:
            return bool(signal.is_set())
        except Exception:
            # The request fails with the same exception when it is looked at next.
            logger.exception("A pacing_signal raised; its requests wait no longer")
            return True

    def _received(self, request: Request) -> None:
        """End a download whose signal is set; the download handler passes on what is raised here."""
        if SIGNAL in request.meta:
            self.check(request)
