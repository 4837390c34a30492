"""One pack from start to result records: training in cache-sized stacks, evaluation, checkpoints on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from adaptbin.config import RECONSTRUCTED, Replica
from adaptbin.data.encode import EncodedRows, EncodedTable
from adaptbin.encoders.mlp import decoder_blocks
from adaptbin.encoders.registry import make_encoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import by_model, model_id, stack_key
from adaptbin.training.checkpoint import Checkpoint
from adaptbin.training.draws import EpochDraws
from adaptbin.training.finetune import FineTuning, Pretrained, draws_of
from adaptbin.training.graphs import graphs_for
from adaptbin.training.peak import PeakMemory
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.records import probe_records, record_of, runtime_of
from adaptbin.training.resume import PackState, Stopwatch
from adaptbin.training.rows import columns_of

STACK_ON_CPU = 5
"""Most replicas computed together on a CPU core: more of them leave its caches, fewer pay for calls."""

STACK_BYTES = 5 << 19
"""Weights of the perceptrons computed together on a CPU core, at most, if there are several: with gradients and moments
they are four times as much.  Encoders that autograd differentiates pay more for calls than for caches."""

Phase = Literal["pretrain", "probe", "finetune"]


@dataclass(frozen=True)
class PackProgress:
    """Where a pack stands; sent after every epoch of pretraining and fine-tuning, and once when probing starts."""

    phase: Phase
    epoch: int
    """Epochs done, of ``epochs``."""
    epochs: int
    replicas: int
    diverged: int
    loss: float
    """Mean over living replicas, last epoch."""
    mean_bins: float
    """0 in fine-tuning."""


Trained = Callable[[Sequence[Pretraining], Sequence[FineTuning]], None]
"""Takes the stacks of a pack: pretrainings at their last epoch, none of a pack from scratch, and fine-tunings at their
best ones, none where replicas are probed or all diverged."""


def train_pack(
    replicas: Sequence[Replica],
    table: EncodedTable,
    *,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Callable[[PackProgress], None] | None = None,
    trained: Trained | None = None,
) -> list[dict[str, Any]]:
    """Pretrain the replicas of one pack, and probe or fine-tune them; -> one result record each, in their order.

    All replicas must share what :func:`adaptbin.replicas.grouping.stack_key` names, and ``table`` must be theirs.
    Replicas with the same point and pretraining seed (``seeds_vary="probe"``) are pretrained once; those from scratch
    not at all.
    ``progress`` is called after every epoch and may raise to stop; the state is saved first.  A state in ``checkpoint``
    that holds all replicas, of this pack or of one that had more, is resumed, exactly.  The state is saved when
    ``checkpoint_seconds`` are over, and after each twentieth of the epochs if saving takes 2 % of the time at most.
    ``trained`` is handed the models themselves once they are scored, for whoever wants to keep one.

    A record's ``runtime`` holds the pack's ``seconds`` and ``core_seconds`` per replica (earlier attempts included),
    ``resumed_epoch`` (epochs of pretraining and fine-tuning that earlier attempts had done) and, where the system
    tells, ``peak_bytes``: the most memory that the process held meanwhile, or on a GPU its tensors.

    Raises ConfigError when the replicas do not belong together or to the table.  Memory that runs out is an error out
    of here as torch raises it; the state saved last then stands, and fewer replicas at a time can go on from it.
    """
    check_pack(replicas, table)
    target = torch.device(device)
    watch, memory = Stopwatch(), PeakMemory(target)
    state = PackState(len(replicas), target, watch, checkpoint, checkpoint_seconds)
    models = by_model(replicas)
    is_pretrained = replicas[0].hyperparameters.pretext != "none"
    stacks = stacks_of([same[0] for same in models.values()], table, target) if is_pretrained else []
    resumed_epoch = state.begin("pretrain", stacks) if is_pretrained else 0
    run_stacks(stacks, "pretrain", state, progress)
    for stack in stacks:
        stack.free_recordings()
    tuned: list[FineTuning] = []
    if replicas[0].finetuning is None:
        report_progress(stacks, "probe", state, progress)
        records = probe_records(stacks, models, table, stack_size(len(models), target))
    else:
        records, tuned, epoch = _finetune(stacks, replicas, table, target, state, progress)
        resumed_epoch += epoch
    if trained is not None:
        trained(stacks, tuned)
    seconds, core_seconds = watch.read()
    told = runtime_of(target, len(replicas), resumed_epoch, memory)
    for record in records.values():
        record["runtime"] = {"seconds": seconds / len(replicas), "core_seconds": core_seconds / len(replicas), **told}
    return [records[r.id] for r in replicas]


def stacks_of(replicas: Sequence[Replica], table: EncodedRows, device: torch.device | str = "cpu") -> list[Pretraining]:
    """The pretrainings of a pack, cut into stacks of a size that suits ``device`` and as even as they can be.

    They share their random draws, so they must be run epoch by epoch.
    """
    target = torch.device(device)
    graphs = graphs_for(target)
    draws = EpochDraws.of_pretraining(replicas, table, target, graphs)
    kind, bounds = PRETEXTS[replicas[0].hyperparameters.pretext], _bounds(replicas, table, target)
    return [kind(replicas[a:b], table, target, draws=draws, graphs=graphs) for a, b in bounds]


def finetunings_of(
    replicas: Sequence[Replica],
    table: EncodedTable,
    device: torch.device | str = "cpu",
    starts: Sequence[Pretrained] | None = None,
) -> list[FineTuning]:
    """The fine-tunings of a pack, cut and to be run as :func:`stacks_of`; ``starts``: see :class:`FineTuning`."""
    target = torch.device(device)
    graphs = graphs_for(target)
    draws = draws_of(replicas, table, target, graphs)
    return [
        FineTuning(
            replicas[a:b],
            table,
            target,
            starts=None if starts is None else starts[a:b],
            draws=draws,
            graphs=graphs,
        )
        for a, b in _bounds(replicas, table, target)
    ]


def _bounds(replicas: Sequence[Replica], table: EncodedRows, device: torch.device) -> list[tuple[int, int]]:
    count = -(-len(replicas) // stack_size(len(replicas), device, _weights(replicas[0], table)))
    bounds = [round(i * len(replicas) / count) for i in range(count + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _weights(replica: Replica, table: EncodedRows) -> int:
    """Weights of one perceptron and its decoders' hidden blocks; 0 of another encoder."""
    architecture = replica.architecture
    if architecture.encoder != "mlp":
        return 0
    decoders = len(RECONSTRUCTED[replica.hyperparameters.pretext]) * decoder_blocks(architecture, replica.protocol)
    return make_encoder(columns_of(table), architecture).products + decoders * architecture.width**2


