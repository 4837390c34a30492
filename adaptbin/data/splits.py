"""Row numbers of train, validation and test: 64/16/20 by rows, by groups where rows belong together, or as given.

Rows without a label are in none of the three; those that pretraining may see besides train are told apart here, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from adaptbin.config import SPLIT_SEED
from adaptbin.data.table import Table
from adaptbin.errors import ConfigError, DataError

TEST_SHARE = 0.2
"""Share of all rows (or groups) held out for test."""
VAL_SHARE = 0.2
"""Share of the remaining rows held out for validation."""
GROUP_VAL_SHARE = 0.16
"""Share of all groups held out for validation: the same 16 %, but taken of the whole."""


class Split(NamedTuple):
    """Disjoint row numbers that together cover the labelled rows; int64 numpy arrays."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def split_rows(table: Table, split_seed: int = SPLIT_SEED) -> Split:
    """Split the labelled rows of ``table``; the same seed gives the paper's split wherever it runs.

    Raises DataError when a part would be empty or a given split is none, ConfigError for another seed than the default
    where the split is given.
    """
    rows = np.flatnonzero(labelled_rows(table)).astype(np.int64)
    if table.parts is not None:
        split = _as_given(table, rows, split_seed)
    elif table.groups is None:
        split = Split(*(rows[part] for part in _by_rows(rows.size, split_seed)))
    else:
        split = Split(*(rows[part] for part in _by_groups(table.groups.iloc[rows], split_seed)))
    if any(part.size == 0 for part in split):
        sizes = ", ".join(f"{name} {part.size}" for name, part in split._asdict().items())
        raise DataError(f"{table.card.key}: every part of the split must hold rows, got {sizes}")
    return split


def check_scored(target: np.ndarray, split: Split, where: str) -> None:
    """Raise DataError when all labels [N] of validation or of test are one: not every score is defined there."""
    for part in ("val", "test"):
        labels = target[getattr(split, part)]
        if (labels == labels[0]).all():
            (only,) = labels[:1].tolist()
            raise DataError(
                f"{where}: labels of {part} must take two values or more, or they score nothing, got {only!r} in all "
                f"{labels.size} rows; a split of your own says which rows are where (--split-file)"
            )


def labelled_rows(table: Table) -> np.ndarray:
    """Which rows have a label, [N] bool."""
    target = table.target
    is_regression = table.card.levels is None
    labelled: np.ndarray = ~np.isnan(target.to_numpy(dtype=np.float64)) if is_regression else target.to_numpy() != ""
    return labelled


def unlabelled_rows(table: Table, split: Split) -> np.ndarray:
    """Row numbers, int64 in file order, of the rows without a label that pretraining sees besides train.

    Those that a given split puts into validation or test are left out, and, where rows belong together, those of a
    group there: what they hold is known there.
    """
    unlabelled = ~labelled_rows(table)
    if table.parts is not None:
        unlabelled &= ~np.isin(table.parts.to_numpy(dtype=object), ("val", "test"))
    if table.groups is not None:
        of_row = table.groups.to_numpy()
        unlabelled &= ~np.isin(of_row, of_row[np.concatenate([split.val, split.test])])
    return np.flatnonzero(unlabelled).astype(np.int64)


def _as_given(table: Table, rows: np.ndarray, split_seed: int) -> Split:
    """The parts of the labelled ``rows`` that ``table.parts`` tells, in file order."""
    key = table.card.key
    if split_seed != SPLIT_SEED:
        raise ConfigError(f"{key}: a table with a split of its own has no other, so seeds_vary must not be 'split'")
    assert table.parts is not None
    of_row = table.parts.to_numpy(dtype=object)[rows]
    strangers = np.flatnonzero(~np.isin(of_row, Split._fields))
    if strangers.size:
        raise DataError(
            f"{key}: every labelled row must be in one of the parts {', '.join(Split._fields)}, "
            f"got {of_row[strangers[0]]!r} for row {rows[strangers[0]]} ({strangers.size} such rows)"
        )
    split = Split(*(rows[of_row == part] for part in Split._fields))
    if table.groups is not None:
        groups = table.groups.to_numpy()
        for first, second in ((split.train, split.val), (split.train, split.test), (split.val, split.test)):
            shared = np.intersect1d(groups[first], groups[second])
            if shared.size:
                raise DataError(
                    f"{key}: rows of a group must be in one part of the split, got {shared.tolist()[0]!r} in two"
                )
    return split


def _by_rows(n_rows: int, split_seed: int) -> Split:
    """Two shuffled cuts with one seed, rows in shuffled order, as scikit-learn makes them."""
    from sklearn.model_selection import train_test_split

    rows = np.arange(n_rows, dtype=np.int64)
    if n_rows < 3:  # scikit-learn's own error would not say which data set
        return Split(rows, rows[:0], rows[:0])
    rest, test = train_test_split(rows, test_size=TEST_SHARE, random_state=split_seed)
    train, val = train_test_split(rest, test_size=VAL_SHARE, random_state=split_seed)
    return Split(train, val, test)


def _by_groups(groups: pd.Series, split_seed: int) -> Split:
    """Sorted group ids permuted: the first fifth is test, the next 16 % validation; rows in file order."""
    of_row = groups.to_numpy()
    ids = np.unique(of_row)
    shuffled = np.random.RandomState(split_seed).permutation(ids)
    n_test, n_val = round(TEST_SHARE * ids.size), round(GROUP_VAL_SHARE * ids.size)
    parts = shuffled[n_test + n_val :], shuffled[n_test : n_test + n_val], shuffled[:n_test]
    train, val, test = (np.flatnonzero(np.isin(of_row, part)).astype(np.int64) for part in parts)
    return Split(train, val, test)
