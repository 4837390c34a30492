"""HORD: losses and gradients against the twin, autograd and the released code; dead bins change nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.pretext.hord import (
    DEAD_LOGIT,
    SLOT_MULTIPLE,
    BinContext,
    HordWeights,
    HordWorkspace,
    cross_entropy_,
    hord_,
)
from tests.reference import hord as twin
from tests.strategies import RaggedCase, ragged_cases, seeds

with np.load(Path(__file__).parents[1] / "golden" / "hord.npz") as _archive:
    HORD: Mapping[str, np.ndarray] = dict(_archive)

DEFAULT = (10.0, 0.1, 0.001)
MSE_SCALES = ("none", "released")


def stacked(weights: list[tuple[float, float, float]]) -> HordWeights:
    return HordWeights(*(torch.tensor(column, dtype=torch.float32) for column in zip(*weights, strict=True)))


def run(
    case: RaggedCase, weights: list[tuple[float, float, float]], mse_scale: str, scale: float = 1.0, slots: int = 0
) -> tuple[Tensor, Tensor]:
    """Losses [R, D], and gradients as [R, B, D, slots]; what lies past n_bins in the case is never seen."""
    n_replicas, batch, n_columns, given_slots = case.logits.shape
    slots = slots or given_slots
    logits = torch.full((n_replicas, slots, n_columns, batch), DEAD_LOGIT)
    logits[:, :given_slots] = torch.tensor(case.logits, dtype=torch.float32).permute(0, 3, 2, 1)
    count = torch.tensor(case.n_bins)
    dead = torch.arange(slots)[:, None] >= count[:, None]  # [R, slots, D]
    logits.masked_fill_(dead.unsqueeze(-1), DEAD_LOGIT)
    target = torch.tensor(case.target, dtype=torch.float32).transpose(1, 2).contiguous()
    context = BinContext.of(count, slots, stacked(weights), mse_scale)
    work = HordWorkspace(n_replicas, slots, n_columns, batch)
    loss = hord_(logits, target, context, stacked(weights), scale, work)
    return loss, logits.permute(0, 3, 2, 1)


def point(n_replicas: int) -> list[tuple[float, float, float]]:
    """Different weights for every replica, the paper's first."""
    return [DEFAULT, (1.0, 1.0, 1.0), (3.0, 0.0, 0.1)][:n_replicas]


def single(logits: np.ndarray, target: np.ndarray, n_bins: int) -> RaggedCase:
    """One replica's one column.  logits [B, K], target [B]."""
    return RaggedCase(logits[None, :, None], target[None, :, None], np.array([[n_bins]]))


# --- the released code's numbers and the paper's formula


def golden_case() -> RaggedCase:
    logits = np.stack([HORD[f"num_logits_{j}"] for j in range(3)], axis=1)[None]
    return RaggedCase(logits, HORD["targets"][None, :, 2:], HORD["bins"][None])


def test_losses_in_the_papers_form() -> None:
    loss, _ = run(golden_case(), [DEFAULT], "none")
    np.testing.assert_allclose(loss[0], HORD["paper_feature_losses"], rtol=2e-6)
    for i, name in enumerate(("sord", "mse", "var")):
        only = tuple(float(i == j) for j in range(3))
        loss, _ = run(golden_case(), [only], "none")  # type: ignore[list-item]
        np.testing.assert_allclose(loss[0], HORD[f"paper_{name}"], rtol=5e-6)


def test_losses_and_gradients_in_the_released_form() -> None:
    share = 1 / (5 * 9)  # five columns, nine rows
    loss, gradient = run(golden_case(), [DEFAULT], "released", share)
    np.testing.assert_allclose(loss[0], HORD["released_feature_losses"], rtol=2e-6)
    for j in range(3):
        np.testing.assert_allclose(gradient[0, :, j], HORD[f"released_grad_num_{j}"], atol=5e-8)
    total = loss.sum().item()
    cards = HORD["cards"].tolist()
    logits = torch.full((1, max(cards), 2, 9), DEAD_LOGIT)
    for j, levels in enumerate(cards):
        logits[0, :levels, j] = torch.from_numpy(HORD[f"cat_logits_{j}"]).t()
    live = (torch.arange(max(cards))[:, None] < torch.tensor(cards)).float().unsqueeze(-1)
    crossed = cross_entropy_(logits, torch.from_numpy(HORD["targets"][:, :2]).t()[None], live, share)
    np.testing.assert_allclose(crossed.mean(), HORD["released_loss_cat"], rtol=1e-6)
    for j, levels in enumerate(cards):
        np.testing.assert_allclose(logits[0, :levels, j].t(), HORD[f"released_grad_cat_{j}"], atol=2e-8)
    np.testing.assert_allclose((total + crossed.sum().item()) / 5, HORD["released_total"], rtol=1e-6)


# --- twin and autograd


