from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.errors import ConfigError, DataError, ShapeError
from adaptbin.metrics import evaluate_many, metrics_of
from adaptbin.replicas.selection import batched_metric, bootstrap_se
from adaptbin.tasks import Task
from tests.strategies import ScoredCase, scored_cases, seeds


@given(case=scored_cases())
def test_every_metric_equals_sklearns(case: ScoredCase):
    expected = evaluate_many(case.task, case.outputs, case.target, case.levels)
    for name in metrics_of(case.task):
        got = batched_metric(name, torch.tensor(case.outputs), torch.tensor(case.target), case.levels)
        assert got.dtype is torch.float64
        np.testing.assert_allclose(got, [scores[name] for scores in expected], rtol=1e-12, atol=1e-12)


@given(case=scored_cases(), seed=seeds)
def test_models_may_have_their_own_targets(case: ScoredCase, seed: int):
    rng = np.random.default_rng(seed)
    own = np.stack([rng.permutation(case.target) for _ in case.outputs])
    for name in metrics_of(case.task):
        together = batched_metric(name, torch.tensor(case.outputs), torch.tensor(own), case.levels)
        for model, target in enumerate(own):
            alone = batched_metric(name, torch.tensor(case.outputs[[model]]), torch.tensor(target), case.levels)
            assert together[model] == alone[0]


@pytest.mark.parametrize("name", ["auc", "accuracy"])
def test_ties_and_threshold_by_hand(name):
    outputs = torch.tensor([[[-1.0], [0.0], [0.0], [2.0], [3.0]]])
    value = batched_metric(name, outputs, torch.tensor([0, 0, 1, 1, 0]), ("no", "yes")).item()
    assert value == {"auc": 3.5 / 6, "accuracy": 3 / 5}[name]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("task", list(Task))
def test_a_model_that_blew_up_scores_nan_and_its_neighbour_does_not(task, bad):
    levels = None if task is Task.REGRESSION else ("a", "b") if task is Task.BINARY else ("a", "b", "c")
    outputs = torch.randn(2, 8, task.n_outputs(len(levels or ())), generator=torch.Generator().manual_seed(0))
    target = torch.arange(8) % 2 if levels else torch.arange(8.0)
    broken = outputs.clone()
    broken[0, 3, 0] = bad
    for name in metrics_of(task):
        got, whole = (batched_metric(name, x, target, levels) for x in (broken, outputs))
        assert got[0].isnan() and got[1] == whole[1]


def test_equal_targets_score_nan():
    assert batched_metric("accuracy", torch.zeros(2, 3, 1), torch.ones(3, dtype=torch.long), "ab").isnan().all()
    assert batched_metric("r2", torch.zeros(2, 3, 1), torch.ones(3)).isnan().all()


@pytest.mark.parametrize(
    ("name", "outputs", "target", "levels", "error", "message"),
    [
        ("acc", (1, 4, 1), (4,), "ab", ConfigError, "unknown metric"),
        ("auc", (1, 4, 2), (4,), "ab", ShapeError, "auc"),
        ("qwk", (1, 4, 2), (4,), "abc", ShapeError, "3 levels"),
        ("qwk", (1, 4, 3), (4,), None, ConfigError, "needs label levels"),
        ("rmse", (1, 4, 1), (4,), "ab", ConfigError, "has no label levels"),
        ("rmse", (4, 1), (4,), None, ShapeError, r"\[M, N, n_outputs\]"),
        ("rmse", (2, 4, 1), (3,), None, ShapeError, r"\[N\] or \[M, N\]"),
    ],
)
def test_what_does_not_fit_is_refused(name, outputs, target, levels, error, message):
    with pytest.raises(error, match=message):
        batched_metric(name, torch.zeros(outputs), torch.zeros(target), levels)


