"""What the site saw, one JSON line for each request, in a file that others can read while it grows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as it reached the site; ``at`` is monotonic seconds of the shop's clock."""

    at: float
    origin: str
    method: str
    path: str
    status: int
    referer: str | None
    fetch: dict[str, str]
    """The ``Sec-Fetch-`` headers, by what follows that prefix."""
    cookie: bool
    """Whether the visitor brought the homepage's cookie."""


class ArrivalLog:
    """Writes arrivals to a file; every line is complete as soon as it is there."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, arrival: Arrival) -> None:
        self._file.write(json.dumps(asdict(arrival)) + "\n")

    def close(self) -> None:
        self._file.close()


class ArrivalReader:
    """Reads a log that is still being written, each arrival once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Arrival]:
        """Return the arrivals that were written since the last call; none while there is no file."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [Arrival(**json.loads(line)) for line in complete.splitlines()]
