"""The train rows of a table on the device that trains, in the layouts that steps read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.binning.discretizer import assign
from adaptbin.data.encode import EncodedTable


class TrainRows(NamedTuple):
    """N train rows with D numerical and C categorical columns; F = D + C."""

    inputs: Tensor
    """[N, F] float32."""
    values: Tensor
    """[N, D] float32, the numerical columns."""
    codes: Tensor
    """[C, N] int64, the categorical columns."""

    @classmethod
    def of(cls, table: EncodedTable, device: torch.device) -> TrainRows:
        """Copy the train rows of ``table`` to ``device``."""
        inputs = table.inputs.index_select(0, table.train).to(device)
        numerical, categorical = inputs[:, : table.n_numerical], inputs[:, table.n_numerical :]
        return cls(inputs, numerical.contiguous(), categorical.t().to(torch.int64).contiguous())

    def gather(self, order: Tensor) -> tuple[Tensor, Tensor]:
        """Rows in the order given per seed or replica.  order [S, n] -> inputs [S, n, F], codes [S, C, n]."""
        flat = order.flatten()
        inputs = self.inputs.index_select(0, flat).view(*order.shape, -1)
        return inputs, self.codes.index_select(1, flat).view(-1, *order.shape).transpose(0, 1)

    def targets(self, edges: Tensor) -> Tensor:
        """Bin of every value under the edges of each replica.  edges [R, D, K+1] -> [R, D, N] float32."""
        shape = (*edges.shape[:2], len(self.values))
        values = self.values.t().expand(shape).reshape(-1, shape[2])
        return assign(values, edges.flatten(0, 1)).view(shape).to(torch.float32)
