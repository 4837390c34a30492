"""Training of whole models on labels: encoder and linear head, pretrained or from scratch (method, Sec. 3).

R replicas are stacked as in pretraining.  Each keeps its own best epoch, and leaves the stack once no later epoch can
be better, so that the others run faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adaptbin.config import Finetuning, Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.encoders.base import ReplicaEncoder
from adaptbin.encoders.registry import make_encoder
from adaptbin.errors import ConfigError
from adaptbin.metrics import get_metric, primary_metric
from adaptbin.replicas.grouping import model_id
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.selection import batched_metric
from adaptbin.replicas.streams import SeedIndex, stream
from adaptbin.training.draws import EpochDraws
from adaptbin.training.graphs import MakeGraph, Replayed
from adaptbin.training.pretrain import STRETCH_STEPS, Pretraining
from adaptbin.training.readout import INIT_SD, Scores, Targets, loss, loss_gradient, scores_of
from adaptbin.training.rows import columns_of

HISTORY = ("loss", "val")

Pretrained = tuple[Pretraining, int]
"""A pretraining that has ended, and the row of one replica in it."""


class FineTuning:
    """R replicas under training on labels, advanced one epoch at a time; then :meth:`scores` reads test, once.

    The replicas share table, architecture, protocol and fine-tuning settings.  ``starts``: per replica the pretraining
    that its encoder comes from; None starts from scratch, with the weights that the same seed's pretraining starts
    from.  ``draws`` may be shared by the stacks of a pack, which then run epoch by epoch.

    A replica whose weights are no longer finite has diverged, as in pretraining, whatever its best epoch was, unless
    that had the highest score there is.  Raises ConfigError for settings that differ, and for the pretraining of
    another replica.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        table: EncodedTable,
        device: torch.device | str = "cpu",
        *,
        starts: Sequence[Pretrained] | None = None,
        draws: EpochDraws | None = None,
        graphs: MakeGraph | None = None,
    ) -> None:
        first = replicas[0]
        self.replicas, self.table = tuple(replicas), table
        self.names = tuple(replica.id for replica in replicas)
        """What names the replicas in a saved state."""
        self.device = torch.device(device)
        self.architecture, self.protocol = first.architecture, first.protocol
        self.settings = _settings_of(replicas)
        self.epochs = self.settings.epochs
        self.draws = draws or draws_of(replicas, table, self.device, graphs)
        self.targets = Targets.of(table, self.device)
        self.metric = get_metric(primary_metric(table.card.primary_metric, first.protocol))
        inputs = table.inputs.to(self.device)
        self._inputs = {part: inputs[getattr(table, part).to(self.device)] for part in ("train", "val", "test")}
        self._expected = table.target[table.val].to(self.device)
        self.steps_per_epoch = math.ceil(len(table.train) / self.architecture.batch_size)
        self._firsts = torch.arange(self.steps_per_epoch, device=self.device)
        self._graphs = graphs
        count = len(replicas)
        for replica, (pretraining, row) in zip(replicas, starts or (), strict=starts is not None):
            if pretraining.names[row] != model_id(replica):
                raise ConfigError(f"a model must start from its own pretraining, got another one's for {replica}")
        self.epoch = 0
        self.active = list(range(count))
        """Positions of the replicas that are still trained, in the order of the stack."""
        self.history = {name: torch.full((count, self.epochs), torch.nan, dtype=torch.float64) for name in HISTORY}
        self.stopped_at: list[int | None] = [None] * count
        """Per replica the epochs it was trained for, where these were not all."""
        self.broke = [False] * count
        """Per replica whether it stopped because its weights are no longer finite."""
        self.best_score = torch.full((count,), -torch.inf, dtype=torch.float64, device=self.device)
        """[R], larger is better."""
        self.best_epoch = torch.full((count,), -1, dtype=torch.int64, device=self.device)
        self._bind(ParameterBank(self._shapes(), count, self.device))
        self._start(starts)
        self.best_values = self.bank.values.clone()
        self.best_statistics = {name: held.clone() for name, held in self.encoder.statistics.items()}

    # ----------------------------------------------------------------------------------------------------- the model

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        encoder, head = self._parts()
        return encoder.shapes() | head.shapes()

    def _parts(self) -> tuple[ReplicaEncoder, ReplicaMLP]:
        encoder = make_encoder(columns_of(self.table), self.architecture)
        return encoder, ReplicaMLP("head", [encoder.width, self.targets.columns], 0.0)

    def _bind(self, bank: ParameterBank, statistics: Mapping[str, Tensor] | None = None) -> None:
        """Make model, optimiser and steps for the active replicas, whose parameters and moments ``bank`` holds."""
        self.bank = bank
        # New parts: those of a larger stack keep buffers of its size.
        self.encoder, self.head = self._parts()
        self.encoder.bind(bank)
        self.head.bind(bank)
        for name, own in (statistics or {}).items():
            self.encoder.statistics[name].copy_(own)
        count, settings = len(self.active), self.settings
        self.optimizer = ReplicaAdamW(bank, [settings.learning_rate] * count, [settings.weight_decay] * count)
        self.optimizer.step_count = self.epoch * self.steps_per_epoch
        self.optimizer.attach(bank, [bank.values.shape[1]] * count)
        self._positions = torch.tensor(self.active, device=self.device)
        members = [self.replicas[position] for position in self.active]
        self.index = SeedIndex.of([r.seeds.probe for r in members], self.device, self.draws.seeds)
        self.loss = torch.zeros(count, dtype=torch.float64, device=self.device)
        self._steps = Replayed(self._run_steps, self._graphs)

    def _start(self, starts: Sequence[Pretrained] | None) -> None:
        """First weights: of the encoder pretrained ones or those of the init streams, of the head always drawn."""
        encoder, bank = self.encoder, self.bank
        if starts is None:
            generators = {r.seeds.pretrain: stream(r.seeds.pretrain, "init", encoder.name) for r in self.replicas}
            encoder.initialise(bank, [generators[r.seeds.pretrain] for r in self.replicas])
        else:
            for name in encoder.shapes():
                for own, (pretraining, row) in zip(bank.view(name), starts, strict=True):
                    own.copy_(pretraining.model.bank.view(name)[row])
            for name, held in encoder.statistics.items():
                for own, (pretraining, row) in zip(held, starts, strict=True):
                    own.copy_(pretraining.model.encoder.statistics[name][row])
        weight, n_outputs = bank.view("head.0.weight"), self.targets.n_outputs
        for own, replica in zip(weight, self.replicas, strict=True):
            generator = stream(replica.seeds.probe, "finetune", "init")
            own[:, :n_outputs] = torch.randn(encoder.width, n_outputs, generator=generator).to(self.device) * INIT_SD

    # ---------------------------------------------------------------------------------------------------- one epoch

    @property
    def ended(self) -> bool:
        """Whether nothing is left to train."""
        return self.epoch == self.epochs or not self.active

    @property
    def captures(self) -> int:
        """How often the steps of the present stack were recorded; 0 where they are called directly."""
        return self._steps.captures

    def run_epoch(self) -> None:
        """Train one epoch, look at validation, and let go of replicas that no later epoch can improve."""
        if not self.active:
            self.epoch += 1
            return
        n_rows, steps, batch_size = len(self.table.train), self.steps_per_epoch, self.architecture.batch_size
        draws = self.draws.at(self.epoch)
        self.loss.zero_()
        for first in range(0, steps, STRETCH_STEPS):
            last = min(first + STRETCH_STEPS, steps)
            drawn = draws.stretch(first * batch_size, min(last * batch_size, n_rows))
            self._steps(self._factors(first, last), drawn.order, drawn.kept, self._firsts[first])
        self.epoch += 1
        self.optimizer.step_count = self.epoch * steps
        self._end_epoch()

    def _factors(self, first: int, last: int) -> Tensor | None:
        """[steps] factors of the step size, None where all are 1."""
        if self.settings.schedule == "constant":
            return None
        done, total = self.epoch * self.steps_per_epoch, self.epochs * self.steps_per_epoch
        factors = [schedule_factor(self.settings.schedule, done + step, total) for step in range(first, last)]
        # The fused update takes float64 numbers on a CPU and float32 tensors on a GPU.
        return torch.tensor(factors, dtype=torch.float64 if self.device.type == "cpu" else torch.float32).to(
            self.device
        )

    def _run_steps(self, factors: Tensor | None, order: Tensor, kept: Tensor | None, first: Tensor) -> None:
        """Train on a stretch of the epoch, adding to the epoch's losses.  On a GPU this is what is recorded.

        factors [steps] scale the step size (None: 1); order [S, n] rows of the stretch; kept: as in
        :class:`~adaptbin.training.draws.Draws`; first [] int64: steps of the epoch before it.
        """
        targets, batch_size, count = self.targets, self.architecture.batch_size, len(self.active)
        chosen = self.index.spread(order)
        inputs = self._inputs["train"].index_select(0, chosen.flatten()).view(*chosen.shape, -1).expand(count, -1, -1)
        labels = targets.train[chosen].expand(count, -1)
        rates: Sequence[float | Tensor] = [1.0] * -(-order.shape[1] // batch_size)
        if factors is not None:
            rates = factors.tolist() if self.device.type == "cpu" else factors.unbind()
        for i, start in enumerate(range(0, order.shape[1], batch_size)):
            rows = slice(start, min(start + batch_size, order.shape[1]))
            units = self.draws.kept(self.index, kept, rows, first + i).encoder
            outputs = self.head.forward(self.encoder.forward(inputs[:, rows], units), None)[..., : targets.n_outputs]
            self.loss += loss(outputs, labels[:, rows], targets.task)
            gradient = loss_gradient(outputs, labels[:, rows], targets.task)
            below = self.head.backward(targets.padded(gradient), input_gradient=True)
            assert below is not None
            self.encoder.backward(below, input_gradient=False)
            self.optimizer.step(rates[i])

    def _end_epoch(self) -> None:
        score = self._score()
        best = self.best_score.index_select(0, self._positions)
        better = score > best  # the first of equal ones stays
        # No score is above the highest there is, so what comes after it does not count, be it finite or not; before
        # it what is not finite once never is again.
        lost = ~self.bank.values.isfinite().all(1) & (best < self._highest_score)
        ends = lost | (torch.maximum(score, best) >= self._highest_score)
        # The one time an epoch waits for its device.
        told = torch.stack([self.loss / self.steps_per_epoch, score * self.metric.sign, better, ends, lost]).cpu()
        self.history["loss"][self.active, self.epoch - 1], self.history["val"][self.active, self.epoch - 1] = told[:2]
        improved = told[2].nonzero().flatten().to(self.device)
        if len(improved):
            self._remember(improved, score)
        for position, broke in zip(self.active, told[4].tolist(), strict=True):
            self.broke[position] = bool(broke)
        self._keep([at for at, ended in enumerate(told[3].tolist()) if not ended])

    def _score(self) -> Tensor:
        """[A] float64 of the active replicas: what chooses an epoch, larger is better; NaN never is."""
        found = batched_metric(self.metric.name, self._outputs("val"), self._expected, self.table.card.levels)
        return found * self.metric.sign

    @property
    def _highest_score(self) -> float:
        """What :meth:`_score` cannot exceed."""
        return self.metric.high if self.metric.higher_is_better else -self.metric.low

    def _remember(self, improved: Tensor, score: Tensor) -> None:
        """Rows ``improved`` [I] of the stack have never been better than now."""
        at = self._positions.index_select(0, improved)
        self.best_score.index_copy_(0, at, score.index_select(0, improved))
        self.best_epoch.index_fill_(0, at, self.epoch - 1)
        self.best_values.index_copy_(0, at, self.bank.values.index_select(0, improved))
        for name, held in self.encoder.statistics.items():
            self.best_statistics[name].index_copy_(0, at, held.index_select(0, improved))

    def _keep(self, members: Sequence[int]) -> None:
        """Train only these rows of the stack from now on."""
        if len(members) == len(self.active):
            return
        for at in set(range(len(self.active))) - set(members):
            self.stopped_at[self.active[at]] = self.epoch
        self.active = [self.active[at] for at in members]
        if not members:
            return
        rows = torch.tensor(members, device=self.device)
        bank = ParameterBank(self._shapes(), len(members), self.device)
        for own, held in zip(bank.buffers(), self.bank.buffers(), strict=True):
            own.copy_(held.index_select(0, rows))
        self._steps.invalidate()
        self._bind(bank, {name: held.index_select(0, rows) for name, held in self.encoder.statistics.items()})

    def _outputs(self, part: str) -> Tensor:
        """[A, rows, O] of the active replicas on ``part``, in eval mode."""
        return self.targets.in_units(self.head.evaluate(self.encoder.evaluate(self._inputs[part].unsqueeze(0))))

    # ------------------------------------------------------------------------------------------- results and state

    def take_best(self) -> None:
        """Put all replicas back to where they were after their best epochs; training cannot go on from there."""
        self.active = list(range(len(self.replicas)))
        bank = ParameterBank(self._shapes(), len(self.replicas), self.device)
        bank.values.copy_(self.best_values)
        self._steps.invalidate()
        self._bind(bank, self.best_statistics)

    def scores(self) -> list[Scores]:
        """Of every replica, at its best epoch; none of one that broke.

        Test is read here and nowhere else.  The last thing to do.
        """
        self.take_best()
        outputs = {part: self._outputs(part).cpu() for part in ("val", "test")}
        found = scores_of(outputs, self.best_epoch.cpu().tolist(), self.replicas, self.table)
        return [Scores([], {}) if broke else scores for scores, broke in zip(found, self.broke, strict=True)]

    def told_of(self, position: int) -> dict[str, Any]:
        """What a record keeps of the way there: epochs trained, why no more, and curves of loss and validation score.

        A number in a curve that is not finite is None.
        """
        end = self.stopped_at[position] or self.epochs
        ended = "broke" if self.broke[position] else "perfect" if end < self.epochs else "all epochs"
        curves = {name: [_plain(value) for value in self.history[name][position, :end].tolist()] for name in HISTORY}
        return {"epochs": end, "ended": ended, "metric": self.metric.name, "curves": curves}

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly: tensors (the replicas' own, not copies) and plain values only."""
        values, _, first, second = self.bank.buffers()
        return {
            "names": list(self.names),
            "epoch": self.epoch,
            "active": list(self.active),
            "stopped_at": list(self.stopped_at),
            "broke": list(self.broke),
            "parameters": [values, first, second],
            "statistics": dict(self.encoder.statistics),
            "best": [self.best_score, self.best_epoch, self.best_values],
            "best_statistics": dict(self.best_statistics),
            "history": self.history,
        }

    def load_states(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from :meth:`state` of other stacks on the same table, which together hold these replicas.

        The states must be of one epoch.  Raises KeyError for a replica that none of them holds.
        """
        places = {name: (state, row) for state in states for row, name in enumerate(state["names"])}
        saved = [places[name] for name in self.names]
        self.epoch = int(saved[0][0]["epoch"])
        self.stopped_at = [state["stopped_at"][row] for state, row in saved]
        self.broke = [state["broke"][row] for state, row in saved]
        self.history = {name: torch.stack([state["history"][name][row] for state, row in saved]) for name in HISTORY}
        for i, own in enumerate((self.best_score, self.best_epoch, self.best_values)):
            own.copy_(torch.stack([state["best"][i][row] for state, row in saved]))
        for name, own in self.best_statistics.items():
            own.copy_(torch.stack([state["best_statistics"][name][row] for state, row in saved]))
        self.active = [at for at, (state, row) in enumerate(saved) if row in state["active"]]
        if not self.active:
            return
        rows = [(state, state["active"].index(row)) for state, row in (saved[at] for at in self.active)]
        bank = ParameterBank(self._shapes(), len(rows), self.device)
        values, _, first, second = bank.buffers()
        for i, buffer in enumerate((values, first, second)):
            buffer.copy_(torch.stack([state["parameters"][i][row] for state, row in rows]))
        statistics = {
            name: torch.stack([state["statistics"][name][row] for state, row in rows]) for name in self.best_statistics
        }
        self._bind(bank, statistics)


def draws_of(
    replicas: Sequence[Replica], table: EncodedTable, device: torch.device, graphs: MakeGraph | None = None
) -> EpochDraws:
    """Draws of fine-tuning for replicas that share their architecture, by the seeds of their evaluation."""
    seeds = [r.seeds.probe for r in replicas]
    return EpochDraws(seeds, table, replicas[0].architecture, device, graphs, names=("finetune",))


def _settings_of(replicas: Sequence[Replica]) -> Finetuning:
    settings = {replica.finetuning for replica in replicas}
    if len(settings) > 1:
        raise ConfigError(f"fine-tuned replicas of a stack must share their settings, got {len(settings)} kinds")
    (found,) = settings
    if found is None:
        raise ConfigError("fine-tuned replicas must say how, got finetuning None")
    return found


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
