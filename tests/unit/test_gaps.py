"""The law of the gaps, held against SciPy's: what is drawn, what it means on average, and that no gap knows the last."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, special, stats

from scrapy_pacing import Pacer, PacingPolicy
from scrapy_pacing.core.gaps import PAUSE_RARITY, GapLaw, clamped_mean, gamma_quantile, lower_gamma
from scrapy_pacing.testing import FakeClock, seeded

from .conftest import policies

ORIGIN = "https://example.com"
DRAWS = 100_000
# Of 100,000 true draws, one sample in 2,000,000 lies further from its law than this (Kolmogorov: 2·exp(-2·n·D²) at
# D = 2.76/√n), so a failure means another law. A shape that is 3 % off, or a mean that is 2 % off, lies beyond it.
KS_LIMIT = 2.76 / math.sqrt(DRAWS)
# A share or a correlation of so many standard deviations is no accident (1 in 1,700,000).
SIGMAS = 5.0

BARE = PacingPolicy(interval=0.5, shape=2.5, floor=0, ceiling=math.inf, pause_probability=0)


def drawn(policy: PacingPolicy, seed: int = 20, count: int = DRAWS) -> np.ndarray:
    pacer = Pacer(policy, clock=FakeClock(), source=seeded(seed))
    return np.array([pacer.gap(ORIGIN) for _ in range(count)])


def assert_share(hits: int, expected: float, count: int = DRAWS) -> None:
    sigma = math.sqrt(expected * (1 - expected) / count)
    assert abs(hits / count - expected) < SIGMAS * sigma + 1e-12


def mean_by_scipy(law: GapLaw) -> float:
    """Return the mean of the law, by SciPy's incomplete gamma functions and not by ours."""

    def below(shape: float, x: float) -> float:
        return float(special.gammainc(shape, x / law.scale))

    gamma = law.floor * below(law.shape, law.floor)
    gamma += law.shape * law.scale * (below(law.shape + 1, law.ceiling) - below(law.shape + 1, law.floor))
    if math.isfinite(law.ceiling):
        gamma += law.ceiling * float(special.gammaincc(law.shape, law.ceiling / law.scale))
    pause = (law.pause_min + law.pause_max) / 2
    return law.pause_probability * pause + (1 - law.pause_probability) * gamma


# -- what is drawn ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.5, 30.0])
def test_bare_gaps_follow_the_gamma_law(shape: float) -> None:
    """Without clamps and pauses, 100,000 gaps are gamma distributed with the policy's shape and mean."""
    gaps = drawn(PacingPolicy(interval=0.5, shape=shape, floor=0, ceiling=math.inf, pause_probability=0))

    assert stats.kstest(gaps, stats.gamma(shape, scale=0.5 / shape).cdf).statistic < KS_LIMIT


def test_the_limit_tells_a_wrong_law_from_the_right_one() -> None:
    """The distance allowed is small enough to notice a mean that is 2 % off and a shape of another law."""
    gaps = drawn(BARE)

    assert stats.kstest(gaps, stats.gamma(2.5, scale=0.51 / 2.5).cdf).statistic > KS_LIMIT
    assert stats.kstest(gaps, stats.gamma(2.4, scale=0.5 / 2.4).cdf).statistic > KS_LIMIT
    assert stats.kstest(gaps, stats.uniform(0.25, 0.5).cdf).statistic > KS_LIMIT


def test_gaps_kept_between_departures_follow_the_law_too() -> None:
    """A crawl that leaves as soon as it may shows the site the very law, not a slower or a rounded one."""
    clock = FakeClock()
    pacer = Pacer(BARE, clock=clock, source=seeded(4))
    times = []
    for _ in range(20_001):
        while (delay := pacer.next_delay(ORIGIN)) > 0:
            # The sum of two floats may fall a hair short of their exact sum.
            clock.advance(max(delay, math.ulp(clock.monotonic())))
        times.append(pacer.depart(ORIGIN).at)
    gaps = np.diff(times)

    assert stats.kstest(gaps, stats.gamma(2.5, scale=0.2).cdf).statistic < 2.76 / math.sqrt(gaps.size)
    assert gaps.mean() == pytest.approx(0.5, rel=0.02)


def test_clamps_gather_the_mass_that_the_law_has_beyond_them() -> None:
    """Gaps stop at floor and ceiling, as often as the law lies beyond; between them it is the gamma law."""
    policy = PacingPolicy(interval=2.0, shape=2.5, floor=0.8, ceiling=4.0, pause_probability=0)
    gamma = stats.gamma(2.5, scale=policy.law().scale * 2.0)
    gaps = drawn(policy)

    assert gaps.min() == pytest.approx(0.8)
    assert gaps.max() == pytest.approx(4.0)
    at_floor, at_ceiling = gaps <= 0.8 + 1e-9, gaps >= 4.0 - 1e-9
    assert_share(int(at_floor.sum()), gamma.cdf(0.8))
    assert_share(int(at_ceiling.sum()), gamma.sf(4.0))
    between = gaps[~at_floor & ~at_ceiling]
    low, high = gamma.cdf(0.8), gamma.cdf(4.0)
    distance = stats.kstest(between, lambda x: (gamma.cdf(x) - low) / (high - low)).statistic
    assert distance < 2.76 / math.sqrt(between.size)


