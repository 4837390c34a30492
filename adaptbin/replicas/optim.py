"""AdamW and gradient clipping, each replica by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from adaptbin import native
from adaptbin.replicas.parameters import ParameterBank


def clip_per_replica_(gradients: Tensor, max_norm: float) -> None:
    """Scale each replica's gradient to an L2 norm of at most ``max_norm``, in place.  gradients [R, P].

    One norm over the whole pack would let one replica throttle the others.
    """
    factor = (max_norm / (torch.linalg.vector_norm(gradients, dim=1) + 1e-6)).clamp_(max=1.0)
    # On a CPU reading the flags costs nothing and nearly always saves a pass over all gradients.
    if gradients.device.type != "cpu" or bool((factor < 1.0).any()):
        gradients.mul_(factor[:, None])


class ReplicaAdamW:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101) with a step size and decay per replica and one global step count.

    learning_rate, weight_decay: one number per replica.  max_norm: every step first clips each replica's gradient to it
    (see :func:`clip_per_replica_`); None leaves gradients as they are.
    """

    def __init__(
        self,
        bank: ParameterBank,
        learning_rate: Sequence[float],
        weight_decay: Sequence[float],
        *,
        max_norm: float | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.learning_rate = tuple(learning_rate)
        self.weight_decay = tuple(weight_decay)
        self.max_norm = max_norm
        self.betas = betas
        self.eps = eps
        self.step_count = 0
        self.alive = [True] * len(self.learning_rate)
        self.attach(bank, [bank.values.shape[1]] * len(self.learning_rate))

    def attach(self, bank: ParameterBank, lengths: Sequence[int]) -> None:
        """Update the first ``lengths[r]`` parameters of each replica of ``bank`` from now on.

        Moments and step count go on.  Lengths are whole vectors, as :meth:`ParameterBank.live_length` gives them.
        """
        self._bank = bank
        self._lengths = tuple(lengths)
        if native.serves(bank.values):
            self._compiled: native.Optimizer | None = self._describe(bank)
            return
        self._compiled = None
        groups: dict[tuple[float, float], list[int]] = {}
        for r, key in enumerate(zip(self.learning_rate, self.weight_decay, strict=True)):
            if self.alive[r]:
                groups.setdefault(key, []).append(r)
        # torch takes one step size per call, so replicas that share theirs go together: one call in most packs.
        self._groups = [
            (rate, decay, tuple([buffer[r, : lengths[r]] for r in members] for buffer in bank.buffers()))
            for (rate, decay), members in groups.items()
        ]
        self._steps = list(torch.full((len(self.alive),), float(self.step_count), device=bank.device).unbind())

    def _describe(self, bank: ParameterBank) -> native.Optimizer:
        # Kept beside the description, which holds addresses only.
        self._described = (
            torch.tensor([n if alive else 0 for n, alive in zip(self._lengths, self.alive, strict=True)]),
            torch.tensor(self.learning_rate, dtype=torch.float64),
            torch.tensor(self.weight_decay, dtype=torch.float64),
        )
        return native.Optimizer(
            bank.replicas,
            bank.values.stride(0),
            *(buffer.data_ptr() for buffer in bank.buffers()),
            *(part.data_ptr() for part in self._described),
            *self.betas,
            self.eps,
            self.max_norm or 0.0,
        )

    def freeze(self, replicas: Sequence[int]) -> None:
        """Leave these replicas as they are from now on (they diverged)."""
        for r in replicas:
            self.alive[r] = False
        self.attach(self._bank, self._lengths)

    def step(self, factor: float | Tensor = 1.0) -> None:
        """One update of every living replica; ``factor`` scales all step sizes (a schedule).

        A number would be part of a recorded graph; a float32 scalar on the device may change between replays.
        """
        if self._compiled is not None:
            native.adamw(self._compiled, self.step_count + 1, float(factor))
            self.step_count += 1
            return
        if self.max_norm is not None:
            clip_per_replica_(self._bank.gradients[:, : max(self._lengths, default=0)], self.max_norm)
        used = 0
        for rate, decay, (values, gradients, first, second) in self._groups:
            steps = self._steps[used : used + len(values)]
            used += len(values)
            adamw(
                values,
                gradients,
                first,
                second,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=self.betas[0],
                beta2=self.betas[1],
                lr=rate * factor,
                weight_decay=decay,
                eps=self.eps,
                maximize=False,
            )
        self.step_count += 1


def schedule_factor(kind: str, step: int, total: int) -> float:
    """Share of the base step size at ``step`` (from 0) of ``total``: 1 for "constant"; "cosine" falls to 0."""
    return 1.0 if kind == "constant" else 0.5 * (1.0 + math.cos(math.pi * step / total))
