"""What both transformers are made of, for R replicas at once: affine maps, normalisation, dropout, attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from adaptbin import native
from adaptbin.encoders.products import Parameters, linear


def linear_tokens(name: str, x: Tensor, parameters: Parameters) -> Tensor:
    """x [R, B, T, in] times ``<name>.weight`` [R, in, out] plus ``<name>.bias`` [R, out] -> [R, B, T, out]."""
    return linear(name, x.flatten(1, 2), parameters).view(*x.shape[:3], -1)


def normalise(name: str, x: Tensor, parameters: Parameters) -> Tensor:
    """Layer normalisation of x [R, B, T, W] over W (Ba et al. 2016), with ``<name>.weight`` and ``.bias`` [R, W]."""
    weight, bias = (parameters[f"{name}.{what}"][:, None, None] for what in ("weight", "bias"))
    return torch.addcmul(bias, functional.layer_norm(x, x.shape[-1:]), weight)


def reglu(x: Tensor, kept: Tensor | None, probability: float) -> Tensor:
    """x [R, B, T, 2 H] -> a * relu(b) [R, B, T, H], where a is the first half of x and b the second (Shazeer 2020).

    Then dropout with the units ``kept`` [R or 1, B, T * H], or without any (None).
    """
    if native.serves(x):
        scale = 1.0 if kept is None else 1.0 / (1.0 - probability)
        units = None if kept is None else kept.reshape(len(kept), -1, x.shape[-1] // 2)
        gated: Tensor = _Gated.apply(x.flatten(1, 2), units, scale)  # type: ignore[no-untyped-call]
        return gated.view(*x.shape[:3], -1)
    first, gate = x.chunk(2, dim=-1)
    return drop(first * gate.relu(), kept, probability)


class _Gated(torch.autograd.Function):
    """Values times gates by compiled kernels: one pass each way, and nothing kept but the input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kept: Tensor | None, scale: float) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, kept)
        ctx.scale = scale
        return native.gate_forward(x, kept, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, kept = ctx.saved_tensors
        return native.gate_backward(x, kept, ctx.scale, gradients[0].contiguous()), None, None


def drop(x: Tensor, kept: Tensor | None, probability: float) -> Tensor:
    """Dropout of x [R, B, ..] with the units ``kept`` [R or 1, B, units of a row], or without any (None)."""
    if kept is None:
        return x
    return x * kept.reshape(*kept.shape[:2], *x.shape[2:]) * (1.0 / (1.0 - probability))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    heads: int,
    offset: Tensor | None = None,
    kept: Tensor | None = None,
    probability: float = 0.0,
) -> Tensor:
    """softmax(query key' / sqrt(W / heads) + offset) value, head by head (Vaswani et al. 2017, Eq. 1).

    query [R, B, Q, W], key and value [R, B, T, W], offset [R, heads, Q, T], the same for all rows; kept [R or 1, B,
    heads * Q * T]: attention weights that dropout keeps -> [R, B, Q, W].  On a CPU core a replica's are bit for bit the
    same alone and in any stack where W / heads is a multiple of 8; where it is not, in batches of more than one row.
    """
    query, key, value = (x.view(*x.shape[:3], heads, -1).transpose(2, 3) for x in (query, key, value))
    if kept is None and (offset is None or not offset.requires_grad):
        # R * B is the batch of one call, in the four axes that fused kernels ask for.  The offset is copied for every
        # row, and so is as large as the scores that these kernels need not keep.
        own = None if offset is None else offset.unsqueeze(1).expand(-1, query.shape[1], -1, -1, -1).flatten(0, 1)
        folded = functional.scaled_dot_product_attention(
            query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), attn_mask=own
        )
        return folded.view(query.shape).transpose(2, 3).flatten(-2)
    # In one piece, or one row of one replica would be multiplied in another layout, and rounded otherwise, than many.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    added = None if offset is None else offset.unsqueeze(1)
    if kept is None:
        # No fused kernel has a gradient for the offset: folded, it would be copied for nothing.
        result = functional.scaled_dot_product_attention(query, key, value, attn_mask=added)
    else:
        # Torch's attention drops weights that it draws itself.  Ours are given, so the weights are needed.
        scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
        weights = (scores if added is None else scores + added).softmax(-1)
        result = drop(weights, kept, probability) @ value
    return result.transpose(2, 3).flatten(-2)
