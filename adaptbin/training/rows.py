"""The train rows of a table on the device that trains, in the layouts that steps read."""

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
    """N train rows with D numerical and C categorical columns; F = D + C."""

    inputs: Tensor
    """[N, F] float32."""
    values: Tensor
    """[N, D] float32, the numerical columns."""
    codes: Tensor
    """[C, N] int64, the categorical columns."""

    @classmethod
    def of(cls, table: EncodedRows, device: torch.device) -> TrainRows:
        """Copy the train rows of ``table`` to ``device``."""
        inputs = table.inputs.index_select(0, table.train).to(device)
        numerical, categorical = inputs[:, : table.n_numerical], inputs[:, table.n_numerical :]
        return cls(inputs, numerical.contiguous(), categorical.t().to(torch.int64).contiguous())

    def inputs_of(self, order: Tensor) -> Tensor:
        """Inputs of rows in the order given per seed or replica.  order [S, n] -> [S, n, F]."""
        return self.inputs.index_select(0, order.flatten()).view(*order.shape, -1)

    def codes_of(self, order: Tensor) -> Tensor:
        """Categories likewise.  order [S, n] -> [S, C, n]."""
        return self.codes.index_select(1, order.flatten()).view(-1, *order.shape).transpose(0, 1)