def test_pauses_come_as_often_and_last_as_long_as_the_policy_says() -> None:
    """Reading pauses have the share and the uniform length of the policy, and the other gaps stay a gamma law."""
    policy = PacingPolicy(
        interval=1.0, floor=0, ceiling=math.inf, pause_probability=0.05, pause_min=8.0, pause_max=14.0
    )
    gaps = drawn(policy)
    # The gamma stream exceeds 8 intervals less than once in a million gaps.
    pauses, others = gaps[gaps >= 8.0], gaps[gaps < 8.0]

    assert_share(pauses.size, 0.05)
    assert stats.kstest(pauses, stats.uniform(8.0, 6.0).cdf).statistic < 2.76 / math.sqrt(pauses.size)
    gamma = stats.gamma(2.5, scale=policy.law().scale)
    assert stats.kstest(others, gamma.cdf).statistic < 2.76 / math.sqrt(others.size)


def test_default_policy_draws_its_own_interval_on_average() -> None:
    """Out of the box, clamps and reading pauses included, the gaps have the mean that was asked for."""
    gaps = drawn(PacingPolicy())
    law = PacingPolicy().law()
    gamma = stats.gamma(law.shape, scale=law.scale)
    gamma_second = gamma.expect(lambda x: min(max(x, law.floor), law.ceiling) ** 2)
    pause_second = stats.uniform(law.pause_min, law.pause_max - law.pause_min).expect(lambda x: x * x)
    variance = law.pause_probability * pause_second + (1 - law.pause_probability) * gamma_second - 1

    assert abs(gaps.mean() / 4.0 - 1) < SIGMAS * math.sqrt(variance / DRAWS)


@pytest.mark.parametrize("times", [2.0, 7.5, 60.0])
def test_a_learned_interval_scales_the_whole_law(times: float) -> None:
    """When a limit is learned, floor, ceiling, pauses and spread all grow by the factor of the interval."""
    source = seeded()
    pacer = Pacer(PacingPolicy(interval=2.0), clock=FakeClock(), source=source)
    source.setstate(seeded(9).getstate())
    before = [pacer.gap(ORIGIN) for _ in range(20_000)]
    lesson = pacer.throttled(ORIGIN, 2.0 * times)
    assert lesson is not None
    source.setstate(seeded(9).getstate())
    after = [pacer.gap(ORIGIN) for _ in range(20_000)]

    assert lesson.new == 2.0 * times
    assert after == pytest.approx([times * gap for gap in before], rel=1e-12)


# -- independence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [BARE, PacingPolicy()], ids=["bare", "default"])
def test_neighbouring_gaps_are_independent(policy: PacingPolicy) -> None:
    """A gap tells nothing about the next ones: neither their size nor their rank follows it."""
    gaps = drawn(policy, seed=31)
    for lag in (1, 2, 3, 7):
        early, late = gaps[:-lag], gaps[lag:]
        assert abs(stats.pearsonr(early, late).statistic) < SIGMAS / math.sqrt(early.size)
        assert abs(stats.spearmanr(early, late).statistic) < SIGMAS / math.sqrt(early.size)


def test_gaps_run_up_and_down_as_often_as_independent_ones() -> None:
    """Rises and falls alternate like those of independent draws (the runs test of Wald and Wolfowitz)."""
    gaps = drawn(BARE, seed=5)
    above = gaps > np.median(gaps)
    runs = 1 + int((above[1:] != above[:-1]).sum())
    half = DRAWS / 2

    assert abs(runs - (half + 1)) < SIGMAS * math.sqrt(half * (half - 1) / (DRAWS - 1))


def test_gaps_of_two_sites_are_independent() -> None:
    """Two sites that are crawled in turn do not see each other's gaps."""
    pacer = Pacer(BARE, clock=FakeClock(), source=seeded(8))
    pairs = np.array([(pacer.gap("https://a.example"), pacer.gap("https://b.example")) for _ in range(20_000)])

    assert abs(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic) < SIGMAS / math.sqrt(len(pairs))


# -- the mean -----------------------------------------------------------------------------------------------------------


@given(policies())
@settings(max_examples=400)
def test_every_policy_that_validates_keeps_its_mean(policy: PacingPolicy) -> None:
    """Whatever clamps and pauses a policy asks for, the mean of its gaps is its interval."""
    # 1 % is promised; it is solved for, so far less is left.
    assert mean_by_scipy(policy.law()) == pytest.approx(1.0, abs=1e-6)


