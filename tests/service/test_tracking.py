"""The projection into real MLflow stores, read back through MLflow's own client and its web interface."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
import urllib.request
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from sweeps.service import tracking
from sweeps.service.projection import CURVE_POINTS, flat_params
from sweeps.service.runs import RunTree
from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker
from tests.service.records import DEFAULT, PATIENCE, TAU, make_record
from tests.service.tracked import (
    SUMMARY,
    answers,
    ask,
    begin,
    count_rows,
    interface,
    look,
    project,
    records,
    wait_for,
)


def test_a_study_is_a_tree_of_points_and_replicas(store, tmp_path):
    figure = tmp_path / "figure.txt"
    figure.write_text("first")
    assert project(store, records(), (figure,)) == []

    seen = look(store)
    assert seen.children[""] == ["sensitivity eol"]
    assert seen.children["sensitivity eol"] == ["default", "tau = 0.001", "patience = 20"]
    assert seen.children["tau = 0.001"] == ["seed 1, tau = 0.001", "seed 0, tau = 0.001"]
    assert {run.info.status for run in seen.runs.values()} == {"FINISHED"}

    study = seen.named("sensitivity eol")
    assert study.data.metrics == {"points": 3, "replicas": 6, "diverged": 0}
    assert study.data.params["epochs"] == "12"
    assert "seed" not in study.data.params
    assert study.data.tags["mlflow.note.content"].startswith("**Three points** of `eol`.\n")
    assert study.data.tags["adaptbin.seeds"] == "2"

    point = seen.named("tau = 0.001")
    assert point.data.metrics == {"test_mean": 0.9, "n": 2.0, "diverged": 0.0}  # the standard deviation is not a number
    assert point.data.params == {
        key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in TAU.to_dict().items()
    }
    expected = {"kind": "point", "panel": "tau", "value": "0.001", "dataset": "eol", "metric": "qwk"}
    assert {key: point.data.tags[f"adaptbin.{key}"] for key in expected} == expected
    assert seen.named("default").data.tags["adaptbin.panel"] == "all"

    replica = seen.named("seed 1, patience = 20")
    record = make_record(PATIENCE, 1)
    assert replica.data.params["patience"] == "20"
    assert replica.data.params["seed"] == "1"
    assert replica.data.metrics["test_qwk"] == record["scores"]["test"]["qwk"]
    assert replica.data.metrics["val_qwk"] == record["scores"]["val"]["qwk"]
    assert replica.data.metrics["loss"] == record["curves"]["loss"][-1]
    assert replica.info.end_time - replica.info.start_time == 12_500
    assert replica.data.tags["adaptbin.seed"] == "1"


def test_curves_have_the_epoch_as_step_and_end_with_the_run(store):
    record = make_record(DEFAULT, 0, epochs=1000)
    assert project(store, [record]) == []
    replica = look(store).named("seed 0, default")
    client = MlflowClient(store.tracking_uri)
    for name in ("loss", "mean_bins", "max_bins", "splits"):
        history = client.get_metric_history(replica.info.run_id, name)
        assert len(history) == CURVE_POINTS <= 200
        assert history[-1].step == 1000
        assert history[-1].timestamp == replica.info.end_time
    assert sum(metric.value for metric in history) == sum(record["curves"]["splits"])


def test_a_batch_holds_no_more_than_mlflow_takes(store, monkeypatch):
    record = make_record(DEFAULT, 0)
    monkeypatch.setattr(tracking, "_METRICS_PER_BATCH", 10)
    monkeypatch.setattr(tracking, "_ENTITIES_PER_BATCH", 45)
    sizes: list[tuple[int, int, int]] = []
    log_batch = MlflowClient.log_batch

    def counting(self, run_id, metrics=(), params=(), tags=(), **options):
        sizes.append((len(metrics), len(params), len(tags)))
        return log_batch(self, run_id, metrics, params, tags, **options)

    monkeypatch.setattr(MlflowClient, "log_batch", counting)
    assert project(store, [record]) == []
    assert max(map(sum, sizes)) <= 45
    assert sizes.count((10, 0, 0)) == 5  # of 6 scalars and 4 curves of 12 epochs
    assert (4, len(flat_params(record["identity"])), 1) in sizes
    metrics = MlflowClient(store.tracking_uri).get_metric_history(
        look(store).named("seed 0, default").info.run_id, "loss"
    )
    assert [metric.step for metric in metrics] == record["curves"]["epoch"]


def test_projecting_again_changes_nothing(store):
    assert project(store, records()) == []
    before, (metrics, params, runs) = look(store), count_rows(store)
    assert project(store, list(reversed(records()))) == []
    after = look(store)
    assert {key: run.info.run_id for key, run in after.runs.items()} == {
        key: run.info.run_id for key, run in before.runs.items()
    }
    assert count_rows(store) == (metrics, params, runs)
    assert {run.info.status for run in after.runs.values()} == {"FINISHED"}


def test_more_seeds_join_the_same_tree_and_new_scores_replace_the_old(store, monkeypatch):
    monkeypatch.setattr(tracking, "_RUNS_PER_PAGE", 3)  # ten runs: found only by paging
    assert project(store, records(seeds=2)) == []
    before = look(store)
    longer = records(seeds=3)
    longer[0] |= {"scores": {"val": {"qwk": 0.5}, "test": {"qwk": 0.25}}}  # trained again elsewhere
    assert project(store, longer) == []
    after = look(store)

    assert after.children["default"] == ["seed 2, default", "seed 1, default", "seed 0, default"]
    assert after.named("sensitivity eol").data.metrics["replicas"] == 9
    assert after.named("seed 0, default").data.metrics["test_qwk"] == 0.25
    same = {key for key, run in before.runs.items() if after.runs[key].info.run_id == run.info.run_id}
    assert before.runs.keys() - same == {f"replica:{longer[0]['id']}"}


def test_the_newest_aggregate_is_the_one_shown(store):
    assert project(store, records()) == []
    with Tracker(store, on_problem=pytest.fail) as tracker:
        study = begin(tracker, records())
        tracker.point(study, TAU.to_dict(), SUMMARY | {"test_mean": 0.1, "n": 3})
        tracker.finish(study, ())
    assert look(store).named("tau = 0.001").data.metrics == {"test_mean": 0.1, "n": 3.0, "diverged": 0.0}


def test_a_diverged_replica_is_shown_as_failed_and_counted(store):
    found = [*records(), make_record(TAU, 2, diverged=True)]
    found[-1]["curves"]["loss"][-1] = float("inf")
    assert project(store, found) == []
    seen = look(store)
    replica = seen.named("seed 2, tau = 0.001")
    assert replica.info.status == "FAILED"
    assert replica.data.tags["adaptbin.status"] == "diverged"
    assert replica.data.tags["adaptbin.diverged_at"] == "12"
    assert "test_qwk" not in replica.data.metrics
    assert replica.data.metrics["loss"] == found[-1]["curves"]["loss"][-2]
    assert seen.named("tau = 0.001").info.status == "FINISHED"
    assert seen.named("sensitivity eol").data.metrics["diverged"] == 1


def test_an_interrupted_study_is_killed_and_goes_on_next_time(store):
    found = records()
    with pytest.raises(KeyboardInterrupt), Tracker(store, on_problem=pytest.fail) as tracker:
        study = begin(tracker, found)
        tracker.replica(study, partial(dict, found[0]))
        raise KeyboardInterrupt
    seen = look(store)
    assert {run.info.run_name: run.info.status for run in seen.runs.values()} == {
        "sensitivity eol": "KILLED",
        "default": "KILLED",
        "tau = 0.001": "KILLED",
        "patience = 20": "KILLED",
        "seed 0, default": "FINISHED",
    }
    assert project(store, found) == []
    assert {run.info.status for run in look(store).runs.values()} == {"FINISHED"}


@pytest.mark.parametrize("status", ["KILLED", "RUNNING"])
def test_a_replica_cut_short_between_its_last_write_and_its_end_is_ended(store, status):
    """Killed just then it is found running, set as killed, and all of it is there."""
    found = [*records(), make_record(TAU, 2, diverged=True)]
    assert project(store, found) == []
    before = look(store)
    client = MlflowClient(store.tracking_uri)
    for replica in before.of_kind("replica"):
        client.update_run(replica.info.run_id, status=status)
    told = project(store, found)
    assert len(told) == (status == "RUNNING")
    assert all(line.endswith(f"{len(found)} runs that an earlier run left running are set as killed") for line in told)
    after = look(store)
    assert {key: run.info.run_id for key, run in after.runs.items()} == {
        key: run.info.run_id for key, run in before.runs.items()
    }
    assert sorted(run.info.status for run in after.of_kind("replica")) == ["FAILED", *["FINISHED"] * (len(found) - 1)]
    lost = after.named("seed 2, tau = 0.001")
    assert lost.info.status == "FAILED" and lost.info.end_time == before.named("seed 2, tau = 0.001").info.end_time


def test_the_study_is_running_while_the_sweep_goes(store):
    found = records()
    with Tracker(store, on_problem=pytest.fail) as tracker:
        study = begin(tracker, found)
        tracker.replica(study, partial(dict, found[0]))
        wait_for(lambda: tracker.page(study) is not None and len(look(store).of_kind("replica")) == 1)
        seen = look(store)
        assert {run.info.status for run in (*seen.of_kind("study"), *seen.of_kind("point"))} == {"RUNNING"}
        assert len(seen.of_kind("point")) == 3
        experiment = seen.named("default").info.experiment_id
        page = tracker.page(study)
        assert page is not None and page.startswith(f"/#/experiments/{experiment}/runs?workflowType=machine_learning&")
        (wanted,) = parse_qs(urlsplit(page).fragment.partition("?")[2])["searchFilter"]
        shown = MlflowClient(store.tracking_uri).search_runs([experiment], wanted)
        assert sorted(run.data.tags["adaptbin.kind"] for run in shown) == ["point"] * 3 + ["study"]
        tracker.finish(study, ())


def test_what_was_deleted_by_hand_comes_back_in_its_place(store):
    assert project(store, records()) == []
    client, seen = MlflowClient(store.tracking_uri), look(store)
    client.delete_run(seen.named("tau = 0.001").info.run_id)
    client.delete_run(seen.named("seed 0, default").info.run_id)
    assert project(store, records()) == []
    assert sorted(look(store).children["tau = 0.001"]) == ["seed 0, tau = 0.001", "seed 1, tau = 0.001"]
    assert len(look(store).runs) == 10

    client.delete_experiment(seen.named("default").info.experiment_id)
    assert project(store, records()) == []
    assert len(look(store).runs) == 10


def test_a_run_that_was_cut_short_is_written_anew(store):
    assert project(store, records()) == []
    client, half = MlflowClient(store.tracking_uri), look(store).named("seed 0, default")
    client.delete_tag(half.info.run_id, "adaptbin.digest")
    assert project(store, records()) == []
    assert look(store).named("seed 0, default").info.run_id != half.info.run_id
    deleted = client.search_runs([half.info.experiment_id], run_view_type=ViewType.DELETED_ONLY)
    assert [run.info.run_id for run in deleted] == [half.info.run_id]


def test_artifacts_are_overwritten(store, tmp_path):
    figure = tmp_path / "figure.txt"
    for text in ("first", "second"):
        figure.write_text(text)
        assert project(store, records(), (figure,)) == []
    (uploaded,) = Path(store.artifact_root, "eol").rglob("figure.txt")
    assert uploaded.read_text() == "second"


def test_a_moved_folder_keeps_its_runs_and_their_files(tmp_path):
    """A moved results folder: MLflow keeps absolute paths of artifacts."""
    figure = tmp_path / "figure.txt"
    figure.write_text("first")
    first = resolve_store(tmp_path / "old", tmp_path)
    assert project(first, records()) == []
    before = look(first)
    # Not uploaded by the client, which remembers the place for as long as the process lives.
    artifacts = Path(before.named("sensitivity eol").info.artifact_uri)
    artifacts.mkdir(parents=True)
    (artifacts / "figure.txt").write_text("first")
    Path(tmp_path / "old").rename(tmp_path / "new")
    moved = resolve_store(tmp_path / "new", tmp_path)
    (told,) = project(moved, records())
    assert f"the folder was moved: artifacts of adaptbin/eol are now looked for in {tmp_path}/new/artifacts" in told
    after = look(moved)
    assert {run.info.run_id for run in after.runs.values()} == {run.info.run_id for run in before.runs.values()}
    study = after.named("sensitivity eol")
    assert study.info.artifact_uri == f"{tmp_path}/new/artifacts/eol/{study.info.run_id}/artifacts"
    (listed,) = MlflowClient(moved.tracking_uri).list_artifacts(study.info.run_id)
    assert listed.path == "figure.txt"
    figure.write_text("second")
    assert project(moved, records(), (figure,)) == []
    (uploaded,) = (tmp_path / "new").rglob("figure.txt")
    assert uploaded.read_text() == "second"
    assert not (tmp_path / "old").exists()


def test_folders_that_share_a_database_do_not_write_into_each_other(tmp_path, store):
    figure = tmp_path / "figure.txt"
    figure.touch()
    assert project(resolve_store(tmp_path / "first", tmp_path, store.tracking_uri), records(), (figure,)) == []
    second = resolve_store(tmp_path / "second", tmp_path, store.tracking_uri)
    told, missing = project(second, records(), (figure,))
    assert f"keeps its artifacts in {tmp_path}/first/artifacts/eol" in told
    assert "not written: 1 of 1 summaries" in missing
    assert look(second).named("sensitivity eol").info.status == "FINISHED"


def test_the_database_writes_ahead_and_is_let_go(store):
    modes: list[tuple[str, int]] = []
    with Tracker(store, on_problem=pytest.fail) as tracker:
        study = begin(tracker, records())

        def ask() -> None:
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            with SqlAlchemyStore._engine_map[store.tracking_uri].connect() as connection:
                pragma = [
                    connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
                ]
            modes.append(tuple(pragma))

        tracker._writer.put(ask)
        tracker.finish(study, ())
    assert modes == [("wal", 1)]
    # The last connection that closes folds the write-ahead log back into the database.
    assert sorted(path.name for path in store.database.parent.iterdir()) == [".output-id", "mlflow.db"]


def test_nothing_global_is_left_behind(new_store, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    environment, level = dict(os.environ), logging.getLogger("mlflow").level
    seen: dict[str, str] = {}
    with Tracker(new_store, on_problem=pytest.fail) as tracker:
        seen.update(os.environ)
        tracker.finish(begin(tracker, records()), ())
    assert seen["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert seen["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"
    assert dict(os.environ) == environment
    assert logging.getLogger("mlflow").level == level
    assert capfd.readouterr() == ("", "")


def test_a_writer_that_is_too_slow_is_left_behind(store, monkeypatch):
    writing, release, problems = threading.Event(), threading.Event(), []

    def never_done(*_):
        writing.set()
        release.wait(60.0)

    monkeypatch.setattr(RunTree, "write_replica", never_done)
    with Tracker(store, on_problem=problems.append, patience_seconds=0.1) as tracker:
        study = begin(tracker, records())
        tracker.replica(study, partial(dict, records()[0]))
        # From here on the store itself has nothing to do, however slow the machine is.
        assert writing.wait(60.0)
    assert not release.is_set()
    (problem,) = problems
    assert "stopped waiting: nothing was written for 0.1 s; not written: 1 of 1 replicas; the results" in problem
    release.set()
    assert tracker._writer.close(60.0)


@pytest.mark.slow
def test_the_interface_really_shows_it(tmp_path):
    """Default store: plain ``mlflow ui`` in the root.  Any other: the command we print, run in an unrelated folder."""
    root, unrelated, figure = tmp_path / "root", tmp_path / "unrelated", tmp_path / "figure.txt"
    root.mkdir()
    unrelated.mkdir()
    figure.write_text("as drawn")
    default, other = resolve_store(root / "mlruns", root), resolve_store(tmp_path / "out put", root)
    assert project(default, records(), (figure,)) == []
    assert project(other, records(), (figure,)) == []
    plain, printed = [sys.executable, "-m", "mlflow", "ui"], shlex.split(other.ui_command)
    with interface(plain, root) as first, interface(printed, unrelated) as second:
        for address in (first, second):
            wait_for(lambda address=address: answers(f"{address}/health"), 120.0)
            check_shown(address)
    assert not list(unrelated.iterdir())


def check_shown(address: str) -> None:
    experiment = ask(f"{address}/api/2.0/mlflow/experiments/get-by-name?experiment_name=adaptbin/eol")["experiment"]
    query = {"experiment_ids": [experiment["experiment_id"]], "filter": "tags.`adaptbin.kind` = 'study'"}
    (study,) = ask(f"{address}/api/2.0/mlflow/runs/search", query)["runs"]
    assert study["info"]["run_name"] == "sensitivity eol"
    query["filter"] = f"tags.`mlflow.parentRunId` = '{study['info']['run_id']}'"
    points = ask(f"{address}/api/2.0/mlflow/runs/search", query)["runs"]
    assert [point["info"]["run_name"] for point in points] == ["default", "tau = 0.001", "patience = 20"]
    url = f"{address}/get-artifact?path=figure.txt&run_uuid={study['info']['run_id']}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.read() == b"as drawn"
