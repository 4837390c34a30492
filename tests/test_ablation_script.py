"""`sweeps/ablation.py` from command line to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from adaptbin.config import Hyperparameters
from sweeps import ablation, masking, sensitivity
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
    diverging,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script

VARIANTS = ["full", "w/o FWA", "w/o FPT", "w/o DIGS", "w/o HORD", "w/o Gain_var", "T_max 10", "T_max 50"]


def run(words: str, output: Path, runner: InProcessRunner | None = None, script: Any = ablation) -> int:
    return run_script(script, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "ablation" / dataset


def points_in(output: Path, dataset: str = "breast_cancer") -> pd.DataFrame:
    return pd.read_csv(folder_of(output, dataset) / "points.csv").set_index("variant")


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training, real MLflow, two seeds, enough epochs for the clock to tick and for FPT to trigger."""
    assert run(f"{SHORT} --epochs 12 --seeds 2 --refine-every 2", tmp_path, InProcessRunner()) == 0
    assert len(results(tmp_path)) == 16
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "significance.csv"),
    }
    points = points_in(tmp_path)
    assert list(points.index) == VARIANTS and list(points["n"]) == [2] * 8
    # What the parts did: without FWA bins stay, with the clock all features are refined, bounds hold.
    bins = points[["triggers_mean", "splits_mean", "bins_mean"]]
    assert list(bins.loc["w/o FWA"]) == [0, 0, 2]
    assert bins.loc["w/o FPT", "triggers_mean"] == 6 * 30 and bins.loc["w/o FPT", "splits_mean"] > 0
    assert bins.loc["full", "triggers_mean"] < 6 * 30 and points.loc["T_max 10", "bins_max"] <= 10
    trained = {
        tuple(sorted(set(record["identity"]["hyperparameters"].items()) - set(Hyperparameters().to_dict().items())))
        for record in results(tmp_path).values()
    }
    assert trained == {
        (),
        (("t_max", 2),),
        (("refine_every", 2),),
        (("split_score", "variance"),),
        (("pretext", "adaptive_bin_recon"),),
        (("split_score", "dispersion"),),
        (("t_max", 10),),
        (("t_max", 50),),
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["variants"] == {
        "t_max": [2, 10, 50],
        "refine_every": [2],
        "split_score": ["variance", "dispersion"],
        "pretext": ["adaptive_bin_recon"],
    }
    assert manifest["replicas"] == {"asked": 16, "found": 16, "diverged": 0, "trained_by_this_run": 16}
    assert "t_max" not in manifest["options"] and manifest["metrics"] == {"breast_cancer": "auc"}
    shown = capsys.readouterr()
    assert "ablation of breast_cancer: 8 points x 2 seeds = 16 replicas, 0 done, 16 to do" in shown.out
    assert "breast_cancer: test AUC (higher is better)" in shown.out
    (line,) = (line for line in shown.out.splitlines() if line.startswith(" w/o FPT ") and "refine_every = 2" in line)
    assert line.split()[-4:-2] == ["180.0", f"{bins.loc['w/o FPT', 'splits_mean']:.1f}"]
    assert f"breast_cancer: {folder}" in shown.out.splitlines()

    # Seen by MLflow: points are named by what they change.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 8, 16]
    (study,) = kinds["study"]
    assert study.info.run_name == "ablation breast_cancer" and study.info.status == "FINISHED"
    assert (
        "Points: t_max 2, 10, 50; refine_every 2; split_score variance, dispersion"
        in (study.data.tags["mlflow.note.content"])
    )
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()}
    changes = {"default" if name == "nothing" else name for name in points["changes"]}
    assert {r.info.run_name for r in kinds["point"]} == changes
    means = {r.info.run_name: r.data.metrics["test_mean"] for r in kinds["point"]}
    assert means["default"] == points.loc["full", "mean"]
    assert means["split_score = variance"] == points.loc["w/o DIGS", "mean"]


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained_and_full_is_shared(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runner = CountingRunner()
        for seeds in (2, 2, 3):
            assert run(f"{SHORT} --seeds {seeds}", tmp_path, runner) == 0
        assert runner.seeds == [[0, 1], [2]]
        assert f"nothing to train: all 16 replicas have results in {tmp_path}" in capsys.readouterr().out
        assert run(f"{SHORT} --seeds 3 --panel tau", tmp_path, runner, sensitivity) == 0
        assert len(results(tmp_path)) == 3 * (8 + 4)
        assert run(f"{SHORT} --seeds 3 --t-max 20", tmp_path, runner) == 0
        assert len(results(tmp_path)) == 3 * (8 + 4 + 1)

    def test_a_plan_writes_nothing_and_a_budget_leaves_seeds_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(planner, "speeds", at_twelve_seconds)
        assert run(f"{SHORT} --seeds 5 --budget 5m30s --plan", tmp_path / "out") == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "ablation of breast_cancer: 8 points x 3 seeds = 24 replicas, 0 done, 24 to do"
        assert shown[-2].startswith("budget 5 min 30 s: 3 of 5 seeds fit; seeds 3, 4 are dropped")
        assert shown[-1].startswith("warning: no difference can be significant: with 3 seeds")
        assert not (tmp_path / "out").exists()

    def test_rebuild_needs_results_alone(self, tmp_path: Path) -> None:
        check_rebuild(ablation, f"{SHORT} --seeds 2", tmp_path, folder_of(tmp_path))

    def test_a_diverged_replica_is_counted_and_takes_the_worst_rank(self, tmp_path: Path) -> None:
        runner = diverging(lambda replica: replica.hyperparameters.split_score == "variance" and replica.seed > 0)
        assert run(f"{SHORT} --seeds 2", tmp_path, runner) == 0
        points = points_in(tmp_path)
        assert dict(points.loc[points["n_diverged"] > 0, "n_diverged"]) == {"w/o DIGS": 1}
        contrasts = pd.read_csv(folder_of(tmp_path) / "significance.csv").set_index("variant")
        assert "1 of 2 pairs diverged: worst rank" in contrasts.loc["w/o DIGS", "note"]
        assert 'id="diverged-breast_cancer-w/o_DIGS"' in (folder_of(tmp_path) / "figure.svg").read_text()

    def test_several_data_sets_have_a_folder_each_and_one_together(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{SHORT.replace('breast_cancer', 'breast_cancer,diabetes')} --seeds 2", tmp_path) == 0
        together = tmp_path / "ablation" / "breast_cancer+diabetes"
        shown = capsys.readouterr().out
        assert f"together: {together}" in shown.splitlines() and shown.count("refinement, mean per replica") == 2
        assert set(pd.read_csv(together / "significance.csv")["dataset"]) == {"breast_cancer", "diabetes"}
        caption = (together / "caption.txt").read_text()
        for name, metric in (("breast_cancer", "AUC"), ("diabetes", "RMSE")):
            assert (folder_of(tmp_path, name) / "figure.png").is_file() and f"{name}: {metric} (" in caption

    def test_test_and_metric_are_those_asked_for(self, tmp_path: Path) -> None:
        assert run(f"{SHORT} --seeds 3 --test t --metric accuracy", tmp_path) == 0
        contrasts = pd.read_csv(folder_of(tmp_path) / "significance.csv")
        assert set(contrasts["test"]) == {"t"} and set(contrasts["metric"]) == {"accuracy"}
        assert "exploratory: not the primary metric" in (folder_of(tmp_path) / "caption.txt").read_text()

    def test_bounds_are_added_and_cancelled_meanwhile(self, tmp_path: Path) -> None:
        requests = (("add", "t_max", 20), ("add", "tau", 0.1), ("add", "t_max", 2), ("cancel", "t_max", 50))
        asking = Asking(tmp_path, *requests)
        assert run(f"{SHORT} --seeds 2", tmp_path, InProcessRunner(asking.train)) == 0
        first, second, third, fourth = asking.answers
        assert first.startswith("t_max=20 added: 2 replicas in ")
        assert first.endswith("; in later runs give --t-max 10,20,50 to keep it")
        assert second == "refused: only values of t_max can be added to an ablation and cancelled, got tau=0.1"
        assert third.startswith("refused: t_max must be whole and above t_init, 2 for breast_cancer, got 2")
        assert fourth.startswith("t_max=50 cancelled: ")
        assert list(points_in(tmp_path).index) == [*VARIANTS[:-1], "T_max 20"]


@pytest.mark.usefixtures("no_mlflow")
class TestWhatIsAskedFor:
    def test_full_is_what_validation_chose(self, tmp_path: Path) -> None:
        assert run(f"{SHORT} --seeds 2", tmp_path, script=masking) == 0
        chosen = json.loads((tmp_path / "masking" / "breast_cancer" / "choice.json").read_text())["hyperparameters"]
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2 --choice-from {tmp_path} --t-max 50", tmp_path, runner) == 0
        manifest = json.loads((folder_of(tmp_path) / "manifest.json").read_text())
        assert manifest["defaults"]["breast_cancer"] == chosen
        trained = [replica for pack in runner.jobs[0].packs for replica in pack.replicas]
        assert len(trained) == 2 * 6  # full is there already
        for replica in trained:
            point = replica.hyperparameters
            assert (point.masking, point.mask_prob, point.t_init) == tuple(
                chosen[name] for name in ("masking", "mask_prob", "t_init")
            )
        assert points_in(tmp_path).loc["w/o FWA", "changes"] == f"t_max = {chosen['t_init']}"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--refine-every 0", "refine_every must be a whole number >= 1, got 0"),
            ("--t-max 10,10", "each t_max must be given once, got 10, 10"),
            ("--t-max 10,200", "t_max must differ from that of full, 200 for breast_cancer, got 200"),
            ("--t-max 2", "t_max must be whole and above t_init, 2 for breast_cancer, got 2"),
            ("--t-init 10 --t-max 10", "above t_init, 10 for breast_cancer, got 10; --t-max says which are tried"),
            ("--t-max ten", "t-max must be whole numbers such as 10,50, got 'ten'"),
            ("--t-max 10.5", "t-max must be whole numbers such as 10,50, got '10.5'"),
            ("--t-init 300 --t-max 400", "t_init must be at most t_max (200), got 300"),
            ("--choice-from nowhere", "choice-from must be a choice.json, or a folder that holds"),
            ("--panel tau", "unknown option --panel"),
            ("--show-test", "unknown option --show-test"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        check_refused(ablation, f"{SHORT} {words}", message, tmp_path / "out", capsys)

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert ablation.main(["--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        for part in (
            "--refine-every",
            "[default: patience + 1]",
            "--t-max",
            "[default: 10, 50, where above T_init]",
            "--choice-from",
        ):
            assert part in shown
        assert "w/o HORD, bin indices are regressed" in shown
