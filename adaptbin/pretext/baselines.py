"""Losses of the paper's baseline pretexts (its Table 1), with their gradients in closed form.

Each is a mean over batch and columns.  Weights of entries, 0 where a value is missing, are 1 on average over all rows
(``adaptbin.training.rows.entry_weights``), so that nothing else is divided by.

Outputs come with as many columns as their layer has, K > F: those past the F columns of the table take part in nothing.
They also keep rows apart: where K is F, torch goes through all replicas in one run, and rounds its last elements,
whichever they are, in another way than the others.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def squared_error_(output: Tensor, target: Tensor, columns: int, entries: Tensor | None = None) -> Tensor:
    """ValueRecon and BinRecon; ``output`` is overwritten by the gradient.

    output [R, B, K], target and entries (weights, None for 1) [R or 1, B, F] with F = ``columns`` -> mean squared error
    [R].
    """
    error = output[..., :columns].sub_(target)
    output[..., columns:].zero_()
    scale = 1.0 / (output.shape[1] * columns)
    squares = error.square()
    error.mul_(2.0 * scale)
    if entries is not None:
        squares.mul_(entries)
        error.mul_(entries)
    return squares.sum(2).sum(1).mul_(scale)


def mask_cross_entropy_(output: Tensor, masked: Tensor, columns: int, entries: Tensor | None = None) -> Tensor:
    """MaskXent: which entries were drawn to be masked; ``output`` is overwritten by the gradient.

    output [R, B, K] logits, masked [R, B, F] float32 of 0 and 1 with F = ``columns``, entries [R or 1, B, F] weights
    (None for 1) -> mean cross entropy [R] in nats.
    """
    logits = output[..., :columns]
    output[..., columns:].zero_()
    scale = 1.0 / (output.shape[1] * columns)
    crossed = binary_cross_entropy_with_logits(logits, masked, reduction="none")
    logits.sigmoid_().sub_(masked).mul_(scale)
    if entries is not None:
        crossed.mul_(entries)
        logits.mul_(entries)
    return crossed.sum(2).sum(1).mul_(scale)


def standardised_indices(index: Tensor, rows: int, observed: Tensor | None = None) -> Tensor:
    """Bin indices at mean 0 and sd 1 (ddof 0) over the dimension ``rows``, counted from the last as -1; a column with
    one index is 0.

    index float64, of any shape -> the same shape.  observed bool, of a shape that spreads to it: which indices count,
    None for all; what the others become has no meaning.
    """

    def mean(values: Tensor) -> Tensor:
        if observed is None:
            return values.mean(rows, keepdim=True)
        return (values * observed).sum(rows, keepdim=True) / observed.sum(rows, keepdim=True)

    centred = index - mean(index)
    sd = mean(centred.square()).sqrt()
    # A column with one index has nothing to predict.
    return torch.where(sd > 0, centred / sd, torch.zeros_like(centred))
