"""The paper's baseline pretexts: values (VR), masks (MX), both (MR), and indices of fixed quantile bins (BR).

Method, Sec. 2.  Targets come from the uncorrupted rows, masked or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adaptbin.binning.discretizer import assign_all, initial_bins
from adaptbin.config import RECONSTRUCTED
from adaptbin.data.encode import EncodedRows
from adaptbin.encoders.base import ReplicaEncoder
from adaptbin.encoders.mlp import mlp_decoder
from adaptbin.encoders.registry import make_encoder
from adaptbin.pretext.baselines import mask_cross_entropy_, squared_error_, standardised_indices
from adaptbin.pretext.corruption import masked_entries
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from adaptbin.training.draws import Kept
from adaptbin.training.pretrain import Epoch, Pretraining, SavedReplica, Targets
from adaptbin.training.rows import columns_of

_VECTOR = 8
"""Outputs come in whole vectors: products with other numbers of columns are rounded differently in other packs."""


@dataclass
class _Decoders:
    """Encoder, and a decoder per thing that is predicted."""

    bank: ParameterBank
    encoder: ReplicaEncoder
    decoders: tuple[ReplicaMLP, ...]


class Reconstruction(Pretraining):
    """Pretraining on whatever ``RECONSTRUCTED`` names for its pretext; losses of several decoders add up."""

    model: _Decoders

    def _make_model(self, table: EncodedRows) -> _Decoders:
        self.columns = table.inputs.shape[1]
        self.parts = RECONSTRUCTED[self.replicas[0].hyperparameters.pretext]
        if "index" in self.parts:
            self._index, self._count = self._bin_indices(table)
        outputs = (self.columns // _VECTOR + 1) * _VECTOR  # more than the columns: see adaptbin.pretext.baselines
        encoder = make_encoder(columns_of(table), self.architecture)
        decoders = tuple(
            mlp_decoder(self.architecture, self.protocol, f"decoder.{part}", inputs=encoder.width, outputs=outputs)
            for part in self.parts
        )
        parts: tuple[ReplicaEncoder | ReplicaMLP, ...] = (encoder, *decoders)
        shapes = {name: shape for part in parts for name, shape in part.shapes().items()}
        bank = ParameterBank(shapes, len(self.replicas), self.device)
        for part in parts:
            generators = {seed: stream(seed, "init", part.name) for seed in self.seeds}
            part.initialise(bank, [generators[seed] for seed in self.seeds])
            part.bind(bank)
        return _Decoders(bank, encoder, decoders)

    def _bin_indices(self, table: EncodedRows) -> tuple[Tensor, Tensor]:
        """Standardised bin indices [R, N, F] of the train rows, and the number of bins [R, D] on the CPU."""
        # DIFF[released->ours] the BinRecon code makes one bin less than it is asked for; here T bins are T bins.
        # Switch: `br_bins`.
        less = int(self.protocol.br_bins == "one_less")
        asked = [r.hyperparameters.t_init - less for r in self.replicas]
        bins = initial_bins(self.rows.values, asked, asked, self.rows.observed)
        codes = self.rows.codes.t().to(torch.float64).expand(len(asked), -1, -1)
        # DIFF[released->ours] the BinRecon code bins categories, too, where a column has T levels or more; here they
        # keep their codes.  Switch: `br_categorical`.
        if self.protocol.br_categorical == "binned":
            codes = self._binned(codes, table.cardinalities, asked)
        index = torch.cat([assign_all(self.rows.values, bins.edges).to(torch.float64), codes], 2)
        counts = None if self.rows.weights is None else self.rows.weights.t() > 0
        return standardised_indices(index, -2, counts).to(torch.float32), bins.n_bins.cpu()

    def _binned(self, codes: Tensor, cardinalities: Sequence[int], asked: Sequence[int]) -> Tensor:
        """Codes [R, N, C], as indices of quantile bins where a column has as many levels as its replica's T or more."""
        values = self.rows.codes.t().to(torch.float32).contiguous()
        binned = assign_all(values, initial_bins(values, asked, asked).edges).to(torch.float64)
        levels = torch.tensor(cardinalities, device=self.device)
        wide = levels >= torch.tensor([r.hyperparameters.t_init for r in self.replicas], device=self.device)[:, None]
        return torch.where(wide[:, None], binned, codes)

    @property
    def n_bins(self) -> Tensor:
        """[R, D] int64 for BinRecon, whose bins stay as they are; [R, 0] for the others."""
        return self._count if "index" in self.parts else super().n_bins

    def _targets(self, rows: Tensor, inputs: Tensor, uniform: Tensor | None) -> Targets:
        """Per decoder what it predicts, [R or 1, n, F] float32, and last their weights where not all are 1."""
        weights = self.rows.weights_of(rows)
        predicted = tuple(self._target(part, rows, inputs, uniform) for part in self.parts)
        return predicted if weights is None else (*predicted, weights.transpose(1, 2))

    def _target(self, part: str, rows: Tensor, inputs: Tensor, uniform: Tensor | None) -> Tensor:
        if part == "value":
            return inputs
        if part == "mask":
            assert uniform is not None, "replicas that predict masks have some"
            return masked_entries(uniform, self.mask_prob).to(torch.float32)
        return self._index.gather(1, rows.unsqueeze(-1).expand(len(self.replicas), -1, self.columns))

    def _step(self, inputs: Tensor, kept: Kept, targets: Targets, rows: slice) -> Tensor:
        model = self.model
        embedding = model.encoder.forward(inputs, kept.encoder)
        used = 0
        total = inputs.new_zeros(len(self.replicas))
        below: Tensor | None = None
        predicted, weights = targets[: len(self.parts)], targets[len(self.parts) :]
        entries = weights[0][:, rows] if weights else None
        for part, decoder, target in zip(self.parts, model.decoders, predicted, strict=True):
            units = None if kept.decoders is None else kept.decoders[used : used + decoder.hidden]
            used += decoder.hidden
            output = decoder.forward(embedding, units)
            loss_ = mask_cross_entropy_ if part == "mask" else squared_error_
            total = total + loss_(output, target[:, rows], self.columns, entries)
            gradient = decoder.backward(output, input_gradient=True)
            assert gradient is not None
            below = gradient if below is None else below + gradient
        assert below is not None
        model.encoder.backward(below, input_gradient=False)
        return total

    def _end_epoch(self, loss: Tensor) -> Epoch:
        mean_loss = loss.cpu()
        self._freeze_diverged(torch.isfinite(mean_loss).tolist())
        nothing = torch.zeros_like(mean_loss)
        return Epoch(mean_loss, self.n_bins, nothing, nothing)

    def _own_state(self) -> dict[str, Any]:
        return {}  # targets follow from the table and the points

    def _load_own(self, saved: Sequence[SavedReplica]) -> None:
        self._load_parameters(saved)
        self.optimizer.attach(self.model.bank, [self.model.bank.values.shape[1]] * len(self.replicas))
        self._steps.invalidate()
