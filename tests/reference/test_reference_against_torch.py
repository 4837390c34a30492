"""What no golden file covers: optimiser, probe, corruption, plateau rule and binning against independent results."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.tasks import Task
from tests.reference import autoencoder, hord, probe
from tests.reference.corruption import corrupt
from tests.reference.discretizer import assign, initial_edges, refine
from tests.reference.optimizer import AdamW, clip, scheduled
from tests.reference.scorer import Candidate, candidate, dispersion, median, score_bins, unit_rows, variance
from tests.reference.trigger import Plateau
from tests.strategies import BinnedCase, PlateauCase, RaggedCase, binned_cases, plateau_cases, ragged_cases, seeds


@given(case=ragged_cases(least_bins=2), mse_scale=st.sampled_from(["none", "released"]))
def test_loss_and_gradient_are_autograds(case: RaggedCase, mse_scale: str):
    logits, target, n_bins = case.logits[0, :, 0], case.target[0, :, 0], int(case.n_bins[0, 0])
    live = torch.tensor(logits[:, :n_bins], requires_grad=True)
    y, t = torch.tensor(target).double(), torch.arange(n_bins, dtype=torch.float64)
    p = live.softmax(1)
    q = (-(t - y[:, None]).square()).softmax(1)
    mean = (p * t).sum(1)
    half, sd = (n_bins - 1) / 2, math.sqrt((n_bins**2 - 1) / 12)
    scaled = ((mean - half) / sd, (y - half) / sd) if mse_scale == "released" else (mean, y)
    var = (p * t * t).sum(1) - mean**2
    loss = -2 * (q * live.log_softmax(1)).sum(1) + 0.5 * (scaled[0] - scaled[1]) ** 2 + 0.3 * var.clamp(min=0)
    loss.mean().backward()
    parts = hord.terms(logits, target, n_bins, mse_scale)
    assert hord.numerical_loss(parts, (2, 0.5, 0.3)) == pytest.approx(loss.mean().item(), rel=1e-9)
    gradient = hord.numerical_gradient(logits, target, n_bins, (2.0, 0.5, 0.3), mse_scale)
    np.testing.assert_allclose(gradient[:, :n_bins], live.grad, atol=1e-9)


def test_with_columns_of_one_kind_only_those_count():
    assert hord.total([1.0, 2.0], []) == 1.5
    assert hord.total([], [3.0, 4.0]) == 3.5
    assert hord.total([1.0], [3.0, 4.0, 5.0]) == pytest.approx(1 / 4 * 1 + 3 / 4 * 4)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_clipped_adamw_is_torchs(decay):
    rng = np.random.default_rng(0)
    start = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=4)}
    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
    optimizer = torch.optim.AdamW(theirs.values(), lr=1e-2, weight_decay=decay)
    ours, twin = start, AdamW(rate=1e-2, decay=decay)
    for step in range(30):
        gradients = {name: rng.normal(size=value.shape) * (100 if step % 3 else 0.1) for name, value in start.items()}
        for name, parameter in theirs.items():
            parameter.grad = torch.tensor(gradients[name])
        torch.nn.utils.clip_grad_norm_(theirs.values(), 10.0)
        optimizer.step()
        ours = twin.step(ours, clip(gradients, 10.0))
        for name, parameter in theirs.items():
            np.testing.assert_allclose(ours[name], parameter.detach(), rtol=0, atol=1e-12)


def test_a_late_column_moves_by_the_global_step_count():
    twin, value = AdamW(rate=1.0, decay=0.0), {"head": np.zeros(2)}
    for _ in range(10_000):
        value = twin.step(value, {"head": np.array([1.0, 0.0])})
    before = value["head"][1]
    value = twin.step(value, {"head": np.array([1.0, 1.0])})
    assert before == 0
    assert value["head"][1] == pytest.approx(-0.1 / math.sqrt(0.001), rel=1e-3)


def test_cosine_starts_at_the_rate_and_would_end_at_zero():
    assert [scheduled(2.0, step, 4, "cosine") for step in (0, 2, 4)] == pytest.approx([2.0, 1.0, 0.0])
    assert scheduled(2.0, 3, 4, "constant") == 2.0


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_probe_is_torchs(task, schedule):
    rng = np.random.default_rng(1)
    n_rows, width, n_epochs, batch_size, n_outputs = 23, 5, 4, 10, task.n_outputs(3)
    z = rng.normal(size=(n_rows, width))
    target = rng.normal(size=n_rows) if task is Task.REGRESSION else rng.integers(0, max(n_outputs, 2), n_rows)
    head = {"weight": rng.normal(0, 0.01, size=(n_outputs, width)), "bias": np.zeros(n_outputs)}
    order = np.stack([rng.permutation(n_rows) for _ in range(n_epochs)])
    heads = probe.train(task, z, target, head, order, batch_size, schedule=schedule)

    layer = torch.nn.Linear(width, n_outputs).double()
    layer.load_state_dict({name: torch.tensor(value) for name, value in head.items()})
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2, weight_decay=0.0)
    anneal = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, n_epochs * 3)
    for epoch in range(n_epochs):
        for rows in torch.tensor(order[epoch]).split(batch_size):
            out, y = layer(torch.tensor(z)[rows]), torch.tensor(target)[rows]
            loss = {
                Task.BINARY: lambda out, y: torch.nn.functional.binary_cross_entropy_with_logits(out[:, 0], y.double()),
                Task.REGRESSION: lambda out, y: (out[:, 0] - y).square().mean(),
            }.get(task, torch.nn.functional.cross_entropy)(out, y)
            assert probe.loss_and_gradient(task, out.detach().numpy(), y.numpy())[0] == pytest.approx(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if schedule == "cosine":
                anneal.step()
        for name, parameter in layer.named_parameters():
            np.testing.assert_allclose(heads[epoch][name], parameter.detach(), atol=1e-9)


def test_the_first_of_equal_epochs_is_kept():
    assert probe.best_epoch([0.5, math.nan, 0.7, 0.7], higher_is_better=True) == 2
    assert probe.best_epoch([math.nan, 3.0, 2.0, 2.0], higher_is_better=False) == 2
    with pytest.raises(ValueError, match="no epoch"):
        probe.best_epoch([math.nan], higher_is_better=True)


def test_corruption_by_hand():
    rows = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    mask = np.array([[True, False], [True, True], [False, False]])
    permutations = np.array([[2, 0], [1, 2], [0, 1]])
    assert corrupt(rows, mask, "none").tolist() == rows.tolist()
    assert corrupt(rows, mask, "constant").tolist() == [[0, 10], [0, 0], [3, 30]]
    # Row 1 of column 0 draws itself; row 1 of column 1 draws row 2.
    assert corrupt(rows, mask, "random", permutations).tolist() == [[3, 10], [2, 30], [3, 30]]


@pytest.mark.parametrize(
    ("patience", "delta", "losses", "fires_at"),
    [
        (1, 0.0, [3, 2, 1, 0], []),
        (2, 0.0, [3, 2, 2, 2, 2, 2], [3]),
        (2, 0.0, [3, 3, 3, 3, 3, 3], [2, 5]),
        (2, 0.5, [3.0, 2.8, 2.6], [2]),
        (1, 0.5, [3.0, 2.5, 2.0], [1]),
        (2, 0.0, [1, 1, math.nan, 1], [2]),
        (1, 0.0, [1, 2, 3, 4], [1, 3]),
    ],
)
def test_plateau_as_a_table_of_series(patience, delta, losses, fires_at):
    rule = Plateau()
    fired = [rule.step(loss, patience=patience, delta=delta, growable=True) for loss in losses]
    assert [epoch for epoch, fires in enumerate(fired) if fires] == fires_at


@given(case=plateau_cases())
def test_plateau_waits_for_patience_and_room(case: PlateauCase):
    rule, since = Plateau(), 0
    for epoch in range(len(case.losses)):
        patience, delta, growable = int(case.patience[0]), float(case.delta[0]), bool(case.growable[epoch, 0, 0])
        fired = rule.step(float(case.losses[epoch, 0, 0]), patience=patience, delta=delta, growable=growable)
        since += 1
        assert not fired or (growable and since > patience)
        if fired:
            since = 0
            assert rule.best == math.inf and rule.stale == 0


@given(case=binned_cases(), t_init=st.integers(2, 6))
def test_first_edges_are_numpys_percentiles(case: BinnedCase, t_init: int):
    for column in case.values.T:
        edges = initial_edges(column, t_init)
        distinct = np.unique(column).astype(np.float64)
        if len(distinct) <= t_init:
            assert assign(distinct, edges).tolist() == list(range(len(distinct)))
        else:
            cuts = np.percentile(column.astype(np.float64), [100 * i / t_init for i in range(1, t_init)])
            # Numpy rounds positions, so equal percentiles of tied values may come out a few 1e-16 apart.
            distance = np.abs(edges[:, None] - cuts)
            assert distance.min(0).max() < 1e-12 and distance.min(1).max() < 1e-12
            assert (np.diff(edges) > 0).all()


@given(case=binned_cases())
def test_assignment_is_searchsorted_from_the_right(case: BinnedCase):
    for column, edges in zip(case.values.T, case.edges, strict=True):
        np.testing.assert_array_equal(assign(column, edges), np.searchsorted(edges, column, side="right"))


@settings(deadline=None)
@given(case=binned_cases(), min_bin=st.integers(1, 4))
def test_candidates_obey_the_rules_of_a_split(case: BinnedCase, min_bin: int):
    unit = unit_rows(case.embeddings)
    for column, edges in zip(case.values.T, case.edges, strict=True):
        bins = assign(column, edges)
        found = score_bins(column, unit, edges, min_bin)
        cuts = [one.median for one in found if not math.isnan(one.median)]
        after = refine(edges, cuts, [0.0] * len(cuts), 200)
        assert (np.diff(after) > 0).all() and set(edges) <= set(after) and len(after) == len(edges) + len(cuts)
        for k, one in enumerate(found):
            inside = column[bins == k]
            if math.isnan(one.median):
                assert not one.qualifies(0.0)
                middle = np.median(inside) if len(inside) else 0
                smaller = min((inside < middle).sum(), (inside >= middle).sum())
                assert len(inside) < 2 * min_bin or smaller < min_bin
            else:
                left = inside < one.median
                assert min(left.sum(), (~left).sum()) >= min_bin
                assert one.median == np.median(inside)
                weighted = left.mean() * np.var(inside[left].astype(float)) + (~left).mean() * np.var(
                    inside[~left].astype(float)
                )
                assert one.gain_var == pytest.approx(np.var(inside.astype(float)) - weighted, abs=1e-9)


def test_spread_by_hand():
    assert variance(np.array([1, 3], np.float32)) == 1.0
    assert median(np.array([1, 5, 2, 4], np.float32)) == 3.0
    assert dispersion(np.array([[1.0, 0.0]], np.float32)) == 0.0
    assert dispersion(np.array([[1, 0], [0, 1]], np.float32)) == pytest.approx(abs(math.log(1e-6 + 0.5)))
    assert dispersion(np.array([[1, 0], [-1, 0]], np.float32)) == pytest.approx(abs(math.log(1e-6)))
    assert (unit_rows(np.zeros((1, 2), np.float32)) == 0).all()
    np.testing.assert_allclose(unit_rows(np.array([[3, 4]])), [[0.6, 0.8]], rtol=1e-7)


def test_a_split_needs_both_gains_and_a_score_above_tau():
    assert Candidate(0.0, 0.1, 0.1, 0.01).qualifies(0.009)
    assert not Candidate(0.0, 0.1, 0.1, 0.01).qualifies(0.01)
    assert not Candidate(0.0, -0.1, -0.1, 0.01).qualifies(0.0)


def test_a_median_on_the_bins_edge_is_no_split():
    values = np.array([0, 0, 0, 0, 1, 2], np.float32)
    unit = np.eye(6, dtype=np.float32)
    assert math.isnan(candidate(values, unit, 0.0, math.inf, 1).score)
    assert candidate(np.array([-1, -1, 0, 0, 1, 2], np.float32), unit, -math.inf, math.inf, 1).median == 0.0


@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_backward_pass_is_the_slope_of_the_loss(seed: int):
    """Every tenth weight of a small network with one column of each kind."""
    rng = np.random.default_rng(seed)
    shapes = {
        "encoder.0": (4, 2), "encoder.2": (4, 4), "decoder.0": (4, 4), "decoder.2": (4, 4),
        "cat_heads.0": (3, 4), "num_heads.0": (5, 4),
    }  # fmt: skip
    weights = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"], weights[f"{name}.bias"] = rng.normal(size=shape), rng.normal(size=shape[0])
    x = rng.normal(size=(6, 2))
    bins, codes = rng.integers(0, 4, size=(6, 1)), rng.integers(0, 3, size=(6, 1))
    point = autoencoder.Settings(weights=(1.0, 0.5, 0.1), patience=2, tau=1e-4, batch_size=6, rate=1e-3)

    def loss(changed: dict[str, np.ndarray]) -> float:
        return autoencoder.step_losses(changed, x, bins, codes, [4], point)[0]

    gradients = autoencoder.step_losses(weights, x, bins, codes, [4], point)[2]
    assert set(gradients) == set(weights)
    for name, value in weights.items():
        for index in list(np.ndindex(value.shape))[::10]:
            sides = []
            for shift in (1e-6, -1e-6):
                moved = {**weights, name: value.copy()}
                moved[name][index] += shift
                sides.append(loss(moved))
            assert gradients[name][index] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-5)
    assert (gradients["num_heads.0.weight"][4] == 0).all()
