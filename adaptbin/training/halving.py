"""Successive halving inside a pack: replicas are ranked at rungs, and those of the lesser points leave the stacks.

The whole pack is one bracket (Jamieson and Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter
Optimization, AISTATS 2016).  What is learned at a rung is no approximation: under a constant schedule a replica of a
longer budget is, after e epochs, the very model of a budget of e epochs, and its record says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.errors import ConfigError
from adaptbin.metrics import get_metric, primary_metric
from adaptbin.replicas.grouping import by_model, model_id
from adaptbin.training.checkpoint import Checkpoint
from adaptbin.training.pack import PackProgress, check_pack, report_progress, run_stacks, stack_size, stacks_of
from adaptbin.training.peak import PeakMemory
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.records import probe_records, runtime_of
from adaptbin.training.resume import PackState, Stopwatch

Record = dict[str, Any]

_TIMES = ("seconds", "core_seconds")


def train_pack_halving(
    replicas: Sequence[Replica],
    table: EncodedTable,
    *,
    rungs: Sequence[int],
    keep: float,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Callable[[PackProgress], None] | None = None,
) -> list[Record]:
    """Pretrain and probe a pack, of which fewer and fewer replicas go on; -> records of all, rung by rung.

    At each of ``rungs`` (epochs, ascending, the last one the budget's) all replicas still there are probed.  A point is
    as good as its replicas' mean validation score of the data set's primary metric, over the seeds in the pack; the
    best ``keep`` of the points there, rounded up, go on, with all their seeds.  A point with a diverged replica does
    not.  Test scores decide nothing.

    A record of rung e is that of a replica whose budget is :meth:`Budget.at_rung <adaptbin.config.Budget.at_rung>` of
    e, with its id: the same that :func:`train_pack <adaptbin.training.pack.train_pack>` would give, but for
    ``runtime``, whose seconds are the replica's share of all that was spent until then.  The other arguments are those
    of :func:`train_pack`; a run that was cut off goes on from its checkpoint, with the records of the rungs it had
    passed.

    Raises ConfigError for rungs or a share that cannot be, for replicas that are fine-tuned, not pretrained, or under
    a schedule that depends on the number of epochs, and where :func:`train_pack` does.
    """
    check_pack(replicas, table)
    _check(replicas, rungs, keep)
    target = torch.device(device)
    watch, memory = Stopwatch(), PeakMemory(target)
    state = PackState(len(replicas), target, watch, checkpoint, checkpoint_seconds)
    beside = state.beside()
    kept: dict[str, Record] = {record["id"]: record for record in beside.get("records", ())}
    shares = _Shares(watch, beside.get("spent", (0.0, 0.0)))
    metric = get_metric(primary_metric(table.card.primary_metric, replicas[0].protocol))
    there, records, resumed_epoch = list(replicas), list[Record](), 0
    stacks: list[Pretraining] = []
    for rung in rungs:
        short = [_of(replica, rung) for replica in there]
        if not stacks and all(replica.id in kept for replica in short):  # an earlier attempt passed this rung
            found = [kept[replica.id] for replica in short]
        else:
            if not stacks:
                stacks = _stacks(there, table, target)
                resumed_epoch = state.begin("pretrain", stacks)
                shares.resumed()
            run_stacks(stacks, "pretrain", state, progress, until=rung)
            report_progress(stacks, "probe", state, progress)
            found = _probe(stacks, there, short, table, target)
            runtime = runtime_of(target, len(replicas), resumed_epoch, memory)
            for record, share in zip(found, shares.after(there), strict=True):
                record["runtime"] = share | runtime
        shares.take(there, found)
        records += found
        there = _survivors(there, found, keep, metric.name, metric.sign)
        if rung == rungs[-1] or not there:
            break
        if stacks:
            states = [stack.state() for stack in stacks]
            stacks = _stacks(there, table, target)
            for stack in stacks:
                stack.load_states(states)
            state.go_on_with("pretrain", stacks)
            state.keep({"records": records, "spent": list(shares.spent)})
    return records


class _Shares:
    """Each replica's share of the time: what was spent between two rungs is shared by those that were there."""

    def __init__(self, watch: Stopwatch, spent: Sequence[float]) -> None:
        self._watch = watch
        self.spent = tuple(spent)
        """Wall and core seconds of the pack, up to the last rung."""
        self._of: dict[str, tuple[float, ...]] = {}

    def resumed(self) -> None:
        """What of earlier attempts was not taken over is not counted as spent, so that no share is below 0."""
        self.spent = tuple(map(min, self.spent, self._watch.earlier))

    def after(self, replicas: Sequence[Replica]) -> list[dict[str, float]]:
        """The shares at a rung that these replicas have just reached."""
        now = self._watch.read()
        share = [(total - past) / len(replicas) for total, past in zip(now, self.spent, strict=True)]
        self.spent = now
        before = [self._of.get(replica.id, (0.0, 0.0)) for replica in replicas]
        return [{name: a + b for name, a, b in zip(_TIMES, earlier, share, strict=True)} for earlier in before]

    def take(self, replicas: Sequence[Replica], records: Sequence[Record]) -> None:
        """Go on from what records of a rung say."""
        for replica, record in zip(replicas, records, strict=True):
            self._of[replica.id] = tuple(record["runtime"][name] for name in _TIMES)


def _probe(
    stacks: Sequence[Pretraining],
    replicas: Sequence[Replica],
    short: Sequence[Replica],
    table: EncodedTable,
    device: torch.device,
) -> list[Record]:
    """Records of the ``short`` budgets that have ended, of what the stacks of ``replicas`` have learned; likewise."""
    for stack in stacks:
        stack.free_recordings()
    models: dict[str, list[Replica]] = {}
    for replica, ended in zip(replicas, short, strict=True):
        models.setdefault(model_id(replica), []).append(ended)
    told = probe_records(stacks, models, table, stack_size(len(models), device))
    return [told[replica.id] for replica in short]


def _of(replica: Replica, epochs: int) -> Replica:
    """The replica whose budget has so many epochs, and is probed as rungs are."""
    return replace(replica, budget=replica.budget.at_rung(epochs))


def _stacks(replicas: Sequence[Replica], table: EncodedTable, device: torch.device) -> list[Pretraining]:
    return stacks_of([same[0] for same in by_model(replicas).values()], table, device)


def _survivors(
    replicas: Sequence[Replica], records: Sequence[Mapping[str, Any]], keep: float, metric: str, sign: int
) -> list[Replica]:
    """Replicas of the best points; of points that are equally good the earlier ones."""
    scores: dict[Any, list[float]] = {}
    for replica, record in zip(replicas, records, strict=True):
        score = record["scores"]["val"].get(metric, -math.inf * sign)
        scores.setdefault(replica.hyperparameters, []).append(score)
    means = {point: sign * sum(of_point) / len(of_point) for point, of_point in scores.items()}
    ranked = sorted((point for point in means if means[point] > -math.inf), key=lambda point: -means[point])
    going_on = frozenset(ranked[: math.ceil(keep * len(means))])
    return [replica for replica in replicas if replica.hyperparameters in going_on]


def _check(replicas: Sequence[Replica], rungs: Sequence[int], keep: float) -> None:
    first = replicas[0]
    epochs = first.budget.epochs
    ascending = all(isinstance(rung, int) and rung >= 1 for rung in rungs) and list(rungs) == sorted(set(rungs))
    if not rungs or not ascending or rungs[-1] != epochs:
        raise ConfigError(f"rungs must be ascending whole numbers of epochs that end at {epochs}, got {list(rungs)}")
    if not 0 < keep < 1:
        raise ConfigError(f"keep, the share of points that goes on from a rung, must be in (0, 1), got {keep!r}")
    if first.finetuning is not None or first.hyperparameters.pretext == "none":
        raise ConfigError("halving ranks pretrained replicas by their linear probes, got fine-tuned ones")
    if first.protocol.pretrain_schedule != "constant":
        raise ConfigError(
            "halving needs a constant schedule, under which a shorter training is the start of a longer one, got "
            f"{first.protocol.pretrain_schedule!r}"
        )
