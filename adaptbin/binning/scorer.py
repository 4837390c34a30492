"""Dispersion-guided splits (DIGS): where a triggered feature's bins are cut.

Paper: arXiv 2606.19827, Sec. 2 ("where").  All bins of all triggered features are scored at once; P below counts
(replica, feature) pairs.  What only depends on values (medians, sizes, variances) comes from one sort per column and
prefix sums, so the encoder has to be asked only where some bin can split at all.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_EPSILON = 1e-6
_NORM_FLOOR = 1e-12


class SortedColumns(NamedTuple):
    """Train values of every feature in rising order; made once per table."""

    values: Tensor
    """[D, N] float32; missing ones come last, as +inf: there they are past every edge, and in no bin."""
    order: Tensor
    """[D, N] int64, row of each sorted value."""
    sums: Tensor
    """[D, N+1] float64, prefix sums of the sorted values that are there."""
    squares: Tensor
    """[D, N+1] float64, prefix sums of their squares."""

    @classmethod
    def of(cls, values: Tensor, observed: Tensor | None = None) -> SortedColumns:
        """Sort the columns of ``values`` [N, D], finite; observed [N, D] bool: which are there, None for all."""
        if observed is not None:
            values = values.masked_fill(~observed, torch.inf)
        ordered, order = torch.sort(values.t().contiguous(), dim=1, stable=True)
        wide = ordered.to(torch.float64)
        if observed is not None:
            wide = wide.masked_fill(torch.isinf(wide), 0.0)
        zero = wide.new_zeros(wide.shape[0], 1)
        return cls(ordered, order, torch.cat([zero, wide.cumsum(1)], 1), torch.cat([zero, wide.square().cumsum(1)], 1))


class Candidates(NamedTuple):
    """One possible split per bin of P (replica, feature) pairs; every tensor is [P, K]."""

    median: Tensor
    """Float32 mean of the middle two values of the bin; of an empty one it means nothing."""
    start: Tensor
    """First position of the bin among the sorted values."""
    cut: Tensor
    """First position of the right side: values < median are left of it."""
    end: Tensor
    """Position after the bin's last value."""
    gain: Tensor
    """Gain_var, float64."""
    eligible: Tensor
    """Both sides hold enough rows, the median is off the edge, and Gain_var > 0."""


