"""The label of an own table: which task it makes, its levels in order, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from adaptbin.data.cells import MINUS, Cells
from adaptbin.errors import ConfigError, DataError, nearest
from adaptbin.tasks import Task

MOST_WHOLE_CLASSES = 20
"""Whole numbers with more values than this are a regression label: the paper's bound between categories and numbers."""
MOST_CLASSES = 100
"""Words with more values than this are no label."""

Metric = Literal["auc", "accuracy", "qwk", "rmse"]
PRIMARY_METRIC: dict[Task, Metric] = {
    Task.BINARY: "auc",
    Task.MULTICLASS: "accuracy",
    Task.ORDINAL: "qwk",
    Task.REGRESSION: "rmse",
}
"""Task -> metric that the paper reports for it."""


@dataclass(frozen=True, eq=False)
class Label:
    """The label of N rows."""

    task: Task
    levels: tuple[str, ...] | None
    """Classes in order, the positive or most severe one last; None for regression."""
    values: pd.Series
    """[N] str, "" where a row has none; float64 and NaN for regression."""
    reason: str

    @property
    def labelled(self) -> np.ndarray:
        """[N] bool."""
        missing = self.values.isna() if self.levels is None else self.values == ""
        return ~missing.to_numpy(dtype=bool)


def ordered_levels(text: str) -> tuple[str, ...]:
    """Levels of ``"low<mid<high"``.  Raises ConfigError unless there are two or more, all different."""
    levels = tuple(level.strip() for level in text.split("<"))
    if len(levels) < 2 or len(set(levels)) < len(levels) or not all(levels):
        raise ConfigError(f"ordinal must be different levels from low to high, such as 'low<mid<high', got {text!r}")
    return levels


def read_label(
    cells: Cells,
    *,
    task: Task | None = None,
    levels: Sequence[str] | None = None,
    positive: str | None = None,
) -> Label:
    """The label in ``cells``.

    ``task`` and ``levels`` (in order): as a card or a person says; what they leave open is inferred.  ``positive``: the
    level of two that a binary label is about.

    Raises DataError for a label without values or with one value, with infinite numbers, with words among numbers, with
    too many classes or with levels that differ in case alone; ConfigError where ``levels``, ``task`` or ``positive`` do
    not fit the values.
    """
    name = cells.name
    if not cells.numbers.size:
        raise DataError(f"target {name!r} must have values, got none in all {cells.codes.size} rows")
    _refuse_infinite(cells)
    is_regression = task is Task.REGRESSION or (
        task is None and levels is None and positive is None and _is_measure(cells)
    )
    if is_regression:
        return _measure(cells, levels, positive)
    spelled = cells.spelled()
    counts = Counter(spelled.tolist())
    if len(counts) < 2:
        raise DataError(f"target {name!r} must take two values or more, got {spelled[0]!r} in every labelled row")
    if len(counts) > MOST_CLASSES:
        raise DataError(
            f"target {name!r} must have at most {MOST_CLASSES} classes, got {len(counts)} different values such as "
            f"{', '.join(repr(str(word)) for word in spelled[:3])}"
            + ("; numbers must stand alone, without a unit" if cells.looks_like_units() else "")
        )
    _refuse_alike(name, list(counts))
    if levels is None:
        if task is Task.ORDINAL and not cells.is_numeric:
            raise ConfigError(
                f"an ordinal label of words must have its levels from low to high (levels, or --ordinal), got none for "
                f"{name!r}: {', '.join(map(repr, sorted(counts)[:5]))}"
            )
        found, reason = _in_order(list(counts), cells)
    else:
        found, reason = tuple(levels), "in the order given"
        _check_levels(name, found, list(counts))
    if positive is not None:
        if len(found) != 2:
            raise ConfigError(f"positive is for a label with two values, got {len(found)} values of {name!r}")
        if positive not in found:
            raise ConfigError(
                f"positive must be one of {', '.join(map(repr, found))}, got {positive!r}{nearest(positive, found)}"
            )
        found, reason = (*(level for level in found if level != positive), positive), "the positive one as given"
    task = task or (Task.BINARY if len(found) == 2 else Task.MULTICLASS)
    if (task is Task.BINARY) != (len(found) == 2) and task is not Task.ORDINAL:
        raise ConfigError(
            f"a {task} label must have {'two' if task is Task.BINARY else 'three or more'} levels, got {len(found)}"
        )
    values = pd.Series(cells.as_words(), name=name, dtype="str")
    return Label(task, found, values, _told(f"{len(found)} values, {reason}", cells))


