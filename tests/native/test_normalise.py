"""Batch normalisation by compiled kernels: right, and the same bits whoever asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin import native
from tests.paths import switched, usable_sets, using
from tests.strategies import seeds

EPSILON = 1e-5
FLOAT32_ROUNDING = torch.finfo(torch.float32).eps

pytestmark = pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    """Whatever the switch says."""
    with using("compiled"):
        yield


@st.composite
def cases(draw: st.DrawFn) -> list[Tensor]:
    """Pieces [R, G, S, C], weight and bias [R, 1, 1, C] as views of wider rows, and a gradient."""
    replicas, ghosts, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 40))
    width = draw(st.integers(1, 40) | st.sampled_from([64, 100]))
    generator = torch.Generator().manual_seed(draw(seeds))
    wide = torch.randn(2, replicas, width + 7, generator=generator)
    weight, bias = (row[:, 3 : 3 + width].view(replicas, 1, 1, width) for row in wide)
    pieces, gradient = torch.randn(2, replicas, ghosts, rows, width, generator=generator)
    return [3 * pieces + 1, weight, bias, gradient]


def both_ways(case: list[Tensor]) -> list[Tensor]:
    pieces, weight, bias, gradient = case
    found = native.normalise_forward(pieces, weight, bias, EPSILON)
    return [*found, *native.normalise_backward(gradient, found.scaled, weight, found.inverse)]


@settings(deadline=None)
@given(case=cases())
def test_it_is_autograds_in_float64(case: list[Tensor]) -> None:
    pieces, weight, bias, gradient = (tensor.double() for tensor in case)
    leaves = [tensor.expand_as(pieces).clone().requires_grad_() for tensor in (pieces, weight, bias)]
    mean = leaves[0].mean(2, keepdim=True)
    variance = (leaves[0] - mean).square().mean(2, keepdim=True)
    scaled = (leaves[0] - mean) / (variance + EPSILON).sqrt()
    out = scaled * leaves[1] + leaves[2]
    below, of_weight, of_bias = torch.autograd.grad(out, leaves, gradient)
    expected = [out, mean, variance, (variance + EPSILON) ** -0.5, scaled]
    expected += [below, of_weight.sum(2, keepdim=True), of_bias.sum(2, keepdim=True)]
    # What float32 can know: a row's distance from the mean is off by a rounding of the row itself, which
    # counts the more, the smaller the deviation. Two rows that nearly agree lose most of their digits.
    inverse, rows = expected[3], pieces.shape[2]
    largest = pieces.abs().amax(2, keepdim=True)
    lost = 1 + largest * inverse
    push = (gradient * weight).abs().amax(2, keepdim=True)
    sizes = [lost * weight.abs() + bias.abs(), largest, largest.square(), inverse * lost, lost]
    sizes += [push * inverse * lost, rows * gradient.abs().amax(2, keepdim=True) * lost]
    sizes += [rows * gradient.abs().amax(2, keepdim=True)]
    for ours, theirs, size in zip(both_ways(case), expected, sizes, strict=True):
        assert bool(((ours - theirs).abs() <= 16 * FLOAT32_ROUNDING * size).all())


@settings(deadline=None)
@given(case=cases())
def test_every_instruction_set_gives_the_same_bits(case: list[Tensor]) -> None:
    found = []
    for name in usable_sets():
        with switched(name):
            found.append(both_ways(case))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@settings(deadline=None)
@given(case=cases())
def test_a_replica_alone_equals_its_slice(case: list[Tensor]) -> None:
    together = both_ways(case)
    for r in range(len(case[0])):
        pieces, weight, bias, gradient = (tensor[r : r + 1] for tensor in case)
        alone = both_ways([pieces.contiguous(), weight, bias, gradient.contiguous()])
        assert all(torch.equal(single[0], every[r]) for single, every in zip(alone, together, strict=True))
