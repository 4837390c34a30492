"""Few labels and many rows: what counts as a label, which rows choose the epoch, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from adaptbin import (
    AdaptiveBinningClassifier,
    AdaptiveBinningEncoder,
    AdaptiveBinningRegressor,
    ConfigError,
    DataError,
    ResourceError,
    TrainingError,
)
from adaptbin.estimators.labels import class_codes, read_labels, split_labelled
from tests.estimators.tables import TINY, TINY_TUNING, clinic, outcome


def some_missing(y: np.ndarray, missing: Any, every: int = 3) -> np.ndarray:
    """``y`` with two of three labels, or more, taken away."""
    given = y.astype(object)
    given[np.arange(len(y)) % every != 0] = missing
    return given


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_are_no_class(missing: Any) -> None:
    table, y = clinic(), outcome(clinic())
    model = AdaptiveBinningClassifier(**TINY_TUNING).fit(table, some_missing(y, missing))
    assert model.classes_.tolist() == ["bad", "good"]
    as_series = clone(model).fit(table, pd.Series(some_missing(y, missing)))
    np.testing.assert_array_equal(model.predict_proba(table), as_series.predict_proba(table))
    as_list = clone(model).fit(table, some_missing(y, missing).tolist())
    np.testing.assert_array_equal(model.predict_proba(table), as_list.predict_proba(table))


@pytest.mark.parametrize(
    "y, classes",
    [
        ([0.0, 1.0, np.nan, 1.0], [0.0, 1.0]),
        ([0, 1, None, 1], [0, 1]),
        ([True, None, False, True], [False, True]),
        (pd.Series([2, pd.NA, 0, 2], dtype="Int64"), [0, 2]),
        (pd.array(["b", None, "a", "b"], dtype="string"), ["a", "b"]),
        (pd.Categorical(["b", None, "a", "b"]), ["a", "b"]),
        (np.array([-1, 1, 0, 1]), [-1, 0, 1]),
        (["b", np.nan, "a", "b"], ["a", "b"]),
    ],
)
def test_labels_of_every_type(y: Any, classes: list[Any]) -> None:
    labelled, labels = read_labels(y, 4, "a classifier")
    found, codes = class_codes(labels)
    assert found.tolist() == classes
    assert [classes[code] for code in codes] == [v for v in list(y) if not pd.isna(v)]
    assert labelled.tolist() == [i for i, v in enumerate(list(y)) if not pd.isna(v)]


def test_only_labels_that_are_given_decide() -> None:
    """Rows without a label are pretrained on, and do not take part where nothing is pretrained."""
    table, y = clinic(), outcome(clinic())
    few = some_missing(y, None, every=4)
    labelled = np.flatnonzero(~pd.isna(few))
    scratch = AdaptiveBinningClassifier(**TINY_TUNING, pretrain=False).fit(table, few)
    assert scratch.loss_curve_ == [] and scratch.bin_edges_ == {}
    pretrained = AdaptiveBinningClassifier(**TINY_TUNING).fit(table, few)
    assert len(pretrained.loss_curve_) == TINY["epochs"] and set(pretrained.bin_edges_) == {"age", "beds"}
    # The labelled rows alone: the same labels, fewer rows to pretrain on.
    alone = clone(pretrained).fit(table.iloc[labelled], few[labelled])
    assert not np.array_equal(alone.predict_proba(table), pretrained.predict_proba(table))


def test_it_learns_from_few_labels() -> None:
    table, y = clinic(400), outcome(clinic(400))
    settings = TINY_TUNING | {"finetune_epochs": 100, "epochs": 10}
    for pretrain in (True, False):
        model = AdaptiveBinningClassifier(**settings, pretrain=pretrain).fit(table, some_missing(y, None))
        assert model.score(table, y) > 0.9


def test_numbers_from_few_labels() -> None:
    table = clinic(400)
    y = 1000 + 50 * table["age"].to_numpy() + 200 * (table["ward"] == "north").to_numpy()
    labels = np.where(np.arange(400) % 3 == 0, y, np.nan)
    model = AdaptiveBinningRegressor(**(TINY_TUNING | {"finetune_epochs": 100})).fit(table, labels)
    assert model.score(table, y) > 0.9
    assert len(model.validation_curve_) == 100
    assert model.best_epoch_ == int(np.argmin(model.validation_curve_))


def test_the_epoch_with_the_least_validation_loss_counts() -> None:
    table, y = clinic(), outcome(clinic())
    longer = AdaptiveBinningClassifier(**(TINY_TUNING | {"finetune_epochs": 60})).fit(table, y)
    assert longer.best_epoch_ == int(np.argmin(longer.validation_curve_))
    until_then = clone(longer).set_params(finetune_epochs=longer.best_epoch_ + 1).fit(table, y)
    np.testing.assert_array_equal(longer.predict_proba(table), until_then.predict_proba(table))


def test_without_validation_the_last_epoch_counts() -> None:
    table, y = clinic(), outcome(clinic())
    settings = TINY_TUNING | {"validation_fraction": 0.0}
    model = AdaptiveBinningClassifier(**settings).fit(table, y)
    assert model.best_epoch_ == settings["finetune_epochs"] - 1 and model.validation_curve_ == []
    # Two labelled rows are enough.
    two = np.full(len(y), None, dtype=object)
    for word in ("bad", "good"):
        two[np.flatnonzero(y == word)[0]] = word
    assert AdaptiveBinningClassifier(**settings).fit(table, two).predict(table).shape == (120,)
    with pytest.raises(DataError, match="validation_fraction=0"):
        AdaptiveBinningClassifier(**TINY_TUNING).fit(table, two)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5, 0.9])
def test_the_split_of_labelled_rows(fraction: float) -> None:
    strata = np.repeat([0, 1, 2, 3], [50, 11, 2, 1])
    split = split_labelled(strata, fraction, 3)
    assert sorted([*split.train, *split.val]) == list(range(64))
    held_out = np.bincount(strata[split.val], minlength=4)
    assert held_out.tolist() == [round(50 * fraction), min(max(round(11 * fraction), 1), 10), 1, 0]
    again, other = split_labelled(strata, fraction, 3), split_labelled(strata, fraction, 4)
    np.testing.assert_array_equal(split.val, again.val)
    assert not np.array_equal(split.val, other.val)


def test_pretraining_is_the_encoders() -> None:
    """A classifier starts from what the encoder with its settings gives; with a step of almost 0 it stays there."""
    table, y = clinic(), outcome(clinic())
    settings = TINY | {"finetune_epochs": 1, "finetune_learning_rate": 1e-12}
    model = AdaptiveBinningClassifier(**settings).fit(table, y)
    encoder = AdaptiveBinningEncoder(**TINY).fit(table)
    assert model.bin_edges_ == encoder.bin_edges_ and model.loss_curve_ == encoder.loss_curve_
    for name, held in encoder.model_.tensors.items():
        np.testing.assert_allclose(model.model_.tensors[name], held, atol=1e-7)


@pytest.mark.parametrize(
    "y, message",
    [
        (["bad"] * 120, "two classes, got one class: 'bad'"),
        ([None] * 120, "at least two classes, got none"),
        (["bad", "good"] * 59, "one entry per row of X .120., got 118"),
        ([0.5, 0.25, 3.5] * 40, "continuous"),
        (["bad", 1] * 60, "all words, all whole numbers or all truth values, got int, str"),
        ([np.inf, 1.0] * 60, "infinity"),
    ],
)
def test_labels_that_are_refused(y: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveBinningClassifier(**TINY_TUNING).fit(clinic(), y)


@pytest.mark.parametrize(
    "y, message",
    [
        ([2.0] * 120, "two different labels or more, got 1 in 120"),
        ([np.nan] * 120, "two different labels or more, got 0"),
        (["high"] * 120, "must hold numbers, got 'high'"),
        ([np.inf, 1.0] * 60, "infinity"),
    ],
)
def test_numbers_that_are_refused(y: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        AdaptiveBinningRegressor(**TINY_TUNING).fit(clinic(), y)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"encoder": "resnt"}, "did you mean 'resnet'"),
        ({"encoder": "resnet", "encoder_settings": {"d_blok": 8}}, "did you mean 'd_block'"),
        ({"encoder_settings": {"d_block": 8}}, "no other settings"),
        ({"encoder": "tabnet", "encoder_settings": [("n_d", 4)]}, r"a mapping, as .*, or None, got \[\('n_d', 4\)\]"),
        ({"encoder_settings": 0}, "encoder_settings must be a mapping, as .'n_blocks': 2., or None, got 0"),
        ({"encoder": "tabnet", "encoder_settings": {1: 4}}, "encoder_settings must be numbers by name, got"),
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"masking": "random"}, "mask_prob must be 0 with masking 'none' and above 0 otherwise"),
        ({"random_state": None}, "random_state must be a whole number"),
        ({"random_state": -1}, "random_state must be a whole number"),
        ({"batch_size": 0}, "batch_size"),
        ({"validation_fraction": 1.0}, "validation_fraction must be a number in"),
        ({"pretrain": "no"}, "pretrain must be True or False"),
        ({"finetune_epochs": 0}, "epochs must be a whole number >= 1"),
        ({"device": "gpu7"}, "device must be one that torch knows"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptiveBinningClassifier(**(TINY_TUNING | settings)).fit(clinic(), outcome(clinic()))


def test_an_encoder_needs_a_pretext() -> None:
    with pytest.raises(ConfigError, match="pretext must name what to pretrain on"):
        AdaptiveBinningEncoder(**TINY, pretext="none").fit(clinic())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ResourceError, match="needs a GPU, got none"):
        AdaptiveBinningEncoder(**TINY, device="cuda").fit(clinic())


def test_divergence_is_told() -> None:
    with pytest.raises(TrainingError, match="pretraining must keep a finite loss.*learning_rate below 1e"):
        AdaptiveBinningEncoder(**(TINY | {"learning_rate": 1e30})).fit(clinic())
    with pytest.raises(TrainingError, match="fine-tuning must have an epoch.*finetune_learning_rate below 1e"):
        settings = TINY_TUNING | {"finetune_learning_rate": 1e38}
        AdaptiveBinningRegressor(**settings, pretrain=False).fit(clinic(), clinic()["age"])
