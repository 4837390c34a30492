"""Result records as MLflow runs, written beside the sweep.  The only importer of mlflow.

A projection, not a store: the results files stay the truth, and projecting them again changes nothing.
Leans on MLflow 3.17: a batch holds at most 1000 metrics, 100 parameters and 100 tags, and 1000 of all together; texts
have greatest lengths; a page of a search holds 1000 runs; parameters cannot be changed; metrics are only appended, and
of those with the highest step the newest is shown.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from adaptbin.errors import ConfigError
from sweeps.service import projection
from sweeps.service.runs import Number, Run, RunTree, Status, StudyRun
from sweeps.service.stores import Store, resolve_store
from sweeps.service.writer import BackgroundWriter

__all__ = ["Store", "StudyRun", "Tracker", "resolve_store"]

_ENTITIES_PER_BATCH = 1000
_METRICS_PER_BATCH = 1000
_TEXTS_PER_BATCH = 100
_RUNS_PER_PAGE = 1000

# Longer ones would be refused, or cut, or, a run's name, let through by SQLite and refused by PostgreSQL.
_NAME_LENGTH = 250
_PARAM_LENGTH = 6000
_TAG_LENGTH = 8000

# Read by mlflow at every call.  One retry and ten seconds: a server that is away must not hold up the end of a sweep.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_CHATTY_LOGGERS = ("mlflow", "alembic", "sqlalchemy", "urllib3")

# Left alone, the interface opens on its pages for chat bots, and lists the newest hundred runs, all replicas.  This
# opens it on the study and its points; clearing the search shows the rest.
_VIEW = f"workflowType=machine_learning&searchFilter={quote('tags.`adaptbin.kind` != ' + repr('replica'))}"


class Tracker:
    """Context manager that projects records into MLflow from one writer thread, and never raises into training.

    Calls queue and return at once.  The first thing that goes wrong is reported through ``on_problem``, once, from the
    writer thread; the next ``--rebuild`` repairs what is missing.  MLflow's own globals (active run, tracking URI) are
    never touched, and the environment is as before on exit.
    """

    def __init__(self, store: Store, *, on_problem: Callable[[str], None], patience_seconds: float = 60.0) -> None:
        self._store = store
        self._on_problem = on_problem
        self._patience_seconds = patience_seconds
        self._reported = False
        self._environment: dict[str, str | None] = {}
        self._client: _MlflowClient
        self._trees: dict[StudyRun, RunTree] = {}
        self._writer = BackgroundWriter(self._connected(), self._report, name="mlflow-writer")

    def __enter__(self) -> Self:
        # Set and restored in the caller's thread: a change from the writer could meet a copy being made of it.
        self._environment = {key: os.environ.get(key) for key in _ENVIRONMENT}
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End unfinished studies as killed, write what is queued, and stop.

        Gives up when nothing gets written for ``patience_seconds``.
        """
        try:
            self._writer.put(self._kill_unfinished)
            if not self._writer.close(self._patience_seconds):
                self._report(TimeoutError(f"stopped waiting: nothing was written for {self._patience_seconds:g} s"))
        finally:
            for key, value in self._environment.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value

    def study(
        self,
        name: str,
        identity: Mapping[str, Any],
        default: Mapping[str, Any],
        *,
        points: Sequence[Mapping[str, Any]],
        note: str,
        tags: Mapping[str, Any] | None = None,
    ) -> StudyRun:
        """Open or continue a study of one data set, and mark its run as running.

        Args:
            name: What kind of study, as "sensitivity"; the run is called "sensitivity eol".
            identity: ``Replica.identity()`` of any replica of the study.  All of it but seed and hyperparameters
                decides, with ``name`` and ``default``, which tree this is: more seeds or panels join the same one.
            default: Hyperparameters of the default point.
            points: Hyperparameters of the points to come, in the order to list them in.
            note: Markdown shown on the run's page; replaced each time.
            tags: What may differ from one invocation to the next (seeds, panels); replaced each time.
        """
        settings = projection.study_settings(identity, default)
        key = projection.content_hash([name, settings])
        study = StudyRun(identity["dataset"], key, tuple(sorted(default.items())))
        self._writer.put(partial(self._open_study, study, name, settings, list(points), note, dict(tags or {})))
        return study

    def page(self, study: StudyRun) -> str | None:
        """What to append to the interface's address to see the study's runs; None until they are there."""
        tree = self._trees.get(study)
        return None if tree is None else f"/#/experiments/{tree.experiment}/runs?{_VIEW}"

    def replica(self, study: StudyRun, record: Mapping[str, Any]) -> None:
        """Write one result record as a run below its point's.

        The record is read later, in another thread: it must not be changed any more.
        """
        self._writer.put(lambda: self._trees[study].write_replica(record))

    def point(self, study: StudyRun, hyperparameters: Mapping[str, Any], summary: Mapping[str, Any]) -> None:
        """Write the aggregate of one point, and mark its run as finished.

        ``summary``: numbers become metrics (test_mean, test_sd, test_low, test_high, val_mean, n, diverged; what is not
        finite is left out), texts become tags (``metric``: which score it is).
        """
        hyperparameters, summary = dict(hyperparameters), dict(summary)
        self._writer.put(lambda: self._trees[study].write_point(hyperparameters, summary))

    def finish(self, study: StudyRun, artifacts: Iterable[Path], status: Status = "FINISHED") -> None:
        """Upload files to the study's run (same names are overwritten); end it and the points still running."""
        files = tuple(artifacts)
        self._writer.put(lambda: self._trees[study].finish(files, status))

    # ---------------------------------------------------------------- from here on: the writer thread

    def _open_study(
        self,
        study: StudyRun,
        name: str,
        settings: Mapping[str, Any],
        points: Sequence[Mapping[str, Any]],
        note: str,
        tags: Mapping[str, Any],
    ) -> None:
        root = self._store.artifact_root
        artifacts = None if root is None else f"{root}/{study.dataset}"
        tree = self._trees[study] = RunTree(self._client, study, artifacts, name, settings)
        tree.describe(note, tags)
        tree.make_points(points)

    def _kill_unfinished(self) -> None:
        for tree in self._trees.values():
            if tree.is_open:
                tree.finish((), "KILLED")

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Make the store if need be and connect.  MLflow's loggers are silent meanwhile: what matters is reported."""
        if self._store.problem is not None:
            raise ConfigError(self._store.problem)
        from mlflow import MlflowClient

        loggers = [logging.getLogger(name) for name in _CHATTY_LOGGERS]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            database = self._store.database
            with nullcontext() if database is None else _quick_sqlite(self._store, database):
                self._client = _MlflowClient(MlflowClient(self._store.tracking_uri))
                yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

    def _report(self, error: Exception) -> None:
        if not self._reported:
            self._reported = True
            self._on_problem(_message(self._store, error))


