"""Training in this process, one pack after the other."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sweeps.service.calls import CallThread
from sweeps.service.dispatch import PackQueue, pack_records
from sweeps.service.interrupt import Interrupted, Interruption, noting_signals
from sweeps.service.manifest import git_state
from sweeps.service.nodes import Node, local_nodes
from sweeps.service.plan import Pack, Resources, require_fit
from sweeps.service.timing import Timing, time_pack
from sweeps.service.work import Failure, Job, Listener, Train, is_out_of_memory, threads, train_one

if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable


WAIT_SECONDS = 0.02
"""Between two looks for packs to come."""


class InProcessRunner:
    """One pack after the other in this process."""

    def __init__(self, train: Train | None = None) -> None:
        self._train = train

    def nodes(self, resources: Resources) -> list[Node]:
        """This machine, with room for one pack."""
        (here,) = nodes = local_nodes(with_gpus=resources.gpus > 0)
        require_fit(resources, nodes)
        return [replace(here, cores=resources.cpus, gpus=math.ceil(resources.gpus))]

    def timed(
        self, pack: Pack, table: EncodedTable, resources: Resources, *, device: str, seconds: float
    ) -> Timing | None:
        """See :class:`sweeps.service.work.Runner`."""
        return time_pack(pack.replicas, table, device=device, threads=threads(resources.cpus), seconds=seconds)

    def run(self, job: Job, listener: Listener) -> int | None:
        """See :class:`sweeps.service.work.Runner`.  A signal ends the pack in progress at its next progress report."""
        with noting_signals() as interruption:
            try:
                with CallThread() as calls:
                    self._train_all(job, listener, calls, interruption)
            except Interrupted:
                pass
            return interruption.signum

    def _train_all(self, job: Job, listener: Listener, calls: CallThread, interruption: Interruption) -> None:
        git = git_state()
        queue = PackQueue(job.packs, listener, calls, job.forget, job.more)
        name = "here"

        def progress(state: Any) -> None:
            interruption.check()
            calls.check()
            _steer(job, queue)
            queue.report(name, {"event": "progress", "progress": state})
            if queue.stops(name):
                raise _Stopped

        while not queue.is_over:
            interruption.check()
            calls.check()
            pack = queue.take(name)
            if pack is None:
                time.sleep(WAIT_SECONDS)
                _steer(job, queue)
                continue
            queue.report(name, {"event": "began", "cpus": job.resources.cpus, "gpus": job.resources.gpus})
            try:
                records = train_one(
                    pack,
                    job.tables[pack.table_key],
                    device=job.device,
                    threads=threads(job.resources.cpus),
                    checkpoint=job.checkpoints.of(pack) if job.checkpoints else None,
                    git=git,
                    progress=progress,
                    train=self._train,
                )
            except Interrupted:
                raise
            except _Stopped:
                queue.stopped(name)
            except Exception as error:  # noqa: BLE001  one pack's failure is not the others'
                event = "memory" if is_out_of_memory(error) else "failed"
                queue.report(name, {"event": event, "failure": Failure.of(error).to_dict()})
            else:
                queue.report(name, {"event": "finished", "records": pack_records(records)})
            _steer(job, queue)


class _Stopped(Exception):
    """Raised in a pack that holds withdrawn replicas."""


def _steer(job: Job, queue: PackQueue) -> None:
    for change in job.steering.changes() if job.steering else ():
        queue.add(change.added)
        queue.withdraw(change.withdrawn)
