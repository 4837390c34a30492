"""Labels as users give them, some of them missing: which rows have one, and which of these choose the epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from adaptbin.errors import ConfigError, DataError
from adaptbin.replicas.streams import stream


def read_labels(y: Any, rows: int, who: str) -> tuple[np.ndarray, np.ndarray]:
    """-> numbers of the labelled rows [L] int64, and their labels [L]; NaN, None and pandas' NA are no label.

    ``who``: the estimator's name.  Raises ValueError for y that is None or not one column, DataError (a ValueError,
    too) for another number of rows than X has.
    """
    if y is None:
        raise ValueError(f"This {who} estimator requires y to be passed, but the target y is None.")
    # As an array of words a list would have the word "nan" where a label is missing; as one of pandas' own, objects.
    is_array = hasattr(y, "__array__") and not isinstance(
        y, pd.Series | pd.DataFrame | pd.api.extensions.ExtensionArray
    )
    column = column_or_1d(np.asarray(y) if is_array else np.asarray(y, dtype=object), warn=True)
    if len(column) != rows:
        raise DataError(f"y must have one entry per row of X ({rows}), got {len(column)}")
    labelled = np.flatnonzero(~pd.isna(column))
    return labelled, _plain(column[labelled])


def _plain(values: np.ndarray) -> np.ndarray:
    """Objects of one kind as an array of that kind."""
    if values.dtype != object:
        return values
    kind = pd.api.types.infer_dtype(values, skipna=False)
    return np.array(values.tolist()) if kind in ("integer", "floating", "boolean", "string") else values


def class_codes(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-> the classes in sorted order, and the code of each of the labels [L] int64.

    Raises ValueError for labels that are no classes, DataError for fewer than two classes.
    """
    if not len(labels):
        raise DataError("y must hold labels of at least two classes, got none: every entry is NaN or None")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise DataError("y must hold finite numbers or words, got infinity")
    if labels.dtype == object:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise DataError(f"labels must be all words, all whole numbers or all truth values, got {kinds}")
    check_classification_targets(labels)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"y must hold labels of at least two classes, got one class: {classes.tolist()[0]!r}")
    return classes, codes.astype(np.int64)


def target_values(labels: np.ndarray) -> np.ndarray:
    """The labels [L] as float64.  Raises DataError unless there are two different ones, all finite numbers."""
    try:
        values = labels.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"y must hold numbers, got {labels.tolist()[0]!r}") from error
    if np.isinf(values).any():
        raise DataError("y must hold finite numbers, got infinity")
    if len(np.unique(values)) < 2:
        raise DataError(
            f"y must hold two different labels or more, got {len(np.unique(values))} in {len(values)} labelled rows"
            + (" (1 sample)" if len(values) == 1 else "")
        )
    return values


class Split(NamedTuple):
    """Positions among the labelled rows, int64, in rising order."""

    train: np.ndarray
    val: np.ndarray
    """Of those that choose the epoch."""


def split_labelled(strata: np.ndarray, fraction: float, seed: int) -> Split:
    """Divide the labelled rows.

    strata [L]: the class of each row, or the same number for all.  Of every stratum ``fraction`` is held out, to the
    nearest row; of two rows or more at least one is and one is not, a single row trains.  The rows are drawn from the
    stream "validation".  Raises ConfigError for a fraction outside [0, 1), DataError where nothing can be held out.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction < 1:
        raise ConfigError(f"validation_fraction must be a number in [0, 1), got {fraction!r}")
    generator = stream(seed, "validation")
    train, held_out = [], []
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        members = members[torch.randperm(len(members), generator=generator).numpy()]
        count = min(max(round(fraction * len(members)), 1), len(members) - 1) if fraction else 0
        held_out.append(members[:count])
        train.append(members[count:])
    if fraction and not sum(map(len, held_out)):
        raise DataError(
            f"choosing the epoch takes two labelled rows of some class, got {len(strata)} labelled rows with one of "
            "each; with validation_fraction=0 all of them train and the last epoch counts"
        )
    return Split(np.sort(np.concatenate(train)), np.sort(np.concatenate(held_out)))
