"""The random draws of one epoch, made once per seed and shared by every replica of a pack that uses the seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from adaptbin.config import Replica
from adaptbin.replicas.streams import MaskDraws, SeedIndex, kept_units, mask_draws, row_order


class EpochDraws:
    """The draws of one epoch, made once per seed and shared by all replicas of a pack that use it."""

    def __init__(self, n_rows: int, n_columns: int, replica: Replica, hidden_blocks: int, device: torch.device) -> None:
        self._shape = (n_rows, n_columns)
        self._architecture = replica.architecture
        self._blocks = hidden_blocks
        self._device = device
        self._made: dict[tuple[str, int], Any] = {}
        self.epoch = -1

    def start(self, epoch: int) -> None:
        """Forget the last epoch's draws."""
        self.epoch = epoch
        self._made = {}

    def order(self, index: SeedIndex) -> Tensor:
        """[S, N] row order of each distinct seed."""
        return torch.stack([self._once("order", seed) for seed in index.seeds])

    def kept(self, index: SeedIndex) -> Tensor | None:
        """[S, L, N, H] bool, hidden units kept by dropout, in epoch order; None without dropout."""
        if self._architecture.dropout == 0:
            return None
        drawn = [self._once("kept", seed) for seed in index.seeds]
        return drawn[0].unsqueeze(0) if len(drawn) == 1 else torch.stack(drawn)

    def masks(self, index: SeedIndex) -> MaskDraws:
        """Masking draws of each distinct seed, [S, N, F] each."""
        drawn = [self._once("masks", seed) for seed in index.seeds]
        return MaskDraws(*(torch.stack(parts) for parts in zip(*drawn, strict=True)))

    def _once(self, kind: str, seed: int) -> Any:
        if (kind, seed) not in self._made:
            n_rows, n_columns = self._shape
            if kind == "order":
                made: Any = row_order(seed, self.epoch, n_rows).to(self._device)
            elif kind == "kept":
                width, drop = self._architecture.width, self._architecture.dropout
                made = kept_units(seed, self.epoch, self._blocks, n_rows, width, drop).to(self._device)
            else:
                drawn = mask_draws(seed, self.epoch, n_rows, n_columns, self._architecture.batch_size)
                made = MaskDraws(*(part.to(self._device) for part in drawn))
            self._made[kind, seed] = made
        return self._made[kind, seed]
