"""Variance components against their slow twins, against what is known exactly, and in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from sweeps.service.components import MeanSquare, average, difference, mean_square, whole
from tests.reference import components as reference

degrees = st.integers(1, 200)
squares = st.floats(1e-6, 1e3)


@given(st.lists(st.integers(-99, 99).map(float), max_size=9))
@settings(deadline=None)
def test_mean_square_is_the_twins(values):
    got = mean_square(np.array(values))
    assert got.degrees == max(len(values) - 1, 0)
    if len(values) > 1:
        assert got.value == pytest.approx(reference.mean_square(values), abs=1e-9)
    else:
        assert math.isnan(got.value)


def test_mean_square_of_equal_values_is_exactly_0():
    assert mean_square(np.full(7, 0.1)) == (0.0, 6)


@given(st.lists(st.tuples(squares, degrees), min_size=1, max_size=6))
@settings(deadline=None)
def test_average_is_the_twins(known):
    got = average([MeanSquare(math.nan, 0), *(MeanSquare(*square) for square in known)])
    assert got == pytest.approx(reference.average(known))
    assert min(count for _, count in known) <= got.degrees * (1 + 1e-9)
    assert got.degrees <= sum(count for _, count in known) * (1 + 1e-9)


def test_averages_of_what_does_not_vary_and_of_nothing():
    assert average([MeanSquare(0.0, 4), MeanSquare(0.0, 9)]) == (0.0, 13)
    assert average([]).degrees == 0 and math.isnan(average([]).value)


def test_of_a_mean_of_several():
    assert MeanSquare(5.0, 12).divided(5) == (1.0, 12)


@given(squares, degrees, squares, degrees, st.sampled_from([0.8, 0.95]))
@settings(deadline=None)
def test_difference_is_the_twins(a, m, b, n, confidence):
    got = difference(MeanSquare(a, m), MeanSquare(b, n), confidence)
    low, high = reference.difference_interval(a, m, b, n, confidence)
    scale = max(abs(low), abs(high), a, b)
    assert got.value == a - b
    assert got.low == pytest.approx(low, abs=1e-4 * scale) and got.high == pytest.approx(high, abs=1e-4 * scale)
    assert got.low <= got.value <= got.high


@given(squares, degrees, degrees)
@settings(deadline=None)
def test_an_end_is_0_exactly_where_the_f_test_is_at_its_level(b, m, n):
    """The interval and the F test of equal variances agree."""
    for tail, end in ((0.025, "low"), (0.975, "high")):
        a = b * float(scipy_stats.f.isf(tail, m, n))
        got = difference(MeanSquare(a, m), MeanSquare(b, n))
        assert getattr(got, end) == pytest.approx(0, abs=1e-6 * max(a, b))


@given(squares, degrees)
@settings(deadline=None)
def test_without_the_smaller_variance_it_is_the_chi_square_interval(a, m):
    expected = whole(MeanSquare(a, m))
    assert difference(MeanSquare(a, m), MeanSquare(0.0, 30)) == pytest.approx(expected, rel=1e-9)
    low, high = (m * a / float(scipy_stats.chi2.ppf(level, m)) for level in (0.975, 0.025))
    assert expected == pytest.approx((a, low, high))


@pytest.mark.parametrize(("m", "n", "ratio"), [(9, 129, 1.0), (9, 129, 3.0), (9, 9, 1.0), (9, 9, 4.0), (2, 38, 2.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(m, n, ratio):
    """4000 draws each: 95 % +- 1.2 points is 3.5 standard errors; the method itself may be off by a point."""
    generator = np.random.default_rng([m, n, int(ratio)])
    larger, smaller = ratio * generator.chisquare(m, 4000) / m, generator.chisquare(n, 4000) / n
    found = [difference(MeanSquare(a, m), MeanSquare(b, n)) for a, b in zip(larger, smaller, strict=True)]
    assert np.mean([part.value for part in found]) == pytest.approx(ratio - 1, abs=4 * ratio / math.sqrt(4000 * m / 2))
    assert 0.933 < np.mean([part.low <= ratio - 1 <= part.high for part in found]) < 0.975


def test_what_nothing_estimates_is_nan():
    unknown = MeanSquare(math.nan, 0)
    for part in (whole(unknown), difference(unknown, MeanSquare(1.0, 3)), difference(MeanSquare(1.0, 3), unknown)):
        assert all(map(math.isnan, part))


def test_no_variance_at_all_is_0():
    assert difference(MeanSquare(0.0, 9), MeanSquare(0.0, 9)) == (0, 0, 0)
