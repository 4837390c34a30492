"""Heads that grow: gradients against autograd, width that changes no bit, and columns that come into use late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.config import Budget, Hyperparameters, Protocol, Replica
from adaptbin.data import EncodedTable
from adaptbin.replicas.heads import GrowingHeads
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.paths import BOTH, using
from tests.replicas.banks import fill_, in_double
from tests.strategies import seeds
from tests.training.tables import ARCHITECTURE, small_table

DEAD = -1e9


def make(
    width: int, fixed: int, columns: int, slots: int, head_seeds: tuple[int, ...], *, spare: int = 0
) -> tuple[GrowingHeads, ParameterBank]:
    """Heads with ``slots`` in use, drawn from the init streams, and ``spare`` blocks more than needed."""
    heads = GrowingHeads(width, fixed, columns)
    capacity = heads.capacity_for(slots) + spare * heads.block
    bank = ParameterBank(heads.shapes(capacity), len(head_seeds))
    heads.initialise(bank, head_seeds, 0, capacity)
    heads.bind(bank, capacity, slots)
    return heads, bank


def dead_rows(heads: GrowingHeads, live: int, replicas: int) -> Tensor:
    """[R, rows] bool: everything past the first ``live`` slots."""
    return (torch.arange(heads.rows(heads.slots)) >= heads.rows(live)).expand(replicas, -1)


def test_rows_are_slot_major_and_capacity_comes_in_blocks() -> None:
    heads = GrowingHeads(4, fixed=6, columns=10)
    assert heads.rows(0) == 6 and heads.rows(3) == 36
    assert heads.block == 8  # at least 8 slots, and at least 64 rows
    assert [heads.capacity_for(slots) for slots in (0, 1, 8, 9)] == [0, 8, 8, 16]
    assert GrowingHeads(4, 0, 3).block == 22 and GrowingHeads(4, 6, 0).capacity_for(0) == 0
    assert heads.shapes(8) == {"heads.bias": (86,), "heads.weight": (86, 4)}


@settings(deadline=None)
@given(
    seed=seeds,
    width=st.integers(1, 6),
    fixed=st.integers(0, 5),
    columns=st.integers(0, 4),
    slots=st.integers(1, 12),
    batch=st.integers(1, 6),
)
def test_forward_and_gradients_are_autograds(
    seed: int, width: int, fixed: int, columns: int, slots: int, batch: int
) -> None:
    fixed = max(fixed, 0 if columns else 1)  # a table has a column of some kind
    slots = slots if columns else 0
    heads = GrowingHeads(width, fixed, columns)
    capacity = heads.capacity_for(slots)
    bank = fill_(in_double(ParameterBank(heads.shapes(capacity), 2)), seed)
    heads.bind(bank, capacity, slots)
    rows = heads.rows(slots)
    generator = torch.Generator().manual_seed(seed)
    dead = torch.rand(2, rows, generator=generator) < 0.2
    for _ in range(2):  # the second pass meets the buffers of the first
        hidden = torch.randn(2, batch, width, generator=generator, dtype=torch.float64)
        upstream = torch.randn(2, rows, batch, generator=generator, dtype=torch.float64).masked_fill(dead[..., None], 0)
        logits = heads.forward(hidden, dead, DEAD)
        leaf = hidden.clone().requires_grad_()
        weight = bank.view("heads.weight")[:, :rows].clone().requires_grad_()
        bias = bank.view("heads.bias")[:, :rows].clone().requires_grad_()
        expected = weight @ leaf.transpose(1, 2) + bias[..., None]
        torch.testing.assert_close(logits[~dead], expected.detach()[~dead], rtol=1e-10, atol=1e-10)
        assert (logits[dead] < DEAD / 2).all()
        expected.backward(upstream)
        logits.copy_(upstream)
        below = heads.backward()
        for got, leaf_ in (
            (below, leaf),
            (bank.gradient("heads.weight")[:, :rows], weight),
            (bank.gradient("heads.bias")[:, :rows], bias),
        ):
            torch.testing.assert_close(got, leaf_.grad, rtol=1e-10, atol=1e-10)
    assert (bank.gradient("heads.weight")[:, rows:] == 0).all() and (bank.gradient("heads.bias")[:, rows:] == 0).all()


@settings(deadline=None)
@given(
    seed=seeds,
    fixed=st.integers(0, 8),
    columns=st.integers(1, 9),
    live=st.integers(1, 6),
    extra=st.integers(1, 8),
    batch=st.sampled_from([1, 4, 7, 63, 64, 70]),
)
def test_neither_slots_nor_neighbours_change_a_bit(
    seed: int, fixed: int, columns: int, live: int, extra: int, batch: int
) -> None:
    """Holds for slots in fours, and from 400 products on (rows x width x batch): below, torch has code of its own."""
    width, mates = 128, (seed, seed + 1)
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, batch, width, generator=generator)
    upstream = torch.randn(2, fixed + 4 * live * columns, batch, generator=generator)
    found = []
    for slots, spare, members in ((4 * live, 0, slice(0, 1)), (4 * (live + extra), 1, slice(0, 2))):
        heads, bank = make(width, fixed, columns, slots, mates[members], spare=spare)
        rows = heads.rows(4 * live)
        logits = heads.forward(hidden[members], dead_rows(heads, 4 * live, len(hidden[members])), DEAD)
        forward = logits[0, :rows].clone()
        logits.zero_()[:, :rows] = upstream[members]
        below = heads.backward()
        found.append(
            (forward, below[0], bank.gradient("heads.weight")[0, :rows], bank.gradient("heads.bias")[0, :rows])
        )
    for alone, crowd in zip(*found, strict=True):
        assert torch.equal(alone, crowd)


@settings(deadline=None)
@given(seed=seeds, fixed=st.integers(0, 5), columns=st.integers(1, 9), first=st.integers(0, 3), more=st.integers(1, 3))
def test_columns_drawn_later_are_those_drawn_at_once(
    seed: int, fixed: int, columns: int, first: int, more: int
) -> None:
    heads, pack = GrowingHeads(6, fixed, columns), (seed, 5, seed)
    early, late = first * heads.block, (first + more) * heads.block
    grown = ParameterBank(heads.shapes(early), 3)
    heads.initialise(grown, pack, 0, early)
    grown = grown.widened(heads.shapes(late))
    heads.initialise(grown, pack, early, late)
    whole = ParameterBank(heads.shapes(late), 3)
    heads.initialise(whole, pack, 0, late)
    assert torch.equal(grown.values, whole.values) and (whole.view("heads.weight") != 0).all()
    assert torch.equal(whole.values[0], whole.values[2])
    alone = ParameterBank(heads.shapes(late), 1)
    heads.initialise(alone, (5,), 0, late)
    assert torch.equal(alone.values[0], whole.values[1])
    assert whole.view("heads.weight").abs().max() <= 6**-0.5


# --- in training


def replica(seed: int = 0, *, protocol: Protocol | None = None, **point: float) -> Replica:
    eager = {"patience": 1, "delta": 0.01, "tau": 1e-6, "min_bin": 8, "learning_rate": 3e-3}
    return Replica(
        dataset="eol",
        fingerprint="small-0",
        architecture=ARCHITECTURE,
        hyperparameters=Hyperparameters(**(eager | point)),  # type: ignore[arg-type]
        seed=seed,
        budget=Budget(epochs=12, probe_epochs=1, probes=1),
        protocol=protocol or Protocol(),
    )


def train(replicas: list[Replica], table: EncodedTable, capacity: int = 0) -> AdaptiveBinning:
    """Twelve epochs; with ``capacity`` the heads have that room from the start."""
    run = AdaptiveBinning(replicas, table)
    run.model.reserve(capacity)
    run._fit_heads()
    for _ in range(run.epochs):
        run.run_epoch()
    return run


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs on both paths."""
    with using(request.param):
        yield request.param


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("decay", [1e-5, 0.5])
def test_growing_late_equals_having_been_wide_all_along(decay: float, schedule: str) -> None:
    """Also where lr * wd > 3e-8: a column drawn late must have felt the decay of every step it missed."""
    table = small_table(n_numerical=9)  # blocks of 8 slots
    one = replica(weight_decay=decay, protocol=Protocol.from_dict({"pretrain_schedule": schedule}))
    late, early = train([one], table), train([one], table, capacity=64)
    assert late.model.heads.capacity > late.model.heads.block  # it did grow
    assert early.model.heads.capacity == 64 > late.model.heads.capacity
    rows = late.model.heads.rows(late.model.heads.capacity)
    for name in ("heads.weight", "heads.bias"):
        assert torch.equal(late.model.bank.view(name), early.model.bank.view(name)[:, :rows])
    for name in ("encoder.0.weight", "decoder.1.bias"):
        assert torch.equal(late.model.bank.view(name), early.model.bank.view(name))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("decay", "mate_decay"), [(1e-6, 0.5), (0.5, 1e-6), (0.5, 0.25)])
