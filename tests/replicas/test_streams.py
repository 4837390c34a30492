"""Random streams: named, independent, the same for every pack, and never the global generator."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.replicas import streams
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import SeedIndex, kept_in_step, kept_units, mask_draws, row_order, stream
from tests.strategies import seeds

NAMES: list[tuple[str | int, ...]] = [
    ("init", "encoder"),
    ("init", "decoder"),
    ("init", "heads", "fixed"),
    ("init", "heads", "0"),
    ("init", "heads", "1"),
    ("probe", 0, "init"),
    ("probe", 1, "init"),
    ("bootstrap",),
]


def numbers(seed: int, *names: str | int) -> list[float]:
    return torch.rand(8, generator=stream(seed, *names)).tolist()


@given(seed=seeds)
def test_one_name_gives_the_same_numbers_again_and_others_give_others(seed: int) -> None:
    found = [numbers(seed, *names) for names in NAMES]
    assert found == [numbers(seed, *names) for names in reversed(NAMES)][::-1]
    found += [numbers(seed + 1, *names) for names in NAMES]
    assert all(a != b for a, b in itertools.combinations(found, 2))


@pytest.mark.parametrize(
    ("seed", "names", "state"),
    [
        (9, ("init", "heads", "fixed"), 1475149594118904456),
    ],
)
def test_the_derivation_of_streams_is_fixed(seed: int, names: tuple[str | int, ...], state: int) -> None:
    """Another derivation would give every finished replica another number under the same id."""
    assert stream(seed, *names).initial_seed() == state


def test_streams_of_neighbouring_seeds_and_epochs_are_uncorrelated() -> None:
    rows = torch.stack([torch.rand(2000, generator=stream(s, "dropout", e)) for s in range(4) for e in range(4)])
    correlation = torch.corrcoef(rows) - torch.eye(16)
    assert correlation.abs().max() < 0.1  # 4.5 standard deviations
    assert (rows.mean(1) - 0.5).abs().max() < 0.03


def drawn(seed: int, name: str, epoch: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Key of one stream and the epoch, as the draws take them."""
    return stream_keys([(seed, name)]), torch.tensor(epoch)


def test_nothing_reads_or_moves_the_global_generator() -> None:
    def draw() -> list[torch.Tensor]:
        at = drawn(1, "x", 2)
        in_step = kept_in_step(*at, torch.tensor(4), 1, 30, 8, 0.1)
        return [row_order(*at, 30), kept_units(*at, 3, 30, 8, 0.1), in_step, *mask_draws(*at, 30, 4, 8)]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = draw()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(first, draw(), strict=True))


@given(seed=seeds, epoch=st.integers(0, 1000), n_rows=st.integers(2, 200))
def test_the_row_order_is_a_permutation(seed: int, epoch: int, n_rows: int) -> None:
    assert row_order(*drawn(seed, "order", epoch), n_rows)[0].sort().values.tolist() == list(range(n_rows))


def test_orders_change_from_epoch_to_epoch() -> None:
    assert len({tuple(row_order(*drawn(0, "order", epoch), 50)[0].tolist()) for epoch in range(20)}) == 20


def test_every_place_of_an_order_is_equally_likely() -> None:
    keys = stream_keys([(seed, "order") for seed in range(4000)])
    orders = row_order(keys, torch.tensor(0), 8)
    counts = torch.stack([(orders == row).double().mean(0) for row in range(8)])
    assert (counts - 1 / 8).abs().max() < 0.025  # 4.8 standard deviations


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5, 0.999999])
def test_dropout_keeps_its_share(drop: float) -> None:
    (kept,) = kept_units(*drawn(4, "dropout", 7), 3, 500, 64, drop)
    assert kept.shape == (3, 500, 64) and kept.dtype is torch.bool
    for layer in kept.float():
        assert abs(float(layer.mean()) - (1 - drop)) < 0.01
    if 0 < drop < 0.9:
        assert not torch.equal(kept[0], kept[1])


@given(seed=seeds, width=st.integers(1, 9), drop=st.floats(0, 1, exclude_max=True))
def test_a_word_decides_four_units_from_its_low_part_up(seed: int, width: int, drop: float) -> None:
    """By numpy alone: unit i is kept iff the i-th 16-bit part is at least drop * 65536, rounded."""
    keys, epoch = drawn(seed, "dropout", 5)
    key = keys[0].numpy().view(np.uint64)
    raw = np.random.Philox(key=key, counter=np.array([0, 0, 0, 5], dtype=np.uint64)).random_raw(2 * 7 * width)
    expected = raw.astype("<u8").view("<u2")[: 2 * 7 * width] >= min(round(drop * 65536), 65535)
    kept = kept_units(keys, epoch, 2, 7, width, drop)
    np.testing.assert_array_equal(kept.flatten().numpy(), expected)


