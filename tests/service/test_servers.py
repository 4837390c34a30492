"""Real servers, and lines to them that fail: training goes on, and in the end everything is there once."""

from __future__ import annotations

import json
import random
import socket
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient

from sweeps.service.stores import resolve_store
from sweeps.service.tracker import Tracker
from tests.service.records import make_record
from tests.service.servers import Line, mlflow_server
from tests.service.tracked import POINTS, SUMMARY, begin, look, project, records, wait_for

pytestmark = pytest.mark.slow


def check_complete(store, found) -> None:
    """All runs once, finished, whole, and below their parents."""
    seen = look(store)
    assert {run.info.status for run in seen.runs.values()} == {"FINISHED"}
    assert sorted(seen.children["sensitivity eol"]) == sorted(["default", "tau = 0.001", "patience = 20"])
    assert len(seen.of_kind("replica")) == len(found)
    client = MlflowClient(store.tracking_uri)
    for record in found:
        run = seen.runs[f"replica:{record['id']}"]
        assert run.data.metrics["test_qwk"] == record["scores"]["test"]["qwk"]
        history = client.get_metric_history(run.info.run_id, "loss")
        assert [metric.step for metric in history] == record["curves"]["epoch"]
    for run in (*seen.of_kind("study"), *seen.of_kind("point")):
        for name in run.data.metrics:
            assert len(client.get_metric_history(run.info.run_id, name)) == 1


def test_a_server_over_http_shows_it_all(clean, tmp_path):
    figure = tmp_path / "figure.txt"
    figure.write_text("as drawn")
    store = resolve_store(tmp_path, tmp_path, clean)
    assert project(store, records(), (figure,)) == []
    check_complete(store, records())
    before = look(store)
    assert project(store, records(), (figure,)) == []
    after = look(store)
    assert {run.info.run_id for run in after.runs.values()} == {run.info.run_id for run in before.runs.values()}
    study = after.named("sensitivity eol").info.run_id
    downloaded = MlflowClient(clean).download_artifacts(study, "figure.txt", str(tmp_path))
    assert Path(downloaded).read_text() == "as drawn"


def test_a_server_that_refuses_connections_is_told_and_made_good_later(clean, tmp_path, quick):
    """Nothing is kept in memory: the next run reads the files again."""
    with socket.socket() as taken:  # bound but not listening: a port where nobody answers
        taken.bind(("127.0.0.1", 0))
        away = resolve_store(tmp_path, tmp_path, f"http://me:secret@127.0.0.1:{taken.getsockname()[1]}")
        *failing, problem = project(away, records())
    assert len(failing) <= 1
    assert "not written: 1 of 1 studies, 6 of 6 replicas, 3 of 3 points, 1 of 1 summaries" in problem
    assert "the same command, or --rebuild, brings MLflow up to date" in problem
    assert "secret" not in "".join((*failing, problem))
    there = resolve_store(tmp_path, tmp_path, clean)
    assert project(there, records()) == []
    check_complete(there, records())


@pytest.mark.parametrize("fate", ["hang", "refuse", "drop"])
def test_a_server_that_never_answers_rightly_holds_nothing_up(tmp_path, quick, monkeypatch, fate):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")  # seconds; a busy machine may take longer to answer rightly
    with Line(None) as line:
        line.fate = lambda *_: fate
        *_, problem = project(resolve_store(tmp_path, tmp_path, line.address), records(), patience_seconds=20.0)
    assert "not written: 1 of 1 studies, 6 of 6 replicas" in problem
    assert "stopped waiting" not in problem
    assert line.requests


def test_errors_for_a_while_are_waited_out(clean, tmp_path, quick):
    problems: list[str] = []
    with Line(clean) as line:
        line.fate = lambda *_: "refuse"
        store = resolve_store(tmp_path, tmp_path, line.address)
        with Tracker(store, on_problem=problems.append) as tracker:
            study = begin(tracker, records())
            wait_for(lambda: line.requests >= 5)
            line.fate = lambda *_: "forward"
            finish(tracker, study)
    failing, recovered = problems
    assert failing.startswith(f"MLflow at {line.address}: ")
    assert failing.endswith("training goes on, results stay in files, and writing is tried again")
    assert recovered.endswith("there again; what was held back is being written")
    check_complete(resolve_store(tmp_path, tmp_path, clean), records())


def finish(tracker, study) -> None:
    for record in records():
        tracker.replica(study, partial(dict, record))
    for point in POINTS:
        tracker.point(study, point.to_dict(), SUMMARY)
    tracker.finish(study, ())


