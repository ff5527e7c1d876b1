"""What a site says of its limit before it refuses is understood, and never trusted further than it can be read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from protego import Protego

from scrapy_pacing.core.ratelimit_fields import Quota, quota_of, robots_gap

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = 1_800_000_000.0
DATE = b"Fri, 15 Jan 2027 08:00:00 GMT"
YEAR = 366 * 86_400


def fields(*pairs: tuple[str, object]) -> Callable[[str], list[bytes]]:
    """The fields of an answer; a name may come more than once."""
    known: dict[str, list[bytes]] = {}
    for name, value in pairs:
        known.setdefault(name.lower(), []).append(value if isinstance(value, bytes) else str(value).encode("latin-1"))
    return lambda name: known.get(name.lower(), [])


def quota(*pairs: tuple[str, object], now: float = NOW) -> Quota | None:
    return quota_of(fields(*pairs), now=now)


# -- the generations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("RateLimit", '"default";r=50;t=30')], Quota(50, 30)),
        ([("RateLimit", "default;r=50;t=30")], Quota(50, 30)),
        ([("RateLimit", '"a";r=50'), ("RateLimit-Policy", '"a";q=100;w=60')], Quota(50, 60)),
        ([("RateLimit", '"a";r=50;t=30'), ("RateLimit-Policy", '"a";q=100;w=60;qu="requests"')], Quota(50, 30)),
        ([("RateLimit", "limit=100, remaining=50, reset=30")], Quota(50, 30)),
        ([("RateLimit-Limit", "100, 100;w=60"), ("RateLimit-Remaining", 50), ("RateLimit-Reset", 30)], Quota(50, 30)),
        ([("X-RateLimit-Limit", 100), ("X-RateLimit-Remaining", 50), ("X-RateLimit-Reset", 30)], Quota(50, 30)),
        ([("x-rate-limit-remaining", 50), ("x-rate-limit-reset", 30)], Quota(50, 30)),
        ([("X-RateLimit-Remaining", "96.0"), ("X-RateLimit-Reset", "325")], Quota(96, 325)),
    ],
)
def test_every_generation_of_fields_is_read(pairs: list[tuple[str, object]], expected: Quota) -> None:
    """The present draft, its forerunners and the fields that nobody ever wrote down all say the same (I025)."""
    assert quota(*pairs) == expected


@pytest.mark.parametrize(
    "reset", ["30", f"{NOW + 30:.0f}", f"{(NOW + 30) * 1000:.0f}", "Fri, 15 Jan 2027 08:00:30 GMT"]
)
@pytest.mark.parametrize("prefix", ["RateLimit", "X-RateLimit"], ids=["GitLab", "GitHub"])
def test_a_reset_may_be_seconds_or_a_point_in_time(prefix: str, reset: str) -> None:
    """Seconds, seconds and milliseconds since 1970 (GitHub, GitLab) and a date mean the same 30 seconds."""
    assert quota((f"{prefix}-Remaining", 60), (f"{prefix}-Reset", reset), ("Date", DATE)) == Quota(60, 30)


def test_a_point_in_time_is_measured_against_the_servers_own_clock() -> None:
    """A crawler whose clock is an hour off waits as long as the server means."""
    pairs = [("X-RateLimit-Remaining", 60), ("X-RateLimit-Reset", f"{NOW + 30:.0f}"), ("Date", DATE)]

    assert quota(*pairs, now=NOW - 3600) == Quota(60, 30)


@pytest.mark.parametrize(
    ("fill", "expected"),
    [("32/40", Quota(8, 16)), ("1/40", Quota(39, 0.5)), ("40/40", Quota(0, 0.5)), ("0/40", None), ("41/40", None)],
)
def test_shopifys_bucket_gives_a_pace(fill: str, expected: Quota | None) -> None:
    """The fuller the bucket the slower; at half full the pace is the two requests a second that leak out of 40."""
    assert quota(("X-Shopify-Shop-Api-Call-Limit", fill)) == expected
    half = quota(("X-Shopify-Shop-Api-Call-Limit", "20/40"))
    assert half is not None
    assert half.gap == 0.5


# -- of several, and beside others --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pairs",
    [
        [("RateLimit", '"minute";r=10;t=60, "day";r=5000;t=80000')],
        [("RateLimit", '"day";r=5000;t=80000'), ("RateLimit", '"minute";r=10;t=60')],
        [("RateLimit", "remaining=5000, reset=80000"), ("RateLimit", "remaining=10, reset=60")],
        [("X-RateLimit-Remaining", "10, 5000"), ("X-RateLimit-Reset", "60, 80000")],
    ],
    ids=["one line", "two lines", "two old lines", "lists"],
)
def test_of_several_quotas_the_tightest_gap_counts(pairs: list[tuple[str, object]]) -> None:
    """5,000 in 80,000 s are slower than 10 in 60 s; the slower is the one to keep, on however many lines (I025)."""
    assert quota(*pairs) == Quota(5000, 80000)


def test_an_empty_quota_beats_any_other_and_the_longest_wait_counts() -> None:
    """Where nothing is left in one window, what is left in another is of no use."""
    assert quota(("RateLimit", '"a";r=0;t=5, "b";r=0;t=50, "c";r=1;t=900')) == Quota(0, 50)


def test_remaining_and_reset_that_do_not_match_are_read_the_slow_way() -> None:
    """With three counts and one time it can't be told which belong together."""
    assert quota(("X-RateLimit-Remaining", "3, 7, 100"), ("X-RateLimit-Reset", 60)) == Quota(3, 60)


