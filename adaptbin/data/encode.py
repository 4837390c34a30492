"""A table to tensors: standardised numbers, integer codes for categories and classes, and the split beside them.

Everything is fitted on train alone; what cannot be trained on is refused here, before any model exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pandas as pd

from adaptbin.config import SPLIT_SEED
from adaptbin.data.coding import Categories, Standardisation
from adaptbin.data.registry import Card
from adaptbin.data.splits import Split, split_rows
from adaptbin.data.table import Table, check_finite
from adaptbin.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from torch import Tensor

UnseenCategory = Literal["own", "zero"]


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedRows:
    """Rows as models read them, and which of them train: all that pretraining needs.

    Plain CPU tensors, picklable.  N rows, D numerical and C categorical columns.
    """

    inputs: Tensor
    """[N, D + C] float32: numerical columns standardised by train, then categorical codes 0, 1, ... as floats."""
    numerical_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    cardinalities: tuple[int, ...]
    """Distinct train values of each categorical column, [C]."""
    train: Tensor
    """Row numbers, int64, in the split's own order."""

    @property
    def n_numerical(self) -> int:
        """D."""
        return len(self.numerical_names)

    @property
    def n_categorical(self) -> int:
        """C."""
        return len(self.categorical_names)


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedTable(EncodedRows):
    """What a pack trains on: rows with their labels, and the split beside them."""

    card: Card
    fingerprint: str
    """Of the parsed table."""
    split_seed: int
    target: Tensor
    """[N] int64 class codes in the order of ``card.levels``, or float64 in target units for regression."""
    target_mean: float
    """Of train, in target units; 0 for classification."""
    target_sd: float
    """Of train (ddof 0), in target units; 1 for classification."""
    val: Tensor
    """Row numbers, int64, in the split's own order; likewise the next one."""
    test: Tensor
    unseen: Mapping[str, Mapping[str, int]]
    """Column -> {"val": n, "test": n}: rows whose category no train row has.  Columns without any are left out."""

    @property
    def n_classes(self) -> int:
        """Number of label levels; 0 for regression."""
        return 0 if self.card.levels is None else len(self.card.levels)


def encode(table: Table, *, split_seed: int = SPLIT_SEED, unseen_category: UnseenCategory = "own") -> EncodedTable:
    """Split ``table`` and turn it into tensors.

    ``unseen_category``: code of a category that no train row has: ``"own"`` the cardinality, ``"zero"`` code 0.

    Raises DataError for NaN or inf, a part of the split without rows, fewer train rows than a batch, a column that is
    constant in train, and a class (or, for regression, any spread of the target) that train lacks.
    """
    import torch  # takes a second, and whoever plans or describes tables imports this module without encoding one

    if unseen_category not in get_args(UnseenCategory):
        choices = get_args(UnseenCategory)
        raise ConfigError(
            f"unseen_category must be one of {', '.join(choices)}, got {unseen_category!r}"
            f"{nearest(unseen_category, choices)}"
        )
    card = table.card
    check_finite(card, table.features, table.target)
    split = split_rows(table, split_seed)
    where = f"{card.key} (split seed {split_seed})"
    if split.train.size < card.architecture.batch_size:
        raise DataError(
            f"{where}: train must fill a batch of {card.architecture.batch_size} rows, got {split.train.size}"
        )

    numerical = _standardised(table.features[list(card.numerical)], split.train, where)
    codes, cardinalities, unseen = [], [], {}
    for name in card.categorical:
        values = table.features[name].to_numpy(dtype=object)
        _check_varies(values[split.train], name, where)
        categories = Categories.of(values[split.train])
        column, cardinality = categories(values), categories.cardinality
        counts = {
            part: int((column[rows] == cardinality).sum()) for part, rows in (("val", split.val), ("test", split.test))
        }
        if any(counts.values()):
            unseen[name] = counts
        # DIFF[released->ours] the released code gives a category that train lacks code 0, the code of another one; ours
        # gives it a code of its own, the cardinality.  Switch: `unseen_category`.
        if unseen_category == "zero":
            column[column == cardinality] = 0
        codes.append(column.astype(np.float32))
        cardinalities.append(cardinality)
    inputs = np.column_stack([numerical, *codes])

    target, mean, sd = _target(table, split, where)
    return EncodedTable(
        card=card,
        fingerprint=table.fingerprint,
        split_seed=split_seed,
        inputs=torch.from_numpy(np.ascontiguousarray(inputs)),
        numerical_names=card.numerical,
        categorical_names=card.categorical,
        cardinalities=tuple(cardinalities),
        target=target,
        target_mean=mean,
        target_sd=sd,
        train=torch.from_numpy(split.train),
        val=torch.from_numpy(split.val),
        test=torch.from_numpy(split.test),
        unseen=unseen,
    )


def _check_varies(values: np.ndarray, name: str, where: str) -> None:
    """Refuse a train column with one value: it has no spread to scale by, and adding a tiny number would hide it."""
    if (values == values[0]).all():
        raise DataError(
            f"{where}: column {name!r} must take two values or more in train, got {values[0]} in all {values.size} rows"
        )


def _standardised(features: pd.DataFrame, train: np.ndarray, where: str) -> np.ndarray:
    """[N, D] float64 values -> float32, by the train mean and sd (ddof 0), both computed in float64."""
    values = features.to_numpy(dtype=np.float64)
    for j, name in enumerate(features.columns):
        _check_varies(values[train, j], str(name), where)
    return Standardisation.of(values[train])(values)


def _target(table: Table, split: Split, where: str) -> tuple[Tensor, float, float]:
    import torch

    card = table.card
    if card.levels is None:
        values = table.target.to_numpy(dtype=np.float64)
        _check_varies(values[split.train], card.target, where)
        return torch.tensor(values), float(values[split.train].mean()), float(values[split.train].std())
    code_of = {level: code for code, level in enumerate(card.levels)}
    strangers = sorted(set(table.target) - set(code_of))
    if strangers:
        raise DataError(f"{where}: labels must be among {', '.join(card.levels)}, got {', '.join(strangers)}")
    codes = np.array([code_of[level] for level in table.target], dtype=np.int64)
    counts = np.bincount(codes[split.train], minlength=len(card.levels))
    if (counts == 0).any():
        absent = ", ".join(repr(card.levels[code]) for code in np.flatnonzero(counts == 0))
        raise DataError(f"{where}: every class must occur in train, got no row of {absent}")
    return torch.tensor(codes), 0.0, 1.0
