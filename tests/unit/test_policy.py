"""A policy refuses what can't be honoured, and says which field, which value, and what is allowed."""

from __future__ import annotations

import dataclasses
import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from scrapy_pacing import PacingPolicy, PolicyBook

FIELDS = [field.name for field in dataclasses.fields(PacingPolicy)]
DERIVED = {"floor", "ceiling", "pause_min", "pause_max"}


def refusal(**values: Any) -> str:
    with pytest.raises(ValueError, match=r"; allowed: \S") as caught:
        PacingPolicy(**values)
    return str(caught.value)


def test_defaults_are_those_that_the_documentation_names() -> None:
    """Out of the box a site is asked every four seconds on average, and the whole policy validates."""
    policy = PacingPolicy()

    assert (policy.interval, policy.shape, policy.backoff_factor) == (4.0, 2.5, 2.0)
    assert policy.max_hold == 3600
    assert (policy.law().floor, policy.law().ceiling) == (0.1, 6.0)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize(
    "value",
    [True, False, "4", "", b"4", math.nan, -math.inf, [], {}, Decimal(4), 4j],
    ids=repr,
)
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    """Text, booleans, NaN and containers are refused for every field, by name and value."""
    assert refusal(**{name: value}).startswith(f"{name} is {value!r}; allowed: a")


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "ceiling"])
def test_endless_numbers_are_refused(name: str) -> None:
    """Infinity is no length for anything but the ceiling, where it means: none."""
    assert refusal(**{name: math.inf}) == f"{name} is inf; allowed: a finite number"


@pytest.mark.parametrize("name", [name for name in FIELDS if name not in DERIVED])
def test_none_is_refused_where_nothing_follows_from_other_fields(name: str) -> None:
    """None stands for "as the others say" only where the others say something."""
    assert refusal(**{name: None}) == f"{name} is None; allowed: a number"


@pytest.mark.parametrize("name", FIELDS)
def test_negative_numbers_are_refused(name: str) -> None:
    """No field of a policy means anything below zero."""
    assert refusal(**{name: -1}).startswith(f"{name} is -1; allowed: ")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"interval": 86_401}, "interval is 86401; allowed: 0 to 86400 seconds"),
        ({"interval": -0.5}, "interval is -0.5; allowed: 0 to 86400 seconds"),
        ({"shape": 0}, "shape is 0; allowed: 0.5 to 100"),
        ({"shape": 0.49}, "shape is 0.49; allowed: 0.5 to 100"),
        ({"shape": 101}, "shape is 101; allowed: 0.5 to 100"),
        ({"pause_probability": 0.51}, "pause_probability is 0.51; allowed: 0 to 0.5"),
        ({"backoff_factor": 1}, "backoff_factor is 1; allowed: above 1, at most 100"),
        ({"backoff_factor": 101}, "backoff_factor is 101; allowed: above 1, at most 100"),
        ({"first_interval": 0}, "first_interval is 0; allowed: above 0, at most 3600 seconds"),
        ({"first_interval": 3601}, "first_interval is 3601; allowed: above 0, at most 3600 seconds"),
        ({"max_interval": 0}, "max_interval is 0; allowed: above 0, at most 86400 seconds"),
        ({"max_interval": 86_401}, "max_interval is 86401; allowed: above 0, at most 86400 seconds"),
        ({"max_hold": 604_801}, "max_hold is 604801; allowed: 0 to 604800 seconds"),
        ({"recover_after": 0}, "recover_after is 0; allowed: 1 to 1000000 successes"),
        ({"recover_after": 1_000_001}, "recover_after is 1000001; allowed: 1 to 1000000 successes"),
        ({"recover_after": 2.5}, "recover_after is 2.5; allowed: a whole number"),
        ({"recover_factor": 0}, "recover_factor is 0; allowed: above 0, below 1"),
        ({"recover_factor": 1}, "recover_factor is 1; allowed: above 0, below 1"),
        ({"warmup_ttl": 31_536_001}, "warmup_ttl is 31536001; allowed: 0 to 31536000 seconds"),
        ({"interval": 2, "floor": 2}, "floor is 2; allowed: 0 up to, not including, the interval (2)"),
        ({"interval": 2, "floor": 3}, "floor is 3; allowed: 0 up to, not including, the interval (2)"),
        ({"interval": 2, "ceiling": 2}, "ceiling is 2; allowed: above the interval (2)"),
        ({"interval": 2, "ceiling": 1}, "ceiling is 1; allowed: above the interval (2)"),
        (
            {"interval": 2, "ceiling": 8, "pause_min": 7.9},
            "pause_min is 7.9; allowed: at least 8, which the other gaps practically never exceed",
        ),
        ({"interval": 2, "pause_min": 20, "pause_max": 19}, "pause_max is 19; allowed: at least pause_min (20)"),
    ],
)
def test_bad_numbers_are_refused_with_what_is_allowed(values: dict[str, Any], text: str) -> None:
    """The message has the field, the value as it was written, and what would do."""
    assert refusal(**values) == text


def test_pauses_must_be_longer_than_what_the_gamma_stream_produces() -> None:
    """Without a ceiling a pause has to be longer than all but one in 10,000 gaps, or it would not stand out."""
    text = refusal(interval=1, shape=0.5, ceiling=math.inf, pause_min=15)

    assert text.startswith("pause_min is 15; allowed: at least 15.1")
    assert PacingPolicy(interval=1, shape=0.5, ceiling=math.inf, pause_min=15.2).law().pause_min == 15.2


