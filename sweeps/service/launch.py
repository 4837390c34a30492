"""Training of packs on Ray: one pack is one Tune trial.

The only importer of Ray.  Ray starts when there is something to train and not before; results travel back as reports,
and one thread of the driver hands them on, so that a slow disk never holds up the trials.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaptbin.errors import ResourceError
from sweeps.service.attempt import Attempt, pack_records
from sweeps.service.calls import CallThread
from sweeps.service.interrupt import Interrupted, Interruption, noting_signals
from sweeps.service.local import local_fit, local_gpus
from sweeps.service.manifest import available_cores, git_state
from sweeps.service.nodes import Node
from sweeps.service.plan import Pack, Resources
from sweeps.service.work import Job, Listener, Train, describe, first_line, forget, last_line, threads, train_one

MAX_FAILURES = 3
"""How often the worker of one pack may die before the pack is cut in half."""

_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON or TensorBoard files per trial
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops at a safe place, for SIGTERM too
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the listener is told in one line
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; unset, each worker warns of it
}

_LOCAL_ENVIRONMENT = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every listener on loopback
    "RAY_memory_monitor_refresh_ms": "0",  # its kill would end the whole run, whatever max_failures says
}


class RayRunner:
    """Packs as trials of Ray Tune: on this machine, or on the cluster at ``address``."""

    def __init__(self, address: str | None = None, *, train: Train | None = None) -> None:
        self._address = address
        self._train = train

    def at_once(self, resources: Resources) -> int:
        """Count over live nodes, each by itself: a pack cannot span two.  Without an address Ray is not started."""
        if self._address is None:
            return local_fit(resources)
        ray = _import_ray(local=False)
        self._connect(ray)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        at_once = sum(resources.fit(Node(node.get("CPU", 0), node.get("GPU", 0))) for node in nodes)
        if at_once < 1:
            sizes = ", ".join(f"{node.get('CPU', 0):g} cores with {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise ResourceError(
                f"a pack must fit on one node, got {resources} per pack for a cluster of {sizes or 'no live node'}"
            )
        return at_once

    def run(self, job: Job, listener: Listener) -> int | None:
        """See :class:`Runner`.

        A pack whose worker dies is started again from its checkpoint; one whose worker keeps dying is cut in half.
        """
        ray = _import_ray(local=self._address is None)
        temporary = Path(tempfile.mkdtemp(prefix="ab-", dir="/tmp" if Path("/tmp").is_dir() else None))
        try:
            with noting_signals() as interruption:
                if self._address is None:
                    _start(ray, job, temporary)
                else:
                    self._connect(ray)
                interruption.arm()  # ray.init installs a handler of its own for SIGTERM
                self._train_all(ray, job, listener, interruption, temporary)
                return interruption.signum
        finally:
            ray.shutdown()
            shutil.rmtree(temporary, ignore_errors=True)

    def _connect(self, ray: Any) -> None:
        if not ray.is_initialized():
            try:
                _knock(ray, str(self._address))
                ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
            except (OSError, ValueError, RuntimeError) as error:
                raise ResourceError(
                    f"address must be host:port of a running Ray cluster, or auto, got {self._address!r}: "
                    f"{first_line(error)} (a cluster that asks for a token needs RAY_AUTH_MODE=token here as well)"
                ) from error

    def _train_all(self, ray: Any, job: Job, listener: Listener, interruption: Interruption, temporary: Path) -> None:
        shared = {
            "tables": {key: ray.put(table) for key, table in job.tables.items()},
            "settings": {
                "device": job.device,
                "threads": threads(job.resources),
                "checkpoints": self._checkpoints(job),
                "forget": self._address is not None,
                "git": git_state(),
                "train": self._train,
            },
        }
        packs = list(job.packs)
        lives: dict[str, int] = {}
        while packs:
            try:
                with CallThread() as calls:
                    attempt = Attempt(packs, listener, calls, job.checkpoints)
                    _fit(attempt, calls, shared, job.resources, interruption, temporary)
            except Interrupted:
                return
            packs = attempt.waiting
            for pack, reason in attempt.broken:
                lives[pack.key] = lives.get(pack.key, 0) + 1
                if len(pack.replicas) > 1:
                    listener.retried(pack, f"{reason}; goes on in two halves")
                    forget(job.checkpoints, pack.key)
                    packs.extend(pack.halves())
                elif lives[pack.key] < MAX_FAILURES:
                    listener.retried(pack, reason)
                    packs.append(pack)
                else:
                    listener.failed(pack, reason)

    def _checkpoints(self, job: Job) -> Path | None:
        """On one machine the output's folder; on a cluster, whose nodes may share no disk, one on each node."""
        if job.checkpoints is None or self._address is None:
            return job.checkpoints
        return Path(tempfile.gettempdir()) / f"adaptbin-checkpoints-{os.getuid()}"


