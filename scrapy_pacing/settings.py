"""What a Scrapy project says about pacing: the PACING_ settings, read and checked in one place.

Every field of `PacingPolicy` is a setting of the same name in capitals. Where a project has only Scrapy's own delays,
those are taken over, so that no gap is counted twice.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from scrapy.utils.misc import load_object

from .core.memory import default_data_dir
from .core.origins import normalise_host, origin_key
from .core.plan import check_warmup_mode
from .core.policy import DERIVED_FIELDS, PacingPolicy, PolicyBook
from .datadir import project_data
from .exits.settings import EXIT_SETTINGS, ExitSettings, read_exit_settings
from .state import SharedState

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from .core.layers import Layer

PREFIX = "PACING_"
POLICY_FIELDS = tuple(field.name for field in fields(PacingPolicy))
_WHOLE_NUMBERS = frozenset(field.name for field in fields(PacingPolicy) if field.type == "int")
# The settings that are no field of the policy, with their defaults.
OTHER_SETTINGS: Mapping[str, Any] = {
    "PACING_ENABLED": True,
    "PACING_ORIGINS": {},
    "PACING_THROTTLE_STATUSES": [429],
    "PACING_MAX_THROTTLES": 10,
    "PACING_ORIGIN_KEY": None,
    "PACING_OBEY_CRAWL_DELAY": True,
    "PACING_RATELIMIT_HEADERS": True,
    "PACING_MAX_ORIGINS": 4096,
    "PACING_WARMUP": "always",
    "PACING_TRAIL": True,
    "PACING_FETCH_METADATA": True,
    "PACING_REMEMBER": True,
    "PACING_DATA_DIR": None,
    "PACING_FORGET_AFTER": 604800,
    "PACING_MAX_VALIDATORS": 512,
    "PACING_FLUSH_INTERVAL": 30,
    "PACING_DIAGNOSE": None,
    "PACING_CLEARANCE_COOKIES": ["cf_clearance", "datadome", "aws-waf-token", "reese84", "_abck"],
    "PACING_STATE": None,
    **EXIT_SETTINGS,
}
KNOWN_SETTINGS = frozenset(OTHER_SETTINGS) | {PREFIX + name.upper() for name in POLICY_FIELDS}

# A bare host: a name, an IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"(?:[^\s/?#@:*\[\]]+|\[[0-9a-fA-F:.%\w]+\])\Z")

OriginKey = Callable[["Request", str], str]
Diagnose = Callable[["Response"], "Layer | int | None"]
StateMaker = Callable[["Crawler"], SharedState]


@dataclass(frozen=True)
class PacingSettings:
    """The settings of one crawl, checked."""

    policies: PolicyBook
    throttle_statuses: frozenset[int]
    max_throttles: int
    origin_key: OriginKey | None
    obey_crawl_delay: bool
    ratelimit_headers: bool
    max_origins: int
    warmup: str
    trail: bool
    fetch_metadata: bool
    exits: ExitSettings
    data_dir: Path | None
    """Where to remember; None: nowhere."""
    forget_after: float
    max_validators: int
    flush_interval: float
    diagnose: Diagnose | None
    clearance_cookies: frozenset[str]
    state: SharedState | StateMaker | None


def read_settings(settings: BaseSettings, spider: Spider | None = None) -> PacingSettings:
    """Read the PACING_ settings of a crawl.

    Raises ValueError for a bad value; its text names the setting, the value and what is allowed.
    """
    interval, host_delays = scrapy_delays(settings, spider)
    general = _general_policy(settings, interval)
    overrides = {
        host: _slot_policy(f"DOWNLOAD_SLOTS[{host!r}]['delay']", general, delay) for host, delay in host_delays.items()
    }
    overrides.update(_origin_policies(settings, general, overrides))
    return PacingSettings(
        policies=PolicyBook(general, overrides),
        throttle_statuses=_statuses(settings, "PACING_THROTTLE_STATUSES"),
        max_throttles=_count(settings, "PACING_MAX_THROTTLES", least=0),
        origin_key=_origin_key(settings),
        obey_crawl_delay=_switch(settings, "PACING_OBEY_CRAWL_DELAY"),
        ratelimit_headers=_switch(settings, "PACING_RATELIMIT_HEADERS"),
        max_origins=_count(settings, "PACING_MAX_ORIGINS", least=1),
        warmup=check_warmup_mode(settings.get("PACING_WARMUP", OTHER_SETTINGS["PACING_WARMUP"])),
        trail=_switch(settings, "PACING_TRAIL"),
        fetch_metadata=_switch(settings, "PACING_FETCH_METADATA"),
        exits=read_exit_settings(settings),
        data_dir=_data_dir(settings),
        forget_after=_seconds(settings, "PACING_FORGET_AFTER", least=1, most=10 * 365 * 86_400),
        max_validators=_count(settings, "PACING_MAX_VALIDATORS", least=1),
        flush_interval=_seconds(settings, "PACING_FLUSH_INTERVAL", least=0.1, most=86_400),
        diagnose=_callable(settings, "PACING_DIAGNOSE", "a callable (response) -> Layer or None, or the path of one"),
        clearance_cookies=_names(settings, "PACING_CLEARANCE_COOKIES"),
        state=_state(settings),
    )


def scrapy_delays(settings: BaseSettings, spider: Spider | None = None) -> tuple[float | None, dict[str, float]]:
    """Return Scrapy's own delays: DOWNLOAD_DELAY (None if it is 0), and those of DOWNLOAD_SLOTS by host.

    The spider attribute ``download_delay``, deprecated but still heeded, goes before the setting.
    """
    own = getattr(spider, "download_delay", None)
    delay = _delay("DOWNLOAD_DELAY", settings.get("DOWNLOAD_DELAY") if own is None else own)
    by_host = {
        # A slot that says 0 has no delay, whatever DOWNLOAD_DELAY is.
        normalise_host(str(host)): _delay(f"DOWNLOAD_SLOTS[{host!r}]['delay']", slot["delay"])
        for host, slot in settings.getdict("DOWNLOAD_SLOTS").items()
        if isinstance(slot, Mapping) and slot.get("delay") is not None
    }
    return (delay if delay > 0 else None), by_host


def pacing_enabled(settings: BaseSettings) -> bool:
    """Return PACING_ENABLED; raises ValueError for a value that is neither true nor false."""
    return _switch(settings, "PACING_ENABLED")


def unknown_settings(settings: BaseSettings) -> list[str]:
    """Return a sentence for each PACING_ setting that this version does not know."""
    unknown = sorted(str(name) for name in settings if str(name).startswith(PREFIX) and str(name) not in KNOWN_SETTINGS)
    sentences = []
    for name in unknown:
        known = sorted(setting.removeprefix(PREFIX) for setting in KNOWN_SETTINGS)
        near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
        hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        sentences.append(f"{name} is not a setting of scrapy-pacing and has no effect{hint}")
    return sentences


def _general_policy(settings: BaseSettings, scrapy_delay: float | None) -> PacingPolicy:
    values: dict[str, Any] = {}
    if scrapy_delay is not None:
        values["interval"] = scrapy_delay
    for name in POLICY_FIELDS:
        setting = PREFIX + name.upper()
        if settings.get(setting) is not None and not _is_none(name, settings.get(setting)):
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


def _slot_policy(where: str, general: PacingPolicy, delay: float) -> PacingPolicy:
    """Make a slot's delay the interval of its host; clamps in seconds were meant for the general interval."""
    try:
        return replace(general, interval=delay, floor=None, ceiling=None, pause_min=None, pause_max=None)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _origin_policies(
    settings: BaseSettings, general: PacingPolicy, by_slot: Mapping[str, PacingPolicy]
) -> dict[str, PacingPolicy]:
    given = _mapping(settings, "PACING_ORIGINS")
    policies = {}
    for key, overrides in given.items():
        where = f"PACING_ORIGINS[{key!r}]"
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{where} has the key {key!r}; allowed: a host or an origin, such as 'example.com'")
        if not isinstance(overrides, Mapping):
            raise ValueError(f"{where} is {overrides!r}; allowed: a dict of policy fields, such as {{'interval': 10}}")
        origin = _origin_of_key(settings, where, key)
        policies[origin] = _override(where, by_slot.get(origin, general), overrides)
    return policies