@pytest.mark.parametrize("mse_scale", MSE_SCALES)
@settings(deadline=None)
@given(case=ragged_cases())
def test_losses_and_gradients_are_the_twins(mse_scale: str, case: RaggedCase) -> None:
    weights = point(len(case.logits))
    loss, gradient = run(case, weights, mse_scale, scale=1 / case.logits.shape[1])
    for r, d in np.ndindex(case.n_bins.shape):
        logits, target, n_bins = case.logits[r, :, d], case.target[r, :, d], int(case.n_bins[r, d])
        if n_bins == 1:
            assert abs(float(loss[r, d])) < 1e-6 and (gradient[r, :, d].abs() < 1e-6).all()
            continue
        parts = twin.terms(logits, target, n_bins, mse_scale)
        np.testing.assert_allclose(loss[r, d], twin.numerical_loss(parts, weights[r]), rtol=2e-5, atol=2e-5)
        expected = twin.numerical_gradient(logits, target, n_bins, weights[r], mse_scale)
        np.testing.assert_allclose(gradient[r, :, d], expected, rtol=2e-4, atol=2e-5)
        assert (gradient[r, :, d, n_bins:] == 0).all()


def formula(logits: Tensor, target: Tensor, n_bins: int, weights: tuple[float, float, float], mse_scale: str) -> Tensor:
    """L_num of one column as the paper writes it, for autograd.  logits [B, K] float64, target [B]."""
    live, t = logits[:, :n_bins], torch.arange(n_bins, dtype=torch.float64)
    q = (-(t - target[:, None]).square()).softmax(1)
    p, log_p = live.softmax(1), live.log_softmax(1)
    mean = (p * t).sum(1)
    variance = (p * (t - mean[:, None]).square()).sum(1)
    squares = (mean - target).square() * (12 / (n_bins**2 - 1) if mse_scale == "released" else 1)
    return (-weights[0] * (q * log_p).sum(1) + weights[1] * squares + weights[2] * variance).mean()


@pytest.mark.parametrize("mse_scale", MSE_SCALES)
@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), DEFAULT])
@pytest.mark.parametrize("n_bins", [2, 9, 200])
def test_the_gradient_is_autograds(n_bins: int, weights: tuple[float, float, float], mse_scale: str) -> None:
    rng = np.random.default_rng(n_bins)
    logits = rng.normal(0, 3, size=(40, n_bins + 5))
    target = rng.integers(0, n_bins, size=40)
    leaf = torch.tensor(logits.astype(np.float32).astype(np.float64), requires_grad=True)
    expected = formula(leaf, torch.tensor(target).double(), n_bins, weights, mse_scale)
    expected.backward()
    loss, gradient = run(single(logits, target, n_bins), [weights], mse_scale, scale=1 / 40)
    np.testing.assert_allclose(loss[0, 0], expected.detach(), rtol=1e-5)
    assert leaf.grad is not None
    largest = float(leaf.grad.abs().max())
    np.testing.assert_allclose(gradient[0, :, 0], leaf.grad, rtol=1e-4, atol=1e-5 * largest)


# --- dead bins and neighbours