def test_pauses_that_make_up_the_whole_interval_are_refused() -> None:
    """Where pauses alone would be longer than the interval on average, the largest possible share is named."""
    text = refusal(interval=1, pause_probability=0.3)
    most = float(re.search(r"below ([\d.]+)", text).group(1))  # type: ignore[union-attr]

    assert text.startswith("pause_probability is 0.3; allowed: below 0.07")
    assert PacingPolicy(interval=1, pause_probability=most * 0.999).pause_probability < most
    assert refusal(interval=1, pause_probability=most * 1.001).startswith("pause_probability is ")


def test_a_share_of_pauses_a_hair_below_the_limit_is_honoured_or_refused_by_name() -> None:
    """Where rounding leaves no law for a share just below the largest, the message still names a field."""
    text = "pause_probability is refused"
    try:
        share = math.nextafter((1 - 0.9) / (16 - 0.9), 0)
        PacingPolicy(interval=1, floor=0.9, ceiling=2, pause_min=16, pause_max=16, pause_probability=share)
    except ValueError as error:
        text = str(error)

    assert text.startswith("pause_probability is ")


def test_the_limits_themselves_are_allowed() -> None:
    """What a message names as allowed is allowed."""
    PacingPolicy(interval=86_400, shape=0.5, backoff_factor=100, first_interval=3600, max_interval=86_400)
    PacingPolicy(shape=100, max_hold=0, recover_after=1_000_000, warmup_ttl=0, floor=0, ceiling=math.inf)
    PacingPolicy(pause_probability=0, recover_after=1, max_hold=604_800, warmup_ttl=31_536_000)
    PacingPolicy(interval=2, ceiling=8, pause_min=8, pause_max=8)


def test_an_interval_of_zero_means_no_gaps_and_no_bounds_of_gaps() -> None:
    """`interval=0` is a policy without gaps; a floor, a ceiling or a pause would bound nothing and is refused."""
    assert PacingPolicy(interval=0).law().shape == 2.5
    assert PacingPolicy(interval=0, floor=0, ceiling=math.inf).interval == 0
    for name in sorted(DERIVED):
        assert refusal(interval=0, **{name: 5}).startswith(f"{name} is 5 while interval is 0; allowed: None")


def test_a_derived_policy_is_checked_again() -> None:
    """`dataclasses.replace` can't make a policy that could not have been made at once."""
    with pytest.raises(ValueError, match=r"^floor is 3; allowed: 0 up to, not including, the interval \(2\)$"):
        dataclasses.replace(PacingPolicy(interval=10, floor=3), interval=2)


def test_a_policy_can_not_be_changed() -> None:
    """Policies are shared by many origins, so nobody can change one in place."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        PacingPolicy().interval = 1  # type: ignore[misc]


def test_the_longest_interval_is_never_below_the_policys_own() -> None:
    """A policy that is slower than `max_interval` is not made faster by it."""
    assert PacingPolicy(interval=4, max_interval=300).interval_cap() == 300
    assert PacingPolicy(interval=600, max_interval=300).interval_cap() == 600


ANYTHING = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats() | st.text(max_size=5)


@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
@settings(max_examples=300)
def test_a_policy_validates_or_names_a_field(values: dict[str, Any]) -> None:
    """Whatever is thrown at it, making a policy gives one or a ValueError that names a field and what is allowed."""
    text = ""
    try:
        assert PacingPolicy(**values).law().scale > 0
    except ValueError as error:
        text = str(error)

    assert not text or re.match(rf"({'|'.join(FIELDS)}) is .*allowed: .+", text, re.DOTALL)


# -- which policy holds -------------------------------------------------------------------------------------------------


def test_an_origin_has_its_own_policy_or_its_hosts_or_the_general_one() -> None:
    """An override for the very origin beats one for its host, whatever the scheme and port; others keep the general."""
    general, host, origin = (PacingPolicy(interval=number) for number in (1, 2, 3))
    book = PolicyBook(general, {"example.com": host, "https://example.com": origin, "[::1]": host})

    assert book.of("https://example.com") is origin
    assert book.of("http://example.com:8080") is host
    assert book.of("https://example.com:8443") is host
    assert book.of("http://[::1]:8080") is host
    assert book.of("https://sub.example.com") is general
    assert PolicyBook(general).of("https://example.com") is general


def test_a_book_keeps_its_own_copy_of_the_overrides() -> None:
    """Changing the mapping that a book was made of changes no policy of a running crawl."""
    overrides = {"example.com": PacingPolicy(interval=2)}
    book = PolicyBook(PacingPolicy(), overrides)
    overrides.clear()

    assert book.of("https://example.com").interval == 2


@pytest.mark.parametrize("name", ["interval", "ceiling", "recover_after"])
def test_an_integer_too_large_for_a_float_is_refused_like_any_other_number(name: str) -> None:
    """A number of 400 digits is a ValueError that names its field, not an OverflowError from inside."""
    with pytest.raises(ValueError, match=rf"^{name} is 1000"):
        PacingPolicy(**{name: 10**400})


def test_the_shortest_pause_by_default_is_the_one_that_the_documentation_names() -> None:
    """Without `pause_min` a pause lasts eight intervals at least, also where the ceiling is higher (see the field)."""
    assert PacingPolicy(interval=4, ceiling=64, pause_probability=0.01).law().pause_min == pytest.approx(8)