@given(policies())
@settings(max_examples=200)
def test_ordinary_gaps_practically_never_look_like_pauses(policy: PacingPolicy) -> None:
    """A gap of the gamma stream exceeds the shortest reading pause at most once in 10,000 gaps."""
    law = policy.law()
    if law.pause_probability:
        beyond = special.gammaincc(law.shape, law.pause_min / law.scale) if law.ceiling > law.pause_min else 0.0
        assert beyond <= 1.001 / PAUSE_RARITY


@given(policies(), st.integers(0, 2**32))
@settings(max_examples=200)
def test_no_gap_lies_outside_what_the_policy_allows(policy: PacingPolicy, seed: int) -> None:
    """Every single gap is between floor and ceiling, or a pause between the shortest and the longest."""
    law, source = policy.law(), seeded(seed)
    for _ in range(50):
        gap = law.draw(source)
        is_pause = law.pause_probability > 0 and law.pause_min <= gap <= law.pause_max
        assert is_pause or law.floor <= gap <= law.ceiling


# The integrator warns where it stops above its own tolerance; the comparison has a tolerance of its own.
roughly = pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")


@roughly
@given(
    shape=st.floats(0.5, 100),
    scale=st.floats(0.01, 10),
    floor=st.floats(0, 5),
    width=st.floats(0.01, 50),
)
@settings(max_examples=150)
def test_clamped_mean_agrees_with_numeric_integration(shape: float, scale: float, floor: float, width: float) -> None:
    """The mean that the law is solved for is the integral of SciPy's gamma law between the clamps."""
    gamma = stats.gamma(shape, scale=scale)
    ceiling = floor + width
    # E[clamp(G)] = floor + the integral of P(G > x) from floor to ceiling; split where the law has its mass.
    marks = [m for m in gamma.ppf([1e-9, 0.01, 0.5, 0.99, 1 - 1e-9]) if floor < m < ceiling]
    edges = [floor, *marks, ceiling]
    integral = sum(integrate.quad(gamma.sf, low, high, epsabs=1e-11)[0] for low, high in itertools.pairwise(edges))

    assert clamped_mean(shape, scale, floor, ceiling) == pytest.approx(floor + integral, rel=1e-7)


@roughly
@given(shape=st.floats(0.5, 100), scale=st.floats(0.01, 10), floor=st.floats(0, 5))
@settings(max_examples=100)
def test_clamped_mean_without_a_ceiling_agrees_with_numeric_integration(
    shape: float, scale: float, floor: float
) -> None:
    """An endless ceiling clamps nothing."""
    gamma = stats.gamma(shape, scale=scale)
    edges = [floor, *[m for m in gamma.ppf([1e-9, 0.01, 0.5, 0.99, 1 - 1e-9, 1 - 1e-14]) if m > floor]]
    integral = sum(integrate.quad(gamma.sf, low, high, epsabs=1e-11)[0] for low, high in itertools.pairwise(edges))

    assert clamped_mean(shape, scale, floor, math.inf) == pytest.approx(floor + integral, rel=1e-7)


def test_a_law_without_a_solution_is_refused() -> None:
    """Pauses that alone are longer than the interval leave no mean for the other gaps."""
    with pytest.raises(ValueError, match="the mean would have to be"):
        GapLaw.solve(2.5, 0.1, 6.0, 0.5, 8.0, 16.0)


# -- the incomplete gamma function --------------------------------------------------------------------------------------


def test_lower_gamma_agrees_with_scipy_on_a_wide_grid() -> None:
    """Our incomplete gamma function is SciPy's, from the far left of the peak to the far right, for every shape."""
    for shape in [0.5, 0.51, 0.9, 1.0, 1.5, 2.5, 3.0, 7.0, 20.0, 60.0, 99.5, 100.0, 101.0]:
        ours, theirs = [], []
        for x in [0.0, *np.geomspace(1e-12, 1e6, 300), shape, shape + 1, np.nextafter(shape + 1, 0), 1e300]:
            ours.append(lower_gamma(shape, float(x)))
            theirs.append(float(special.gammainc(shape, x)))
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@given(st.floats(0.5, 101), st.floats(allow_nan=False))
def test_lower_gamma_is_a_probability(shape: float, x: float) -> None:
    """Whatever the argument, endless and negative ones included, the result lies between 0 and 1."""
    assert 0.0 <= lower_gamma(shape, x) <= 1.0


@given(st.floats(0.5, 100), st.floats(0.001, 0.9999))
@settings(max_examples=200)
def test_gamma_quantile_agrees_with_scipy(shape: float, probability: float) -> None:
    """The length that gaps exceed with a given probability is SciPy's."""
    expected = stats.gamma(shape, scale=1 / shape).ppf(probability)

    assert gamma_quantile(shape, probability) == pytest.approx(expected, rel=1e-7)
