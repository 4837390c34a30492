"""Which replicas can be stacked: those whose tensors have one shape and that see one table and one split."""

from __future__ import annotations

from collections.abc import Iterable

from adaptbin.config import Replica


def stack_key(replica: Replica) -> tuple[object, ...]:
    """What the replicas of one pack must have in common; everything else may differ inside it."""
    return (
        replica.dataset,
        replica.fingerprint,
        replica.architecture,
        replica.budget,
        replica.protocol,
        replica.seeds.split,
        replica.seeds_vary,
    )


def group_replicas(replicas: Iterable[Replica]) -> list[list[Replica]]:
    """Replicas by :func:`stack_key`, groups and members in order of first appearance."""
    groups: dict[tuple[object, ...], list[Replica]] = {}
    for replica in replicas:
        groups.setdefault(stack_key(replica), []).append(replica)
    return list(groups.values())
