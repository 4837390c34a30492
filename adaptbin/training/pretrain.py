"""Pretraining of R stacked replicas: epochs of HORD steps, and after each the bins that grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptbin.binning.discretizer import Bins, assign, initial_bins
from adaptbin.binning.scorer import SortedColumns, candidates, choose_splits, dispersion_gain, split_edges, unit_rows
from adaptbin.binning.trigger import Plateau, plateau_step
from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.pretext.corruption import corrupt
from adaptbin.pretext.hord import SLOT_MULTIPLE, HordWeights
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.streams import SeedIndex
from adaptbin.training.autoencoder import Autoencoder
from adaptbin.training.draws import EpochDraws

MAX_GRADIENT_NORM = 100.0

HISTORY = ("loss", "mean_bins", "max_bins", "splits", "triggers")


class Pretraining:
    """R replicas under training: model, optimiser, bins and plateau memory, advanced one epoch at a time.

    The replicas share table, architecture, protocol and budget (``group_replicas``) and may differ in everything else.
    """

    def __init__(self, replicas: Sequence[Replica], table: EncodedTable, device: torch.device | str = "cpu") -> None:
        first = replicas[0]
        self.replicas = tuple(replicas)
        self.device = torch.device(device)
        self.architecture, self.protocol, self.epochs = first.architecture, first.protocol, first.budget.epochs
        points = [r.hyperparameters for r in replicas]
        seeds = [r.seeds.pretrain for r in replicas]
        self.index = SeedIndex.of(seeds, self.device)

        def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor([getattr(p, name) for p in points], dtype=dtype, device=self.device)

        self.weights = HordWeights(column("w_sord"), column("w_mse"), column("w_var"))
        self.patience, self.min_bin = column("patience", torch.int64), column("min_bin", torch.int64)
        self.t_max = column("t_max", torch.int64)
        self.delta, self.tau = column("delta", torch.float64), column("tau", torch.float64)
        self.mask_prob = column("mask_prob")
        self.takes_row = torch.tensor([p.masking == "random" for p in points], device=self.device)
        self.is_masked = any(p.mask_prob > 0 for p in points)

        inputs = table.inputs.index_select(0, table.train).to(self.device)
        self.inputs = inputs
        self.values = inputs[:, : table.n_numerical].contiguous()
        self.codes = inputs[:, table.n_numerical :].t().to(torch.int64).contiguous()
        self.columns = SortedColumns.of(self.values)
        self.bins = initial_bins(self.values, [p.t_init for p in points], [p.t_max for p in points])
        self.plateau = Plateau.start(len(points), table.n_numerical, self.device)
        self.targets = self._assign_all()

        self.model = Autoencoder(
            inputs.shape[1],
            table.cardinalities,
            table.n_numerical,
            self.architecture,
            self.protocol,
            seeds,
            self.device,
        )
        self.optimizer = ReplicaAdamW(
            self.model.bank,
            [p.learning_rate for p in points],
            [p.weight_decay for p in points],
            max_norm=MAX_GRADIENT_NORM,
        )
        self.steps_per_epoch = math.ceil(len(inputs) / self.architecture.batch_size)
        self.epoch = 0
        self.diverged_at: list[int | None] = [None] * len(points)
        self.history = {name: torch.zeros(len(points), self.epochs, dtype=torch.float64) for name in HISTORY}
        self._fit_heads()

    @property
    def hidden_blocks(self) -> int:
        """Hidden blocks of encoder and decoder together, each with dropped units of its own."""
        return self.model.encoder.hidden + self.model.decoder.hidden

    def draws(self) -> EpochDraws:
        """A fresh source of draws for this kind of replica; several stacks of one pack may share it."""
        n_rows, n_columns = self.inputs.shape
        return EpochDraws(n_rows, n_columns, self.replicas[0], self.hidden_blocks, self.device)

    def _assign_all(self) -> Tensor:
        """[R, D, N] float32, the target bin of every train value."""
        replicas, features, _ = self.bins.edges.shape
        shape = (replicas, features, len(self.values))
        values = self.values.t().expand(shape).reshape(replicas * features, shape[2])
        return assign(values, self.bins.edges.flatten(0, 1)).view(shape).to(torch.float32)

    def _fit_heads(self) -> None:
        """Make the heads as wide as the widest feature (in whole fours), and tell model and optimiser."""
        widest = self.bins.n_bins.amax(1).tolist() if self.bins.n_bins.numel() else [0] * len(self.replicas)
        own_slots = [-(-bins // SLOT_MULTIPLE) * SLOT_MULTIPLE for bins in widest]
        slots = max(own_slots)
        self.model.reserve(self.model.heads.capacity_for(slots), self._decay_of_past_steps)
        self.model.set_bins(self.bins.n_bins, slots, self.weights)
        # Head rows no feature has reached yet feel weight decay only; mostly that rounds to nothing (1 - 1e-9 is 1).
        decays = any(
            np.float32(1.0 - rate * decay) != 1.0
            for rate, decay in zip(self.optimizer.learning_rate, self.optimizer.weight_decay, strict=True)
        )
        bank, heads = self.model.bank, self.model.heads
        self.optimizer.attach(
            bank, [bank.values.shape[1] if decays else bank.live_length(heads.rows(own)) for own in own_slots]
        )

    def _decay_of_past_steps(self, rows: Tensor) -> None:
        """Apply the weight decay that head rows drawn only now have missed.

        One factor per past step and never a power of it: the rounding must not depend on when pack mates grew.
        """
        rates = [
            [rate * self._rate_factor(step) * decay for step in range(self.optimizer.step_count)]
            for rate, decay in zip(self.optimizer.learning_rate, self.optimizer.weight_decay, strict=True)
        ]
        factors = 1.0 - torch.tensor(rates, dtype=torch.float64, device=self.device)
        factors = factors.to(torch.float32)
        if bool((factors == 1.0).all()):
            return
        for step in range(factors.shape[1]):
            rows.mul_(factors[:, step].view(-1, *[1] * (rows.ndim - 1)))

    def _rate_factor(self, step: int) -> float:
        return schedule_factor(self.protocol.pretrain_schedule, step, self.epochs * self.steps_per_epoch)

    # ---------------------------------------------------------------------------------------------------- one epoch

    def run_epoch(self, draws: EpochDraws) -> None:
        """Train one epoch, then let plateaued features refine their bins."""
        n_rows = len(self.inputs)
        batch_size = self.architecture.batch_size
        order = draws.order(self.index)
        kept = draws.kept(self.index)
        inputs, codes, targets = self._epoch_rows(order, draws)
        total = torch.zeros(len(self.replicas), dtype=torch.float64, device=self.device)
        per_feature = torch.zeros(self.bins.n_bins.shape, dtype=torch.float64, device=self.device)
        for start in range(0, n_rows, batch_size):
            rows = slice(start, min(start + batch_size, n_rows))
            units = None if kept is None else self._kept_rows(kept, rows)
            loss, feature_loss = self.model.gradients_(inputs[:, rows], units, codes[..., rows], targets[..., rows])
            self.optimizer.step(self._rate_factor(self.optimizer.step_count))
            total += loss
            per_feature += feature_loss
        self._end_epoch(total / self.steps_per_epoch, per_feature / self.steps_per_epoch)

    def _epoch_rows(self, order: Tensor, draws: EpochDraws) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs [R, N, F] (corrupted), codes [R, C, N] and target bins [R, D, N] in the order of the epoch."""
        replicas, index = len(self.replicas), self.index
        inputs = index.spread(self.inputs[order])
        if self.is_masked:
            uniform, source = (index.spread(part) for part in draws.masks(index))
            inputs = corrupt(inputs, uniform, source, self.mask_prob, self.takes_row)
        codes = index.spread(self.codes[:, order].transpose(0, 1))
        rows = index.spread(order)[:, None, :].expand(*self.targets.shape[:2], -1)
        return inputs.expand(replicas, -1, -1), codes.expand(replicas, -1, -1), self.targets.gather(2, rows)

    def _kept_rows(self, kept: Tensor, rows: slice) -> list[Tensor]:
        """Per hidden block [R or 1, B, H] bool."""
        return [self.index.spread(kept[:, block, rows]) for block in range(kept.shape[1])]

    def _end_epoch(self, loss: Tensor, per_feature: Tensor) -> None:
        finite = torch.isfinite(loss).cpu()
        fresh = [r for r, ok in enumerate(finite.tolist()) if not ok and self.diverged_at[r] is None]
        if fresh:
            for r in fresh:
                self.diverged_at[r] = self.epoch
            self.optimizer.freeze(fresh)
        alive = torch.tensor([at is None for at in self.diverged_at], device=self.device)
        metric = per_feature
        # DIFF[paper->released] paper: a "normalized weighted sum", of which this may be one reading.  Released code and
        # default here: L_num as it is.  Switch: `plateau_scale`.
        if self.protocol.plateau_scale == "weights":
            metric = per_feature / torch.stack(self.weights).sum(0)[:, None]
        self.plateau, fired = plateau_step(
            self.plateau,
            metric,
            patience=self.patience,
            delta=self.delta,
            growable=(self.bins.n_bins < self.t_max[:, None]) & alive[:, None],
        )
        splits = self._refine(fired)
        count = self.bins.n_bins.to(torch.float64)
        for name, values in (
            ("loss", loss),
            ("mean_bins", count.mean(1) if count.shape[1] else count.sum(1)),
            ("max_bins", count.amax(1) if count.shape[1] else count.sum(1)),
            ("splits", splits),
            ("triggers", fired.sum(1)),
        ):
            self.history[name][:, self.epoch] = values.to("cpu", torch.float64)
        self.epoch += 1

    def _refine(self, fired: Tensor) -> Tensor:
        """Split the bins of fired features where DIGS says so; fired [R, D] -> splits made per replica [R]."""
        made = torch.zeros(len(self.replicas), dtype=torch.int64, device=self.device)
        replica, feature = torch.nonzero(fired, as_tuple=True)
        if not len(replica):
            return made
        found = candidates(self.columns, self.bins.edges[replica, feature], feature, self.min_bin[replica])
        able = found.eligible.any(1).nonzero().squeeze(1)
        if not len(able):
            return made
        found = type(found)(*(part[able] for part in found))
        replica, feature = replica[able], feature[able]
        members, source = torch.unique(replica, return_inverse=True)
        units = unit_rows(self.model.encoder.evaluate(self.inputs.unsqueeze(0), members))
        split = choose_splits(
            found.gain,
            dispersion_gain(self.columns, found, feature, units, source),
            found.eligible,
            tau=self.tau[replica],
            count=self.bins.n_bins[replica, feature],
            t_max=self.t_max[replica],
            keep_best=self.protocol.bin_cap == "best",
        )
        added = split.sum(1)
        if not bool(added.any()):
            return made
        edges = split_edges(self.bins.edges[replica, feature], found.median, split)
        self.bins.edges[replica, feature] = edges
        self.bins.n_bins[replica, feature] += added
        self.targets[replica, feature] = assign(self.values.t()[feature], edges).to(torch.float32)
        self._fit_heads()
        return made.index_add_(0, replica, added)

    # ------------------------------------------------------------------------------------------- results and state

    def embed(self, inputs: Tensor) -> Tensor:
        """Embeddings of uncorrupted rows, encoder in eval mode.  inputs [N, F] -> [R, N, H]."""
        return self.model.encoder.evaluate(inputs.to(self.device).unsqueeze(0))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: tensors and plain numbers only."""
        values, _, first, second = self.model.bank.buffers()
        return {
            "epoch": self.epoch,
            "step_count": self.optimizer.step_count,
            "capacity": self.model.heads.capacity,
            "diverged_at": list(self.diverged_at),
            "values": values,
            "first_moments": first,
            "second_moments": second,
            "edges": self.bins.edges,
            "count": self.bins.n_bins,
            "best": self.plateau.best,
            "stale": self.plateau.stale,
            "history": self.history,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state` of the same replicas on the same table."""
        self.epoch = int(state["epoch"])
        self.optimizer.step_count = int(state["step_count"])
        self.diverged_at = list(state["diverged_at"])
        self.optimizer.alive = [at is None for at in self.diverged_at]
        self.model.reserve(int(state["capacity"]))
        values, _, first, second = self.model.bank.buffers()
        for target, name in ((values, "values"), (first, "first_moments"), (second, "second_moments")):
            target.copy_(state[name])
        self.bins = Bins(state["edges"].to(self.device), state["count"].to(self.device))
        self.plateau = Plateau(state["best"].to(self.device), state["stale"].to(self.device))
        self.history = {name: state["history"][name].clone() for name in HISTORY}
        self.targets = self._assign_all()
        self._fit_heads()

    def curves(self, replica: int, points: int = 200) -> dict[str, list[float]]:
        """Curves of one replica, thinned to at most ``points`` epochs; splits are summed over the epochs between."""
        end = self.epoch if self.diverged_at[replica] is None else int(self.diverged_at[replica] or 0)
        stride = max(1, math.ceil(end / points))
        shown = np.arange(end - 1, -1, -stride)[::-1]
        history = {name: values[replica, :end].numpy() for name, values in self.history.items()}
        splits = np.diff(np.concatenate([[0.0], history["splits"].cumsum()[shown]]))
        return {
            "epoch": [int(e) for e in shown],
            **{name: history[name][shown].tolist() for name in ("loss", "mean_bins", "max_bins")},
            "splits": splits.tolist(),
        }
