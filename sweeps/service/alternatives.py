"""Models that need no pretraining, with their defaults: what a score of pretraining should be seen beside.

Each is fitted to the train rows of a data set's split, to the columns as they are: numbers, and categories as the card
declares them.  Nothing is tuned and nothing is stopped early by our hand, so validation and test rows are scored once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from adaptbin.config import Protocol
from adaptbin.data import Card, Split, Table, split_rows
from adaptbin.data.table import check_finite
from adaptbin.errors import DataError
from adaptbin.metrics import evaluate, primary_metric
from adaptbin.tasks import Task

MOST_ITERATIONS = 10_000
"""Of logistic regression; its default of 100 is too few for standardised columns."""


@dataclass(frozen=True)
class Alternative:
    """One kind of model."""

    name: str
    make: Callable[[Card, int], Any]
    """(card, seed) -> an estimator of scikit-learn's kind, not fitted."""


def installed_alternatives(task: Task) -> tuple[Alternative, ...]:
    """A constant, gradient boosting, a linear model, and XGBoost where the extra ``baselines`` is installed."""
    linear = "logistic regression" if task.is_classification else "ridge regression"
    found = [
        Alternative("constant prediction", _constant),
        Alternative("HistGradientBoosting", _gradient_boosting),
        Alternative(linear, _linear_model),
    ]
    if find_spec("xgboost") is not None:
        found.append(Alternative("XGBoost", _xgboost))
    return tuple(found)


def scores_frame(
    table: Table, *, seeds: Sequence[int], protocol: Protocol, alternatives: Iterable[Alternative] | None = None
) -> pd.DataFrame:
    """One row per alternative and seed; of a fit that does not depend on the seed one row, that of the first seed.

    Whether it does is tried out: the first two seeds are compared, prediction by prediction.  ``alternatives``: by
    default those that are installed.

    Columns `val` and `test` hold the data set's primary metric under ``protocol``; `val_<name>` and `test_<name>` all
    that its task has.  Raises DataError where a fit does not converge.
    """
    card = table.card
    check_finite(card, table.features, table.target)
    data = _Data(card, split_rows(table), table)
    metric = primary_metric(card.primary_metric, protocol)
    rows = []
    for alternative in installed_alternatives(card.task) if alternatives is None else alternatives:
        outputs = {seed: data.outputs(alternative, seed) for seed in seeds[:2]}
        depends = len(outputs) > 1 and not _same(*outputs.values())
        if depends:
            outputs |= {seed: data.outputs(alternative, seed) for seed in seeds[2:]}
        for seed in seeds if depends else seeds[:1]:
            scores = data.scores(outputs[seed])
            rows.append(
                {
                    "dataset": card.key,
                    "model": alternative.name,
                    "seed": seed,
                    "depends_on_seed": depends,
                    "metric": metric,
                    **{part: of_part[metric] for part, of_part in scores.items()},
                    **{f"n_{part}": len(of_part) for part, of_part in data.split._asdict().items()},
                    **{f"{part}_{name}": of_part[name] for part, of_part in scores.items() for name in of_part},
                }
            )
    return pd.DataFrame(rows)


Outputs = dict[str, npt.NDArray[np.float64]]
"""Part of the split -> what :func:`adaptbin.metrics.evaluate` scores."""


def _same(one: Outputs, other: Outputs) -> bool:
    return all(np.array_equal(one[part], other[part]) for part in one)


class _Data:
    """One table as models take it."""

    def __init__(self, card: Card, split: Split, table: Table) -> None:
        self._card = card
        self.split = split
        self._features = _features(table, split)
        self._target = _target(table)

    def outputs(self, alternative: Alternative, seed: int) -> Outputs:
        """Fit on train, predict validation and test.  Raises DataError where the fit does not converge."""
        from sklearn.exceptions import ConvergenceWarning

        model = alternative.make(self._card, seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                model.fit(self._features.iloc[self.split.train], self._target[self.split.train])
        except ConvergenceWarning as warning:
            raise DataError(f"{self._card.key}: the {alternative.name} must converge, got: {warning}") from warning
        return {part: self._predict(model, self._features.iloc[rows]) for part, rows in self._held_out().items()}

    def scores(self, outputs: Outputs) -> dict[str, dict[str, float]]:
        """Every metric of the task, of validation and of test."""
        return {
            part: evaluate(self._card.task, outputs[part], self._target[rows], self._card.levels)
            for part, rows in self._held_out().items()
        }

    def _held_out(self) -> dict[str, npt.NDArray[np.int64]]:
        return {"val": self.split.val, "test": self.split.test}

    def _predict(self, model: Any, features: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Predictions in target units, or class scores, above 0 for class 1 of two."""
        if not self._card.task.is_classification:
            return np.asarray(model.predict(features), dtype=np.float64)
        probabilities = np.asarray(model.predict_proba(features), dtype=np.float64)
        return probabilities[:, 1] - 0.5 if self._card.task is Task.BINARY else probabilities


def _features(table: Table, split: Split) -> pd.DataFrame:
    """The columns as the card declares them; categories are words, for they have no order.

    A category that no train row has becomes a missing value.
    """
    columns = {}
    for name in table.card.categorical:
        words = table.features[name].map(str)
        known = sorted(set(words.iloc[split.train]))
        columns[name] = pd.Categorical(words.where(words.isin(known)), categories=known)
    return table.features.assign(**columns)


def _target(table: Table) -> npt.NDArray[Any]:
    """[N] values in target units, or class codes in the order of the card's levels; NaN or -1 without a label."""
    levels = table.card.levels
    if levels is None:
        return np.asarray(table.target, dtype=np.float64)
    return np.array([levels.index(label) if label else -1 for label in table.target], dtype=np.int64)


def _constant(card: Card, seed: int) -> Any:
    """The train rows' mean, or the shares of their classes: what reads no column, and any model should beat."""
    from sklearn.dummy import DummyClassifier, DummyRegressor

    return DummyClassifier(strategy="prior") if card.task.is_classification else DummyRegressor()


def _gradient_boosting(card: Card, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if card.task.is_classification else HistGradientBoostingRegressor
    return kind(categorical_features="from_dtype", random_state=seed)


def _linear_model(card: Card, seed: int) -> Any:
    """Logistic or ridge regression on standardised numbers and one column of 0 and 1 per category of train.

    Missing numbers are filled by the median and indicated, as they are for the method.
    """
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = StandardScaler()
    if any(column.missing for column in card.columns):
        numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), numbers)
    columns = make_column_transformer(
        (numbers, list(card.numerical)),
        (OneHotEncoder(handle_unknown="ignore"), list(card.categorical)),
    )
    if card.task.is_classification:
        return make_pipeline(columns, LogisticRegression(max_iter=MOST_ITERATIONS, random_state=seed))
    return make_pipeline(columns, Ridge(random_state=seed))


def _xgboost(card: Card, seed: int) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    kind = XGBClassifier if card.task.is_classification else XGBRegressor
    return kind(enable_categorical=True, random_state=seed)
