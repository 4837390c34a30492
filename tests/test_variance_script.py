"""`sweeps/variance.py` from command line to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps import masking, sensitivity, variance
from sweeps.service import planner
from sweeps.service.local import InProcessRunner
from tests.scripts import (
    SHORT,
    Asking,
    CountingRunner,
    artifacts_in_mlflow,
    at_twelve_seconds,
    check_rebuild,
    check_refused,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_train

KINDS = ["probe", "pretrain", "split"]


def run(words: str, output: Path, runner: InProcessRunner | None = None, script: Any = variance) -> int:
    return run_script(script, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "variance" / dataset


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training, real MLflow, three seeds, two epochs."""
    assert run(SHORT, tmp_path, InProcessRunner()) == 0
    records = results(tmp_path)
    assert len(records) == 9
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "components.csv"),
    }
    replicas = pd.read_csv(folder / "replicas.csv")
    assert list(replicas["seeds_vary"]) == [kind for kind in KINDS for _ in range(3)]
    for row in replicas.to_dict("records"):
        record = records[row["id"]]
        assert (row["seed"], row["seeds_vary"]) == (record["identity"]["seed"], record["identity"]["seeds_vary"])
        assert row["test"] == record["scores"]["test"]["auc"]
    # Seed 0 is the same training under all kinds, so all of them start from one score.
    assert replicas[replicas["seed"] == 0]["test"].nunique() == 1
    components = pd.read_csv(folder / "components.csv").set_index("component")
    points = pd.read_csv(folder / "points.csv").set_index("seeds_vary")
    assert list(components.index) == ["split", "pretraining", "probe", "total"]
    assert components.loc["total", "sd"] == pytest.approx(points.loc["split", "sd"])
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["seeds_vary"] == KINDS and manifest["kinds_of_seeds"] == {"seeds_vary": KINDS}
    assert manifest["replicas"] == {"asked": 9, "found": 9, "diverged": 0, "trained_by_this_run": 9}
    assert manifest["metrics"] == {"breast_cancer": "auc"}
    shown = capsys.readouterr().out
    asked = "1 point x 3 seeds x 3 kinds of seeds (probe, pretrain, split) = 9 replicas"
    assert shown.splitlines()[0] == f"variance of breast_cancer: {asked}, 0 done, 9 to do"
    assert "breast_cancer: where the variance of test AUC is" in shown
    assert f"breast_cancer: {folder}" in shown.splitlines()

    # Seen by MLflow: a study per kind of seeds, each with its point and its replicas.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [3, 3, 9]
    studies = {r.info.run_id: r for r in kinds["study"]}
    assert {r.info.run_name for r in studies.values()} == {f"variance ({kind}) breast_cancer" for kind in KINDS}
    notes = {r.info.run_name: r.data.tags["mlflow.note.content"] for r in kinds["study"]}
    for kind in KINDS:
        assert f"(seeds_vary probe, pretrain, split): {kind}. The" in notes[f"variance ({kind}) breast_cancer"]
    assert {r.info.status for of_kind in kinds.values() for r in of_kind} == {"FINISHED"}
    for point in kinds["point"]:
        study = studies[point.data.tags["mlflow.parentRunId"]]
        kind = study.data.params["seeds_vary"]
        assert study.info.run_name == f"variance ({kind}) breast_cancer"
        assert point.data.metrics["test_mean"] == points.loc[kind, "mean"]
        assert point.data.metrics["n"] == 3 and point.data.metrics["missing"] == 0
        below = [r for r in kinds["replica"] if r.data.tags["mlflow.parentRunId"] == point.info.run_id]
        assert [r.data.params["seeds_vary"] for r in below] == [kind] * 3
    assert all(
        artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()} for study in studies.values()
    )


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained_and_the_default_is_shared(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2 --panel tau", tmp_path, runner, sensitivity) == 0
        for seeds in (2, 2, 3):
            assert run(f"{SHORT} --seeds {seeds}", tmp_path, runner) == 0
        trained = [sum(len(pack.replicas) for pack in job.packs) for job in runner.jobs]
        assert trained == [10, 4, 3]
        assert f"nothing to train: all 6 replicas have results in {tmp_path}" in capsys.readouterr().out

    def test_what_failed_is_named_by_kind_of_seeds(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].seeds_vary != "probe" and replicas[0].seed == 1:
                raise RuntimeError("worn out")
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{SHORT} --seeds 3 --pack 1", tmp_path, InProcessRunner(train)) == 1
        shown = capsys.readouterr().err
        for kind in ("pretrain", "split"):
            assert f"  breast_cancer: 1 replicas (1 point, seeds 1 that vary the {kind}): failed: RuntimeError" in shown
        points = pd.read_csv(folder_of(tmp_path) / "points.csv").set_index("seeds_vary")
        assert list(points["n_missing"]) == [0, 1, 1]
        assert "2 have no result." in (folder_of(tmp_path) / "caption.txt").read_text()

    def test_a_budget_leaves_seeds_out_but_two(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(planner, "speeds", at_twelve_seconds)
        assert run(f"{SHORT} --seeds 5 --budget 2m --plan", tmp_path / "out") == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0].startswith("variance of breast_cancer: 1 point x 3 seeds x 3 kinds of seeds")
        assert shown[-1].startswith("budget 2 min 00 s: 3 of 5 seeds fit; seeds 3, 4 are dropped")
        assert run(f"{SHORT} --seeds 5 --budget 40s --plan", tmp_path / "out") == 2
        assert "error: budget must be enough for 2 seeds of every point" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_rebuild_needs_results_alone(self, tmp_path: Path) -> None:
        check_rebuild(variance, f"{SHORT} --seeds 2", tmp_path, folder_of(tmp_path))

    def test_several_data_sets_have_a_folder_each(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SHORT.replace('breast_cancer', 'breast_cancer,diabetes')} --seeds 2", tmp_path) == 0
        assert "x 2 data sets x 3 kinds of seeds (probe, pretrain, split) = 12 replicas" in capsys.readouterr().out
        assert {path.name for path in (tmp_path / "variance").iterdir()} == {"breast_cancer", "diabetes"}

    def test_nothing_is_added_to_it(self, tmp_path: Path) -> None:
        asking = Asking(tmp_path, ("add", "tau", 0.1))
        assert run(f"{SHORT} --seeds 2", tmp_path, InProcessRunner(asking.train)) == 0
        refused = "refused: a variance study has one point, so nothing can be added to it, got tau=0.1"
        assert asking.answers == [refused]
        assert len(results(tmp_path)) == 6


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsAskedFor:
    def test_the_point_is_what_validation_chose(self, tmp_path: Path) -> None:
        assert run(f"{SHORT} --seeds 2", tmp_path, script=masking) == 0
        chosen = json.loads((tmp_path / "masking" / "breast_cancer" / "choice.json").read_text())["hyperparameters"]
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2 --choice-from {tmp_path}", tmp_path, runner) == 0
        trained = [replica for pack in runner.jobs[0].packs for replica in pack.replicas]
        assert len(trained) == 4  # under "pretrain" it is there already
        assert {replica.seeds_vary for replica in trained} == {"probe", "split"}
        assert all(replica.hyperparameters.to_dict() == chosen for replica in trained)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--seeds 1", "a variance needs at least 2 seeds, got 1"),
            ("--seeds-vary split", "unknown option --seeds-vary"),
            ("--choice-from nowhere", "choice-from must be a choice.json, or a folder that holds"),
            ("--test t", "unknown option --test"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        check_refused(variance, f"{SHORT} {words}", message, tmp_path / "out", capsys)

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert variance.main(["--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "--choice-from" in shown and "--seeds-vary" not in shown
        assert "what comes of the probes, of the pretraining, and of the split" in shown
