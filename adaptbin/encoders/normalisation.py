"""Batch normalisation of stacked replicas (Ioffe & Szegedy 2015), of whole or of ghost batches (Hoffer et al. 2017).

Every replica has its own means and variances: nothing here reduces over replicas.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adaptbin import native
from adaptbin.encoders.base import AutogradEncoder
from adaptbin.encoders.declared import Declared, initialise, norm_parameters
from adaptbin.encoders.products import Parameters
from adaptbin.replicas.parameters import ParameterBank

EPSILON = 1e-5
"""Added to every variance (torch's default)."""


def normalise(x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``(x - mean) / sqrt(variance + EPSILON) * weight + bias``: x [R, .., C], the others broadcast to it."""
    return (x - mean) * (torch.rsqrt(variance + EPSILON) * weight) + bias


def ghost_sizes(rows: int, ghost: int | None) -> tuple[int, int]:
    """(rows of a ghost batch, rows of the last, shorter one or 0) of a batch that is cut as torch.chunk does.

    Into the fewest parts of at most ``ghost`` rows, as in pytorch_tabnet; None: the batch as a whole.
    """
    parts = 1 if ghost is None else -(-rows // ghost)
    size = -(-rows // parts)
    return size, rows % size


def normalise_batch(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    momentum: float,
    ghost: int | None = None,
) -> Tensor:
    """x [R, B, C] normalised by its own ghost batches' statistics; the running ones, [R, C] each, follow in place.

    S rows are normalised by their variance with denominator S, while the running variance follows the one with S - 1
    (as torch does), by ghost batch after ghost batch.  **A ghost batch of one row has no variance**: it is normalised
    by the running statistics from before this batch, as in evaluation, and does not move them (torch refuses it).
    """
    size, rest = ghost_sizes(x.shape[1], ghost)
    whole = x.shape[1] - rest
    pieces = [x[:, :whole].reshape(len(x), -1, size, x.shape[2]), *([x[:, whole:].unsqueeze(1)] if rest else [])]
    weight, bias = weight[:, None, None], bias[:, None, None]
    before = [running[:, None, None].clone() for running in (mean, variance)] if 1 in (size, rest) else []
    normalised = []
    for piece in pieces:  # [R, G, S, C]: G ghost batches of S rows
        rows = piece.shape[2]
        if rows > 1:
            own, found_mean, found_variance = _ByItself.apply(piece, weight, bias)  # type: ignore[no-untyped-call]
            _follow(mean, found_mean, momentum)
            _follow(variance, found_variance * (rows / (rows - 1)), momentum)
        else:
            # DIFF[released->ours] torch refuses one row, and pytorch_tabnet leaves the last partial batch out.  Ours
            # keeps it, as everywhere; there is no switch.
            own = normalise(piece, before[0], before[1], weight, bias)
        normalised.append(own.flatten(1, 2))
    return normalised[0] if len(normalised) == 1 else torch.cat(normalised, dim=1)


class _ByItself(torch.autograd.Function):
    """Pieces [R, G, S, C] by their own mean and variance (denominator S) -> themselves, and these [R, G, 1, C].

    With u the normalised numbers, g the gradient and w the weight, the pieces' gradient is
    w / sqrt(variance + EPSILON) * (g - mean(g) - u mean(g u)): a few passes, where autograd would need twenty.
    """

    @staticmethod
    def forward(ctx: Any, piece: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.is_compiled = native.serves(piece)
        if ctx.is_compiled:
            out, mean, variance, inverse, scaled = native.normalise_forward(piece.contiguous(), weight, bias, EPSILON)
        else:
            mean = piece.mean(2, keepdim=True)
            scaled = piece - mean
            # Two sums: torch's own var_mean over rows takes some forty times as long.
            variance = scaled.square().mean(2, keepdim=True)
            inverse = torch.rsqrt(variance + EPSILON)
            scaled.mul_(inverse)
            out = torch.addcmul(bias, scaled, weight)
        ctx.save_for_backward(scaled, weight, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scaled, weight, inverse = ctx.saved_tensors
        gradient, rows = gradients[0], scaled.shape[2]
        if ctx.is_compiled:
            below, of_weight, of_bias = native.normalise_backward(gradient.contiguous(), scaled, weight, inverse)
        else:
            of_bias, of_weight = gradient.sum(2, keepdim=True), (gradient * scaled).sum(2, keepdim=True)
            below = torch.addcmul(gradient, scaled, of_weight, value=-1.0 / rows).sub_(of_bias, alpha=1.0 / rows)
            below.mul_(inverse * weight)
        # Parameters are shared by the G ghost batches of a replica.
        return below, of_weight.sum(1, keepdim=True), of_bias.sum(1, keepdim=True)


def _follow(running: Tensor, found: Tensor, momentum: float) -> None:
    """Move ``running`` [R, C] towards each ghost batch of ``found`` [R, G, 1, C], one after the other."""
    for ghost_batch in found.squeeze(2).unbind(1):
        running.lerp_(ghost_batch, momentum)


@dataclass(frozen=True, kw_only=True)
class BatchNormalisation:
    """One normalisation of C units: what it is called, and how it follows its batches."""

    name: str
    width: int
    """C."""
    momentum: float
    """Weight of the newest batch in the running statistics."""
    ghost: int | None = None
    """Rows that share one mean and variance in training, at most; None: all rows of the batch."""

    def declared(self) -> dict[str, Declared]:
        """Its parameters: it starts as the identity, but for the statistics."""
        return norm_parameters(self.name, self.width)


class NormalisedEncoder(AutogradEncoder):
    """An encoder with batch normalisations, whose running statistics it keeps.

    A subclass names them in ``_normalisations``, declares all parameters, and calls :meth:`_normalise` where it embeds.
    """

    def __init__(self) -> None:
        self._statistics: dict[str, Tensor] = {}

    @property
    @abstractmethod
    def _normalisations(self) -> Sequence[BatchNormalisation]:
        """All of them."""

    @abstractmethod
    def _declared(self) -> dict[str, Declared]:
        """All parameters, those of the normalisations too, in layout order."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See :class:`ReplicaEncoder`."""
        return {name: parameter.shape for name, parameter in self._declared().items()}

    def initialise(self, bank: ParameterBank, generators: Sequence[torch.Generator]) -> None:
        """See :class:`ReplicaEncoder`.  Means start at 0 and variances at 1."""
        initialise(bank, self._declared(), generators)
        self._start_statistics(bank)

    @property
    def statistics(self) -> Mapping[str, Tensor]:
        """``<name>.mean`` and ``<name>.variance`` [R, C] of every normalisation, once :meth:`bind` has told R."""
        return self._statistics

    def bind(self, bank: ParameterBank) -> None:
        """See :class:`ReplicaEncoder`.  Statistics for as many replicas are kept, else they start anew."""
        super().bind(bank)
        held, values = next(iter(self._statistics.values()), None), bank.values
        if held is None or (len(held), held.device, held.dtype) != (len(values), values.device, values.dtype):
            self._start_statistics(bank)

    def _start_statistics(self, bank: ParameterBank) -> None:
        for norm in self._normalisations:
            self._statistics[f"{norm.name}.mean"] = bank.values.new_zeros(bank.replicas, norm.width)
            self._statistics[f"{norm.name}.variance"] = bank.values.new_ones(bank.replicas, norm.width)

    def _normalise(self, norm: BatchNormalisation, x: Tensor, parameters: Parameters, members: Tensor | None) -> Tensor:
        """x [R, B, C] by its batch in training (``members`` None), else by the running statistics of ``members``."""
        mean, variance = (self._statistics[f"{norm.name}.{what}"] for what in ("mean", "variance"))
        weight, bias = (parameters[f"{norm.name}.{what}"] for what in ("weight", "bias"))
        if members is None:
            return normalise_batch(x, mean, variance, weight, bias, momentum=norm.momentum, ghost=norm.ghost)
        mean, variance = mean.index_select(0, members), variance.index_select(0, members)
        return normalise(x, *(each.unsqueeze(1) for each in (mean, variance, weight, bias)))
