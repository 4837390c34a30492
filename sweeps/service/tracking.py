"""The door to MLflow: a connection to a store, and what a tree of runs asks of it.  The only importer of mlflow.

Leans on MLflow 3.17: a batch holds at most 1000 metrics, 100 parameters and 100 tags, and 1000 of all together; texts
have greatest lengths; a page of a search holds 1000 runs; parameters cannot be changed; metrics are only appended, and
of those with the highest step the newest is shown.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from adaptbin.errors import ConfigError
from sweeps.service.reconcile import kill_left_running, move_artifacts
from sweeps.service.runs import Number, Run
from sweeps.service.stores import Store, without_password

_ENTITIES_PER_BATCH = 1000
_METRICS_PER_BATCH = 1000
_TEXTS_PER_BATCH = 100
_RUNS_PER_PAGE = 1000

# Longer ones would be refused, or cut, or, a run's name, let through by SQLite and refused by PostgreSQL.
_NAME_LENGTH = 250
_PARAM_LENGTH = 6000
_TAG_LENGTH = 8000

# Read by mlflow and libpq at every call.  Ten seconds: a server that is away must not hold up the end of a sweep.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "PGCONNECT_TIMEOUT": "10",
}
# Whatever the user set: a request whose answer was lost and that is blindly sent again makes a second run.
_ENFORCED = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
_CHATTY_LOGGERS = ("mlflow", "alembic", "sqlalchemy", "urllib3")

_REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST"}
"""Codes of MLflow's errors that the request itself is to blame for."""


@contextmanager
def environment() -> Iterator[None]:
    """Set what mlflow reads from the environment, and put it back; to be entered by the thread that starts others."""
    before = {key: os.environ.get(key) for key in (*_ENVIRONMENT, *_ENFORCED)}
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    os.environ.update(_ENFORCED)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = old


@contextmanager
def connected(store: Store, tell: Callable[[str], None]) -> Iterator[_MlflowClient]:
    """Make the store if need be and connect.  MLflow's loggers are silent meanwhile: what matters is raised or told.

    Raises ConfigError where nothing can be logged at all, and whatever mlflow, SQLAlchemy or a driver raise.
    """
    if store.problem is not None:
        raise ConfigError(store.problem)
    from mlflow import MlflowClient

    loggers = [logging.getLogger(name) for name in _CHATTY_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        if store.is_server:
            yield _MlflowClient(MlflowClient(store.tracking_uri))
        else:
            with _database(store, tell):
                yield _MlflowClient(MlflowClient(store.tracking_uri))
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def is_refusal(error: Exception) -> bool:
    """Whether an error of a write is the write's own fault, and no matter of the store being away."""
    own = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
    return isinstance(error, own) or getattr(error, "error_code", None) in _REFUSALS


def reason(store: Store, error: Exception) -> str:
    """What went wrong, in one line and without the password of a server; for an old schema what to do about it."""
    if isinstance(error, ConfigError):
        return str(error)
    if "out-of-date database schema" in str(error):
        return (
            "the database was made by another version of MLflow; make a copy of it, then run "
            f"`mlflow db upgrade {without_password(store.tracking_uri)}`"
        )
    # SQLAlchemy begins with where in its work an error came up.
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("(raised as a result of")]
    first_line = (lines or [""])[0]
    text = f"{type(error).__name__}: {first_line[:300].rstrip('. ')}"
    password = urlsplit(store.tracking_uri).password
    return text.replace(password, "***") if password else text


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

    def kill_left_running(self, output: str, *, is_own: bool) -> int:
        """See :func:`sweeps.service.reconcile.kill_left_running`."""
        return kill_left_running(self._client, output, is_own=is_own)


@contextmanager
def _database(store: Store, tell: Callable[[str], None]) -> Iterator[None]:
    """Make a database ready for the client, which takes the engine from MLflow's own table of them."""
    import sqlalchemy
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import event

    path = store.database
    relaxed = path is not None and _prepare_sqlite(store, path, tell)
    if path is None:
        # Asked once and at once: MLflow itself would ask for two minutes.
        probe = sqlalchemy.create_engine(store.tracking_uri)
        with closing(probe.connect()):
            pass
        probe.dispose()
    # Made here and not by the client, which would put the default experiment's artifacts into the working directory.
    engine = SqlAlchemyStore(store.tracking_uri, store.artifact_root).engine  # type: ignore[no-untyped-call]
    engine.dispose()
    if relaxed:
        event.listen(engine, "connect", _relax)
    try:
        yield
    finally:
        if relaxed:
            event.remove(engine, "connect", _relax)
        engine.dispose()


def _prepare_sqlite(store: Store, path: Path, tell: Callable[[str], None]) -> bool:
    """Let a SQLite file write ahead, if it can: less waiting for the disk, and pages being read block nothing.

    ``synchronous=NORMAL`` may lose the last runs on a power cut, never the database; a rebuild brings them back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=20.0)) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if store.is_own and store.artifact_root is not None:
            for name, old in move_artifacts(connection, store.artifact_root):
                tell(
                    f"the folder was moved: artifacts of {name} are now looked for in {store.artifact_root}, not {old}"
                )
    return bool(mode == "wal")


def _relax(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")
