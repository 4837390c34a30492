"""One pack from start to result records: pretraining in cache-sized stacks, probes, checkpoints on the way."""

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
from adaptbin.training.graphs import graphs_for
from adaptbin.training.peak import PeakMemory
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.probe import ProbeScores, probe
from adaptbin.training.resume import PackState, Stopwatch, kernels

STACK_ON_CPU = 5
"""Replicas computed together on a CPU core: more of them leave its caches, fewer pay for calls."""


@dataclass(frozen=True)
class PackProgress:
    """Where a pack stands; sent after every pretraining epoch and once when probing starts."""

    phase: Literal["pretrain", "probe"]
    epoch: int
    """Epochs done, of ``epochs``."""
    epochs: int
    replicas: int
    diverged: int
    loss: float
    """Mean over living replicas, last epoch."""
    mean_bins: float


def train_pack(
    replicas: Sequence[Replica],
    table: EncodedTable,
    *,
    device: str = "cpu",
    checkpoint: Checkpoint | None = None,
    checkpoint_seconds: float = 60.0,
    progress: Callable[[PackProgress], None] | None = None,
) -> list[dict[str, Any]]:
    """Pretrain and probe the replicas of one pack; -> one result record per replica, in their order.

    All replicas must share what :func:`adaptbin.replicas.grouping.stack_key` names, and ``table`` must be theirs.
    Replicas with the same point and pretraining seed (``seeds_vary="probe"``) are pretrained once.
    ``progress`` is called after every epoch and may raise to stop; the state is saved first.  A state in ``checkpoint``
    that holds all replicas, of this pack or of one that had more, is resumed, exactly.  The state is saved when
    ``checkpoint_seconds`` are over, and after each twentieth of the epochs if saving takes 2 % of the time at most.

    A record's ``runtime`` holds the pack's ``seconds`` and ``core_seconds`` per replica (earlier attempts included),
    ``resumed_epoch`` (0: from the start) and, where the system tells, ``peak_bytes``: the most memory that the process
    held meanwhile, or on a GPU its tensors.

    Raises ConfigError when the replicas do not belong together or to the table.  Memory that runs out is an error out
    of here as torch raises it; the state saved last then stands, and fewer replicas at a time can go on from it.
    """
    _check(replicas, table)
    target = torch.device(device)
    watch, memory = Stopwatch(), PeakMemory(target)
    # One pretraining serves all replicas that differ in probe seed only.
    models: dict[str, Replica] = {}
    for replica in replicas:
        models.setdefault(model_id(replica), replica)
    unique = list(models.values())
    stacks = stacks_of(unique, table, target)
    state = PackState(stacks, len(replicas), watch, checkpoint, checkpoint_seconds)
    resumed_epoch = state.resume()
    _pretrain(stacks, state, progress)
    _report(stacks, "probe", state, progress)
    records: dict[str, dict[str, Any]] = {}
    for stack in stacks:
        records |= _probe_stack(stack, replicas, table, _stack_size(len(unique), target))
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


