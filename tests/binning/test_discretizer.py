"""FWA: edges against the twin and the released code's, and what no padding or refinement may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.binning.discretizer import assign, initial_bins, quantile_edges
from adaptbin.data import Table, encode
from adaptbin.errors import ConfigError
from tests.reference import discretizer as twin
from tests.strategies import BinnedCase, binned_cases

DATA_SETS = ("ilpd", "hfc", "ctg", "esr", "eol", "mhr", "pt", "bfp")


def padded(inner: np.ndarray, slots: int) -> np.ndarray:
    """[slots + 1] edges of the library from inner edges of the twin."""
    edges = np.full(slots + 1, np.inf)
    edges[0] = -np.inf
    edges[1 : 1 + len(inner)] = inner
    return edges


@settings(deadline=None)
@given(case=binned_cases(), t_init=st.integers(2, 12))
def test_first_edges_are_the_twins(case: BinnedCase, t_init: int) -> None:
    for column in case.values.T:
        edges, expected = quantile_edges(column, t_init), twin.initial_edges(column, t_init)
        assert edges.dtype == np.float64 and len(edges) < t_init and (np.diff(edges) > 0).all()
        if len(np.unique(column)) <= t_init:
            np.testing.assert_array_equal(edges, expected)  # one bin per value
        else:
            # Numpy rounds positions, so equal percentiles of tied values may come out a few 1e-16 apart.
            distance = np.abs(edges[:, None] - expected)
            assert distance.min(0).max() < 1e-12 and distance.min(1).max() < 1e-12


@pytest.mark.parametrize(
    ("values", "t_init", "edges"),
    [
        ([3.0, 1.0, 2.0, 4.0], 2, [2.5]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 4, [2.0, 3.0, 4.0]),
        ([0.0, 0.0, 0.0, 0.0, 7.0, 8.0], 2, [0.0]),  # the median is the minimum: bin 0 is empty and still counts
        ([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0], 4, [0.0, 2.0]),  # repeated percentiles collapse
        ([5.0, 5.0, 9.0], 2, [9.0]),  # as many values as bins: one bin each
        ([1.0, 2.0, 2.0, 3.0], 10, [2.0, 3.0]),
        ([4.0, 4.0], 2, []),
    ],
)
def test_first_edges_by_hand(values: list[float], t_init: int, edges: list[float]) -> None:
    assert quantile_edges(np.array(values, np.float32), t_init).tolist() == edges


@pytest.mark.parametrize("t_init", [2, 10])
@pytest.mark.parametrize("dataset", DATA_SETS)
def test_first_edges_of_the_real_tables(
    dataset: str, t_init: int, real_table: Callable[[str], Table], golden_tables: dict[str, Any]
) -> None:
    table = encode(real_table(dataset))
    expected = golden_tables[dataset][f"inner_edges_T{t_init}"]
    train = table.inputs[table.train, : table.n_numerical].numpy()
    assert list(expected) == list(table.numerical_names[: len(expected)]) and len(expected) == min(
        16, table.n_numerical
    )
    for d, inner in enumerate(expected.values()):
        np.testing.assert_allclose(quantile_edges(train[:, d], t_init), inner, rtol=0, atol=3e-6)


@settings(deadline=None)
@given(case=binned_cases(), points=st.lists(st.tuples(st.integers(2, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_every_replica_gets_its_own_bins_and_room_changes_nothing(
    case: BinnedCase, points: list[tuple[int, int]]
) -> None:
    values = torch.from_numpy(case.values)
    t_init, t_max = [t for t, _ in points], [t + room for t, room in points]
    bins = initial_bins(values, t_init, t_max)
    slots = max(t_max)
    assert bins.edges.shape == (len(points), values.shape[1], slots + 1) and bins.edges.dtype is torch.float64
    for r, t in enumerate(t_init):
        for d in range(values.shape[1]):
            inner = quantile_edges(case.values[:, d], t)
            np.testing.assert_array_equal(bins.edges[r, d], padded(inner, slots))
            assert bins.n_bins[r, d] == len(inner) + 1 <= t


def test_more_first_bins_than_allowed_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"t_init must be at most t_max \(3\), got 4"):
        initial_bins(torch.zeros(5, 1), [2, 4], [200, 3])


@settings(deadline=None)
@given(case=binned_cases(), extra=st.integers(0, 5))
def test_assignment(case: BinnedCase, extra: int) -> None:
    slots = max(len(inner) for inner in case.edges) + 1 + extra
    edges = torch.tensor(np.stack([padded(inner, slots) for inner in case.edges]))
    values = torch.from_numpy(case.values).t()
    bins = assign(values, edges)
    assert bins.dtype is torch.int64
    for d, inner in enumerate(case.edges):
        np.testing.assert_array_equal(bins[d], twin.assign(case.values[:, d], inner))
        counts = torch.bincount(bins[d], minlength=slots)
        assert counts.sum() == len(case.values) and counts[len(inner) + 1 :].sum() == 0
        order = values[d].argsort()
        assert (bins[d][order].diff() >= 0).all()  # monotone in the value


def test_a_value_on_an_edge_belongs_to_the_right_and_edges_are_compared_in_float64() -> None:
    value = np.float32(0.1)
    above = np.nextafter(float(value), 1.0)  # no float32 lies between
    edges = torch.tensor([[-np.inf, float(value), np.inf], [-np.inf, above, np.inf]])
    bins = assign(torch.full((2, 1), float(value)), edges)
    assert bins.flatten().tolist() == [1, 0]
