"""Heads and HORD on both paths against the twin, to the bound of float32's own rounding; and what may change no bit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.config import Architecture, Protocol
from adaptbin.encoders.base import Columns
from adaptbin.pretext.hord import SLOT_MULTIPLE, HordWeights
from adaptbin.training.autoencoder import Autoencoder
from tests.paths import BOTH, switched, usable_sets, using
from tests.reference import hord as twin
from tests.strategies import seeds

HALF_ULP = 2.0**-24
DEEP, TINY = math.exp(-80), 1e-37
"""No share is taken to be smaller than DEEP; below TINY float32 has fewer digits."""
Weights = tuple[float, float, float]
WEIGHTS: list[Weights] = [(10.0, 0.1, 0.001), (1.0, 1.0, 1.0), (3.0, 0.0, 0.1), (0.0, 1.0, 0.0), (0.0, 0.0, 2.0)]

compiled = pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")


@dataclass
class Case:
    """A batch, and heads whose logits are exact in float32: what differs then comes from the losses alone."""

    cardinalities: tuple[int, ...]
    count: np.ndarray  # [R, D]
    weights: list[Weights]
    mse_scale: str
    hidden: np.ndarray  # [R, B, H] in eighths
    weight: list[np.ndarray]  # per column [R, slots, H] in eighths; slots past a replica's count are there, too
    bias: list[np.ndarray]  # per column [R, slots]
    target: np.ndarray  # [R, C + D, B]
    entries: np.ndarray | None = None  # [R, D, B], of the numerical columns; None: 1

    @property
    def sizes(self) -> np.ndarray:
        """[R, C + D] live slots of every column."""
        levels = np.tile(np.array(self.cardinalities, dtype=np.int64), (len(self.count), 1))
        return np.concatenate([levels, self.count], 1)


class Recipe(NamedTuple):
    """What a case is made from, short enough to be printed."""

    replicas: int
    rows: int
    width: int
    cardinalities: tuple[int, ...]
    n_numerical: int
    most_bins: int
    size: float
    mse_scale: str
    lacking: bool
    seed: int

    def case(self) -> Case:
        rng = np.random.default_rng(self.seed)
        count = rng.integers(1, self.most_bins + 1, size=(self.replicas, self.n_numerical))
        if self.n_numerical:
            count[rng.integers(self.replicas), rng.integers(self.n_numerical)] = self.most_bins
        case = filled(rng, self.cardinalities, count, self.rows, self.width, self.size, self.mse_scale)
        if self.lacking:
            case.entries = np.float32(rng.choice([0.0, 1.0, 4 / 3], size=(*count.shape, self.rows))).astype(np.float64)
        return case


recipes = st.builds(
    Recipe,
    replicas=st.integers(1, 3),
    rows=st.one_of(st.integers(1, 130), st.sampled_from([16, 31, 32, 33, 64, 128])),
    width=st.integers(1, 20),
    cardinalities=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    n_numerical=st.integers(0, 4),
    most_bins=st.sampled_from([1, 2, 5, 33, 200]),
    size=st.sampled_from([0.25, 1.0, 30.0, 1e4]),
    mse_scale=st.sampled_from(["none", "released"]),
    lacking=st.booleans(),
    seed=seeds,
).filter(lambda recipe: recipe.cardinalities or recipe.n_numerical)


WIDE = Recipe(2, 64, 1024, (3,), 4, 200, 1.0, "none", False, 0)
"""Rows of the heads lie a power of two apart; of one replica so many are live that its kernels do not copy them."""

NEAR = Recipe(2, 33, 512, (), 2, 33, 1.0, "none", True, 0)
"""The same with few of them."""


def filled(
    rng: np.random.Generator,
    cardinalities: tuple[int, ...],
    count: np.ndarray,
    rows: int,
    width: int,
    size: float,
    mse_scale: str,
) -> Case:
    """A case with random numbers: logits of about ``size``."""

    def eighths(scale: float, *shape: int) -> np.ndarray:
        return np.round(np.clip(rng.normal(size=shape), -3, 3) * 8 * scale) / 8

    replicas = len(count)
    slots = [*cardinalities, *count.max(0)]
    part = size / math.sqrt(width)
    case = Case(
        cardinalities,
        count,
        [WEIGHTS[i] for i in rng.integers(len(WEIGHTS), size=replicas)],
        mse_scale,
        eighths(1.0, replicas, rows, width),
        [eighths(part, replicas, n, width) for n in slots],
        [eighths(part, replicas, n) for n in slots],
        np.empty(0),
    )
    case.target = (rng.random((replicas, len(slots), rows)) * case.sizes[..., None]).astype(np.int64)
    return case


@dataclass
class Found:
    total: np.ndarray  # [R]
    numerical: np.ndarray  # [R, D]
    weight: list[np.ndarray]  # gradients: per column [R, slots, H]
    bias: list[np.ndarray]  # [R, slots]
    below: np.ndarray  # [R, B, H]

    def same_bits(self, other: Found) -> bool:
        mine, theirs = ([f.total, f.numerical, f.below, *f.weight, *f.bias] for f in (self, other))
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(mine, theirs, strict=True))


def place(model: Autoencoder, column: int, slots: int) -> Tensor:
    """Rows of a column's slots in the heads."""
    n_categorical = model.n_categorical
    if column < n_categorical:
        return torch.arange(slots) * n_categorical + column
    return model.heads.fixed + torch.arange(slots) * model.n_numerical + column - n_categorical


