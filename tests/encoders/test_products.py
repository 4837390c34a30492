"""Products of any width: right, and the same for a replica alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.encoders.products import Parameters, linear, product, two_layers
from adaptbin.replicas.parameters import ParameterBank
from tests.paths import BOTH, usable_sets, using
from tests.strategies import seeds

sizes = st.integers(1, 20)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@given(replicas=st.integers(1, 5), rows=st.integers(1, 150), d_in=sizes, d_out=sizes, seed=seeds)
def test_a_replica_alone_gets_the_same_bits(replicas: int, rows: int, d_in: int, d_out: int, seed: int) -> None:
    x, weight, upstream = drawn(seed, (replicas, rows, d_in), (replicas, d_in, d_out), (replicas, rows, d_out))
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    together = [product(x, weight), *torch.autograd.grad(product(x, weight), leaves, upstream)]
    torch.testing.assert_close(together[0], x @ weight)
    for r in range(replicas):
        mine = [leaf.detach()[r : r + 1].clone().requires_grad_() for leaf in leaves]
        out = product(*mine)
        alone = [out, *torch.autograd.grad(out, mine, upstream[r : r + 1].clone())]
        assert all(torch.equal(single[0], every[r]) for single, every in zip(alone, together, strict=True))


@pytest.mark.parametrize("way", BOTH)
def test_an_affine_map_is_torchs(way: str) -> None:
    x, weight, bias = drawn(0, (2, 5, 3), (2, 3, 4), (2, 4))
    with using(way):
        out = linear("a", x, Parameters({"a.weight": weight, "a.bias": bias}))
    for r in range(2):
        torch.testing.assert_close(out[r], torch.nn.functional.linear(x[r], weight[r].t(), bias[r]))


def trained(
    way: str, replicas: Sequence[int], kept: Tensor | None, rows: int, sizes: tuple[int, int, int]
) -> dict[str, Tensor]:
    """Output and all gradients of two layers on the way that is named, for some of three replicas."""
    d_in, hidden, d_out = sizes
    shapes = {"a.weight": (d_in, hidden), "a.bias": (hidden,), "b.weight": (hidden, d_out), "b.bias": (d_out,)}
    bank = ParameterBank(shapes, len(replicas))
    everyone = drawn(7, (3, rows, d_in), (3, rows, d_out), *((3, *shape) for shape in shapes.values()))
    x, upstream, *values = (tensor[list(replicas)] for tensor in everyone)
    for name, value in zip(shapes, values, strict=True):
        bank.view(name).copy_(value)
    leaves = {name: bank.view(name).detach().requires_grad_() for name in shapes}
    x.requires_grad_()
    with using(way):
        parameters = Parameters(leaves, {name: bank.gradient(name) for name in shapes})
        out = two_layers(("a", "b"), x, parameters, None if kept is None else kept[list(replicas)], 0.25)
        found = torch.autograd.grad(out, [x, *leaves.values()], upstream)
    in_place = [new.data_ptr() == bank.gradient(name).data_ptr() for name, new in zip(shapes, found[1:], strict=True)]
    assert all(in_place) if way == "compiled" else not any(in_place)
    return {"out": out.detach(), "x": found[0], **dict(zip(shapes, found[1:], strict=True))}


@pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")
@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (16, 32, 16)])
@pytest.mark.parametrize("is_dropped", [False, True])
def test_two_layers_are_the_same_on_both_ways_and_for_a_replica_alone(
    rows: int, sizes: tuple[int, int, int], is_dropped: bool
) -> None:
    kept = torch.rand(3, rows, sizes[1], generator=torch.Generator().manual_seed(1)) > 0.25 if is_dropped else None
    compiled, plain = (trained(way, range(3), kept, rows, sizes) for way in ("compiled", "plain"))
    for name, value in plain.items():
        torch.testing.assert_close(compiled[name], value, rtol=1e-4, atol=1e-5)
    for way, together in (("compiled", compiled), ("plain", plain)):
        for r in range(3):
            alone = trained(way, [r], kept, rows, sizes)
            if way == "compiled" or all(size % 8 == 0 for size in sizes):
                assert all(torch.equal(alone[name][0], together[name][r]) for name in alone)
