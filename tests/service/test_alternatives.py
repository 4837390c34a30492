"""Models without pretraining: fitted to train alone, on the shared split, scored with the library's metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier

from adaptbin.config import Protocol
from adaptbin.data import Card, Table, load_table, split_rows
from adaptbin.errors import DataError
from adaptbin.tasks import Task
from sweeps import alternatives as script
from sweeps.service import alternatives
from sweeps.service.alternatives import Alternative, installed_alternatives, scores_frame

PAPER = Protocol()


def that_learn(task: Task) -> list[Alternative]:
    return [model for model in installed_alternatives(task) if model.name not in ("XGBoost", "constant prediction")]


CLASSIFIERS, REGRESSORS = that_learn(Task.BINARY), that_learn(Task.REGRESSION)


@pytest.fixture(scope="module")
def table() -> Table:
    return load_table("breast_cancer")


def test_a_constant_is_the_least_that_a_model_must_beat(real_table: Any, table: Table) -> None:
    """Against its own arithmetic: an AUC of ½, a kappa of 0, and errors from the mean of train."""
    for source in (table, real_table("eol"), real_table("pt")):
        classes = source.card.levels is not None
        constant = installed_alternatives(Task(source.card.task))[0]
        (row,) = scores_frame(source, seeds=(0, 1), protocol=PAPER, alternatives=[constant]).to_dict("records")
        assert (row["model"], row["depends_on_seed"]) == ("constant prediction", False)
        train, val, test = (np.asarray(source.target)[rows] for rows in split_rows(source))
        if not classes:
            mean = train.mean()
            for part, values in (("val", val), ("test", test)):
                assert row[part] == pytest.approx(np.sqrt(np.mean((values - mean) ** 2)), rel=1e-12)
            assert row["test_r2"] < 0  # other patients, another mean
            continue
        assert row["test"] == (0.5 if row["metric"] == "auc" else 0)
        levels, counts = np.unique(train, return_counts=True)
        if row["metric"] != "auc":
            assert row["test_accuracy"] == np.mean(test == levels[counts.argmax()])


def test_breast_cancer_and_diabetes(table: Table) -> None:
    cancer = scores_frame(table, seeds=(0, 1), protocol=PAPER, alternatives=CLASSIFIERS)
    assert list(cancer["model"]) == ["HistGradientBoosting", "logistic regression"]
    assert set(cancer["metric"]) == {"auc"} and (cancer["test"] > 0.97).all()
    assert (cancer[["n_train", "n_val", "n_test"]] == [364, 91, 114]).all(axis=None)
    assert not cancer["depends_on_seed"].any(), "one line each: these fits do not depend on the seed"
    diabetes = scores_frame(load_table("diabetes"), seeds=(0, 1), protocol=PAPER, alternatives=REGRESSORS)
    assert set(diabetes["metric"]) == {"rmse"} and diabetes["test"].between(50, 65).all()
    assert list(diabetes["model"]) == ["HistGradientBoosting", "ridge regression"]
    assert diabetes["test_r2"].between(0.3, 0.6).all()


def test_eol(real_table: Any) -> None:
    scores = scores_frame(real_table("eol"), seeds=(0,), protocol=PAPER, alternatives=CLASSIFIERS)
    assert set(scores["metric"]) == {"qwk"} and (scores["test"] > 0.95).all()
    released = scores_frame(
        real_table("eol"), seeds=(0,), protocol=Protocol.named("released"), alternatives=CLASSIFIERS[1:]
    )
    assert released["test"].item() == scores["test_qwk_alphabetical"].to_list()[1] < 0.9


def test_xgboost_is_one_where_it_is_installed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    *others, xgboost = installed_alternatives(Task.BINARY)
    assert [model.name for model in others] == ["constant prediction", "HistGradientBoosting", "logistic regression"]
    scores = scores_frame(table, seeds=(0, 1), protocol=PAPER, alternatives=[xgboost])
    assert scores["model"].to_list() == ["XGBoost"] and scores["test"].item() > 0.97
    *_, regressor = installed_alternatives(Task.REGRESSION)
    diabetes = scores_frame(load_table("diabetes"), seeds=(0,), protocol=PAPER, alternatives=[regressor])
    assert diabetes["model"].to_list() == ["XGBoost"] and 50 < diabetes["test"].item() < 80
    monkeypatch.setattr(alternatives, "find_spec", lambda name: None)
    assert "XGBoost" not in [model.name for model in installed_alternatives(Task.BINARY)]


class Spy:
    """Writes down what it is fitted to and asked for, and knows only class 1."""

    def __init__(self) -> None:
        self.fitted: list[pd.DataFrame] = []
        self.targets: list[np.ndarray] = []
        self.asked: list[pd.DataFrame] = []

    def fit(self, features: pd.DataFrame, target: np.ndarray) -> None:
        self.fitted.append(features)
        self.targets.append(target)

    def predict_proba(self, features: pd.DataFrame) -> np.ndarray:
        self.asked.append(features)
        return np.column_stack([np.zeros(len(features)), np.ones(len(features))])


def test_only_train_rows_are_fitted_and_the_others_scored_once(table: Table) -> None:
    spy, split = Spy(), split_rows(table)
    scores = scores_frame(table, seeds=(7,), protocol=PAPER, alternatives=[Alternative("spy", lambda card, seed: spy)])
    (fitted,), (target,) = spy.fitted, spy.targets
    assert fitted.index.to_list() == list(split.train)
    assert [rows.index.to_list() for rows in spy.asked] == [list(split.val), list(split.test)]
    assert set(target) == {0, 1}
    share = (table.target.iloc[split.test] == table.card.levels[1]).mean()
    assert scores["test_accuracy"].item() == pytest.approx(share)
    assert scores["seed"].item() == 7


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes"])
def test_tables_that_lack_numbers_and_labels(name: str) -> None:
    source = load_table(name)
    columns = tuple(replace(column, missing=column.kind == "numerical") for column in source.card.columns)
    features, target = source.features.copy(), source.target.copy()
    features.iloc[::3, 0] = np.nan
    target.iloc[::5] = "" if source.card.levels else np.nan
    lacking = replace(source, card=replace(source.card, columns=columns), features=features, target=target)
    models = CLASSIFIERS if source.card.levels else REGRESSORS
    scores = scores_frame(lacking, seeds=(0,), protocol=PAPER, alternatives=models)
    assert len(scores) == 2 and np.isfinite(scores["test"]).all()
    labelled = len(target) - len(target.iloc[::5])
    assert (scores[["n_train", "n_val", "n_test"]].sum(axis=1) == labelled).all()


def test_categories_are_declared_and_one_that_train_lacks_is_missing() -> None:
    diabetes = load_table("diabetes")
    (name,) = diabetes.card.categorical
    split = split_rows(diabetes)
    column = diabetes.features[name].copy()
    column.iloc[split.test[0]] = 99.0
    changed = replace(diabetes, features=diabetes.features.assign(**{name: column}))
    features = alternatives._features(changed, split)
    assert isinstance(features[name].dtype, pd.CategoricalDtype)
    assert set(features[name].cat.categories) == set(column.iloc[split.train].map(str))
    assert features[name].isna().sum() == 1 and pd.isna(features[name].iloc[split.test[0]])
    scores = scores_frame(changed, seeds=(0,), protocol=PAPER, alternatives=REGRESSORS)
    assert np.isfinite(scores["test"]).all()


def test_a_fit_that_depends_on_the_seed_is_repeated(table: Table) -> None:
    def trees(card: Card, seed: int) -> Any:
        return ExtraTreesClassifier(n_estimators=3, random_state=seed)

    scores = scores_frame(table, seeds=(0, 1, 4), protocol=PAPER, alternatives=[Alternative("trees", trees)])
    assert scores["seed"].to_list() == [0, 1, 4] and scores["depends_on_seed"].all()
    assert scores["test"].nunique() > 1
    alone = scores_frame(table, seeds=(4,), protocol=PAPER, alternatives=[Alternative("trees", trees)])
    assert alone["test"].item() == scores["test"].to_list()[2]


def test_a_fit_that_does_not_converge_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternatives, "MOST_ITERATIONS", 1)
    with pytest.raises(DataError, match="breast_cancer: the logistic regression must converge, got"):
        scores_frame(table, seeds=(0,), protocol=PAPER, alternatives=CLASSIFIERS[1:])


def test_numbers_must_be_finite(table: Table) -> None:
    features = table.features.copy()
    features.iloc[3, 0] = np.nan
    with pytest.raises(DataError, match="must hold finite numbers, got nan in row 3"):
        scores_frame(replace(table, features=features), seeds=(0,), protocol=PAPER)


def test_the_script_leaves_a_table_and_a_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dummy = (Alternative("dummy", lambda card, seed: DummyClassifier()),)
    monkeypatch.setattr(alternatives, "installed_alternatives", lambda task: dummy)
    assert script.main(["--dataset", "breast_cancer", "--seeds", "3,5", "--output", str(tmp_path)]) == 0
    folder = tmp_path / "alternatives" / "breast_cancer"
    scores = pd.read_csv(folder / "scores.csv")
    assert scores[["model", "seed", "test"]].values.tolist() == [["dummy", 3, 0.5]]
    manifest = pd.read_json(folder / "manifest.json", typ="series")
    assert manifest["study"] == "alternatives" and manifest["seeds"] == [3, 5]
    assert capsys.readouterr().out == f"breast_cancer dummy: test AUC 0.5000 (1 fit)\nbreast_cancer: {folder}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dataset", "eel"], "unknown data set 'eel'"),
        (["--dataset", "breast_cancer", "--epochs", "3"], "unknown option --epochs"),
        (["--dataset", "eol", "--data-dir", "/nowhere"], "the data folder must be an existing folder"),
    ],
)
def test_the_script_refuses(words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert script.main([*words, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--help"]) == 0
    assert "Score what needs no pretraining" in capsys.readouterr().out
