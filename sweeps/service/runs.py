"""The tree of MLflow runs of one study, study → points → replicas, and how it is brought in line with the records.

Every run carries the tag ``adaptbin.key``; a run that is there already is found by it, and written again only if it
differs.  Knows MLflow's rules but not mlflow itself: the client comes from :mod:`sweeps.service.tracking`.
"""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from adaptbin.errors import ConfigError
from sweeps.service import projection
from sweeps.service.reconcile import OUTPUT_TAG

Status = Literal["FINISHED", "FAILED", "KILLED"]
Number = tuple[str, int, float, int]
"""Name, step, value, ms since 1970."""


@dataclass(frozen=True)
class StudyRun:
    """Handle of a study of one data set."""

    dataset: str
    key: str
    """Hash of all that its replicas share."""
    default: tuple[tuple[str, Any], ...]
    """Settings of the default point, as sorted items."""
    moved: tuple[str, ...] = ()
    """What points differ in besides hyperparameters; see :func:`sweeps.service.projection.point_settings`."""

    @property
    def experiment(self) -> str:
        """Name of the MLflow experiment."""
        return f"adaptbin/{self.dataset}"


@dataclass
class Run:
    """What is known of a run that is in the store."""

    id: str
    kind: str
    status: str = "RUNNING"
    parent: str | None = None
    digest: str | None = None
    params: set[str] = field(default_factory=set)
    metrics: dict[str, float] = field(default_factory=dict)


