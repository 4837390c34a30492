"""Pretraining of R stacked replicas, epoch by epoch: all that does not depend on what they learn to predict."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedRows
from adaptbin.encoders.base import ReplicaEncoder
from adaptbin.pretext.corruption import corrupt
from adaptbin.replicas.grouping import model_id
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import SeedIndex
from adaptbin.training.curves import HISTORY
from adaptbin.training.draws import EpochDraws, Kept
from adaptbin.training.graphs import MakeGraph, Replayed
from adaptbin.training.rows import TrainRows

MAX_GRADIENT_NORM = 100.0

STRETCH_STEPS = 64
"""Steps recorded as one graph: all of an epoch for most tables, and no endless recording for long ones."""

Targets = tuple[Tensor, ...]
"""What a pretext's :meth:`Pretraining._targets` hands to its :meth:`Pretraining._step`."""

SavedReplica = tuple[Mapping[str, Any], int]
"""A saved stack, and the row of one replica in it."""


class Model(Protocol):
    """Encoder and whatever is above it, of R replicas over one bank."""

    bank: ParameterBank

    @property
    def encoder(self) -> ReplicaEncoder:
        """What embeds."""


class Epoch(NamedTuple):
    """What a pretext says of an epoch that has ended; all on the CPU."""

    loss: Tensor
    """[R] float64, mean over the steps."""
    n_bins: Tensor
    """[R, D] int64, bins per feature from now on; [R, 0] where the pretext has none."""
    splits: Tensor
    """[R] bins gained."""
    triggers: Tensor
    """[R] features whose turn it was to be refined."""


