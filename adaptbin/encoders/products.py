"""Affine maps whose sums do not depend on how many replicas there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from adaptbin import native

_UNIT = 8
"""Torch's CPU products round a replica the same alone and among others where all widths are multiples of this."""


class Parameters(dict[str, Tensor]):
    """Parameters [R, ...] by name, and for training where in the bank their gradients belong."""

    def __init__(self, values: Mapping[str, Tensor], gradients: Mapping[str, Tensor] | None = None) -> None:
        super().__init__(values)
        self.gradients: Mapping[str, Tensor] = gradients or {}
        """By name; empty in evaluation."""

    def within(self, prefix: str) -> Parameters:
        """Those whose names start with ``prefix`` and a dot, without it."""
        start = f"{prefix}."
        values, gradients = (
            {name.removeprefix(start): tensor for name, tensor in held.items() if name.startswith(start)}
            for held in (self, self.gradients)
        )
        return Parameters(values, gradients)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [R, B, in], weight [R, in, out] -> [R, B, out].

    Narrower widths are filled up with zeros, so that this and both gradients are bit for bit the same for a replica
    alone and in any stack, on a CPU core.
    """
    d_in, d_out = weight.shape[1:]
    more_in, more_out = -d_in % _UNIT, -d_out % _UNIT
    if more_in or more_out:
        weight = functional.pad(weight, (0, more_out, 0, more_in))
    if more_in:
        x = functional.pad(x, (0, more_in))
    out = torch.bmm(x, weight)
    return out[..., :d_out] if more_out else out


def linear(name: str, x: Tensor, parameters: Parameters) -> Tensor:
    """x [R, B, in] times ``<name>.weight`` [R, in, out] plus ``<name>.bias`` [R, out] -> [R, B, out].

    By compiled kernels where they serve: in training they write the gradients where these belong, so **a layer may be
    used once in a forward pass**.
    """
    return _affine(x, _layer(name, parameters), None, 1.0)


def two_layers(
    names: tuple[str, str], x: Tensor, parameters: Parameters, kept: Tensor | None, probability: float
) -> Tensor:
    """Linear -> ReLU -> Dropout -> Linear, each used once as in :func:`linear`.

    x [R, B, in]; kept [R or 1, B, hidden] bool with the ``probability`` that a unit is dropped, or None -> [R, B, out].
    """
    first, second = (_layer(name, parameters) for name in names)
    scale = 1.0 if kept is None else 1.0 / (1.0 - probability)
    if _is_compiled(x, first, second):
        hidden: Tensor = _Hidden.apply(x, *first, kept)  # type: ignore[no-untyped-call]
        return _affine(hidden, second, hidden, scale)
    hidden = _affine(x, first, None, 1.0).relu()
    return _affine(hidden if kept is None else hidden * kept * scale, second, None, 1.0)


class _Layer(NamedTuple):
    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor | None
    bias_gradient: Tensor | None


def _layer(name: str, parameters: Parameters) -> _Layer:
    weight, bias = f"{name}.weight", f"{name}.bias"
    gradients = parameters.gradients
    return _Layer(parameters[weight], parameters[bias], gradients.get(weight), gradients.get(bias))


def _is_compiled(x: Tensor, *layers: _Layer) -> bool:
    """Whether kernels serve; in training they must know where gradients belong."""
    known = all(layer.weight_gradient is not None for layer in layers)
    return native.serves(x) and (known or not torch.is_grad_enabled())


def _affine(x: Tensor, layer: _Layer, gate: Tensor | None, scale: float) -> Tensor:
    """``scale`` x weight + bias.  ``gate``: x itself where it is a hidden layer's output, else None."""
    if _is_compiled(x, layer):
        out: Tensor = _Affine.apply(x, *layer, gate is not None, scale)  # type: ignore[no-untyped-call]
        return out
    return product(x if scale == 1.0 else x * scale, layer.weight) + layer.bias.unsqueeze(1)


def _readable(x: Tensor) -> Tensor:
    return x if x.stride(2) == 1 else x.contiguous()


def _backward(ctx: Any, gradient: Tensor, gated: bool, scale: float) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradient of the input, if it is needed, and those of the parameters, which are written into the bank."""
    x, weight = ctx.saved_tensors
    below = x.new_empty(x.shape) if ctx.needs_input_grad[0] else None
    into_weight, into_bias = ctx.into
    native.linear_backward(
        x,
        gradient.contiguous(),
        weight,
        scale,
        weight_gradient=into_weight,
        bias_gradient=into_bias,
        gated=gated,
        below=below,
    )
    return below, into_weight, into_bias


class _Affine(torch.autograd.Function):
    """An affine map by compiled kernels."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        weight_gradient: Tensor | None,
        bias_gradient: Tensor | None,
        gated: bool,
        scale: float,
    ) -> Tensor:
        x = _readable(x)
        out = x.new_empty(*x.shape[:2], weight.shape[2])
        native.linear_forward(x, weight, bias.unsqueeze(1), scale, hidden=False, kept=None, out=out)
        ctx.save_for_backward(x, weight)
        ctx.into, ctx.gated, ctx.scale = (weight_gradient, bias_gradient), gated, scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return *_backward(ctx, gradients[0], ctx.gated, ctx.scale), None, None, None, None


class _Hidden(torch.autograd.Function):
    """An affine map, ReLU and dropped units by compiled kernels; what follows must pass its gradient gated."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        weight_gradient: Tensor | None,
        bias_gradient: Tensor | None,
        kept: Tensor | None,
    ) -> Tensor:
        x = _readable(x)
        out = x.new_empty(*x.shape[:2], weight.shape[2])
        native.linear_forward(x, weight, bias.unsqueeze(1), 1.0, hidden=True, kept=kept, out=out)
        ctx.save_for_backward(x, weight)
        ctx.into = (weight_gradient, bias_gradient)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return *_backward(ctx, gradients[0], False, 1.0), None, None, None
