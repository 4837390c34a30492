"""A table to tensors: standardised numbers, integer codes for categories and classes, and the split beside them.

Everything is fitted on the rows that pretraining sees: train, and rows without a label.  What cannot be trained on is
refused here, before any model exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from adaptbin.config import SPLIT_SEED
from adaptbin.data.coding import Categories, Imputation, Standardisation
from adaptbin.data.registry import Card
from adaptbin.data.splits import Split, check_scored, labelled_rows, split_rows, unlabelled_rows
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
    """[N, D + C] float32: numerical columns standardised, missing numbers at the median, then categorical codes 0, 1,
    ... as floats."""
    numerical_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    """Last come the indicators of numerical columns that lack values: 1 where one is missing, else 0."""
    cardinalities: tuple[int, ...]
    """Distinct values of each categorical column among the rows of :attr:`pretraining`, [C]."""
    train: Tensor
    """Row numbers, int64, in the split's own order."""
    unlabelled: Tensor | None = None
    """Row numbers, int64, of what pretraining sees besides; None where every row has a label."""
    observed: Tensor | None = None
    """[N, D] bool, False where a number is missing; None where none is."""

    @property
    def pretraining(self) -> Tensor:
        """Numbers of the rows that are pretrained on: train, then those without a label."""
        if self.unlabelled is None:
            return self.train
        import torch

        return torch.cat([self.train, self.unlabelled])

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
    """[N] int64 class codes in the order of ``card.levels``, or float64 in target units for regression; what stands for
    rows without a label is not read."""
    target_mean: float
    """Of train, in target units; 0 for classification."""
    target_sd: float
    """Of train (ddof 0), in target units; 1 for classification."""
    val: Tensor
    """Row numbers, int64, in the split's own order; likewise the next one."""
    test: Tensor
    unseen: Mapping[str, Mapping[str, int]]
    """Column -> {"val": n, "test": n}: rows whose category no row of pretraining has.  Columns without any are left
    out."""

    @property
    def n_classes(self) -> int:
        """Number of label levels; 0 for regression."""
        return 0 if self.card.levels is None else len(self.card.levels)


def encode(table: Table, *, split_seed: int = SPLIT_SEED, unseen_category: UnseenCategory = "own") -> EncodedTable:
    """Split ``table`` and turn it into tensors.

    ``unseen_category``: code of a category that no row of pretraining has: ``"own"`` the cardinality, ``"zero"`` code
    0.

    Raises DataError for inf, NaN in a column that must be complete, a part of the split without rows, fewer train rows
    than a batch, a column that is constant or empty in the rows of pretraining, a class (or, for regression, any
    spread of the target) that train lacks, and labels of validation or test that are all one; ConfigError as
    :func:`split_rows` does.
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

    unlabelled = unlabelled_rows(table, split)
    fitted = np.concatenate([split.train, unlabelled])
    numbers = _numbers(table.features[list(card.numerical)], fitted, where)
    codes, cardinalities, unseen = [], [], {}
    for name in card.categorical:
        values = table.features[name].to_numpy(dtype=object)
        _check_varies(values[fitted], name, where)
        categories = Categories.of(values[fitted])
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
    indicators = numbers.imputation.names(card.numerical, card.categorical)
    inputs = np.column_stack([numbers.standardised, *codes, numbers.indicators])

    target, mean, sd = _target(table, split, where)
    return EncodedTable(
        card=card,
        fingerprint=table.fingerprint,
        split_seed=split_seed,
        inputs=torch.from_numpy(np.ascontiguousarray(inputs)),
        numerical_names=card.numerical,
        categorical_names=(*card.categorical, *indicators),
        cardinalities=(*cardinalities, *(2 for _ in indicators)),
        target=target,
        target_mean=mean,
        target_sd=sd,
        train=torch.from_numpy(split.train),
        val=torch.from_numpy(split.val),
        test=torch.from_numpy(split.test),
        unlabelled=torch.from_numpy(unlabelled) if unlabelled.size else None,
        observed=None if numbers.observed is None else torch.from_numpy(numbers.observed),
        unseen=unseen,
    )


def _check_varies(values: np.ndarray, name: str, where: str) -> None:
    """Refuse a train column with one value: it has no spread to scale by, and adding a tiny number would hide it."""
    if (values == values[0]).all():
        raise DataError(
            f"{where}: column {name!r} must take two values or more in train, got {values[0]} in all {values.size} rows"
        )


class _Numbers(NamedTuple):
    """The numerical columns of a table, encoded."""

    standardised: np.ndarray
    """[N, D] float32."""
    indicators: np.ndarray
    """[N, I] float32."""
    observed: np.ndarray | None
    """[N, D] bool; None where nothing is missing."""
    imputation: Imputation


def _numbers(features: pd.DataFrame, fitted: np.ndarray, where: str) -> _Numbers:
    """[N, D] values, filled with medians and scaled by mean and sd (ddof 0) of those that the rows ``fitted`` have, all
    computed in float64."""
    values = features.to_numpy(dtype=np.float64)
    observed = ~np.isnan(values)
    for j, name in enumerate(features.columns):
        there = values[fitted[observed[fitted, j]], j]
        if not there.size:
            raise DataError(
                f"{where}: column {str(name)!r} must hold numbers in train, got none: all {fitted.size} rows lack it"
            )
        _check_varies(there, str(name), where)
    # DIFF[released->ours] the paper and the released code have no missing values; ours fills and indicates them, and
    # there is no switch.
    train = values[fitted]
    imputation, standardisation = Imputation.of(train), Standardisation.of(train)
    del train  # of a large table as much as all the rest
    indicators = imputation.indicators(values)
    standardised = standardisation(imputation.filled(values))
    return _Numbers(standardised, indicators, None if observed.all() else observed, imputation)


def _target(table: Table, split: Split, where: str) -> tuple[Tensor, float, float]:
    import torch

    card = table.card
    if card.levels is None:
        values = table.target.to_numpy(dtype=np.float64, copy=True)
        _check_varies(values[split.train], card.target, where)
        check_scored(values, split, where)
        values[np.isnan(values)] = values[split.train].mean()
        return torch.tensor(values), float(values[split.train].mean()), float(values[split.train].std())
    code_of = {level: code for code, level in enumerate(card.levels)}
    labelled = labelled_rows(table)
    strangers = sorted(set(table.target[labelled]) - set(code_of))
    if strangers:
        raise DataError(f"{where}: labels must be among {', '.join(card.levels)}, got {', '.join(strangers)}")
    codes = np.array([code_of.get(level, 0) for level in table.target], dtype=np.int64)
    counts = np.bincount(codes[split.train], minlength=len(card.levels))
    if (counts == 0).any():
        absent = ", ".join(repr(card.levels[code]) for code in np.flatnonzero(counts == 0))
        raise DataError(f"{where}: every class must occur in train, got no row of {absent}")
    check_scored(table.target.to_numpy(), split, where)
    return torch.tensor(codes), 0.0, 1.0
