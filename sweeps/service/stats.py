"""Statistics of paired scores: tests, intervals, effect sizes, equivalence.  Pure functions of numbers.

A *pair* is one seed under two points.  Its *difference* is point minus default, signed so that positive means the
point is better.  A pair with one diverged arm has the difference -inf or +inf: the worst or best rank of all.

`variance_ratio` is n_test / n_train where the split varies with the seed, else 0.  Splits share rows, so their scores
are correlated and s^2 / n is too small; Nadeau & Bengio (2003, Machine Learning 52) put s^2 (1/n + n_test/n_train)
in its place.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

Floats = npt.NDArray[np.float64]

STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Adjusted p at or below a level, and its mark."""

EQUIVALENT_MARK = "≈"
IDENTICAL_MARK = "≡"

_RELATIVE_RESOLUTION = 12  # digits of a score that count; the rest is rounding noise, which would break ties


def signed_differences(point: Floats, default: Floats, sign: int) -> Floats:
    """Differences [n] of two arms [n]; nan in an arm stands for a diverged replica, `sign` is -1 for an error.

    Differences are rounded at 1e-12 of the largest score: scores that are equal but for summation order are ties.
    """
    lost, default_lost = np.isnan(point), np.isnan(default)
    differences = np.zeros(len(point))
    differences[lost & ~default_lost] = -np.inf
    differences[~lost & default_lost] = np.inf
    both = ~lost & ~default_lost
    if both.any():
        scale = max(np.abs(point[both]).max(), np.abs(default[both]).max())
        digits = _RELATIVE_RESOLUTION - (math.ceil(math.log10(scale)) if scale > 0 else 0)
        # + 0.0 turns -0.0 into 0.0.
        differences[both] = np.round(sign * (point[both] - default[both]), digits) + 0.0
    return differences


class SignedRank(NamedTuple):
    """Outcome of :func:`signed_rank_test`."""

    statistic: float
    """Sum of signed midranks; positive when the point tends to be better."""
    p: float
    """Exact two-sided p."""
    floor: float
    """Least p these absolute differences could have given: 2 / 2^(number of non-zero ones)."""
    zeros: int


def signed_rank_test(differences: Floats) -> SignedRank:
    """Exact two-sided Wilcoxon signed-rank test of differences [n], n >= 1, infinite ones allowed.

    Under the null every sign is a fair coin.  The test runs through all 2^n sign flips of the observed midranks, so it
    is exact with ties; zeros take part in the ranking and are then left out (Pratt 1959).  The flips are counted by
    adding one rank at a time to the distribution of their sum, which gives every p as a whole number of 2^-n.
    All differences zero: p = 1.
    """
    if len(differences) == 0:
        raise ValueError("differences must hold at least one pair, got none")
    ranks = stats.rankdata(np.abs(differences))
    nonzero = differences != 0
    doubled = np.rint(2 * ranks[nonzero]).astype(np.int64)  # midranks are halves: doubled they are whole numbers
    total = int(doubled.sum())
    probability = np.zeros(total + 1)
    probability[0] = 1.0
    for rank in doubled:
        # Halving is exact in float64, and so are the sums up to n = 52.
        shifted = np.zeros_like(probability)
        shifted[rank:] = probability[: total + 1 - rank]
        probability = (probability + shifted) / 2
    observed = int(doubled[differences[nonzero] > 0].sum())
    signed_sums = 2 * np.arange(total + 1) - total  # sum of signed ranks when the positive ones add up to 0, 1, ...
    p = probability[np.abs(signed_sums) >= abs(2 * observed - total)].sum()
    n_nonzero = int(nonzero.sum())
    return SignedRank(
        statistic=(2 * observed - total) / 2,
        p=min(1.0, float(p)),
        floor=2.0 ** (1 - n_nonzero) if n_nonzero else 1.0,
        zeros=len(differences) - n_nonzero,
    )


def has_spread(values: Floats) -> bool:
    """Whether at least two finite values [n] differ: what a t statistic needs."""
    return len(values) >= 2 and bool(np.ptp(values) > 0)


def standard_deviation(values: Floats) -> float:
    """Sample standard deviation (ddof 1) of values [n]; 0 for equal values, nan for fewer than two."""
    if len(values) < 2:
        return math.nan
    return float(np.std(values, ddof=1)) if has_spread(values) else 0.0


def standard_error(values: Floats, variance_ratio: float = 0.0) -> float:
    """Standard error of the mean of values [n]; see the module for `variance_ratio`."""
    return standard_deviation(values) * math.sqrt(1 / max(len(values), 1) + variance_ratio)


def mean_interval(values: Floats, confidence: float = 0.95, variance_ratio: float = 0.0) -> tuple[float, float]:
    """Two-sided t interval (low, high) of the mean of finite values [n]; (nan, nan) for fewer than two."""
    if len(values) < 2:
        return math.nan, math.nan
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * standard_error(values, variance_ratio)
    mean = float(np.mean(values))
    return mean - half, mean + half


class PairedT(NamedTuple):
    """Outcome of :func:`paired_t_test`."""

    statistic: float
    p: float
    """Two-sided p."""


