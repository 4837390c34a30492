"""Masking against the twin, and what the draws behind it promise."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.pretext.corruption import corrupt
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import MaskDraws, SeedIndex, mask_draws
from tests.reference import corruption as twin
from tests.strategies import seeds

KINDS = [("none", 0.0), ("constant", 0.3), ("random", 0.3), ("random", 0.9), ("constant", 0.05)]


def stacked_draws(pack_seeds: tuple[int, ...], n_rows: int, n_columns: int, batch_size: int) -> MaskDraws:
    """[S, N, F] each, as pretraining makes them."""
    keys = stream_keys([(seed, "corruption") for seed in pack_seeds])
    return mask_draws(keys, torch.tensor(4), n_rows, n_columns, batch_size)


@settings(deadline=None)
@given(seed=seeds, n_rows=st.integers(1, 30), n_columns=st.integers(1, 4), batch_size=st.integers(1, 12))
def test_every_batch_of_every_replica_is_the_twins(seed: int, n_rows: int, n_columns: int, batch_size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    index = SeedIndex.of([7, 7, 8, 8, 7])
    inputs = torch.randn(2, n_rows, n_columns, generator=generator)
    draws = stacked_draws(index.seeds, n_rows, n_columns, batch_size)
    probability = torch.tensor([p for _, p in KINDS])
    takes_row = torch.tensor([kind == "random" for kind, _ in KINDS])
    corrupted = corrupt(*(index.spread(part) for part in (inputs, draws.uniform, draws.source)), probability, takes_row)
    for r, (kind, p) in enumerate(KINDS):
        s = int(index.of_replica[r])
        for start in range(0, n_rows, batch_size):
            rows = slice(start, start + batch_size)
            mask = (draws.uniform[s, rows] < p).numpy()
            source = draws.source[s, rows].numpy() - start
            expected = twin.corrupt(inputs[s, rows].numpy(), mask, kind, source)
            assert torch.equal(corrupted[r, rows], torch.from_numpy(expected))


def test_replicas_of_one_seed_may_share_one_draw() -> None:
    draws = stacked_draws((3,), 50, 4, 16)
    inputs = torch.randn(1, 50, 4, generator=torch.Generator().manual_seed(0))
    probability, takes_row = torch.tensor([0.0, 0.5, 0.5]), torch.tensor([False, True, False])
    shared = corrupt(inputs, draws.uniform, draws.source, probability, takes_row)
    assert shared.shape == (3, 50, 4) and torch.equal(shared[0], inputs[0])
    for r in range(3):
        alone = corrupt(inputs, draws.uniform, draws.source, probability[[r]], takes_row[[r]])
        assert torch.equal(alone[0], shared[r])


def test_constant_sets_zero_and_keeps_the_rest() -> None:
    inputs = torch.arange(1.0, 81.0).view(1, 20, 4)
    draws = stacked_draws((0,), 20, 4, 20)
    masked = corrupt(inputs, draws.uniform, draws.source, torch.tensor([0.4]), torch.tensor([False]))
    hit = draws.uniform < 0.4
    assert 0 < hit.sum() < hit.numel()
    assert (masked[hit] == 0).all() and torch.equal(masked[~hit], inputs[~hit])


def test_a_larger_probability_masks_a_superset_with_the_same_values() -> None:
    inputs = torch.arange(1.0, 401.0).view(1, 100, 4)  # all different, none 0
    draws = stacked_draws((5,), 100, 4, 32)
    for takes_row in (False, True):
        few, many = (
            corrupt(inputs, draws.uniform, draws.source, torch.tensor([p]), torch.tensor([takes_row]))
            for p in (0.1, 0.3)
        )
        changed = few != inputs
        assert torch.equal(few[changed], many[changed])
        assert changed.sum() < (many != inputs).sum()


def test_random_values_come_from_the_same_column_of_the_same_batch() -> None:
    n_rows, batch_size = 70, 16
    inputs = (torch.arange(n_rows)[:, None] + 1000.0 * torch.arange(3)).unsqueeze(0)
    draws = stacked_draws((2,), n_rows, 3, batch_size)
    mixed = corrupt(inputs, draws.uniform, draws.source, torch.tensor([0.999]), torch.tensor([True]))[0]
    for start in range(0, n_rows, batch_size):
        rows = slice(start, min(start + batch_size, n_rows))
        for column in range(3):
            assert set(mixed[rows, column].tolist()) <= set(inputs[0, rows, column].tolist())