def stack_size(replicas: int, device: torch.device, weights: int = 0) -> int:
    """How many of so many replicas, each with so many ``weights``, are computed together."""
    if device.type != "cpu":
        return replicas
    return max(1, min(STACK_ON_CPU, STACK_BYTES // (4 * weights))) if weights else STACK_ON_CPU


def check_pack(replicas: Sequence[Replica], table: EncodedTable) -> None:
    """Raise ConfigError when the replicas do not belong together or to the table."""
    if not replicas:
        raise ConfigError("a pack must hold at least one replica, got none")
    keys = {stack_key(r) for r in replicas}
    if len(keys) > 1:
        raise ConfigError(
            "replicas of a pack must share pretext, data set, architecture, budget, fine-tuning, protocol and "
            f"split, got {len(keys)} kinds"
        )
    first = replicas[0]
    if (first.fingerprint, first.seeds.split) != (table.fingerprint, table.split_seed):
        raise ConfigError(
            f"a pack needs its own table (fingerprint {first.fingerprint}, split seed {first.seeds.split}), "
            f"got fingerprint {table.fingerprint}, split seed {table.split_seed}"
        )


def run_stacks(
    stacks: Sequence[Pretraining] | Sequence[FineTuning],
    phase: Literal["pretrain", "finetune"],
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
    until: int | None = None,
) -> None:
    """Run all stacks to epoch ``until``, by default to their last one, epoch by epoch."""
    if not stacks:
        return
    until = stacks[0].epochs if until is None else until
    while stacks[0].epoch < until and not all(stack.ended for stack in stacks):
        for stack in stacks:
            stack.run_epoch()
        state.save_if_due()
        report_progress(stacks, phase, state, progress)


def report_progress(
    stacks: Sequence[Pretraining] | Sequence[FineTuning],
    phase: Phase,
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
) -> None:
    """Call ``progress``, and save the state if it raises."""
    if progress is None:
        return
    try:
        progress(_progress(stacks, phase))
    except BaseException:
        state.save()
        raise


def _finetune(
    pretrained: Sequence[Pretraining],
    replicas: Sequence[Replica],
    table: EncodedTable,
    device: torch.device,
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
) -> tuple[dict[str, dict[str, Any]], list[FineTuning], int]:
    """Records by id, the models, and the epoch that a saved state went on from.

    Replicas whose pretraining diverged are not trained any more.
    """
    place = {name: (stack, row) for stack in pretrained for row, name in enumerate(stack.names)}
    starts = {r.id: place[model_id(r)] for r in replicas} if pretrained else {}
    alive = [r for r in replicas if not pretrained or starts[r.id][0].diverged_at[starts[r.id][1]] is None]
    records = {r.id: record_of(r, starts.get(r.id), None, table) for r in replicas}
    if not alive:
        return records, [], 0
    stacks = finetunings_of(alive, table, device, [starts[r.id] for r in alive] if pretrained else None)
    resumed_epoch = state.begin("finetune", stacks)
    run_stacks(stacks, "finetune", state, progress)
    for stack in stacks:
        for position, (replica, found) in enumerate(zip(stack.replicas, stack.scores(), strict=True)):
            record = record_of(replica, starts.get(replica.id), found, table)
            told = stack.told_of(position)
            if record["status"] == "diverged":
                record["diverged_at"] = told["epochs"]
            records[replica.id] = record | {"finetuning": told}
    return records, stacks, resumed_epoch


def _progress(stacks: Sequence[Pretraining] | Sequence[FineTuning], phase: Phase) -> PackProgress:
    epoch = max(stack.epoch for stack in stacks)
    loss = torch.cat([stack.history["loss"][:, epoch - 1] for stack in stacks])
    bins = [stack.history["mean_bins"][:, epoch - 1] for stack in stacks if isinstance(stack, Pretraining)]
    alive = torch.isfinite(loss)
    return PackProgress(
        phase=phase,
        epoch=epoch,
        epochs=stacks[0].epochs,
        replicas=len(loss),
        diverged=sum(
            sum(at is not None for at in stack.diverged_at) if isinstance(stack, Pretraining) else sum(stack.broke)
            for stack in stacks
        ),
        loss=float(loss[alive].mean()) if bool(alive.any()) else float("nan"),
        mean_bins=float(torch.cat(bins).mean()) if bins else 0.0,
    )