def paired_t_test(differences: Floats, variance_ratio: float = 0.0) -> PairedT:
    """Two-sided t test that the mean of finite differences [n] is 0, with n - 1 degrees of freedom.

    All differences zero: statistic 0, p = 1.  Equal but not zero, or fewer than two: both nan, as nothing estimates
    the noise.
    """
    if len(differences) >= 2 and not differences.any():
        return PairedT(0.0, 1.0)
    if not has_spread(differences):
        return PairedT(math.nan, math.nan)
    t = float(np.mean(differences)) / standard_error(differences, variance_ratio)
    return PairedT(t, float(2 * stats.t.sf(abs(t), len(differences) - 1)))


class Equivalence(NamedTuple):
    """Outcome of :func:`equivalence_test`."""

    p: float
    """The larger of both one-sided p."""
    low: float
    high: float
    """90 % interval; it lies inside the margin exactly when p < 0.05."""
    out_of_reach: bool
    """Whether the interval is wider than the margin, so that even a mean difference of 0 would not pass."""


def equivalence_test(differences: Floats, margin: float, variance_ratio: float = 0.0) -> Equivalence:
    """Two one-sided paired t tests (Schuirmann 1987) that the mean of finite differences [n] is within +-margin.

    For n = 10 the interval is +-0.58 sd wide.  All differences zero: p = 0 (the interval is the point 0).  Equal but
    not zero, or fewer than two: p is nan.
    """
    low, high = mean_interval(differences, 0.90, variance_ratio)
    if len(differences) >= 2 and not differences.any():
        return Equivalence(0.0, 0.0, 0.0, False)
    if not has_spread(differences):
        return Equivalence(math.nan, low, high, False)
    mean, error = float(np.mean(differences)), standard_error(differences, variance_ratio)
    worst = (margin - abs(mean)) / error  # the nearer bound decides
    return Equivalence(
        p=float(stats.t.sf(worst, len(differences) - 1)),
        low=low,
        high=high,
        out_of_reach=bool((high - low) / 2 > margin),
    )


def holm(p_values: Floats) -> Floats:
    """Holm's step-down adjusted p [m] (Holm 1979) of p [m].

    nan marks a planned test that could not be run: it stays nan, and stays in the family as if its p were 1, so that
    a failed replica never makes its neighbours more significant.
    """
    filled = np.where(np.isnan(p_values), 1.0, p_values)
    order = np.argsort(filled, kind="stable")
    steps = np.maximum.accumulate((len(filled) - np.arange(len(filled))) * filled[order])
    adjusted = np.empty(len(filled))
    adjusted[order] = np.minimum(steps, 1.0)
    return np.where(np.isnan(p_values), np.nan, adjusted)


def stars(p_adjusted: float) -> str:
    """``"*"`` to ``"***"``, or ``""`` (also for nan)."""
    return next((mark for level, mark in STARS if p_adjusted <= level), "")


def effect_size(differences: Floats) -> float:
    """d_z = mean / sd of finite differences [n], times Hedges' (1981) exact small-sample factor.

    nan without spread or for fewer than three pairs (the factor is undefined at one degree of freedom).
    """
    if len(differences) < 3 or not has_spread(differences):
        return math.nan
    half = (len(differences) - 1) / 2
    factor = math.exp(special.gammaln(half) - special.gammaln(half - 0.5)) / math.sqrt(half)
    return float(np.mean(differences)) / standard_deviation(differences) * factor


class Share(NamedTuple):
    """A proportion with its 95 % interval; all nan when nothing was counted."""

    value: float
    low: float
    high: float


def probability_better(differences: Floats) -> Share:
    """Share of differences [n] above 0, zeros left out, with the Clopper-Pearson (1934) interval."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    if wins + losses == 0:
        return Share(math.nan, math.nan, math.nan)
    low = float(stats.beta.ppf(0.025, wins, losses + 1)) if wins else 0.0
    high = float(stats.beta.ppf(0.975, wins + 1, losses)) if losses else 1.0
    return Share(wins / (wins + losses), low, high)


def correlation(point: Floats, default: Floats) -> float:
    """Pearson correlation of two finite arms [n]: how much pairing helps.  nan without spread or below three pairs."""
    if len(point) < 3 or not has_spread(point) or not has_spread(default):
        return math.nan
    return float(np.corrcoef(point, default)[0, 1])


@lru_cache(maxsize=256)
def _detectable_errors(degrees: int, level: float, power: float) -> float:
    """True difference, in standard errors, that a two-sided t test at `level` finds with probability `power`."""
    critical = float(stats.t.ppf(1 - level / 2, degrees))

    def lacking(difference: float) -> float:
        # The far tail adds less than 1e-6 at 80 % power and is left out.
        return float(stats.nct.sf(critical, degrees, difference)) - power

    # Power at `critical` itself is near one half; the bracket doubles until it holds the answer.
    high = critical
    while lacking(high) < 0:
        high *= 2
    return float(optimize.brentq(lacking, 0.0, high))


def detectable_difference(sd: float, n: int, level: float, *, power: float = 0.8, variance_ratio: float = 0.0) -> float:
    """Least true mean difference that a paired t test of `n` pairs at `level` finds with probability `power`.

    sd: standard deviation of the differences.  nan for fewer than two pairs or an unknown sd.
    """
    if n < 2 or math.isnan(sd):
        return math.nan
    return _detectable_errors(n - 1, level, power) * sd * math.sqrt(1 / n + variance_ratio)