class Pretraining(ABC):
    """R replicas under training: model, optimiser and the pretext's own memory, advanced one epoch at a time.

    The replicas share pretext, table, architecture, protocol and budget (``group_replicas``) and may differ in
    everything else.  ``draws`` may be shared by the stacks of a pack (default: draws of their own).  With ``graphs``
    the steps are recorded and replayed; what they use must then stay in place, and ``_steps.invalidate`` says when it
    has not.

    A pretext is a subclass, in a module of its own in :mod:`adaptbin.training.pretexts`.
    """

    model: Model

    def __init__(
        self,
        replicas: Sequence[Replica],
        table: EncodedRows,
        device: torch.device | str = "cpu",
        *,
        draws: EpochDraws | None = None,
        graphs: MakeGraph | None = None,
    ) -> None:
        first = replicas[0]
        self.replicas = tuple(replicas)
        self.names = tuple(model_id(replica) for replica in replicas)
        """What names the replicas in a saved state."""
        self.device = torch.device(device)
        self.architecture, self.protocol, self.epochs = first.architecture, first.protocol, first.budget.epochs
        points = [r.hyperparameters for r in replicas]
        self.seeds = tuple(r.seeds.pretrain for r in replicas)
        self.draws = draws or EpochDraws.of_pretraining(replicas, table, self.device, graphs)
        self.index = SeedIndex.of(self.seeds, self.device, self.draws.seeds)
        self.mask_prob = self._column("mask_prob")
        self.takes_row = torch.tensor([p.masking == "random" for p in points], device=self.device)
        self.is_masked = any(p.mask_prob > 0 for p in points)
        self.rows = TrainRows.of(table, self.device)
        self.steps_per_epoch = math.ceil(len(self.rows.inputs) / self.architecture.batch_size)
        self.factors = self._schedule()
        self._firsts = torch.arange(self.steps_per_epoch, device=self.device)
        self.loss = torch.zeros(len(points), dtype=torch.float64, device=self.device)
        """[R], sum over the steps of the epoch."""
        self.epoch = 0
        self.diverged_at: list[int | None] = [None] * len(points)
        self.alive = torch.ones(len(points), dtype=torch.bool, device=self.device)
        self.history = {name: torch.zeros(len(points), self.epochs, dtype=torch.float64) for name in HISTORY}
        self._steps = Replayed(self._run_steps, graphs)
        self.model = self._make_model(table)
        self.optimizer = ReplicaAdamW(
            self.model.bank,
            [p.learning_rate for p in points],
            [p.weight_decay for p in points],
            max_norm=MAX_GRADIENT_NORM,
        )

    def _column(self, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
        """[R] of one hyperparameter."""
        return torch.tensor([getattr(r.hyperparameters, name) for r in self.replicas], dtype=dtype, device=self.device)

    # ------------------------------------------------------------------------------------------ what a pretext brings

    @abstractmethod
    def _make_model(self, table: EncodedRows) -> Model:
        """The model as initialised; called once, when all but the optimiser is there."""

    @abstractmethod
    def _targets(self, rows: Tensor, inputs: Tensor, uniform: Tensor | None) -> Targets:
        """What to predict for a stretch of rows.

        rows [R or 1, n] int64: rows of :attr:`rows` in the order of the stretch; inputs [R or 1, n, F]: theirs,
        uncorrupted; uniform [R or 1, n, F]: decides which entries are masked, None where none is.
        """

    @abstractmethod
    def _step(self, inputs: Tensor, kept: Kept, targets: Targets, rows: slice) -> Tensor:
        """Forward and backward pass over ``rows`` of a stretch; gradients land in the bank; -> total loss [R].

        inputs [R, B, F]: corrupted, of these rows alone; kept: units that dropout keeps, of these rows;
        targets: of the whole stretch.
        """

    @abstractmethod
    def _end_epoch(self, loss: Tensor) -> Epoch:
        """What follows an epoch: refinement, and freezing of replicas that diverged.  loss [R]: mean over the steps."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """The pretext's part of :meth:`state`."""

    @abstractmethod
    def _load_own(self, saved: Sequence[SavedReplica]) -> None:
        """Take parameters and the pretext's own memory from saved stacks, one per replica."""

    @property
    def n_bins(self) -> Tensor:
        """[R, D] int64, bins per feature now, on the CPU; [R, 0] where the pretext has none."""
        return torch.zeros(len(self.replicas), 0, dtype=torch.int64)

    # ---------------------------------------------------------------------------------------------------- one epoch

    def run_epoch(self) -> None:
        """Train one epoch, and let the pretext do what follows it."""
        n_rows, steps, batch_size = len(self.rows.inputs), self.steps_per_epoch, self.architecture.batch_size
        draws = self.draws.at(self.epoch)
        self.loss.zero_()
        for first in range(0, steps, STRETCH_STEPS):
            last = min(first + STRETCH_STEPS, steps)
            done = self.epoch * steps
            factors = None if self.factors is None else self.factors[done + first : done + last]
            self._steps(
                factors, *draws.stretch(first * batch_size, min(last * batch_size, n_rows)), self._firsts[first]
            )
        # A replayed step counts on the device only.
        self.optimizer.step_count = (self.epoch + 1) * steps
        mean_loss = self.loss / steps
        self.alive &= torch.isfinite(mean_loss)
        self._remember(self._end_epoch(mean_loss))
        self.epoch += 1

    def _run_steps(
        self,
        factors: Tensor | None,
        order: Tensor,
        kept: Tensor | None,
        uniform: Tensor | None,
        source: Tensor | None,
        first: Tensor,
    ) -> None:
        """Train on a stretch of the epoch, adding to the epoch's losses.  On a GPU this is what is recorded.

        factors [steps of the stretch] scale the step size (None: 1); first [] int64 counts the steps of the epoch
        before it; the others are the stretch's :class:`~adaptbin.training.draws.Draws`.
        """
        n_rows, batch_size = order.shape[1], self.architecture.batch_size
        inputs, targets = self._gather(order, uniform, source)
        rates: Sequence[float | Tensor] = [1.0] * -(-n_rows // batch_size)
        if factors is not None:
            rates = factors.tolist() if self.device.type == "cpu" else factors.unbind()
        for i, start in enumerate(range(0, n_rows, batch_size)):
            rows = slice(start, min(start + batch_size, n_rows))
            loss = self._step(inputs[:, rows], self.draws.kept(self.index, kept, rows, first + i), targets, rows)
            self.optimizer.step(rates[i])
            self.loss += loss

    def _gather(self, order: Tensor, uniform: Tensor | None, source: Tensor | None) -> tuple[Tensor, Targets]:
        """Rows of a stretch in its order: inputs [R, n, F] (corrupted), and their targets."""
        index = self.index
        rows = index.spread(order)
        inputs = self.rows.inputs_of(rows)
        uniform = index.spread(uniform) if self.is_masked and uniform is not None else None
        targets = self._targets(rows, inputs, uniform)
        if uniform is not None and source is not None:
            inputs = corrupt(inputs, uniform, index.spread(source), self.mask_prob, self.takes_row)
        return inputs.expand(len(self.replicas), -1, -1), targets

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

    def _remember(self, ended: Epoch) -> None:
        """Add one epoch to the history."""
        count = ended.n_bins.to(torch.float64)
        for name, values in (
            ("loss", ended.loss),
            ("mean_bins", count.mean(1) if count.shape[1] else count.sum(1)),
            ("max_bins", count.amax(1) if count.shape[1] else count.sum(1)),
            ("splits", ended.splits),
            ("triggers", ended.triggers),
        ):
            self.history[name][:, self.epoch] = values

    def _freeze_diverged(self, finite: Sequence[bool]) -> None:
        fresh = [r for r, ok in enumerate(finite) if not ok and self.diverged_at[r] is None]
        if not fresh:
            return
        for r in fresh:
            self.diverged_at[r] = self.epoch
        self.optimizer.freeze(fresh)
        self._steps.invalidate()

    # ------------------------------------------------------------------------------------------- results and state

    def free_recordings(self) -> None:
        """Give back the memory of recorded steps, when no more are run."""
        self._steps.invalidate()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        return self.epoch == self.epochs

    @property
    def captures(self) -> int:
        """How often the steps were recorded; 0 where they are called directly."""
        return self._steps.captures

    def embed(self, inputs: Tensor) -> Tensor:
        """Embeddings of uncorrupted rows, encoder in eval mode.  inputs [N, F] -> [R, N, H]."""
        return self.model.encoder.evaluate(inputs.to(self.device).unsqueeze(0))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: tensors (the replicas' own, not copies) and plain values only."""
        bank = self.model.bank
        values, _, first, second = bank.buffers()
        return {
            "names": list(self.names),
            "epoch": self.epoch,
            "step_count": self.optimizer.step_count,
            "diverged_at": list(self.diverged_at),
            "parameters": {
                name: [bank.view(name, buffer) for buffer in (values, first, second)] for name in bank.shapes
            },
            "statistics": dict(self.model.encoder.statistics),
            "history": self.history,
            **self._own_state(),
        }

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from :meth:`state` of other stacks on the same table, which together hold these replicas.

        The states must be of one epoch; other replicas in them do not matter, nor do their order and how wide their
        heads are.  Raises KeyError for a replica that none of them holds.
        """
        places = {name: (state, row) for state in states for row, name in enumerate(state["names"])}
        saved = [places[name] for name in self.names]
        self.epoch, self.optimizer.step_count = (int(saved[0][0][name]) for name in ("epoch", "step_count"))
        self.diverged_at = [state["diverged_at"][row] for state, row in saved]
        self.optimizer.alive = [at is None for at in self.diverged_at]
        self.alive = torch.tensor(self.optimizer.alive, device=self.device)
        self.history = {name: torch.stack([state["history"][name][row] for state, row in saved]) for name in HISTORY}
        self._load_own(saved)

    def _load_parameters(self, saved: Sequence[SavedReplica]) -> None:
        """Parameters, moments and batch statistics of each replica from its row of a state, into a bank as wide."""
        bank = self.model.bank
        values, _, first, second = bank.buffers()
        for name in bank.shapes:
            for part, buffer in enumerate((values, first, second)):
                for own, (state, row) in zip(bank.view(name, buffer), saved, strict=True):
                    held = state["parameters"][name][part][row]
                    own[: len(held)] = held
        for name, own in self.model.encoder.statistics.items():
            own.copy_(torch.stack([state["statistics"][name][row] for state, row in saved]))
