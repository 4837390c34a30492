"""Stacked multilayer perceptrons with hand-written gradients that go straight into the flat buffer.

The models are so small that autograd's bookkeeping and fresh activations would cost as much as the products.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptbin import native
from adaptbin.errors import ShapeError
from adaptbin.replicas.parameters import ParameterBank, uniform_
from adaptbin.replicas.products import add_product


class ReplicaMLP:
    """R perceptrons: ``hidden`` x (Linear -> ReLU -> Dropout), then one plain Linear (method, Sec. 1).

    Weights ``<name>.<i>.weight`` [R, in, out] and biases ``<name>.<i>.bias`` [R, out] live in a
    :class:`ParameterBank` whose shapes include :meth:`shapes`.
    """

    def __init__(self, name: str, sizes: Sequence[int], dropout: float) -> None:
        self.name = name
        self.sizes = tuple(sizes)
        self.scale = 1.0 / (1.0 - dropout)
        self._activations: list[Tensor] = []
        self._scales: list[float] = []
        self._buffers: dict[tuple[str, int, int], Tensor] = {}

    @property
    def hidden(self) -> int:
        """Number of hidden blocks, each with its own dropped units."""
        return len(self.sizes) - 2

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Per-replica parameter shapes by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (d_in, d_out) in enumerate(zip(self.sizes[:-1], self.sizes[1:], strict=True)):
            shapes[f"{self.name}.{i}.weight"] = (d_in, d_out)
            shapes[f"{self.name}.{i}.bias"] = (d_out,)
        return shapes

    def initialise(self, bank: ParameterBank, generators: Sequence[torch.Generator]) -> None:
        """Draw weights and biases from U(+-1/sqrt(fan_in)), layer by layer."""
        for i, d_in in enumerate(self.sizes[:-1]):
            uniform_(bank.view(f"{self.name}.{i}.weight"), d_in, generators)
            uniform_(bank.view(f"{self.name}.{i}.bias"), d_in, generators)

    def bind(self, bank: ParameterBank) -> None:
        """Look up the views once; call again after the bank was widened."""
        self._compiled = native.serves(bank.values)
        layers = range(len(self.sizes) - 1)
        self._weights = [bank.view(f"{self.name}.{i}.weight") for i in layers]
        self._biases = [bank.view(f"{self.name}.{i}.bias").unsqueeze(1) for i in layers]
        self._weight_gradients = [bank.gradient(f"{self.name}.{i}.weight") for i in layers]
        self._bias_gradients = [bank.gradient(f"{self.name}.{i}.bias") for i in layers]

    def forward(self, x: Tensor, kept: Sequence[Tensor] | None) -> Tensor:
        """Training pass.  x [R, B, in], kept: per hidden block [R or 1, B, H] bool, or None -> [R, B, out].

        Dropped units are zeroed only; the factor 1/(1-p) is folded into the next product.
        """
        x = self._readable(x)
        self._activations, self._scales = [x], [1.0]
        last = len(self._weights) - 1
        for i, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            units = kept[i] if kept is not None and i < last else None
            if self._compiled:
                out = self._buffer("output", i, x, self.sizes[i + 1])
                native.linear_forward(x, weight, bias, self._scales[-1], hidden=i < last, kept=units, out=out)
                x = out
            else:
                x = add_product(bias, x, weight, alpha=self._scales[-1])
                if i < last:
                    x.clamp_(min=0.0)
                if units is not None:
                    x.mul_(units)
            if i < last:
                self._activations.append(x)
                self._scales.append(self.scale if kept is not None else 1.0)
        return x

    def _readable(self, x: Tensor) -> Tensor:
        """``x`` as kernels can read it, which see addresses only: torch would notice another kind or width itself."""
        if not self._compiled:
            return x
        if x.shape[2] != self.sizes[0] or x.dtype != torch.float32:
            raise ShapeError(f"{self.name} takes [R, B, {self.sizes[0]}] float32, got {tuple(x.shape)} {x.dtype}")
        return x if x.stride(2) == 1 else x.contiguous()

    def _buffer(self, what: str, layer: int, x: Tensor, size: int) -> Tensor:
        """[R, B, size] for ``what`` of a layer, reused by every step whose batch is as long as that of ``x``."""
        key = (what, layer, x.shape[1])
        if key not in self._buffers:
            self._buffers[key] = x.new_empty(*x.shape[:2], size)
        return self._buffers[key]

    def backward(self, gradient: Tensor, *, input_gradient: bool) -> Tensor | None:
        """Gradients of all parameters from ``gradient`` [R, B, out]; -> gradient of the input [R, B, in] if asked."""
        gradient = gradient.contiguous()
        for i in reversed(range(len(self._weights))):
            x, scale = self._activations[i], self._scales[i]
            if self._compiled:
                wanted = i > 0 or input_gradient
                lower = self._buffer("input gradient", i, x, self.sizes[i]) if wanted else None
                native.linear_backward(
                    x,
                    gradient,
                    self._weights[i],
                    scale,
                    weight_gradient=self._weight_gradients[i],
                    bias_gradient=self._bias_gradients[i],
                    gated=i > 0,
                    below=lower,
                )
                if lower is None:
                    return None
                gradient = lower
                continue
            add_product(
                self._weight_gradients[i],
                x.transpose(1, 2),
                gradient,
                beta=0,
                alpha=scale,
                out=self._weight_gradients[i],
            )
            torch.sum(gradient, dim=1, out=self._bias_gradients[i])
            if i == 0 and not input_gradient:
                return None
            below = gradient.new_empty(gradient.shape[0], gradient.shape[1], self.sizes[i])
            add_product(below, gradient, self._weights[i].transpose(1, 2), beta=0, alpha=scale, out=below)
            if i > 0:
                # A hidden unit is above 0 exactly where ReLU passed it and dropout kept it.
                below = torch.ops.aten.threshold_backward(below, x, 0.0)
            gradient = below
        return gradient

    def evaluate(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Pass without dropout.  x [R or 1, N, in] -> [R, N, out], or [M, N, out] for the replicas ``members`` [M]."""
        x, last = self._readable(x), len(self._weights) - 1
        for i, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
            if members is not None:
                weight, bias = weight.index_select(0, members), bias.index_select(0, members)
            x = x.expand(weight.shape[0], -1, -1)
            if self._compiled:
                out = x.new_empty(*x.shape[:2], weight.shape[2])
                native.linear_forward(x, weight, bias, 1.0, hidden=i < last, kept=None, out=out)
                x = out
                continue
            x = add_product(bias, x, weight)
            if i < last:
                x.clamp_(min=0.0)
        return x
