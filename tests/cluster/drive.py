"""``sweeps/sensitivity.py`` without MLflow and with training that the tests can watch.

``python drive.py KIND FOLDER ADDRESS WORDS...``: ``KIND`` is one of ``TRAINING``, ``FOLDER`` one that is on every node.
Run as a script, so that its functions travel to the workers by value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from sweeps import sensitivity
from sweeps.service.launch import RayRunner
from sweeps.service.sweep import Sweep


def slowly(folder: Path, seconds: float = 0.15) -> Callable[..., list[dict[str, Any]]]:
    """Real training with a pause after each report, that tells in ``runtime`` which node it was.

    It begins once there is a file ``go`` in ``folder``: workers need seconds to start, some longer than others.
    """

    def train(replicas: Any, table: Any, *, device: str, checkpoint: Any, progress: Any) -> list[dict[str, Any]]:
        import time

        import ray

        from adaptbin.training.pack import train_pack

        while not (folder / "go").exists():
            time.sleep(0.05)

        def report(state: Any) -> None:
            progress(state)
            time.sleep(seconds)

        records = train_pack(replicas, table, device=device, checkpoint=checkpoint, progress=report)
        for record in records:
            record["runtime"]["node"] = ray.get_runtime_context().get_node_id()
        return records

    return train


def together(folder: Path, many: int = 8) -> Callable[..., list[dict[str, Any]]]:
    """No training: waits until ``many`` are under way at once, a little longer, and tells how many it saw at most."""

    def train(replicas: Any, table: Any, **settings: Any) -> list[dict[str, Any]]:
        import os
        import time

        from tests.service.fakes import fake_record

        mine = folder / f"at-{os.getpid()}"
        mine.touch()
        most, end = 0, time.monotonic() + 60.0
        while most < many and time.monotonic() < end and not (folder / "seen").exists():
            most = max(most, len(list(folder.glob("at-*"))))
            time.sleep(0.05)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            most = max(most, len(list(folder.glob("at-*"))))
            time.sleep(0.05)
        (folder / "seen").touch()
        mine.unlink()
        records = [fake_record(replica) for replica in replicas]
        for record in records:
            record["runtime"]["most"] = most
        return records

    return train


def greedy(folder: Path) -> Callable[..., list[dict[str, Any]]]:
    """No training: whole packs of seed 0 take memory until they are killed, and others their time."""

    def train(replicas: Any, table: Any, *, progress: Any, **settings: Any) -> list[dict[str, Any]]:
        import time

        import numpy as np

        from tests.service.fakes import fake_record, progress_at

        progress(progress_at(1, 99, len(replicas)))
        held = []
        if replicas[0].seed == 0 and len(replicas) > 3:
            for _ in range(28):
                held.append(np.ones(2**25))  # a quarter of a GiB
                time.sleep(0.1)
            time.sleep(30.0)
        for epoch in range(3):
            time.sleep(0.6)
            progress(progress_at(epoch + 2, 99, len(replicas)))
        return [fake_record(replica) for replica in replicas]

    return train


TRAINING = {"greedy": greedy, "slowly": slowly, "together": together}


def main() -> int:
    kind, folder, address, *words = sys.argv[1:]
    runner = RayRunner(address, train=TRAINING[kind](Path(folder)))
    with mock.patch.object(Sweep, "_tracking", lambda self, reading: nullcontext(mock.Mock(pages={}))):
        return sensitivity.main([*words, "--address", address], runner=runner)


if __name__ == "__main__":
    sys.exit(main())