def _origin_of_key(settings: BaseSettings, where: str, key: str) -> str:
    """Return the origin or host that a key of PACING_ORIGINS means; raises ValueError if it can mean neither."""
    origin = origin_key(key)
    if origin is not None:
        return origin
    if settings.get("PACING_ORIGIN_KEY"):
        # One of the keys that the project's own function makes.
        return key
    host = normalise_host(key)
    if not _HOST.match(host):
        raise ValueError(
            f"{where} is neither a host nor an origin, so it would have no effect; allowed: keys such as "
            "'example.com' or 'https://example.com:8443'"
        )
    return host


def _override(where: str, general: PacingPolicy, overrides: Mapping[str, Any]) -> PacingPolicy:
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in POLICY_FIELDS:
            near = difflib.get_close_matches(str(name), POLICY_FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(POLICY_FIELDS)}"
            raise ValueError(f"{where} has the unknown field {name!r}; {hint}")
        # None: follows from the interval, as in the policy itself.
        follows = value is None and name in DERIVED_FIELDS
        values[name] = None if follows else _number(f"{where}[{name!r}]", name, value)
    try:
        return replace(general, **values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _is_none(field: str, value: Any) -> bool:
    """Return whether a value from the command line says None where a field may be None."""
    return field in DERIVED_FIELDS and value == "None"


def _delay(setting: str, value: Any) -> float:
    """Read a delay of Scrapy's own settings."""
    seconds = float(_number(setting, "", value))
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{setting} is {value!r}; allowed: 0 or more seconds")
    return seconds


def _number(setting: str, field: str, value: Any) -> float | int:
    """Read a number that may come from the command line as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{setting} is {value!r}; allowed: a number")
    try:
        return int(value) if field in _WHOLE_NUMBERS and float(value) == int(float(value)) else float(value)
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
        given = settings.getlist(name, OTHER_SETTINGS[name])
        statuses = frozenset(int(status) for status in given)
        if any(isinstance(status, float) and status not in statuses for status in given):
            raise ValueError
        if not all(400 <= status <= 999 for status in statuses):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}; allowed: a list of HTTP statuses from 400 to 999") from None
    return statuses


def _mapping(settings: BaseSettings, name: str) -> Mapping[Any, Any]:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        return settings.getdict(name, OTHER_SETTINGS[name])
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; allowed: a dict, or JSON of one") from None


def _origin_key(settings: BaseSettings) -> OriginKey | None:
    function: OriginKey | None = _callable(
        settings, "PACING_ORIGIN_KEY", "a callable (request, origin) -> str, or the path of one"
    )
    return function


def _callable(settings: BaseSettings, name: str, allowed: str) -> Any:
    """Read a callable, None if the setting is; whoever reads it knows the type."""
    value = _loaded(settings, name, allowed)
    if value is not None and not callable(value):
        raise ValueError(f"{name} is {settings.get(name)!r}; allowed: {allowed}")
    return value


def _loaded(settings: BaseSettings, name: str, allowed: str) -> Any:
    value = settings.get(name)
    try:
        return load_object(value) if isinstance(value, str) else value
    except (ImportError, NameError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is {value!r}, which can't be loaded ({error}); allowed: {allowed}") from None


def _state(settings: BaseSettings) -> SharedState | StateMaker | None:
    allowed = "a SharedState, a callable (crawler) -> SharedState, or the path of one"
    value = _loaded(settings, "PACING_STATE", allowed)
    if value is not None and not isinstance(value, SharedState) and not callable(value):
        raise ValueError(f"PACING_STATE is {settings.get('PACING_STATE')!r}; allowed: {allowed}")
    checked: SharedState | StateMaker | None = value
    return checked


def _data_dir(settings: BaseSettings) -> Path | None:
    if not _switch(settings, "PACING_REMEMBER"):
        return None
    return default_data_dir(settings.get("PACING_DATA_DIR"), project_data=project_data())


def _switch(settings: BaseSettings, name: str) -> bool:
    try:
        return settings.getbool(name, OTHER_SETTINGS[name])
    except ValueError:
        raise ValueError(f"{name} is {settings.get(name)!r}; allowed: True or False") from None


def _seconds(settings: BaseSettings, name: str, *, least: float, most: float) -> float:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        if isinstance(value, bool):
            raise TypeError
        seconds = float(value)
        if not least <= seconds <= most:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} is {value!r}; allowed: {least:g} to {most:.0f} seconds") from None
    return seconds


def _names(settings: BaseSettings, name: str) -> frozenset[str]:
    value = settings.get(name, OTHER_SETTINGS[name])
    try:
        names = settings.getlist(name, OTHER_SETTINGS[name])
        if isinstance(value, (bytes, Mapping)) or not all(isinstance(one, str) and one for one in names):
            raise TypeError
    except TypeError:
        raise ValueError(f"{name} is {value!r}; allowed: a list of cookie names") from None
    return frozenset(names)
