"""Feature-wise adaptive bins (FWA): quantile bins to start from, and the assignment of values to bins.

Paper: arXiv 2606.19827, Sec. 2 (feature-wise adaptive discretizer).  A bin is [lower edge, upper edge): a value that
equals an edge belongs to the bin on its right.  Edges are float64; values are float32 and compared in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from adaptbin.errors import ConfigError


class Bins(NamedTuple):
    """The bins of R replicas x D features."""

    edges: Tensor
    """[R, D, K+1] float64, -inf first, then the inner edges in rising order, then +inf as outer edge and padding."""
    n_bins: Tensor
    """[R, D] int64, T_n."""


def quantile_edges(values: np.ndarray, t_init: int) -> np.ndarray:
    """Inner edges of one feature's initial bins.

    values [N] float32 train values, none missing; -> float64, strictly rising, at most ``t_init - 1`` of them.
    Repeated percentiles collapse; a feature with at most ``t_init`` distinct values gets one bin per value.
    """
    distinct = np.unique(values).astype(np.float64)
    if len(distinct) <= t_init:
        return distinct[1:]
    percentiles = 100.0 * np.arange(1, t_init) / t_init
    return np.unique(np.percentile(values.astype(np.float64), percentiles))


def initial_bins(values: Tensor, t_init: Sequence[int], t_max: Sequence[int], observed: Tensor | None = None) -> Bins:
    """Initial bins of R replicas, replica r with ``t_init[r]`` quantile bins and room for ``max(t_max)``.

    values [N, D] float32; observed [N, D] bool: which of them count, None for all.  Raises ConfigError where t_init
    exceeds t_max.
    """
    n_features = values.shape[1]
    columns = list(values.detach().t().cpu().numpy())
    if observed is not None:
        columns = [column[there] for column, there in zip(columns, observed.t().cpu().numpy(), strict=True)]
    edges = np.full((len(t_init), n_features, max(t_max) + 1), np.inf)
    edges[:, :, 0] = -np.inf
    count = np.ones((len(t_init), n_features), dtype=np.int64)
    made: dict[int, list[np.ndarray]] = {}
    for r, (bins, cap) in enumerate(zip(t_init, t_max, strict=True)):
        if bins > cap:
            raise ConfigError(f"t_init must be at most t_max ({cap}), got {bins}")
        if bins not in made:
            made[bins] = [quantile_edges(column, bins) for column in columns]
        for d, inner in enumerate(made[bins]):
            edges[r, d, 1 : 1 + len(inner)] = inner
            count[r, d] = 1 + len(inner)
    return Bins(torch.from_numpy(edges).to(values.device), torch.from_numpy(count).to(values.device))


def assign(values: Tensor, edges: Tensor) -> Tensor:
    """Bin of each value.  values [P, N] float32, edges [P, K+1] -> [P, N] int64 in [0, K)."""
    inner = edges[:, 1:].contiguous()
    return torch.searchsorted(inner, values.to(torch.float64).contiguous(), right=True)


def assign_all(values: Tensor, edges: Tensor) -> Tensor:
    """Bin of every value under the edges of every replica.  values [N, D] float32, edges [R, D, K+1] -> [R, N, D]."""
    shape = (*edges.shape[:2], len(values))
    columns = values.t().expand(shape).reshape(-1, shape[2])
    return assign(columns, edges.flatten(0, 1)).view(shape).transpose(1, 2)
