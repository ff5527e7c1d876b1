"""What a Scrapy project says about pacing: the PACING_ settings, read and checked in one place.

Every field of `PacingPolicy` is a setting of the same name in capitals. Where a project has only Scrapy's own delays,
those are taken over, so that no gap is counted twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from .core.origins import normalise_host, origin_key
from .core.policy import PacingPolicy, PolicyBook

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.settings import BaseSettings

PREFIX = "PACING_"
POLICY_FIELDS = tuple(field.name for field in fields(PacingPolicy))
# The settings that are no field of the policy, with their defaults.
OTHER_SETTINGS: Mapping[str, Any] = {
    "PACING_ENABLED": True,
    "PACING_ORIGINS": {},
    "PACING_THROTTLE_STATUSES": [429],
    "PACING_MAX_THROTTLES": 10,
    "PACING_ORIGIN_KEY": None,
    "PACING_MAX_ORIGINS": 4096,
}
KNOWN_SETTINGS = frozenset(OTHER_SETTINGS) | {PREFIX + name.upper() for name in POLICY_FIELDS}

OriginKey = Callable[["Request", str], str]


@dataclass(frozen=True)
class PacingSettings:
    """The settings of one crawl, checked."""

    policies: PolicyBook
    throttle_statuses: frozenset[int]
    max_throttles: int
    origin_key: OriginKey | None
    max_origins: int


def read_settings(settings: BaseSettings, spider: Spider | None = None) -> PacingSettings:
    """Read the PACING_ settings of a crawl.

    Raises ValueError for a bad value; its text names the setting, the value and what is allowed.
    """
    interval, host_delays = scrapy_delays(settings, spider)
    general = _general_policy(settings, interval)
    overrides = {
        host: _override(f"DOWNLOAD_SLOTS[{host!r}]", general, {"interval": delay})
        for host, delay in host_delays.items()
    }
    overrides.update(_origin_policies(settings, general))
    return PacingSettings(
        policies=PolicyBook(general, overrides),
        throttle_statuses=_statuses(settings, "PACING_THROTTLE_STATUSES"),
        max_throttles=_count(settings, "PACING_MAX_THROTTLES", least=0),
        origin_key=_origin_key(settings),
        max_origins=_count(settings, "PACING_MAX_ORIGINS", least=1),
    )


def scrapy_delays(settings: BaseSettings, spider: Spider | None = None) -> tuple[float | None, dict[str, float]]:
    """Return Scrapy's own delays: DOWNLOAD_DELAY (None if it is 0), and those of DOWNLOAD_SLOTS by host.

    The spider attribute ``download_delay``, deprecated but still heeded, goes before the setting.
    """
    own = getattr(spider, "download_delay", None)
    delay = settings.getfloat("DOWNLOAD_DELAY") if own is None else float(own)
    slots = settings.getdict("DOWNLOAD_SLOTS")
    by_host = {
        normalise_host(str(host)): float(slot["delay"])
        for host, slot in slots.items()
        if isinstance(slot, Mapping) and slot.get("delay")
    }
    return (delay if delay > 0 else None), by_host


def unknown_settings(settings: BaseSettings) -> list[str]:
    """Return a sentence for each PACING_ setting that this version does not know."""
    unknown = sorted(str(name) for name in settings if str(name).startswith(PREFIX) and str(name) not in KNOWN_SETTINGS)
    sentences = []
    for name in unknown:
        near = difflib.get_close_matches(name, sorted(KNOWN_SETTINGS), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        sentences.append(f"{name} is not a setting of scrapy-pacing and has no effect{hint}")
    return sentences


def _general_policy(settings: BaseSettings, scrapy_delay: float | None) -> PacingPolicy:
    values: dict[str, Any] = {}
    if scrapy_delay is not None:
        values["interval"] = scrapy_delay
    for name in POLICY_FIELDS:
        setting = PREFIX + name.upper()
        if settings.get(setting) is not None:
            values[name] = _number(setting, name, settings.get(setting))
    try:
        return PacingPolicy(**values)
    except ValueError as error:
        raise ValueError(_as_setting(error, values, scrapy_delay)) from None


def _as_setting(error: ValueError, values: Mapping[str, Any], scrapy_delay: float | None) -> str:
    """Say a policy's complaint in terms of the setting that its value came from."""
    field, _, rest = str(error).partition(" ")
    if field == "interval" and values.get("interval") == scrapy_delay:
        return f"DOWNLOAD_DELAY (taken over as PACING_INTERVAL) {rest}"
    return f"{PREFIX}{field.upper()} {rest}"


def _origin_policies(settings: BaseSettings, general: PacingPolicy) -> dict[str, PacingPolicy]:
    given = _mapping(settings, "PACING_ORIGINS")
    policies = {}
    for key, overrides in given.items():
        where = f"PACING_ORIGINS[{key!r}]"
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{where} has the key {key!r}; allowed: a host or an origin, such as 'example.com'")
        if not isinstance(overrides, Mapping):
            raise ValueError(f"{where} is {overrides!r}; allowed: a dict of policy fields, such as {{'interval': 10}}")
        # A key that is neither a URL nor a host is one that PACING_ORIGIN_KEY makes: it stays as it is.
        origin = origin_key(key) or (key if settings.get("PACING_ORIGIN_KEY") else normalise_host(key))
        policies[origin] = _override(where, general, overrides)
    return policies


def _override(where: str, general: PacingPolicy, overrides: Mapping[str, Any]) -> PacingPolicy:
    values = {}
    for name, value in overrides.items():
        if name not in POLICY_FIELDS:
            near = difflib.get_close_matches(str(name), POLICY_FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(POLICY_FIELDS)}"
            raise ValueError(f"{where} has the unknown field {name!r}; {hint}")
        values[name] = _number(f"{where}[{name!r}]", name, value)
    try:
        return replace(general, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _number(setting: str, field: str, value: Any) -> float | int:
    """Read a number that may come from the command line as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{setting} is {value!r}; allowed: a number")
    try:
        return int(value) if field == "recover_after" and float(value) == int(float(value)) else float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{setting} is {value!r}; allowed: a number") from None


def _count(settings: BaseSettings, name: str, *, least: int) -> int:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        if isinstance(value, bool):
            raise TypeError
        number = int(value)
        if number < least or number != float(value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}; allowed: a whole number, {least} or more") from None
    return number


def _statuses(settings: BaseSettings, name: str) -> frozenset[int]:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        statuses = frozenset(int(status) for status in settings.getlist(name, OTHER_SETTINGS[name]))
        if not all(400 <= status <= 599 for status in statuses):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; allowed: a list of HTTP statuses from 400 to 599") from None
    return statuses


def _mapping(settings: BaseSettings, name: str) -> Mapping[Any, Any]:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        return settings.getdict(name, OTHER_SETTINGS[name])
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; allowed: a dict, or JSON of one") from None


def _origin_key(settings: BaseSettings) -> OriginKey | None:
    value = settings.get("PACING_ORIGIN_KEY")
    if value is None:
        return None
    allowed = "a callable (request, origin) -> str, or the path of one"
    try:
        function = load_object(value) if isinstance(value, str) else value
    except (ImportError, NameError, ValueError) as error:
        raise ValueError(
            f"PACING_ORIGIN_KEY is {value!r}, which can't be loaded ({error}); allowed: {allowed}"
        ) from None
    if not callable(function):
        raise ValueError(f"PACING_ORIGIN_KEY is {value!r}; allowed: {allowed}")
    checked: OriginKey = function
    return checked
