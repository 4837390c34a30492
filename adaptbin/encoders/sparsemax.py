"""Sparsemax: the softmax with zeros (Martins & Astudillo 2016, arXiv 1602.02068)."""

from __future__ import annotations

import torch
from torch import Tensor


def sparsemax(z: Tensor) -> Tensor:
    """The point of the probability simplex nearest to z [.., F], for each row by itself (Eq. 2; Algorithm 1).

    p = max(z - threshold, 0), with the threshold such that p sums to 1.  Adding a constant to a row changes nothing.
    """
    # The largest entry is put to 0, as in a softmax, so that large entries lose no digits in the sums.
    z = z - z.detach().amax(-1, keepdim=True)
    with torch.no_grad():
        falling = z.sort(dim=-1, descending=True).values
        rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
        # Entry k of the sorted row is in the support as long as 1 + k z_k > z_1 + ... + z_k.  The first one always is.
        # No comparison holds in a row with NaN, of a replica that diverged, and an index of -1 would stop all of them.
        size = (1 + rank * falling > falling.cumsum(-1)).sum(-1, keepdim=True).clamp_min(1)
        support = z >= falling.gather(-1, size - 1)
    # Where the support stays the same p is linear, so its gradient (Eq. 8) is that of this line.
    # Entries that tie at the threshold are all in it, so it is counted anew; a row with NaN has none.
    threshold = (z.where(support, 0.0).sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True).clamp_min(1)
    return (z - threshold).relu()
