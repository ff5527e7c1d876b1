"""The PACING_ settings: what a project may write, and what it is told when it wrote something else."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from typing import Any

import pytest
from scrapy import Request
from scrapy.settings import Settings

from scrapy_pacing import PacingPolicy
from scrapy_pacing.settings import (
    KNOWN_SETTINGS,
    OTHER_SETTINGS,
    POLICY_FIELDS,
    PREFIX,
    PacingSettings,
    read_settings,
    scrapy_delays,
    unknown_settings,
)

FIELD_SETTINGS = [PREFIX + name.upper() for name in POLICY_FIELDS]


def by_scheme(request: Request, origin: str) -> str:
    return origin.partition(":")[0]


not_callable = 5


def read(**values: Any) -> PacingSettings:
    return read_settings(Settings(values))


def refusal(**values: Any) -> str:
    with pytest.raises(ValueError, match=r"allowed: \S|did you mean") as caught:
        read(**values)
    return str(caught.value)


# -- the policy ---------------------------------------------------------------------------------------------------------


def test_without_settings_the_defaults_of_the_policy_hold() -> None:
    """An empty project gets the policy's own defaults; no setting repeats them."""
    settings = read()

    assert settings.policies.general == PacingPolicy()
    assert settings.policies.overrides == {}
    assert settings.throttle_statuses == {429}
    assert settings.max_throttles == 10
    assert settings.origin_key is None
    assert settings.max_origins == 4096


NUMBERS = {
    "interval": 2.0,
    "shape": 3.0,
    "floor": 0.5,
    "ceiling": 10.0,
    "pause_probability": 0.01,
    "pause_min": 30.0,
    "pause_max": 40.0,
    "backoff_factor": 3.0,
    "first_interval": 2.5,
    "max_interval": 100.0,
    "max_hold": 60.0,
    "recover_after": 5,
    "recover_factor": 0.8,
    "warmup_ttl": 60.0,
}
# Fields that need no other field beside them to be valid may join without a line here.
NUMBERS |= {
    field.name: field.default + 1
    for field in fields(PacingPolicy)
    if field.name not in NUMBERS and isinstance(field.default, (int, float))
}


def test_every_field_of_the_policy_is_a_setting() -> None:
    """Each field has a setting of its name in capitals, which reaches the policy."""
    assert set(POLICY_FIELDS) == set(NUMBERS) == {field.name for field in fields(PacingPolicy)}
    assert all(getattr(PacingPolicy(), name) != value for name, value in NUMBERS.items())
    settings = read(**{PREFIX + name.upper(): value for name, value in NUMBERS.items()})

    assert settings.policies.general == PacingPolicy(**NUMBERS)


def test_every_field_may_come_from_the_command_line_as_text() -> None:
    """`-s PACING_INTERVAL=0.5` is a number like any other."""
    settings = read(**{PREFIX + name.upper(): str(value) for name, value in NUMBERS.items()})

    assert settings.policies.general == PacingPolicy(**NUMBERS)
    assert read(PACING_INTERVAL="0.5").policies.general.interval == 0.5
    assert read(PACING_INTERVAL="0").policies.general.interval == 0
    assert read(PACING_CEILING="inf").policies.general.ceiling == math.inf
    assert read(PACING_RECOVER_AFTER="20").policies.general.recover_after == 20
    assert read(PACING_RECOVER_AFTER=20.0).policies.general.recover_after == 20


@pytest.mark.parametrize("setting", FIELD_SETTINGS)
@pytest.mark.parametrize("value", [True, "many", "", "1,5", math.nan, "nan", -1, "-1", [1], {}, b"1"], ids=repr)
def test_a_bad_number_stops_the_crawl_by_name(setting: str, value: Any) -> None:
    """What can't be honoured is refused with the setting, the value and what is allowed."""
    text = refusal(**{setting: value})

    assert text.startswith(f"{setting} is ")
    assert str(value) in text or re.search(r"is (-1|-1\.0|nan)\b", text)


