"""A model out of a pack is the same as an estimator: inputs, embeddings, predictions, edges, also after loading."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adaptbin
from adaptbin import AdaptiveBinningClassifier, AdaptiveBinningEncoder, AdaptiveBinningRegressor, DataError
from adaptbin.config import Budget, Finetuning, Hyperparameters, Protocol, Replica
from adaptbin.data import Table, encode, load_table
from adaptbin.data.table import make_table
from adaptbin.estimators.exported import exported
from adaptbin.estimators.folder import MANIFEST, _digest
from adaptbin.metrics import evaluate
from adaptbin.training.finetune import FineTuning
from adaptbin.training.pack import train_pack
from adaptbin.training.pretrain import Pretraining
from tests.estimators.tables import TINY


class Kept:
    """One replica, trained, with its models."""

    def __init__(self, table: Table, encoder: Any = "mlp", **settings: Any) -> None:
        architecture = replace(table.card.architecture, encoder=encoder, width=16)
        self.table = table
        self.replica = Replica(
            dataset=table.card.key,
            fingerprint=table.fingerprint,
            architecture=architecture,
            **(
                {"hyperparameters": Hyperparameters(), "seed": 3, "budget": Budget(epochs=3, probe_epochs=2)} | settings
            ),
        )
        protocol = self.replica.protocol
        self.encoded = encode(table, unseen_category=protocol.unseen_category)
        self.pretraining: Pretraining | None = None
        self.tuning: FineTuning | None = None
        (self.record,) = train_pack([self.replica], self.encoded, trained=self.keep)

    def keep(self, pretrained: Sequence[Pretraining], tuned: Sequence[FineTuning]) -> None:
        self.pretraining, self.tuning = next(iter(pretrained), None), next(iter(tuned), None)

    def exported(self, folder: Path) -> Any:
        """Saved and loaded."""
        model, apart = exported(
            self.replica, self.table, self.encoded, self.pretraining, self.tuning, {"replica": self.replica.id}
        )
        assert apart == 0.0
        model.save(folder)
        return adaptbin.load(folder)


@pytest.mark.parametrize("encoder", ["mlp", "resnet", "tabnet", "ft_transformer", "t2g_former"])
def test_embeddings_are_those_of_the_pack(encoder: str, tmp_path: Path) -> None:
    kept = Kept(load_table("diabetes"), encoder)
    model = kept.exported(tmp_path)
    assert type(model) is AdaptiveBinningEncoder and kept.pretraining is not None
    in_training = kept.pretraining.embed(kept.encoded.inputs)[0]
    np.testing.assert_array_equal(model.transform(kept.table.features), in_training)
    one = model.transform(kept.table.features.iloc[[7]])
    np.testing.assert_array_equal(one[0], in_training[7])


def test_preprocessing_and_edges(tmp_path: Path) -> None:
    kept = Kept(load_table("diabetes"), hyperparameters=Hyperparameters(t_init=10), budget=Budget(epochs=9))
    model = kept.exported(tmp_path)
    assert torch.equal(model._inputs(kept.table.features), kept.encoded.inputs)
    train = kept.table.features.iloc[kept.encoded.train.numpy()]
    assert [len(edges) + 1 for edges in model.bin_edges_.values()] == kept.record["bins"]["final"]
    np.testing.assert_allclose(model.bin_edges_["bmi"], np.percentile(train["bmi"], range(10, 100, 10)), rtol=1e-6)
    assert model.columns_.categories[0].values == (1.0, 2.0)
    assert (model.get_params()["t_init"], model.get_params()["random_state"], model.get_params()["epochs"]) == (
        10,
        3,
        9,
    )


def test_tables_with_gaps_and_rows_without_a_label(tmp_path: Path) -> None:
    source = load_table("diabetes")
    columns = tuple(replace(column, missing=column.kind == "numerical") for column in source.card.columns)
    features, target = source.features.copy(), source.target.copy()
    features.loc[::4, "bmi"], features.loc[1::5, "age"], target.iloc[::7] = np.nan, np.nan, np.nan
    kept = Kept(make_table(replace(source.card, columns=columns), features, target))
    model = kept.exported(tmp_path)
    assert torch.equal(model._inputs(features), kept.encoded.inputs) and kept.pretraining is not None
    np.testing.assert_array_equal(model.transform(features), kept.pretraining.embed(kept.encoded.inputs)[0])


@pytest.mark.parametrize("pretext", ["adaptive_binning", "none"])
@pytest.mark.parametrize("dataset", ["breast_cancer", "diabetes", "eol"])
def test_predictions_have_the_scores_of_the_pack(
    dataset: str, pretext: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Binary, a number, and seven ordered classes."""
    if dataset == "eol":
        request.getfixturevalue("data_dir")
    kept = Kept(
        load_table(dataset, download=False),
        hyperparameters=Hyperparameters(pretext=pretext),
        budget=Budget(epochs=0 if pretext == "none" else 2),
        finetuning=Finetuning(epochs=3),
    )
    model = kept.exported(tmp_path)
    card, rows = kept.table.card, kept.encoded.test.numpy()
    features, target = kept.table.features.iloc[rows], kept.encoded.target[kept.encoded.test].numpy()
    if card.task.is_classification:
        assert type(model) is AdaptiveBinningClassifier and tuple(model.classes_) == card.levels
        logits = np.log(model.predict_proba(features))
        outputs = logits[:, 1] - logits[:, 0] if len(model.classes_) == 2 else logits
        assert set(model.predict(features)) <= set(card.levels or ())
    else:
        assert type(model) is AdaptiveBinningRegressor
        outputs = model.predict(features)
    found = evaluate(card.task, outputs, target, card.levels)
    assert found == pytest.approx(kept.record["scores"]["test"], rel=1e-5)
    assert model.best_epoch_ == kept.record["probes"][0]["best_epoch"]
    assert model.get_params()["pretrain"] == (pretext != "none")
    assert bool(model.bin_edges_) == (pretext != "none")


