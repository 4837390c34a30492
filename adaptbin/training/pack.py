"""One pack from start to result records: training in cache-sized stacks, evaluation, checkpoints on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from adaptbin.config import RECORD_SCHEMA, Replica
from adaptbin.data.encode import EncodedRows, EncodedTable
from adaptbin.errors import ConfigError
from adaptbin.replicas.grouping import model_id, stack_key
from adaptbin.training.checkpoint import Checkpoint
from adaptbin.training.curves import thinned_curves
from adaptbin.training.draws import EpochDraws
from adaptbin.training.finetune import FineTuning, Pretrained, draws_of
from adaptbin.training.graphs import graphs_for
from adaptbin.training.peak import PeakMemory
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.probe import probe
from adaptbin.training.readout import Scores
from adaptbin.training.resume import PackState, Stopwatch, kernels

STACK_ON_CPU = 5
"""Replicas computed together on a CPU core: more of them leave its caches, fewer pay for calls."""


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


def train_pack(
    replicas: Sequence[Replica],
    table: EncodedTable,
    *,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Callable[[PackProgress], None] | None = None,
) -> list[dict[str, Any]]:
    """Pretrain the replicas of one pack, and probe or fine-tune them; -> one result record each, in their order.

    All replicas must share what :func:`adaptbin.replicas.grouping.stack_key` names, and ``table`` must be theirs.
    Replicas with the same point and pretraining seed (``seeds_vary="probe"``) are pretrained once; those from scratch
    not at all.
    ``progress`` is called after every epoch and may raise to stop; the state is saved first.  A state in ``checkpoint``
    that holds all replicas, of this pack or of one that had more, is resumed, exactly.  The state is saved when
    ``checkpoint_seconds`` are over, and after each twentieth of the epochs if saving takes 2 % of the time at most.

    A record's ``runtime`` holds the pack's ``seconds`` and ``core_seconds`` per replica (earlier attempts included),
    ``resumed_epoch`` (epochs of pretraining and fine-tuning that earlier attempts had done) and, where the system
    tells, ``peak_bytes``: the most memory that the process held meanwhile, or on a GPU its tensors.

    Raises ConfigError when the replicas do not belong together or to the table.  Memory that runs out is an error out
    of here as torch raises it; the state saved last then stands, and fewer replicas at a time can go on from it.
    """
    _check(replicas, table)
    target = torch.device(device)
    watch, memory = Stopwatch(), PeakMemory(target)
    state = PackState(len(replicas), target, watch, checkpoint, checkpoint_seconds)
    # One pretraining serves all replicas that differ in the seed of their evaluation only.
    models: dict[str, Replica] = {}
    for replica in replicas:
        models.setdefault(model_id(replica), replica)
    is_pretrained = replicas[0].hyperparameters.pretext != "none"
    stacks = stacks_of(list(models.values()), table, target) if is_pretrained else []
    resumed_epoch = state.begin("pretrain", stacks) if is_pretrained else 0
    _run(stacks, "pretrain", state, progress)
    for stack in stacks:
        stack.free_recordings()
    if replicas[0].finetuning is None:
        _report(stacks, "probe", state, progress)
        records = _probe(stacks, replicas, table, _stack_size(len(models), target))
    else:
        records, epoch = _finetune(stacks, replicas, table, target, state, progress)
        resumed_epoch += epoch
    seconds, core_seconds = watch.read()
    peak_bytes = memory.bytes()
    for record in records.values():
        record["runtime"] = {
            "seconds": seconds / len(replicas),
            "core_seconds": core_seconds / len(replicas),
            "device": str(target),
            "kernels": kernels(target),
            "threads": torch.get_num_threads(),
            "pack_size": len(replicas),
            "resumed_epoch": resumed_epoch,
            **({} if peak_bytes is None else {"peak_bytes": peak_bytes}),
        }
    return [records[r.id] for r in replicas]


def stacks_of(replicas: Sequence[Replica], table: EncodedRows, device: torch.device | str = "cpu") -> list[Pretraining]:
    """The pretrainings of a pack, cut into stacks of a size that suits ``device`` and as even as they can be.

    They share their random draws, so they must be run epoch by epoch.
    """
    target = torch.device(device)
    graphs = graphs_for(target)
    draws = EpochDraws.of_pretraining(replicas, table, target, graphs)
    kind = PRETEXTS[replicas[0].hyperparameters.pretext]
    return [kind(replicas[a:b], table, target, draws=draws, graphs=graphs) for a, b in _bounds(len(replicas), target)]


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
        for a, b in _bounds(len(replicas), target)
    ]


def _bounds(replicas: int, device: torch.device) -> list[tuple[int, int]]:
    count = -(-replicas // _stack_size(replicas, device))
    bounds = [round(i * replicas / count) for i in range(count + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _stack_size(replicas: int, device: torch.device) -> int:
    return STACK_ON_CPU if device.type == "cpu" else replicas


def _check(replicas: Sequence[Replica], table: EncodedTable) -> None:
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


def _run(
    stacks: Sequence[Pretraining] | Sequence[FineTuning],
    phase: Literal["pretrain", "finetune"],
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
) -> None:
    """Run all stacks to their last epoch, epoch by epoch."""
    while stacks and stacks[0].epoch < stacks[0].epochs and not all(stack.ended for stack in stacks):
        for stack in stacks:
            stack.run_epoch()
        state.save_if_due()
        _report(stacks, phase, state, progress)


def _report(
    stacks: Sequence[Pretraining] | Sequence[FineTuning],
    phase: Phase,
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
) -> None:
    if progress is None:
        return
    try:
        progress(_progress(stacks, phase))
    except BaseException:
        state.save()
        raise


def _probe(
    stacks: Sequence[Pretraining], replicas: Sequence[Replica], table: EncodedTable, size: int
) -> dict[str, dict[str, Any]]:
    """Records by id; at most ``size`` models are probed together."""
    records: dict[str, dict[str, Any]] = {}
    for stack in stacks:
        embeddings = stack.embed(table.inputs)
        for position, finite in enumerate(torch.isfinite(embeddings).flatten(1).all(1).tolist()):
            if not finite and stack.diverged_at[position] is None:
                stack.diverged_at[position] = stack.epochs - 1
        place = {name: position for position, name in enumerate(stack.names)}
        members = [(place[model_id(r)], r) for r in replicas if model_id(r) in place]
        alive = [(position, r) for position, r in members if stack.diverged_at[position] is None]
        scores: dict[str, Scores] = {}
        for start in range(0, len(alive), size):
            positions, probed = zip(*alive[start : start + size], strict=True)
            rows = torch.tensor(positions, device=embeddings.device)
            found = probe(embeddings.index_select(0, rows), probed, table)
            scores |= {r.id: score for r, score in zip(probed, found, strict=True)}
        records |= {r.id: _record(r, (stack, position), scores.get(r.id), table) for position, r in members}
    return records


def _finetune(
    pretrained: Sequence[Pretraining],
    replicas: Sequence[Replica],
    table: EncodedTable,
    device: torch.device,
    state: PackState,
    progress: Callable[[PackProgress], None] | None,
) -> tuple[dict[str, dict[str, Any]], int]:
    """Records by id, and the epoch that a saved state went on from.

    Replicas whose pretraining diverged are not trained any more.
    """
    place = {name: (stack, row) for stack in pretrained for row, name in enumerate(stack.names)}
    starts = {r.id: place[model_id(r)] for r in replicas} if pretrained else {}
    alive = [r for r in replicas if not pretrained or starts[r.id][0].diverged_at[starts[r.id][1]] is None]
    records = {r.id: _record(r, starts.get(r.id), None, table) for r in replicas}
    if not alive:
        return records, 0
    stacks = finetunings_of(alive, table, device, [starts[r.id] for r in alive] if pretrained else None)
    resumed_epoch = state.begin("finetune", stacks)
    _run(stacks, "finetune", state, progress)
    for stack in stacks:
        for position, (replica, found) in enumerate(zip(stack.replicas, stack.scores(), strict=True)):
            record = _record(replica, starts.get(replica.id), found, table)
            told = stack.told_of(position)
            if record["status"] == "diverged":
                record["diverged_at"] = told["epochs"]
            records[replica.id] = record | {"finetuning": told}
    return records, resumed_epoch


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


def _record(
    replica: Replica, pretrained: Pretrained | None, found: Scores | None, table: EncodedTable
) -> dict[str, Any]:
    """The result record of one replica; every number in it is finite.

    pretrained: where it was, None for one from scratch; found: None where nothing was evaluated.
    """
    heads = [] if found is None else found.heads
    scores: dict[str, dict[str, float]] = {}
    for part in ("val", "test"):
        parts: list[Any] = [head[part] for head in heads]
        scores[part] = {name: sum(p[name] for p in parts) / len(parts) for name in (parts[0] if parts else ())}
    bins, curves, end = {"features": [], "final": [], "triggers": 0, "splits": 0}, {}, 0
    if pretrained is not None:
        stack, position = pretrained
        at = stack.diverged_at[position]
        end = stack.epochs if at is None else at
        bins = {
            "features": list(table.numerical_names) if stack.n_bins.shape[1] else [],
            "final": stack.n_bins[position].tolist(),
            "triggers": int(stack.history["triggers"][position].sum()),
            "splits": int(stack.history["splits"][position].sum()),
        }
        curves = thinned_curves(stack.history, position, end)
    return {
        "schema": RECORD_SCHEMA,
        "id": replica.id,
        "identity": replica.identity(),
        "status": "finished" if heads else "diverged",
        "diverged_at": None if heads else end,
        "scores": scores,
        "probes": heads,
        "test_bootstrap_se": {} if found is None else found.bootstrap_se,
        "n_rows": {
            **{part: len(getattr(table, part)) for part in ("train", "val", "test")},
            **({} if table.unlabelled is None else {"unlabelled": len(table.unlabelled)}),
        },
        "target_sd": table.target_sd,
        "bins": bins,
        "curves": curves,
        "unseen": {name: dict(counts) for name, counts in table.unseen.items()},
    }
