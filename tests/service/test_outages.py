"""SQLite databases that are locked, old or none at all, and what a killed run left: told, waited for, put right."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from functools import partial

import mlflow
import pytest
from mlflow import MlflowClient

from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker
from tests.service.records import DEFAULT, make_record
from tests.service.tracked import POINTS, SUMMARY, begin, look, project, records, wait_for

pytestmark = [
    pytest.mark.usefixtures("quick"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"),
]


def log(tracker: Tracker, study, found) -> None:
    for record in found:
        tracker.replica(study, partial(dict, record))
    for point in POINTS:
        tracker.point(study, point.to_dict(), SUMMARY)
    tracker.finish(study, ())


@pytest.mark.slow
def test_a_locked_database_is_waited_for(store):
    """Database is locked: longer than MLflow and SQLite themselves wait."""
    problems: list[str] = []
    found = records()
    with closing(sqlite3.connect(store.database)) as other, Tracker(store, on_problem=problems.append) as tracker:
        study = begin(tracker, found)
        wait_for(lambda: tracker._written["studies"])
        other.execute("BEGIN EXCLUSIVE")
        tracker.replica(study, partial(dict, found[0]))
        wait_for(lambda: problems, 60.0)  # 20 s, the patience that MLflow asks of SQLite
        other.rollback()
        log(tracker, study, found[1:])
    failing, recovered = problems
    assert "database is locked" in failing
    assert recovered.endswith("there again; what was held back is being written")
    assert len(look(store).of_kind("replica")) == len(found)
    assert {run.info.status for run in look(store).runs.values()} == {"FINISHED"}


def test_an_old_schema_is_told_with_what_to_do_about_it(store):
    with closing(sqlite3.connect(store.database)) as database, database:
        (newest,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
        database.execute("UPDATE alembic_version SET version_num = '728d730b5ebd'")
    problems: list[str] = []
    with Tracker(store, on_problem=problems.append) as tracker:
        study = begin(tracker, records())
        wait_for(lambda: problems)
        # Put right while the sweep goes on.
        with closing(sqlite3.connect(store.database)) as database, database:
            database.execute("UPDATE alembic_version SET version_num = ?", (newest,))
        log(tracker, study, records())
    failing, _ = problems
    assert f"run `mlflow db upgrade {store.tracking_uri}`" in failing
    assert len(look(store).of_kind("replica")) == 6


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path):
    file = tmp_path / "out" / "mlflow.db"
    file.parent.mkdir()
    file.write_text("my notes, and more than a hundred bytes of them; " * 10)
    before = file.read_bytes()
    *_, problem = project(resolve_store(tmp_path / "out", tmp_path), records())
    assert f"MLflow at sqlite:///{file}: DatabaseError: file is not a database; not written: 1 of 1 studies" in problem
    assert file.read_bytes() == before


def test_a_store_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    *_, problem = project(resolve_store(tmp_path / "file", tmp_path), records())
    assert problem.startswith(f"MLflow at sqlite:///{tmp_path}/file/mlflow.db: ")
    assert "6 of 6 replicas" in problem
    *_, problem = project(resolve_store(tmp_path / "other", tmp_path, "mssql://127.0.0.1/runs"), records())
    assert "mssql://127.0.0.1/runs" in problem


def test_an_old_file_store_is_explained_and_left_alone(tmp_path):
    meta = tmp_path / "mlruns" / "0" / "meta.yaml"
    meta.parent.mkdir(parents=True)
    meta.touch()
    *_, problem = project(resolve_store(tmp_path / "mlruns", tmp_path), records())
    assert "belongs to an old MLflow file store" in problem
    assert "brings MLflow up to date" in problem
    assert not (tmp_path / "mlflow.db").exists()


def test_an_experiment_deleted_in_mid_run_is_brought_back(store):
    problems: list[str] = []
    found = records()
    with Tracker(store, on_problem=problems.append) as tracker:
        study = begin(tracker, found)
        wait_for(lambda: tracker._written["studies"])
        client = MlflowClient(store.tracking_uri)
        client.delete_experiment(client.get_experiment_by_name("adaptbin/eol").experiment_id)
        log(tracker, study, found)
    assert problems == []
    assert len(look(store).of_kind("replica")) == len(found)
    assert {run.info.status for run in look(store).runs.values()} == {"FINISHED"}


def test_a_run_that_is_refused_is_left_out_and_the_rest_is_written(store):
    """A poisoned record: MLflow takes no metric of such a name."""
    found = records()
    found[0]["scores"]["test"]["a metric *?"] = 0.5
    told, missing = project(store, found)
    assert "refused a write, which is left out: MlflowException: " in told
    assert "not written: 1 of 6 replicas" in missing
    seen = look(store)
    assert seen.named("sensitivity eol").info.status == "FINISHED"
    assert len([run for run in seen.of_kind("replica") if run.info.status == "FINISHED"]) == 5


def test_changed_settings_change_no_parameter(store):
    """ "Changing param values is not allowed": other settings are other runs, and the same are written once."""
    assert project(store, records()) == []
    longer = [make_record(point, 0, epochs=24) for point in POINTS]
    assert project(store, longer) == []
    assert project(store, records()) == []
    seen = look(store)
    assert sorted(run.data.params["epochs"] for run in seen.of_kind("study")) == ["12", "24"]
    assert len(seen.of_kind("replica")) == 9


def test_a_run_active_in_this_process_and_another_store_are_not_touched(store, tmp_path, monkeypatch):
    """Workers logging to another store; "run already active" with reused actors: MLflow's globals are not used."""
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other)
    monkeypatch.chdir(tmp_path)
    with mlflow.start_run() as active:
        assert project(store, records()) == []
        assert project(store, records(3)) == []
        current = mlflow.active_run()
        assert current is not None and current.info.run_id == active.info.run_id
    assert {e.name for e in MlflowClient(other).search_experiments()} == {"Default"}
    assert len(look(store).of_kind("replica")) == 9


