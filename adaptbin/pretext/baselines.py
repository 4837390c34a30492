"""Losses of the paper's baseline pretexts (its Table 1), with their gradients in closed form.

Each is a mean over batch and columns.  Outputs come with as many columns as their layer has, K >= F: those past the F
columns of the table take part in nothing.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def squared_error_(output: Tensor, target: Tensor, columns: int) -> Tensor:
    """ValueRecon and BinRecon; ``output`` is overwritten by the gradient.

    output [R, B, K], target [R or 1, B, F] with F = ``columns`` -> mean squared error [R].
    """
    error = output[..., :columns].sub_(target)
    output[..., columns:] = 0.0
    scale = 1.0 / (output.shape[1] * columns)
    loss = error.square().flatten(1).sum(1).mul_(scale)
    error.mul_(2.0 * scale)
    return loss


def mask_cross_entropy_(output: Tensor, masked: Tensor, columns: int) -> Tensor:
    """MaskXent: which entries were drawn to be masked; ``output`` is overwritten by the gradient.

    output [R, B, K] logits, masked [R, B, F] float32 of 0 and 1 with F = ``columns`` -> mean cross entropy [R] in nats.
    """
    logits = output[..., :columns]
    output[..., columns:] = 0.0
    scale = 1.0 / (output.shape[1] * columns)
    loss = binary_cross_entropy_with_logits(logits, masked, reduction="none").flatten(1).sum(1).mul_(scale)
    logits.sigmoid_().sub_(masked).mul_(scale)
    return loss
