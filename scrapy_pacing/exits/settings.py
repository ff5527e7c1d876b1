"""The settings of the exits, checked.

No message and no ``repr`` shows an entry: what is written there holds passwords.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_pacing.core.exits import ExitRules, ParsedExits, clamp_sessions, parse_exits, read_exits_file
from scrapy_pacing.core.exits.parsing import join_exits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.settings import BaseSettings

# With their defaults.
EXIT_SETTINGS: Mapping[str, Any] = {
    "PACING_EXITS": [],
    "PACING_EXITS_FILE": None,
    "PACING_MAX_SESSIONS_PER_EXIT": 2,
    "PACING_BAN_STATUSES": [403],
    "PACING_BAN_AFTER": 3,
    "PACING_BAN_COOLDOWN": 3600.0,
    "PACING_EXIT_COOLDOWN": 60.0,
    "PACING_EXIT_WAIT": 60.0,
    "PACING_MAX_EXIT_FAULTS": 3,
}

_LONGEST_WAIT = 3600.0
_LONGEST_COOLDOWN = 86_400.0
_MOST_REFUSALS = 1000
# It says "too fast", which no address can help.
_TOO_MANY_REQUESTS = 429
_NO_KEY = bytes(16)


@dataclass(frozen=True)
class ExitSettings:
    """The settings of one crawl's exits."""

    entries: Any = field(repr=False)
    file: str | None
    rotating_proxies_style: bool
    file_rotating_proxies_style: bool
    auth_encoding: str | None
    max_sessions: int
    rules: ExitRules
    ban_statuses: frozenset[int]
    wait: float
    max_faults: int
    allow_slash: bool = True
    """Whether a user name or password may have a slash in it."""
    warnings: tuple[str, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether the project names any exits."""
        return bool(self.entries) or self.file is not None

    def parse(self, key: bytes) -> ParsedExits:
        """Read the exits, with ids made by ``key``; raises ValueError for one that can't be used."""
        parts = [
            parse_exits(
                self.entries,
                key=key,
                rotating_proxies_style=self.rotating_proxies_style,
                auth_encoding=self.auth_encoding,
                allow_slash=self.allow_slash,
            )
        ]
        if self.file is not None:
            parts.append(
                read_exits_file(
                    self.file,
                    key=key,
                    rotating_proxies_style=self.file_rotating_proxies_style,
                    auth_encoding=self.auth_encoding,
                    allow_slash=self.allow_slash,
                )
            )
        parsed = join_exits(*parts)
        if self.wanted and not parsed.exits:
            raise ValueError(f"PACING_EXITS_FILE ({self.file}) names no exit; allowed: one exit a line")
        return parsed


def read_exit_settings(settings: BaseSettings) -> ExitSettings:
    """Read the settings of a crawl's exits; raises ValueError for a bad one, and reads the file to find out."""
    entries = settings.get("PACING_EXITS", EXIT_SETTINGS["PACING_EXITS"])
    file = settings.get("PACING_EXITS_FILE") or None
    if file is not None and not isinstance(file, str) and not hasattr(file, "__fspath__"):
        raise ValueError(f"PACING_EXITS_FILE is a {type(file).__name__}; allowed: the path of a text file")
    max_sessions, clamped = _max_sessions(settings)
    read = ExitSettings(
        entries=entries if entries is None or isinstance(entries, str) else _listed(entries),
        file=None if file is None else str(file),
        # Who writes PACING_EXITS_FILE = ROTATING_PROXY_LIST_PATH has a file of that package, without schemes.
        rotating_proxies_style=bool(entries) and entries == settings.get("ROTATING_PROXY_LIST"),
        file_rotating_proxies_style=file is not None and file == settings.get("ROTATING_PROXY_LIST_PATH"),
        auth_encoding=settings.get("HTTPPROXY_AUTH_ENCODING"),
        max_sessions=max_sessions,
        rules=ExitRules(
            ban_after=_whole(settings, "PACING_BAN_AFTER", 1, _MOST_REFUSALS),
            pair_cooldown=_seconds(settings, "PACING_BAN_COOLDOWN", 1, _LONGEST_COOLDOWN),
            exit_cooldown=_seconds(settings, "PACING_EXIT_COOLDOWN", 1, _LONGEST_COOLDOWN),
        ),
        ban_statuses=_ban_statuses(settings),
        wait=_seconds(settings, "PACING_EXIT_WAIT", 0, _LONGEST_WAIT),
        max_faults=_whole(settings, "PACING_MAX_EXIT_FAULTS", 0, None),
        # Without a reactor Scrapy writes them into a URL as they are, which breaks it, and the error shows it.
        allow_slash=settings.getbool("TWISTED_REACTOR_ENABLED", True),
        warnings=() if clamped is None else (clamped,),
    )
    read.parse(_NO_KEY)
    return read


def _listed(entries: Any) -> Any:
    # Scrapy's settings may hold a tuple or a set; parse_exits says what is wrong with anything else.
    return list(entries) if isinstance(entries, (list, tuple, set, frozenset)) else entries


def _max_sessions(settings: BaseSettings) -> tuple[int, str | None]:
    name = "PACING_MAX_SESSIONS_PER_EXIT"
    value = settings.get(name, EXIT_SETTINGS[name])
    if isinstance(value, str):
        # As the command line gives it.
        with contextlib.suppress(ValueError):
            value = int(value)
    return clamp_sessions(value, setting=name)


def _whole(settings: BaseSettings, name: str, least: int, most: int | None) -> int:
    value = settings.get(name, EXIT_SETTINGS[name])
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value)
        if number < least or number != float(value) or (most is not None and number > most):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {value!r}; allowed: a whole number, {allowed}") from None
    return number


def _seconds(settings: BaseSettings, name: str, least: float, most: float) -> float:
    value = settings.get(name, EXIT_SETTINGS[name])
    try:
        if isinstance(value, bool):
            raise TypeError
        seconds = float(value)
        if not (math.isfinite(seconds) and least <= seconds <= most):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}; allowed: {least:g} to {most:.0f} seconds") from None
    return seconds


def _ban_statuses(settings: BaseSettings) -> frozenset[int]:
    name = "PACING_BAN_STATUSES"
    value = settings.get(name, EXIT_SETTINGS[name])
    try:
        statuses = frozenset(int(status) for status in settings.getlist(name, EXIT_SETTINGS[name]))
        if not all(400 <= status <= 599 and status != _TOO_MANY_REQUESTS for status in statuses):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; allowed: a list of HTTP statuses from 400 to 599 without 429") from None
    return statuses
