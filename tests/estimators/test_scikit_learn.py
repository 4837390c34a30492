"""What scikit-learn asks of every estimator, by its own checks, and the parts of it that users lean on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from adaptbin import AdaptiveBinningClassifier, AdaptiveBinningEncoder, AdaptiveBinningRegressor
from tests.estimators.tables import TINY, TINY_TUNING, clinic, outcome


@parametrize_with_checks(
    [
        AdaptiveBinningEncoder(**TINY),
        AdaptiveBinningClassifier(**TINY_TUNING),
        AdaptiveBinningClassifier(**TINY_TUNING, pretrain=False, validation_fraction=0.0),
        AdaptiveBinningRegressor(**TINY_TUNING),
    ]
)
# scikit-learn's own check casts NaN to whole numbers on the way to the estimator.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning:sklearn")
def test_check_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_names_of_features_and_frames() -> None:
    table = clinic()
    encoder = AdaptiveBinningEncoder(**TINY).set_output(transform="pandas")
    embedded = encoder.fit_transform(table.set_index(np.arange(len(table)) + 7))
    assert list(embedded.columns) == [f"adaptivebinningencoder{j}" for j in range(16)]
    assert list(embedded.columns) == list(encoder.get_feature_names_out())
    assert embedded.index[0] == 7
    assert (encoder.n_features_in_, list(encoder.feature_names_in_)) == (6, list(table.columns))


@pytest.mark.parametrize("change", [lambda t: t.drop(columns="age"), lambda t: t[t.columns[::-1]]])
def test_other_columns_are_refused(change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    encoder = AdaptiveBinningEncoder(**TINY).fit(clinic())
    with pytest.raises(ValueError, match="feature names should match"):
        encoder.transform(change(clinic()))


def test_in_a_pipeline_and_a_search() -> None:
    table, y = clinic(), outcome(clinic())
    numbers = table[["age", "beds"]]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), AdaptiveBinningClassifier(**TINY_TUNING)),
        {"adaptivebinningclassifier__epochs": np.array([1, 2])},
        cv=2,
    )
    assert search.fit(numbers, y).best_score_ > 0.5


@pytest.mark.parametrize("encoder", ["mlp", "resnet", "tabnet"])
def test_same_seed_same_embedding(encoder: Any) -> None:
    table = clinic()
    first = AdaptiveBinningEncoder(**TINY, encoder=encoder).fit(table)
    np.random.seed(1)  # noqa: NPY002  a global generator that nothing reads
    again = clone(first).fit(table)
    other = clone(first).set_params(random_state=1).fit(table)
    np.testing.assert_array_equal(first.transform(table), again.transform(table))
    assert not np.array_equal(first.transform(table), other.transform(table))


@pytest.mark.parametrize("encoder", ["mlp", "tabnet", "ft_transformer"])
def test_a_row_is_embedded_alike_whatever_the_others_are(encoder: Any) -> None:
    table = clinic(300)
    settings: dict[str, Any] = {"encoder_settings": {"n_blocks": 1}} if encoder == "ft_transformer" else {}
    fitted = AdaptiveBinningEncoder(**TINY, encoder=encoder, **settings).fit(table)
    embedded = fitted.transform(table)
    np.testing.assert_array_equal(fitted.transform(table.iloc[[5, 250, 17]]), embedded[[5, 250, 17]])


def test_global_generators_are_left_alone() -> None:
    import torch

    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    AdaptiveBinningClassifier(**TINY_TUNING).fit(clinic(), outcome(clinic()))
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
