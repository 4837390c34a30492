"""Masking of a batch: what a masked entry is replaced by.  Masks and permutations are given, so this draws nothing."""

from __future__ import annotations

import numpy as np


def corrupt(rows: np.ndarray, mask: np.ndarray, kind: str, permutations: np.ndarray | None = None) -> np.ndarray:
    """Masked batch.  rows [B, D + C]; mask of the same shape, True where masked; kind none, constant or random.

    permutations [B, D + C], for "random": column j of row b takes the value of row permutations[b, j].
    """
    result = rows.copy()
    if kind == "none":
        return result
    for b in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if mask[b, j]:
                result[b, j] = 0 if kind == "constant" else rows[permutations[b, j], j]
    return result