def stacks_of(
    replicas: Sequence[Replica], table: EncodedRows, device: torch.device | str = "cpu"
) -> list[Pretraining]:
    """The pretrainings of a pack, cut into stacks of a size that suits ``device`` and as even as they can be.

    They share their random draws, so they must be run epoch by epoch.
    """
    target = torch.device(device)
    count = -(-len(replicas) // _stack_size(len(replicas), target))
    bounds = [round(i * len(replicas) / count) for i in range(count + 1)]
    graphs = graphs_for(target)
    draws = EpochDraws.of_pretraining(replicas, table, target, graphs)
    kind = PRETEXTS[replicas[0].hyperparameters.pretext]
    return [
        kind(replicas[a:b], table, target, draws=draws, graphs=graphs)
        for a, b in zip(bounds[:-1], bounds[1:], strict=True)
    ]


def _stack_size(replicas: int, device: torch.device) -> int:
    return STACK_ON_CPU if device.type == "cpu" else replicas


def _check(replicas: Sequence[Replica], table: EncodedTable) -> None:
    if not replicas:
        raise ConfigError("a pack must hold at least one replica, got none")
    keys = {stack_key(r) for r in replicas}
    if len(keys) > 1:
        raise ConfigError(
            "replicas of a pack must share pretext, data set, architecture, budget, protocol and split, "
            f"got {len(keys)} kinds"
        )
    first = replicas[0]
    if (first.fingerprint, first.seeds.split) != (table.fingerprint, table.split_seed):
        raise ConfigError(
            f"a pack needs its own table (fingerprint {first.fingerprint}, split seed {first.seeds.split}), "
            f"got fingerprint {table.fingerprint}, split seed {table.split_seed}"
        )


def _pretrain(stacks: Sequence[Pretraining], state: PackState, progress: Callable[[PackProgress], None] | None) -> None:
    """Run all stacks to their last epoch, epoch by epoch."""
    while stacks[0].epoch < stacks[0].epochs:
        for stack in stacks:
            stack.run_epoch()
        state.save_if_due()
        _report(stacks, "pretrain", state, progress)


def _report(
    stacks: Sequence[Pretraining],
    phase: Literal["pretrain", "probe"],
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


def _probe_stack(
    stack: Pretraining, replicas: Sequence[Replica], table: EncodedTable, size: int
) -> dict[str, dict[str, Any]]:
    """Records, by id, of the replicas whose pretraining this stack holds; at most ``size`` are probed together."""
    embeddings = stack.embed(table.inputs)
    for position, finite in enumerate(torch.isfinite(embeddings).flatten(1).all(1).tolist()):
        if not finite and stack.diverged_at[position] is None:
            stack.diverged_at[position] = stack.epochs - 1
    place = {model_id(model): position for position, model in enumerate(stack.replicas)}
    members = [(place[model_id(r)], r) for r in replicas if model_id(r) in place]
    alive = [(position, r) for position, r in members if stack.diverged_at[position] is None]
    scores: dict[str, ProbeScores] = {}
    for start in range(0, len(alive), size):
        positions, probed = zip(*alive[start : start + size], strict=True)
        rows = torch.tensor(positions, device=embeddings.device)
        found = probe(embeddings.index_select(0, rows), probed, table)
        scores |= {r.id: score for r, score in zip(probed, found, strict=True)}
    return {r.id: _record(r, stack, position, scores.get(r.id, ProbeScores([], {})), table) for position, r in members}


def _progress(stacks: Sequence[Pretraining], phase: Literal["pretrain", "probe"]) -> PackProgress:
    epoch = stacks[0].epoch - 1
    loss = torch.cat([s.history["loss"][:, epoch] for s in stacks])
    alive = torch.isfinite(loss)
    return PackProgress(
        phase=phase,
        epoch=epoch + 1,
        epochs=stacks[0].epochs,
        replicas=len(loss),
        diverged=sum(at is not None for s in stacks for at in s.diverged_at),
        loss=float(loss[alive].mean()) if bool(alive.any()) else float("nan"),
        mean_bins=float(torch.cat([s.history["mean_bins"][:, epoch] for s in stacks]).mean()),
    )


def _record(
    replica: Replica, stack: Pretraining, position: int, found: ProbeScores, table: EncodedTable
) -> dict[str, Any]:
    """The result record of one replica; every number in it is finite."""
    diverged = not found.probes
    history = stack.history
    scores: dict[str, dict[str, float]] = {}
    for part in ("val", "test"):
        parts: list[Any] = [p[part] for p in found.probes]
        scores[part] = {name: sum(p[name] for p in parts) / len(parts) for name in (parts[0] if parts else ())}
    at = stack.diverged_at[position]
    return {
        "schema": RECORD_SCHEMA,
        "id": replica.id,
        "identity": replica.identity(),
        "status": "diverged" if diverged else "finished",
        "diverged_at": (stack.epochs if at is None else at) if diverged else None,
        "scores": scores,
        "probes": found.probes,
        "test_bootstrap_se": found.bootstrap_se,
        "n_rows": {part: len(getattr(table, part)) for part in ("train", "val", "test")},
        "target_sd": table.target_sd,
        "bins": {
            "features": list(table.numerical_names) if stack.n_bins.shape[1] else [],
            "final": stack.n_bins[position].tolist(),
            "triggers": int(history["triggers"][position].sum()),
            "splits": int(history["splits"][position].sum()),
        },
        "curves": thinned_curves(history, position, stack.epochs if at is None else at),
        "unseen": {name: dict(counts) for name, counts in table.unseen.items()},
    }
