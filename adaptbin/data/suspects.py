"""What a person should look at before a table is trained on: repeated rows, classes per part, and columns that tell the
label.

Labels of validation and test are counted, and otherwise not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from adaptbin.data.labels import Label
from adaptbin.data.splits import Split
from adaptbin.data.table import Table

LEAK_SCORES = {"AUC": 0.98, "balanced accuracy": 0.98, "R²": 0.95}
"""A column whose score alone is at least this is a suspect; a small tree cannot follow a straight line as well."""
_LEAK_ROWS, _LEAST_LEAK_ROWS = 20_000, 50
"""Rows at most, and at least, that leaks are looked for in."""
_LEAK_CELLS = 20_000_000
_LEAK_COLUMNS = 100
"""Columns at most that are tried one by one; of more, those with the highest F statistic."""


_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Multiplies hashes: odd, with ones and zeros well mixed (2^64 over the golden ratio)."""


@dataclass(frozen=True)
class Leak:
    """A column that predicts the label alone."""

    column: str
    score: float
    """On train rows that were not used to fit: AUC (binary), balanced accuracy (classes) or R² (regression), of
    values or of ranks."""
    measure: str


@dataclass(frozen=True)
class PartCounts:
    """Rows of one part, and what their labels are."""

    part: str
    rows: int
    per_level: tuple[int, ...]
    """Rows of each level, in order; empty for regression."""
    mean: float
    """Of a regression label; NaN for classes."""


def count_parts(label: Label, split: Split) -> tuple[PartCounts, ...]:
    """Rows and labels of train, val and test."""
    found = []
    for part, rows in split._asdict().items():
        values = label.values.iloc[rows]
        if label.levels is None:
            found.append(PartCounts(part, rows.size, (), float(values.mean())))
        else:
            counts = values.value_counts()
            found.append(
                PartCounts(part, rows.size, tuple(int(counts.get(level, 0)) for level in label.levels), np.nan)
            )
    return tuple(found)


def repeated_rows(table: Table, split: Split) -> tuple[int, int]:
    """How many rows repeat an earlier one, label included; and how many of validation and test have a twin in train."""
    hashes = _mixed(table.target)
    for _, values in table.features.items():
        hashes = hashes * _ODD + _mixed(values)
    repeats = int(hashes.size - np.unique(hashes).size)
    held_out = np.concatenate([split.val, split.test])
    return repeats, int(np.isin(hashes[held_out], hashes[split.train]).sum()) if repeats else 0


def find_leaks(table: Table, label: Label, train: np.ndarray) -> tuple[Leak, ...]:
    """Columns that predict the label of half of the train rows from a small tree fitted to the other half.

    Up to 20,000 train rows and, of wide tables, the 100 columns that differ most between labels are tried; nothing is
    looked for in fewer than 50 rows.
    """
    from sklearn.feature_selection import f_classif, f_regression

    if train.size < _LEAST_LEAK_ROWS:
        return ()
    most = min(_LEAK_ROWS, max(1000, _LEAK_CELLS // table.features.shape[1]))
    rows = np.random.RandomState(0).permutation(train)[:most]
    some = table.features.iloc[rows]
    if label.levels is None:
        target = label.values.to_numpy(dtype=np.float64)[rows]
    else:
        target = pd.Categorical(label.values.iloc[rows], categories=list(label.levels)).codes.astype(np.float64)
    half = rows.size // 2
    if np.unique(target[:half]).size < 2 or np.unique(target[half:]).size < 2:
        return ()
    inputs = np.column_stack([_as_number(some[name], target, half) for name in some.columns])
    columns = np.arange(inputs.shape[1])
    if columns.size > _LEAK_COLUMNS:
        with np.errstate(all="ignore"):
            statistic = (f_regression if label.levels is None else f_classif)(inputs[:half], target[:half])[0]
        columns = np.sort(np.argsort(-np.nan_to_num(statistic, nan=0.0, posinf=np.inf))[:_LEAK_COLUMNS])
    measure = "R²" if label.levels is None else "AUC" if len(label.levels) == 2 else "balanced accuracy"
    names = list(some.columns)
    scored = ((names[j], _alone(inputs[:, j], target, half, measure)) for j in columns)
    found = [Leak(name, score, measure) for name, score in scored if score >= LEAK_SCORES[measure]]
    return tuple(sorted(found, key=lambda leak: -leak.score))


def _mixed(values: pd.Series) -> np.ndarray:
    """[N] uint64 that are alike where values are, and otherwise scattered."""
    if pd.api.types.is_numeric_dtype(values):
        bits = (values.to_numpy(dtype=np.float64) + 0.0).view(np.uint64)
    else:
        bits = pd.factorize(values)[0].astype(np.uint64)
    bits = (bits ^ (bits >> np.uint64(33))) * _ODD
    scattered: np.ndarray = bits ^ (bits >> np.uint64(29))
    return scattered


def _as_number(values: pd.Series, target: np.ndarray, half: int) -> np.ndarray:
    """A column for a tree: numbers, missing ones below all others; categories by their mean label in the first half."""
    if pd.api.types.is_numeric_dtype(values):
        numbers = values.to_numpy(dtype=np.float64)
        low = np.nanmin(numbers) - 1 if not np.isnan(numbers).all() else 0.0
        return np.where(np.isnan(numbers), low, numbers)
    codes, distinct = pd.factorize(values)
    sums = np.bincount(codes[:half], weights=target[:half], minlength=len(distinct))
    counts = np.bincount(codes[:half], minlength=len(distinct))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), target[:half].mean())
    found: np.ndarray = means[codes]
    return found


def _alone(column: np.ndarray, target: np.ndarray, half: int, measure: str) -> float:
    from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if column[0] == column[-1] and (column == column[0]).all():
        return 0.0
    leaves = {"max_leaf_nodes": 64, "min_samples_leaf": max(2, half // 500), "random_state": 0}
    inputs = column[:, None]
    if measure == "R²":
        regressor = DecisionTreeRegressor(**leaves).fit(inputs[:half], target[:half])
        # A tree makes steps; few rows of a straight line are better told by their order.
        rank = float(np.corrcoef(pd.Series(column[half:]).rank(), pd.Series(target[half:]).rank())[0, 1]) ** 2
        return max(rank, float(r2_score(target[half:], regressor.predict(inputs[half:]))))
    classifier = DecisionTreeClassifier(class_weight="balanced", **leaves).fit(inputs[:half], target[:half])
    if measure == "AUC":
        return float(roc_auc_score(target[half:], classifier.predict_proba(inputs[half:])[:, 1]))
    known = np.isin(target[half:], target[:half])  # a class that the first half lacks cannot be told
    return float(balanced_accuracy_score(target[half:][known], classifier.predict(inputs[half:][known])))