class _MlflowClient:
    """:class:`sweeps.service.runs.Client` on mlflow's own client."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def experiment(self, name: str, artifacts: str | None) -> tuple[str, str]:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            # Else the interface asks what the experiment is for.
            tags = {"mlflow.experimentKind": "custom_model_development"}
            found = self._client.get_experiment(self._client.create_experiment(name, artifacts, tags))
        elif found.lifecycle_stage == "deleted":
            # Its name stays taken: the only way to log under it is to bring it back.
            self._client.restore_experiment(found.experiment_id)
        return found.experiment_id, found.artifact_location

    def runs(self, experiment: str, study: str) -> Iterator[tuple[str, Run]]:
        wanted, token = f"tags.`adaptbin.study` = '{study}'", None
        while True:
            page = self._client.search_runs([experiment], wanted, max_results=_RUNS_PER_PAGE, page_token=token)
            for found in page:
                tags, kind = found.data.tags, found.data.tags["adaptbin.kind"]
                run = Run(found.info.run_id, kind, found.info.status, tags.get("mlflow.parentRunId"))
                if kind == "replica":
                    # All or nothing, by its digest; there are thousands of them.
                    run.digest = tags.get("adaptbin.digest")
                else:
                    run.params, run.metrics = set(found.data.params), dict(found.data.metrics)
                yield tags["adaptbin.key"], run
            token = page.token
            if not token:
                return

    def create(self, experiment: str, name: str, tags: Mapping[str, str], start: int | None) -> str:
        labels = {key: value[:_TAG_LENGTH] for key, value in tags.items()}
        created = self._client.create_run(experiment, start_time=start, tags=labels, run_name=name[:_NAME_LENGTH])
        return str(created.info.run_id)

    def log(self, run: str, numbers: Sequence[Number], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        metrics = [Metric(name, value, when, step) for name, step, value, when in numbers]
        settings = [Param(key, value[:_PARAM_LENGTH]) for key, value in params.items()]
        labels = [RunTag(key, value[:_TAG_LENGTH]) for key, value in tags.items()]
        # One call, if the rules allow it: most of its time does not depend on how much it carries.  Else in this order,
        # and not as mlflow itself would split it: the last tag says that all the rest is there.
        batch: tuple[list[Any], ...] = ([], [], [])
        limited: list[tuple[list[Any], int]] = [(metrics, _METRICS_PER_BATCH)]
        limited += [(settings, _TEXTS_PER_BATCH), (labels, _TEXTS_PER_BATCH)]
        for part, (entities, limit) in enumerate(limited):
            for entity in entities:
                if len(batch[part]) == limit or sum(map(len, batch)) == _ENTITIES_PER_BATCH:
                    self._client.log_batch(run, *batch)
                    batch = ([], [], [])
                batch[part].append(entity)
        self._client.log_batch(run, *batch)

    def set_status(self, run: str, status: str, end: int | None = None) -> None:
        if status == "RUNNING":
            self._client.update_run(run, status=status)
        else:
            self._client.set_terminated(run, status, end)

    def delete(self, run: str) -> None:
        self._client.delete_run(run)

    def upload(self, run: str, path: Path) -> None:
        self._client.log_artifact(run, str(path))


@contextmanager
def _quick_sqlite(store: Store, database: Path) -> Iterator[None]:
    """Make a SQLite store, and let it write ahead: less waiting for the disk, and pages being read block nothing.

    ``synchronous=NORMAL`` may lose the last runs on a power cut, never the database; a rebuild brings them back.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import event

    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database, timeout=20.0)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    # Made here and not by the client, which would put the default experiment's artifacts into the working directory.
    # The client takes the engine from MLflow's own table of them, with what is set on it.
    engine = SqlAlchemyStore(store.tracking_uri, store.artifact_root).engine  # type: ignore[no-untyped-call]
    engine.dispose()
    if mode == "wal":
        event.listen(engine, "connect", _relax)
    try:
        yield
    finally:
        if mode == "wal":
            event.remove(engine, "connect", _relax)
        engine.dispose()


def _relax(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


def _message(store: Store, error: Exception) -> str:
    """What went wrong, where, what it means, what to do; without the password of a server."""
    if isinstance(error, ConfigError):
        reason = str(error)
    else:
        first_line = (str(error).strip().splitlines() or [""])[0]
        reason = f"{type(error).__name__}: {first_line[:300].rstrip('. ')}"
    password = urlsplit(store.tracking_uri).password
    text = (
        f"MLflow at {store.tracking_uri}: {reason}. Training and results files are not affected; "
        "run again with --rebuild to bring MLflow up to date"
    )
    return text.replace(password, "***") if password else text