def test_a_category_that_training_never_saw(tmp_path: Path) -> None:
    """It has the code that the protocol gives it, also after loading."""
    table = load_table("diabetes")
    for name in ("paper", "released"):
        model = Kept(table, protocol=Protocol.named(name)).exported(tmp_path / name)
        strange = table.features.iloc[:2].assign(sex=[1.0, 9.0])
        assert model._inputs(strange)[:, -1].tolist() == [0.0, 2.0 if name == "paper" else 0.0]


@pytest.mark.parametrize("finetuning", [None, Finetuning(epochs=2)])
def test_tables_with_gaps_and_rows_without_labels(finetuning: Finetuning | None, tmp_path: Path) -> None:
    whole = load_table("diabetes")
    card = replace(
        whole.card, columns=tuple(replace(c, missing=c.kind == "numerical") for c in whole.card.columns), rows=442
    )
    rows = np.arange(442)
    bmi, bp = whole.features["bmi"].mask(rows % 7 == 0), whole.features["bp"].mask(rows == 5)
    features = whole.features.assign(bmi=bmi, bp=bp)
    table = make_table(card, features, whole.target.mask(rows % 4 == 1))
    kept = Kept(table, finetuning=finetuning)
    assert kept.record["n_rows"]["unlabelled"] == 111 and kept.encoded.cardinalities[1:]
    model = kept.exported(tmp_path)
    assert torch.equal(model._inputs(table.features), kept.encoded.inputs)
    seen = features.iloc[kept.encoded.pretraining.numpy()]
    assert model.columns_.imputation.median[1] == seen["bmi"].median()


def test_where_it_is_from_stays_until_another_fit(tmp_path: Path) -> None:
    kept = Kept(load_table("breast_cancer"))
    model = kept.exported(tmp_path)
    assert model.origin_ == {"replica": kept.replica.id}
    model.set_params(**TINY).fit(kept.table.features)
    assert not hasattr(model, "origin_")
    model.save(tmp_path)
    assert not hasattr(adaptbin.load(tmp_path), "origin_")


def test_another_table_is_refused() -> None:
    kept = Kept(load_table("breast_cancer"))
    shifted = replace(kept.table, features=kept.table.features + np.arange(569)[:, None])
    with pytest.raises(DataError, match="must read the table as it was trained on"):
        exported(kept.replica, shifted, kept.encoded, kept.pretraining, None, {})


def test_folders_of_the_first_schema_are_read(tmp_path: Path) -> None:
    kept = Kept(load_table("diabetes"))
    model = kept.exported(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    del manifest["digest"], manifest["origin"], manifest["columns"]["unseen_category"]
    manifest["schema"] = 1
    manifest["digest"] = _digest(manifest)
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    old = adaptbin.load(tmp_path)
    np.testing.assert_array_equal(old.transform(kept.table.features), model.transform(kept.table.features))