def _in_order(words: list[str], cells: Cells) -> tuple[tuple[str, ...], str]:
    """Levels that nobody gave an order of, in the usual one, and which that is."""
    if cells.is_numeric:
        return tuple(sorted(words, key=float)), "numbers in rising order"
    if MINUS in words and all(set(word) == {"+"} for word in words if word != MINUS):
        return tuple(sorted(words, key=lambda word: (word != MINUS, len(word)))), f"from {MINUS!r} to more plus signs"
    return tuple(sorted(words)), "words in alphabetical order"


def _is_measure(cells: Cells) -> bool:
    """Whether a label is a number to predict rather than a class: more than the usual numbers of classes allow."""
    numbers = cells.numbers[~cells.is_word]
    if cells.is_numeric:
        whole = bool((numbers == np.floor(numbers)).all())
        return bool(numbers.size > 2 and (numbers.size > MOST_WHOLE_CLASSES or not whole))
    return bool(numbers.size > max(MOST_WHOLE_CLASSES, int(cells.is_word.sum())))


def _measure(cells: Cells, levels: Sequence[str] | None, positive: str | None) -> Label:
    name = cells.name
    if levels is not None or positive is not None:
        raise ConfigError(f"a regression label has no levels, got some for {name!r}")
    if not cells.is_numeric:
        words = np.flatnonzero(cells.is_word)
        rows = int(np.isin(cells.codes, words).sum())
        raise DataError(
            f"target {name!r} must hold numbers throughout, got {cells.words[words[0]]!r} in row "
            f"{cells.row_of(int(words[0]))} ({rows} such rows)"
        )
    if cells.numbers.size < 2:
        raise DataError(f"target {name!r} must take two values or more, got {cells.numbers[0]:g} in every labelled row")
    values = pd.Series(cells.as_numbers(), name=name)
    return Label(Task.REGRESSION, None, values, _told(f"{cells.numbers.size} different numbers", cells))


def _told(reason: str, cells: Cells) -> str:
    return "; ".join((reason, *cells.notes))


def _refuse_infinite(cells: Cells) -> None:
    bad = np.flatnonzero(np.isinf(cells.numbers))
    if bad.size:
        raise DataError(
            f"target {cells.name!r} must hold finite numbers, got {cells.words[bad[0]]} in row "
            f"{cells.row_of(int(bad[0]))}"
        )


def _refuse_alike(name: str, words: list[str]) -> None:
    by_lower: dict[str, str] = {}
    for word in words:
        other = by_lower.setdefault(word.lower(), word)
        if other != word:
            raise DataError(
                f"target {name!r} must not have levels that differ in case alone, got {other!r} and {word!r}"
            )


def _check_levels(name: str, levels: tuple[str, ...], words: list[str]) -> None:
    strangers = sorted(set(words) - set(levels))
    if strangers:
        raise ConfigError(
            f"levels must name every value of {name!r}, got none for {', '.join(map(repr, strangers[:5]))}"
            f"{nearest(strangers[0], levels)}"
        )
    absent = [level for level in levels if level not in words]
    if absent:
        raise ConfigError(
            f"levels must be values of {name!r}, got {absent[0]!r}, which no row has{nearest(absent[0], words)}"
        )