def _variance(columns: SortedColumns, feature: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Population variance of the sorted values [start, end) of each pair's feature, 0 where there are none."""
    size = (end - start).clamp(min=1)
    row = feature[:, None]
    mean = (columns.sums[row, end] - columns.sums[row, start]) / size
    second = (columns.squares[row, end] - columns.squares[row, start]) / size
    return (second - mean.square()).clamp(min=0.0)


def candidates(columns: SortedColumns, edges: Tensor, feature: Tensor, min_bin: Tensor) -> Candidates:
    """The median split of every bin, and whether values alone already rule it out.

    edges [P, K+1] float64, feature [P] int64, min_bin [P] int64.
    """
    ordered = columns.values[feature]
    wide = ordered.to(torch.float64)
    n_rows = ordered.shape[1]
    position = torch.searchsorted(wide, edges.contiguous(), right=False)
    start, end = position[:, :-1], position[:, 1:]
    size = end - start
    lower = ((start + end - 1) // 2).clamp(0, n_rows - 1)
    upper = ((start + end) // 2).clamp(0, n_rows - 1)
    median = (ordered.gather(1, lower) + ordered.gather(1, upper)) / 2
    cut = torch.minimum(torch.maximum(torch.searchsorted(wide, median.to(torch.float64), right=False), start), end)
    n_left, n_right = cut - start, end - cut
    # --- Gain_var = Var(S) - w_L Var(L) - w_R Var(R)
    # Whole numbers divide to float32 by default, which would leave gains right to 3e-8 only.
    share_left = n_left.to(torch.float64) / size.clamp(min=1)
    share_right = n_right.to(torch.float64) / size.clamp(min=1)
    gain = (
        _variance(columns, feature, start, end)
        - share_left * _variance(columns, feature, start, cut)
        - share_right * _variance(columns, feature, cut, end)
    )
    # --- end Gain_var
    least = min_bin[:, None]
    off_edge = (median.to(torch.float64) != edges[:, :-1]) & (median.to(torch.float64) != edges[:, 1:])
    eligible = (size >= 2 * least) & (n_left >= least) & (n_right >= least) & off_edge & (gain > 0)
    return Candidates(median, start, cut, end, gain, eligible)


def unit_rows(embeddings: Tensor) -> Tensor:
    """Rows scaled to length 1.  embeddings [..., H] float32, norms floored at 1e-12."""
    norms: Tensor = torch.linalg.vector_norm(embeddings, dim=-1, keepdim=True)
    return embeddings / norms.clamp(min=_NORM_FLOOR)


def _dispersion(total: Tensor, size: Tensor) -> Tensor:
    """Disp = |log(eps + ||mean unit embedding||^2)|.  total [..., H] sums of unit embeddings, size [...] -> [...]."""
    # --- Disp(S); the squared norm of a mean of unit vectors lies in [0, 1], a single row disperses nothing
    mean = total / size.clamp(min=1).unsqueeze(-1)
    norm = mean.square().sum(-1).clamp(0.0, 1.0)
    spread = torch.log(_EPSILON + norm).abs()
    # --- end Disp
    return spread.masked_fill(size <= 1, 0.0)


def dispersion_gain(
    columns: SortedColumns, found: Candidates, feature: Tensor, units: Tensor, source: Tensor
) -> Tensor:
    """Gain_disp of every eligible candidate, 0 elsewhere.

    units [M, N, H] unit embeddings of the train rows, source [P] int64: which of the M replicas each pair belongs to.
    -> [P, K] float64.
    """
    pairs, bins = torch.nonzero(found.eligible, as_tuple=True)
    n_rows, width = units.shape[1], units.shape[2]
    start, cut, end = (x[pairs, bins] for x in (found.start, found.cut, found.end))
    # Each candidate is two runs of sorted rows: list the rows of all runs one after another and sum run by run.
    lengths = torch.stack([cut - start, end - cut], 1).flatten()
    begins = torch.stack([start, cut], 1).flatten()
    run = torch.repeat_interleave(torch.arange(len(lengths), device=units.device), lengths)
    within = torch.arange(len(run), device=units.device) - (lengths.cumsum(0) - lengths)[run]
    pair = pairs.repeat_interleave(2)[run]
    rows = columns.order[feature[pair], begins[run] + within] + source[pair] * n_rows
    sums = torch.nn.functional.embedding_bag(
        rows, units.reshape(-1, width).to(torch.float64), offsets=lengths.cumsum(0) - lengths, mode="sum"
    )
    sides = sums.view(-1, 2, width)
    n_left, n_right = (cut - start).to(torch.float64), (end - cut).to(torch.float64)
    size = n_left + n_right
    # --- Gain_disp = Disp(S) - w_L Disp(L) - w_R Disp(R)
    gain = (
        _dispersion(sides.sum(1), size)
        - n_left / size * _dispersion(sides[:, 0], n_left)
        - n_right / size * _dispersion(sides[:, 1], n_right)
    )
    # --- end Gain_disp
    out = found.gain.new_zeros(found.gain.shape)
    out[pairs, bins] = gain
    return out


def choose_splits(
    gain_var: Tensor, gain_disp: Tensor, eligible: Tensor, *, tau: Tensor, count: Tensor, t_max: Tensor, keep_best: bool
) -> Tensor:
    """Which bins split.  gains, eligible [P, K]; tau [P]; count, t_max [P] int64 -> [P, K] bool.

    A split needs both gains above 0 and their product above tau.  Where all splits together would pass T_max, the
    best-scoring ones up to T_max are kept (the earlier bin wins a tie), or none if ``keep_best`` is False.
    """
    # --- Score = Gain_var * Gain_disp; split iff both gains > 0 and Score > tau
    score = gain_var * gain_disp
    qualifies = eligible & (gain_var > 0) & (gain_disp > 0) & (score > tau[:, None])
    # --- end Score
    room = (t_max - count)[:, None]
    wanted = qualifies.sum(1, keepdim=True)
    # DIFF[released->ours] a feature whose splits would pass T_max: the best ones are kept; `bin_cap="none"` keeps none.
    if not keep_best:
        return qualifies & (wanted <= room)
    ranked = torch.where(qualifies, score, torch.full_like(score, -torch.inf)).argsort(
        dim=1, descending=True, stable=True
    )
    rank = torch.empty_like(ranked).scatter_(
        1, ranked, torch.arange(score.shape[1], device=score.device).expand_as(ranked)
    )
    return qualifies & (rank < room)


def split_edges(edges: Tensor, median: Tensor, split: Tensor) -> Tensor:
    """Edges with the medians of the split bins added.  edges [P, K+1], median, split [P, K] -> [P, K+1].

    The number of splits must fit into the padding (choose_splits sees to it).
    """
    added = torch.where(split, median.to(torch.float64), torch.full_like(edges[:, 1:], torch.inf))
    return torch.cat([edges, added], 1).sort(1).values[:, : edges.shape[1]].contiguous()
