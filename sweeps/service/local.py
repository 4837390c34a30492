"""Training in this process, one pack after the other; and what this machine can hold."""

from __future__ import annotations

from typing import Any

from adaptbin.errors import ResourceError
from sweeps.service.interrupt import Interrupted, noting_signals
from sweeps.service.manifest import available_cores, git_state
from sweeps.service.nodes import Node
from sweeps.service.plan import Pack, Resources
from sweeps.service.work import Job, Listener, Train, describe, forget, threads, train_one


class InProcessRunner:
    """One pack after the other in this process."""

    def __init__(self, train: Train | None = None) -> None:
        self._train = train

    def at_once(self, resources: Resources) -> int:
        """One, where this machine has the resources."""
        local_fit(resources)
        return 1

    def run(self, job: Job, listener: Listener) -> int | None:
        """See :class:`Runner`.  A signal ends the pack in progress at its next progress report."""
        git = git_state()
        with noting_signals() as interruption:
            for pack in job.packs:

                def progress(state: Any, pack: Pack = pack) -> None:
                    interruption.check()
                    listener.progress(pack, state)

                try:
                    interruption.check()
                    records = train_one(
                        pack,
                        job.tables[pack.table_key],
                        device=job.device,
                        threads=threads(job.resources),
                        checkpoints=job.checkpoints,
                        git=git,
                        progress=progress,
                        train=self._train,
                    )
                except Interrupted:
                    return interruption.signum
                except Exception as error:  # noqa: BLE001  one pack's failure is not the others'
                    listener.failed(pack, describe(error))
                else:
                    listener.finished(pack, records)
                    forget(job.checkpoints, pack.key)
        return interruption.signum


def local_fit(resources: Resources) -> int:
    """Packs that run at once on this machine.  Raises ResourceError when not even one does."""
    cores = available_cores()
    gpus = local_gpus() if resources.gpus else 0
    if resources.gpus > gpus:
        raise ResourceError(f"GPUs asked for must be on this machine, got {resources} per pack and {gpus} GPUs here")
    at_once = resources.fit(Node(cores, gpus))
    if at_once < 1:
        raise ResourceError(f"a pack must fit on this machine, got {resources} per pack and {cores} cores here")
    return at_once


def local_gpus() -> int:
    """GPUs of this machine."""
    import torch

    return torch.cuda.device_count()
