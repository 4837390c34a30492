"""The random draws of one epoch, made once per seed and shared by every replica of a pack that uses the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.config import RECONSTRUCTED, Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.encoders.mlp import decoder_blocks
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import kept_units, mask_draws, row_order
from adaptbin.training.graphs import MakeGraph, Replayed


class Draws(NamedTuple):
    """What is drawn for the rows [N] of one epoch, or a stretch of them, for each of S seeds."""

    order: Tensor
    """[S, N] int64, train rows in the order of the epoch."""
    kept: Tensor | None
    """[S, L, N, H] bool, hidden units kept by dropout; None without dropout."""
    uniform: Tensor | None
    """[S, N, F] float32, decides which entries are masked; None where no replica masks."""
    source: Tensor | None
    """[S, N, F] int64, position in the epoch (or stretch) of the row that gives a masked entry its value."""

    def stretch(self, start: int, end: int) -> Draws:
        """The draws of the rows [start, end), which must begin with a batch."""
        return Draws(
            self.order[:, start:end],
            None if self.kept is None else self.kept[:, :, start:end],
            None if self.uniform is None else self.uniform[:, start:end],
            None if self.source is None else self.source[:, start:end] - start,
        )


class EpochDraws:
    """The draws of one epoch after another, for all seeds of a pack, made where they are used."""

    def __init__(
        self, replicas: Sequence[Replica], table: EncodedTable, device: torch.device, graphs: MakeGraph | None = None
    ) -> None:
        first = replicas[0]
        self.seeds = tuple(dict.fromkeys(r.seeds.pretrain for r in replicas))
        """S distinct seeds, in the order of the draws."""
        self._architecture = first.architecture
        # Encoder and decoders have dropped units of their own.
        decoders = len(RECONSTRUCTED[first.hyperparameters.pretext])
        self._blocks = first.architecture.depth + decoders * decoder_blocks(first.architecture, first.protocol)
        self._shape = (len(table.train), table.inputs.shape[1])
        self._is_masked = any(r.hyperparameters.mask_prob > 0 for r in replicas)
        self._keys = {
            name: stream_keys([(seed, name) for seed in self.seeds], device)
            for name in ("order", "dropout", "corruption")
        }
        self._epoch = torch.full((), -1, dtype=torch.int64, device=device)
        self._at = -1
        self._draw = Replayed(self._draw_all, graphs)
        self._drawn: Draws | None = None

    def at(self, epoch: int) -> Draws:
        """Draws of ``epoch``; stacks that ask for the same epoch share them, and the next epoch's replace them."""
        if epoch != self._at:
            self._epoch.fill_(epoch)
            self._draw()
            self._at = epoch
        assert self._drawn is not None
        return self._drawn

    def _draw_all(self) -> None:
        n_rows, n_columns = self._shape
        width, batch_size, drop = self._architecture.width, self._architecture.batch_size, self._architecture.dropout
        keys, epoch = self._keys, self._epoch
        # Dropped units of a large table are hundreds of megabytes: never those of two epochs at once.
        self._drawn = None
        kept = kept_units(keys["dropout"], epoch, self._blocks, n_rows, width, drop) if drop else None
        masks = (
            mask_draws(keys["corruption"], epoch, n_rows, n_columns, batch_size) if self._is_masked else (None, None)
        )
        # Recorded as a graph, these are the graph's own tensors, which every replay fills anew.
        self._drawn = Draws(row_order(keys["order"], epoch, n_rows), kept, *masks)
