"""What MLflow shows of whole sweeps that fail, are interrupted, or cannot reach it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from sweeps import sensitivity
from sweeps.service import writer
from sweeps.service.local import InProcessRunner
from tests.service.fakes import fake_train

WORDS = "--dataset breast_cancer --preset quick --epochs 2 --probe-epochs 2 --probes 2 --panel tau --seeds 2"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter pauses between attempts."""
    monkeypatch.setattr(writer, "FIRST_PAUSE", 0.05)


def run(words: str, output: Path, train: Any = fake_train) -> int:
    return sensitivity.main([*words.split(), "--output", str(output)], runner=InProcessRunner(train))


def shown(output: Path, kind: str) -> list[Any]:
    client = MlflowClient(f"sqlite:///{output}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptbin/breast_cancer")
    return list(client.search_runs([experiment.experiment_id], f"tags.`adaptbin.kind` = '{kind}'"))


def test_a_sweep_with_failed_packs_is_not_shown_as_finished(tmp_path: Path) -> None:
    """A crashed run shown FINISHED."""

    def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
        if replicas[0].seed == 1:
            raise RuntimeError("worn out")
        return fake_train(replicas, *arguments, **settings)

    assert run(WORDS, tmp_path, train) == 1
    (study,) = shown(tmp_path, "study")
    assert (study.info.status, study.data.metrics["missing"]) == ("FAILED", 5)
    assert [(p.info.status, p.data.metrics["missing"], p.data.metrics["n"]) for p in shown(tmp_path, "point")] == [
        ("FAILED", 1, 1)
    ] * 5
    assert run(f"{WORDS} --retry-failed", tmp_path) == 0
    (again,) = shown(tmp_path, "study")
    assert again.info.run_id == study.info.run_id
    assert (again.info.status, again.data.metrics["missing"]) == ("FINISHED", 0)
    assert {(p.info.status, p.data.metrics["missing"]) for p in shown(tmp_path, "point")} == {("FINISHED", 0)}


def test_a_sweep_without_any_result_is_shown_as_failed(tmp_path: Path) -> None:
    def train(*_: Any, **__: Any) -> Any:
        raise RuntimeError("worn out")

    assert run(WORDS, tmp_path, train) == 1
    (study,) = shown(tmp_path, "study")
    assert (study.info.status, study.data.metrics["missing"]) == ("FAILED", 10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_is_shown_as_killed(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM leaving runs RUNNING."""

    def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
        if replicas[0].seed == 1:
            os.kill(os.getpid(), number)
        return fake_train(replicas, *arguments, **settings)

    assert run(WORDS, tmp_path, train) == 128 + number
    (study,) = shown(tmp_path, "study")
    assert (study.info.status, study.data.metrics["missing"]) == ("KILLED", 5)
    assert {point.info.status for point in shown(tmp_path, "point")} == {"KILLED"}
    assert {replica.info.status for replica in shown(tmp_path, "replica")} == {"FINISHED"}


def test_a_tracking_error_stops_no_sweep_and_rebuild_makes_it_good(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tracking error that kills the sweep; no parent run in the UI."""
    database = tmp_path / "mlflow.db"
    database.write_text("no database, but more than a hundred bytes of something else; " * 10)
    assert run(WORDS, tmp_path) == 0
    told = capsys.readouterr().err
    assert "file is not a database" in told
    assert "not written: 1 of 1 studies, 10 of 10 replicas, 5 of 5 points, 1 of 1 summaries; the results files" in told
    assert len(list((tmp_path / "results" / "breast_cancer").glob("*.json"))) == 10
    assert (tmp_path / "sensitivity" / "breast_cancer" / "figure.png").is_file()

    database.unlink()
    assert run(f"{WORDS} --rebuild", tmp_path) == 0
    (study,) = shown(tmp_path, "study")
    points, replicas = shown(tmp_path, "point"), shown(tmp_path, "replica")
    assert {run.info.status for run in (study, *points, *replicas)} == {"FINISHED"}
    assert {point.data.tags["mlflow.parentRunId"] for point in points} == {study.info.run_id}
    assert {replica.data.tags["mlflow.parentRunId"] for replica in replicas} == {p.info.run_id for p in points}
    assert len(replicas) == 10
