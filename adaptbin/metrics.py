"""Scores of predictions: what each metric is called, which way it points, and which tasks it exists for.

These are the numbers that get reported, computed by scikit-learn on one prediction at a time.
`adaptbin.replicas.selection` holds the same formulas for many models at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptbin.config import Protocol
from adaptbin.errors import ConfigError, DataError, ShapeError, unknown
from adaptbin.tasks import Task

# scikit-learn takes about a second to import, so the functions that need it import it themselves.

_CLASSIFICATION = frozenset({Task.BINARY, Task.MULTICLASS, Task.ORDINAL})


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One score: its name in result records, its label in figures, and its direction."""

    name: str
    label: str
    higher_is_better: bool
    tasks: frozenset[Task]
    low: float
    """Least value the metric can take."""
    high: float
    """Greatest value the metric can take."""
    in_target_units: bool = False
    """Whether the value carries the target's unit, so that margins must scale with the target's sd."""

    @property
    def sign(self) -> int:
        """Factor that makes larger mean better."""
        return 1 if self.higher_is_better else -1


def _share(name: str, label: str, tasks: frozenset[Task], low: float = 0.0) -> Metric:
    return Metric(name=name, label=label, higher_is_better=True, tasks=tasks, low=low, high=1.0)


def _error(name: str, label: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        higher_is_better=False,
        tasks=frozenset({Task.REGRESSION}),
        low=0.0,
        high=float("inf"),
        in_target_units=True,
    )


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _share("auc", "AUC", frozenset({Task.BINARY})),
        _share("accuracy", "Accuracy", _CLASSIFICATION),
        _share("balanced_accuracy", "Balanced accuracy", _CLASSIFICATION),
        _share("macro_f1", "Macro F1", _CLASSIFICATION),
        _share("qwk", "QWK", frozenset({Task.ORDINAL}), low=-1.0),
        _share("qwk_alphabetical", "QWK (alphabetical labels)", frozenset({Task.ORDINAL}), low=-1.0),
        _error("rmse", "RMSE"),
        _error("mae", "MAE"),
        _share("r2", "R²", frozenset({Task.REGRESSION}), low=-float("inf")),
    )
}
"""Every metric by name; the order is the order of columns in tables."""


def get_metric(name: str) -> Metric:
    """The metric called `name`.  Raises ConfigError naming the nearest known one."""
    if name not in METRICS:
        raise ConfigError(unknown("metric", name, METRICS))
    return METRICS[name]


def metrics_of(task: Task) -> tuple[str, ...]:
    """Names of the metrics that exist for `task`, in the order of :data:`METRICS`."""
    return tuple(name for name, metric in METRICS.items() if task in metric.tasks)


def primary_metric(card_metric: str, protocol: Protocol) -> str:
    """The metric that picks probe epochs and is plotted: the card's, with the kappa in the protocol's label order."""
    # DIFF[released->ours] the released code scores ordinal labels in alphabetical order, whatever they mean;
    # label_order="alphabetical" restores that.
    if card_metric == "qwk" and protocol.label_order == "alphabetical":
        return "qwk_alphabetical"
    return get_metric(card_metric).name


def alphabetical_ranks(levels: Sequence[str]) -> tuple[int, ...]:
    """Position of each level in alphabetical order; levels come in the card's (clinical) order."""
    alphabetical = sorted(levels)
    return tuple(alphabetical.index(level) for level in levels)


