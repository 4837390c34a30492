"""What is fitted of columns before a model sees them: mean and spread of numbers, codes of categories.

Fitted once, on the rows that train; then applied to any rows, those of another day included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Means and spreads of D numerical columns."""

    mean: np.ndarray
    """[D] float64."""
    sd: np.ndarray
    """[D] float64, ddof 0; above 0."""

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Fit to ``values`` [N, D] float64; the caller sees to it that no column is constant."""
        return cls(values.mean(axis=0), values.std(axis=0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """[N, D] float64 -> float32, by mean and sd, both computed in float64."""
        # DIFF[released->ours] the released code does this in float32, one column at a time; ours differs from it by
        # 2e-6 at most on the real tables, below what any score can show, so there is no switch.
        scaled: np.ndarray = ((values - self.mean) / self.sd).astype(np.float32)
        return scaled

    def undone(self, values: np.ndarray, column: int) -> np.ndarray:
        """Standardised values of one column, in its own units; [..] float64."""
        original: np.ndarray = values * self.sd[column] + self.mean[column]
        return original


@dataclass(frozen=True)
class Categories:
    """The values of one categorical column; code = position here."""

    values: tuple[Any, ...]
    """Distinct and hashable."""

    @classmethod
    def of(cls, column: Iterable[Any]) -> Self:
        """The distinct values of ``column`` [N] in sorted order."""
        return cls(tuple(sorted(set(column))))

    @property
    def cardinality(self) -> int:
        """How many there are, and the code of a value that is not among them."""
        return len(self.values)

    def __call__(self, column: Iterable[Any]) -> np.ndarray:
        """[N] values -> [N] int64 codes, the cardinality for a value that was not there when this was fitted."""
        code_of = {value: code for code, value in enumerate(self.values)}
        return np.array([code_of.get(value, self.cardinality) for value in column], dtype=np.int64)
