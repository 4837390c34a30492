"""A model that a sweep trained, as the estimator that a fit would have left: it embeds new rows, and is saved as one.

A probed replica becomes an :class:`~adaptbin.estimators.encoder.AdaptiveBinningEncoder`, a fine-tuned one a classifier
or regressor.  What estimators have no setting for (switches of the protocol, ablations) is told in ``origin_`` alone: a
new fit of an exported model is without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adaptbin.config import Finetuning, Replica
from adaptbin.data.coding import Categories, Imputation, Standardisation
from adaptbin.data.encode import EncodedTable, UnseenCategory
from adaptbin.data.table import Table
from adaptbin.errors import DataError, TrainingError
from adaptbin.estimators.columns import FittedColumns
from adaptbin.estimators.encoder import AdaptiveBinningEncoder
from adaptbin.estimators.model import PretrainedModel
from adaptbin.estimators.supervised import AdaptiveBinningClassifier, AdaptiveBinningRegressor
from adaptbin.estimators.trained import TrainedEncoder
from adaptbin.training.finetune import FineTuning
from adaptbin.training.pretrain import Pretraining

TOLERANCE = 1e-4
"""Most that an exported model's embeddings may differ from those of training, as a share of their largest entry.  Of a
model that was trained on a CPU they have been the same bits, for every encoder; a GPU rounds differently."""


class Exported(NamedTuple):
    """A model that was taken from a pack."""

    model: PretrainedModel
    apart: float
    """How far its embeddings of the table's rows are from those of training, as a share of their largest entry."""


def exported(
    replica: Replica,
    table: Table,
    encoded: EncodedTable,
    pretraining: Pretraining | None,
    tuning: FineTuning | None,
    origin: Mapping[str, Any],
) -> Exported:
    """The estimator of a replica that was trained alone.

    ``encoded``: ``table`` as it was trained on.  ``pretraining``: None from scratch.  ``tuning``: at its best epoch,
    None where the replica is probed.  ``origin``: what :attr:`origin_` says, JSON's kinds of values.

    Raises DataError where the estimator does not read the table as training did, TrainingError where its embeddings
    differ from those of training by more than :data:`TOLERANCE`.
    """
    settings = _settings(replica, table)
    model: PretrainedModel
    if replica.finetuning is None:
        model = AdaptiveBinningEncoder(**settings)
    else:
        settings |= _settings_of_tuning(replica.finetuning, is_pretrained=pretraining is not None)
        kind = AdaptiveBinningClassifier if table.card.task.is_classification else AdaptiveBinningRegressor
        model = kind(**settings)
    model.columns_ = _columns(table, encoded, replica.protocol.unseen_category)
    model.n_features_in_ = len(model.columns_.names)
    model.feature_names_in_ = np.array(model.columns_.names, dtype=object)
    if tuning is None:
        assert isinstance(model, AdaptiveBinningEncoder) and pretraining is not None
        stack = pretraining.model
        model.model_ = TrainedEncoder.of(stack.encoder, stack.bank, model.columns_.for_encoder, replica.architecture)
    else:
        assert isinstance(model, AdaptiveBinningClassifier | AdaptiveBinningRegressor)
        if isinstance(model, AdaptiveBinningClassifier):
            model.classes_ = np.array(table.card.levels)
        model._take_tuned(tuning)
        # Validation scores chose the epoch, not losses: origin_ has them.
        model.validation_curve_ = []
    model._remember(pretraining)
    model.origin_ = dict(origin)
    return Exported(model, _apart(model, table, encoded, _embeddings(encoded, pretraining, tuning)))


def _settings(replica: Replica, table: Table) -> dict[str, Any]:
    """Settings of all estimators that are a replica's."""
    known = {field.name for field in fields(PretrainedModel)}
    parts = (replica.architecture, replica.hyperparameters)
    own = {name: value for part in parts for name, value in part.to_dict().items() if name in known}
    if replica.hyperparameters.pretext == "none":
        del own["pretext"]
    else:
        own["epochs"] = replica.budget.epochs
    return own | {"categorical_features": list(table.card.categorical), "random_state": replica.seeds.pretrain}


def _settings_of_tuning(finetuning: Finetuning, *, is_pretrained: bool) -> dict[str, Any]:
    return {
        "pretrain": is_pretrained,
        "finetune_epochs": finetuning.epochs,
        "finetune_learning_rate": finetuning.learning_rate,
        "finetune_weight_decay": finetuning.weight_decay,
    }


def _columns(table: Table, encoded: EncodedTable, unseen_category: UnseenCategory) -> FittedColumns:
    """What :func:`adaptbin.data.encode.encode` fitted to the rows that pretraining sees."""
    card, train = table.card, encoded.pretraining.numpy()
    values = table.features[list(card.numerical)].to_numpy(dtype=np.float64)[train]
    return FittedColumns(
        names=tuple(column.name for column in card.columns),
        kinds=tuple(column.kind for column in card.columns),
        imputation=Imputation.of(values),
        standardisation=Standardisation.of(values),
        categories=tuple(
            Categories.of(table.features[name].to_numpy(dtype=object)[train]) for name in card.categorical
        ),
        unseen_category=unseen_category,
    )


def _embeddings(encoded: EncodedTable, pretraining: Pretraining | None, tuning: FineTuning | None) -> Tensor:
    """[N, H] of all rows, as the model in training has them."""
    if tuning is not None:
        return tuning.encoder.evaluate(encoded.inputs.to(tuning.device).unsqueeze(0))[0].cpu()
    assert pretraining is not None
    return pretraining.embed(encoded.inputs)[0].cpu()


def _apart(model: PretrainedModel, table: Table, encoded: EncodedTable, embeddings: Tensor) -> float:
    where = f"an exported model of {table.card.key}"
    if not torch.equal(model._inputs(table.features), encoded.inputs):
        raise DataError(f"{where} must read the table as it was trained on, got other inputs")
    apart = (torch.from_numpy(model.embed(table.features)) - embeddings).abs().max() / embeddings.abs().max()
    if not apart <= TOLERANCE:
        raise TrainingError(
            f"{where} must embed the table's rows as in training, within {TOLERANCE:g} of the largest entry, "
            f"got a difference of {float(apart):g}"
        )
    return float(apart)