@pytest.mark.parametrize("setting", FIELD_SETTINGS)
def test_none_means_the_default(setting: str) -> None:
    """A setting that a project sets back to None has its default."""
    assert read(**{setting: None}).policies.general == PacingPolicy()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"PACING_INTERVAL": -3}, "PACING_INTERVAL is -3.0; allowed: 0 to 86400 seconds"),
        ({"PACING_INTERVAL": "1e9"}, "PACING_INTERVAL is 1000000000.0; allowed: 0 to 86400 seconds"),
        ({"PACING_FLOOR": 5}, "PACING_FLOOR is 5.0; allowed: 0 up to, not including, the interval (4)"),
        ({"PACING_CEILING": 4}, "PACING_CEILING is 4.0; allowed: above the interval (4)"),
        ({"PACING_RECOVER_AFTER": 2.5}, "PACING_RECOVER_AFTER is 2.5; allowed: a whole number"),
        ({"PACING_RECOVER_AFTER": "inf"}, "PACING_RECOVER_AFTER is 'inf'; allowed: a number"),
        ({"PACING_MAX_HOLD": "inf"}, "PACING_MAX_HOLD is inf; allowed: a finite number"),
        ({"PACING_INTERVAL": 10**400}, f"PACING_INTERVAL is {10**400}; allowed: a number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_message_says_what_is_allowed(values: dict[str, Any], text: str) -> None:
    """The reader of the message knows what to write instead."""
    assert refusal(**values) == text


# -- per origin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["dict", "JSON text"])
def test_origins_may_have_numbers_of_their_own(form: Any) -> None:
    """`PACING_ORIGINS` overrides single fields for a host or an origin, as a dict or as JSON from the command line."""
    origins = {
        "Example.COM.": {"interval": 10, "shape": "5"},
        "https://API.example.com:443/v1": {"interval": 1},
        "bücher.example": {"recover_after": "3"},
    }
    policies = read(PACING_ORIGINS=form(origins), PACING_MAX_HOLD=60).policies

    assert policies.of("http://example.com:8080") == PacingPolicy(interval=10, shape=5, max_hold=60)
    assert policies.of("https://api.example.com") == PacingPolicy(interval=1, max_hold=60)
    assert policies.of("http://api.example.com") == PacingPolicy(max_hold=60)
    assert policies.of("http://xn--bcher-kva.example").recover_after == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{", "PACING_ORIGINS is '{'; allowed: a dict, or JSON of one"),
        ("[1]", "PACING_ORIGINS is '[1]'; allowed: a dict, or JSON of one"),
        (5, "PACING_ORIGINS is 5; allowed: a dict, or JSON of one"),
        (
            {"example.com": 10},
            "PACING_ORIGINS['example.com'] is 10; allowed: a dict of policy fields, such as {'interval': 10}",
        ),
        (
            {"": {"interval": 1}},
            "PACING_ORIGINS[''] has the key ''; allowed: a host or an origin, such as 'example.com'",
        ),
        (
            {3: {"interval": 1}},
            "PACING_ORIGINS[3] has the key 3; allowed: a host or an origin, such as 'example.com'",
        ),
        (
            {"example.com": {"intervall": 1}},
            "PACING_ORIGINS['example.com'] has the unknown field 'intervall'; did you mean 'interval'?",
        ),
        (
            {"example.com": {"interval": "soon"}},
            "PACING_ORIGINS['example.com']['interval'] is 'soon'; allowed: a number",
        ),
        ({"example.com": {"interval": None}}, "PACING_ORIGINS['example.com']['interval'] is None; allowed: a number"),
        (
            {"example.com": {"interval": -1}},
            "PACING_ORIGINS['example.com']: interval is -1.0; allowed: 0 to 86400 seconds",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_origins_are_refused(value: Any, text: str) -> None:
    """The message leads to the very entry that is wrong."""
    assert refusal(PACING_ORIGINS=value) == text


def test_an_unknown_field_like_no_other_is_refused_with_the_known_ones() -> None:
    """Where no field is near, all of them are named."""
    text = refusal(PACING_ORIGINS={"example.com": {"zzz": 1}})

    assert text.startswith("PACING_ORIGINS['example.com'] has the unknown field 'zzz'; allowed: interval, shape, ")


def test_an_override_must_fit_the_general_policy() -> None:
    """An interval below the general floor is refused where it stands, not silently raised."""
    assert refusal(PACING_FLOOR=1, PACING_ORIGINS={"example.com": {"interval": 0.5}}) == (
        "PACING_ORIGINS['example.com']: floor is 1.0; allowed: 0 up to, not including, the interval (0.5)"
    )


def test_keys_of_ones_own_may_have_policies() -> None:
    """With `PACING_ORIGIN_KEY` the keys of `PACING_ORIGINS` may be those that the function makes, as they are."""
    policies = read(PACING_ORIGIN_KEY=by_scheme, PACING_ORIGINS={"Group A": {"interval": 9}}).policies

    assert policies.of("Group A").interval == 9


@pytest.mark.parametrize("key", ["example.com:8080", "ftp://example.com", "*.example.com", "example.com/shop"])
def test_a_key_that_can_never_hold_is_refused(key: str) -> None:
    """An entry that is no host and no http(s) origin would have no effect, so it is not taken in silence."""
    assert key in refusal(PACING_ORIGINS={key: {"interval": 9}})


# -- Scrapy's own delays ------------------------------------------------------------------------------------------------


def test_scrapys_delay_is_the_interval_where_there_is_no_other() -> None:
    """`DOWNLOAD_DELAY` counts as the interval, unless a PACING_ setting says otherwise."""
    assert read(DOWNLOAD_DELAY=1.5).policies.general.interval == 1.5
    assert read(DOWNLOAD_DELAY="1.5").policies.general.interval == 1.5
    assert read(DOWNLOAD_DELAY=0).policies.general.interval == 4
    assert read(DOWNLOAD_DELAY=1.5, PACING_INTERVAL=3).policies.general.interval == 3
    assert read(DOWNLOAD_DELAY=1.5, PACING_INTERVAL=0).policies.general.interval == 0


@pytest.mark.parametrize("form", [dict, json.dumps], ids=["dict", "JSON text"])
def test_the_delays_of_download_slots_are_intervals_of_their_hosts(form: Any) -> None:
    """A host that has a delay in `DOWNLOAD_SLOTS` has that interval; one in `PACING_ORIGINS` wins."""
    slots = {
        "Example.COM": {"delay": 7, "concurrency": 1},
        "b.example": {"concurrency": 2},
        "c.example": {"delay": 3.5, "randomize_delay": False},
    }
    settings = {"DOWNLOAD_SLOTS": form(slots), "PACING_ORIGINS": {"c.example": {"interval": 20}}}
    policies = read(**settings, PACING_SHAPE=5).policies

    assert policies.of("https://example.com") == PacingPolicy(interval=7, shape=5)
    assert policies.of("https://b.example").interval == 4
    assert policies.of("https://c.example").interval == 20
    assert scrapy_delays(Settings(settings)) == (None, {"example.com": 7.0, "c.example": 3.5})


def test_a_slot_without_a_delay_stays_without_one() -> None:
    """A host that the project exempts from `DOWNLOAD_DELAY` by a delay of 0 in `DOWNLOAD_SLOTS` has no gaps either."""
    policies = read(DOWNLOAD_DELAY=5, DOWNLOAD_SLOTS={"fast.example": {"delay": 0}}).policies

    assert policies.of("https://example.com").interval == 5
    assert policies.of("https://fast.example").interval == 0


def test_a_bad_delay_of_scrapys_is_refused_by_its_own_name() -> None:
    """Nobody looks for PACING_INTERVAL who has only set DOWNLOAD_DELAY."""
    assert refusal(DOWNLOAD_DELAY=100_000) == (
        "DOWNLOAD_DELAY (taken over as PACING_INTERVAL) is 100000.0; allowed: 0 to 86400 seconds"
    )
    assert refusal(DOWNLOAD_SLOTS={"example.com": {"delay": -1}}) == (
        "DOWNLOAD_SLOTS['example.com']['delay'] is -1; allowed: 0 or more seconds"
    )


@pytest.mark.parametrize("value", ["soon", [1]], ids=repr)
def test_a_slot_delay_that_is_no_number_is_refused_by_name(value: Any) -> None:
    """The message leads to the slot whose delay is no number."""
    text = refusal(DOWNLOAD_SLOTS={"example.com": {"delay": value}})

    assert text.startswith("DOWNLOAD_SLOTS['example.com']")
    assert repr(value) in text


# -- the other settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "statuses"),
    [([429, 503], {429, 503}), ("429,503", {429, 503}), ((430,), {430}), ("420", {420}), ([], set()), ({509}, {509})],
    ids=repr,
)
def test_throttle_statuses_are_a_list(value: Any, statuses: set[int]) -> None:
    """The statuses that mean "too fast" may be any list, or text with commas."""
    assert read(PACING_THROTTLE_STATUSES=value).throttle_statuses == statuses


@pytest.mark.parametrize("status", [430, 420, 422, 509, 529, 599, 999], ids=lambda status: f"I020-{status}")
def test_the_codes_that_sites_really_use_for_limits_may_be_named(status: int) -> None:
    """I020: whichever code a site uses for its limit, the project can say so."""
    assert read(PACING_THROTTLE_STATUSES=[status]).throttle_statuses == {status}


@pytest.mark.parametrize(
    "value", ["many", "429;503", [200], [399], [None], [[429]], 429, True, [429.5], [math.inf], [math.nan]], ids=repr
)
def test_bad_throttle_statuses_are_refused(value: Any) -> None:
    """What is no list of HTTP error statuses is refused by name and value."""
    assert refusal(PACING_THROTTLE_STATUSES=value).startswith(
        f"PACING_THROTTLE_STATUSES is {value!r}; allowed: a list of HTTP statuses from 400 to "
    )


@pytest.mark.parametrize(("name", "least"), [("PACING_MAX_THROTTLES", 0), ("PACING_MAX_ORIGINS", 1)])
def test_counts_are_whole_numbers(name: str, least: int) -> None:
    """Counts may come as text; anything but a whole number from the least on is refused by name and value."""
    field = name.removeprefix(PREFIX).lower()
    assert getattr(read(**{name: least}), field) == least
    assert getattr(read(**{name: "25"}), field) == 25
    assert getattr(read(**{name: None}), field) == OTHER_SETTINGS[name]
    for bad in (least - 1, "-1", 2.5, "2.5", "many", "", True, [], math.nan, math.inf, 10**400):
        assert refusal(**{name: bad}) == f"{name} is {bad!r}; allowed: a whole number, {least} or more"


def test_the_origin_key_may_be_a_function_or_its_path() -> None:
    """`PACING_ORIGIN_KEY` takes the function itself, or where it is to be found."""
    assert read(PACING_ORIGIN_KEY=by_scheme).origin_key is by_scheme
    by_path = read(PACING_ORIGIN_KEY=f"{__name__}.by_scheme").origin_key
    assert by_path is not None
    assert by_path(Request("http://a"), "http://a") == "http"
    assert read(PACING_ORIGIN_KEY=None).origin_key is None


@pytest.mark.parametrize(
    "value",
    [5, [], "no_dots", "no.such.module", "os.path.no_such_name", f"{__name__}.not_callable", "", "..relative"],
    ids=repr,
)
def test_a_bad_origin_key_is_refused(value: Any) -> None:
    """What can't be loaded or called is refused by name and value."""
    text = refusal(PACING_ORIGIN_KEY=value)

    assert text.startswith(f"PACING_ORIGIN_KEY is {value!r}")
    assert text.endswith("allowed: a callable (request, origin) -> str, or the path of one")


# -- unknown settings ---------------------------------------------------------------------------------------------------


def test_unknown_settings_are_reported_with_the_nearest_name() -> None:
    """A setting with a slip of the pen is not ignored in silence."""
    settings = Settings({"PACING_INTERVALL": 3, "PACING_FLOR": 1, "PACING_XYZZY": 1, "PACED": 1, "PACING_SHAPE": 3})
    sentences = unknown_settings(settings)

    assert sentences == [
        "PACING_FLOR is not a setting of scrapy-pacing and has no effect; did you mean PACING_FLOOR?",
        "PACING_INTERVALL is not a setting of scrapy-pacing and has no effect; did you mean PACING_INTERVAL?",
        "PACING_XYZZY is not a setting of scrapy-pacing and has no effect",
    ]


def test_known_settings_are_not_reported() -> None:
    """Every setting that exists is known."""
    assert unknown_settings(Settings(dict.fromkeys(KNOWN_SETTINGS))) == []
    assert unknown_settings(Settings()) == []
