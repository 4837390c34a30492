"""Which replicas can be stacked: those whose tensors have one shape and that see one table and one split; and which are
one model: those that differ in their probes only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from adaptbin.config import Replica


def stack_key(replica: Replica) -> tuple[object, ...]:
    """What the replicas of one pack must have in common; everything else may differ inside it."""
    return (
        replica.dataset,
        replica.fingerprint,
        replica.architecture,
        replica.budget,
        replica.finetuning,
        replica.protocol,
        replica.seeds.split,
        replica.seeds_vary,
        replica.hyperparameters.pretext,
    )


def group_replicas(replicas: Iterable[Replica]) -> list[list[Replica]]:
    """Replicas by :func:`stack_key`, groups and members in order of first appearance."""
    groups: dict[tuple[object, ...], list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(stack_key(replica), []).append(replica)
    return list(groups.values())


def model_id(replica: Replica) -> str:
    """24 hex digits that name the pretraining of a replica; replicas that differ in their probes only share it."""
    identity = replica.identity()
    decides = ("method_version", "dataset", "fingerprint", "architecture", "hyperparameters", "protocol")
    parts = {name: identity[name] for name in decides}
    parts |= {"epochs": replica.budget.epochs, "pretrain": replica.seeds.pretrain, "split": replica.seeds.split}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def by_model(replicas: Iterable[Replica]) -> dict[str, list[Replica]]:
    """Replicas by :func:`model_id`: one pretraining serves all that differ in the seed of their evaluation only."""
    models: dict[str, list[Replica]] = {}
    for replica in replicas:
        models.setdefault(model_id(replica), []).append(replica)
    return models
