"""DIGS: where a triggered feature's bins are split.  One feature of one replica, one bin at a time."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tests.reference.discretizer import assign

EPSILON = 1e-6


class Candidate(NamedTuple):
    """A bin's possible split; all NaN where the bin is not eligible."""

    median: float
    gain_var: float
    gain_disp: float
    score: float

    def qualifies(self, tau: float, kind: str = "product") -> bool:
        """Whether the score passes; in the ablations ("variance", "dispersion") one of the gains alone is the score."""
        if kind == "product":
            return self.gain_var > 0 and self.gain_disp > 0 and self.score > tau
        gain = self.gain_var if kind == "variance" else self.gain_disp
        return gain > 0 and gain > tau

    def ranked_by(self, kind: str) -> float:
        """What decides between splits when there is no room for all."""
        return {"product": self.score, "variance": self.gain_var, "dispersion": self.gain_disp}[kind]


def unit_rows(embeddings: np.ndarray) -> np.ndarray:
    """Rows of float32 embeddings at length 1, in float32; a norm below 1e-12 counts as 1e-12."""
    rows = []
    for row in embeddings.astype(np.float32):
        norm = np.float32(math.sqrt(sum(float(v) ** 2 for v in row)))
        rows.append(row / max(norm, np.float32(1e-12)))
    return np.array(rows, dtype=np.float32).reshape(embeddings.shape)


def dispersion(unit: np.ndarray) -> float:
    """|log(eps + squared length of the mean direction)|; a single row has none."""
    if len(unit) == 1:
        return 0.0
    mean = unit.astype(np.float64).sum(axis=0) / len(unit)
    return abs(math.log(EPSILON + min(max(float((mean**2).sum()), 0.0), 1.0)))


def variance(values: np.ndarray) -> float:
    exact = values.astype(np.float64)
    mean = exact.sum() / len(exact)
    return float(((exact - mean) ** 2).sum() / len(exact))


def median(values: np.ndarray) -> np.float32:
    """Middle value, or the float32 mean of the middle two."""
    ordered = np.sort(values.astype(np.float32))
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return np.float32((ordered[middle - 1] + ordered[middle]) / np.float32(2))


def candidate(values: np.ndarray, unit: np.ndarray, low: float, high: float, min_bin: int) -> Candidate:
    """Split of one bin [low, high) at the median of its train values (float32), with unit embeddings of its rows."""
    nothing = Candidate(math.nan, math.nan, math.nan, math.nan)
    n = len(values)
    if n < 2 * min_bin:
        return nothing
    cut = median(values)
    if float(cut) in (low, high):
        return nothing
    left = values < cut
    n_left, n_right = int(left.sum()), int((~left).sum())
    if min(n_left, n_right) < min_bin:
        return nothing
    gains = []
    for spread, data in ((variance, values), (dispersion, unit)):
        gains.append(spread(data) - n_left / n * spread(data[left]) - n_right / n * spread(data[~left]))
    return Candidate(float(cut), gains[0], gains[1], gains[0] * gains[1])


def score_bins(values: np.ndarray, unit: np.ndarray, edges: np.ndarray, min_bin: int) -> list[Candidate]:
    """One candidate per bin, in order."""
    bins = assign(values, edges)
    outer = [-math.inf, *edges.tolist(), math.inf]
    return [
        candidate(values[bins == k], unit[bins == k], outer[k], outer[k + 1], min_bin) for k in range(len(edges) + 1)
    ]
