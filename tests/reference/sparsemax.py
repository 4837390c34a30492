"""Sparsemax of one row by its definition: a threshold is sought, nothing is sorted (Martins & Astudillo 2016)."""

from __future__ import annotations

import numpy as np


def sparsemax(z: np.ndarray) -> np.ndarray:
    """Proposition 1: max(z - threshold, 0), which sums to 1; the sum falls as the threshold rises, so halve."""
    low, high = float(z.max()) - 1.0, float(z.max())
    for _ in range(200):
        middle = (low + high) / 2
        if np.maximum(z - middle, 0).sum() >= 1:
            low = middle
        else:
            high = middle
    return np.maximum(z - low, 0)


def gradient(z: np.ndarray, upstream: np.ndarray) -> np.ndarray:
    """Eq. 8 and 9, transposed: ``upstream`` less its mean over the support, and 0 outside it."""
    support = sparsemax(z) > 0
    return np.where(support, upstream - upstream[support].mean(), 0.0)
