"""What is fitted of columns before a model sees them: medians, means and spreads of numbers, codes of categories.

Fitted once, on the rows that train; then applied to any rows, those of another day included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from adaptbin.errors import DataError


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Means and spreads of D numerical columns."""

    mean: np.ndarray
    """[D] float64."""
    sd: np.ndarray
    """[D] float64, ddof 0; above 0."""

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Fit to ``values`` [N, D] float64, NaN where missing; the caller sees to it that no column is constant."""
        if np.isnan(values).any():
            return cls(np.nanmean(values, axis=0), np.nanstd(values, axis=0))
        return cls(values.mean(axis=0), values.std(axis=0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """[N, D] float64 -> float32, by mean and sd, both computed in float64."""
        # DIFF[released->ours] the released code does this in float32, one column at a time; ours differs from it by
        # 2e-6 at most on the real tables, below what any score can show, so there is no switch.
        scaled: np.ndarray = values - self.mean
        scaled /= self.sd
        return scaled.astype(np.float32)

    def undone(self, values: np.ndarray, column: int) -> np.ndarray:
        """Standardised values of one column, in its own units; [..] float64."""
        original: np.ndarray = values * self.sd[column] + self.mean[column]
        return original


@dataclass(frozen=True, eq=False)
class Imputation:
    """What stands for the missing numbers of D numerical columns, and which columns say that a number is missing.

    The paper has no missing values; this is ours.  A missing number is the median of those that are there, and a column
    that lacks some in fit has an indicator: a category 1 where the number is missing, 0 where it is there.
    """

    median: np.ndarray
    """[D] float64, of the numbers that are there."""
    indicated: tuple[int, ...]
    """Positions of the I columns with an indicator, in rising order."""

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Fit to ``values`` [N, D] float64, NaN where missing; the caller sees to it that no column is empty."""
        lacking = np.isnan(values).any(axis=0)
        median = np.array([np.nanmedian(column) for column in values.T], dtype=np.float64)
        return cls(median, tuple(np.flatnonzero(lacking).tolist()))

    def filled(self, values: np.ndarray) -> np.ndarray:
        """[N, D] float64 -> the same with medians in place of NaN."""
        missing = np.isnan(values)
        return np.where(missing, self.median, values) if missing.any() else values

    def indicators(self, values: np.ndarray) -> np.ndarray:
        """[N, D] float64, before it is filled -> [N, I] float32 of 0 and 1."""
        missing: np.ndarray = np.isnan(values[:, list(self.indicated)])
        return missing.astype(np.float32)

    def names(self, columns: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
        """Names of the indicators of ``columns`` [D].  Raises DataError where one is among the names ``taken``."""
        names = tuple(f"{columns[position]} is missing" for position in self.indicated)
        for name in names:
            if name in taken:
                raise DataError(f"column names must differ from those of indicators of missing values, got {name!r}")
        return names


@dataclass(frozen=True)
class Categories:
    """The values of one categorical column; code = position here."""

    values: tuple[Any, ...]
    """Distinct and hashable."""

    @classmethod
    def of(cls, column: Iterable[Any]) -> Self:
        """The distinct values of ``column`` [N] in sorted order."""
        return cls(tuple(sorted(pd.unique(np.fromiter(column, dtype=object)))))

    @property
    def cardinality(self) -> int:
        """How many there are, and the code of a value that is not among them."""
        return len(self.values)

    def __call__(self, column: Iterable[Any]) -> np.ndarray:
        """[N] values -> [N] int64 codes, the cardinality for a value that was not there when this was fitted."""
        code_of = {value: code for code, value in enumerate(self.values)}
        # Every distinct value is looked up once.  None, the category of what is missing, comes back as NaN.
        places, distinct = pd.factorize(np.fromiter(column, dtype=object), use_na_sentinel=False)
        known = (code_of.get(None if value != value else value, self.cardinality) for value in distinct)
        return np.fromiter(known, dtype=np.int64)[places]
