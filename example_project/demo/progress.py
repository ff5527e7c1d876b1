"""How far a crawl has come: one line that is updated, or a line every few seconds where nobody looks on."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

from demo.figures import is_got, is_page, is_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shop.arrivals import Arrival

_BAR = 24
_LINE_SECONDS = 5.0


class Progress:
    """Shows what has arrived at the shop; ``pages`` is how many there are to get."""

    def __init__(self, pages: int, *, label: str, stream: TextIO | None = None) -> None:
        self._pages = pages
        self._label = label
        self._stream = stream or sys.stdout
        self._updates = self._stream.isatty()
        self._started_at = self._shown_at = time.monotonic()

    def show(self, arrivals: Sequence[Arrival]) -> None:
        """Show the present state, as often as it is called on a terminal, and now and then elsewhere."""
        now = time.monotonic()
        if self._updates:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write("\r" + self._line(arrivals)[:width].ljust(width))
            self._stream.flush()
        elif now - self._shown_at >= _LINE_SECONDS:
            self._shown_at = now
            print(self._line(arrivals), file=self._stream, flush=True)

    def finish(self, arrivals: Sequence[Arrival]) -> None:
        """Show the final state, and leave the line."""
        if self._updates:
            self.show(arrivals)
            self._stream.write("\n")
        else:
            print(self._line(arrivals), file=self._stream, flush=True)

    def _line(self, arrivals: Sequence[Arrival]) -> str:
        got = len({(a.origin, a.path) for a in arrivals if is_page(a) and is_got(a)})
        refusals = sum(map(is_refusal, arrivals))
        filled = min(_BAR, _BAR * got // self._pages)
        seconds = time.monotonic() - self._started_at
        return (
            f"{self._label} [{'#' * filled}{'.' * (_BAR - filled)}] {got:3} of {self._pages} pages, "
            f"{len(arrivals):3} requests, {refusals} refused, {seconds:.0f} s"
        )
