"""Random streams: named, independent, the same for every pack, and never the global generator."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.replicas.streams import SeedIndex, kept_units, mask_draws, row_order, stream
from tests.strategies import seeds

NAMES: list[tuple[str | int, ...]] = [
    ("init", "encoder"),
    ("init", "decoder"),
    ("order", 0),
    ("order", 1),
    ("dropout", 0),
    ("corruption", 0),
    ("probe", 0, "init"),
    ("probe", 1, "init"),
    ("probe", 0, "order", 1),
    ("probe", 1, "order", 0),
]


def numbers(seed: int, *names: str | int) -> list[float]:
    return torch.rand(8, generator=stream(seed, *names)).tolist()


@given(seed=seeds)
def test_one_name_gives_the_same_numbers_again_and_others_give_others(seed: int) -> None:
    drawn = [numbers(seed, *names) for names in NAMES]
    assert drawn == [numbers(seed, *names) for names in reversed(NAMES)][::-1]
    drawn += [numbers(seed + 1, *names) for names in NAMES]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@pytest.mark.parametrize(
    ("seed", "names", "state"),
    [
        (0, ("order", 0), 3955691223199900983),
        (3, ("dropout", 12), 7087670249726103422),
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


def test_nothing_reads_or_moves_the_global_generator() -> None:
    def draw() -> list[torch.Tensor]:
        return [row_order(1, 2, 30), kept_units(1, 2, 3, 30, 8, 0.1), *mask_draws(1, 2, 30, 4, 8)]

    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = draw()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(first, draw(), strict=True))


@given(seed=seeds, epoch=st.integers(0, 1000), n_rows=st.integers(2, 200))
def test_the_row_order_is_a_permutation(seed: int, epoch: int, n_rows: int) -> None:
    assert row_order(seed, epoch, n_rows).sort().values.tolist() == list(range(n_rows))


def test_orders_change_from_epoch_to_epoch() -> None:
    assert len({tuple(row_order(0, epoch, 50).tolist()) for epoch in range(20)}) == 20


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5])
def test_dropout_keeps_its_share(drop: float) -> None:
    kept = kept_units(4, 7, 3, 500, 64, drop)
    assert kept.shape == (3, 500, 64) and kept.dtype is torch.bool
    for layer in kept.float():
        assert abs(float(layer.mean()) - (1 - drop)) < 0.01
    if drop:
        assert not torch.equal(kept[0], kept[1])


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
    draws = mask_draws(seed, 0, n_rows, n_columns, batch_size)
    low, high = sorted((low, high))
    assert ((draws.uniform >= 0) & (draws.uniform < 1)).all()
    assert not ((draws.uniform < low) & ~(draws.uniform < high)).any()  # a larger p_m masks a superset
    for start in range(0, n_rows, batch_size):
        batch = torch.arange(start, min(start + batch_size, n_rows))
        source = draws.source[batch]
        # A permutation of the batch in every column.
        assert torch.equal(source.sort(0).values, batch[:, None].expand(-1, n_columns))


def test_columns_are_permuted_independently_and_of_what_is_masked() -> None:
    uniform, source = mask_draws(0, 0, 4000, 3, 4000)
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
