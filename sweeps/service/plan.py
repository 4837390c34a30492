"""What is left to do, cut into packs: a pure function of the study, of what is finished, and of the machine.

A pack is trained together in one process.  The default is one pack per seed and kind of work, which holds every point
of these; with fewer such packs than would keep all workers busy, each is cut into equal parts, and where they are many
and small, those of some seeds are joined.  No pack is larger than the memory that it is given.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from adaptbin.config import Replica
from adaptbin.errors import ConfigError, ResourceError
from adaptbin.replicas.grouping import group_replicas
from sweeps.service.cutting import Cutter, atoms_of, chunk, models_of, points_of
from sweeps.service.kinds import Work, work_of
from sweeps.service.memory import Need, largest_pack, memory_of_a_pack
from sweeps.service.nodes import Node
from sweeps.service.points import Study


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
        """How many packs run at once on a machine with the cores and GPUs of ``node``."""
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


def require_fit(resources: Resources, nodes: Sequence[Node]) -> None:
    """Raise ResourceError unless a pack fits on one of the machines; the sum of them would not do."""
    if not any(resources.fit(node) for node in nodes):
        counts = Counter(map(str, nodes))
        there = ", ".join(f"{n} x {shape}" if n > 1 else shape for shape, n in counts.items()) or "no live machine"
        raise ResourceError(f"a pack must fit on one machine, got {resources} per pack; there: {there}")


@dataclass(frozen=True, kw_only=True)
class Halving:
    """Successive halving inside a pack: at each rung but the last the best of its points go on, the others leave.

    Raises ConfigError unless the rungs are whole numbers of epochs that go up, and ``keep`` is between 0 and 1.
    """

    rungs: tuple[int, ...]
    """Epochs of each rung, the last one those of the replicas."""
    keep: float = 1 / 3
    """Share of the points that go on."""

    def __post_init__(self) -> None:
        if len(self.rungs) < 2 or self.rungs[0] < 1 or any(a >= b for a, b in pairwise(self.rungs)):
            raise ConfigError(f"rungs must be two whole numbers or more, each above the last, got {list(self.rungs)}")
        if not 0 < self.keep < 1:
            raise ConfigError(f"the share to keep must be between 0 and 1, got {self.keep!r}")

    def whole(self, points: int) -> int:
        """How many of ``points`` of a pack are trained to the end."""
        for _ in self.rungs[:-1]:
            points = math.ceil(self.keep * points)
        return points


@dataclass(frozen=True)
class Pack:
    """Replicas trained together.  They share data set, shapes, protocol and split."""

    replicas: tuple[Replica, ...]
    resumes: tuple[str, ...] = ()
    """Keys of packs that these replicas were cut from, whose states they can go on from; the best first."""
    halving: Halving | None = None
    """How the worse replicas leave before the end; None: all are trained to it."""

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this set of replicas and its halving; also the name of its checkpoint folder."""
        words = [replica.id for replica in self.replicas]
        if self.halving is not None:
            words.append(str(self.halving))
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]

    @property
    def dataset(self) -> str:
        """Key of the data set."""
        return self.replicas[0].dataset

    @property
    def split_seed(self) -> int:
        """Seed of the split all replicas see."""
        return self.replicas[0].seeds.split

    @property
    def work(self) -> Work:
        """What kind of work its replicas are."""
        return work_of(self.replicas[0])

    @property
    def table_key(self) -> tuple[str, int]:
        """Which encoded table the pack trains on."""
        return self.dataset, self.split_seed

    def halves(self) -> list[Pack]:
        """Two packs of about half the size, cut between replicas that share a pretraining only if there is no other.

        Under halving points stay whole, since their mean over seeds ranks them; a point alone is ranked with nobody.
        """
        points = points_of(self.replicas) if self.halving is not None else []
        first, *rest = chunk(points if len(points) > 1 else atoms_of(self.replicas), 2)
        if not rest:
            middle = len(self.replicas) // 2
            first, rest = list(self.replicas[:middle]), [list(self.replicas[middle:])]
        return [Pack(tuple(part), halving=self.halving) for part in (first, *rest) if part]


