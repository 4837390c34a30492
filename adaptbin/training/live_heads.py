"""Heads and HORD by compiled kernels, over the rows of the heads that are live and no others."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from adaptbin import native
from adaptbin.pretext.hord import HordWeights, scaled_mse_weight
from adaptbin.replicas.heads import GrowingHeads
from adaptbin.replicas.parameters import ParameterBank


class LiveHeads:
    """What :class:`~adaptbin.replicas.heads.GrowingHeads`, ``cross_entropy_`` and ``hord_`` do together.

    Each replica's live rows are listed column by column, so that a column's logits lie together and the cost follows
    each replica's own bins, not the widest feature of the stack.
    """

    def __init__(
        self,
        heads: GrowingHeads,
        bank: ParameterBank,
        cardinalities: Sequence[int],
        count: Tensor,
        weights: HordWeights,
        mse_scale: str,
    ) -> None:
        replicas, n_numerical = count.shape
        n_categorical = len(cardinalities)
        levels = torch.tensor(cardinalities, dtype=torch.int64).expand(replicas, -1)
        sizes = torch.cat([levels, count.to(torch.int64)], 1)
        starts = torch.nn.functional.pad(sizes.cumsum(1), (1, 0))
        most_rows = int(starts[:, -1].max())
        # --- row of slot t of column c: t * C + c in the fixed part, fixed + t * D + d in the growing one
        step = torch.tensor([n_categorical] * n_categorical + [n_numerical] * n_numerical)
        first = torch.tensor([*range(n_categorical), *range(heads.fixed, heads.fixed + n_numerical)])
        place = torch.arange(most_rows).expand(replicas, -1).contiguous()
        column = torch.searchsorted(starts[:, 1:].contiguous(), place, right=True).clamp_(max=sizes.shape[1] - 1)
        rows = first[column] + (place - starts.gather(1, column)) * step[column]
        # --- end row
        self._bank = bank
        self._shape = (n_categorical, n_numerical)
        # The kernels see addresses only: what these belong to must live as long.
        self._held = (
            rows.to(torch.int32),
            starts.to(torch.int32),
            weights.sord,
            weights.var,
            scaled_mse_weight(count, weights.mse, mse_scale),
        )
        weight, bias = bank.view("heads.weight"), bank.view("heads.bias")
        for name in ("heads.weight", "heads.bias"):
            bank.gradient(name).zero_()  # no later step writes to rows that are not live
        self._heads = native.Heads(
            replicas,
            heads.width,
            n_categorical,
            n_numerical,
            most_rows,
            weight.data_ptr(),
            bank.gradient("heads.weight").data_ptr(),
            bias.data_ptr(),
            bank.gradient("heads.bias").data_ptr(),
            weight.stride(0),
            bias.stride(0),
            *(part.data_ptr() for part in self._held),
        )
        self._below: dict[int, Tensor] = {}

    def __call__(
        self, hidden: Tensor, codes: Tensor, bins: Tensor, entries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and gradients of one batch.

        hidden [R, B, H], codes [R, C, B] int64, bins [R, D, B] float32, entries [R, D, B] float32 (their weights, None
        for 1) -> total loss [R], L_num [R, D], gradient of hidden [R, B, H] in a reused buffer; the heads' gradients
        land in the bank.
        """
        batch = hidden.shape[1]
        if batch not in self._below:
            self._below[batch] = torch.empty_like(hidden)
        below = self._below[batch]
        losses = hidden.new_empty(hidden.shape[0], sum(self._shape))
        native.reconstruct(self._heads, hidden, codes, bins, entries, losses=losses, below=below)
        return losses.mean(1), losses[:, self._shape[0] :], below
