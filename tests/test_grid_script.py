"""`sweeps/sensitivity.py --grid` from command line to files, in process and on real Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from sweeps import masking, sensitivity
from sweeps.service.local import InProcessRunner
from tests.scripts import (
    SHORT,
    Asking,
    CountingRunner,
    artifacts_in_mlflow,
    check_rebuild,
    check_refused,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script

GRIDS = "--grid width=8,16 --grid masking=random --grid w_sord=1*lr=1e-3"
"""Points: the default, two widths, one masking, and three cells of the map."""


def run(words: str, output: Path, runner: InProcessRunner | None = None) -> int:
    return run_script(sensitivity, words, output, runner)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_on_ray_from_options_to_files(tmp_path: Path) -> None:
    """Real Ray, real training, real MLflow, as typed in a shell; two seeds, two epochs."""
    words = [sys.executable, sensitivity.__file__, *f"{SHORT} --seeds 2 {GRIDS}".split(), "--output", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "grid of breast_cancer: 7 points x 2 seeds = 14 replicas" in done.stdout
    folder = tmp_path / "grid" / "breast_cancer"
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "significance.csv"),
    }
    assert not (tmp_path / "sensitivity").exists()
    points = pd.read_csv(folder / "points.csv")
    assert list(zip(points["panel"], points["value"], points["n"], strict=True)) == [
        *(("width", value, 2) for value in ("8.0", "16.0", "128.0")),
        *(("masking", value, 2) for value in ("none", "random")),
        *(("w_sord*learning_rate", value, 2) for value in ("1*0.0001", "10*0.0001", "1*0.001", "10*0.001")),
    ]
    trained = [record["identity"] for record in results(tmp_path).values()]
    assert sorted(identity["architecture"]["width"] for identity in trained) == [8] * 2 + [16] * 2 + [128] * 10

    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["panels"]["width"] == [8, 16, 128] and manifest["panels"]["masking"] == ["none", "random"]
    assert manifest["options"]["grid"] == ["width=8,16", "masking=random", "w_sord=1*learning_rate=0.001"]
    own = [note for note in manifest["notes"] if note.startswith("The panels are the user's own")]
    assert len(own) == 1 and own[0] in (folder / "caption.txt").read_text()

    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 7, 14]
    (study,) = kinds["study"]
    assert study.data.tags["panels"] == "width,masking,w_sord*learning_rate"
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()}
    named = {run.info.run_name: run for run in kinds["point"]}
    assert named.keys() == {
        *("default", "width = 8", "width = 16", "masking = random, mask_prob = 0.2", "w_sord = 1"),
        *("learning_rate = 0.001", "w_sord = 1, learning_rate = 0.001"),
    }
    small = named["width = 8"].data
    assert small.params["width"] == "8" and named["default"].data.params["width"] == "128"
    (row,) = points[points["value"] == "8.0"].to_dict("records")
    assert small.metrics["test_mean"] == pytest.approx(row["mean"]) and small.tags["adaptbin.panel"] == "width"


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsTrained:
    def test_packs_hold_one_shape(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2 {GRIDS}", tmp_path, runner) == 0
        for pack in runner.jobs[0].packs:
            assert len({replica.architecture for replica in pack.replicas}) == 1

    def test_results_are_shared_with_the_papers_panels(self, tmp_path: Path) -> None:
        assert run(f"{SHORT} --seeds 2 --panel tau", tmp_path) == 0
        before = {path.name: path.read_bytes() for path in (tmp_path / "sensitivity" / "breast_cancer").iterdir()}
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2 --grid tau=1e-3,0.5", tmp_path, runner) == 0
        assert {r.hyperparameters.tau for pack in runner.jobs[0].packs for r in pack.replicas} == {0.5}
        after = {path.name: path.read_bytes() for path in (tmp_path / "sensitivity" / "breast_cancer").iterdir()}
        assert before == after

    def test_panels_of_the_grids_are_chosen_and_grow(self, tmp_path: Path) -> None:
        words = f"{SHORT} --seeds 2 {GRIDS} --panel masking w_sord*lr --value masking=constant --value lr=1e-2"
        assert run(words, tmp_path) == 0
        manifest = json.loads((tmp_path / "grid" / "breast_cancer" / "manifest.json").read_text())
        assert manifest["panels"] == {
            "masking": ["none", "constant", "random"],
            "w_sord*learning_rate": [f"{w}*{lr}" for lr in ("0.0001", "0.001", "0.01") for w in (1, 10)],
        }
        assert manifest["options"]["panel"] == ["masking", "w_sord*lr"]
        check_rebuild(sensitivity, words, tmp_path, tmp_path / "grid" / "breast_cancer")

    def test_a_file_of_grids(self, tmp_path: Path) -> None:
        path = tmp_path / "grids.yaml"
        path.write_text("- dropout: [0, 0.5]\n- {masking: [random], mask_prob: [0.1, 0.2]}\n", encoding="utf-8")
        assert run(f"{SHORT} --seeds 1 --grid {path} --grid tau=1e-3", tmp_path / "out") == 0
        manifest = json.loads((tmp_path / "out" / "grid" / "breast_cancer" / "manifest.json").read_text())
        told = ["dropout=0,0.5", "masking=random*mask_prob=0.1,0.2", "tau=0.001"]
        assert manifest["options"]["grid"] == told
        typed = " ".join(f"--grid {grid}" for grid in told)  # what the manifest tells asks for the same
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 1 {typed}", tmp_path / "out", runner) == 0
        assert runner.jobs == []

    def test_several_data_sets(self, tmp_path: Path) -> None:
        words = SHORT.replace("breast_cancer", "breast_cancer diabetes")
        assert run(f"{words} --seeds 3 {GRIDS}", tmp_path) == 0
        for name in ("breast_cancer", "diabetes", "breast_cancer+diabetes"):
            folder = tmp_path / "grid" / name
            assert (folder / "figure.png").is_file()
            assert list(pd.read_csv(folder / "points.csv")["n"]) == [3] * 9 * len(name.split("+"))

    def test_around_what_validation_chose(self, tmp_path: Path) -> None:
        assert run_script(masking, f"{SHORT} --seeds 2", tmp_path) == 0
        chosen = json.loads((tmp_path / "masking" / "breast_cancer" / "choice.json").read_text())["hyperparameters"]
        words = f"{SHORT} --seeds 2 --choice-from {tmp_path} --grid masking=constant,random,none --grid tau=1e-3"
        assert run(words, tmp_path) == 0
        points = pd.read_csv(tmp_path / "grid" / "breast_cancer" / "points.csv")
        default = points[points["is_default"]].set_index("panel")["value"]
        assert default["masking"] == chosen["masking"]
        p_m = chosen["mask_prob"] or 0.2
        trained = [record["identity"]["hyperparameters"] for record in results(tmp_path).values()]
        assert {point["mask_prob"] for point in trained if point["tau"] == 1e-3} == {chosen["mask_prob"]}
        caption = (tmp_path / "grid" / "breast_cancer" / "caption.txt").read_text()
        assert f"Where masking is moved and p_m is not, p_m is {p_m:g}; with none, 0." in caption
        assert "Default point of breast_cancer, chosen on validation" in caption

    def test_values_are_added_and_cancelled_meanwhile(self, tmp_path: Path) -> None:
        asking = Asking(
            tmp_path,
            ("add", "masking", "constant"),
            ("add", "masking", "random"),
            ("add", "lr", 1e-2),
            ("cancel", "width", 16),
            ("cancel", "masking", "none"),
            ("add", "width", 0),
            ("add", "depth", 2),
            ("add", "w_sord", "random"),
        )
        assert run(f"{SHORT} --seeds 2 {GRIDS}", tmp_path, InProcessRunner(asking.train)) == 0
        told = asking.answers
        assert told[0].startswith("masking=constant added: 2 replicas in ")
        assert told[0].endswith("in later runs give --value masking=constant to keep it")
        assert told[1] == "refused: a value to add must be a new one, got masking=random of none, constant, random"
        assert told[2].startswith("lr=0.01 added: 4 replicas in ")  # a column of the map
        assert told[3].startswith("width=16 cancelled: 2 replicas to train less")
        assert told[4].startswith("refused: the default, which all points are compared with, must stay")
        assert "width must be a whole number >= 1, got 0" in told[5] and told[5].startswith("refused: ")
        assert told[6].startswith("refused: unknown field of this study's panels 'depth'")
        assert told[7] == "refused: values of w_sord must be numbers, got 'random'"
        points = pd.read_csv(tmp_path / "grid" / "breast_cancer" / "points.csv")
        assert list(points["n"]) == [2] * (2 + 3 + 6)
        assert list(points[points["panel"] == "masking"]["value"]) == ["none", "constant", "random"]

    def test_words_are_for_own_panels(self, tmp_path: Path) -> None:
        asking = Asking(tmp_path, ("add", "tau", "random"))
        assert run(f"{SHORT} --seeds 1 --panel tau", tmp_path, InProcessRunner(asking.train)) == 0
        assert asking.answers == ["refused: values of this study must be numbers, got tau=random"]

    def test_another_grid_in_the_same_folder_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SHORT} --seeds 2 {GRIDS}", tmp_path) == 0
        assert run(f"{SHORT} --seeds 2 {GRIDS} --grid tau=1e-3", tmp_path) == 0
        assert "are replaced" not in capsys.readouterr().err
        assert run(f"{SHORT} --seeds 2 --grid tau=1e-3", tmp_path) == 0
        told = "another study (2 seeds, 2 epochs, panels "
        assert told in capsys.readouterr().err


@pytest.mark.usefixtures("no_mlflow")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--grid w_sort=1", "unknown field 'w_sort'; did you mean 'w_sord'?"),
        ("--grid tau=-1", "a point of the grid cannot be, tau=-1: tau must be a finite number >= 0, got -1.0"),
        ("--grid p_m=.1", "p_m is moved where the default point is masked (--masking, --choice-from), or with masking"),
        ("--grid t_init=20*t_max=10", "t_init must be at most t_max (10), got 20"),
        ("--grid tau=1e-4", "a panel must have a value besides the default, got tau 0.0001"),
        ("--grid tau=1e-3 --grid tau=1e-2", "a study needs at least one grid, each named once"),
        ("--grid tau=1e-3 --panel w_sord", "unknown panel 'w_sord' of the grids asked for"),
        ("--grid tau=1e-3 --value w_sord=3", "unknown field of this study's panels 'w_sord'"),
        ("--grid tau=1e-3 --value tau=fast", "values of tau must be numbers, got 'fast'"),
        ("--grid tau=1e-3 --value tau=1e-3", "a value to add must be a new one, got tau=0.001 of 0.0001, 0.001"),
        ("--grid nowhere.yaml", "a grid file must be readable YAML, got nowhere.yaml"),
    ],
)
def test_what_is_refused(words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_refused(sensitivity, f"{SHORT} {words}", message, tmp_path / "out", capsys)
