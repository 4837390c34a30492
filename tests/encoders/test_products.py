"""Products of any width: right, and the same for a replica alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adaptbin.encoders.products import linear, product
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


def test_an_affine_map_is_torchs() -> None:
    x, weight, bias = drawn(0, (2, 5, 3), (2, 3, 4), (2, 4))
    out = linear("a", x, {"a.weight": weight, "a.bias": bias})
    for r in range(2):
        torch.testing.assert_close(out[r], torch.nn.functional.linear(x[r], weight[r].t(), bias[r]))
