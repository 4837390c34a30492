"""The rows that a table is pretrained on, on the device that trains, in the layouts that steps read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.data.encode import EncodedRows
from adaptbin.encoders.base import Columns


def columns_of(table: EncodedRows) -> Columns:
    """The columns of ``table.inputs``, as encoders are told of them."""
    return Columns(table.n_numerical, table.cardinalities)


class TrainRows(NamedTuple):
    """N rows with D numerical and C categorical columns; F = D + C."""

    inputs: Tensor
    """[N, F] float32."""
    values: Tensor
    """[N, D] float32, the numerical columns."""
    codes: Tensor
    """[C, N] int64, the categorical columns."""
    observed: Tensor | None
    """[N, D] bool, False where a number is missing; None where none of these rows lacks one."""
    weights: Tensor | None
    """[F, N] float32, of each entry in the losses; None where all are 1."""

    @classmethod
    def of(cls, table: EncodedRows, device: torch.device) -> TrainRows:
        """Copy the rows of ``table`` that pretraining sees to ``device``."""
        rows = table.pretraining
        inputs = table.inputs.index_select(0, rows).to(device)
        numerical, categorical = inputs[:, : table.n_numerical], inputs[:, table.n_numerical :]
        observed = None if table.observed is None else table.observed.index_select(0, rows).to(device)
        if observed is not None and bool(observed.all()):
            observed = None
        return cls(
            inputs,
            numerical.contiguous(),
            categorical.t().to(torch.int64).contiguous(),
            observed,
            None if observed is None else entry_weights(observed, table.n_categorical),
        )

    def inputs_of(self, order: Tensor) -> Tensor:
        """Inputs of rows in the order given per seed or replica.  order [S, n] -> [S, n, F]."""
        return self.inputs.index_select(0, order.flatten()).view(*order.shape, -1)

    def codes_of(self, order: Tensor) -> Tensor:
        """Categories likewise.  order [S, n] -> [S, C, n]."""
        return self.codes.index_select(1, order.flatten()).view(-1, *order.shape).transpose(0, 1)

    def weights_of(self, order: Tensor) -> Tensor | None:
        """Weights in the losses likewise.  order [S, n] -> [S, F, n], or None where all are 1."""
        if self.weights is None:
            return None
        return self.weights.index_select(1, order.flatten()).view(-1, *order.shape).transpose(0, 1)


def entry_weights(observed: Tensor, categorical: int) -> Tensor:
    """Weight of each entry in the losses: observed [N, D] bool, ``categorical`` C -> [D + C, N] float32.

    A missing entry has weight 0, and one that is there N / (entries of its column that are there).
    """
    # DIFF[released->ours] the paper and the released code have no missing values; ours leaves missing entries out;
    # there is no switch.  The weights are the same in every batch: the losses of a column average over an epoch to the
    # mean over its entries that are there (but for a smaller last batch, whose mean counts as much as the others'), and
    # a complete column has weights of exactly 1.
    there = observed.t().to(torch.float64)
    weights = there * (there.shape[1] / there.sum(1, keepdim=True))
    return torch.cat([weights, weights.new_ones(categorical, there.shape[1])]).to(torch.float32)
