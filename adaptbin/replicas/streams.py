"""Named random streams: every draw comes from a generator derived from a seed and a name, never from a global one.

A stream depends on the seed and its name only, not on hyperparameters or pack mates, so two points with one seed
start from the same weights and see the same batches, dropped units and masked entries: a fair pair.
Because each epoch has streams of its own, resuming at an epoch needs no stored generator state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


def stream(seed: int, *names: str | int) -> torch.Generator:
    """Generator of the stream called ``names`` under ``seed``, e.g. ``stream(3, "dropout", epoch)``.

    Always a CPU generator, whatever the replicas train on: a GPU's would draw other numbers, and replicas of one study
    that were trained on different devices would no longer be pairs.
    """
    text = "/".join(str(part) for part in (seed, *names))
    digest = hashlib.sha256(text.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class SeedIndex:
    """Which of the distinct seeds each replica uses, so that replicas of one seed share one draw."""

    seeds: tuple[int, ...]
    """S distinct seeds, in order of first appearance."""
    of_replica: Tensor
    """[R] int64, position of each replica's seed in ``seeds``."""

    @classmethod
    def of(cls, seeds: Sequence[int], device: torch.device | str = "cpu") -> SeedIndex:
        """Index of a pack's seeds, one per replica."""
        distinct = tuple(dict.fromkeys(seeds))
        position = {seed: s for s, seed in enumerate(distinct)}
        return cls(distinct, torch.tensor([position[seed] for seed in seeds], dtype=torch.int64, device=device))

    def spread(self, drawn: Tensor) -> Tensor:
        """[S, ...] drawn once per seed -> [R, ...] for the replicas, or [1, ...] to broadcast when all share a seed."""
        return drawn if len(self.seeds) == 1 else drawn.index_select(0, self.of_replica)


def row_order(seed: int, epoch: int, n_rows: int) -> Tensor:
    """[N] int64 permutation of the train rows for one epoch; batches are cut from it in order."""
    return torch.randperm(n_rows, generator=stream(seed, "order", epoch))


def kept_units(seed: int, epoch: int, layers: int, n_rows: int, width: int, drop: float) -> Tensor:
    """[L, N, H] bool, hidden units that dropout keeps in one epoch; row i belongs to the i-th row of the order."""
    return torch.rand(layers, n_rows, width, generator=stream(seed, "dropout", epoch)) >= drop


class MaskDraws(NamedTuple):
    """One epoch's masking draws of one seed, in epoch order (row i is the i-th of the shuffled rows)."""

    uniform: Tensor
    """[N, F] float32 in [0, 1): an entry is masked where it is below p_m, so a larger p_m masks a superset."""
    source: Tensor
    """[N, F] int64, epoch position of the row that gives the value under "random" masking."""


def mask_draws(seed: int, epoch: int, n_rows: int, n_columns: int, batch_size: int) -> MaskDraws:
    """Draw one epoch's masks; "random" takes an independent permutation of the batch for every column."""
    generator = stream(seed, "corruption", epoch)
    uniform = torch.rand(n_rows, n_columns, generator=generator)
    keys = torch.rand(n_rows, n_columns, generator=generator)
    source = [start + keys[start : start + batch_size].argsort(0) for start in range(0, n_rows, batch_size)]
    return MaskDraws(uniform, torch.cat(source))
