"""A study of made-up records in MLflow, as a sweep logs it, and how to look at what became of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from sweeps.service.runs import StudyRun
from sweeps.service.stores import Store
from sweeps.service.tracker import Tracker
from tests.service.records import DEFAULT, PATIENCE, TAU, make_record

POINTS = (DEFAULT, TAU, PATIENCE)
SUMMARY = {"metric": "qwk", "test_mean": 0.9, "test_sd": float("nan"), "n": 2, "diverged": 0}


def records(seeds: int = 2) -> list[dict[str, Any]]:
    """One record per point and seed."""
    return [make_record(point, seed) for seed in range(seeds) for point in POINTS]


def project(store: Store, found: list[dict[str, Any]], artifacts: tuple[Path, ...] = (), **options: Any) -> list[str]:
    """Project as a sweep does; the problems that were reported."""
    problems: list[str] = []
    with Tracker(store, on_problem=problems.append, **options) as tracker:
        study = begin(tracker, found)
        for record in found:
            tracker.replica(study, partial(dict, record))
        for point in POINTS:
            tracker.point(study, point.to_dict(), SUMMARY)
        tracker.finish(study, artifacts)
    return problems


def begin(tracker: Tracker, found: list[dict[str, Any]]) -> StudyRun:
    """Open the study of these records."""
    return tracker.study(
        "sensitivity",
        found[0]["identity"],
        DEFAULT.to_dict(),
        points=[point.to_dict() for point in POINTS],
        note="**Three points** of `eol`.",
        tags={"adaptbin.seeds": len({record["identity"]["seed"] for record in found})},
    )


@dataclass
class Seen:
    """What a store shows of ``adaptbin/eol``."""

    runs: dict[str, Any] = field(default_factory=dict)
    """adaptbin.key (where several studies have one, from the second on the run's id) -> mlflow run."""
    children: dict[str, list[str]] = field(default_factory=dict)
    """Run name -> names of the runs right below it, as listed: the latest first."""

    def of_kind(self, kind: str) -> list[Any]:
        return [run for run in self.runs.values() if run.data.tags["adaptbin.kind"] == kind]

    def named(self, name: str) -> Any:
        (run,) = (run for run in self.runs.values() if run.info.run_name == name)
        return run


def look(store: Store) -> Seen:
    """Read a store through MLflow's own client; no two runs may be the same."""
    client = MlflowClient(store.tracking_uri)
    experiment = client.get_experiment_by_name("adaptbin/eol")
    listed = client.search_runs([experiment.experiment_id], max_results=1000)
    keys = {(run.data.tags["adaptbin.study"], run.data.tags["adaptbin.key"]) for run in listed}
    assert len(keys) == len(listed), "two runs with one key"
    seen = Seen()
    for run in listed:
        key = run.data.tags["adaptbin.key"]
        seen.runs[run.info.run_id if key in seen.runs else key] = run
    names = {run.info.run_id: run.info.run_name for run in listed}
    for run in listed:
        parent = names.get(run.data.tags.get("mlflow.parentRunId"), "")
        seen.children.setdefault(parent, []).append(run.info.run_name)
    return seen


def count_rows(store: Store) -> tuple[int, ...]:
    """Numbers, parameters and runs in a SQLite store, deleted ones too."""
    with closing(sqlite3.connect(store.database)) as connection:
        return tuple(
            connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("metrics", "params", "runs")
        )


def wait_for(ready: Callable[[], Any], seconds: float = 30.0) -> None:
    """Return once ``ready`` says so."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@contextmanager
def interface(command: list[str], folder: Path) -> Iterator[str]:
    """Address where an MLflow interface, run in ``folder``, will answer as long as the context is open."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    server = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
        cwd=folder,
        env=os.environ
        | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(5)
        except subprocess.TimeoutExpired:  # it waits for connections that a client of this process keeps
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=30
    ) as answer:
        return json.loads(answer.read())
