from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sk

from adaptbin.config import Protocol
from adaptbin.errors import ConfigError, DataError, ShapeError
from adaptbin.metrics import (
    METRICS,
    alphabetical_ranks,
    evaluate,
    evaluate_many,
    get_metric,
    metrics_of,
    primary_metric,
)
from adaptbin.tasks import Task
from tests.strategies import ScoredCase, scored_cases


def test_each_task_has_its_metrics():
    assert metrics_of(Task.BINARY) == ("auc", "accuracy", "balanced_accuracy", "macro_f1")
    assert metrics_of(Task.MULTICLASS) == ("accuracy", "balanced_accuracy", "macro_f1")
    assert metrics_of(Task.ORDINAL) == ("accuracy", "balanced_accuracy", "macro_f1", "qwk", "qwk_alphabetical")
    assert metrics_of(Task.REGRESSION) == ("rmse", "mae", "r2")


def test_direction_and_units():
    assert {name for name, metric in METRICS.items() if metric.sign == -1} == {"rmse", "mae"}
    assert {name for name, metric in METRICS.items() if metric.in_target_units} == {"rmse", "mae"}


def test_an_unknown_metric_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        get_metric("acuracy")


def test_label_order_decides_which_kappa_is_primary():
    alphabetical = Protocol(label_order="alphabetical")
    assert primary_metric("qwk", Protocol()) == "qwk"
    assert primary_metric("qwk", alphabetical) == "qwk_alphabetical"
    assert primary_metric("auc", alphabetical) == "auc"
    with pytest.raises(ConfigError, match="unknown metric"):
        primary_metric("kappa", Protocol())


def test_alphabetical_ranks():
    assert alphabetical_ranks(("low risk", "mid risk", "high risk")) == (1, 2, 0)


def test_kappa_by_hand():
    """Six rows, three levels, two near misses and one far one; weights are squared distances of ranks."""
    logits = np.eye(3)[[0, 0, 1, 1, 2, 0]]
    scores = evaluate(Task.ORDINAL, logits, np.array([0, 0, 1, 2, 1, 2]), ("low", "mid", "high"))
    # observed cost 1 + 1 + 4 = 6; expected: sum over pairs of n_true n_predicted (i - j)² / 6
    true, guessed = [2, 2, 2], [3, 2, 1]
    expected = sum(true[i] * guessed[j] * (i - j) ** 2 for i in range(3) for j in range(3)) / 6
    assert scores["qwk"] == pytest.approx(1 - 6 / expected)
    # alphabetically high 0, low 1, mid 2: predicted mid for high costs 4, high for mid 4, low for high 1
    rank = [1, 2, 0]
    expected = sum(true[i] * guessed[j] * (rank[i] - rank[j]) ** 2 for i in range(3) for j in range(3)) / 6
    assert scores["qwk_alphabetical"] == pytest.approx(1 - 9 / expected)


def test_scores_by_hand_for_two_classes():
    """Positives score 0 (tied with a negative) and 2; class 1 is predicted for 2 and 3, one of them rightly."""
    scores = evaluate(Task.BINARY, np.array([-1.0, 0.0, 0.0, 2.0, 3.0]), np.array([0, 0, 1, 1, 0]), ("no", "yes"))
    f1 = (2 * 2 / (2 * 2 + 1 + 1) + 2 * 1 / (2 * 1 + 1 + 1)) / 2
    recall = (2 / 3 + 1 / 2) / 2
    auc = (1.5 + 2) / 6
    assert scores == pytest.approx({"auc": auc, "accuracy": 3 / 5, "balanced_accuracy": recall, "macro_f1": f1})


def test_scores_by_hand_for_a_number():
    scores = evaluate(Task.REGRESSION, np.array([1.0, 2.0, 5.0]), np.array([1.0, 3.0, 2.0]), None)
    assert scores == pytest.approx({"rmse": np.sqrt(10 / 3), "mae": 4 / 3, "r2": 1 - 10 / 2})


@given(case=scored_cases(task=Task.BINARY))
def test_binary_scores_are_sklearns(case: ScoredCase):
    logits = case.outputs[0, :, 0]
    scores = evaluate(case.task, logits, case.target, case.levels)
    assert scores["auc"] == sk.roc_auc_score(case.target, logits)
    assert scores["accuracy"] == sk.accuracy_score(case.target, logits > 0)
    assert scores["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(case.target, logits > 0))


@given(case=scored_cases())
def test_scores_are_finite_within_bounds_and_complete(case: ScoredCase):
    for scores in evaluate_many(case.task, case.outputs, case.target, case.levels):
        assert tuple(scores) == metrics_of(case.task)
        for name, value in scores.items():
            # A kappa of -1 comes out of its quotient a rounding below.
            assert np.isfinite(value) and METRICS[name].low - 1e-12 <= value <= METRICS[name].high


@given(case=scored_cases(task=Task.ORDINAL))
def test_perfect_predictions_reach_the_top(case: ScoredCase):
    perfect = np.eye(len(case.levels))[case.target]
    assert evaluate(case.task, perfect, case.target, case.levels) == dict.fromkeys(metrics_of(case.task), 1.0)


def test_evaluate_many_is_evaluate_on_each():
    rng = np.random.default_rng(0)
    outputs, target = rng.normal(size=(3, 20, 4)), rng.integers(0, 4, 20)
    expected = [evaluate(Task.MULTICLASS, scores, target, "abcd") for scores in outputs]
    assert evaluate_many(Task.MULTICLASS, outputs, target, "abcd") == expected


@pytest.mark.parametrize(
    ("task", "scores", "target", "levels", "error", "message"),
    [
        (Task.BINARY, [0.1, 0.2], [1, 1], "ab", DataError, "at least two different targets"),
        (Task.REGRESSION, [0.1, 0.2], [3.0, 3.0], None, DataError, "at least two different targets"),
        (Task.BINARY, [], np.array([], int), "ab", DataError, "at least one row"),
        (Task.BINARY, [0.1, np.nan], [0, 1], "ab", DataError, "must be finite, got 1"),
        (Task.REGRESSION, [0.1, 0.2], [0.0, np.inf], None, DataError, "targets must be finite"),
        (Task.BINARY, [0.1, 0.2], [0, 2], "ab", DataError, r"0\.\.1"),
        (Task.BINARY, [0.1, 0.2], [0.0, 1.0], "ab", DataError, "whole numbers"),
        (Task.BINARY, [0.1, 0.2], [0, 1], None, ConfigError, "needs its label levels"),
        (Task.ORDINAL, np.zeros((2, 2)), [0, 1], "abc", ShapeError, r"\(2, 3\)"),
        (Task.BINARY, np.zeros((2, 1)), [0, 1], "ab", ShapeError, r"\(2,\)"),
    ],
)
def test_what_cannot_be_scored_is_refused(task, scores, target, levels, error, message):
    with pytest.raises(error, match=message):
        evaluate(task, np.asarray(scores), np.asarray(target), levels)


def test_evaluate_many_wants_the_heads_width():
    with pytest.raises(ShapeError, match=r"\[M, N, 3\]"):
        evaluate_many(Task.ORDINAL, np.zeros((1, 2, 2)), np.array([0, 1]), "abc")


def test_importing_is_light():
    """Listing metric names on a command line must not load torch or scikit-learn."""
    code = "import sys, adaptbin.metrics; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
