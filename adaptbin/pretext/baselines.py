"""Losses of the paper's baseline pretexts (its Table 1), with their gradients in closed form.

Each is a mean over batch and columns.  Outputs come with as many columns as their layer has, K > F: those past the F
columns of the table take part in nothing.  They also keep rows apart: where K is F, torch goes through all replicas in
one run, and rounds its last elements, whichever they are, in another way than the others.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def squared_error_(output: Tensor, target: Tensor, columns: int) -> Tensor:
    """ValueRecon and BinRecon; ``output`` is overwritten by the gradient.

    output [R, B, K], target [R or 1, B, F] with F = ``columns`` -> mean squared error [R].
    """
    error = output[..., :columns].sub_(target)
    output[..., columns:].zero_()
    scale = 1.0 / (output.shape[1] * columns)
    loss = error.square().sum(2).sum(1).mul_(scale)
    error.mul_(2.0 * scale)
    return loss


def mask_cross_entropy_(output: Tensor, masked: Tensor, columns: int) -> Tensor:
    """MaskXent: which entries were drawn to be masked; ``output`` is overwritten by the gradient.

    output [R, B, K] logits, masked [R, B, F] float32 of 0 and 1 with F = ``columns`` -> mean cross entropy [R] in nats.
    """
    logits = output[..., :columns]
    output[..., columns:].zero_()
    scale = 1.0 / (output.shape[1] * columns)
    loss = binary_cross_entropy_with_logits(logits, masked, reduction="none").sum(2).sum(1).mul_(scale)
    logits.sigmoid_().sub_(masked).mul_(scale)
    return loss


def standardised_indices(index: Tensor, rows: int) -> Tensor:
    """Bin indices at mean 0 and sd 1 (ddof 0) over the dimension ``rows``; a column with one index is 0.

    index float64, of any shape -> the same shape.
    """
    centred = index - index.mean(rows, keepdim=True)
    sd = centred.square().mean(rows, keepdim=True).sqrt()
    # A column with one index has nothing to predict.
    return torch.where(sd > 0, centred / sd, torch.zeros_like(centred))
