"""The paper's pretext: bins of numerical columns that grow finer where the loss saturates (FWA, FPT, DIGS, HORD)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adaptbin.binning.discretizer import Bins, assign, assign_all, initial_bins
from adaptbin.binning.refine import SplitRules, refine
from adaptbin.binning.scorer import SortedColumns
from adaptbin.binning.trigger import Plateau, plateau_step
from adaptbin.config import Replica
from adaptbin.data.encode import EncodedRows
from adaptbin.pretext.hord import SLOT_MULTIPLE, HordWeights
from adaptbin.training.autoencoder import Autoencoder
from adaptbin.training.draws import EpochDraws, Kept
from adaptbin.training.graphs import MakeGraph
from adaptbin.training.pretrain import Epoch, Pretraining, SavedReplica, Targets
from adaptbin.training.rows import columns_of


class AdaptiveBinning(Pretraining):
    """Pretraining with adaptive bins; ``bins``, ``plateau`` and ``targets`` are its memory."""

    model: Autoencoder
    _autoencoder: type[Autoencoder] = Autoencoder

    def __init__(
        self,
        replicas: Sequence[Replica],
        table: EncodedRows,
        device: torch.device | str = "cpu",
        *,
        draws: EpochDraws | None = None,
        graphs: MakeGraph | None = None,
    ) -> None:
        super().__init__(replicas, table, device, draws=draws, graphs=graphs)
        self._fit_heads()

    def _make_model(self, table: EncodedRows) -> Autoencoder:
        points = [r.hyperparameters for r in self.replicas]
        self.weights = HordWeights(self._column("w_sord"), self._column("w_mse"), self._column("w_var"))
        self.patience, self.delta = self._column("patience", torch.int64), self._column("delta", torch.float64)
        self.refine_every = self._column("refine_every", torch.int64)
        # Ablation "w/o FWA".  A cap by itself would not do: a column with repeated percentiles starts below T_init.
        self.adapts = torch.tensor([p.t_max > p.t_init for p in points], device=self.device)
        self.rules = SplitRules(
            self._column("min_bin", torch.int64),
            self._column("tau", torch.float64),
            self._column("t_max", torch.int64),
            parts=self._score_parts(),
            keep_best=self.protocol.bin_cap == "best",
        )
        values, observed = self.rows.values, self.rows.observed
        self.columns = SortedColumns.of(values, observed)
        self.bins = initial_bins(values, [p.t_init for p in points], [p.t_max for p in points], observed)
        self.plateau = Plateau.start(len(points), table.n_numerical, self.device)
        self.targets = self._targets_of_rows()
        self.feature_loss = torch.zeros(self.bins.n_bins.shape, dtype=torch.float64, device=self.device)
        """[R, D], sum over the steps of the epoch."""
        return self._autoencoder(
            columns_of(table),
            self.architecture,
            self.protocol,
            self.seeds,
            self.device,
        )

    def _score_parts(self) -> Tensor | None:
        parts = [[p != "dispersion", p != "variance"] for p in (r.hyperparameters.split_score for r in self.replicas)]
        # Without ablations nothing is chosen by it, and no device is asked.
        return None if all(map(all, parts)) else torch.tensor(parts, device=self.device)

    @property
    def n_bins(self) -> Tensor:
        """[R, D] int64, T_n, on the CPU."""
        return self.count

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

    def _target_of(self, bins: Tensor, observed: Tensor | None) -> Tensor:
        """What to predict of columns whose train values lie in ``bins`` [..., N] int64 -> [..., N] float32.

        observed bool, of a shape that spreads to theirs: which values are there, None for all.
        """
        return bins.to(torch.float32)

    def _targets_of_rows(self) -> Tensor:
        """[R, D, N] float32."""
        observed = None if self.rows.observed is None else self.rows.observed.t()
        return self._target_of(assign_all(self.rows.values, self.bins.edges).transpose(1, 2).contiguous(), observed)

    # ---------------------------------------------------------------------------------------------------- one epoch

    def run_epoch(self) -> None:
        """Train one epoch, then let plateaued features refine their bins."""
        self.feature_loss.zero_()
        super().run_epoch()

    def _targets(self, rows: Tensor, inputs: Tensor, uniform: Tensor | None) -> Targets:
        """Categories [R, C, n] int64, bins [R, D, n] float32, and their weights, likewise, where not all are 1."""
        bins = self.targets.gather(2, rows.unsqueeze(1).expand(*self.targets.shape[:2], -1))
        codes = self.rows.codes_of(rows).expand(len(self.replicas), -1, -1)
        weights = self.rows.weights_of(rows)
        if weights is None:
            return codes, bins
        return codes, bins, weights[:, : bins.shape[1]].expand(len(self.replicas), -1, -1)

    def _step(self, inputs: Tensor, kept: Kept, targets: Targets, rows: slice) -> Tensor:
        loss, feature_loss = self.model.gradients_(inputs, kept, *(target[..., rows] for target in targets))
        self.feature_loss += feature_loss
        return loss

    def _plateau_metric(self, per_feature: Tensor) -> Tensor:
        """m_n [R, D] of an epoch from its mean losses per feature."""
        # DIFF[paper->released] paper: a "normalized weighted sum", of which this may be one reading.  Released code and
        # default here: L_num as it is.  Switch: `plateau_scale`.
        if self.protocol.plateau_scale == "weights":
            return per_feature / torch.stack(self.weights).sum(0)[:, None]
        return per_feature

    def _end_epoch(self, loss: Tensor) -> Epoch:
        per_feature = self.feature_loss / self.steps_per_epoch
        growable = (self.bins.n_bins < self.rules.t_max[:, None]) & (self.alive & self.adapts)[:, None]
        self.plateau, fired = plateau_step(
            self.plateau,
            self._plateau_metric(per_feature),
            patience=self.patience,
            delta=self.delta,
            growable=growable,
        )
        if any(r.hyperparameters.refine_every for r in self.replicas):  # ablation "w/o FPT": the clock decides
            due = (self.epoch + 1) % self.refine_every.clamp(min=1) == 0
            fired = torch.where(self.refine_every[:, None] > 0, due[:, None] & growable, fired)
        # The one time an epoch waits for its device, unless something fired.
        mean_loss, triggers = torch.stack([loss, fired.sum(1, dtype=torch.float64)]).cpu()
        self._freeze_diverged(torch.isfinite(mean_loss).tolist())
        splits = self._refine(fired).cpu() if bool(triggers.any()) else torch.zeros_like(triggers)
        return Epoch(mean_loss, self.count, splits, triggers)

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
        observed = None if self.rows.observed is None else self.rows.observed.t()[feature]
        self.targets[replica, feature] = self._target_of(assign(self.rows.values.t()[feature], edges), observed)
        self._fit_heads()
        return made.index_add_(0, replica, added)

    # ---------------------------------------------------------------------------------------------------------- state

    def _own_state(self) -> dict[str, Any]:
        return {
            "capacity": self.model.heads.capacity,
            "edges": self.bins.edges,
            "count": self.bins.n_bins,
            "best": self.plateau.best,
            "stale": self.plateau.stale,
        }

    def _load_own(self, saved: Sequence[SavedReplica]) -> None:
        self._widen(saved)
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
        self.targets = self._targets_of_rows()
        self._fit_heads(moved=True)

    def _widen(self, saved: Sequence[SavedReplica]) -> None:
        """Make the heads as wide as the widest saved ones."""
        capacities = [int(state["capacity"]) for state, _ in saved]
        self.model.reserve(max(capacities))
        bank, heads = self.model.bank, self.model.heads
        least = min(capacities)
        if least < heads.capacity:
            # Rows that a replica's old stack never had are as drawn, less the decay that they would have felt there.
            heads.initialise(bank, self.model.seeds, least, heads.capacity)
            for name in heads.shapes(heads.capacity):
                self._decay_of_past_steps(bank.view(name)[:, heads.rows(least) :])
                for moments in bank.buffers()[2:]:
                    bank.view(name, moments)[:, heads.rows(least) :] = 0.0
