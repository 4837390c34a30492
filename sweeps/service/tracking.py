"""Result records as MLflow runs: study → points → replicas.  The only importer of mlflow.

A projection, not a store: the results files stay the truth, and projecting them again changes nothing.
Every run carries the tag ``adaptbin.key``; a run whose key and content are already there is left alone.
Facts leaned on are those of MLflow 3.17: 1000 metrics, 100 parameters and 100 tags per batch, 1000 runs per search page,
parameters cannot be changed once written, metrics are only appended (the newest of the highest step is shown).
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import math
import os
import queue
import shlex
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from adaptbin.errors import ConfigError

Status = Literal["FINISHED", "FAILED", "KILLED"]

CURVE_POINTS = 200
"""Most points of one curve in MLflow; longer ones are thinned."""

CURVES = ("loss", "mean_bins", "max_bins", "splits")
METRICS_PER_BATCH = 1000
PAGE = 1000
PROJECTION_VERSION = 1
"""Raised when a replica run's layout changes; runs of older layouts are then written anew."""

# Read by mlflow at each call.  One retry and ten seconds: a server that is away must not hold up the end of a sweep.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_CHATTY_LOGGERS = ("mlflow", "alembic", "sqlalchemy", "urllib3")
_GIVE_UP_AFTER = 3
"""Failures in a row after which nothing more is tried: every one may cost a time-out."""


# ---------------------------------------------------------------- where the runs go


@dataclass(frozen=True)
class Store:
    """Where runs and artifacts go, and how to look at them."""

    tracking_uri: str
    artifact_root: str | None
    """Absolute folder of the artifacts; None leaves the choice to a tracking server."""
    ui_command: str
    """Complete shell command that shows the runs, from any folder."""
    problem: str | None = None
    """Why nothing can be logged here; a :class:`Tracker` reports it and does nothing else."""


def resolve_store(output: Path, root: Path, tracking_uri: str | None) -> Store:
    """Choose the MLflow store of a sweep; touches no file.

    ``output`` equal to ``<root>/mlruns`` gives MLflow's own default, ``<root>/mlflow.db``, which plain ``mlflow ui`` in
    ``root`` shows; any other folder keeps its own ``mlflow.db``.  Artifacts go to ``<output>/artifacts``.
    ``tracking_uri`` overrides the database (and, when it is a server, the artifacts).

    Raises:
        ConfigError: the database's path holds a ``?``, which SQLAlchemy would cut it at.
    """
    output, root = output.resolve(), root.resolve()
    artifacts = str(output / "artifacts")
    if tracking_uri is not None:
        if tracking_uri.startswith(("http://", "https://")):
            return Store(tracking_uri, None, f"{_python()} -m webbrowser {shlex.quote(_without_password(tracking_uri))}")
        path = _sqlite_path(tracking_uri)
        uri = tracking_uri if path is None else _sqlite_uri(path)
        return Store(uri, artifacts, _ui_command(uri))
    is_default = output == root / "mlruns"
    uri = _sqlite_uri((root if is_default else output) / "mlflow.db")
    return Store(uri, artifacts, _ui_command(uri), problem=_old_file_store(output, root) if is_default else None)


def _old_file_store(folder: Path, root: Path) -> str | None:
    # The same test as MLflow's own: with such a file about, plain `mlflow ui` in `root` refuses to start.
    for meta in sorted(folder.glob("*/meta.yaml")):
        if meta.parent.name.isdigit():
            return (
                f"{meta} belongs to an old MLflow file store, which MLflow no longer opens and which keeps `mlflow ui` "
                f"in {root} from starting. Nothing is logged to MLflow; training and results files are not affected. "
                f"Move the numbered folders of {folder} away, then run again with --rebuild; "
                "or choose another folder with --output"
            )
    return None


def _sqlite_uri(path: Path) -> str:
    if "?" in str(path):
        raise ConfigError(f"the folder of an MLflow database must not have a '?' in its path, got {str(path)!r}")
    return f"sqlite:///{path}"


def _sqlite_path(uri: str) -> Path | None:
    """Absolute path of a SQLite file, or None for any other store."""
    name = uri.removeprefix("sqlite:///") if uri.startswith("sqlite:///") else ""
    return Path(name).resolve() if name and not name.startswith(":memory:") else None


def _python() -> str:
    return shlex.quote(sys.executable)


def _ui_command(uri: str) -> str:
    found = shutil.which("mlflow")
    ours = found is not None and Path(found).parent == Path(sys.executable).parent
    return f"{'mlflow' if ours else f'{_python()} -m mlflow'} ui --backend-store-uri {shlex.quote(_without_password(uri))}"


