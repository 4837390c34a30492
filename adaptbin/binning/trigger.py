"""Feature-wise plateau trigger (FPT): when a feature's loss has stopped falling, it asks for finer bins.

Paper: arXiv 2606.19827, Sec. 2 ("when").  State is a NamedTuple of tensors and one epoch is a pure function.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Plateau(NamedTuple):
    """Memory of the rule over R replicas x D features."""

    best: Tensor
    """[R, D] float64, lowest loss since the last trigger; +inf after one."""
    stale: Tensor
    """[R, D] int64, epochs since the last improvement."""

    @classmethod
    def start(cls, replicas: int, features: int, device: torch.device | str = "cpu") -> Plateau:
        """State before the first epoch."""
        return cls(
            torch.full((replicas, features), math.inf, dtype=torch.float64, device=device),
            torch.zeros(replicas, features, dtype=torch.int64, device=device),
        )


def plateau_step(
    state: Plateau, loss: Tensor, *, patience: Tensor, delta: Tensor, growable: Tensor
) -> tuple[Plateau, Tensor]:
    """One epoch of the rule.

    loss [R, D]; patience, delta [R]; growable [R, D] (T_n < T_max) -> next state and fired [R, D] bool.
    A loss that is not a number counts as no improvement.  After firing the memory starts over, split or no split.
    """
    # --- FPT: m_n < best_n - delta resets the count; count >= patience fires (method, Sec. 1)
    better = loss < state.best - delta[:, None]
    best = torch.where(better, loss.to(state.best.dtype), state.best)
    stale = torch.where(better, torch.zeros_like(state.stale), state.stale + 1)
    fired = (stale >= patience[:, None]) & growable
    # --- end FPT
    return Plateau(best.masked_fill(fired, math.inf), stale.masked_fill(fired, 0)), fired
