"""Compiled kernels for stacked replicas on a CPU core: optional, and equal to the plain path up to rounding.

They exist because the models are so small that a product is over before a general library has got going, and because
only rows of the heads that are live should cost anything.  Products add up in one order whatever their size, so results
do not depend on pack mates, nor on whether AVX-512 or AVX2 runs them (NEON should not differ, but has not been run).

All tensors here are float32 on the CPU, last axis contiguous: the caller sees to it, and kernels see addresses only.
Functions write into their outputs and raise MemoryError.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

from adaptbin.native.library import Heads, Optimizer, load

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Heads",
    "Optimizer",
    "adamw",
    "gate_backward",
    "gate_forward",
    "instruction_set",
    "linear_backward",
    "linear_forward",
    "normalise_backward",
    "normalise_forward",
    "reconstruct",
    "serves",
]


def instruction_set() -> str | None:
    """Name of the instruction set in use, e.g. "avx512"; None where the plain path is."""
    library = load()
    if library is None:
        return None
    name: bytes = library.adaptbin_chosen()
    return name.decode()


def serves(tensor: Tensor) -> bool:
    """Whether the kernels can work on tensors of this device and kind."""
    import torch  # who has a tensor has it already; who only asks for the instruction set need not

    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and load() is not None


def _library() -> ctypes.CDLL:
    library = load()
    assert library is not None, "ask serves() first"
    return library


def _check(status: int) -> None:
    if status:
        raise MemoryError("no memory for the scratch space of a compiled kernel")


def linear_forward(
    x: Tensor, weight: Tensor, bias: Tensor, scale: float, *, hidden: bool, kept: Tensor | None, out: Tensor
) -> None:
    """out = scale * x weight + bias; in a hidden layer then max(0), and 0 where a unit is not kept.

    x [R, B, I] of any strides over R and B, weight [R, I, O] and bias [R, 1, O] views of a bank, kept [R or 1, B, O]
    bool, out [R, B, O] contiguous.
    """
    replicas, rows, inputs = x.shape
    units: tuple[int | None, int, int] = (None, 0, 0)
    if kept is not None:
        units = (kept.data_ptr(), kept.stride(0) if kept.shape[0] > 1 else 0, kept.stride(1))
    _check(
        _library().adaptbin_linear_forward(
            replicas,
            rows,
            inputs,
            out.shape[2],
            x.data_ptr(),
            x.stride(0),
            x.stride(1),
            weight.data_ptr(),
            weight.stride(0),
            bias.data_ptr(),
            bias.stride(0),
            scale,
            hidden,
            *units,
            out.data_ptr(),
        )
    )


def linear_backward(
    x: Tensor,
    gradient: Tensor,
    weight: Tensor,
    scale: float,
    *,
    weight_gradient: Tensor,
    bias_gradient: Tensor,
    gated: bool,
    below: Tensor | None,
) -> None:
    """Gradients of :func:`linear_forward` from ``gradient`` [R, B, O] of its output, contiguous.

    weight_gradient [R, I, O] and bias_gradient [R, O] are views of a bank; below [R, B, I] contiguous receives the
    gradient of x, 0 where x is not above 0 if ``gated`` (x is then contiguous and a hidden layer's output).
    """
    replicas, rows, inputs = x.shape
    _check(
        _library().adaptbin_linear_backward(
            replicas,
            rows,
            inputs,
            gradient.shape[2],
            x.data_ptr(),
            x.stride(0),
            x.stride(1),
            gradient.data_ptr(),
            weight.data_ptr(),
            weight.stride(0),
            scale,
            weight_gradient.data_ptr(),
            bias_gradient.data_ptr(),
            bias_gradient.stride(0),
            gated,
            None if below is None else below.data_ptr(),
        )
    )


def reconstruct(
    heads: Heads, hidden: Tensor, codes: Tensor, bins: Tensor, entries: Tensor | None, *, losses: Tensor, below: Tensor
) -> None:
    """Heads, cross entropies and HORD, forward and backward, over live rows; gradients of the heads go into the bank.

    hidden [R, B, H] contiguous; codes [R, C, B] int64; bins [R, D, B]; entries [R, D, B]: weights of the bins, None for
    1; losses [R, C + D] receives the mean loss of each column, below [R, B, H] the gradient of hidden, both of the
    total loss as the sum over columns / (C + D).
    """
    weights = (None, 0, 0) if entries is None else (entries.data_ptr(), entries.stride(0), entries.stride(1))
    _check(
        _library().adaptbin_reconstruct(
            ctypes.byref(heads),
            hidden.shape[1],
            hidden.data_ptr(),
            codes.data_ptr(),
            codes.stride(0),
            codes.stride(1),
            bins.data_ptr(),
            bins.stride(0),
            bins.stride(1),
            *weights,
            losses.data_ptr(),
            below.data_ptr(),
        )
    )


def adamw(optimizer: Optimizer, step: int, factor: float) -> None:
    """Clip and update in place; ``step`` counts from 1, ``factor`` scales all step sizes."""
    corrections = (1.0 - beta**step for beta in (optimizer.beta1, optimizer.beta2))
    _check(_library().adaptbin_adamw(ctypes.byref(optimizer), factor, *corrections))


class Normalised(NamedTuple):
    """What :func:`normalise_forward` finds of pieces [R, G, S, C]."""

    out: Tensor
    """[R, G, S, C], scaled * weight + bias."""
    mean: Tensor
    """[R, G, 1, C]"""
    variance: Tensor
    """[R, G, 1, C], with denominator S."""
    inverse: Tensor
    """[R, G, 1, C], 1 / sqrt(variance + epsilon)."""
    scaled: Tensor
    """[R, G, S, C], (pieces - mean) * inverse."""


def normalise_forward(pieces: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Normalised:
    """Pieces [R, G, S, C], contiguous, by their own mean and variance; weight and bias [R, 1, 1, C] views of a bank."""
    replicas, ghosts, rows, width = pieces.shape
    out, scaled = pieces.new_empty(pieces.shape), pieces.new_empty(pieces.shape)
    mean, variance, inverse = (pieces.new_empty(replicas, ghosts, 1, width) for _ in range(3))
    _check(
        _library().adaptbin_normalise_forward(
            replicas * ghosts,
            ghosts,
            rows,
            width,
            epsilon,
            pieces.data_ptr(),
            weight.data_ptr(),
            weight.stride(0),
            bias.data_ptr(),
            bias.stride(0),
            *(part.data_ptr() for part in (mean, variance, inverse, scaled, out)),
        )
    )
    return Normalised(out, mean, variance, inverse, scaled)


def normalise_backward(
    gradient: Tensor, scaled: Tensor, weight: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the pieces [R, G, S, C], and of weight and bias [R, G, 1, C] piece by piece.

    gradient [R, G, S, C], of the output, and scaled contiguous; the others as :func:`normalise_forward` takes and gives
    them.
    """
    replicas, ghosts, rows, width = scaled.shape
    below = scaled.new_empty(scaled.shape)
    of_weight, of_bias = (scaled.new_empty(replicas, ghosts, 1, width) for _ in range(2))
    _check(
        _library().adaptbin_normalise_backward(
            replicas * ghosts,
            ghosts,
            rows,
            width,
            gradient.data_ptr(),
            scaled.data_ptr(),
            weight.data_ptr(),
            weight.stride(0),
            *(part.data_ptr() for part in (inverse, of_weight, of_bias, below)),
        )
    )
    return below, of_weight, of_bias


def _units(kept: Tensor | None) -> tuple[int | None, int]:
    if kept is None:
        return None, 0
    return kept.data_ptr(), kept.stride(0) if kept.shape[0] > 1 else 0


def gate_forward(x: Tensor, kept: Tensor | None, scale: float) -> Tensor:
    """x [R, N, 2 H], contiguous: values, then gates -> value * max(gate, 0) [R, N, H].

    With kept [R or 1, N, H] bool, contiguous but over R, times ``scale``, and 0 where a unit is not kept.
    """
    replicas, rows, both = x.shape
    out = x.new_empty(replicas, rows, both // 2)
    _check(
        _library().adaptbin_gate_forward(replicas, rows, both // 2, x.data_ptr(), *_units(kept), scale, out.data_ptr())
    )
    return out


def gate_backward(x: Tensor, kept: Tensor | None, scale: float, gradient: Tensor) -> Tensor:
    """Gradient [R, N, 2 H] of x, from ``gradient`` [R, N, H] of :func:`gate_forward`'s output, contiguous."""
    replicas, rows, both = x.shape
    below = x.new_empty(x.shape)
    _check(
        _library().adaptbin_gate_backward(
            replicas, rows, both // 2, x.data_ptr(), *_units(kept), scale, gradient.data_ptr(), below.data_ptr()
        )
    )
    return below