def test_an_unused_column_feels_every_decay_once_and_only_its_own(decay: float, mate_decay: float) -> None:
    table = small_table(n_numerical=9)
    run = train([replica(weight_decay=decay), replica(weight_decay=mate_decay, t_init=60, t_max=60)], table)
    heads, steps = run.model.heads, run.optimizer.step_count
    assert steps == 12 * 4
    first_unused = heads.rows(int(run.bins.n_bins[0].max()))
    untouched = ParameterBank(heads.shapes(heads.capacity), 1)
    heads.initialise(untouched, (0,), 0, heads.capacity)
    for name in ("heads.weight", "heads.bias"):
        expected = untouched.view(name)[0, first_unused:].clone()
        for _ in range(steps):
            expected *= np.float32(1 - 3e-3 * decay)
        found = run.model.bank.view(name)[0, first_unused:]
        assert len(found) and torch.equal(found, expected)
        assert torch.equal(found, untouched.view(name)[0, first_unused:]) == (decay == 1e-6)  # rounds to nothing


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("n_rows", "n_numerical", "cardinalities"),
    [(333, 3, (2,)), (402, 8, (2, 5)), (391, 5, ()), (405, 2, (2,)), (420, 7, (2, 5))],
    ids=["21 rows left", "1 row left", "58 rows left", "3 rows left", "12 rows left"],
)
def test_alone_equals_the_crowd_when_the_last_batch_is_odd(
    n_rows: int, n_numerical: int, cardinalities: tuple[int, ...]
) -> None:
    """Lengths that fill no vector reach other code in torch: bins of wider mates must still change no bit."""
    table = small_table(n_rows=n_rows, n_numerical=n_numerical, cardinalities=cardinalities)
    pack = [replica(3), replica(3, t_init=10, w_var=1.0), replica(11, t_max=5), replica(5, min_bin=2, t_max=40)]
    pack = [replace(one, budget=Budget(epochs=12, probe_epochs=1, probes=1)) for one in pack]
    crowd = train(pack, table)
    assert len({int(count.max()) for count in crowd.bins.n_bins}) > 1
    for r, one in enumerate(pack):
        alone = train([one], table)
        assert torch.equal(alone.bins.n_bins[0], crowd.bins.n_bins[r])
        assert torch.equal(alone.history["loss"][0], crowd.history["loss"][r])
        rows = alone.model.heads.rows(int(alone.bins.n_bins.max()))
        for name in alone.model.bank.shapes:
            mine, theirs = alone.model.bank.view(name)[0], crowd.model.bank.view(name)[r]
            assert torch.equal(mine[:rows], theirs[:rows]) if name.startswith("heads") else torch.equal(mine, theirs)