def test_a_study_that_lacks_replicas_is_not_finished(store):
    """A crashed run shown FINISHED."""
    found = records()
    with Tracker(store, on_problem=pytest.fail) as tracker:
        study = begin(tracker, found)
        for record in found[:4]:
            tracker.replica(study, partial(dict, record))
        tracker.point(study, POINTS[0].to_dict(), SUMMARY | {"missing": 0})
        tracker.point(study, POINTS[1].to_dict(), SUMMARY | {"missing": 2}, "FAILED")
        tracker.finish(study, (), "FAILED", missing=2)
    seen = look(store)
    assert {run.info.run_name: run.info.status for run in (*seen.of_kind("study"), *seen.of_kind("point"))} == {
        "sensitivity eol": "FAILED",
        "default": "FINISHED",
        "tau = 0.001": "FAILED",
        "patience = 20": "FAILED",
    }
    assert seen.named("sensitivity eol").data.metrics["missing"] == 2
    assert seen.named("tau = 0.001").data.metrics["missing"] == 2


def test_a_finished_point_that_gets_more_seeds_is_running_again(store):
    assert project(store, records()) == []
    more = records(3)
    with Tracker(store, on_problem=pytest.fail) as tracker:
        study = tracker.study(
            "sensitivity",
            more[0]["identity"],
            DEFAULT.to_dict(),
            points=[point.to_dict() for point in POINTS],
            unfinished=[point.to_dict() for point in POINTS[:2]],
            note="",
        )
        wait_for(lambda: tracker._written["studies"])
        assert sorted(run.info.status for run in look(store).of_kind("point")) == ["FINISHED", "RUNNING", "RUNNING"]
        tracker.finish(study, (), "KILLED", missing=2)
    assert sorted(run.info.status for run in look(store).of_kind("point")) == ["FINISHED", "KILLED", "KILLED"]


KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker
from tests.service.tracked import begin, records, wait_for

output = Path(sys.argv[1])
with Tracker(resolve_store(output, output.parent), on_problem=print) as tracker:
    study = begin(tracker, records())
    tracker.replica(study, partial(dict, records()[0]))
    wait_for(lambda: tracker._written["replicas"], 60.0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_nothing_running_once_another_begins(store, tmp_path):
    """kill -9 in mid-run; the next run may be of another study, and the folder may have been moved."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(store.output)], env=dict(os.environ))
    assert done.returncode == -signal.SIGKILL
    left = look(store)
    assert sorted(run.info.status for run in left.runs.values()) == ["FINISHED", *["RUNNING"] * 4]
    (identity,) = {run.data.tags["adaptbin.output"] for run in left.runs.values()}
    # One of them by a version that had no ids of folders yet.
    MlflowClient(store.tracking_uri).delete_tag(left.named("default").info.run_id, "adaptbin.output")
    assert identity == (store.output / ".output-id").read_text().strip()
    store.output.rename(tmp_path / "moved")
    moved = resolve_store(tmp_path / "moved", tmp_path)
    *_, told = project(moved, [make_record(point, 0, epochs=24) for point in POINTS])
    assert told.endswith("4 runs that an earlier run left running are set as killed")
    statuses = [MlflowClient(moved.tracking_uri).get_run(run.info.run_id).info.status for run in left.runs.values()]
    assert sorted(statuses) == ["FINISHED", *["KILLED"] * 4]
    assert project(moved, records()) == []
    assert {run.info.status for run in look(moved).runs.values()} == {"FINISHED"}
