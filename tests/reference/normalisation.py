"""Batch normalisation of one replica, ghost batch after ghost batch and unit after unit."""

from __future__ import annotations

import math

import numpy as np

EPSILON = 1e-5


def ghost_batches(rows: int, ghost: int | None) -> list[list[int]]:
    """Row numbers of each ghost batch: the fewest of at most ``ghost`` rows, all equal but a shorter last one."""
    if ghost is None:
        return [list(range(rows))]
    parts = math.ceil(rows / ghost)
    size = math.ceil(rows / parts)
    return [list(range(start, min(start + size, rows))) for start in range(0, rows, size)]


def normalised(value: float, mean: float, variance: float, weight: float, bias: float) -> float:
    return (value - mean) / math.sqrt(variance + EPSILON) * weight + bias


def train(
    x: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    momentum: float,
    ghost: int | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [B, C], the others [C] -> normalised x, and the running mean and variance after it."""
    before, out, mean, variance = (mean, variance), np.empty_like(x), mean.copy(), variance.copy()
    for rows in ghost_batches(len(x), ghost):
        for c in range(x.shape[1]):
            values = [float(x[i, c]) for i in rows]
            n = len(values)
            if n == 1:
                centre, spread = float(before[0][c]), float(before[1][c])
            else:
                centre = sum(values) / n
                squares = sum((value - centre) ** 2 for value in values)
                spread = squares / n
                mean[c] = (1 - momentum) * mean[c] + momentum * centre
                variance[c] = (1 - momentum) * variance[c] + momentum * squares / (n - 1)
            for i in rows:
                out[i, c] = normalised(float(x[i, c]), centre, spread, float(weight[c]), float(bias[c]))
    return out, mean, variance


def evaluate(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """x [N, C] by the running statistics."""
    out = np.empty_like(x)
    for i, c in np.ndindex(x.shape):
        out[i, c] = normalised(*(float(v) for v in (x[i, c], mean[c], variance[c], weight[c], bias[c])))
    return out
