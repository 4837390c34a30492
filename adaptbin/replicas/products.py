"""Products of stacked replicas without compiled kernels."""

from __future__ import annotations

import torch
from torch import Tensor


def add_product(
    base: Tensor, left: Tensor, right: Tensor, *, beta: float = 1.0, alpha: float = 1.0, out: Tensor | None = None
) -> Tensor:
    """``beta`` base + ``alpha`` left right: left [R, N, I], right [R, I, O], base broadcast to the result [R, N, O].

    On a CPU replica by replica, so that each is rounded as it is alone: batches of products are not, by MKL on Intel's
    processors.  A GPU promises no equal bits in other packs.
    """
    if left.device.type != "cpu":
        return torch.baddbmm(base, left, right, beta=beta, alpha=alpha, out=out)
    if out is None:
        out = left.new_empty(*left.shape[:2], right.shape[2])
    for r in range(len(left)):
        torch.addmm(base[r], left[r], right[r], beta=beta, alpha=alpha, out=out[r])
    return out