def _without_password(uri: str) -> str:
    password = urlsplit(uri).password
    return uri.replace(f":{password}@", ":***@") if password else uri


# ---------------------------------------------------------------- record → names, parameters, numbers


def point_tags(dataset: str, panel: str | None, value: float | None) -> dict[str, str]:
    """Tags shared by a point and its replicas.  ``panel`` None is the default point, which every panel shares."""
    return {
        "adaptbin.dataset": dataset,
        "adaptbin.panel": "all" if panel is None else panel,
        "adaptbin.value": "default" if value is None else f"{value:g}",
    }


def replica_params(identity: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of a replica run: all that decides its number, one level deep.

    Keys of ``protocol`` bear its name as prefix: there they are switches that rarely differ, and so sort together.
    """
    flat: dict[str, Any] = {}
    for name, value in identity.items():
        if isinstance(value, Mapping):
            prefix = "protocol." if name == "protocol" else ""
            flat.update({f"{prefix}{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return {key: str(value) for key, value in flat.items()}


def replica_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of a replica run that have no epoch: scores (probe means), counts and seconds.  Only finite numbers."""
    numbers: dict[str, Any] = {
        f"{part}_{metric}": score
        for part in ("val", "test")
        for metric, score in record["scores"].get(part, {}).items()
    }
    bins = record.get("bins", {})
    numbers |= {"triggers": bins.get("triggers"), "splits_total": bins.get("splits")}
    numbers["seconds"] = record.get("runtime", {}).get("seconds")
    return _finite(numbers)


def replica_curves(record: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """(name, epoch, value) of every curve, at most ``CURVE_POINTS`` epochs, finite values only.

    A curve that is too long keeps the last epoch of each of ``CURVE_POINTS`` equal intervals; ``splits``, a count per
    interval, is summed instead, so that its total stays.
    """
    curves = record.get("curves", {})
    epochs: Sequence[int] = curves.get("epoch", ())
    intervals = min(CURVE_POINTS, len(epochs))
    ends = [(i + 1) * len(epochs) // intervals for i in range(intervals)]
    points = []
    for name in CURVES:
        values: Sequence[float] = curves.get(name, ())
        for begin, end in zip([0, *ends], ends, strict=False):
            if end > len(values):
                break
            value = sum(values[begin:end]) if name == "splits" else values[end - 1]
            if math.isfinite(value):
                points.append((name, int(epochs[end - 1]), float(value)))
    return points


def _finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    # NaN breaks MLflow's views and inf is silently replaced by a huge number: neither goes in.
    return {
        key: float(value)
        for key, value in numbers.items()
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    }


def _interval(record: Mapping[str, Any]) -> tuple[int, int]:
    """Start and end of a replica, ms since 1970; now, if the record does not say."""
    runtime = record.get("runtime", {})
    finished = runtime.get("finished_at")
    end = datetime.fromisoformat(finished).timestamp() if finished else time.time()
    return int(1000 * (end - float(runtime.get("seconds", 0.0)))), int(1000 * end)


# ---------------------------------------------------------------- the tracker


@dataclass(frozen=True)
class StudyRun:
    """Handle of a study: which tree of runs the following calls belong to."""

    dataset: str
    key: str

    @property
    def experiment(self) -> str:
        """Name of the MLflow experiment."""
        return f"adaptbin/{self.dataset}"


@dataclass
class _Run:
    """What is known of a run that is in the store."""

    id: str
    kind: str
    status: str = "RUNNING"
    parent: str | None = None
    digest: str | None = None
    end: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class _Tree:
    """All runs of one study, by their ``adaptbin.key``."""

    experiment_id: str
    artifacts: str
    runs: dict[str, _Run] = field(default_factory=dict)
    open: bool = True


class Tracker:
    """Context manager that projects records into MLflow from one writer thread, and never raises into training.

    Calls queue and return at once.  The first thing that goes wrong is reported once through ``on_problem`` (from the
    writer thread); ``--rebuild`` repairs what is missing, since projecting again only adds.  ``on_problem`` None of the
    environment, the active run or the tracking URI of mlflow's own functions is different afterwards.
    """

    def __init__(self, store: Store, *, on_problem: Callable[[str], None], drain_seconds: float = 60.0) -> None:
        self._store = store
        self._on_problem = on_problem
        self._drain_seconds = drain_seconds
        self._reported = False
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="mlflow-writer", daemon=True)
        self._environment: dict[str, str | None] = {}
        self._client: Any = None
        self._trees: dict[StudyRun, _Tree] = {}

    def __enter__(self) -> Self:
        # Set and restored by the caller's thread: changing it from the writer could break a copy being made elsewhere.
        self._environment = {key: os.environ.get(key) for key in _ENVIRONMENT}
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Mark unfinished studies as killed, write what is queued for at most ``drain_seconds``, and stop."""
        self._queue.put(self._end_unfinished)
        self._queue.put(None)
        self._writer.join(self._drain_seconds)
        if self._writer.is_alive():
            self._report(f"not everything was written within {self._drain_seconds:g} s of the end")
        for key, value in self._environment.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value

    def study(
        self,
        dataset: str,
        study_key: str,
        name: str,
        description: str,
        params: Mapping[str, Any],
        tags: Mapping[str, Any] | None = None,
    ) -> StudyRun:
        """Open (or continue) the study run and mark it running.

        Args:
            dataset: Key of the data set; the experiment is ``adaptbin/<dataset>``.
            study_key: Hash of all that makes results comparable; not of the number of seeds or the choice of panels,
                so that later seeds and panels join the same tree.
            name: Run name, as "sensitivity eol".
            description: Markdown note of the run; replaced each time.
            params: What the study key fixes (MLflow never lets a parameter change).
            tags: What may differ from one invocation to the next: seeds, panels, code version.
        """
        study = StudyRun(dataset, study_key)
        self._queue.put(partial(self._open_study, study, name, description, dict(params), dict(tags or {})))
        return study

    def replica(
        self,
        study: StudyRun,
        point_key: str,
        point_name: str,
        point_params: Mapping[str, Any],
        panel: str | None,
        record: Mapping[str, Any],
    ) -> None:
        """Write one result record as a run below its point; the point's run is made when its first replica comes.

        Args:
            point_key: Identity of the point within the study.
            point_name: Run name, as "tau = 0.001"; a replica's is this and its seed.
            point_params: The point's hyperparameters; ``point_params[panel]`` is the value that the panel varies.
            panel: The panel the point belongs to, or None for the default point, which all panels share.
            record: The result record; not to be changed afterwards.
        """
        self._queue.put(
            partial(self._write_replica, study, point_key, point_name, dict(point_params), panel, record)
        )

    def point(self, study: StudyRun, point_key: str, summary: Mapping[str, Any]) -> None:
        """Write a point's aggregate and mark it finished.

        ``summary``: numbers become metrics (test_mean, test_sd, test_low, test_high, val_mean, n, diverged; what is not
        finite is left out), text becomes tags (``metric``: which score it is).
        """
        self._queue.put(partial(self._write_point, study, point_key, dict(summary)))

    def finish(self, study: StudyRun, artifacts: Iterable[Path], status: Status = "FINISHED") -> None:
        """Upload files to the study run (same names are overwritten) and end it, with any point still running."""
        self._queue.put(partial(self._finish_study, study, tuple(artifacts), status))

    # ------------------------------------------------------------ writer thread

    def _write(self) -> None:
        if self._store.problem is not None:
            self._report(self._store.problem, whole=True)
            return
        failures = 0
        try:
            with _connection(self._store) as self._client:
                while (task := self._queue.get()) is not None:
                    try:
                        task()
                        failures = 0
                    except Exception as error:  # noqa: BLE001  a thread's end of the line: anything is reported
                        self._report(_reason(error))
                        failures += 1
                        if failures >= _GIVE_UP_AFTER:
                            return
        except Exception as error:  # noqa: BLE001
            self._report(_reason(error))

    def _report(self, reason: str, *, whole: bool = False) -> None:
        if self._reported:
            return
        self._reported = True
        password = urlsplit(self._store.tracking_uri).password
        where = _without_password(self._store.tracking_uri)
        text = (
            reason
            if whole
            else f"MLflow at {where}: {reason}. Training and results files are not affected; "
            "run again with --rebuild to bring MLflow up to date"
        )
        self._on_problem(text.replace(password, "***") if password else text)

    def _open_study(self, study: StudyRun, name: str, note: str, params: dict[str, Any], tags: dict[str, Any]) -> None:
        tree = self._trees[study] = self._load_tree(study)
        run = self._ensure(study, f"study:{study.key}", "study", name, params, {"adaptbin.dataset": study.dataset})
        tags = {**tags, "mlflow.note.content": note, "mlflow.runName": name}
        self._log(run, tags={key: str(value) for key, value in tags.items()})
        self._set_running(run)
        tree.open = True

    def _load_tree(self, study: StudyRun) -> _Tree:
        experiment = self._client.get_experiment_by_name(study.experiment)
        if experiment is None:
            root = self._store.artifact_root
            self._client.create_experiment(
                study.experiment,
                artifact_location=None if root is None else f"{root}/{study.dataset}",
                # The interface asks what an experiment is for until this says so; else it shows pages for chat bots.
                tags={"mlflow.experimentKind": "custom_model_development"},
            )
            experiment = self._client.get_experiment_by_name(study.experiment)
        if experiment.lifecycle_stage == "deleted":
            # Its name stays taken, so the only way to log under it is to bring it back.
            self._client.restore_experiment(experiment.experiment_id)
        tree = _Tree(experiment.experiment_id, experiment.artifact_location)
        for run in self._search(tree.experiment_id, study.key):
            known = run.data.tags
            tree.runs.setdefault(
                known["adaptbin.key"],
                _Run(
                    id=run.info.run_id,
                    kind=known.get("adaptbin.kind", ""),
                    status=run.info.status,
                    parent=known.get("mlflow.parentRunId"),
                    digest=known.get("adaptbin.digest"),
                    end=run.info.end_time or 0,
                    metrics=dict(run.data.metrics),
                ),
            )
        return tree

    def _search(self, experiment_id: str, study_key: str) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs(
                [experiment_id], f"tags.`adaptbin.study` = '{study_key}'", max_results=PAGE, page_token=token
            )
            yield from (run for run in page if "adaptbin.key" in run.data.tags)
            token = page.token
            if not token:
                return

    def _ensure(
        self,
        study: StudyRun,
        key: str,
        kind: str,
        name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: _Run | None = None,
        start: int | None = None,
    ) -> _Run:
        """The run of this key: the known one, hung below ``parent`` if that was made anew, or a new one."""
        tree = self._trees[study]
        run = tree.runs.get(key)
        if run is None:
            tags = {
                **tags,
                "adaptbin.kind": kind,
                "adaptbin.key": key,
                "adaptbin.study": study.key,
                "mlflow.user": getpass.getuser(),
                **({"mlflow.parentRunId": parent.id} if parent else {}),
            }
            created = self._client.create_run(tree.experiment_id, start_time=start, tags=tags, run_name=name)
            run = tree.runs[key] = _Run(created.info.run_id, kind, parent=parent.id if parent else None)
            self._log(run, params={name: str(value) for name, value in params.items()})
        elif parent is not None and run.parent != parent.id:
            self._client.set_tag(run.id, "mlflow.parentRunId", parent.id)
            run.parent = parent.id
        return run

    def _write_replica(
        self,
        study: StudyRun,
        point_key: str,
        point_name: str,
        point_params: dict[str, Any],
        panel: str | None,
        record: Mapping[str, Any],
    ) -> None:
        tree = self._trees[study]
        start, end = _interval(record)
        tags = point_tags(study.dataset, panel, None if panel is None else point_params.get(panel))
        parent = tree.runs[f"study:{study.key}"]
        point = self._ensure(study, f"point:{point_key}", "point", point_name, point_params, tags, parent, start)
        point.end = max(point.end, end)
        key, digest = f"replica:{point_key}:{record['id']}", _digest(record)
        known = tree.runs.get(key)
        if known is not None and (known.digest != digest or known.status == "RUNNING"):
            # Half-written, or trained again: metrics can only be appended, so the old run makes way.
            self._client.delete_run(known.id)
            del tree.runs[key]
        is_new = key not in tree.runs
        identity = record["identity"]
        tags |= {"adaptbin.seed": str(identity["seed"]), "adaptbin.status": record["status"]}
        run = self._ensure(study, key, "replica", f"{point_name} seed {identity['seed']}", {}, tags, point, start)
        if not is_new:
            return
        self._set_running(point)
        last_epoch = max([1, *record.get("curves", {}).get("epoch", ())])
        numbers = [(name, 0, value, end) for name, value in replica_scalars(record).items()]
        numbers += [
            (name, epoch, value, start + (end - start) * epoch // last_epoch)
            for name, epoch, value in replica_curves(record)
        ]
        self._log(run, numbers, replica_params(identity), {"adaptbin.digest": digest, **_runtime_tags(record)})
        run.digest = digest
        self._end(run, "FINISHED" if record["status"] == "finished" else "FAILED", end)

    def _write_point(self, study: StudyRun, point_key: str, summary: dict[str, Any]) -> None:
        point = self._trees[study].runs[f"point:{point_key}"]
        self._log_changed(point, summary)
        self._log(point, tags={f"adaptbin.{key}": value for key, value in summary.items() if isinstance(value, str)})
        if point.status != "FINISHED":
            self._end(point, "FINISHED", point.end)

    def _finish_study(self, study: StudyRun, artifacts: tuple[Path, ...], status: Status) -> None:
        tree = self._trees[study]
        run = tree.runs[f"study:{study.key}"]
        replicas = [known for known in tree.runs.values() if known.kind == "replica"]
        points = [known for known in tree.runs.values() if known.kind == "point"]
        diverged = sum(known.status == "FAILED" for known in replicas)
        self._log_changed(run, {"points": len(points), "replicas": len(replicas), "diverged": diverged})
        for point in points:
            if point.status == "RUNNING":
                self._end(point, status, point.end)
        tree.open = False
        self._end(run, status)
        root = self._store.artifact_root
        if artifacts and root is not None and tree.artifacts != f"{root}/{study.dataset}":
            raise ConfigError(
                f"experiment {study.experiment} keeps its artifacts in {tree.artifacts}, not in {root}/{study.dataset} "
                "(was the folder moved?); figure and tables were not uploaded"
            )
        for path in artifacts:
            self._client.log_artifact(run.id, str(path))

    def _end_unfinished(self) -> None:
        for study, tree in self._trees.items():
            if tree.open:
                self._finish_study(study, (), "KILLED")

    def _set_running(self, run: _Run) -> None:
        if run.status != "RUNNING":
            self._client.update_run(run.id, status="RUNNING")
            run.status = "RUNNING"

    def _end(self, run: _Run, status: str, end: int | None = None) -> None:
        self._client.set_terminated(run.id, status, end)
        run.status = status

    def _log_changed(self, run: _Run, numbers: Mapping[str, Any]) -> None:
        """Append those numbers that differ from what the run shows."""
        now = int(1000 * time.time())
        changed = {key: value for key, value in _finite(numbers).items() if run.metrics.get(key) != value}
        self._log(run, [(key, 0, value, now) for key, value in changed.items()])
        run.metrics.update(changed)

    def _log(
        self,
        run: _Run,
        numbers: Sequence[tuple[str, int, float, int]] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Write numbers (name, step, value, ms since 1970), parameters and tags; tags with the last batch."""
        from mlflow.entities import Metric, Param, RunTag

        metrics = [Metric(name, value, when, step) for name, step, value, when in numbers]
        batches = [metrics[i : i + METRICS_PER_BATCH] for i in range(0, len(metrics), METRICS_PER_BATCH)] or [[]]
        # 1000 entities of all kinds together is another limit of a batch, so parameters travel alone.
        self._client.log_batch(run.id, params=[Param(key, value) for key, value in (params or {}).items()])
        for batch in batches:
            self._client.log_batch(run.id, metrics=batch)
        self._client.log_batch(run.id, tags=[RunTag(key, value) for key, value in (tags or {}).items()])


def _digest(record: Mapping[str, Any]) -> str:
    text = json.dumps([PROJECTION_VERSION, record], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _runtime_tags(record: Mapping[str, Any]) -> dict[str, str]:
    runtime = record.get("runtime", {})
    tags = {f"adaptbin.{key}": runtime.get(key) for key in ("device", "pack_size")}
    tags |= {"adaptbin.diverged_at": record.get("diverged_at"), "mlflow.source.git.commit": runtime.get("git", {}).get("sha")}
    return {key: str(value) for key, value in tags.items() if value is not None}


def _reason(error: Exception) -> str:
    first_line = (str(error).strip().splitlines() or [""])[0][:300].rstrip(". ")
    return f"{type(error).__name__}: {first_line}"


@contextmanager
def _connection(store: Store) -> Iterator[Any]:
    """MlflowClient of a store, created if need be, with its loggers silent; SQLite made fast while it lasts."""
    from mlflow import MlflowClient

    loggers = {name: logging.getLogger(name) for name in _CHATTY_LOGGERS}
    levels = {name: logger.level for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.setLevel(logging.CRITICAL + 1)
    try:
        if store.tracking_uri.startswith(("http://", "https://")) or store.artifact_root is None:
            yield MlflowClient(store.tracking_uri)
            return
        path = _sqlite_path(store.tracking_uri)
        with _quick_sqlite(path, store) if path else _nothing():
            yield MlflowClient(store.tracking_uri)
    finally:
        for name, level in levels.items():
            loggers[name].setLevel(level)
