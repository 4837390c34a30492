"""Slow twins of `sweeps.service.components`: loops over the definitions, and the interval as its authors print it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.stats import f

INFINITE = 1e9
"""Degrees of freedom in place of infinitely many."""


def mean_square(values: Sequence[float]) -> float:
    """Squares about the mean, over one value less."""
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def average(squares: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of (mean square, degrees), and Satterthwaite's degrees: 2 mean^2 / variance of the mean.

    A mean square s of f degrees has the variance 2 s^2 / f.
    """
    mean = sum(value for value, _ in squares) / len(squares)
    variance = sum(2 * value**2 / degrees for value, degrees in squares) / len(squares) ** 2
    return mean, 2 * mean**2 / variance


def difference_interval(s1: float, n1: int, s2: float, n2: int, confidence: float) -> tuple[float, float]:
    """Ting et al. 1990 on theta_1 - theta_2: G and H of each mean square, and the cross terms."""
    alpha = (1 - confidence) / 2  # F(alpha; n, m) is exceeded with probability alpha

    def quantile(exceeded: float, degrees: float, other: float) -> float:
        return float(f.isf(exceeded, degrees, other))

    g1 = 1 - 1 / quantile(alpha, n1, INFINITE)
    h2 = 1 / quantile(1 - alpha, n2, INFINITE) - 1
    above = quantile(alpha, n1, n2)
    g12 = ((above - 1) ** 2 - g1**2 * above**2 - h2**2) / above
    low = (s1 - s2) - math.sqrt(g1**2 * s1**2 + h2**2 * s2**2 + g12 * s1 * s2)
    h1 = 1 / quantile(1 - alpha, n1, INFINITE) - 1
    g2 = 1 - 1 / quantile(alpha, n2, INFINITE)
    below = quantile(1 - alpha, n1, n2)
    h12 = ((1 - below) ** 2 - h1**2 * below**2 - g2**2) / below
    high = (s1 - s2) + math.sqrt(h1**2 * s1**2 + g2**2 * s2**2 + h12 * s1 * s2)
    return low, high
