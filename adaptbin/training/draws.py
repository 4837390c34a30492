"""The random draws of one epoch, made once per seed and shared by every replica of a pack that uses the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from adaptbin.config import RECONSTRUCTED, Architecture, Replica
from adaptbin.data.encode import EncodedRows
from adaptbin.encoders.mlp import decoder_blocks
from adaptbin.encoders.registry import make_encoder
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import SeedIndex, kept_in_step, kept_units, mask_draws, row_order
from adaptbin.training.graphs import MakeGraph, Replayed
from adaptbin.training.rows import columns_of


class Draws(NamedTuple):
    """What is drawn for the rows [N] of one epoch, or a stretch of them, for each of S seeds."""

    order: Tensor
    """[S, N] int64, train rows in the order of the epoch."""
    kept: Tensor | None
    """[S, L, N, H] bool, hidden units of L perceptron blocks kept by dropout; None without dropout."""
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


class Kept(NamedTuple):
    """Units that dropout keeps in one step, per site [R or 1, B, units] bool; None where nothing is dropped."""

    encoder: Sequence[Tensor] | None
    """Per site of the encoder's ``drop_sites``."""
    decoders: Sequence[Tensor] | None
    """Per hidden block, decoder after decoder."""


class EpochDraws:
    """The draws of one epoch after another, for all seeds of a pack, made where they are used.

    Hidden units of perceptrons, the encoder's if it is one and then the decoders', are drawn for a whole epoch; those
    of another encoder step by step (:meth:`kept`).
    """

    def __init__(
        self,
        seeds: Sequence[int],
        table: EncodedRows,
        architecture: Architecture,
        device: torch.device,
        graphs: MakeGraph | None = None,
        *,
        names: tuple[str, ...] = (),
        decoder_blocks: int = 0,
        is_masked: bool = False,
        n_rows: int | None = None,
    ) -> None:
        """``names``: what the streams' names begin with; ``decoder_blocks``: hidden blocks of all decoders; ``n_rows``:
        N, as many as train by default."""
        self.seeds = tuple(dict.fromkeys(seeds))
        """S distinct seeds, in the order of the draws."""
        self._architecture = architecture
        sites = make_encoder(columns_of(table), architecture).drop_sites
        is_perceptron = architecture.encoder == "mlp"
        self._sites = () if is_perceptron else sites
        self._encoder_blocks = architecture.depth if is_perceptron else 0
        self._blocks = self._encoder_blocks + decoder_blocks
        self._shape = (len(table.train) if n_rows is None else n_rows, table.inputs.shape[1])
        self._is_masked = is_masked

        def keys(*name: str) -> Tensor:
            return stream_keys([(seed, *names, *name) for seed in self.seeds], device)

        self._keys = {name: keys(name) for name in ("order", "dropout", "corruption")}
        # The words of a step must not be those of an epoch's first rows.
        self._step_keys = keys("dropout", "encoder")
        self._epoch = torch.full((), -1, dtype=torch.int64, device=device)
        self._at = -1
        self._draw = Replayed(self._draw_all, graphs)
        self._drawn: Draws | None = None

    @classmethod
    def of_pretraining(
        cls, replicas: Sequence[Replica], table: EncodedRows, device: torch.device, graphs: MakeGraph | None = None
    ) -> Self:
        """Draws for replicas that share pretext and architecture, by their seeds of pretraining."""
        first = replicas[0]
        # Encoder and decoders have dropped units of their own.
        decoders = len(RECONSTRUCTED[first.hyperparameters.pretext])
        return cls(
            [r.seeds.pretrain for r in replicas],
            table,
            first.architecture,
            device,
            graphs,
            decoder_blocks=decoders * decoder_blocks(first.architecture, first.protocol),
            is_masked=any(r.hyperparameters.mask_prob > 0 for r in replicas),
            n_rows=len(table.pretraining),
        )

    def at(self, epoch: int) -> Draws:
        """Draws of ``epoch``; stacks that ask for the same epoch share them, and the next epoch's replace them."""
        if epoch != self._at:
            self._epoch.fill_(epoch)
            self._draw()
            self._at = epoch
        assert self._drawn is not None
        return self._drawn

    def kept(self, index: SeedIndex, drawn: Tensor | None, rows: slice, step: Tensor) -> Kept:
        """Kept units of the replicas that ``index`` tells, in one step of the epoch last asked for.

        drawn: :attr:`Draws.kept` of the stretch; rows: the step's rows in it; step [] int64 counts from the epoch's
        start.
        """
        encoder: list[Tensor] | None = None
        decoders: list[Tensor] | None = None
        if drawn is not None:
            blocks = [index.spread(drawn[:, block, rows]) for block in range(self._blocks)]
            encoder, decoders = blocks[: self._encoder_blocks] or None, blocks[self._encoder_blocks :]
        if self._sites:
            size = rows.stop - rows.start
            keys = self._step_keys.index_select(0, index.used)
            encoder = [
                index.spread_used(kept_in_step(keys, self._epoch, step, i, size, site.units, site.probability))
                for i, site in enumerate(self._sites)
            ]
        return Kept(encoder, decoders)

    def _draw_all(self) -> None:
        n_rows, n_columns = self._shape
        width, batch_size, drop = self._architecture.width, self._architecture.batch_size, self._architecture.dropout
        keys, epoch = self._keys, self._epoch
        # Dropped units of a large table are hundreds of megabytes: never those of two epochs at once.
        self._drawn = None
        kept = kept_units(keys["dropout"], epoch, self._blocks, n_rows, width, drop) if drop and self._blocks else None
        masks = (
            mask_draws(keys["corruption"], epoch, n_rows, n_columns, batch_size) if self._is_masked else (None, None)
        )
        # Recorded as a graph, these are the graph's own tensors, which every replay fills anew.
        self._drawn = Draws(row_order(keys["order"], epoch, n_rows), kept, *masks)