@pytest.mark.parametrize("drop", [0.1, 0.5])
def test_units_of_a_step_differ_by_step_site_epoch_and_seed(drop: float) -> None:
    keys = stream_keys([(seed, "dropout", "encoder") for seed in range(2)])
    drawn_at = [
        kept
        for epoch, step, site in itertools.product(range(2), range(3), range(2))
        for kept in kept_in_step(keys, torch.tensor(epoch), torch.tensor(step), site, 50, 40, drop)
    ]
    assert len(drawn_at) == 24 and all(kept.shape == (50, 40) for kept in drawn_at)
    assert all(abs(float(kept.float().mean()) - (1 - drop)) < 0.05 for kept in drawn_at)
    flat = torch.stack(drawn_at).double().flatten(1)
    assert (torch.corrcoef(flat) - torch.eye(24)).abs().max() < 0.12  # 5 standard deviations
    alone = kept_in_step(keys[1:], torch.tensor(1), torch.tensor(2), 1, 50, 40, drop)
    assert torch.equal(alone[0], drawn_at[-1])


@settings(deadline=None)
@given(
    seed=seeds,
    n_rows=st.integers(1, 60),
    n_columns=st.integers(1, 5),
    batch_size=st.integers(1, 70),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
)
def test_mask_draws(seed: int, n_rows: int, n_columns: int, batch_size: int, low: float, high: float) -> None:
    (uniform,), (source,) = mask_draws(*drawn(seed, "corruption"), n_rows, n_columns, batch_size)
    low, high = sorted((low, high))
    assert ((uniform >= 0) & (uniform < 1)).all()
    assert not ((uniform < low) & ~(uniform < high)).any()  # a larger p_m masks a superset
    for start in range(0, n_rows, batch_size):
        batch = torch.arange(start, min(start + batch_size, n_rows))
        # A permutation of the batch in every column.
        assert torch.equal(source[batch].sort(0).values, batch[:, None].expand(-1, n_columns))


@given(pack=st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True), at_once=st.integers(1, 50))
def test_streams_drawn_together_are_those_drawn_alone(pack: list[int], at_once: int) -> None:
    keys, epoch = stream_keys([(seed, "x") for seed in pack]), torch.tensor(3)
    with mock.patch.object(streams, "_WORDS_AT_ONCE", at_once):
        kept = kept_units(keys, epoch, 2, 5, 3, 0.3)
    together = [row_order(keys, epoch, 21), kept, *mask_draws(keys, epoch, 21, 3, 8)]
    for s, seed in enumerate(pack):
        at = drawn(seed, "x", 3)
        alone = [row_order(*at, 21), kept_units(*at, 2, 5, 3, 0.3), *mask_draws(*at, 21, 3, 8)]
        assert all(torch.equal(a[s], b[0]) for a, b in zip(together, alone, strict=True))


def test_columns_are_permuted_independently_and_of_what_is_masked() -> None:
    (uniform,), (source,) = mask_draws(*drawn(0, "corruption"), 4000, 3, 4000)
    moves = torch.cat([source.double(), uniform.double()], 1).t()
    assert (torch.corrcoef(moves) - torch.eye(6)).abs().max() < 0.08  # 5 standard deviations
    assert (uniform < 0.3).double().mean().item() == pytest.approx(0.3, abs=0.02)


@given(pack=st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_replicas_of_one_seed_share_one_draw(pack: list[int]) -> None:
    index = SeedIndex.of(pack)
    assert index.seeds == tuple(dict.fromkeys(pack))
    spread = index.spread(torch.tensor(index.seeds)[:, None])
    assert spread.expand(len(pack), 1).flatten().tolist() == pack
    assert len(spread) == (1 if len(set(pack)) == 1 else len(pack))
    among = SeedIndex.of(pack, among=range(5))  # a stack of a larger pack
    assert among.seeds == (0, 1, 2, 3, 4)
    assert torch.equal(among.spread(torch.arange(5)[:, None]), spread)
