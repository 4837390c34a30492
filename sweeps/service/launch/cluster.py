"""Ray itself: imported quietly, started on this machine, or joined where it runs."""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaptbin.errors import ResourceError
from sweeps.service.checkpoints import MEMBERS, TRY, StoragePlace
from sweeps.service.manifest import available_cores
from sweeps.service.nodes import Node, local_gpus
from sweeps.service.plan import Resources
from sweeps.service.space import require_space
from sweeps.service.work import Job, last_line

_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON or TensorBoard files per trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops at a safe place, for SIGTERM too
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the listener is told in one line
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Tune's own record of a run: results files are ours
    "TUNE_MAX_PENDING_TRIALS_PG": "16",  # packs taken from the queue before a worker is free for them
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; unset, each worker warns of it
}

_LOCAL_ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every listener on loopback
    "RAY_memory_monitor_refresh_ms": "0",  # packs are sized to fit; its kill would stop all packs for a moment
}

GPU_SECONDS = 60.0
"""Longest wait for machines to say how much memory their GPUs have; busy ones do not answer."""

_TOKEN_VARIABLES = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def import_ray(*, local: bool) -> Any:
    """Import Ray quietly; on one machine with all its listeners on loopback."""
    for name, value in {**_ENVIRONMENT, **(_LOCAL_ENVIRONMENT if local else {})}.items():
        os.environ.setdefault(name, value)
    if not local and any(name in os.environ for name in _TOKEN_VARIABLES):
        # Ray uses a token by itself for a cluster of its own, not for one that it joins.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # what fails is told by us, once
    # Else a machine that dies prints its log into ours, in spite of log_to_driver=False; there is no public switch.
    if hasattr(ray._private.worker, "_worker_logs_enabled"):
        ray._private.worker._worker_logs_enabled = False
    return ray


def start(ray: Any, job: Job, temporary: Path) -> None:
    """Start Ray on this machine, for itself alone and with its files in ``temporary``."""
    if len(job.packs) * job.resources.cpus < available_cores():
        # Ray would start an idle worker per core, each of them some 70 MB.
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    size = sum(
        tensor.nbytes for table in job.tables.values() for tensor in vars(table).values() if hasattr(tensor, "nbytes")
    )
    shared = 256 * 2**20 + 4 * size  # tables and a few megabytes of results; not Ray's 30 % of memory
    require_space(temporary, shared)
    ray.init(
        address="local",
        num_cpus=available_cores(),
        num_gpus=local_gpus()[0] if job.resources.gpus else 0,
        object_store_memory=shared,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(temporary),  # short, because sockets lie below it, and ours to remove
    )


def join(ray: Any, address: str) -> None:
    """Join the cluster at ``address``, unless that was done.  Raises ResourceError when none answers."""
    if ray.is_initialized():
        return
    from ray.exceptions import AuthenticationError

    try:
        _knock(ray, address)
        handler = signal.getsignal(signal.SIGTERM)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process with an exit code of its own
    except (OSError, ValueError, RuntimeError, AuthenticationError) as error:
        # In one line, but whole: which versions differ, or where a token was looked for, comes last.
        reason = " ".join(str(error).split())
        raise ResourceError(
            f"address must be host:port of a running Ray cluster, or auto, got {address!r}: {reason}"
        ) from error


def leave(ray: Any) -> None:
    """Shut Ray down in this process.

    No other thread may collect garbage meanwhile: Tune leaves cycles that hold object references, and one that is let
    go just when Ray's core is gone makes Ray end the process on the spot.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        before = _collections()
        while _collections() == before:  # else another thread is at it, and our own call did nothing
            gc.collect()
        ray.shutdown()
    finally:
        if collects:
            gc.enable()


def _collections() -> int:
    """How many full collections have ended."""
    return int(gc.get_stats()[-1]["collections"])


def live_nodes(ray: Any, resources: Resources) -> list[Node]:
    """The machines of the cluster that are alive.  GPUs are asked for their memory where ``resources`` need some."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    nodes = [
        Node(
            cores=node["Resources"].get("CPU", 0.0),
            gpus=node["Resources"].get("GPU", 0.0),
            memory=int(node["Resources"].get("memory", 0)) or None,
            name=node.get("NodeManagerHostname", ""),
        )
        for node in alive
    ]
    if not resources.gpus:
        return nodes
    memory = _gpu_memory(ray, [node["NodeID"] for node in alive if node["Resources"].get("GPU", 0.0)], resources)
    return [replace(n, gpu_memory=memory.get(known["NodeID"])) for n, known in zip(nodes, alive, strict=True)]


def _gpu_memory(ray: Any, nodes: Sequence[str], resources: Resources) -> dict[str, int | None]:
    """Node -> bytes of the smallest of its GPUs, of the nodes that answer in time."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(local_gpus)
    asked = {
        ask.options(
            num_cpus=0,
            num_gpus=resources.gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(): node
        for node in nodes
    }
    answered, late = ray.wait(list(asked), num_returns=len(asked), timeout=GPU_SECONDS) if asked else ([], [])
    for reference in late:
        ray.cancel(reference)
    found: dict[str, int | None] = {}
    for reference in answered:
        with suppress(ray.exceptions.RayError):
            _, found[asked[reference]] = ray.get(reference)
    return found


def require_shared(ray: Any, place: StoragePlace) -> None:
    """Raise ResourceError unless every live node reads what the driver writes to ``place``."""
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    name = f"{TRY}{uuid.uuid4().hex}"
    place.put(f"{name}/{MEMBERS}", io.BytesIO(b"[]"))

    def sees() -> bool:
        return place.get(f"{name}/{MEMBERS}") is not None

    try:
        for node in ray.nodes():
            if not node["Alive"]:
                continue
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            reason = "it does not see what the driver wrote there"
            try:
                if ray.get(ray.remote(sees).options(num_cpus=0, scheduling_strategy=there).remote(), timeout=60.0):
                    continue
            except (RayError, OSError) as error:
                reason = last_line(error)
            raise ResourceError(
                f"storage must be the same for all machines, got {place.address} on "
                f"{node.get('NodeManagerHostname', node['NodeID'])}: {reason}; without --storage checkpoints travel to "
                "the driver"
            )
    finally:
        place.forget(name)


def _knock(ray: Any, address: str) -> None:
    """Raise OSError or ValueError unless a Ray cluster answers there and takes our token.

    Ray itself would try for 20 s, say so in as many lines, and not name the token.
    """
    if address == "auto":
        return
    import grpc
    from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    messages: Any = gcs_service_pb2
    calls: Any = gcs_service_pb2_grpc
    host, _, port = address.rpartition(":")
    # Ray puts this machine's own address in the place of these, so that is where something must listen.
    if host in ("localhost", "127.0.0.1"):
        host = ray.util.get_node_ip_address()
    token = [(name.lower(), value) for name, value in get_auth_headers_if_auth_enabled({}).items()]
    with grpc.insecure_channel(f"{host}:{int(port)}") as channel:
        try:
            head = calls.NodeInfoGcsServiceStub(channel)
            head.GetClusterId(messages.GetClusterIdRequest(), timeout=5.0, metadata=token)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise ConnectionError(
                    "it asks for another token, which RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH or "
                    "~/.ray/auth_token must hold, with RAY_AUTH_MODE=token"
                ) from error
            raise ConnectionError(f"no Ray cluster answers there ({error.code().name.lower()})") from error
