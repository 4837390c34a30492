"""FPT: when a feature's bins are refined.  One feature of one replica."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Plateau:
    """The rule's memory."""

    best: float = float("inf")
    stale: int = 0

    def step(self, loss: float, *, patience: int, delta: float, growable: bool) -> bool:
        """One epoch -> whether the feature triggers.  A NaN loss is no improvement."""
        if loss < self.best - delta:
            self.best, self.stale = loss, 0
        else:
            self.stale += 1
        if self.stale >= patience and growable:
            self.best, self.stale = float("inf"), 0
            return True
        return False
