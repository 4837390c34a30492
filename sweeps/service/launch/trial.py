"""What a Ray worker does with a pack: one Tune trial."""

from __future__ import annotations

import base64
import gc
import json
import os
import socket
import sys
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from adaptbin.config import Replica
from adaptbin.errors import ResourceError
from sweeps.service.dispatch import pack_records
from sweeps.service.kernel_kills import kernel_kills
from sweeps.service.plan import Halving, Pack
from sweeps.service.work import Failure, is_out_of_memory, threads, train_one

STOP_SECONDS = "3600"
"""How long Tune waits for a stopped pack to save its state before it gives the worker the next one."""


def trial(config: Mapping[str, Any], *, tables: Mapping[Any, Any], settings: Mapping[str, Any]) -> None:
    """Train one pack and report its records, or why there are none.

    ``config``: a pack, see :func:`to_config`.  ``tables``: table key -> object reference.  ``settings``: ``device``,
    the kind of device asked for, and ``checkpoints``; ``git``, ``progress_seconds`` and ``train`` as in
    :func:`sweeps.service.work.train_one`.
    """
    import ray
    from ray import tune

    os.environ["TUNE_FUNCTION_THREAD_TIMEOUT_S"] = STOP_SECONDS
    pack = from_config(config)
    try:
        context: Any = ray.get_runtime_context()
        granted = context.get_assigned_resources()
        cpus, gpus = granted.get("CPU", 0.0), granted.get("GPU", 0.0)
        tune.report(
            {
                "event": "began",
                "host": socket.gethostname(),
                "node": context.get_node_id(),
                "pid": os.getpid(),
                "kernel_kills": kernel_kills(),
                "cpus": cpus,
                "gpus": gpus,
                "threads": threads(cpus),
            }
        )
        records = train_one(
            pack,
            ray.get(tables[pack.table_key]),
            device=granted_device(settings["device"], gpus),
            threads=threads(cpus),
            checkpoint=settings["checkpoints"].of(pack) if settings["checkpoints"] else None,
            git=settings["git"],
            progress=lambda state: tune.report({"event": "progress", "progress": state}),
            progress_seconds=settings["progress_seconds"],
            train=settings["train"],
        )
        for record in records:
            record["runtime"]["granted"] = {"cpus": cpus, "gpus": gpus}
        report: dict[str, Any] = {"event": "finished", "records": pack_records(records)}
    except Exception as error:  # an error of the training would only be repeated by a retry
        event = "memory" if is_out_of_memory(error) else "failed"
        report = {"event": event, "failure": Failure.of(error).to_dict()}
    _free_memory()  # the worker goes on with another pack
    tune.report(report)
    tune.report({"event": "over"})  # the last report stays in the experiment's state: a small one


def to_config(pack: Pack) -> dict[str, str]:
    """A pack as a trial's configuration: one short string, which Tune copies and stores without looking into it."""
    halving = None if pack.halving is None else asdict(pack.halving)
    replicas = [replica.identity() for replica in pack.replicas]
    parts = {"replicas": replicas, "resumes": pack.resumes, "halving": halving}
    return {"pack": base64.b64encode(zlib.compress(json.dumps(parts).encode())).decode()}


def from_config(config: Mapping[str, Any]) -> Pack:
    """Inverse of :func:`to_config`."""
    parts = json.loads(zlib.decompress(base64.b64decode(config["pack"])))
    told = parts["halving"]
    halving = None if told is None else Halving(rungs=tuple(told["rungs"]), keep=told["keep"])
    return Pack(tuple(map(Replica.from_identity, parts["replicas"])), tuple(parts["resumes"]), halving)


def granted_device(kind: str, gpus: float) -> str:
    """The device to train on.  Raises ResourceError when a GPU is needed and none was granted."""
    if kind == "cpu":
        return "cpu"
    if not gpus:
        raise ResourceError(f"a pack on {kind} must be granted a GPU, got none")
    import torch

    if gpus < 1 and torch.cuda.is_available():
        # Ray counts shares of a GPU but does not keep packs to them.
        torch.cuda.set_per_process_memory_fraction(gpus)
    return kind  # Ray shows the process the GPUs it was granted and no other


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")  # a pack that failed early, or that something stood in for, has not imported it
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
