"""What is left to do, cut into packs: a pure function of the study, of what is finished, and of the machine.

A pack is trained together in one process.  The default is one pack per seed, which holds every point of that seed; with
fewer such packs than would keep all workers busy, each is cut into equal parts.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from adaptbin.config import Replica
from adaptbin.errors import ConfigError, ResourceError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.points import Study

STEP_OVERHEAD = 4
"""What one step of a pack costs besides its replicas, counted in replicas: it makes large packs worth while."""


@dataclass(frozen=True)
class Resources:
    """What one pack is given."""

    cpus: float = 1.0
    """Cores; also its number of torch threads, at least one."""
    gpus: float = 0.0
    """A share of one GPU below 1, or a whole number."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.cpus) and self.cpus > 0):
            raise ConfigError(f"cpus per pack must be a finite number > 0, got {self.cpus!r}")
        if not (math.isfinite(self.gpus) and (0 <= self.gpus < 1 or self.gpus == int(self.gpus) >= 1)):
            raise ConfigError(f"gpus per pack must be a share in [0, 1) or a whole number, got {self.gpus!r}")

    def fit(self, node: Node) -> int:
        """How many packs run at once on a machine."""
        at_once = int(node.cores / self.cpus + 1e-9)
        if 0 < self.gpus < 1:
            # A pack never spans two GPUs, so the shares of each GPU count by themselves.
            at_once = min(at_once, int(node.gpus) * int(1 / self.gpus + 1e-9))
        elif self.gpus >= 1:
            at_once = min(at_once, int(node.gpus / self.gpus))
        return at_once

    def __str__(self) -> str:
        cores = f"{self.cpus:g} core{'s' if self.cpus != 1 else ''}"
        return cores if not self.gpus else f"{cores} and {self.gpus:g} GPU{'s' if self.gpus > 1 else ''}"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine that trains packs."""

    cores: float
    gpus: float = 0.0
    memory: int | None = None
    """Bytes that packs may use; None where it is not known."""
    gpu_memory: int | None = None
    """Bytes of each GPU; None where it is not known."""
    name: str = ""

    def cut_to(self, resources: Resources) -> Node:
        """The same machine with cores and GPUs for one pack."""
        return replace(self, cores=resources.cpus, gpus=float(math.ceil(resources.gpus)))

    def __str__(self) -> str:
        return f"{self.cores:g} cores and {self.gpus:g} GPUs"


def require_fit(resources: Resources, nodes: Sequence[Node]) -> None:
    """Raise ResourceError unless a pack fits on one of the machines; the sum of them would not do."""
    if not any(resources.fit(node) for node in nodes):
        counts = Counter(map(str, nodes))
        there = ", ".join(f"{n} x {shape}" if n > 1 else shape for shape, n in counts.items()) or "no live machine"
        raise ResourceError(f"a pack must fit on one machine, got {resources} per pack; there: {there}")


@dataclass(frozen=True)
class Pack:
    """Replicas trained together.  They share data set, shapes, protocol and split."""

    replicas: tuple[Replica, ...]
    resumes: tuple[str, ...] = ()
    """Keys of packs that these replicas were cut from, whose states they can go on from; the best first."""

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this set of replicas; also the name of its checkpoint folder."""
        return hashlib.sha256(" ".join(replica.id for replica in self.replicas).encode()).hexdigest()[:16]

    @property
    def dataset(self) -> str:
        """Key of the data set."""
        return self.replicas[0].dataset

    @property
    def split_seed(self) -> int:
        """Seed of the split all replicas see."""
        return self.replicas[0].seeds.split

    @property
    def table_key(self) -> tuple[str, int]:
        """Which encoded table the pack trains on."""
        return self.dataset, self.split_seed

    def halves(self) -> list[Pack]:
        """Two packs of about half the size, cut between replicas that share a pretraining only if there is no other."""
        first, *rest = chunk(_atoms(self.replicas), 2)
        if not rest:
            middle = len(self.replicas) // 2
            first, rest = list(self.replicas[:middle]), [list(self.replicas[middle:])]
        return [Pack(tuple(part)) for part in (first, *rest) if part]


@dataclass(frozen=True)
class Plan:
    """Done, to do, and in which packs."""

    study: Study
    done: tuple[Replica, ...]
    to_do: tuple[Replica, ...]
    failed: tuple[Replica, ...]
    """Failed before and not to be tried again."""
    packs: tuple[Pack, ...]
    resources: Resources
    workers: int
    """Packs that run at once."""


