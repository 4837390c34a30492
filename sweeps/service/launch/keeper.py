"""Checkpoints on a cluster whose machines share no storage: workers send them to the driver's machine, where they stay.

So a pack can go on anywhere when its machine dies.  States travel through Ray's object store as bytes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from sweeps.service.checkpoints import MEMBERS, STATE, SentCheckpoint, members_of
from sweeps.service.files import write_atomically, write_text
from sweeps.service.plan import Pack

if TYPE_CHECKING:
    from adaptbin.training.checkpoint import Checkpoint

SEND_SECONDS = 600.0
"""A state that takes longer to travel counts as lost; training goes on without it."""


class Keeper:
    """An actor on the driver's machine that reads and writes the driver's folder of checkpoints."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def begin(self, key: str, members: str) -> None:
        """Note which replicas a pack has."""
        write_text(self._folder / key / MEMBERS, members)

    def get(self, name: str) -> npt.NDArray[np.uint8] | None:
        """A file below the folder as bytes; None when it is not there."""
        try:
            return np.fromfile(self._folder / name, dtype=np.uint8)
        except OSError:
            return None

    def put(self, name: str, content: npt.NDArray[np.uint8]) -> None:
        """Write or replace a file in one step."""
        write_atomically(self._folder / name, lambda file: file.write(content.data))


def start_keeper(ray: Any, folder: Path) -> Any:
    """A keeper on this very machine, where ``folder`` is; it ends with the driver."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    keeper = ray.remote(Keeper).options(num_cpus=0, max_restarts=-1, max_task_retries=2, scheduling_strategy=here)
    return keeper.remote(str(folder))


@dataclass(frozen=True)
class KeeperPlace:
    """The worker's side: :class:`sweeps.service.checkpoints.CheckpointPlace` without what only the driver does."""

    keeper: Any

    def of(self, pack: Pack) -> Checkpoint:
        """See :class:`sweeps.service.checkpoints.CheckpointPlace`."""
        self._ask("begin", pack.key, members_of(pack))
        return SentCheckpoint(
            [f"{key}/{STATE}" for key in (pack.key, *pack.resumes)], get=self._get, put=self._put(pack)
        )

    def _get(self, name: str) -> BinaryIO | None:
        content = self._ask("get", name)
        return None if content is None else io.BytesIO(content.tobytes())

    def _put(self, pack: Pack) -> Any:
        def put(state: BinaryIO) -> None:
            # Waits, so that a machine that dies later has lost nothing that was saved before.
            self._ask("put", f"{pack.key}/{STATE}", np.frombuffer(state.read(), dtype=np.uint8))

        return put

    def _ask(self, method: str, *arguments: Any) -> Any:
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(getattr(self.keeper, method).remote(*arguments), timeout=SEND_SECONDS)
        except RayError:  # the keeper died, its disk is full, the store is
            return None  # a checkpoint is a precaution: without it training goes on
