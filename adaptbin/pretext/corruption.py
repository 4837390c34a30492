"""Masking of the autoencoder's input (method, Sec. 1): each entry with probability p_m, from given draws."""

from __future__ import annotations

import torch
from torch import Tensor


def corrupt(inputs: Tensor, uniform: Tensor, source: Tensor, mask_prob: Tensor, takes_row: Tensor) -> Tensor:
    """Corrupted inputs of every replica.

    inputs [S or R, N, F] in epoch order, F = D + C columns; uniform, source: the epoch's
    :class:`~adaptbin.replicas.streams.MaskDraws` with a leading axis like that of inputs; mask_prob [R] (0 = no
    masking); takes_row [R] bool (True: "random", False: "constant", which sets 0, category code 0) -> [R, N, F].
    """
    masked = masked_entries(uniform, mask_prob)
    replacement = torch.where(takes_row[:, None, None], inputs.gather(1, source), inputs.new_zeros(()))
    return torch.where(masked, replacement, inputs)


def masked_entries(uniform: Tensor, mask_prob: Tensor) -> Tensor:
    """Which entries are masked.  uniform [S or R, N, F], mask_prob [R] -> [R, N, F] bool."""
    return uniform < mask_prob[:, None, None]
