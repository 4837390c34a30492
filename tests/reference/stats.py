"""Slow twins of `sweeps.service.stats`: loops and enumeration, written from the definitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def midranks(values: Sequence[float]) -> list[float]:
    """Rank of each value among all, equal values sharing the mean of the ranks they fill."""
    ranks = []
    for value in values:
        below = sum(other < value for other in values)
        equal = sum(other == value for other in values)
        ranks.append(below + (equal + 1) / 2)
    return ranks


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p by trying every sign for every non-zero difference (Pratt: zeros are ranked, then dropped)."""
    ranks = midranks([abs(difference) for difference in differences])
    kept = [(rank, difference) for rank, difference in zip(ranks, differences, strict=True) if difference != 0]
    observed = abs(sum(math.copysign(rank, difference) for rank, difference in kept))
    sums = [
        abs(sum(sign * rank for sign, (rank, _) in zip(signs, kept, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(kept))
    ]
    return sum(total >= observed for total in sums) / len(sums)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p from the definition: the smallest level at which the step-down procedure rejects each hypothesis."""
    adjusted = []
    for p in p_values:
        # The procedure reaches p only after rejecting everything smaller, each at its own multiple.
        smaller = sorted(other for other in p_values if other <= p)
        steps = [(len(p_values) - step) * other for step, other in enumerate(smaller) if other < p]
        first = len([other for other in p_values if other < p])
        adjusted.append(min(1.0, max([*steps, (len(p_values) - first) * p])))
    return adjusted


def interval_half_width(values: Sequence[float], quantile: float, variance_ratio: float) -> float:
    """Half width of a t interval of the mean, with the corrected variance s^2 (1/n + variance_ratio)."""
    n = len(values)
    mean = sum(values) / n
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return quantile * math.sqrt(variance * (1 / n + variance_ratio))
