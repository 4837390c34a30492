"""Successive halving inside a pack: replicas are ranked at rungs, and the worse points leave.

A replica that leaves at a rung is recorded exactly as one with that many epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.data.registry import get_card
from adaptbin.metrics import get_metric, primary_metric
from adaptbin.training.checkpoint import Checkpoint
from adaptbin.training.pack import PackProgress, train_pack


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
) -> list[dict[str, Any]]:
    """Train a pack; at each rung but the last the best ``keep`` of its points go on.  -> records of all rungs.

    This is the plain form, which trains the survivors of a rung anew from their first epoch.
    """
    metric = get_metric(primary_metric(get_card(replicas[0].dataset).primary_metric, replicas[0].protocol))
    records: list[dict[str, Any]] = []
    left = list(replicas)
    for epochs in rungs:
        at_rung = [replace(replica, budget=replace(replica.budget, epochs=epochs)) for replica in left]
        found = train_pack(at_rung, table, device=device, progress=progress)
        records += found
        scores: dict[Any, list[float]] = {}
        for replica, record in zip(left, found, strict=True):
            score = record["scores"]["val"].get(metric.name)
            scores.setdefault((replica.hyperparameters, replica.architecture), []).append(
                float("-inf") if score is None else metric.sign * score
            )
        ranked = sorted(scores, key=lambda point: -sum(scores[point]) / len(scores[point]))
        kept = set(ranked[: max(1, round(keep * len(ranked)))])
        left = [replica for replica in left if (replica.hyperparameters, replica.architecture) in kept]
    return records