@pytest.mark.parametrize("fate", ["lose", "refuse", "drop"])
def test_nothing_is_there_twice_after_a_retried_batch(clean, tmp_path, quick, monkeypatch, fate):
    """Duplicates after a retried batch: one request in ten is applied but its answer lost, or fails outright."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")  # a user's setting, under which the client would repeat
    figure = tmp_path / "figure.txt"
    figure.write_text("as drawn")
    with Line(clean) as line:
        chance = random.Random(0)
        line.fate = lambda *_: fate if chance.random() < 0.1 else "forward"
        problems: list[str] = []
        with Tracker(resolve_store(tmp_path, tmp_path, line.address), on_problem=problems.append) as tracker:
            study = begin(tracker, records())
            finish(tracker, study)
            wait_for(lambda: tracker._written["summaries"], 60.0)
        assert "not written" not in "".join(problems)
        assert line.requests > 20
    check_complete(resolve_store(tmp_path, tmp_path, clean), records())


def test_a_server_that_goes_away_in_mid_run_and_comes_back(clean, tmp_path, quick):
    problems: list[str] = []
    found = records()
    with Line(clean) as line:
        store = resolve_store(tmp_path, tmp_path, line.address)
        with Tracker(store, on_problem=problems.append) as tracker:
            study = begin(tracker, found)
            tracker.replica(study, partial(dict, found[0]))
            wait_for(lambda: tracker._written["replicas"])
            line.fate = lambda *_: "drop"
            tracker.replica(study, partial(dict, found[1]))
            wait_for(lambda: problems)
            line.fate = lambda *_: "forward"
            finish(tracker, study)
    assert [problem.rpartition("; ")[2] for problem in problems[1:]] == ["what was held back is being written"]
    check_complete(resolve_store(tmp_path, tmp_path, clean), found)


def test_results_are_read_when_it_is_their_turn(clean, tmp_path, quick):
    """While the server is away the queue holds paths, not records."""
    problems: list[str] = []
    read: list[int] = []
    found = [make_record(POINTS[0], seed) for seed in range(20)]

    def reading(number: int):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(found[number]))

        def read_again():
            read.append(number)
            return json.loads(path.read_text())

        return read_again

    with Line(clean) as line:
        line.fate = lambda *_: "refuse"
        store = resolve_store(tmp_path, tmp_path, line.address)
        with Tracker(store, on_problem=problems.append) as tracker:
            study = begin(tracker, found)
            for number in range(len(found)):
                tracker.replica(study, reading(number))
            wait_for(lambda: line.requests >= 5)
            assert read == []
            (tmp_path / "7.json").unlink()  # cannot be read again: told, and nothing waits for it
            line.fate = lambda *_: "forward"
            tracker.finish(study, ())
    assert sorted(set(read)) == list(range(20))
    assert any("refused a write, which is left out: ValueError: a result cannot be read again" in p for p in problems)
    assert "not written: 1 of 20 replicas" in problems[-1]
    assert len(look(resolve_store(tmp_path, tmp_path, clean)).of_kind("replica")) == 19


def test_two_folders_on_one_server_leave_each_other_alone(clean, tmp_path):
    """Only what an earlier run of the same folder left running is ended, also when the folder was moved."""
    here, there = (resolve_store(tmp_path / name, tmp_path, clean) for name in ("here", "there"))
    client = MlflowClient(clean)
    for store, seeds in ((here, 1), (there, 2)):
        store.output.mkdir()
        assert project(store, [make_record(point, seed) for seed in (seeds,) for point in POINTS]) == []
    by_output: dict[str, list[str]] = {}
    for run in look(here).of_kind("replica"):
        client.update_run(run.info.run_id, status="RUNNING")
        by_output.setdefault(run.data.tags["adaptbin.output"], []).append(run.info.run_id)
    mine = by_output[(tmp_path / "here" / ".output-id").read_text().strip()]
    assert len(mine) == 3 and len(by_output) == 2
    (tmp_path / "here").rename(tmp_path / "moved")
    problems: list[str] = []
    with Tracker(resolve_store(tmp_path / "moved", tmp_path, clean), on_problem=problems.append):
        pass
    assert [problem.partition(": ")[2] for problem in problems] == [
        "3 runs that an earlier run left running are set as killed"
    ]
    statuses = {run.info.run_id: run.info.status for run in look(here).of_kind("replica")}
    assert {run for run, status in statuses.items() if status == "KILLED"} == set(mine)
    assert {run for run, status in statuses.items() if status == "RUNNING"} == set(statuses) - set(mine)


def test_postgresql_directly(postgres, tmp_path, quick):
    uri = postgres.database("direct")
    store = resolve_store(tmp_path, tmp_path, uri)
    figure = tmp_path / "figure.txt"
    figure.write_text("as drawn")
    problems: list[str] = []
    found = records()
    with Tracker(store, on_problem=problems.append) as tracker:
        study = begin(tracker, found)
        tracker.replica(study, partial(dict, found[0]))
        wait_for(lambda: tracker._written["replicas"], 120.0)
        postgres.stop()
        try:
            tracker.replica(study, partial(dict, found[1]))
            wait_for(lambda: problems)
        finally:
            postgres.start()
        finish(tracker, study)
        tracker.finish(study, (figure,))
    assert "there again" in problems[-1]
    assert "nosecret" not in "".join(problems)
    check_complete(store, found)
    assert [path.read_text() for path in (tmp_path / "artifacts").rglob("figure.txt")] == ["as drawn"]


def test_postgresql_behind_a_server(postgres, tmp_path):
    uri = postgres.database("behind")
    with mlflow_server(tmp_path / "server", uri) as address:
        store = resolve_store(tmp_path, tmp_path, address)
        assert project(store, records()) == []
        assert project(store, records()) == []
        check_complete(store, records())
