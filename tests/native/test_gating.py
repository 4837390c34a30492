"""Gated units of the compiled kernels: torch's own numbers, with and without dropout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin import native
from adaptbin.encoders.attention import reglu
from tests.paths import switched, usable_sets, using
from tests.strategies import seeds

pytestmark = pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")

PROBABILITY = 0.1


def both_ways(x: Tensor, kept: Tensor | None, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """The gated units, and the gradient of ``x``."""
    leaf = x.clone().requires_grad_()
    out = reglu(leaf, kept, PROBABILITY)
    (gradient,) = torch.autograd.grad(out, leaf, upstream)
    return out.detach(), gradient


@settings(max_examples=100)
@given(
    seed=seeds, sizes=st.tuples(*[st.integers(1, 4)] * 3, st.integers(1, 70)), masks=st.sampled_from([None, 1, "all"])
)
def test_every_set_gives_the_numbers_of_the_plain_path(
    seed: int, sizes: tuple[int, ...], masks: int | str | None
) -> None:
    replicas, rows, tokens, units = sizes
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(replicas, rows, tokens, 2 * units, generator=generator)
    upstream = torch.randn(replicas, rows, tokens, units, generator=generator)
    kept = None
    if masks is not None:
        # A part of something wider, as masks of many sites may be.
        drawn = torch.rand(1 if masks == 1 else replicas, 2, rows, tokens * units, generator=generator)
        kept = drawn[:, 1] > PROBABILITY
    with using("plain"):
        out, gradient = both_ways(x, kept, upstream)
    # Kernels write 0 where a product with 0 may be -0: equal, though not the same bits.
    for name in usable_sets():
        with switched(name):
            assert native.instruction_set() == name
            found, below = both_ways(x, kept, upstream)
            assert torch.equal(found, out) and torch.equal(below, gradient)


@pytest.mark.parametrize("half", [0, 1])
def test_what_is_not_a_number_stays_in_its_unit(half: int) -> None:
    x = torch.ones(2, 3, 1, 40)
    x[1, 2, 0, 20 * half + 7] = torch.nan
    with using("compiled"):
        out, gradient = both_ways(x, None, torch.ones(2, 3, 1, 20))
    assert out.isnan().sum() == 1 and out[1, 2, 0, 7].isnan()
    assert gradient.isnan().any() and not gradient[0].isnan().any() and not gradient[1, :2].isnan().any()