def evaluate(
    task: Task, scores: npt.ArrayLike, target: npt.ArrayLike, levels: Sequence[str] | None
) -> dict[str, float]:
    """Every metric of `task` for one prediction.

    scores: [N] logits of class 1 (binary), [N, n_classes] logits (multiclass, ordinal), or [N] predictions in target
    units (regression).  target: [N] class codes in the order of `levels`, or values in target units.
    A logit above 0 predicts class 1; among equal logits the lowest code wins.

    Raises ShapeError when the shapes do not fit, DataError when a score is undefined: targets that are all equal,
    no rows, class codes outside `levels`, or a score that is not finite.
    """
    predicted = np.asarray(scores)
    truth = np.asarray(target)
    _check(task, predicted, truth, levels)
    if task is Task.REGRESSION:
        return _regression(predicted.astype(np.float64), truth.astype(np.float64))
    assert levels is not None
    classes = (predicted > 0).astype(np.int64) if task is Task.BINARY else predicted.argmax(axis=1)
    result = _classification(classes, truth)
    if task is Task.BINARY:
        from sklearn.metrics import roc_auc_score

        result["auc"] = float(roc_auc_score(truth, predicted))
    if task is Task.ORDINAL:
        result["qwk"] = _kappa(classes, truth, len(levels))
        ranks = np.array(alphabetical_ranks(levels))
        result["qwk_alphabetical"] = _kappa(ranks[classes], ranks[truth], len(levels))
    return {name: result[name] for name in metrics_of(task)}


def evaluate_many(
    task: Task, outputs: npt.ArrayLike, target: npt.ArrayLike, levels: Sequence[str] | None
) -> list[dict[str, float]]:
    """:func:`evaluate` for each of M models.  outputs [M, N, n_outputs]; target [N].  Raises as evaluate does."""
    stacked = np.asarray(outputs)
    n_outputs = task.n_outputs(len(levels) if levels else 0)
    if stacked.ndim != 3 or stacked.shape[2] != n_outputs:
        raise ShapeError(f"outputs should be [M, N, {n_outputs}] for a {task} task but has shape {stacked.shape}")
    if task in (Task.BINARY, Task.REGRESSION):
        stacked = stacked[:, :, 0]
    return [evaluate(task, scores, target, levels) for scores in stacked]


def _check(task: Task, scores: npt.NDArray[Any], target: npt.NDArray[Any], levels: Sequence[str] | None) -> None:
    expected: tuple[int, ...] = target.shape
    if task in (Task.MULTICLASS, Task.ORDINAL):
        expected = (*target.shape, len(levels or ()))
    if target.ndim != 1 or scores.shape != expected:
        raise ShapeError(
            f"scores of a {task} task should have shape {expected} for a target of shape {target.shape}, "
            f"got {scores.shape}"
        )
    if len(target) == 0:
        raise DataError("a score needs at least one row, got none")
    if not np.isfinite(scores).all():
        raise DataError(f"scores must be finite, got {int((~np.isfinite(scores)).sum())} that are not")
    if task.is_classification:
        if not levels:
            raise ConfigError(f"a {task} task needs its label levels, got {levels!r}")
        if not np.issubdtype(target.dtype, np.integer) or target.min() < 0 or target.max() >= len(levels):
            raise DataError(f"class codes must be whole numbers in 0..{len(levels) - 1}, got {np.unique(target)[:20]}")
    elif not np.isfinite(target).all():
        raise DataError(f"targets must be finite, got {int((~np.isfinite(target)).sum())} that are not")
    if (target == target[0]).all():
        raise DataError(f"a fold needs at least two different targets to be scored, got only {target[0]!r}")


def _classification(classes: npt.NDArray[Any], target: npt.NDArray[Any]) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score, recall_score

    return {
        "accuracy": float(accuracy_score(target, classes)),
        # Recall over the classes present, which is balanced accuracy without its warning about absent ones.
        "balanced_accuracy": float(recall_score(target, classes, labels=np.unique(target), average="macro")),
        # Classes that are neither present nor predicted take no part in the mean.
        "macro_f1": float(f1_score(target, classes, average="macro")),
    }


def _kappa(classes: npt.NDArray[Any], target: npt.NDArray[Any], n_classes: int) -> float:
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(target, classes, labels=np.arange(n_classes), weights="quadratic"))


def _regression(predicted: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> dict[str, float]:
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    return {
        "rmse": float(np.sqrt(mean_squared_error(target, predicted))),
        "mae": float(mean_absolute_error(target, predicted)),
        "r2": float(r2_score(target, predicted)),
    }
