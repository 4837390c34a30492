"""Row numbers of train, validation and test: 64/16/20 by rows, or by groups where rows belong together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from adaptbin.config import SPLIT_SEED
from adaptbin.data.table import Table
from adaptbin.errors import DataError

TEST_SHARE = 0.2
"""Share of all rows (or groups) held out for test."""
VAL_SHARE = 0.2
"""Share of the remaining rows held out for validation."""
GROUP_VAL_SHARE = 0.16
"""Share of all groups held out for validation: the same 16 %, but taken of the whole."""


class Split(NamedTuple):
    """Disjoint row numbers that together cover the table; int64 numpy arrays."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def split_rows(table: Table, split_seed: int = SPLIT_SEED) -> Split:
    """Split the N rows of ``table``; the same seed gives the paper's split wherever it runs.

    Raises DataError when a part would be empty.
    """
    split = _by_rows(len(table.target), split_seed) if table.groups is None else _by_groups(table.groups, split_seed)
    if any(part.size == 0 for part in split):
        sizes = ", ".join(f"{name} {part.size}" for name, part in split._asdict().items())
        raise DataError(f"{table.card.key}: every part of the split must hold rows, got {sizes}")
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