@dataclass(frozen=True)
class Plan:
    """Done, to do, and in which packs."""

    study: Study
    done: tuple[Replica, ...]
    to_do: tuple[Replica, ...]
    packs: tuple[Pack, ...]
    resources: Resources
    workers: int
    """Packs that run at once."""
    resumed: int = 0
    """How many of the packs, the first ones, go on from a checkpoint."""
    failed: tuple[Replica, ...] = ()
    """Replicas that failed before and are left out."""
    memory: int = 0
    """Bytes that the largest pack needs; 0 where nobody asked."""
    memory_limit: int | None = None
    """Bytes that each pack is given; None where nobody knows."""
    cut_to: int | None = None
    """Most replicas of a pack that memory allows, where more were asked for."""


def make_plan(
    study: Study,
    finished: Collection[str],
    *,
    resources: Resources | None = None,
    workers: int = 1,
    pack_size: int | None = None,
    begun: Mapping[str, Collection[str]] | None = None,
    failed: Collection[str] = (),
    retry_failed: bool = False,
    nodes: Sequence[Node] = (),
    needs: Mapping[Work, Need] | None = None,
    whole_points: bool = False,
) -> Plan:
    """Plan the replicas of ``study`` whose ids are not in ``finished``.

    Args:
        study: What is asked for.
        finished: Ids of replicas that have a result.
        resources: What each pack is given.
        workers: How many packs can run at once.
        pack_size: Most replicas per pack; ``None`` packs by seed and keeps all workers busy.
        begun: Checkpoint folder -> ids of a pack that was cut short, newest first.  What is missing of it stays
            together, so that it resumes; a replica in several folders goes on from the first.
        failed: Ids of replicas that failed before; they are left out.
        retry_failed: Plan them all the same.
        nodes: What the machines have; without any, memory sets no limit.
        needs: Memory that packs of each kind of work take; without one, likewise.
        whole_points: No point's seeds are parted, as halving needs it.

    Raises:
        ConfigError: ``pack_size`` below 1.
        ResourceError: Not even a pack of one replica, or of one whole point, fits into the memory that each pack is
            given.
    """
    if pack_size is not None and pack_size < 1:
        raise ConfigError(f"pack must be a whole number >= 1, got {pack_size}")
    resources = Resources() if resources is None else resources
    finished, needs = frozenset(finished), needs or {}
    given_up = frozenset() if retry_failed else frozenset(failed) - finished
    replicas = study.all_replicas
    to_do = {r.id: r for r in replicas if r.id not in finished and r.id not in given_up}
    limit = _memory_limit(resources, nodes, workers)
    most = {
        work: largest_pack(work.name, needs[work], limit, on_gpu=resources.gpus > 0)
        for work in dict.fromkeys(map(work_of, to_do.values()))
        if limit is not None and work in needs
    }
    cutter = Cutter(pack_size, most, whole_points=whole_points)
    packs = []
    left = dict(to_do)
    for folder, ids in (begun or {}).items():
        unfinished = [left.pop(replica_id) for replica_id in ids if replica_id in left]
        for group in group_replicas(unfinished):
            packs += [_resuming(tuple(part), folder) for part in cutter.cut(group)]
    resumed = len(packs)
    packs += [Pack(tuple(part)) for part in cutter.parts(list(left.values()), workers)]
    return Plan(
        study=study,
        done=tuple(r for r in replicas if r.id in finished),
        to_do=tuple(to_do.values()),
        packs=tuple(packs),
        resources=resources,
        workers=workers,
        resumed=resumed,
        failed=tuple(r for r in replicas if r.id in given_up),
        memory=max(
            (needs[pack.work].of(len(models_of(pack.replicas))) for pack in packs if pack.work in needs), default=0
        ),
        memory_limit=limit,
        cut_to=cutter.cut_to,
    )


def _resuming(replicas: tuple[Replica, ...], key: str) -> Pack:
    pack = Pack(replicas)
    return pack if pack.key == key else replace(pack, resumes=(key,))


def _memory_limit(resources: Resources, nodes: Sequence[Node], workers: int) -> int | None:
    """Bytes for each pack on the node that gives the least: nobody knows which pack will run where."""
    limits = [
        limit
        for node in nodes
        if (at_once := min(resources.fit(node), workers)) > 0
        and (limit := memory_of_a_pack(node, resources.gpus, at_once)) is not None
    ]
    return min(limits, default=None)