class Client(Protocol):
    """What a tree asks of a store; ids are MLflow's."""

    def experiment(self, name: str, artifacts: str | None) -> tuple[str, str]:
        """Id and artifact location of the experiment, which is made (there) or brought back if need be."""

    def runs(self, experiment: str, study: str) -> Iterable[tuple[str, Run]]:
        """``adaptbin.key`` and run of all runs whose ``adaptbin.study`` is ``study``."""

    def create(self, experiment: str, name: str, tags: Mapping[str, str], start: int | None) -> str:
        """Id of a new, running run."""

    def log(self, run: str, numbers: Sequence[Number], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Append numbers, add parameters, set tags, the tags last."""

    def set_status(self, run: str, status: str, end: int | None = None) -> None:
        """Set the status; any but RUNNING ends the run, by default now."""

    def delete(self, run: str) -> None:
        """Take a run out of all views."""

    def upload(self, run: str, path: Path) -> None:
        """Put a file among the run's artifacts, in place of one of the same name."""


_HOW_TO_READ = """

Sorted by *Created* the list is a tree: study, points, replicas; in any other order it is flat.
``tags.`adaptbin.kind` = 'point'`` in its search field leaves one row per point, with mean, sd and interval over seeds;
`adaptbin.panel`, `adaptbin.value`, `adaptbin.seed` and `adaptbin.status` can be asked for in the same way.
"""


class RunTree:
    """All runs of one study; opening it makes or finds the study's own run and marks it as running."""

    def __init__(
        self,
        client: Client,
        study: StudyRun,
        artifacts: str | None,
        name: str,
        settings: Mapping[str, Any],
        output: str,
    ) -> None:
        self._client = client
        self._study = study
        self._output = output
        self._wanted = artifacts
        self.experiment, self._artifacts = client.experiment(study.experiment, artifacts)
        self._runs: dict[str, Run] = {}
        for key, run in client.runs(self.experiment, study.key):
            # Twice the same key: bringing back an experiment brings back the runs that were replaced in it.
            if self._runs.setdefault(key, run) is not run:
                client.delete(run.id)
        title = f"{name} {study.dataset}"
        self._root = self._ensure(f"study:{study.key}", "study", title, {}, projection.flat_params(settings))
        self._set_running(self._root)

    def describe(self, note: str, tags: Mapping[str, Any]) -> None:
        """Set the Markdown note and the tags of the study's run."""
        note = note.strip() + _HOW_TO_READ
        told = {key: str(value) for key, value in tags.items()}
        # The output folder that has it run may be another than the one that made it.
        self._log(self._root, tags=told | {"mlflow.note.content": note, OUTPUT_TAG: self._output})

    def make_points(self, points: Sequence[Mapping[str, Any]], unfinished: Sequence[Mapping[str, Any]] = ()) -> None:
        """Make the runs of points that have none yet, so that the interface lists them in this order.

        Those ``unfinished``, with replicas still to come, are marked as running, whatever they were.
        """
        now = int(1000 * time.time())
        # It lists by time of creation, the latest first.
        for later, settings in enumerate(reversed(points)):
            _, point = self._point(settings, now + later)
            if settings in unfinished:
                self._set_running(point)

    def write_replica(self, record: Mapping[str, Any]) -> None:
        """Write a record as a run below its point's, unless that very record is there."""
        identity = record["identity"]
        start, end = projection.interval(record)
        what, point = self._point(projection.point_settings(identity, self._study.moved), start)
        key, digest = f"replica:{record['id']}", projection.digest(record)
        status: Status = "FINISHED" if record["status"] == "finished" else "FAILED"
        known = self._runs.get(key)
        if known is not None and known.digest != digest:
            # Half-written, or trained again: metrics can only be appended, so the old run makes way.
            self._client.delete(known.id)
            del self._runs[key]
            known = None
        name, tags = f"seed {identity['seed']}, {what.name}", what.tags | projection.replica_tags(record)
        run = self._ensure(key, "replica", name, tags, {}, point, start)
        if known is not None:
            if known.status != status:  # cut short between the last write and the end, and set as killed since
                self._end(known, status, end)
            return
        self._set_running(point)
        curves = projection.replica_curves(record)
        last = max([1, *(epoch for _, epoch, _ in curves)])
        numbers = [(name, 0, value, end) for name, value in projection.replica_scalars(record).items()]
        numbers += [(name, epoch, value, start + (end - start) * epoch // last) for name, epoch, value in curves]
        # The digest goes in last: a run without it was cut short, and is written anew.
        self._log(run, numbers, projection.flat_params(identity), {"adaptbin.digest": digest})
        run.digest = digest
        self._end(run, status, end)

    def write_point(self, settings: Mapping[str, Any], summary: Mapping[str, Any], status: Status = "FINISHED") -> None:
        """Write a point's aggregate, and end its run."""
        _, point = self._point(settings)
        self._log_changed(point, summary)
        self._log(point, tags={f"adaptbin.{key}": value for key, value in summary.items() if isinstance(value, str)})
        if point.status != status:
            self._end(point, status)

    def finish(self, artifacts: Iterable[Path], status: Status, missing: int | None = None) -> None:
        """Count, end the study's run and the points still running, and upload files to the study's run.

        ``missing`` is how many of the replicas asked for have no result; None where nobody counted.
        Raises ConfigError when the experiment's artifacts belong elsewhere: the folder of a store cannot be changed.
        """
        points, replicas = ([run for run in self._runs.values() if run.kind == kind] for kind in ("point", "replica"))
        diverged = sum(replica.status == "FAILED" for replica in replicas)
        counts = {"points": len(points), "replicas": len(replicas), "diverged": diverged}
        self._log_changed(self._root, counts if missing is None else counts | {"missing": missing})
        for point in points:
            # Nobody gave it an aggregate: a point that the study lost on the way, or never got to.
            if point.status == "RUNNING":
                self._end(point, "KILLED" if status == "FINISHED" else status)
        self._end(self._root, status)
        for path in artifacts:
            if self._wanted not in (None, self._artifacts):
                raise ConfigError(
                    f"experiment {self._study.experiment} keeps its artifacts in {self._artifacts}, not in "
                    f"{self._wanted} (do several folders log to this database?); {path.name} was not uploaded"
                )
            self._client.upload(self._root.id, path)

    def _point(self, settings: Mapping[str, Any], start: int | None = None) -> tuple[projection.PointRun, Run]:
        what = projection.describe_point(settings, dict(self._study.default))
        params = projection.flat_params(settings)
        return what, self._ensure(f"point:{what.key}", "point", what.name, what.tags, params, self._root, start)

    def _ensure(
        self,
        key: str,
        kind: str,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        parent: Run | None = None,
        start: int | None = None,
    ) -> Run:
        """The run of this key, made if it is not there, hung below ``parent``, with all its parameters."""
        run = self._runs.get(key)
        above = {} if parent is None else {"mlflow.parentRunId": parent.id}
        if run is None:
            tags = {
                **tags,
                **above,
                "adaptbin.dataset": self._study.dataset,
                "adaptbin.kind": kind,
                "adaptbin.key": key,
                "adaptbin.study": self._study.key,
                OUTPUT_TAG: self._output,
                "mlflow.source.name": Path(sys.argv[0]).name,
                "mlflow.user": _user(),
            }
            run = Run(self._client.create(self.experiment, name, tags, start), kind)
            self._runs[key] = run
        elif parent is not None and run.parent != parent.id:
            # The parent was deleted by hand and made anew.
            self._log(run, tags=above)
        run.parent = None if parent is None else parent.id
        # Parameters can be added but never changed; a run cut short right after its creation lacks them.
        missing = {key: value for key, value in params.items() if key not in run.params}
        self._log(run, params=missing)
        run.params |= set(missing)
        return run

    def _set_running(self, run: Run) -> None:
        if run.status != "RUNNING":
            self._client.set_status(run.id, "RUNNING")
            run.status = "RUNNING"

    def _end(self, run: Run, status: Status, end: int | None = None) -> None:
        self._client.set_status(run.id, status, end)
        run.status = status

    def _log_changed(self, run: Run, numbers: Mapping[str, Any]) -> None:
        """Append those numbers that differ from what the run shows: of one step, the newest is shown."""
        now = int(1000 * time.time())
        changed = {key: value for key, value in projection.finite(numbers).items() if run.metrics.get(key) != value}
        self._log(run, [(key, 0, value, now) for key, value in changed.items()])
        run.metrics |= changed

    def _log(
        self,
        run: Run,
        numbers: Sequence[Number] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        if numbers or params or tags:
            self._client.log(run.id, numbers, params or {}, tags or {})


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user number without a name
        return "unknown"