def test_a_quota_of_bytes_is_no_quota_of_requests() -> None:
    """Other units say nothing about the pace."""
    pairs = [("RateLimit", '"a";r=5;t=6'), ("RateLimit-Policy", '"a";q=9000;w=60;qu="content-bytes"')]

    assert quota(*pairs) is None


def test_retry_after_wins() -> None:
    """Beside a Retry-After that says something no quota counts; beside a useless one it does (I025)."""
    assert quota(("RateLimit", '"a";r=0;t=5'), ("Retry-After", "2")) is None
    assert quota(("RateLimit", '"a";r=0;t=5'), ("Retry-After", "0")) == Quota(0, 5)


def test_a_cached_answer_says_nothing_about_now() -> None:
    """With an Age above 0 the quota is that of whoever filled the cache (I025)."""
    assert quota(("RateLimit", '"a";r=0;t=5'), ("Age", "1")) is None
    assert quota(("RateLimit", '"a";r=0;t=5'), ("Age", "0")) == Quota(0, 5)


# -- what can't be read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("RateLimit", "")],
        [("RateLimit", '"default;r=0;t=5')],
        [("RateLimit", '"a";r=1;t=3'), ("RateLimit", '"b;r')],
        [("RateLimit", '"a";r=ten;t=3')],
        [("RateLimit", '"a";r=-1;t=3')],
        [("RateLimit", '"a";r=1;t=-3')],
        [("RateLimit", '"a";r=1;t=0')],
        [("RateLimit", '"a";r=1')],
        [("RateLimit", '"a";t=1')],
        [("RateLimit", '"a";r;t')],
        [("RateLimit", '("a" "b");r=1;t=2')],
        [("RateLimit", "limit=9, remaining=none, reset=5")],
        [("RateLimit", "remaining=5")],
        [("RateLimit-Remaining", 5)],
        [("X-RateLimit-Reset", 5)],
        [("X-RateLimit-Remaining", "-1"), ("X-RateLimit-Reset", "5")],
        [("X-RateLimit-Remaining", "1e3"), ("X-RateLimit-Reset", "5")],
        [("X-RateLimit-Remaining", "²"), ("X-RateLimit-Reset", "5")],
        [("X-RateLimit-Remaining", "5"), ("X-RateLimit-Reset", "soon")],
        [("X-RateLimit-Remaining", "5"), ("X-RateLimit-Reset", f"{NOW - 60:.0f}")],
        [("X-RateLimit-Remaining", "5"), ("X-RateLimit-Reset", "9" * 400)],
        [("X-RateLimit-Remaining", "9" * 5000), ("X-RateLimit-Reset", "5")],
        [("X-Shopify-Shop-Api-Call-Limit", "32/0")],
        [("X-Shopify-Shop-Api-Call-Limit", "many")],
        [("RateLimit", '"a";r=1;t=1, ' * 5000)],
    ],
    ids=lambda pairs: str(pairs)[:60],
)
def test_what_is_malformed_or_says_nothing_is_ignored(pairs: list[tuple[str, object]]) -> None:
    """Broken quoting, missing halves, negative and absurd numbers count as absent (I025)."""
    assert quota(*pairs) is None


