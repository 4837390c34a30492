"""Losses of the baseline pretexts against their twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptbin.pretext.baselines import mask_cross_entropy_, squared_error_
from tests.reference import baselines as twin
from tests.reference.autoencoder import squared_error
from tests.strategies import seeds


@pytest.mark.parametrize(
    ("loss_", "expected"), [(squared_error_, squared_error), (mask_cross_entropy_, twin.mask_cross_entropy)]
)
@settings(deadline=None)
@given(
    seed=seeds,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 9)),
    more=st.integers(0, 7),
    lacking=st.booleans(),
)
def test_loss_and_gradient_are_the_twins(
    loss_: Callable[..., Any],
    expected: Callable[..., Any],
    seed: int,
    shape: tuple[int, int, int],
    more: int,
    lacking: bool,
) -> None:
    """Also with columns past those of the table, which take part in nothing, and with weights of entries."""
    replicas, rows, columns = shape
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(replicas, rows, columns + more, generator=generator) * 3
    target = torch.randn(replicas, rows, columns, generator=generator)
    if loss_ is mask_cross_entropy_:
        target = (target > 0).float()
    given_output = output.clone()
    entries = torch.randint(3, (1, rows, columns), generator=generator) / 2 if lacking else None
    losses = loss_(output, target, columns, entries)
    assert losses.shape == (replicas,)
    for r in range(replicas):
        weights = None if entries is None else entries[0].numpy()
        loss, gradient = expected(given_output[r, :, :columns].numpy(), target[r].numpy(), weights)
        assert float(losses[r]) == pytest.approx(loss, rel=1e-5, abs=1e-6)
        np.testing.assert_allclose(output[r, :, :columns], gradient, rtol=1e-5, atol=1e-6)
        assert not output[r, :, columns:].any()


def test_a_target_may_be_shared_by_all_replicas() -> None:
    output = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    target = torch.ones(1, 4, 5)
    each = squared_error_(output.clone(), target.expand(3, -1, -1), 5)
    assert torch.equal(squared_error_(output, target, 5), each)


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_sure_mask_costs_what_it_is_wrong_by(logit: float) -> None:
    for drawn in (0.0, 1.0):
        output = torch.full((1, 1, 1), logit)
        loss = mask_cross_entropy_(output, torch.full((1, 1, 1), drawn), 1)
        assert float(loss) == (abs(logit) if (logit > 0) != bool(drawn) else 0.0)
        assert float(output) == float(logit > 0) - drawn
