"""Attention over stacked replicas: one fused call where nothing is dropped, and what it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from adaptbin.encoders.attention import attend
from adaptbin.encoders.base import ReplicaEncoder
from adaptbin.encoders.ft_transformer import FTTransformerConfig, FTTransformerEncoder
from adaptbin.encoders.t2g_former import T2GFormerConfig, T2GFormerEncoder
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, masks, upstream

ROWS, HEADS = 5, 2
TOKENS = MIXED.inputs + 1

Shapes = list[tuple[tuple[int, ...], ...]]
"""Of query, key and value of every call."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shapes]:
    """Calls of torch's attention from here on."""
    found: Shapes = []
    original = functional.scaled_dot_product_attention

    def counted(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        found.append((tuple(query.shape), tuple(key.shape), tuple(value.shape)))
        return original(query, key, value, attn_mask=attn_mask)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    yield found


def ft_transformer() -> ReplicaEncoder:
    return FTTransformerEncoder(MIXED, FTTransformerConfig(n_blocks=3, d_block=16, attention_n_heads=HEADS))


def t2g_former() -> ReplicaEncoder:
    return T2GFormerEncoder(MIXED, T2GFormerConfig(n_blocks=3, d_block=16, attention_n_heads=HEADS))


def blocks(*leading: int) -> Shapes:
    """Of three blocks, in the last of which only the readout asks."""
    key = (*leading, HEADS, TOKENS, 8)
    return [((*leading, HEADS, queries, 8), key, key) for queries in (TOKENS, TOKENS, 1)]


@pytest.mark.parametrize("build", [ft_transformer, t2g_former])
def test_evaluation_makes_one_call_per_block_over_all_replicas_and_rows(
    build: Callable[[], ReplicaEncoder], calls: Shapes
) -> None:
    encoder = build()
    bound(encoder)
    encoder.evaluate(inputs(MIXED, ROWS))
    assert calls == blocks(REPLICAS * ROWS)


@pytest.mark.parametrize(
    ("build", "leading"), [(ft_transformer, (REPLICAS * ROWS,)), (t2g_former, (REPLICAS, ROWS))], ids=["ft", "t2g"]
)
def test_so_does_training_where_nothing_is_dropped(
    build: Callable[[], ReplicaEncoder], leading: tuple[int, ...], calls: Shapes
) -> None:
    """Replicas and rows are two axes where the offset of all rows has a gradient."""
    encoder = build()
    bound(encoder)
    x = inputs(MIXED, ROWS)
    encoder.forward(x, None)
    assert calls == blocks(*leading)
    encoder.backward(upstream(encoder, x), input_gradient=True)
    encoder.forward(x, masks(encoder, ROWS))
    assert calls == blocks(*leading), "torch's attention would drop weights that it draws itself"


def drawn(rows: int, queries: int, width: int, *, replicas: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key, value, and an offset that forbids a third of the scores; float32."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(replicas, rows, queries, HEADS * width, generator=generator)
    key, value = (torch.randn(replicas, rows, 7, HEADS * width, generator=generator) for _ in range(2))
    absent = torch.rand(replicas, HEADS, queries, 7, generator=generator) < 1 / 3
    return query, key, value, -1e4 * absent.float()


@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("queries", [7, 1])
@pytest.mark.parametrize("rows", [1, 6, 33])
@pytest.mark.parametrize("has_offset", [False, True])
def test_the_folded_call_is_the_equation_and_a_replica_alone_its_slice(
    has_offset: bool, rows: int, queries: int, width: int
) -> None:
    query, key, value, offset = drawn(rows, queries, width)
    given = offset if has_offset else None
    found = attend(query, key, value, heads=HEADS, offset=given)
    q, k, v = (x.double().unflatten(-1, (HEADS, width)).transpose(2, 3) for x in (query, key, value))
    scores = q @ k.transpose(-2, -1) / width**0.5 + (offset.double().unsqueeze(1) if has_offset else 0)
    expected = (scores.softmax(-1) @ v).transpose(2, 3).flatten(-2)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    for r in range(len(query)):
        mine = slice(r, r + 1)
        alone = attend(query[mine], key[mine], value[mine], heads=HEADS, offset=offset[mine] if has_offset else None)
        assert torch.equal(alone[0], found[r])


def test_an_offset_with_a_gradient_gives_the_same_and_gets_it() -> None:
    query, key, value, offset = drawn(6, 7, 8)
    leaf = offset.clone().requires_grad_()
    trained = attend(query, key, value, heads=HEADS, offset=leaf)
    torch.testing.assert_close(
        trained.detach(), attend(query, key, value, heads=HEADS, offset=offset), rtol=1e-6, atol=2e-6
    )
    trained.sum().backward()
    assert leaf.grad is not None and leaf.grad.shape == offset.shape and leaf.grad.any()
