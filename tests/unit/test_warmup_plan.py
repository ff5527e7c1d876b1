"""When a request arrives through the front door, and what else comes before it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from scrapy_pacing.core.plan import Move, Remembered, RequestFacts, check_warmup_mode, plan
from scrapy_pacing.core.warmup import homepage_of, needs_warmup
from scrapy_pacing.testing import FakeClock

ITEM = "https://shop.example/item/7"
TTL = 3600.0


def cold(url: str = ITEM, **kwargs: Any) -> bool:
    """Ask for an origin that was never warmed, or as the arguments say."""
    return needs_warmup(url, **{"last_warmed": None, "now": FakeClock().wall(), "ttl": TTL, **kwargs})


def test_a_cold_origin_is_entered_through_its_homepage() -> None:
    """The first request to a deep page of a site asks for the homepage first (I097)."""
    assert cold()
    assert cold("https://shop.example/?utm=1")
    assert cold("http://shop.example:8080/index.html")


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example",
        "https://shop.example/",
        "https://shop.example/#top",
        "https://shop.example?",
        "https://shop.example/?#top",
        "https://u:pw@shop.example:443/",
    ],
)
def test_the_homepage_never_needs_one(url: str) -> None:
    """A request that is itself for the homepage needs no warm-up, so a warm-up can't recurse."""
    assert not cold(url)


@pytest.mark.parametrize(
    ("url", "kwargs"),
    [
        (ITEM, {"is_warmup": True}),
        (ITEM, {"is_robots": True}),
        ("https://shop.example/robots.txt", {}),
        (ITEM, {"navigation": False}),
        (ITEM, {"method": "POST"}),
        (ITEM, {"method": "HEAD"}),
        ("ftp://shop.example/x", {}),
        ("file:///x/y", {}),
        ("data:text/html,x", {}),
        ("https:///item", {}),
        ("https://ho st/item", {}),
        ("", {}),
    ],
)
def test_what_no_visitor_enters_by_needs_none(url: str, kwargs: dict[str, Any]) -> None:
    """Sub-resources, robots.txt, warm-ups, other methods and other schemes get no warm-up."""
    assert not cold(url, **kwargs)


def test_an_origin_stays_warm_for_the_ttl() -> None:
    """Within warmup_ttl of its last warm-up an origin is left alone, and after it is cold again."""
    clock = FakeClock()
    warmed = clock.wall()
    assert not cold(last_warmed=warmed, now=clock.wall())
    clock.advance(TTL - 1)
    assert not cold(last_warmed=warmed, now=clock.wall())
    clock.advance(1)
    assert cold(last_warmed=warmed, now=clock.wall())


def test_a_stepped_clock_neither_warms_for_ever_nor_never() -> None:
    """A warm-up that lies a little ahead counts; one that lies a year ahead is a clock's mistake."""
    clock = FakeClock()
    assert not cold(last_warmed=clock.wall() + 5, now=clock.wall())
    assert cold(last_warmed=clock.wall() + 365 * 86_400, now=clock.wall())


def test_a_ttl_of_nothing_means_always_cold() -> None:
    """With warmup_ttl 0 no warm-up lasts."""
    assert cold(last_warmed=100.0, now=100.0, ttl=0.0)


@given(st.text(), st.one_of(st.none(), st.floats()), st.floats())
def test_no_url_and_no_time_raises(url: str, last_warmed: float | None, now: float) -> None:
    """Whatever stands in a URL or was remembered, the question has an answer."""
    assert needs_warmup(url, last_warmed=last_warmed, now=now, ttl=TTL) in {True, False}
    assert needs_warmup("https://" + url, last_warmed=last_warmed, now=now, ttl=TTL) in {True, False}


@given(st.text().map("https://shop.example".__add__))
def test_the_homepage_of_what_needs_one_never_needs_one(url: str) -> None:
    """One warm-up is the end of it, whatever the URL that asked."""
    home = homepage_of(url)
    if home is not None:
        assert not cold(home)
    else:
        assert not cold(url)


