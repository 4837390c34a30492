"""Packs as trials of Ray Tune: from a job to calls of a listener."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.service.calls import CallThread
from sweeps.service.checkpoints import CheckpointPlace, FolderPlace, StoragePlace
from sweeps.service.dispatch import PackQueue
from sweeps.service.guard import guarded
from sweeps.service.interrupt import Interrupted, Interruption, Terminated, noting_signals
from sweeps.service.launch.cluster import import_ray, join, leave, live_nodes, require_shared, start
from sweeps.service.launch.fit import Fit
from sweeps.service.launch.keeper import KeeperPlace, start_keeper
from sweeps.service.manifest import git_state
from sweeps.service.nodes import Node, local_nodes
from sweeps.service.plan import Pack, Resources, require_fit
from sweeps.service.timing import Timing, time_pack
from sweeps.service.watchdog import make_folder, watched
from sweeps.service.work import PROGRESS_SECONDS, Job, Listener, Train, threads

if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable

REPORT_SECONDS = 0.02
"""What a report may take of the driver: packs of large clusters report less often, so that it keeps up."""

TIMING_SECONDS = 20.0
"""Longest wait for a worker of a cluster to begin timing steps."""


class RayRunner:
    """Trains on this machine, or on the cluster at ``address``."""

    def __init__(self, address: str | None = None, *, train: Train | None = None) -> None:
        self._address = address
        self._train = train

    def nodes(self, resources: Resources) -> list[Node]:
        """See :class:`sweeps.service.work.Runner`.  Without an address Ray is not started."""
        if self._address is None:
            nodes = local_nodes(with_gpus=resources.gpus > 0)
        else:
            ray = import_ray(local=False)
            join(ray, self._address)
            nodes = live_nodes(ray, resources)
        require_fit(resources, nodes)
        return nodes

    def timed(
        self, pack: Pack, table: EncodedTable, resources: Resources, *, device: str, seconds: float
    ) -> Timing | None:
        """See :class:`sweeps.service.work.Runner`.  On a cluster that is busy nothing can be told."""
        if self._address is None:
            return time_pack(pack.replicas, table, device=device, threads=threads(resources.cpus), seconds=seconds)
        ray = import_ray(local=False)
        join(ray, self._address)
        task = ray.remote(time_pack).options(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)
        asked = task.remote(pack.replicas, table, device=device, threads=threads(resources.cpus), seconds=seconds)
        try:
            found: Timing = ray.get(asked, timeout=TIMING_SECONDS + 10 * seconds)
        except ray.exceptions.RayError:
            ray.cancel(asked, force=True)
            return None
        return found

    def run(self, job: Job, listener: Listener) -> int | None:
        """See :class:`sweeps.service.work.Runner`."""
        ray = import_ray(local=self._address is None)
        temporary = make_folder()
        with noting_signals() as interruption, watched(temporary):
            if self._address is None:
                with guarded(interruption) as guard:
                    try:
                        with _terminated_as_ever():
                            start(ray, job, temporary)
                        stopped = self._train_all(ray, job, listener, interruption, temporary)
                    finally:
                        guard.rest()
                        leave(ray)
            else:
                try:
                    with _terminated_as_ever():
                        join(ray, self._address)
                    stopped = self._train_all(ray, job, listener, interruption, temporary)
                finally:
                    leave(ray)
        return interruption.signum if stopped else None

    def _train_all(self, ray: Any, job: Job, listener: Listener, interruption: Interruption, temporary: Path) -> bool:
        """Whether the run was interrupted."""
        interruption.arm()  # ray.init installs a handler of its own for SIGTERM
        at_once = min(len(job.packs), ray.cluster_resources().get("CPU", 1.0) / job.resources.cpus)
        shared = {
            "tables": {key: ray.put(table) for key, table in job.tables.items()},
            "settings": {
                "device": job.device,
                "checkpoints": self._place_for_workers(ray, job.checkpoints),
                "git": git_state(),
                "progress_seconds": max(PROGRESS_SECONDS, at_once * REPORT_SECONDS),
                "train": self._train,
            },
        }

        try:
            with CallThread() as calls:
                queue = PackQueue(job.packs, listener, calls, job.forget, job.more)
                fit = Fit(queue, calls, job.steering, interruption)
                while not queue.is_over:
                    fit.run(shared, job.resources, Path(tempfile.mkdtemp(prefix="tune-", dir=temporary)))
        except Interrupted:
            return True
        return False  # a signal that comes later stops nothing that is left to do

    def _place_for_workers(self, ray: Any, place: CheckpointPlace | None) -> Any:
        """On one machine, and where storage is shared, the place itself; else states travel to the driver's folder."""
        if isinstance(place, StoragePlace) and self._address is not None:
            require_shared(ray, place)
        if isinstance(place, FolderPlace) and self._address is not None:
            return KeeperPlace(start_keeper(ray, place.folder))
        return place


@contextmanager
def _terminated_as_ever() -> Iterator[None]:
    """Until ours is back, Ray's own handler of SIGTERM ends the process with the signal's number as its exit code."""
    try:
        yield
    except SystemExit as error:
        if error.code == signal.SIGTERM:
            raise Terminated from error
        raise