def make_plan(
    study: Study,
    finished: Collection[str],
    *,
    failed: Collection[str] = (),
    resources: Resources | None = None,
    workers: int = 1,
    pack_size: int | None = None,
    begun: Mapping[str, Collection[str]] | None = None,
) -> Plan:
    """Plan the replicas of ``study`` whose ids are not in ``finished``.

    Args:
        study: What is asked for.
        finished: Ids of replicas that have a result.
        failed: Ids of replicas that failed before and are left out.
        resources: What each pack is given.
        workers: How many packs can run at once.
        pack_size: Most replicas per pack; ``None`` packs by seed and keeps all workers busy.
        begun: Key -> ids of packs that were cut short and left a checkpoint, the newest first.  What is missing of them
            stays together, so that it resumes.

    Raises:
        ConfigError: ``pack_size`` below 1.
    """
    if pack_size is not None and pack_size < 1:
        raise ConfigError(f"pack must be a whole number >= 1, got {pack_size}")
    finished, failed = frozenset(finished), frozenset(failed)
    replicas = study.all_replicas
    missing = {replica.id: replica for replica in replicas if replica.id not in finished}
    to_do = {name: replica for name, replica in missing.items() if name not in failed}
    packs = []
    left = dict(to_do)
    for key, ids in (begun or {}).items():
        if part := tuple(left.pop(replica_id) for replica_id in ids if replica_id in left):
            pack = Pack(part)
            packs.append(pack if pack.key == key else replace(pack, resumes=(key,)))
    packs += [Pack(tuple(cut)) for cut in _parts(list(left.values()), workers, pack_size)]
    return Plan(
        study=study,
        done=tuple(replica for replica in replicas if replica.id in finished),
        to_do=tuple(to_do.values()),
        failed=tuple(replica for name, replica in missing.items() if name in failed),
        packs=tuple(packs),
        resources=Resources() if resources is None else resources,
        workers=workers,
    )


def _parts(replicas: Sequence[Replica], workers: int, pack_size: int | None) -> list[list[Replica]]:
    groups = group_replicas(replicas)
    if pack_size is not None:
        return [part for group in groups for part in _at_most(_atoms(group), pack_size)]
    buckets = [bucket for group in groups for bucket in _by_pretraining_seed(group)]
    parts = _best_cut(buckets, workers)
    return [part for bucket in buckets for part in chunk(_atoms(bucket), parts)]


def _by_pretraining_seed(replicas: Iterable[Replica]) -> list[list[Replica]]:
    buckets: dict[int, list[Replica]] = {}
    for replica in replicas:
        buckets.setdefault(replica.seeds.pretrain, []).append(replica)
    return list(buckets.values())


def _atoms(replicas: Iterable[Replica]) -> list[list[Replica]]:
    """Replicas by the pretraining they share; training two of one atom in two packs would pretrain twice."""
    atoms: dict[tuple[object, int], list[Replica]] = {}
    for replica in replicas:
        atoms.setdefault((replica.hyperparameters, replica.seeds.pretrain), []).append(replica)
    return list(atoms.values())


def _best_cut(buckets: Sequence[Sequence[Replica]], workers: int) -> int:
    """Into how many parts to cut each bucket so that the last worker is done first; ties go to fewer, larger packs."""
    sizes = [len(_atoms(bucket)) for bucket in buckets]

    def duration(parts: int) -> float:
        costs = [size / parts + STEP_OVERHEAD for size in sizes for _ in range(min(parts, size))]
        busy = [0.0] * min(max(workers, 1), len(costs))
        for cost in costs:  # each pack goes to the first free worker, as in the run
            busy[busy.index(min(busy))] += cost
        return max(busy)

    # More parts than workers only adds overhead once every bucket alone feeds all of them.
    return min(range(1, min(max(sizes, default=1), 2 * max(workers, 1)) + 1), key=duration) if sizes else 1


def chunk(atoms: Sequence[Sequence[Replica]], parts: int) -> list[list[Replica]]:
    """Cut atoms into at most ``parts`` runs whose numbers of atoms differ by one at most."""
    parts = max(1, min(parts, len(atoms)))
    bounds = [round(part * len(atoms) / parts) for part in range(parts + 1)]
    return [[r for atom in atoms[low:high] for r in atom] for low, high in zip(bounds, bounds[1:], strict=False)]


def _at_most(atoms: Sequence[Sequence[Replica]], size: int) -> list[list[Replica]]:
    """Near-equal packs of up to ``size`` replicas; those that share a pretraining stay together even where more."""
    parts = math.ceil(sum(map(len, atoms)) / size)
    longest = max(map(len, atoms))
    while any(len(pack) > max(size, longest) for pack in chunk(atoms, parts)):
        parts += 1
    return chunk(atoms, parts)