def moves(url: str = ITEM, remembered: Remembered | None = None, *, warmup: str = "always", **facts: Any) -> list[str]:
    """Plan a request and tell the moves by name."""
    made = plan(
        RequestFacts(url=url, **facts),
        remembered or Remembered(),
        now=FakeClock().wall(),
        warmup_ttl=TTL,
        warmup=warmup,
    )
    return [move.name for move in made]


@pytest.mark.parametrize(
    ("warmup", "layer", "expected"),
    [
        ("always", None, ["WARM"]),
        ("always", 3, ["WARM"]),
        ("always", 8, ["WARM"]),
        ("learned", None, []),
        ("learned", 3, []),
        ("learned", 8, ["WARM"]),
        ("learned", 99, []),
        ("never", None, []),
        ("never", 8, []),
    ],
)
def test_the_mode_says_who_is_warmed(warmup: str, layer: int | None, expected: list[str]) -> None:
    """All cold origins, those that read history, or none."""
    assert moves(remembered=Remembered(layer=layer), warmup=warmup) == expected


def test_a_decoy_is_not_fetched_at_all() -> None:
    """A known trap gets no request, no warm-up and no clearance."""
    known = Remembered(decoy=True, clearance=True, tier="browser", layer=8)
    assert moves(remembered=known) == ["SKIP_DECOY"]
    assert "SKIP_DECOY" not in moves(remembered=known, is_robots=True)


def test_clearance_and_tier_come_before_the_front_door() -> None:
    """The homepage is asked for with what is known to work."""
    known = Remembered(clearance=True, tier="browser", layer=8)
    assert moves(remembered=known) == ["REUSE_CLEARANCE", "USE_TIER", "WARM"]
    assert moves("https://shop.example/", known, is_warmup=True) == ["REUSE_CLEARANCE", "USE_TIER"]
    assert moves(remembered=Remembered(tier=""), warmup="never") == ["USE_TIER"]


def test_a_warm_origin_has_nothing_to_do() -> None:
    """Once warmed, a request just leaves."""
    assert moves(remembered=Remembered(last_warmed=FakeClock().wall() - 60, layer=8)) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"dont_warmup": True},
        {"is_robots": True},
        {"is_warmup": True},
        {"navigation": False},
        {"method": "POST"},
    ],
)
def test_the_facts_of_a_request_can_rule_a_warm_up_out(facts: dict[str, Any]) -> None:
    """The user's dont_warmup and the kinds of request that no visitor enters by are respected."""
    assert moves(remembered=Remembered(layer=8), **facts) == []


@pytest.mark.parametrize("warmup", ["", "Always", "sometimes", None, True, 1])
def test_an_unknown_mode_is_refused_by_name(warmup: Any) -> None:
    """A typo in PACING_WARMUP is an error that names it, the value and what is allowed."""
    with pytest.raises(ValueError, match=r"PACING_WARMUP is .*; allowed: always, learned, never"):
        check_warmup_mode(warmup)
    with pytest.raises(ValueError, match="PACING_WARMUP is "):
        moves(warmup=warmup)


def test_no_plan_repeats_or_contradicts_itself() -> None:
    """Over all combinations a plan has each move once, in one order, and a skip stands alone."""
    order = [Move.SKIP_DECOY, Move.REUSE_CLEARANCE, Move.USE_TIER, Move.WARM]
    for layer, tier, decoy, clearance, warmed, warmup in itertools.product(
        [None, 3, 8], [None, "browser"], [False, True], [False, True], [None, 0.0], ["always", "learned"]
    ):
        known = Remembered(layer=layer, tier=tier, decoy=decoy, clearance=clearance, last_warmed=warmed)
        made = plan(RequestFacts(url=ITEM), known, now=1.0, warmup_ttl=TTL, warmup=warmup)
        assert list(made) == [move for move in order if move in made]
        assert (Move.SKIP_DECOY in made) is decoy
        assert len(made) == 1 or not decoy
