"""How replicas are cut into packs: of one kind, no larger than asked for and than memory allows, for all workers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from adaptbin.config import Replica
from adaptbin.errors import ResourceError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.kinds import Work, pretraining_of, work_of
from sweeps.service.memory import STACK
from sweeps.service.points import Point, point_of

STEP_OVERHEAD = 4
"""What one step of a pack costs besides its replicas, counted in replicas: it makes large packs worth while."""


class Cutter:
    """Cuts replicas into packs that are no larger than asked for, and than memory allows.

    whole_points: All seeds of a point stay in one pack, for it is ranked there by their mean.
    """

    def __init__(self, size: int | None, most: Mapping[Work, int], *, whole_points: bool = False) -> None:
        self._size = size
        self._most = most
        self._whole_points = whole_points
        self.cut_to: int | None = None
        """Smallest number of replicas that memory has cut packs to; None where it has cut none."""

    def parts(self, replicas: Sequence[Replica], workers: int) -> list[list[Replica]]:
        """Packs of replicas of any kind that keep all workers busy."""
        groups = group_replicas(replicas)
        if self._size is not None:
            return [part for group in groups for part in self.cut(group)]
        buckets, parts = _best_cut(groups, workers)
        return [small for bucket in buckets for part in chunk(self._atoms(bucket), parts) for small in self.cut(part)]

    def cut(self, replicas: Sequence[Replica]) -> list[list[Replica]]:
        """Near-equal packs of replicas that can be stacked.

        Raises ResourceError where not even the seeds of one point, which must stay together, fit in memory.
        """
        models = models_of(replicas)
        packs = [list(replicas)] if self._size is None else _at_most(self._atoms(replicas), self._size)
        if self._size is not None and replicas[0].finetuning is not None and max(map(len, packs)) > self._size:
            packs = _at_most(models, self._size)  # each is trained for itself, so the pretraining they share is not all
        most = self._most.get(work_of(replicas[0]), len(models))
        if all(len(models_of(pack)) <= most for pack in packs):
            return packs
        self.cut_to = most if self.cut_to is None else min(self.cut_to, most)
        parts = max(len(packs), math.ceil(len(models) / most))
        if not self._whole_points:
            return chunk(models, parts)
        points = self._atoms(replicas)
        if (seeds := max(len(models_of(point)) for point in points)) > most:
            raise ResourceError(
                "under halving all seeds of a point must fit in one pack, for it is ranked by their mean: memory "
                f"allows packs of {most} of this shape, got {seeds} seeds; fewer --seeds or a smaller --fix width help"
            )
        while any(len(models_of(pack)) > most for pack in chunk(points, parts)):
            parts += 1
        return chunk(points, parts)

    def _atoms(self, replicas: Iterable[Replica]) -> list[list[Replica]]:
        return points_of(replicas) if self._whole_points else atoms_of(replicas)


def _by_pretraining_seed(replicas: Iterable[Replica], together: int = 1) -> list[list[Replica]]:
    """One bucket per seed, or for several seeds that have no more than ``together`` models."""
    seeds: dict[int, list[Replica]] = {}
    for replica in replicas:
        seeds.setdefault(replica.seeds.pretrain, []).append(replica)
    buckets: list[list[Replica]] = []
    for of_seed in seeds.values():
        if buckets and len(atoms_of([*buckets[-1], *of_seed])) <= together:
            buckets[-1] += of_seed
        else:
            buckets.append(of_seed)
    return buckets


def atoms_of(replicas: Iterable[Replica]) -> list[list[Replica]]:
    """Replicas by the pretraining they share; training two of one atom in two packs would pretrain twice."""
    atoms: dict[tuple[object, int], list[Replica]] = {}
    for replica in replicas:
        atoms.setdefault(pretraining_of(replica), []).append(replica)
    return list(atoms.values())


def points_of(replicas: Iterable[Replica]) -> list[list[Replica]]:
    """Replicas by their point: all its seeds."""
    points: dict[Point, list[Replica]] = {}
    for replica in replicas:
        points.setdefault(point_of(replica), []).append(replica)
    return list(points.values())


def models_of(replicas: Sequence[Replica]) -> list[list[Replica]]:
    """Replicas by the model that takes memory: those of one pretraining share it, but each is fine-tuned by itself."""
    atoms = atoms_of(replicas)
    return atoms if replicas[0].finetuning is None else [[replica] for atom in atoms for replica in atom]


def _best_cut(groups: Sequence[Sequence[Replica]], workers: int) -> tuple[list[list[Replica]], int]:
    """Buckets of replicas, and into how many parts to cut each, so that the last worker is done first.

    Ties go to fewer parts, and to a bucket per seed.
    """

    def duration(sizes: Sequence[int], parts: int) -> float:
        costs = [size / parts + STEP_OVERHEAD for size in sizes for _ in range(min(parts, size))]
        busy = [0.0] * min(max(workers, 1), len(costs))
        for cost in costs:  # each pack goes to the first free worker, as in the run
            heapq.heapreplace(busy, busy[0] + cost)
        return max(busy)

    found: list[tuple[float, list[list[Replica]], int]] = []
    for together in range(1, STACK + 1):  # no more models than are computed together anyhow
        buckets = [bucket for group in groups for bucket in _by_pretraining_seed(group, together)]
        sizes = [len(atoms_of(bucket)) for bucket in buckets]
        # More parts than workers only adds overhead once every bucket alone feeds all of them.
        for parts in range(1, min(max(sizes, default=1), 2 * max(workers, 1)) + 1):
            found.append((duration(sizes, parts) if sizes else 0.0, buckets, parts))
        if together == 1 and min(sizes, default=STACK) > STACK // 2:
            break  # no two can be joined
    _, buckets, parts = min(found, key=lambda option: option[0])
    return buckets, parts


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
