"""Result records: what a trained replica has to show, as plain JSON; every number in them is finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from adaptbin.config import RECORD_SCHEMA, Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.training.curves import thinned_curves
from adaptbin.training.finetune import Pretrained
from adaptbin.training.peak import PeakMemory
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.probe import probe
from adaptbin.training.readout import Scores
from adaptbin.training.resume import kernels


def probe_records(
    stacks: Sequence[Pretraining], replicas: Mapping[str, Sequence[Replica]], table: EncodedTable, size: int
) -> dict[str, dict[str, Any]]:
    """Probe what the stacks have learned so far; -> a record of each replica, by id.

    replicas: name of a model in the stacks -> those whose pretraining it is, which have as many epochs as the stacks
    have trained.  At most ``size`` replicas are probed together.
    """
    records: dict[str, dict[str, Any]] = {}
    for stack in stacks:
        embeddings = stack.embed(table.inputs)
        for position, finite in enumerate(torch.isfinite(embeddings).flatten(1).all(1).tolist()):
            if not finite and stack.diverged_at[position] is None:
                stack.diverged_at[position] = stack.epoch - 1
        members = [(position, r) for position, name in enumerate(stack.names) for r in replicas[name]]
        alive = [(position, r) for position, r in members if stack.diverged_at[position] is None]
        scores: dict[str, Scores] = {}
        for start in range(0, len(alive), size):
            positions, probed = zip(*alive[start : start + size], strict=True)
            rows = torch.tensor(positions, device=embeddings.device)
            found = probe(embeddings.index_select(0, rows), probed, table)
            scores |= {r.id: score for r, score in zip(probed, found, strict=True)}
        records |= {r.id: record_of(r, (stack, position), scores.get(r.id), table) for position, r in members}
    return records


def record_of(
    replica: Replica, pretrained: Pretrained | None, found: Scores | None, table: EncodedTable
) -> dict[str, Any]:
    """The record of one replica.

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
        end = replica.budget.epochs if at is None else at
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


def runtime_of(device: torch.device, replicas: int, resumed_epoch: int, memory: PeakMemory) -> dict[str, Any]:
    """What a record says of the pack that it comes from, besides its share of the time."""
    peak_bytes = memory.bytes()
    return {
        "device": str(device),
        "kernels": kernels(device),
        "threads": torch.get_num_threads(),
        "pack_size": replicas,
        "resumed_epoch": resumed_epoch,
        **({} if peak_bytes is None else {"peak_bytes": peak_bytes}),
    }