def _fit(
    attempt: Attempt,
    calls: CallThread,
    shared: Mapping[str, Any],
    resources: Resources,
    interruption: Interruption,
    folder: Path,
) -> None:
    """Train the packs of ``attempt``.  Raises Interrupted after a signal, and whatever the listener raised."""
    from ray import tune

    trial = tune.with_parameters(_trial, packs=attempt.packs, **shared)
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": resources.cpus, "gpu": resources.gpus}),
        param_space={"pack": tune.grid_search(list(range(len(attempt.packs))))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            name="packs",
            storage_path=tempfile.mkdtemp(prefix="tune-", dir=folder),
            failure_config=tune.FailureConfig(max_failures=MAX_FAILURES),
            callbacks=[_callback(attempt, calls, interruption)],
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except RuntimeError as error:
        # A cluster's memory monitor ends the whole fit, whatever max_failures says.
        if not attempt.all_broke(first_line(error)):
            raise
    interruption.check()


def _callback(attempt: Attempt, calls: CallThread, interruption: Interruption) -> Any:
    """The attempt as a Tune callback."""
    from ray import tune

    class Forward(tune.Callback):
        def __init__(self, attempt: Attempt, calls: CallThread, interruption: Interruption) -> None:
            self._attempt, self._calls, self._interruption = attempt, calls, interruption

        def __getstate__(self) -> dict[str, Any]:
            return {}  # Tune pickles its settings, for a resume that we do not use; a thread cannot be pickled

        def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
            # Several times a second, in the main thread; what is raised here ends the run after Tune cleaned up.
            self._interruption.check()
            self._calls.check()

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            self._attempt.report(trial.config["pack"], result)

        def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self._attempt.recovered(trial.config["pack"])

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self._attempt.broke(trial.config["pack"], last_line(trial.get_error() or "its worker died"))

    return Forward(attempt, calls, interruption)


def _trial(config: Mapping[str, Any], *, packs: Sequence[Pack], tables: Mapping[Any, Any], settings: Any) -> None:
    """One trial, in a Ray worker: train a pack and report its records."""
    import ray
    from ray import tune

    pack = packs[config["pack"]]
    settings = dict(settings)
    forget_here = settings.pop("forget")
    try:
        records = train_one(
            pack,
            ray.get(tables[pack.table_key]),
            progress=lambda state: tune.report({"event": "progress", "progress": state}),
            **settings,
        )
    except Exception as error:  # an error of the training would only be repeated by a retry
        event = "memory" if isinstance(error, MemoryError) or "out of memory" in str(error).lower() else "failed"
        tune.report({"event": event, "reason": describe(error)})
        return
    tune.report({"event": "finished", "records": pack_records(records)})
    if forget_here:
        forget(settings["checkpoints"], pack.key)
    tune.report({"event": "over"})  # the last report stays in the experiment's state: a small one


def _import_ray(*, local: bool) -> Any:
    """Import Ray quietly; on one machine with all its listeners on loopback."""
    for name, value in {**_ENVIRONMENT, **(_LOCAL_ENVIRONMENT if local else {})}.items():
        os.environ.setdefault(name, value)
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    return ray


def _knock(ray: Any, address: str) -> None:
    """Raise OSError or ValueError unless something listens there; Ray itself would try for minutes."""
    if address != "auto":
        host, _, port = address.rpartition(":")
        # Ray puts this machine's own address in the place of these, so that is where something must listen.
        if host in ("localhost", "127.0.0.1"):
            host = ray.util.get_node_ip_address()
        socket.create_connection((host, int(port)), timeout=5.0).close()


def _start(ray: Any, job: Job, temporary: Path) -> None:
    size = sum(
        tensor.nbytes for table in job.tables.values() for tensor in vars(table).values() if hasattr(tensor, "nbytes")
    )
    ray.init(
        address="local",
        num_cpus=available_cores(),
        num_gpus=local_gpus() if job.resources.gpus else 0,
        object_store_memory=256 * 2**20 + 4 * size,  # tables and a few megabytes of results; not Ray's 30 % of memory
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(temporary),  # short, because sockets lie below it, and ours to remove
    )
