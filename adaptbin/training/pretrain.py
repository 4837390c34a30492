"""Pretraining of R stacked replicas: epochs of HORD steps, and after each the bins that grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptbin.binning.discretizer import Bins, assign, initial_bins
from adaptbin.binning.refine import SplitRules, refine
from adaptbin.binning.scorer import SortedColumns
from adaptbin.binning.trigger import Plateau, plateau_step
from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.pretext.corruption import corrupt
from adaptbin.pretext.hord import SLOT_MULTIPLE, HordWeights
from adaptbin.replicas.grouping import model_id
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.streams import SeedIndex
from adaptbin.training.autoencoder import Autoencoder
from adaptbin.training.curves import HISTORY
from adaptbin.training.draws import EpochDraws
from adaptbin.training.graphs import MakeGraph, Replayed
from adaptbin.training.rows import TrainRows

MAX_GRADIENT_NORM = 100.0

STRETCH_STEPS = 64
"""Steps recorded as one graph: all of an epoch for most tables, and no endless recording for long ones."""


class Pretraining:
    """R replicas under training: model, optimiser, bins and plateau memory, advanced one epoch at a time.

    The replicas share table, architecture, protocol and budget (``group_replicas``) and may differ in everything else.
    ``draws`` may be shared by the stacks of a pack (default: draws of their own).  With ``graphs`` the steps are
    recorded and replayed; what they use must then stay in place, and ``_steps.invalidate`` says when it has not.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        table: EncodedTable,
        device: torch.device | str = "cpu",
        *,
        draws: EpochDraws | None = None,
        graphs: MakeGraph | None = None,
    ) -> None:
        first = replicas[0]
        self.replicas = tuple(replicas)
        self.device = torch.device(device)
        self.architecture, self.protocol, self.epochs = first.architecture, first.protocol, first.budget.epochs
        points = [r.hyperparameters for r in replicas]
        seeds = [r.seeds.pretrain for r in replicas]
        self.draws = draws or EpochDraws(replicas, table, self.device, graphs)
        self.index = SeedIndex.of(seeds, self.device, self.draws.seeds)

        def column(name: str, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor([getattr(p, name) for p in points], dtype=dtype, device=self.device)

        self.weights = HordWeights(column("w_sord"), column("w_mse"), column("w_var"))
        self.patience, self.delta = column("patience", torch.int64), column("delta", torch.float64)
        self.rules = SplitRules(
            column("min_bin", torch.int64),
            column("tau", torch.float64),
            column("t_max", torch.int64),
            keep_best=self.protocol.bin_cap == "best",
        )
        self.mask_prob = column("mask_prob")
        self.takes_row = torch.tensor([p.masking == "random" for p in points], device=self.device)
        self.is_masked = any(p.mask_prob > 0 for p in points)

        self.rows = TrainRows.of(table, self.device)
        self.columns = SortedColumns.of(self.rows.values)
        self.bins = initial_bins(self.rows.values, [p.t_init for p in points], [p.t_max for p in points])
        self.plateau = Plateau.start(len(points), table.n_numerical, self.device)
        self.targets = self.rows.targets(self.bins.edges)

        self.model = Autoencoder(
            table.inputs.shape[1],
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
        self.steps_per_epoch = math.ceil(len(table.train) / self.architecture.batch_size)
        self.factors = self._schedule()
        self.loss = torch.zeros(len(points), dtype=torch.float64, device=self.device)
        """[R], sum over the steps of the epoch, like the next."""
        self.feature_loss = torch.zeros(self.bins.n_bins.shape, dtype=torch.float64, device=self.device)
        """[R, D]."""
        self._steps = Replayed(self._run_steps, graphs)
        self.epoch = 0
        self.diverged_at: list[int | None] = [None] * len(points)
        self.alive = torch.ones(len(points), dtype=torch.bool, device=self.device)
        self.history = {name: torch.zeros(len(points), self.epochs, dtype=torch.float64) for name in HISTORY}
        self._fit_heads()

    @property
    def captures(self) -> int:
        """How often the steps were recorded; 0 where they are called directly."""
        return self._steps.captures

    def _fit_heads(self, moved: bool = False) -> None:
        """Make the heads as wide as the widest feature (in whole fours), and tell model and optimiser.

        ``moved``: tensors that the steps use have changed place in any case.
        """
        self.count = self.bins.n_bins.cpu()
        widest = self.count.amax(1).tolist() if self.count.numel() else [0] * len(self.replicas)
        own_slots = [-(-bins // SLOT_MULTIPLE) * SLOT_MULTIPLE for bins in widest]
        slots = max(own_slots)
        self.model.reserve(self.model.heads.capacity_for(slots), self._decay_of_past_steps)
        moved = self.model.set_bins(self.bins.n_bins, slots, self.weights) or moved
        if not moved and self.device.type != "cpu":
            return
        # Head rows no feature has reached yet feel weight decay only; mostly that rounds to nothing (1 - 1e-9 is 1).
        decays = any(
            np.float32(1.0 - rate * decay) != 1.0
            for rate, decay in zip(self.optimizer.learning_rate, self.optimizer.weight_decay, strict=True)
        )
        bank, heads = self.model.bank, self.model.heads
        # Recorded steps must hold while replicas grow within the slots in use: there all update the same rows.
        updated = own_slots if self.device.type == "cpu" else [slots] * len(own_slots)
        self.optimizer.attach(
            bank, [bank.values.shape[1] if decays else bank.live_length(heads.rows(own)) for own in updated]
        )
        if moved:
            self._steps.invalidate()

    def _decay_of_past_steps(self, rows: Tensor) -> None:
        """Apply the weight decay that head rows drawn only now have missed.

        One factor per past step and never a power of it: the rounding must not depend on when pack mates grew.
        """
        rate, decay = (
            np.array(numbers)[:, None] for numbers in (self.optimizer.learning_rate, self.optimizer.weight_decay)
        )
        schedule = np.array([self._rate_factor(step) for step in range(self.optimizer.step_count)])
        factors = torch.from_numpy((1.0 - rate * schedule * decay).astype(np.float32))
        if bool((factors == 1.0).all()):
            return
        factors = factors.to(self.device)
        for step in range(factors.shape[1]):
            rows.mul_(factors[:, step].view(-1, *[1] * (rows.ndim - 1)))

    def _rate_factor(self, step: int) -> float:
        return schedule_factor(self.protocol.pretrain_schedule, step, self.epochs * self.steps_per_epoch)

    def _schedule(self) -> Tensor | None:
        """[all steps] factors of the step size, or None where all are 1: on the device, for a replay to read."""
        if self.protocol.pretrain_schedule == "constant":
            return None
        factors = [self._rate_factor(step) for step in range(self.epochs * self.steps_per_epoch)]
        # The fused update takes float64 numbers on a CPU and float32 tensors on a GPU.
        dtype = torch.float64 if self.device.type == "cpu" else torch.float32
        return torch.tensor(factors, dtype=dtype, device=self.device)

    # ---------------------------------------------------------------------------------------------------- one epoch

    def run_epoch(self) -> None:
        """Train one epoch, then let plateaued features refine their bins."""
        n_rows, steps, batch_size = len(self.rows.inputs), self.steps_per_epoch, self.architecture.batch_size
        draws = self.draws.at(self.epoch)
        self.loss.zero_()
        self.feature_loss.zero_()
        for first in range(0, steps, STRETCH_STEPS):
            last = min(first + STRETCH_STEPS, steps)
            done = self.epoch * steps
            factors = None if self.factors is None else self.factors[done + first : done + last]
            self._steps(factors, *draws.stretch(first * batch_size, min(last * batch_size, n_rows)))
        # A replayed step counts on the device only.
        self.optimizer.step_count = (self.epoch + 1) * steps
        self._end_epoch(self.loss / steps, self.feature_loss / steps)

    def _run_steps(
        self, factors: Tensor | None, order: Tensor, kept: Tensor | None, uniform: Tensor | None, source: Tensor | None
    ) -> None:
        """Train on a stretch of the epoch, adding to the epoch's losses.  On a GPU this is what is recorded.

        factors [steps of the stretch] scale the step size (None: 1); the others are the stretch's :class:`Draws`.
        """
        n_rows, batch_size = order.shape[1], self.architecture.batch_size
        inputs, codes, targets = self._gather(order, uniform, source)
        rates: Sequence[float | Tensor] = [1.0] * -(-n_rows // batch_size)
        if factors is not None:
            rates = factors.tolist() if self.device.type == "cpu" else factors.unbind()
        for i, start in enumerate(range(0, n_rows, batch_size)):
            rows = slice(start, min(start + batch_size, n_rows))
            units = None if kept is None else self._kept_rows(kept, rows)
            loss, feature_loss = self.model.gradients_(inputs[:, rows], units, codes[..., rows], targets[..., rows])
            self.optimizer.step(rates[i])
            self.loss += loss
            self.feature_loss += feature_loss

    def _gather(self, order: Tensor, uniform: Tensor | None, source: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of a stretch in its order: inputs [R, n, F] (corrupted), codes [R, C, n], target bins [R, D, n]."""
        replicas, index = len(self.replicas), self.index
        rows = index.spread(order)
        inputs, codes = self.rows.gather(rows)
        if self.is_masked and uniform is not None and source is not None:
            inputs = corrupt(inputs, index.spread(uniform), index.spread(source), self.mask_prob, self.takes_row)
        targets = self.targets.gather(2, rows.unsqueeze(1).expand(*self.targets.shape[:2], -1))
        return inputs.expand(replicas, -1, -1), codes.expand(replicas, -1, -1), targets

    def _kept_rows(self, kept: Tensor, rows: slice) -> list[Tensor]:
        """Per hidden block [R or 1, B, H] bool."""
        return [self.index.spread(kept[:, block, rows]) for block in range(kept.shape[1])]

    def _end_epoch(self, loss: Tensor, per_feature: Tensor) -> None:
        self.alive &= torch.isfinite(loss)
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
            growable=(self.bins.n_bins < self.rules.t_max[:, None]) & self.alive[:, None],
        )
        # The one time an epoch waits for its device, unless something fired.
        mean_loss, triggers = torch.stack([loss, fired.sum(1, dtype=torch.float64)]).cpu()
        self._freeze_diverged(torch.isfinite(mean_loss).tolist())
        splits = self._refine(fired).cpu() if bool(triggers.any()) else torch.zeros_like(triggers)
        count = self.count.to(torch.float64)
        for name, values in (
            ("loss", mean_loss),
            ("mean_bins", count.mean(1) if count.shape[1] else count.sum(1)),
            ("max_bins", count.amax(1) if count.shape[1] else count.sum(1)),
            ("splits", splits),
            ("triggers", triggers),
        ):
            self.history[name][:, self.epoch] = values
        self.epoch += 1

    def _freeze_diverged(self, finite: Sequence[bool]) -> None:
        fresh = [r for r, ok in enumerate(finite) if not ok and self.diverged_at[r] is None]
        if not fresh:
            return
        for r in fresh:
            self.diverged_at[r] = self.epoch
        self.optimizer.freeze(fresh)
        self._steps.invalidate()

    def _refine(self, fired: Tensor) -> Tensor:
        """Split the bins of fired features where DIGS says so; fired [R, D] -> splits made per replica [R]."""
        made = torch.zeros(len(self.replicas), dtype=torch.int64, device=self.device)
        found = refine(
            fired,
            self.bins,
            self.columns,
            self.rules,
            lambda members: self.model.encoder.evaluate(self.rows.inputs.unsqueeze(0), members),
        )
        if found is None:
            return made
        replica, feature, edges, added = found
        # In place: the recorded steps read the targets.
        self.bins.edges[replica, feature] = edges
        self.bins.n_bins[replica, feature] += added
        self.targets[replica, feature] = assign(self.rows.values.t()[feature], edges).to(torch.float32)
        self._fit_heads()
        return made.index_add_(0, replica, added)

    # ------------------------------------------------------------------------------------------- results and state

    def embed(self, inputs: Tensor) -> Tensor:
        """Embeddings of uncorrupted rows, encoder in eval mode.  inputs [N, F] -> [R, N, H]."""
        return self.model.encoder.evaluate(inputs.to(self.device).unsqueeze(0))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: tensors (the replicas' own, not copies) and plain values only."""
        bank = self.model.bank
        values, _, first, second = bank.buffers()
        return {
            "models": [model_id(replica) for replica in self.replicas],
            "epoch": self.epoch,
            "step_count": self.optimizer.step_count,
            "capacity": self.model.heads.capacity,
            "diverged_at": list(self.diverged_at),
            "parameters": {
                name: [bank.view(name, buffer) for buffer in (values, first, second)] for name in bank.shapes
            },
            "edges": self.bins.edges,
            "count": self.bins.n_bins,
            "best": self.plateau.best,
            "stale": self.plateau.stale,
            "history": self.history,
        }

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from :meth:`state` of other stacks on the same table, which together hold these replicas.

        The states must be of one epoch; other replicas in them do not matter, nor do their order and how wide their
        heads are.  Raises KeyError for a replica that none of them holds.
        """
        places = {name: (state, row) for state in states for row, name in enumerate(state["models"])}
        saved = [places[model_id(replica)] for replica in self.replicas]
        self.epoch, self.optimizer.step_count = (int(saved[0][0][name]) for name in ("epoch", "step_count"))
        self.diverged_at = [state["diverged_at"][row] for state, row in saved]
        self.optimizer.alive = [at is None for at in self.diverged_at]
        self.alive = torch.tensor(self.optimizer.alive, device=self.device)
        self._load_parameters(saved)
        edges = torch.full(self.bins.edges.shape, torch.inf, dtype=torch.float64)
        for own, (state, row) in zip(edges, saved, strict=True):
            # Past the replica's own t_max there is padding only, as much as the widest of a stack needs.
            width = min(edges.shape[2], state["edges"].shape[2])
            own[:, :width] = state["edges"][row, :, :width]

        def rows(name: str) -> Tensor:
            return torch.stack([state[name][row] for state, row in saved]).to(self.device)

        self.bins = Bins(edges.to(self.device), rows("count"))
        self.plateau = Plateau(rows("best"), rows("stale"))
        self.history = {name: torch.stack([state["history"][name][row] for state, row in saved]) for name in HISTORY}
        self.targets = self.rows.targets(self.bins.edges)
        self._fit_heads(moved=True)

    def _load_parameters(self, saved: Sequence[tuple[Mapping[str, Any], int]]) -> None:
        """Parameters and moments of each replica from its row of a state."""
        capacities = [int(state["capacity"]) for state, _ in saved]
        self.model.reserve(max(capacities))
        bank, heads = self.model.bank, self.model.heads
        values, _, first, second = bank.buffers()
        least = min(capacities)
        if least < heads.capacity:
            # Rows that a replica's old stack never had are as drawn, less the decay that they would have felt there.
            heads.initialise(bank, self.model.seeds, least, heads.capacity)
            for name in heads.shapes(heads.capacity):
                self._decay_of_past_steps(bank.view(name)[:, heads.rows(least) :])
                for moments in (first, second):
                    bank.view(name, moments)[:, heads.rows(least) :] = 0.0
        for name in bank.shapes:
            for part, buffer in enumerate((values, first, second)):
                for own, (state, row) in zip(bank.view(name, buffer), saved, strict=True):
                    held = state["parameters"][name][part][row]
                    own[: len(held)] = held
