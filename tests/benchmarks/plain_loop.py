"""One model trained as research code usually trains it: what the stacked replicas are compared with.

Written from the equations (method, Sec. 1; paper: arXiv 2606.19827) with the tools everybody uses: ``nn.Linear``,
autograd, ``torch.optim.AdamW`` and ``clip_grad_norm_`` with torch's defaults, a head of T_max columns per numerical
feature, a Python loop over features.  It is the same model as ours, loss and gradients included, which
``test_plain_loop.py`` keeps true; nothing in it was slowed down, and nothing was tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adaptbin.config import Architecture, Hyperparameters

MAX_GRADIENT_NORM = 100.0
DEAD_LOGIT = -1e9
"""Logit of a dead column."""


def mlp(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear -> ReLU -> Dropout for every hidden layer, then one plain Linear."""
    layers: list[nn.Module] = []
    *hidden, last = pairwise(sizes)
    for d_in, d_out in hidden:
        layers += [nn.Linear(d_in, d_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(*last))


class PlainAutoencoder(nn.Module):
    """Encoder, decoder with one hidden block, and one linear head per column."""

    def __init__(self, n_numerical: int, cardinalities: Sequence[int], architecture: Architecture, t_max: int) -> None:
        super().__init__()
        width, drop = architecture.width, architecture.dropout
        self.encoder = mlp([n_numerical + len(cardinalities), *[width] * (architecture.depth + 1)], drop)
        self.decoder = mlp([width, width, width], drop)
        self.numerical_heads = nn.ModuleList(nn.Linear(width, t_max) for _ in range(n_numerical))
        self.categorical_heads = nn.ModuleList(nn.Linear(width, levels) for levels in cardinalities)

    def forward(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """x [B, D + C] -> logits per numerical feature [B, T_max] and per categorical column [B, levels]."""
        hidden = self.decoder(self.encoder(x))
        return [head(hidden) for head in self.numerical_heads], [head(hidden) for head in self.categorical_heads]


def hord(logits: Tensor, target: Tensor, n_bins: int, point: Hyperparameters) -> Tensor:
    """L_num of one feature, mean over the batch.  logits [B, T_max], target [B] bins, the first ``n_bins`` live."""
    slot = torch.arange(logits.shape[1], dtype=logits.dtype)
    dead = slot >= n_bins
    target = target.to(logits.dtype)
    log_p = logits.masked_fill(dead, DEAD_LOGIT).log_softmax(1)
    p = log_p.exp()
    q = (-(slot - target[:, None]).square()).masked_fill(dead, DEAD_LOGIT).softmax(1)
    sord = -(q * log_p).sum(1)
    mu = (p * slot).sum(1)
    variance = ((p * slot.square()).sum(1) - mu.square()).clamp(min=0)
    return (point.w_sord * sord + point.w_mse * (mu - target).square() + point.w_var * variance).mean()


class PlainLoop:
    """One model under training, with its own bins, plateau memory and optimiser.

    ``table`` gives inputs [N, D + C], train rows, n_numerical and cardinalities.
    """

    def __init__(self, table: Any, architecture: Architecture, point: Hyperparameters, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.point, self.batch_size = point, architecture.batch_size
        d = table.n_numerical
        self.x = table.inputs[table.train]
        self.values = self.x[:, :d].numpy()
        self.codes = self.x[:, d:].long()
        self.edges = [
            np.unique(np.percentile(column.astype(np.float64), 100 * np.arange(1, point.t_init) / point.t_init))
            for column in self.values.T
        ]
        self.bins = torch.zeros(len(self.x), d, dtype=torch.int64)
        for feature in range(d):
            self._assign(feature)
        self.best, self.stale = np.full(d, np.inf), np.zeros(d, dtype=int)
        self.model = PlainAutoencoder(d, table.cardinalities, architecture, point.t_max)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=point.learning_rate, weight_decay=point.weight_decay
        )

    @property
    def n_bins(self) -> list[int]:
        """Live bins per feature."""
        return [len(edges) + 1 for edges in self.edges]

    def loss(self, x: Tensor, codes: Tensor, bins: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Total loss of a batch, and L_num per feature.  x [B, D + C], codes [B, C], bins [B, D]."""
        numerical, categorical = self.model(x)
        live = self.n_bins
        features = [hord(z, bins[:, n], live[n], self.point) for n, z in enumerate(numerical)]
        columns = [functional.cross_entropy(z, codes[:, c]) for c, z in enumerate(categorical)]
        # C/(C+D) mean_c L_cat + D/(C+D) mean_n L_num is the plain mean over all columns.
        return torch.stack([*features, *columns]).mean(), features

    def run_epoch(self) -> None:
        """One pass over the shuffled rows, then the bins of features whose loss has stopped falling."""
        self.model.train()
        order = torch.randperm(len(self.x))
        sums, steps = np.zeros(len(self.edges)), 0
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            total, features = self.loss(self.x[rows], self.codes[rows], self.bins[rows])
            self.optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
            self.optimizer.step()
            if features:
                sums += torch.stack(features).detach().numpy()
            steps += 1
        self._refine_where_flat(sums / steps)

    def _refine_where_flat(self, losses: np.ndarray) -> None:
        """FPT per feature, and DIGS for those that trigger."""
        better = losses < self.best - self.point.delta
        self.best = np.where(better, losses, self.best)
        self.stale = np.where(better, 0, self.stale + 1)
        fired = [d for d in np.flatnonzero(self.stale >= self.point.patience) if self.n_bins[d] < self.point.t_max]
        if not fired:
            return
        self.best[fired], self.stale[fired] = np.inf, 0
        self.model.eval()
        with torch.no_grad():
            unit = functional.normalize(self.model.encoder(self.x), dim=1).numpy()
        for feature in fired:
            self._split(feature, unit)

    def _split(self, feature: int, unit: np.ndarray) -> None:
        """Split at its median every bin where variance and dispersion both gain enough."""
        column, bins = self.values[:, feature], self.bins[:, feature].numpy()
        lower = np.concatenate([[-np.inf], self.edges[feature]])
        found = []
        for k in range(len(lower)):
            values, rows = column[bins == k], unit[bins == k]
            if len(values) < 2 * self.point.min_bin:
                continue
            cut = np.median(values)
            left = values < cut
            share = left.mean()
            if min(left.sum(), (~left).sum()) < self.point.min_bin or cut == lower[k]:
                continue
            gain, gain_disp = (
                spread(data) - share * spread(data[left]) - (1 - share) * spread(data[~left])
                for spread, data in ((_variance, values), (_dispersion, rows))
            )
            if gain > 0 and gain_disp > 0 and gain * gain_disp > self.point.tau:
                found.append((gain * gain_disp, float(cut)))
        room = self.point.t_max - self.n_bins[feature]
        cuts = [cut for _, cut in sorted(found, reverse=True)[:room]]
        self.edges[feature] = np.sort(np.concatenate([self.edges[feature], cuts]))
        self._assign(feature)

    def _assign(self, feature: int) -> None:
        bins = np.searchsorted(self.edges[feature], self.values[:, feature].astype(np.float64), side="right")
        self.bins[:, feature] = torch.from_numpy(bins)


def _variance(values: np.ndarray) -> float:
    return float(values.var(dtype=np.float64))


def _dispersion(unit: np.ndarray) -> float:
    """|log(eps + squared length of the mean direction)|."""
    return abs(float(np.log(1e-6 + min(float(np.square(unit.mean(0)).sum()), 1.0))))
