"""Variance components: how much of a score's variance each of several nested sources adds.  Pure functions of numbers.

A *mean square* is an unbiased estimate of a variance with some degrees of freedom; for normal scores it is that
variance times chi square / degrees.  A component is the difference of two mean squares, taken as independent, one with
a source of variance and one without.  It is unbiased where the other sources vary alike in both, and can come out below
0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]


class MeanSquare(NamedTuple):
    """An estimate of a variance; nan with 0 degrees of freedom."""

    value: float
    degrees: float

    def divided(self, count: int) -> MeanSquare:
        """Of the mean of ``count`` independent draws in place of one."""
        return MeanSquare(self.value / count, self.degrees)


class Component(NamedTuple):
    """An estimate of a variance with its interval; the estimate and its ends can be below 0."""

    value: float
    low: float
    high: float


def mean_square(values: Floats) -> MeanSquare:
    """Mean square of values [n] about their mean, with n - 1 degrees of freedom; equal values give exactly 0."""
    if len(values) < 2:
        return MeanSquare(math.nan, 0)
    return MeanSquare(float(np.var(values, ddof=1)) if np.ptp(values) > 0 else 0.0, len(values) - 1)


def average(squares: Sequence[MeanSquare]) -> MeanSquare:
    """Mean of mean squares, each counted alike, however many degrees it has; those that are not known are left out.

    It estimates the mean of variances that may differ.  Degrees of freedom are Satterthwaite's (1946, Biometrics 2):
    those of the chi square whose variance is that of the mean.
    """
    known = [square for square in squares if square.degrees]
    if not known:
        return MeanSquare(math.nan, 0)
    total = sum(square.value for square in known)
    spread = sum(square.value**2 / square.degrees for square in known)
    # Without any variance all are alike, and their degrees add up.
    degrees = total**2 / spread if spread > 0 else sum(square.degrees for square in known)
    return MeanSquare(total / len(known), degrees)


def whole(variance: MeanSquare, confidence: float = 0.95) -> Component:
    """A variance itself, with its chi square interval; all nan where nothing estimates it."""
    if not variance.degrees:
        return Component(math.nan, math.nan, math.nan)
    tail = (1 - confidence) / 2
    squares = variance.value * variance.degrees
    low, high = (squares / float(stats.chi2.isf(level, variance.degrees)) for level in (tail, 1 - tail))
    return Component(variance.value, low, high)


def difference(larger: MeanSquare, smaller: MeanSquare, confidence: float = 0.95) -> Component:
    """``larger - smaller`` with the modified large-sample interval; all nan where one is not known.

    The interval (Ting, Burdick, Graybill, Jeyaratnam and Lu 1990, J. Statist. Comput. Simul. 35; Burdick and Graybill
    1992, "Confidence Intervals on Variance Components", Sec. 3.3) is exact where either variance is 0 and close to its
    confidence between, also with few degrees of freedom.  With normal scores, that is.
    """
    if not (larger.degrees and smaller.degrees):
        return Component(math.nan, math.nan, math.nan)
    tail = (1 - confidence) / 2
    (a, m), (b, n) = larger, smaller
    # Upper and lower quantiles of F with (m, n), (m, inf) and (n, inf) degrees of freedom.
    upper, lower = float(stats.f.isf(tail, m, n)), float(stats.f.ppf(tail, m, n))
    upper_a, lower_a = (float(of(tail, m)) / m for of in (stats.chi2.isf, stats.chi2.ppf))
    upper_b, lower_b = (float(of(tail, n)) / n for of in (stats.chi2.isf, stats.chi2.ppf))
    g_a, h_a = 1 - 1 / upper_a, 1 / lower_a - 1
    g_b, h_b = 1 - 1 / upper_b, 1 / lower_b - 1
    g_ab = ((upper - 1) ** 2 - (g_a * upper) ** 2 - h_b**2) / upper
    h_ab = ((1 - lower) ** 2 - (h_a * lower) ** 2 - g_b**2) / lower
    below = (g_a * a) ** 2 + (h_b * b) ** 2 + g_ab * a * b
    above = (h_a * a) ** 2 + (g_b * b) ** 2 + h_ab * a * b
    # Rounding, or a cross term below 0, can leave a square slightly below 0.
    return Component(a - b, a - b - math.sqrt(max(below, 0.0)), a - b + math.sqrt(max(above, 0.0)))