@settings(deadline=None)
@given(
    case=ragged_cases(),
    mse_scale=st.sampled_from(MSE_SCALES),
    slots=st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted),
)
def test_dead_bins_are_inert(case: RaggedCase, mse_scale: str, slots: list[int]) -> None:
    weights = point(len(case.logits))
    n_slots = case.logits.shape[-1]
    fours = -(-n_slots // SLOT_MULTIPLE)
    loss, gradient = run(case, weights, mse_scale)
    some, more = (run(case, weights, mse_scale, slots=SLOT_MULTIPLE * (fours + extra)) for extra in slots)
    for wide_loss, wide_gradient in (some, more):
        assert wide_gradient.isfinite().all() and (wide_gradient[..., n_slots:] == 0).all()
        torch.testing.assert_close(wide_loss, loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(wide_gradient[..., :n_slots], gradient, rtol=1e-5, atol=1e-6)
    if case.logits.shape[1] * case.logits.shape[2] > 1:
        # Bit for bit, but for one row of one column: that is added along its bins, where the order depends on length.
        assert torch.equal(some[0], more[0]) and torch.equal(some[1][..., :n_slots], more[1][..., :n_slots])


@settings(deadline=None)
@given(case=ragged_cases(), mse_scale=st.sampled_from(MSE_SCALES))
def test_a_replica_alone_equals_its_slice(case: RaggedCase, mse_scale: str) -> None:
    weights = point(len(case.logits))
    loss, gradient = run(case, weights, mse_scale)
    for r in range(len(case.logits)):
        alone = RaggedCase(*(part[r : r + 1] for part in case))
        alone_loss, alone_gradient = run(alone, weights[r : r + 1], mse_scale)
        assert torch.equal(alone_loss[0], loss[r]) and torch.equal(alone_gradient[0], gradient[r])


def test_buffers_of_the_last_step_leave_no_trace() -> None:
    rng = np.random.default_rng(0)
    count, weights = torch.tensor([[4, 7]]), stacked([DEFAULT])
    context, work = BinContext.of(count, 7, weights, "none"), HordWorkspace(1, 7, 2, 5)
    dead = (torch.arange(7)[:, None] >= count[:, None]).unsqueeze(-1)
    logits = torch.tensor(rng.normal(size=(1, 7, 2, 5)), dtype=torch.float32).masked_fill(dead, DEAD_LOGIT)
    target = torch.tensor(rng.integers(0, 4, size=(1, 2, 5)), dtype=torch.float32)
    first, second = logits.clone(), logits.clone()
    loss = hord_(first, target, context, weights, 1.0, work)
    hord_(50 * torch.randn(1, 7, 2, 5, generator=torch.Generator().manual_seed(0)), target, context, weights, 1.0, work)
    assert torch.equal(loss, hord_(second, target, context, weights, 1.0, work)) and torch.equal(first, second)


# --- extremes


@pytest.mark.parametrize("gap", [50.0, 100.0, 1e4])
def test_confident_logits_stay_finite_and_right(gap: float) -> None:
    logits = np.zeros((2, 5))
    logits[0, 1] = logits[1, 4] = gap
    target = np.array([1, 0])
    loss, gradient = run(single(logits, target, 5), [DEFAULT], "none", scale=0.5)
    expected = twin.numerical_loss(twin.terms(logits, target, 5), DEFAULT)
    np.testing.assert_allclose(loss[0, 0], expected, rtol=1e-6)
    expected_gradient = twin.numerical_gradient(logits, target, 5, DEFAULT)
    np.testing.assert_allclose(gradient[0, :, 0], expected_gradient, rtol=1e-5, atol=1e-6)


def test_a_certain_prediction_has_no_variance_and_no_distance() -> None:
    logits = np.full((1, 200), -60.0)
    logits[0, 150] = 60.0
    loss, _ = run(single(logits, np.array([150]), 200), [(0.0, 1.0, 1.0)], "none")
    assert 0 <= float(loss) < 1e-12


def test_not_a_number_stays_with_its_replica() -> None:
    rng = np.random.default_rng(3)
    case = RaggedCase(rng.normal(size=(2, 4, 3, 6)), rng.integers(0, 6, size=(2, 4, 3)), np.full((2, 3), 6))
    clean, clean_gradient = run(case, point(2), "none")
    case.logits[0, 0, 0, 0] = math.nan
    loss, gradient = run(case, point(2), "none")
    assert loss[0, 0].isnan() and torch.equal(loss[1], clean[1]) and torch.equal(gradient[1], clean_gradient[1])


# --- categorical columns


@settings(deadline=None)
@given(seed=seeds, shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)))
def test_cross_entropy_is_torchs_and_its_dead_codes_are_inert(seed: int, shape: tuple[int, int, int]) -> None:
    n_replicas, n_columns, batch = shape
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 7, size=n_columns)
    levels = int(cards.max()) + 1
    live = torch.from_numpy(np.arange(levels)[:, None] < cards)
    raw = torch.tensor(rng.normal(0, 4, size=(n_replicas, levels, n_columns, batch)), dtype=torch.float32)
    logits = raw.masked_fill(~live.unsqueeze(-1), DEAD_LOGIT)
    target = torch.tensor((rng.random((n_replicas, n_columns, batch)) * cards[:, None]).astype(np.int64))
    loss = cross_entropy_(logits, target, live.unsqueeze(-1).float(), 0.25)
    for r in range(n_replicas):
        for c, card in enumerate(cards):
            leaf = raw[r, :card, c].t().double().requires_grad_()
            expected = torch.nn.functional.cross_entropy(leaf, target[r, c])
            (expected * batch * 0.25).backward()
            np.testing.assert_allclose(loss[r, c], expected.detach(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(logits[r, :card, c].t(), leaf.grad, rtol=1e-5, atol=1e-6)
            assert (logits[r, card:, c] == 0).all()


@pytest.mark.parametrize("batch", [63, 70])
def test_a_batch_of_odd_length_is_inert_too(batch: int) -> None:
    """Columns past the last whole vector are summed by other code than the rest."""
    rng = np.random.default_rng(batch)
    for n_bins in range(2, 14):
        case = RaggedCase(
            rng.normal(size=(1, batch, 7, n_bins)), rng.integers(0, n_bins, (1, batch, 7)), np.full((1, 7), n_bins)
        )
        fours = -(-n_bins // SLOT_MULTIPLE) * SLOT_MULTIPLE
        loss, gradient = run(case, [DEFAULT], "none", slots=fours)
        wide_loss, wide_gradient = run(case, [DEFAULT], "none", slots=fours + 28)
        assert torch.equal(loss, wide_loss) and torch.equal(gradient, wide_gradient[..., :fours])
