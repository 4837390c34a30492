"""AdamW with decoupled decay, clipping of one gradient norm, and the cosine schedule.  One replica, arrays by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

Arrays = dict[str, np.ndarray]


def clip(gradients: Arrays, limit: float) -> Arrays:
    """All gradients scaled by min(1, limit / (norm + 1e-6)), the norm over all of them together."""
    norm = math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))
    factor = min(1.0, limit / (norm + 1e-6))
    return {name: (g * g.dtype.type(factor)) for name, g in gradients.items()}


def scheduled(rate: float, step: int, n_steps: int, schedule: str) -> float:
    """Learning rate of step 0, 1, ...: constant, or half a cosine that would reach 0 at step n_steps."""
    return rate if schedule == "constant" else rate * (1 + math.cos(math.pi * step / n_steps)) / 2


@dataclass
class AdamW:
    """Moments of every array, and one step count for all of them."""

    rate: float
    decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    steps: int = 0
    first: Arrays = field(default_factory=dict)
    second: Arrays = field(default_factory=dict)

    def step(self, parameters: Arrays, gradients: Arrays, rate: float | None = None) -> Arrays:
        """Updated parameters, in the parameters' own type; scalars are worked out in float64 first."""
        rate = self.rate if rate is None else rate
        self.steps += 1
        beta1, beta2 = self.betas
        size = rate / (1 - beta1**self.steps)
        root = math.sqrt(1 - beta2**self.steps)
        updated = {}
        for name, value in parameters.items():
            kind, gradient = value.dtype.type, gradients[name]
            m = self.first.get(name, np.zeros_like(value))
            v = self.second.get(name, np.zeros_like(value))
            m = m + kind(1 - beta1) * (gradient - m)
            v = kind(beta2) * v + kind(1 - beta2) * gradient * gradient
            self.first[name], self.second[name] = m, v
            decayed = value * kind(1 - rate * self.decay)
            updated[name] = decayed - kind(size) * m / (np.sqrt(v) / kind(root) + kind(self.epsilon))
        return updated
