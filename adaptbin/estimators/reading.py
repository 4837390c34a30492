"""What a user hands over, a frame or an array, as columns; infinite values are refused here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from adaptbin.errors import DataError


@dataclass(frozen=True, eq=False)
class GivenColumn:
    """One column of N rows, before anything is fitted."""

    name: str
    """Its name in the frame, or "x0", "x1", ... by position where there are none."""
    values: np.ndarray
    """[N] float64, NaN where missing; or object where the type is words, truth values or categories, None where
    missing."""
    declared: bool = False
    """Whether its type says that it is categorical."""
    order: tuple[Any, ...] | None = None
    """All categories in the order that its type gives them."""

    @property
    def missing(self) -> np.ndarray:
        """Which values are missing, [N] bool."""
        found: np.ndarray = pd.isna(self.values)
        return found

    def numbers(self) -> np.ndarray:
        """[N] float64, NaN where missing.  Raises DataError where a value is no number."""
        try:
            return np.where(self.missing, np.nan, self.values).astype(np.float64)
        except (TypeError, ValueError) as error:
            example = next(value for value in self.values if not isinstance(value, int | float | None))
            raise DataError(f"column {self.name!r} is numerical and must hold numbers, got {example!r}") from error

    def categories(self) -> list[Any]:
        """[N] Python's own values, None where missing."""
        return [None if lacks else value for value, lacks in zip(self.values.tolist(), self.missing, strict=True)]


def read_columns(estimator: BaseEstimator, table: Any, *, fitting: bool) -> list[GivenColumn]:
    """The columns of ``table`` [N, F], a pandas frame or whatever scikit-learn takes for an array of numbers.

    ``fitting`` sets ``n_features_in_`` and ``feature_names_in_`` of the estimator and asks for two rows or more;
    otherwise the columns must be those of the fit.  Raises ValueError as scikit-learn does when they are not, DataError
    (a ValueError, too) for a column that holds neither numbers nor categories, or inf.
    """
    least_rows = 2 if fitting else 1
    if isinstance(table, pd.DataFrame):
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()].tolist()
            raise DataError(f"names of columns must be distinct, got {twice[0]!r} more than once")
        validate_data(estimator, table, reset=fitting, skip_check_array=True)
        if len(table) < least_rows or not table.shape[1]:
            raise DataError(
                f"a table must have at least {least_rows} rows and 1 column, got {len(table)} and {table.shape[1]}"
            )
        columns = [_of_frame(_name(label, j), table.iloc[:, j]) for j, label in enumerate(table.columns)]
    else:
        values = validate_data(
            estimator,
            table,
            reset=fitting,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=least_rows,
        )
        columns = [GivenColumn(f"x{j}", values[:, j]) for j in range(values.shape[1])]
    for column in columns:
        _check_finite(column)
    return columns


def _name(label: Any, position: int) -> str:
    return label if isinstance(label, str) else f"x{position}"


def _of_frame(name: str, column: pd.Series) -> GivenColumn:
    types = pd.api.types
    if isinstance(column.dtype, pd.CategoricalDtype):
        order = tuple(_plain_values(column.dtype.categories.to_numpy(dtype=object)))
        return GivenColumn(name, _plain_values(column.to_numpy(dtype=object)), True, order)
    is_words = types.is_string_dtype(column) or (
        types.is_object_dtype(column) and types.infer_dtype(column, skipna=True) in ("string", "boolean")
    )
    if is_words or types.is_bool_dtype(column):
        return GivenColumn(name, _plain_values(column.to_numpy(dtype=object)), True)
    if types.is_object_dtype(column) or (types.is_numeric_dtype(column) and not types.is_complex_dtype(column)):
        try:
            return GivenColumn(name, column.to_numpy(dtype=np.float64, na_value=np.nan))
        except (TypeError, ValueError):
            pass  # told below
    raise DataError(
        f"column {name!r} must hold numbers, words, truth values or categories, got values of type {column.dtype}"
        + ("; a mixture of words and numbers is neither" if types.is_object_dtype(column) else "")
    )


def _plain_values(values: np.ndarray) -> np.ndarray:
    """[N] objects, numpy's own numbers and words as Python's, which JSON can hold; None for whatever says missing."""
    plain = np.empty(len(values), dtype=object)
    plain[:] = [value.item() if isinstance(value, np.generic) else value for value in values]
    plain[pd.isna(values)] = None
    return plain


def _check_finite(column: GivenColumn) -> None:
    if column.values.dtype == np.float64 and np.isinf(column.values).any():
        first = int(np.flatnonzero(np.isinf(column.values))[0])
        raise DataError(f"column {column.name!r} must hold finite numbers, got {column.values[first]} in row {first}")
