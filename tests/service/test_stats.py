"""Each statistic against scipy or statsmodels where they agree on what it is, else against its slow twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from sweeps.service import stats
from tests.reference import stats as reference

INF, NAN = math.inf, math.nan

few_levels = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=9)
continuous = st.lists(st.floats(-5, 5).map(lambda x: round(x, 6)), min_size=2, max_size=12, unique_by=abs).filter(
    lambda values: 0.0 not in values
)


@given(few_levels)
@settings(deadline=None)
def test_signed_rank_with_ties_and_zeros_is_the_enumeration(values):
    got = stats.signed_rank_test(np.array(values))
    assert got.p == reference.signed_rank_p(values)  # whole numbers of 2^-n: no tolerance
    assert got.zeros == values.count(0.0)


@given(st.lists(st.sampled_from([-INF, INF, 1.0, -2.0, 0.0]), min_size=1, max_size=8))
@settings(deadline=None)
def test_signed_rank_ranks_diverged_pairs_beyond_all_others(values):
    finite = [math.copysign(99.0, value) if math.isinf(value) else value for value in values]
    assert stats.signed_rank_test(np.array(values)).p == reference.signed_rank_p(finite)


@given(continuous)
@settings(deadline=None)
def test_signed_rank_without_ties_agrees_with_scipy(values):
    expected = scipy_stats.wilcoxon(values, method="exact").pvalue
    assert stats.signed_rank_test(np.array(values)).p == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "p", "floor"),
    [
        ([1.0] * 10, 2 / 1024, 2 / 1024),
        ([1.0] * 5, 0.0625, 0.0625),
        ([0.0] * 6, 1.0, 1.0),
        ([0.0, 0.0, 1.0, 2.0, 3.0], 0.25, 0.25),
        ([1.0], 1.0, 1.0),
    ],
)
def test_floor_is_the_least_reachable_p(values, p, floor):
    got = stats.signed_rank_test(np.array(values))
    assert (got.p, got.floor) == (p, floor)


def test_signed_rank_is_exact_for_many_pairs():
    assert stats.signed_rank_test(np.arange(1.0, 41.0)).p == 2.0**-39
    mixed = np.random.default_rng(3).standard_normal(40)
    expected = scipy_stats.wilcoxon(mixed, method="exact").pvalue
    assert stats.signed_rank_test(mixed).p == pytest.approx(expected, rel=1e-10)


def test_signed_rank_statistic_has_the_sign_of_the_better_arm_and_refuses_nothing_to_test():
    assert stats.signed_rank_test(np.array([3.0, 2.0, -1.0])).statistic == 4.0
    assert stats.signed_rank_test(np.array([-3.0, -2.0, 1.0])).statistic == -4.0
    with pytest.raises(ValueError, match="at least one pair, got none"):
        stats.signed_rank_test(np.zeros(0))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
@settings(deadline=None)
def test_holm_agrees_with_the_definition(p_values):
    np.testing.assert_allclose(stats.holm(np.array(p_values)), reference.holm(p_values), rtol=1e-12)


@pytest.mark.parametrize(
    "p_values", [[0.03], [0.04, 0.01, 0.03, 0.01], [0.5, 0.5, 0.9], list(np.random.default_rng(2).random(20) ** 3)]
)
def test_holm_agrees_with_statsmodels(p_values):
    np.testing.assert_allclose(stats.holm(np.array(p_values)), multipletests(p_values, method="holm")[1], rtol=1e-12)


def test_holm_keeps_a_test_that_could_not_run_in_the_family():
    got = stats.holm(np.array([0.01, NAN, 0.04, NAN]))
    np.testing.assert_allclose(got, [0.04, NAN, 0.12, NAN])
    assert stats.holm(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("p", "mark"), [(0.0005, "***"), (0.001, "***"), (0.002, "**"), (0.05, "*"), (0.0501, ""), (1.0, ""), (NAN, "")]
)
def test_stars(p, mark):
    assert stats.stars(p) == mark


@given(st.integers(0, 10**6), st.integers(2, 20))
@settings(deadline=None)
def test_t_test_and_interval_agree_with_scipy(seed, n):
    values = np.random.default_rng(seed).normal(0.3, 1.0, n)
    expected = scipy_stats.ttest_1samp(values, 0.0)
    got = stats.paired_t_test(values)
    assert got.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert got.statistic == pytest.approx(expected.statistic, rel=1e-9)
    np.testing.assert_allclose(stats.mean_interval(values), expected.confidence_interval(0.95), rtol=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 20), st.floats(0.05, 2.0), st.sampled_from([0.0, 0.3]))
@settings(deadline=None)
def test_equivalence_is_the_ninety_percent_interval_inside_the_margin(seed, n, margin, ratio):
    values = np.random.default_rng(seed).normal(0.1, 0.5, n)
    got = stats.equivalence_test(values, margin, ratio)
    half = reference.interval_half_width(list(values), scipy_stats.t.ppf(0.95, n - 1), ratio)
    mean = values.mean()
    np.testing.assert_allclose([got.low, got.high], [mean - half, mean + half], rtol=1e-9)
    assert (got.p < 0.05) == (abs(mean) + half < margin)
    assert got.out_of_reach == (half > margin)
    if ratio == 0:
        assert got.p == pytest.approx(DescrStatsW(values).ttost_mean(-margin, margin)[0], rel=1e-9)


def test_margin_out_of_reach_at_ten_pairs_means_058_sd():
    values = np.random.default_rng(0).normal(0, 1, 10)
    sd = stats.standard_deviation(values)
    assert stats.equivalence_test(values, 0.579 * sd).out_of_reach
    assert not stats.equivalence_test(values, 0.581 * sd).out_of_reach


def test_varying_splits_widen_the_error_by_nadeau_and_bengio():
    values = np.array([0.1, 0.3, 0.2, 0.4])
    plain, corrected = stats.standard_error(values), stats.standard_error(values, 0.5)
    assert corrected / plain == pytest.approx(math.sqrt((1 / 4 + 0.5) / (1 / 4)))
    assert stats.paired_t_test(values, 0.5).statistic == pytest.approx(values.mean() / corrected)
    np.testing.assert_allclose(np.diff(stats.mean_interval(values, 0.95, 0.5)), 2 * 3.182446305 * corrected)


@pytest.mark.parametrize("value", [0.1, -0.3])
def test_equal_differences_estimate_no_noise(value):
    same = np.full(5, value)
    assert math.isnan(stats.paired_t_test(same).p)
    assert math.isnan(stats.equivalence_test(same, 1.0).p)
    assert math.isnan(stats.effect_size(same))
    assert stats.standard_deviation(same) == 0.0
    assert stats.mean_interval(same) == pytest.approx((value, value))


def test_all_zero_differences_are_equal_and_equivalent():
    zeros = np.zeros(4)
    assert stats.paired_t_test(zeros) == (0.0, 1.0)
    assert stats.equivalence_test(zeros, 0.01) == (0.0, 0.0, 0.0, False)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_values_give_no_number(n):
    values = np.full(n, 0.5)
    numbers = [
        *stats.mean_interval(values),
        stats.standard_deviation(values),
        *stats.paired_t_test(values),
        stats.equivalence_test(values, 0.1).p,
        stats.effect_size(values),
        stats.correlation(values, values),
        stats.detectable_difference(NAN, n, 0.05),
    ]
    assert np.isnan(numbers).all()


def test_effect_size_has_the_exact_hedges_factor():
    values = np.array([0.2, 0.5, -0.1, 0.3, 0.4, 0.1])
    raw = values.mean() / values.std(ddof=1)
    assert stats.effect_size(values) / raw == pytest.approx(math.gamma(2.5) / (math.sqrt(2.5) * math.gamma(2.0)))
    # Hedges' own approximation is good to a percent here.
    assert stats.effect_size(values) / raw == pytest.approx(1 - 3 / (4 * 5 - 1), rel=0.01)


@given(st.lists(st.sampled_from([-INF, -1.0, 0.0, 2.0]), min_size=1, max_size=15))
@settings(deadline=None)
def test_probability_better_agrees_with_statsmodels(values):
    wins, n = sum(v > 0 for v in values), sum(v != 0 for v in values)
    got = stats.probability_better(np.array(values))
    if n == 0:
        assert np.isnan(got).all()
        return
    low, high = proportion_confint(wins, n, method="beta")
    np.testing.assert_allclose(got, (wins / n, low, high), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [3, 5, 10, 30])
@pytest.mark.parametrize("level", [0.05, 0.0125])
def test_detectable_difference_has_eighty_percent_power(n, level):
    found = stats.detectable_difference(2.0, n, level)
    assert TTestPower().power(found / 2.0, n, level) == pytest.approx(0.8, abs=2e-6)
    wider = stats.detectable_difference(2.0, n, level, variance_ratio=1 / n)
    assert wider == pytest.approx(found * math.sqrt(2))


def test_correlation_agrees_with_scipy_and_needs_spread():
    a, b = np.random.default_rng(1).normal(size=(2, 8))
    assert stats.correlation(a, b) == pytest.approx(scipy_stats.pearsonr(a, b).statistic)
    assert math.isnan(stats.correlation(a, np.ones(8)))


def test_differences_are_signed_by_direction_and_free_of_rounding_noise():
    point, default = np.array([0.3, 0.1 + 0.2, 0.5]), np.array([0.1 + 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(stats.signed_differences(point, default, 1), [0.0, 0.0, 0.1])
    np.testing.assert_array_equal(stats.signed_differences(point, default, -1), [0.0, 0.0, -0.1])
    large = stats.signed_differences(np.array([1e6 + 1e-4]), np.array([1e6]), 1)
    assert large[0] == pytest.approx(1e-4, rel=1e-2)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_diverged_arm_is_worst_whatever_the_direction(sign):
    got = stats.signed_differences(np.array([NAN, 0.5, NAN]), np.array([0.5, NAN, NAN]), sign)
    np.testing.assert_array_equal(got, [-INF, INF, 0.0])
