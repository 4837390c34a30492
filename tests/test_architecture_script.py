"""`sweeps/architecture.py` from command line to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps import architecture
from sweeps.service.local import InProcessRunner
from tests.scripts import (
    Asking,
    CountingRunner,
    artifacts_in_mlflow,
    check_rebuild,
    check_refused,
    diverging,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script

SMALL = "--dataset breast_cancer --depth 1 --width 32,128 --finetune-epochs 2 --seeds 2"
"""The paper's depth, 2, comes with it: four architectures."""


def run(words: str, output: Path, runner: InProcessRunner | None = None) -> int:
    return run_script(architecture, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "architecture" / dataset


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training, real MLflow, two seeds, two epochs."""
    assert run(SMALL, tmp_path, InProcessRunner()) == 0
    records = results(tmp_path)
    assert len(records) == 8
    for record in records.values():
        identity = record["identity"]
        assert identity["hyperparameters"]["pretext"] == "none" and identity["budget"] == {"epochs": 0}
        assert identity["finetuning"]["epochs"] == 2
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "comparison.csv"),
    }
    points = pd.read_csv(folder / "points.csv")
    assert list(zip(points["depth"], points["width"], strict=True)) == [(1, 32), (1, 128), (2, 32), (2, 128)]
    assert list(points["n"]) == [2] * 4 and points["chosen"].sum() == points["paper"].sum() == 1
    assert points.loc[points["chosen"], "val_mean"].iloc[0] == points["val_mean"].max()
    assert points["test_mean"].notna().tolist() == (points["chosen"] | points["paper"]).tolist()
    comparison = pd.read_csv(folder / "comparison.csv").iloc[0]
    assert (comparison["paper_depth"], comparison["paper_width"]) == (2, 128)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["grid"] == {"depth": [1, 2], "width": [32, 128]} and manifest["finetuning"]["epochs"] == 2
    assert manifest["chosen"]["width"] == comparison["chosen_width"]
    assert manifest["notes"] == ["Reduced protocol: 2 seeds (full: 10), 2 fine-tuning epochs (full: 100)"]
    assert manifest["replicas"] == {"asked": 8, "found": 8, "diverged": 0, "trained_by_this_run": 8}
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == ("architecture of breast_cancer: 4 points x 2 seeds = 8 replicas, 0 done, 8 to do")
    assert "packs: 4, of 2 replicas" in shown
    assert "breast_cancer: validation AUC from scratch (higher is better)" in shown
    assert "The paper's choice is" in shown and f"breast_cancer: {folder}" in shown.splitlines()

    # Seen by MLflow: the paper's is the default, and the others say what they change.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 4, 8]
    assert {point.info.run_name for point in kinds["point"]} == {
        "default", "width = 32", "depth = 1", "depth = 1, width = 32",
    }  # fmt: skip
    for point in kinds["point"]:
        of_point = (points["depth"] == int(point.data.params["depth"])) & (
            points["width"] == int(point.data.params["width"])
        )
        (row,) = points[of_point].to_dict("records")
        assert point.data.metrics["val_mean"] == row["val_mean"] and point.data.metrics["missing"] == 0
        assert ("test_mean" in point.data.metrics) == (row["chosen"] or row["paper"])
        assert point.data.tags["adaptbin.chosen"] == ("yes" if row["chosen"] else "no")
    (study,) = kinds["study"]
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()}


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        for words in (SMALL, SMALL, SMALL.replace("--seeds 2", "--seeds 3"), SMALL.replace("--depth 1", "--depth 1,3")):
            assert run(words, tmp_path, runner) == 0
        trained = [[len(pack.replicas) for pack in job.packs] for job in runner.jobs]
        assert trained == [[2] * 4, [1] * 4, [2] * 2]
        assert all(len({r.architecture for r in pack.replicas}) == 1 for job in runner.jobs for pack in job.packs)

    def test_a_diverged_point_is_not_chosen(self, tmp_path: Path) -> None:
        runner = diverging(lambda replica: replica.architecture.width == 32 and replica.seed == 1)
        assert run(SMALL, tmp_path, runner) == 0
        points = pd.read_csv(folder_of(tmp_path) / "points.csv")
        assert list(points["n_diverged"]) == [1, 0, 1, 0]
        assert points.loc[points["chosen"], "width"].iloc[0] == 128

    def test_values_are_added_while_it_runs(self, tmp_path: Path) -> None:
        requests = [("add", "depth", 3.0), ("cancel", "width", 32.0), ("cancel", "depth", 2.0), ("add", "depth", 0.5)]
        asking = Asking(tmp_path, *requests)
        assert run(SMALL, tmp_path, InProcessRunner(asking.train)) == 0
        added, cancelled, *refused = asking.answers
        assert added.startswith("depth=3 added: 4 replicas") and cancelled.startswith("width=32 cancelled: ")
        assert refused == [
            "refused: the paper's choice, which others are compared with, must stay, got depth=2",
            "refused: depth must be a whole number >= 1, got 0.5",
        ]
        points = pd.read_csv(folder_of(tmp_path) / "points.csv")
        assert list(zip(points["depth"], points["width"], strict=True)) == [(1, 128), (2, 128), (3, 128)]

    def test_rebuild_needs_results_alone(self, tmp_path: Path) -> None:
        check_rebuild(architecture, SMALL, tmp_path, folder_of(tmp_path))


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsAskedFor:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--depth 0", "depth must be a whole number >= 1, got 0"),
            ("--depth two", "depth must be whole numbers such as 1,2,3,4,5, got 'two'"),
            ("--width 64,64", "a study needs at least one width, each named once, got [64, 64]"),
            ("--width 1.5", "width must be whole numbers such as 128,256,512,1024, got '1.5'"),
            ("--finetune-epochs 0", "epochs must be a whole number >= 1, got 0"),
            ("--epochs 5", "unknown option --epochs"),
            ("--probes 5", "unknown option --probes"),
            ("--encoder resnet", "unknown option --encoder"),
            ("--seeds-vary probe", "unknown option --seeds-vary"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        check_refused(architecture, f"--dataset breast_cancer {words}", message, tmp_path / "out", capsys)

    def test_a_model_that_cannot_fit_is_refused_with_the_figure(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = "--dataset breast_cancer --width 2000000"
        message = "for one replica of breast_cancer (fine-tuned), which needs about"
        check_refused(architecture, words, message, tmp_path / "out", capsys)

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert architecture.main(["--help"]) == 0
        shown: Any = " ".join(capsys.readouterr().out.split())
        assert "--depth" in shown and "--probe-epochs" not in shown and "--epochs" not in shown.split()
        assert "paper: 10 seeds, 100 epochs; quick: 3 seeds, 10 epochs" in shown
