"""A classifier and a regressor that are pretrained on all rows and fine-tuned on the labelled ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from torch import Tensor

from adaptbin.config import Finetuning, Replica
from adaptbin.data.encode import EncodedRows, EncodedTable
from adaptbin.data.registry import Card, Column
from adaptbin.errors import ConfigError
from adaptbin.estimators.folder import Saved
from adaptbin.estimators.labels import Split, class_codes, read_labels, split_labelled, target_values
from adaptbin.estimators.model import PretrainedModel
from adaptbin.estimators.reading import GivenColumn
from adaptbin.estimators.trained import TrainedEncoder, TrainedHead
from adaptbin.estimators.training import finetuned, pretrained
from adaptbin.tasks import Task
from adaptbin.training.finetune import FineTuning


@dataclass(kw_only=True, eq=False, repr=False)
class _Supervised(PretrainedModel, ABC):
    """Encoder and linear head, trained on labels after pretraining or from scratch."""

    pretrain: bool = True
    """Whether to pretrain on all rows first; else the labelled ones train the model from scratch."""
    finetune_epochs: int = 100
    """Most epochs of training on labels; the one with the least validation loss counts."""
    finetune_learning_rate: float = 1e-3
    """Of training on labels; likewise the next one."""
    finetune_weight_decay: float = 1e-5
    validation_fraction: float = 0.2
    """Share of the labelled rows, of every class, that choose the epoch; with 0 all of them train and the last epoch
    counts."""

    def _replica_of_labels(self, rows: int) -> Replica:
        if not isinstance(self.pretrain, bool | np.bool_):
            raise ConfigError(f"pretrain must be True or False, got {self.pretrain!r}")
        return self._replica(
            rows,
            pretext=None if self.pretrain else "none",
            finetuning=Finetuning(
                epochs=self._setting("finetune_epochs"),
                learning_rate=self._setting("finetune_learning_rate"),
                weight_decay=self._setting("finetune_weight_decay"),
            ),
        )

    @property
    @abstractmethod
    def _task(self) -> Task:
        """Of the labels that were read."""

    @property
    @abstractmethod
    def _n_classes(self) -> int:
        """0 for numbers."""

    @property
    def _n_outputs(self) -> int:
        return self._task.n_outputs(self._n_classes)

    def _fit(self, given: list[GivenColumn], labelled: np.ndarray, values: np.ndarray) -> None:
        """labelled [L]: row numbers; values [L]: class codes, or numbers."""
        replica = self._replica_of_labels(len(given[0].values))
        strata = values if self._task.is_classification else np.zeros(len(values))
        split = split_labelled(strata, self._setting("validation_fraction"), replica.seed)
        rows = self.columns_.rows(given)
        table = _table(rows, replica, self._task, self._n_classes, labelled, values, split)
        device = self._device()
        start = pretrained(replica, rows, device) if self.pretrain else None
        tuning = finetuned(replica, table, start, device)
        self._take_tuned(tuning)
        self.validation_curve_ = tuning.validation_losses()
        self._remember(start)

    def _take_tuned(self, tuning: FineTuning) -> None:
        """Copy the one model of ``tuning``, which is at its best epoch."""
        self.model_ = TrainedEncoder.of(tuning.encoder, tuning.bank, self.columns_.for_encoder, tuning.architecture)
        self.head_ = TrainedHead(
            tuning.bank.view("head.0.weight")[0, :, : self._n_outputs].cpu().clone(),
            tuning.bank.view("head.0.bias")[0, : self._n_outputs].cpu().clone(),
            tuning.targets.scale,
            tuning.targets.shift,
        )
        self.head_.check(self.model_.width, self._n_outputs)
        self.best_epoch_ = int(tuning.best_epoch[0])

    def _outputs(self, X: Any) -> np.ndarray:
        """Logits, or values in target units, [N, O] float64."""
        embedding = self._embedding(X)
        outputs: np.ndarray = self.head_(embedding).numpy()
        return outputs

    def _fitted(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        values, tensors = super()._fitted()
        head = self.head_
        values |= {
            "head": {"scale": head.scale, "shift": head.shift},
            "best_epoch": self.best_epoch_,
            # JSON has no word for a loss that is not finite.
            "validation_curve": [loss if np.isfinite(loss) else None for loss in self.validation_curve_],
        }
        return values, tensors | {"head.weight": head.weight, "head.bias": head.bias}

    def _take_fitted(self, saved: Saved) -> None:
        super()._take_fitted(saved)
        values, tensors = saved.values, saved.tensors
        self.head_ = TrainedHead(tensors["head.weight"], tensors["head.bias"], **values["head"])
        self.head_.check(self.model_.width, self._n_outputs)
        self.best_epoch_ = values["best_epoch"]
        self.validation_curve_ = [np.nan if loss is None else loss for loss in values["validation_curve"]]


@dataclass(kw_only=True, eq=False, repr=False)
class AdaptiveBinningClassifier(ClassifierMixin, _Supervised):  # type: ignore[misc]
    """Tells classes of rows, from few labels and many rows: pretrained on all, fine-tuned on the labelled ones.

    In ``y`` NaN, None and pandas' NA mean that a row has no label; any other value, -1 too, is a class.  Tables and
    settings are those of :class:`AdaptiveBinningEncoder`; those of this class say how labels are used.

    After fit there are, besides the encoder's attributes, ``classes_`` in sorted order, ``head_`` (the linear head),
    ``best_epoch_`` and ``validation_curve_`` (validation loss of every epoch of fine-tuning).
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Pretrain on all rows of X [N, F] and fine-tune on those that y [N] labels.

        Raises ConfigError for a setting out of range, DataError for a table or labels that cannot be trained on (fewer
        than two classes, or too few rows to choose the epoch by), and TrainingError when losses are no longer finite.
        """
        given = self._fit_columns(X)
        labelled, labels = read_labels(y, len(given[0].values), type(self).__name__)
        self.classes_, codes = class_codes(labels)
        self._fit(given, labelled, codes)
        return self

    @property
    def _n_classes(self) -> int:
        return len(self.classes_)

    @property
    def _task(self) -> Task:
        return Task.BINARY if self._n_classes == 2 else Task.MULTICLASS

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, in the order of ``classes_``; X [N, F] -> [N, classes] float64."""
        outputs = self._outputs(X)
        # Of two classes the head has the second one's logit alone; the first one's is 0.
        logits = outputs if self._n_classes > 2 else np.column_stack([np.zeros(len(outputs)), outputs])
        probabilities: np.ndarray = torch.softmax(torch.from_numpy(logits), 1).numpy()
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row; X [N, F] -> [N]."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        predicted: np.ndarray = self.classes_[likeliest]
        return predicted

    def _fitted(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        values, tensors = super()._fitted()
        return values | {"classes": self.classes_.tolist(), "class_type": self.classes_.dtype.str}, tensors

    def _take_fitted(self, saved: Saved) -> None:
        self.classes_ = np.array(saved.values["classes"], dtype=saved.values["class_type"])
        super()._take_fitted(saved)


@dataclass(kw_only=True, eq=False, repr=False)
class AdaptiveBinningRegressor(RegressorMixin, _Supervised):  # type: ignore[misc]
    """Tells a number of each row, from few labels and many rows: see :class:`AdaptiveBinningClassifier`.

    In ``y`` NaN, None and pandas' NA mean that a row has no label.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Pretrain on all rows of X [N, F] and fine-tune on those that y [N] labels; raises as the classifier does."""
        given = self._fit_columns(X)
        labelled, labels = read_labels(y, len(given[0].values), type(self).__name__)
        self._fit(given, labelled, target_values(labels))
        return self

    @property
    def _n_classes(self) -> int:
        return 0

    @property
    def _task(self) -> Task:
        return Task.REGRESSION

    def predict(self, X: Any) -> np.ndarray:
        """X [N, F] -> [N] float64, in the units of y."""
        return self._outputs(X)[:, 0]


def _table(
    rows: EncodedRows,
    replica: Replica,
    task: Task,
    classes: int,
    labelled: np.ndarray,
    values: np.ndarray,
    split: Split,
) -> EncodedTable:
    """The table that fine-tuning sees: all rows, of which the labelled ones train or validate.

    values [L]: labels of the rows ``labelled``; split: positions among them.
    """
    is_classes = task.is_classification
    target = torch.zeros(len(rows.inputs), dtype=torch.int64 if is_classes else torch.float64)
    target[torch.from_numpy(labelled)] = torch.from_numpy(values)
    card = Card(
        key=replica.dataset,
        title="a table given to fit",
        task=task,
        target="y",
        columns=(
            *(Column(name=name, kind="numerical") for name in rows.numerical_names),
            *(Column(name=name, kind="categorical") for name in rows.categorical_names),
        ),
        levels=tuple(str(code) for code in range(classes)) if is_classes else None,
        primary_metric="accuracy" if is_classes else "rmse",
        architecture=replica.architecture,
        fingerprint=replica.fingerprint,
        rows=len(rows.inputs),
        reader="memory",
        header=(),
        licence="",
    )
    train, held_out = (torch.from_numpy(labelled[part]) for part in split)
    return EncodedTable(
        card=card,
        fingerprint=replica.fingerprint,
        split_seed=replica.seeds.split,
        inputs=rows.inputs,
        numerical_names=rows.numerical_names,
        categorical_names=rows.categorical_names,
        cardinalities=rows.cardinalities,
        train=train,
        observed=rows.observed,
        val=held_out,
        test=train[:0],
        target=target,
        # Of all labelled rows: those that train may all have one value.
        target_mean=0.0 if is_classes else float(values.mean()),
        target_sd=1.0 if is_classes else float(values.std()),
        unseen={},
    )