def test_nothing_waits_for_the_device():
    """Meta tensors have no values: any read back to the host fails on them."""
    for name, width, levels in (("auc", 1, "ab"), ("accuracy", 3, "abc"), ("macro_f1", 3, "abc"), ("rmse", 1, None)):
        outputs, target = torch.empty(2, 5, width, device="meta"), torch.empty(5, dtype=torch.long, device="meta")
        assert batched_metric(name, outputs, target, levels).shape == (2,)


@settings(max_examples=30)
@given(case=scored_cases(), seed=seeds, resamples=st.integers(20, 40))
def test_bootstrap_is_the_sd_over_resampled_rows(case: ScoredCase, seed: int, resamples: int):
    """The weighted formulas against the plain definition: draw rows, score each probe, average, take the sd."""
    outputs, target = torch.tensor(case.outputs), torch.tensor(case.target)
    draws = torch.randint(len(target), (resamples, len(target)), generator=torch.Generator().manual_seed(seed))
    kept = [rows for rows in draws if len(target[rows].unique()) > 1]
    if len(kept) < 2:
        return
    result = bootstrap_se(
        metrics_of(case.task),
        outputs[None],
        target,
        case.levels,
        generator=torch.Generator().manual_seed(seed),
        resamples=resamples,
    )
    assert (result.used, result.undefined) == (len(kept), resamples - len(kept))
    for name in metrics_of(case.task):
        scores = [batched_metric(name, outputs[:, rows], target[rows], case.levels).mean().item() for rows in kept]
        np.testing.assert_allclose(result.se[name], [np.std(scores, ddof=1)], rtol=1e-6, atol=1e-9)


def test_bootstrap_of_a_mean_matches_its_formula():
    """Accuracy is a mean of N zeros and ones, so its standard error is sqrt(p (1 - p) / N)."""
    n = 400
    logits = torch.where(torch.arange(n) % 4 == 0, -1.0, 1.0) * torch.where(torch.arange(n) < 200, 1.0, -1.0)
    target = (torch.arange(n) < 200).long()
    outputs = logits.reshape(1, 1, n, 1)
    result = bootstrap_se(
        ["accuracy"], outputs, target, "ab", generator=torch.Generator().manual_seed(1), resamples=4000
    )
    assert result.se["accuracy"][0] == pytest.approx(np.sqrt(0.75 * 0.25 / n), rel=0.05)


@pytest.mark.parametrize("task", list(Task))
def test_bootstrap_of_a_replica_does_not_depend_on_its_neighbours(task, monkeypatch):
    levels = None if task is Task.REGRESSION else ("a", "b") if task is Task.BINARY else ("a", "b", "c")
    generator = torch.Generator().manual_seed(3)
    outputs = torch.randn(4, 5, 50, task.n_outputs(len(levels or ())), generator=generator)
    outputs[3, 0, 0, 0] = float("nan")
    target = torch.randint(len(levels or "abcdefgh"), (50,), generator=generator)
    names = metrics_of(task)
    crowd = bootstrap_se(names, outputs, target, levels, generator=torch.Generator().manual_seed(7))
    monkeypatch.setattr("adaptbin.replicas.selection._CHUNK_ELEMENTS", 1000)
    for replica in range(3):
        alone = bootstrap_se(names, outputs[[replica]], target, levels, generator=torch.Generator().manual_seed(7))
        for name in names:
            assert alone.se[name][0] == pytest.approx(crowd.se[name][replica], rel=1e-12)
    assert all(np.isnan(crowd.se[name][3]) for name in names)


def test_bootstrap_without_two_classes_is_refused():
    with pytest.raises(DataError, match="got 0/50"):
        bootstrap_se(
            ["auc"],
            torch.zeros(1, 1, 4, 1),
            torch.ones(4, dtype=torch.long),
            "ab",
            generator=torch.Generator().manual_seed(0),
            resamples=50,
        )
    with pytest.raises(ShapeError, match=r"\[R, P, N, n_outputs\]"):
        bootstrap_se(["auc"], torch.zeros(1, 4, 1), torch.ones(4), "ab", generator=torch.Generator())
