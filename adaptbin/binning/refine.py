"""One round of DIGS: from the features that fired to the edges they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.binning.discretizer import Bins
from adaptbin.binning.scorer import SortedColumns, candidates, choose_splits, dispersion_gain, split_edges, unit_rows


class SplitRules(NamedTuple):
    """What R replicas ask of a split."""

    min_bin: Tensor
    """[R] int64, least train rows on either side."""
    tau: Tensor
    """[R] float64, least Gain_var * Gain_disp."""
    t_max: Tensor
    """[R] int64, most bins of a feature."""
    parts: Tensor | None
    """[R, 2] bool, whether Gain_var and Gain_disp are part of the score; None where both always are."""
    keep_best: bool
    """Splits past t_max: keep the best-scoring ones, or keep none of that feature's."""


class Refined(NamedTuple):
    """New edges of P (replica, feature) pairs."""

    replica: Tensor
    """[P] int64."""
    feature: Tensor
    """[P] int64."""
    edges: Tensor
    """[P, K+1] float64."""
    added: Tensor
    """[P] int64, bins gained; 0 where no split was worth it."""


def refine(
    fired: Tensor, bins: Bins, columns: SortedColumns, rules: SplitRules, embed: Callable[[Tensor], Tensor]
) -> Refined | None:
    """Where the bins of fired features split, or None where none does.

    fired [R, D] bool; ``embed`` gives the embeddings [M, N, H] of the train rows for the replicas [M] that it is given,
    and is asked only for those with a bin that can split at all.
    """
    replica, feature = torch.nonzero(fired, as_tuple=True)
    found = candidates(columns, bins.edges[replica, feature], feature, rules.min_bin[replica])
    able = found.eligible.any(1).nonzero().squeeze(1)
    if not len(able):
        return None
    found = type(found)(*(part[able] for part in found))
    replica, feature = replica[able], feature[able]
    gain_var, gain_disp = found.gain, torch.ones_like(found.gain)  # a gain that is no part of the score counts as 1
    asks: Tensor | slice = slice(None)
    if rules.parts is not None:
        parts = rules.parts[replica]
        gain_var = torch.where(parts[:, :1], gain_var, gain_disp)
        asks = parts[:, 1].nonzero().squeeze(1)
    some = type(found)(*(part[asks] for part in found))
    if len(some.gain):
        members, source = torch.unique(replica[asks], return_inverse=True)
        gain_disp[asks] = dispersion_gain(columns, some, feature[asks], unit_rows(embed(members)), source)
    split = choose_splits(
        gain_var,
        gain_disp,
        found.eligible,
        tau=rules.tau[replica],
        count=bins.n_bins[replica, feature],
        t_max=rules.t_max[replica],
        keep_best=rules.keep_best,
    )
    added = split.sum(1)
    if not bool(added.any()):
        return None
    return Refined(replica, feature, split_edges(bins.edges[replica, feature], found.median, split), added)