def build(case: Case) -> Autoencoder:
    """An autoencoder with these heads, every row that is not live full of numbers of its own."""
    replicas, _, width = case.hidden.shape
    model = Autoencoder(
        Columns(case.count.shape[1], case.cardinalities),
        Architecture(width=width, depth=1, batch_size=1),
        Protocol.from_dict({"mse_scale": case.mse_scale}),
        list(range(replicas)),
        torch.device("cpu"),
    )
    slots = -(-int(case.count.max(initial=0)) // SLOT_MULTIPLE) * SLOT_MULTIPLE
    model.reserve(model.heads.capacity_for(slots))
    for c, (weight, bias) in enumerate(zip(case.weight, case.bias, strict=True)):
        rows = place(model, c, weight.shape[1])
        model.bank.view("heads.weight")[:, rows] = torch.tensor(weight, dtype=torch.float32)
        model.bank.view("heads.bias")[:, rows] = torch.tensor(bias, dtype=torch.float32)
    weights = HordWeights(*(torch.tensor(w, dtype=torch.float32) for w in zip(*case.weights, strict=True)))
    model.set_bins(torch.tensor(case.count), slots, weights)
    return model


def step(model: Autoencoder, case: Case) -> Found:
    n_categorical = len(case.cardinalities)
    target = torch.tensor(case.target)
    total, numerical, below = model._reconstruct(
        torch.tensor(case.hidden, dtype=torch.float32),
        target[:, :n_categorical],
        target[:, n_categorical:].float(),
        None if case.entries is None else torch.tensor(case.entries, dtype=torch.float32),
    )
    rows = [place(model, c, weight.shape[1]) for c, weight in enumerate(case.weight)]
    weight, bias = (model.bank.gradient(f"heads.{name}").clone() for name in ("weight", "bias"))
    taken = [weight[:, r].numpy() for r in rows], [bias[:, r].numpy() for r in rows]
    everything = torch.cat(rows)
    weight[:, everything], bias[:, everything] = 0, 0
    assert not weight.any() and not bias.any()  # nothing came to rows of no column
    return Found(total.numpy(), numerical.numpy(), *taken, below.clone().numpy())


def run(case: Case) -> Found:
    return step(build(case), case)


# --- the twin, with the bound


@dataclass
class Bounded:
    """A float64 value, and how far from it one rounding of everything it was added up from can lead."""

    value: np.ndarray
    bound: np.ndarray


def losses(case: Case, r: int, c: int) -> tuple[Bounded, Bounded]:
    """Mean loss of column c of replica r, and the gradient [B, slots] of its logits in the total, each to one rounding.

    The magnitudes are those of the terms of the sums in hord.py, each with the sign taken off.
    """
    n_categorical, slots = len(case.cardinalities), int(case.sizes[r, c])
    logits = case.hidden[r] @ case.weight[c][r, :slots].T + case.bias[c][r, :slots]
    y = case.target[r, c]
    shifted = logits - logits.max(1, keepdims=True)
    p, t = twin.softmax(logits), np.arange(slots)
    likely = p + DEEP / HALF_ULP
    share = 1 / (case.sizes.shape[1] * len(y))
    if c < n_categorical:
        gradient = twin.cross_entropy_gradient(logits, y) * len(y) * share
        loss = np.array(twin.cross_entropy(logits, y))
        picked = np.eye(slots)[y]
        size = 1 + (np.abs(shifted) * picked).sum(1).mean()
        return Bounded(loss, size), Bounded(gradient, share * (likely + picked))
    weights, mse_scale = case.weights[r], case.mse_scale if slots > 1 else "none"
    entries = np.ones(len(y)) if case.entries is None else case.entries[r, c - n_categorical]
    loss = np.array(twin.numerical_loss(twin.terms(logits, y, slots, mse_scale, entries), weights))
    gradient = twin.numerical_gradient(logits, y, slots, weights, mse_scale, entries) * len(y) * share
    w_sord, w_mse, w_var = weights
    w_mse /= twin.square_factor(slots, mse_scale)
    q = np.array([twin.soft_target(int(each), slots) for each in y])
    d = np.abs(t - y[:, None])
    first, second = (p * d).sum(1, keepdims=True), (p * d * d).sum(1, keepdims=True)
    size = w_sord * (1 + (q * np.abs(shifted)).sum(1, keepdims=True)) + (2 * w_mse + 2 * w_var) * second
    # The twin's moments are not taken around y, if in float64, whose roundings are 2^29 times smaller; and it takes a
    # variance they leave below 0 to have no gradient.
    size = size + (raw := 2.0**-26 * (w_mse + w_var) * slots**2)
    pull = w_sord + 2 * w_mse * first * (first + d) + w_var * (first + d) ** 2 + 2 * w_var * second
    bound = share * (raw + likely * pull + w_sord * (q + DEEP / HALF_ULP))
    return Bounded(loss, (size * entries[:, None]).mean()), Bounded(gradient, bound * entries[:, None])


@pytest.mark.parametrize("path", BOTH)
@settings(max_examples=50)
@given(recipe=recipes)
@example(recipe=WIDE)
@example(recipe=NEAR)
def test_losses_and_gradients_are_the_twins(path: str, recipe: Recipe) -> None:
    case = recipe.case()
    with using(path):
        found = run(case)
    n_categorical, n_columns = len(case.cardinalities), case.sizes.shape[1]
    rows = case.hidden.shape[1]
    for r in range(len(case.count)):
        total = below = total_bound = below_bound = 0.0
        all_slots = int(case.sizes[r].sum())
        for c in range(n_columns):
            slots = int(case.sizes[r, c])
            # A dozen roundings in each term (exp to two of them), and one for each further term of the sum.
            ulps = HALF_ULP * (slots + 16)
            loss, gradient = losses(case, r, c)
            total, total_bound = total + loss.value / n_columns, total_bound + loss.bound / n_columns * ulps
            if c >= n_categorical:
                off = abs(found.numerical[r, c - n_categorical] - loss.value)
                assert off <= (ulps + HALF_ULP * rows) * loss.bound
            weight, hidden = case.weight[c][r, :slots], case.hidden[r]
            below, below_bound = below + gradient.value @ weight, below_bound + ulps * gradient.bound @ abs(weight)
            batch = ulps + HALF_ULP * rows
            off = abs(found.weight[c][r, :slots] - gradient.value.T @ hidden)
            assert (off <= batch * gradient.bound.T @ abs(hidden) + TINY).all()
            assert (abs(found.bias[c][r, :slots] - gradient.value.sum(0)) <= batch * gradient.bound.sum(0) + TINY).all()
            assert not found.weight[c][r, slots:].any() and not found.bias[c][r, slots:].any()
        further = 1 + (all_slots + rows) / 16
        assert abs(found.total[r] - total) <= further * total_bound
        assert (abs(found.below[r] - below) <= further * below_bound + TINY).all()


# --- exp and log, seen through a loss


@pytest.mark.parametrize("path", BOTH)
def test_exp_is_within_three_ulps_down_to_minus_eighty(path: str) -> None:
    """Gradient of the level that is not the code, out of two: e^x / (1 + e^x)."""
    x = -np.concatenate([np.linspace(0, 80, 6001), np.geomspace(1e-7, 80, 2000)]).astype(np.float32)
    case = gap_case(x.astype(np.float64))
    with using(path):
        found = run(case)
    expected = np.exp(x.astype(np.float64)) / (1 + np.exp(x.astype(np.float64))) / len(x)
    np.testing.assert_allclose(found.below[0, :, 0], expected, rtol=6 * HALF_ULP)


@pytest.mark.parametrize("path", BOTH)
def test_below_minus_eighty_exp_is_as_good_as_nothing(path: str) -> None:
    with using(path):
        found = run(gap_case(-np.array([80.5, 90.0, 1e4, 1e30])))
    assert (np.abs(found.below) < 1e-34).all() and found.total[0] == 0


@pytest.mark.parametrize("path", BOTH)
def test_log_is_within_two_ulps(path: str) -> None:
    """Every level equally likely: the loss is the log of their number."""
    for levels in (2, 3, 5, 7, 11, 100, 181, 255):
        case = filled(np.random.default_rng(0), (levels,), np.ones((1, 0), np.int64), 5, 1, 0.0, "none")
        with using(path):
            np.testing.assert_allclose(run(case).total, math.log(levels), rtol=4 * HALF_ULP)


def gap_case(x: np.ndarray) -> Case:
    """Rows with two levels, logits (x, 0), of which the second is the code; the gradient of hidden is the first's."""
    count = np.ones((1, 0), np.int64)
    case = filled(np.random.default_rng(0), (2,), count, len(x), 1, 0.0, "none")
    case.hidden, case.weight[0] = x.reshape(1, -1, 1), np.array([[[1.0], [0.0]]])
    case.target = np.ones((1, 1, len(x)), np.int64)
    return case


# --- what changes no bit


def alone(case: Case, r: int) -> Case:
    """Replica r by itself: its heads only as wide as its own features."""
    own = [*case.cardinalities, *case.count[r]]
    return replace(
        case,
        count=case.count[r : r + 1],
        weights=case.weights[r : r + 1],
        hidden=case.hidden[r : r + 1],
        weight=[w[r : r + 1, :n] for w, n in zip(case.weight, own, strict=True)],
        bias=[b[r : r + 1, :n] for b, n in zip(case.bias, own, strict=True)],
        target=case.target[r : r + 1],
        entries=None if case.entries is None else case.entries[r : r + 1],
    )


@compiled
@settings(max_examples=50)
@given(recipe=recipes)
@example(recipe=WIDE)
@example(recipe=NEAR)
def test_a_replica_alone_equals_its_slice_at_any_width_and_batch(recipe: Recipe) -> None:
    case = recipe.case()
    with using("compiled"):
        crowd = run(case)
        for r, own in enumerate(case.sizes):
            mine = run(alone(case, r))
            assert mine.total[0] == crowd.total[r] and np.array_equal(mine.numerical[0], crowd.numerical[r])
            assert np.array_equal(mine.below[0], crowd.below[r])
            for c, slots in enumerate(own):
                assert np.array_equal(mine.weight[c][0], crowd.weight[c][r, :slots])
                assert np.array_equal(mine.bias[c][0], crowd.bias[c][r, :slots])


@pytest.mark.parametrize("path", BOTH)
@settings(max_examples=20)
@given(recipe=recipes)
def test_entries_of_weight_one_change_no_bit_and_those_of_weight_nought_do_not_count(path: str, recipe: Recipe) -> None:
    case = recipe.case()
    n_categorical = len(case.cardinalities)
    ones = np.ones((*case.count.shape, case.hidden.shape[1]))
    with using(path):
        assert run(replace(case, entries=ones)).same_bits(run(replace(case, entries=None)))
        if case.entries is not None:
            moved = case.target.copy()
            moved[:, n_categorical:][case.entries == 0] = 0
            assert run(replace(case, target=moved)).same_bits(run(case))


@settings(max_examples=50)
@given(recipe=recipes)
@example(recipe=WIDE)
@example(recipe=NEAR)
def test_every_instruction_set_gives_the_same_bits(recipe: Recipe) -> None:
    case = recipe.case()
    found = []
    for name in usable_sets():
        with switched(name):
            found.append(run(case))
    for other in found[1:]:
        assert other.same_bits(found[0])


@compiled
@settings(max_examples=50)
@given(recipe=recipes)
def test_rows_know_nothing_of_each_other_nor_of_what_pads_them(recipe: Recipe) -> None:
    """Twice the rows halve each one's share exactly, and every number a row gets must be half of what it was."""
    case = recipe.case()
    rows = case.hidden.shape[1]
    doubled = replace(
        case,
        hidden=np.concatenate([case.hidden, np.full_like(case.hidden, np.nan)], 1),
        target=np.concatenate([case.target, case.target], 2),
        entries=None if case.entries is None else np.concatenate([case.entries, case.entries], 2),
    )
    with using("compiled"):
        model = build(case)
        first = step(model, case)
        twice = step(model, doubled)
        mine, theirs = 2 * twice.below[:, :rows], first.below
        small = abs(theirs) < 1e-25  # sums in which a term may have had too few digits left to be halved
        assert np.array_equal(mine[~small], theirs[~small]) and (abs(mine - theirs)[small] < 1e-31).all()
        assert np.isnan(twice.total).all() and np.isnan(twice.below[:, rows:]).all()
        assert step(model, case).same_bits(first)  # and nothing is left of it in any buffer


@compiled
def test_many_columns_and_bins_alone_and_in_a_crowd() -> None:
    rng = np.random.default_rng(0)
    count = rng.integers(1, 201, size=(3, 178))
    count[:, 0] = 200, 7, 150
    case = filled(rng, (2, 3), count, 13, 5, 1.0, "none")
    with using("compiled"):
        crowd = run(case)
        for r in range(3):
            mine = run(alone(case, r))
            assert mine.total[0] == crowd.total[r] and np.array_equal(mine.below[0], crowd.below[r])


# --- what is not finite, and bins that become fewer


@compiled
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 1], ids=["categorical", "numerical"])
@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize("where", ["weight", "bias", "hidden"])
def test_what_is_not_finite_ends_in_a_loss_that_is_not(value: float, column: int, slot: int, where: str) -> None:
    """Wherever it stands among the slots of whatever column; and the neighbours never hear of it."""
    case = filled(np.random.default_rng(1), (3,), np.array([[3], [3], [3]]), 9, 4, 1.0, "none")
    case.weights, case.target[:] = WEIGHTS[:3], 1
    with using("compiled"):
        clean = run(case)
        if where == "hidden":
            case.hidden[1, 8, slot] = value
        else:
            getattr(case, where)[column][1, slot] = value
        found = run(case)
    assert not np.isfinite(found.total[1]) and np.isfinite(found.total[[0, 2]]).all()
    for r in (0, 2):
        assert found.total[r] == clean.total[r] and np.array_equal(found.below[r], clean.below[r])
        for mine, theirs in zip([*found.weight, *found.bias], [*clean.weight, *clean.bias], strict=True):
            assert np.array_equal(mine[r], theirs[r])


@pytest.mark.parametrize("path", BOTH)
def test_bins_that_become_fewer_leave_no_gradient(path: str) -> None:
    """As when a checkpoint is loaded into a model that has gone further."""
    case = filled(np.random.default_rng(2), (2,), np.array([[8, 3]]), 6, 4, 1.0, "none")
    with using(path):
        model = build(case)
        step(model, case)
        model.set_bins(torch.tensor([[2, 2]]), 8, model._weights)
        model._reconstruct(torch.ones(1, 6, 4), torch.zeros(1, 1, 6, dtype=torch.int64), torch.zeros(1, 2, 6))
        gradient = model.bank.gradient("heads.weight")[0]
    for c, slots in ((1, 2), (2, 2)):
        rows = place(model, c, 8)
        assert gradient[rows[:slots]].any() and not gradient[rows[slots:]].any()
