"""Products whose sums do not depend on how many replicas there are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

_UNIT = 8
"""Torch's CPU products round a replica the same alone and among others where all widths are multiples of this."""


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x [R, B, in], weight [R, in, out] -> [R, B, out].

    Narrower widths are filled up with zeros, so that this and both gradients are bit for bit the same for a replica
    alone and in any stack, on a CPU core.
    """
    d_in, d_out = weight.shape[1:]
    more_in, more_out = -d_in % _UNIT, -d_out % _UNIT
    if more_in or more_out:
        weight = functional.pad(weight, (0, more_out, 0, more_in))
    if more_in:
        x = functional.pad(x, (0, more_in))
    out = torch.bmm(x, weight)
    return out[..., :d_out] if more_out else out


def linear(name: str, x: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
    """x [R, B, in] times ``<name>.weight`` [R, in, out] plus ``<name>.bias`` [R, out] -> [R, B, out]."""
    return product(x, parameters[f"{name}.weight"]) + parameters[f"{name}.bias"].unsqueeze(1)
