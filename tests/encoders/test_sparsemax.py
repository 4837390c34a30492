"""Stacked sparsemax against its slow twin, with its gradient."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.encoders.sparsemax import sparsemax
from tests.reference import sparsemax as twin
from tests.strategies import seeds


@given(columns=st.integers(1, 12), spread=st.sampled_from([0.01, 1.0, 30.0]), offset=st.floats(-100, 100), seed=seeds)
def test_values_and_gradients_are_the_twins(columns: int, spread: float, offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, upstream = offset + spread * rng.normal(size=(2, 3, columns)), rng.normal(size=(2, 3, columns))
    leaf = torch.tensor(z, requires_grad=True)
    p = sparsemax(leaf)
    p.backward(torch.tensor(upstream))
    assert leaf.grad is not None
    for place in np.ndindex(2, 3):
        np.testing.assert_allclose(p[place].detach(), twin.sparsemax(z[place]), atol=1e-10)
        np.testing.assert_allclose(leaf.grad[place], twin.gradient(z[place], upstream[place]), atol=1e-10)


def test_ties_share_and_what_is_far_below_gets_nothing() -> None:
    z = torch.tensor([[2.0, 2.0, 2.0, -5.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    expected = [[1 / 3, 1 / 3, 1 / 3, 0.0], [0.25] * 4, [1.0, 0.0, 0.0, 0.0]]
    torch.testing.assert_close(sparsemax(z), torch.tensor(expected))


def test_rows_sum_to_1_where_entries_tie_at_the_threshold() -> None:
    """In float32 a rounded sum may take an entry for the first one outside, and its equals for the last inside."""
    second = -torch.rand(500, 1, generator=torch.Generator().manual_seed(0))
    threshold = (second - 1) / 2
    p = sparsemax(torch.cat([torch.zeros_like(second), second, threshold, threshold], dim=1))
    torch.testing.assert_close(p, torch.cat([-threshold, second - threshold, 0 * p[:, 2:]], dim=1))


def test_large_entries_lose_no_digits() -> None:
    z = torch.tensor([[0.5, 0.25, -0.25, -2.0]])
    assert torch.equal(sparsemax(z + 2.0**20), sparsemax(z))
    assert sparsemax(z * 1e30).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_a_row_without_numbers_has_none_and_spares_the_others() -> None:
    z = torch.tensor([[1.0, 0.5, -1.0], [float("nan"), 0.0, 0.0], [float("inf"), 0.0, 1.0]])
    p = sparsemax(z)
    assert p[1:].isnan().any(dim=1).all()
    assert torch.equal(p[:1], sparsemax(z[:1]))
