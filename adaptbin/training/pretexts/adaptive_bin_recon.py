"""Adaptive bins without HORD (the ablation "w/o HORD"): one output per numerical column predicts the index of its bin.

Method, Sec. 3: squared error on indices that are standardised anew after each refinement; FPT watches that error;
categorical columns keep their cross entropy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from adaptbin.pretext.baselines import standardised_indices
from adaptbin.pretext.hord import DEAD_LOGIT, HordWeights, cross_entropy_
from adaptbin.replicas.heads import GrowingHeads
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.training.autoencoder import Autoencoder
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning


class IndexAutoencoder(Autoencoder):
    """Heads that do not grow: the categories' logits, then one output per numerical column."""

    _ready_for: ParameterBank | None = None

    def _make_heads(self, width: int) -> GrowingHeads:
        return GrowingHeads(width, self.levels * self.n_categorical + self.n_numerical, 0)

    def set_bins(self, count: Tensor, slots: int, weights: HordWeights) -> bool:
        """Nothing here depends on the bins but the targets."""
        if self._ready_for is self.bank:
            return False
        self.heads.bind(self.bank, 0, 0)
        self.encoder.bind(self.bank)
        self.decoder.bind(self.bank)
        alive = torch.zeros(self.n_numerical, dtype=torch.bool, device=self.device)
        self._dead = torch.cat([self._dead_codes, alive]).expand(len(self.seeds), -1)
        self._ready_for = self.bank
        return True

    def _reconstruct(
        self, hidden: Tensor, codes: Tensor, bins: Tensor, entries: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """bins [R, D, B]: standardised indices -> total [R], squared error [R, D], gradient of ``hidden``."""
        output = self.heads.forward(hidden, self._dead, DEAD_LOGIT)
        replicas, batch = hidden.shape[:2]
        columns = self.n_categorical + self.n_numerical
        scale = 1.0 / (columns * batch)
        total = hidden.new_zeros(replicas)
        categorical = self.levels * self.n_categorical
        if self.n_categorical:
            part = output[:, :categorical].view(replicas, self.levels, self.n_categorical, batch)
            total = total + cross_entropy_(part, codes, self._live_codes, scale).sum(1)
        error = output[:, categorical:].sub_(bins)
        squares = error.square()
        error.mul_(2.0 * scale)
        if entries is not None:
            squares.mul_(entries)
            error.mul_(entries)
        feature_loss = squares.mean(-1)
        return (total + feature_loss.sum(1)) / columns, feature_loss, self.heads.backward()


class AdaptiveBinRecon(AdaptiveBinning):
    """Adaptive bins whose indices are predicted as numbers."""

    model: IndexAutoencoder
    _autoencoder = IndexAutoencoder

    def _plateau_metric(self, per_feature: Tensor) -> Tensor:
        return per_feature  # the weights of HORD have no part in it

    def _target_of(self, bins: Tensor, observed: Tensor | None) -> Tensor:
        return standardised_indices(bins.to(torch.float64), -1, observed).to(torch.float32)