LINE = st.binary(max_size=60) | st.text(st.sampled_from(list('ratdefult"=;,:/ 0123456789.-@?()*\\')), max_size=60).map(
    str.encode
)
NAMES = ["RateLimit", "RateLimit-Policy", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Remaining"]
NAMES += ["X-RateLimit-Reset", "X-Shopify-Shop-Api-Call-Limit", "Date", "Age", "Retry-After"]


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), LINE | st.integers(-10, 2 * 10**12).map(lambda n: str(n).encode()))),
    st.floats(0, 4e9),
)
def test_no_bytes_raise_or_make_an_endless_quota(pairs: list[tuple[str, bytes]], now: float) -> None:
    """Whatever a server writes, the result is None or a quota within bounds."""
    found = quota(*pairs, now=now)

    assert found is None or (0 <= found.remaining <= 1e12 and 0 < found.reset <= YEAR)


def test_no_number_of_lines_is_too_many() -> None:
    """Thousands of fields are not worth reading all, and none of them is fatal."""
    assert quota(*[("RateLimit", '"a";r=1;t=1')] * 5000) == Quota(1, 1)


# -- robots.txt ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "rate", "gap"),
    [
        (None, None, 0),
        (10, None, 10),
        (0.5, None, 0.5),
        (86_400, None, 86_400),
        (None, (1, 10), 10),
        (None, (30, 60), 2),
        (10, (1, 5), 10),
        (1, (1, 5), 5),
        (0, (0, 5), 0),
        (-1, (1, -5), 0),
        (math.nan, (math.nan, 1), 0),
    ],
)
def test_crawl_delay_and_request_rate_give_the_longer_gap(
    delay: float | None, rate: tuple[float, float] | None, gap: float
) -> None:
    """Of a delay and a rate the slower counts; nonsense counts as absent (I100)."""
    assert robots_gap(delay, rate) == gap


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("10", 10),
        ("0.5", 0.5),
        ("86400", 86_400),
        ("10s", 0),
        ("²", 0),
        ("-3", 0),
        ("nan", 0),
        ("inf", 0),
        ("1e3", 1000),
    ],
)
def test_the_delays_of_real_robots_files(text: str, gap: float) -> None:
    """What Protego makes of odd delays can be handed over as it is; another agent's group is not ours (I100)."""
    rules = Protego.parse(f"User-agent: *\nCrawl-delay: {text}\n\nUser-agent: other\nCrawl-delay: 77\n")

    assert robots_gap(rules.crawl_delay("scrapy")) == gap
    assert robots_gap(rules.crawl_delay("other")) == 77


def test_a_request_rate_of_a_real_robots_file() -> None:
    """Protego's rate is a named tuple whose first two fields are what counts."""
    rate = Protego.parse("User-agent: *\nRequest-rate: 5/1m\n").request_rate("scrapy")

    assert rate is not None
    assert robots_gap(None, (rate.requests, rate.seconds)) == 12
