"""Splits: the released code's, row by row, and a partition whatever the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptbin.config import SPLIT_SEED
from adaptbin.data import CARDS, Split, Table, load_table, split_rows
from adaptbin.data.readers import parse_table
from adaptbin.data.table import make_table
from adaptbin.errors import DataError
from tests.data import toy

REAL = [key for key, card in CARDS.items() if not card.embedded]


def assert_partition(split: Split, n_rows: int) -> None:
    assert all(part.dtype == np.int64 for part in split)
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(n_rows))


@pytest.mark.parametrize("key", REAL)
def test_golden_split(key: str, real_table: Callable[[str], Table], golden_tables: dict[str, Any]) -> None:
    golden, split = golden_tables[key], split_rows(real_table(key), SPLIT_SEED)
    assert_partition(split, golden["rows"])
    for name, rows in split._asdict().items():
        assert rows.size == golden[f"n_{name}"]
        assert rows[:12].tolist() == golden[f"{name}_head"]
        assert rows.sum() == golden[f"{name}_index_sum"]


@pytest.mark.parametrize("seed", [0, 1, SPLIT_SEED + 9])
def test_any_seed_partitions_and_repeats(seed: int) -> None:
    table = load_table("diabetes")
    first, again, other = (split_rows(table, s) for s in (seed, seed, seed + 1))
    assert_partition(first, 442)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.test, other.test)
    assert [part.size for part in first] == [282, 71, 89]


@pytest.mark.parametrize("seed", [SPLIT_SEED, SPLIT_SEED + 1])
def test_no_subject_is_on_two_sides(seed: int, real_table: Callable[[str], Table]) -> None:
    table = real_table("pt")
    assert table.groups is not None
    split = split_rows(table, seed)
    assert_partition(split, 5875)
    subjects = [set(table.groups[rows]) for rows in split]
    assert [len(ids) for ids in subjects] == [27, 7, 8]
    assert len(set.union(*subjects)) == 42
    assert all((np.diff(rows) > 0).all() for rows in split)


def toy_table(n_rows: int, groups: list[float] | None = None) -> Table:
    table = parse_table(toy.CARD, toy.text().encode(), "toy")
    return make_table(
        toy.CARD,
        table.features[:n_rows],
        table.target[:n_rows],
        None if groups is None else pd.Series(groups, dtype="float64"),
    )


def test_groups_do_not_depend_on_the_order_of_rows() -> None:
    ids = [float(i // 4) for i in range(40)]
    straight, reverse = split_rows(toy_table(40, ids), 3), split_rows(toy_table(40, ids[::-1]), 3)
    for a, b in zip(straight, reverse, strict=True):
        assert {ids[i] for i in a} == {ids[::-1][i] for i in b}


def test_three_rows_are_the_least() -> None:
    assert [part.size for part in split_rows(toy_table(3), 0)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("table", "sizes"),
    [
        (toy_table(2), "train 2, val 0, test 0"),
        (toy_table(40, [1.0] * 20 + [2.0] * 20), "train 40, val 0, test 0"),
    ],
)
def test_a_part_without_rows(table: Table, sizes: str) -> None:
    with pytest.raises(DataError, match=f"toy: every part of the split must hold rows, got {sizes}"):
        split_rows(table, 0)
