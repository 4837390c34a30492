"""What is fitted of a table's columns: which are numbers and which categories, and how they become inputs of a model.

A column with one value in fit says nothing of a row: it is left out of the model, and what it holds later is not read.
Missing numbers are filled and indicated as in a data set (``adaptbin.data.coding.Imputation``); of a categorical column
a missing value is a category, None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from adaptbin.data.coding import Categories, Imputation, Standardisation
from adaptbin.data.encode import EncodedRows, UnseenCategory
from adaptbin.encoders.base import Columns
from adaptbin.errors import ConfigError, DataError, nearest
from adaptbin.estimators.reading import GivenColumn

Kind = Literal["numerical", "categorical", "constant"]

AUTO_LEVELS = 20
"""At most so many distinct values make a column of numbers categorical under "auto" (paper, Sec. 3)."""


@dataclass(frozen=True, eq=False)
class FittedColumns:
    """F columns as given, of which D are numerical, C categorical, and the rest constant."""

    names: tuple[str, ...]
    """[F]."""
    kinds: tuple[Kind, ...]
    """[F]."""
    imputation: Imputation
    """Of the D numerical columns, in their order; likewise the next one."""
    standardisation: Standardisation
    categories: tuple[Categories, ...]
    """Of the C categorical columns, in their order."""
    unseen_category: UnseenCategory = "own"
    """Code of a category that fit had not; see :func:`adaptbin.data.encode.encode`."""

    @classmethod
    def of(cls, given: Sequence[GivenColumn], categorical_features: Any) -> Self:
        """Fit to all rows of ``given``.

        Raises ConfigError for ``categorical_features`` that are not among the columns, DataError where a column of
        words is not among them, a spread is beyond float64, a column of numbers lacks all but one, or no column takes
        two values.
        """
        chosen = _categorical(given, categorical_features)
        kinds: list[Kind] = []
        numbers: list[np.ndarray] = []
        categories: list[Categories] = []
        for column, is_categorical in zip(given, chosen, strict=True):
            kinds.append(_kind(column, is_categorical))
            if kinds[-1] == "numerical":
                numbers.append(column.numbers())
            elif kinds[-1] == "categorical":
                categories.append(_categories(column))
        if not numbers and not categories:
            raise DataError(f"at least one column must take two values or more, got {len(given)} that take one")
        values = np.column_stack(numbers) if numbers else np.zeros((len(given[0].values), 0))
        fitted = cls(
            tuple(c.name for c in given),
            tuple(kinds),
            Imputation.of(values),
            Standardisation.of(values),
            tuple(categories),
        )
        fitted.imputation.names(fitted.names_of("numerical"), fitted.names)
        return fitted

    def names_of(self, kind: Kind) -> tuple[str, ...]:
        """Names of the columns of one kind, in their order."""
        return tuple(name for name, its in zip(self.names, self.kinds, strict=True) if its == kind)

    @property
    def for_encoder(self) -> Columns:
        """The columns that the model reads, as encoders are told of them."""
        levels = tuple(c.cardinality for c in self.categories)
        return Columns(self.kinds.count("numerical"), levels + (2,) * len(self.imputation.indicated))

    def _numbers(self, given: Sequence[GivenColumn]) -> np.ndarray:
        """[N, D] float64, NaN where missing."""
        numbers = [c.numbers() for c, its in zip(given, self.kinds, strict=True) if its == "numerical"]
        return np.column_stack(numbers) if numbers else np.zeros((len(given[0].values), 0))

    def inputs(self, given: Sequence[GivenColumn]) -> Tensor:
        """[N, D + C] float32: numbers standardised, missing ones at their median, then codes, last the indicators of
        numbers that are missing; a category that fit had not has the code asked for.

        Raises DataError for words where fit had numbers or the other way round, and numbers too large for float32.
        """
        values = self._numbers(given)
        with np.errstate(over="ignore"):  # told below
            scaled = self.standardisation(self.imputation.filled(values))
        if not np.isfinite(scaled).all():
            row, column = np.argwhere(~np.isfinite(scaled))[0]
            raise DataError(
                f"column {self.names_of('numerical')[column]!r} must hold numbers of the size that fit had, "
                f"got {values[row, column]} in row {row}"
            )
        categorical = [c for c, its in zip(given, self.kinds, strict=True) if its == "categorical"]
        codes = [_codes(c, known) for c, known in zip(categorical, self.categories, strict=True)]
        if self.unseen_category == "zero":
            codes = [np.where(c == known.cardinality, 0, c) for c, known in zip(codes, self.categories, strict=True)]
        parts = [scaled, *codes, self.imputation.indicators(values)]
        return torch.from_numpy(np.ascontiguousarray(np.column_stack(parts), dtype=np.float32))

    def rows(self, given: Sequence[GivenColumn]) -> EncodedRows:
        """All rows of ``given``, to train on."""
        inputs, missing = self.inputs(given), np.isnan(self._numbers(given))
        numerical = self.names_of("numerical")
        return EncodedRows(
            inputs=inputs,
            numerical_names=numerical,
            categorical_names=(*self.names_of("categorical"), *self.imputation.names(numerical, self.names)),
            cardinalities=self.for_encoder.cardinalities,
            train=torch.arange(len(inputs)),
            observed=torch.from_numpy(~missing) if missing.any() else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-ready dictionary."""
        return {
            "names": list(self.names),
            "kinds": list(self.kinds),
            "median": self.imputation.median.tolist(),
            "indicated": list(self.imputation.indicated),
            "mean": self.standardisation.mean.tolist(),
            "sd": self.standardisation.sd.tolist(),
            "categories": [list(c.values) for c in self.categories],
            "unseen_category": self.unseen_category,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild from :meth:`to_dict`, also of a version that refused missing values and has no medians: there a
        missing number counts as too large."""
        median = values.get("median", [np.nan] * len(values["mean"]))
        return cls(
            tuple(values["names"]),
            tuple(values["kinds"]),
            Imputation(np.array(median, dtype=np.float64), tuple(values.get("indicated", ()))),
            Standardisation(np.array(values["mean"], dtype=np.float64), np.array(values["sd"], dtype=np.float64)),
            tuple(Categories(tuple(levels)) for levels in values["categories"]),
            values.get("unseen_category", "own"),  # of schema 1 there are no others
        )


def _categorical(given: Sequence[GivenColumn], asked: Any) -> list[bool]:
    """Per column whether it is categorical."""
    if isinstance(asked, str) and asked in ("from_dtype", "auto"):
        return [c.declared or (asked == "auto" and len(np.unique(c.values[~c.missing])) <= AUTO_LEVELS) for c in given]
    if isinstance(asked, str) or not np.iterable(asked):
        raise ConfigError(
            "categorical_features must be 'from_dtype', 'auto', or a list of names, positions or truth values, "
            f"got {asked!r}"
        )
    named = list(asked)
    if named and all(isinstance(entry, bool | np.bool_) for entry in named):
        if len(named) != len(given):
            raise ConfigError(
                f"categorical_features must have one truth value per column ({len(given)}), got {len(named)}"
            )
        return [bool(entry) for entry in named]
    names = [c.name for c in given]
    chosen = set()
    for entry in named:
        if isinstance(entry, str) and entry in names:
            chosen.add(names.index(entry))
        elif isinstance(entry, int | np.integer) and 0 <= entry < len(names):
            chosen.add(int(entry))
        else:
            raise ConfigError(
                f"categorical_features must name columns or their positions, 0 to {len(names) - 1}, got {entry!r}"
                f"{nearest(str(entry), names)}"
            )
    return [position in chosen for position in range(len(names))]


def _kind(column: GivenColumn, is_categorical: bool) -> Kind:
    there = column.values[~column.missing]
    is_complete = len(there) == len(column.values)
    if not len(there) or (is_complete and (there == there[0]).all()):
        return "constant"
    if is_categorical:
        return "categorical"
    if isinstance(there[0], str):
        raise DataError(f"column {column.name!r} holds words, so it must be among categorical_features")
    values = column.numbers()[~column.missing]
    with np.errstate(over="ignore"):
        spread, sd = np.ptp(values), values.std()
    if not np.isfinite(sd):
        raise DataError(f"column {column.name!r} must have a spread that float64 can hold, got {spread}")
    # Numbers that differ by their last bits only are one number, computed in several ways.
    if spread > 4 * np.spacing(np.abs(values).max()):
        return "numerical"
    if not is_complete:
        raise DataError(
            f"column {column.name!r} must hold two numbers or more where it is not missing, got {values[0]} alone; "
            "among categorical_features it has two categories"
        )
    return "constant"


def _categories(column: GivenColumn) -> Categories:
    """The values of a column in the order of its type, or else sorted; None, where some are missing, comes last."""
    values = [value for value in column.categories() if value is not None]
    lacking = (None,) if len(values) < len(column.values) else ()
    kinds = {
        "words" if isinstance(v, str) else "numbers" if isinstance(v, int | float) else type(v).__name__ for v in values
    }
    if kinds not in ({"words"}, {"numbers"}):
        raise DataError(
            f"categories of column {column.name!r} must be all words or all numbers, got {', '.join(sorted(kinds))}; "
            "with astype(str) they are words"
        )
    if column.order is None:
        return Categories((*Categories.of(values).values, *lacking))
    present = set(values)
    return Categories((*(level for level in column.order if level in present), *lacking))


def _codes(column: GivenColumn, known: Categories) -> np.ndarray:
    values = column.categories()
    if "" in known.values and None not in known.values:  # of an exported model: in a data set the empty word is missing
        values = ["" if value is None else value for value in values]
    is_words = isinstance(known.values[0], str)
    stranger = next((v for v in values if v is not None and isinstance(v, str) != is_words), None)
    if stranger is not None:
        raise DataError(
            f"column {column.name!r} must hold {'words' if is_words else 'numbers'} as it did in fit, got {stranger!r}"
        )
    return known(values)
