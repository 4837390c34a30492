"""`sweeps/masking.py` from command line to files, and `sweeps/sensitivity.py` from what it chose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps import benchmark, masking, sensitivity
from sweeps.service import planner
from sweeps.service.local import InProcessRunner
from tests.scripts import (
    SHORT,
    Asking,
    CountingRunner,
    artifacts_in_mlflow,
    at_twelve_seconds,
    check_rebuild,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_record, fake_train

TEST_COLUMNS = ["test_mean", "test_sd", "test_low", "test_high"]


def run(words: str, output: Path, runner: InProcessRunner | None = None, script: Any = masking) -> int:
    return run_script(script, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "masking" / dataset


def choice_in(output: Path, dataset: str = "breast_cancer") -> dict[str, Any]:
    return json.loads((folder_of(output, dataset) / "choice.json").read_text())


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training, real MLflow, two seeds, two epochs."""
    assert run(f"{SHORT} --seeds 2", tmp_path, InProcessRunner()) == 0
    assert len(results(tmp_path)) == 28
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
        *("replicas.csv", "points.csv", "choice.json"),
    }
    points = pd.read_csv(folder / "points.csv", keep_default_na=False, na_values=[""])
    assert list(points["n"]) == [2] * 14 and points["chosen"].sum() == 1
    chosen = points[points["chosen"]].iloc[0]
    assert chosen["val_mean"] == points["val_mean"].max()
    assert points.loc[~points["chosen"], TEST_COLUMNS].isna().all(axis=None)
    choice = choice_in(tmp_path)
    assert {name: choice["hyperparameters"][name] for name in ("masking", "mask_prob", "t_init")} == {
        name: chosen[name] for name in ("masking", "mask_prob", "t_init")
    }
    assert (choice["val_mean"], choice["seeds"], choice["metric"]) == (chosen["val_mean"], [0, 1], "auc")
    assert (choice["points_compared"], choice["points_diverged"]) == (14, 0)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["grid"] == {
        "masking": ["none", "constant", "random"],
        "mask_prob": [0.1, 0.2, 0.3],
        "t_init": [2, 10],
    }
    assert manifest["replicas"] == {"asked": 28, "found": 28, "diverged": 0, "trained_by_this_run": 28}
    assert manifest["chosen"] == choice["hyperparameters"] and manifest["metrics"] == {"breast_cancer": "auc"}
    shown = capsys.readouterr()
    assert "masking of breast_cancer: 14 points x 2 seeds = 28 replicas, 0 done, 28 to do" in shown.out
    assert "breast_cancer: validation AUC (higher is better)" in shown.out and "triggers" in shown.out
    assert f"{chosen['val_mean']:.4f}" in shown.out and f"test {chosen['test_mean']:.4f} ±" in " ".join(
        shown.out.split()
    )
    assert f"breast_cancer: {folder}" in shown.out.splitlines()

    # Seen by MLflow: a study, its points, their replicas; aggregates on validation, on test for the choice alone.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 14, 28]
    (study,) = kinds["study"]
    assert study.info.run_name == "masking breast_cancer" and study.info.status == "FINISHED"
    assert artifacts_in_mlflow(tmp_path, study) == {path.name for path in folder.iterdir()}
    assert sorted(r.data.metrics["val_mean"] for r in kinds["point"]) == sorted(points["val_mean"])
    assert {"default", "t_init = 10", "masking = random, mask_prob = 0.3"} <= {r.info.run_name for r in kinds["point"]}
    (marked,) = (r for r in kinds["point"] if r.data.tags["adaptbin.chosen"] == "yes")
    assert marked.data.metrics["test_mean"] == chosen["test_mean"]
    assert [r for r in kinds["point"] if "test_mean" in r.data.metrics] == [marked]
    assert all("test_auc" in r.data.metrics for r in kinds["replica"])


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        runner = CountingRunner()
        for seeds in (2, 2, 3):
            assert run(f"{SHORT} --seeds {seeds}", tmp_path, runner) == 0
            assert choice_in(tmp_path)["seeds"] == list(range(seeds))
        assert runner.seeds == [[0, 1], [2]]
        assert f"nothing to train: all 28 replicas have results in {tmp_path}" in capsys.readouterr().out

    def test_the_default_point_is_shared_with_the_sensitivity_study(self, tmp_path: Path) -> None:
        runner = CountingRunner()
        assert run(f"{SHORT} --seeds 2", tmp_path, runner) == 0
        assert run(f"{SHORT} --seeds 2 --panel tau", tmp_path, runner, sensitivity) == 0
        assert [sum(len(pack.replicas) for pack in job.packs) for job in runner.jobs] == [28, 8]

    def test_a_plan_writes_nothing_and_a_budget_warns_of_no_test(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(planner, "speeds", at_twelve_seconds)
        assert run(f"{SHORT} --seeds 5 --budget 10m --plan", tmp_path / "out") == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "masking of breast_cancer: 14 points x 3 seeds = 42 replicas, 0 done, 42 to do"
        assert shown[-1].startswith("budget 10 min 00 s: 3 of 5 seeds fit; seeds 3, 4 are dropped")
        assert not (tmp_path / "out").exists()

    def test_rebuild_needs_results_alone(self, tmp_path: Path) -> None:
        check_rebuild(masking, f"{SHORT} --seeds 2", tmp_path, folder_of(tmp_path))
        assert choice_in(tmp_path)["seeds"] == [0, 1]

    def test_several_data_sets_have_a_folder_each(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SHORT.replace('breast_cancer', 'breast_cancer,diabetes')} --seeds 2", tmp_path) == 0
        assert {path.name for path in (tmp_path / "masking").iterdir()} == {"breast_cancer", "diabetes"}
        assert "together" not in capsys.readouterr().out
        for name, metric, best in (("breast_cancer", "auc", "max"), ("diabetes", "rmse", "min")):
            points = pd.read_csv(folder_of(tmp_path, name) / "points.csv")
            assert choice_in(tmp_path, name)["metric"] == metric
            assert points.loc[points["chosen"], "val_mean"].iloc[0] == getattr(points["val_mean"], best)()

    def test_a_failed_pack_leaves_nothing_chosen_until_it_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].seed == 2:
                raise RuntimeError("worn out")
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{SHORT} --seeds 2", tmp_path) == 0
        assert (folder_of(tmp_path) / "choice.json").is_file()
        assert run(f"{SHORT} --seeds 3", tmp_path, InProcessRunner(train)) == 1
        assert "Nothing is chosen: 14 of 14 points lack results, such as none, T_init 2 (seed 2);" in " ".join(
            capsys.readouterr().out.split()
        )
        # The choice of two seeds does not fit the tables of three.
        assert not (folder_of(tmp_path) / "choice.json").exists()
        assert pd.read_csv(folder_of(tmp_path) / "points.csv")[TEST_COLUMNS].isna().all(axis=None)
        assert run(f"{SHORT} --seeds 3", tmp_path) == 1
        assert run(f"{SHORT} --seeds 3 --retry-failed", tmp_path) == 0
        assert choice_in(tmp_path)["seeds"] == [0, 1, 2]

    def test_a_diverged_replica_counts_against_its_point(self, tmp_path: Path) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            records = [fake_record(replica) for replica in replicas]
            for record in records:
                of = record["identity"]
                best = of["hyperparameters"]["t_init"] == 10 and of["hyperparameters"]["mask_prob"] == 0.3
                for part in ("val", "test"):
                    record["scores"][part] = dict.fromkeys(record["scores"][part], 0.9 if best else 0.8)
                if best and of["seed"] == 1 and of["hyperparameters"]["masking"] == "constant":
                    record |= {"status": "diverged", "diverged_at": 1, "test_bootstrap_se": {}}
                    record["scores"] = {"val": {}, "test": {}}
            return records

        assert run(f"{SHORT} --seeds 2", tmp_path, InProcessRunner(train)) == 0
        assert choice_in(tmp_path)["hyperparameters"]["masking"] == "random"
        assert (choice_in(tmp_path)["points_compared"], choice_in(tmp_path)["points_diverged"]) == (14, 1)
        assert "†1" in (folder_of(tmp_path) / "figure.svg").read_text()

    def test_test_scores_are_shown_when_asked_for(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SHORT} --seeds 2", tmp_path) == 0
        hidden = capsys.readouterr().out
        before = choice_in(tmp_path)
        assert run(f"{SHORT} --seeds 2 --show-test", tmp_path) == 0
        shown = capsys.readouterr().out
        points = pd.read_csv(folder_of(tmp_path) / "points.csv")
        assert points[TEST_COLUMNS].notna().all(axis=None) and choice_in(tmp_path) == before
        assert pd.read_csv(folder_of(tmp_path) / "replicas.csv")["test_auc"].notna().all()
        heads = [
            [line for line in text.splitlines() if "p_m " in line and "splits" in line] for text in (hidden, shown)
        ]
        assert [" test" in head[0] for head in heads] == [False, True]
        assert "shown because they were asked for" in (folder_of(tmp_path) / "caption.txt").read_text()
        assert 'id="test-none-0-2"' in (folder_of(tmp_path) / "figure.svg").read_text()

    def test_replacing_the_choice_of_a_larger_study_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{SHORT} --seeds 2", tmp_path) == 0
        assert run(f"{SHORT} --seeds 1", tmp_path) == 0
        assert (
            "another study (2 seeds, 2 epochs, grid mask_prob, masking, t_init) are replaced" in capsys.readouterr().err
        )

    def test_a_grid_of_ones_own_is_told(self, tmp_path: Path) -> None:
        assert run(f"{SHORT} --seeds 2 --mask-prob 0.2 --t-init 4 2", tmp_path) == 0
        points = pd.read_csv(folder_of(tmp_path) / "points.csv", keep_default_na=False)
        assert list(zip(points["masking"], points["mask_prob"], points["t_init"], strict=True)) == [
            *(("none", 0, 2), ("none", 0, 4), ("constant", 0.2, 2), ("constant", 0.2, 4)),
            *(("random", 0.2, 2), ("random", 0.2, 4)),
        ]
        note = "Changed grid: p_m 0.2 (full: 0.1, 0.2, 0.3), T_init 2, 4 (full: 2, 10)"
        assert json.loads((folder_of(tmp_path) / "manifest.json").read_text())["notes"][-1] == note
        assert f"{note}." in (folder_of(tmp_path) / "caption.txt").read_text().splitlines()
        assert choice_in(tmp_path)["points_compared"] == 6
        assert run(f"{SHORT} --seeds 2 --panel tau --choice-from {tmp_path}", tmp_path, script=sensitivity) == 0
        told = (tmp_path / "sensitivity" / "breast_cancer" / "caption.txt").read_text()
        assert "chosen on validation with the same seeds among 6 points (full: 14): masking" in told
        assert run(f"{SHORT} --seeds 2 --mask-prob 0.2", tmp_path, script=benchmark) == 0
        folder = tmp_path / "benchmark" / "breast_cancer"
        assert len(pd.read_csv(folder / "candidates.csv")) == 19
        note = "Reduced grid: p_m 0.2 (full: 0.1, 0.2, 0.3)"
        assert json.loads((folder / "manifest.json").read_text())["notes"][-1] == note
        assert f"{note}." in (folder / "table.md").read_text()
        caption = (folder / "caption.txt").read_text()
        assert "p_m 0.2 where it masks, T (T_init of adaptive bins) 2, 10 where it has bins, so 1 to 2 cand" in caption

    def test_values_are_added_and_cancelled_meanwhile(self, tmp_path: Path) -> None:
        requests = (("add", "mask_prob", 0.4), ("add", "tau", 0.1), ("cancel", "t_init", 10))
        asking = Asking(tmp_path, *requests)
        assert run(f"{SHORT} --seeds 2", tmp_path, InProcessRunner(asking.train)) == 0
        first, second, third = asking.answers
        assert first.startswith("mask_prob=0.4 added: 8 replicas in ")
        assert first.endswith("; in later runs give --mask-prob 0.1,0.2,0.3,0.4 to keep it")
        assert second == "refused: unknown side of this grid 'tau' (known: mask_prob, t_init)"
        assert third.startswith("t_init=10 cancelled: ")
        points = pd.read_csv(folder_of(tmp_path) / "points.csv")
        assert list(points["t_init"]) == [2] * 9 and set(points["mask_prob"]) == {0, 0.1, 0.2, 0.3, 0.4}
        assert choice_in(tmp_path)["points_compared"] == 9


@pytest.mark.usefixtures("no_mlflow")
class TestOptions:
    @pytest.mark.parametrize(
        "option",
        ["--panel tau", "--value tau=1", "--test t", "--metric auc", "--masking none", "--choice-from x"],
    )
    def test_what_makes_no_sense_is_not_offered(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
    ) -> None:
        assert run(f"{SHORT} {option}", tmp_path / "out") == 2
        assert f"error: unknown option {option.split()[0]}" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            ("--mask-prob 0.1,x", "mask-prob must be numbers such as 0.1,0.2,0.3, got '0.1,x'"),
            ("--mask-prob 0.2 0.2", "a study needs at least one p_m, each named once, got [0.2, 0.2]"),
            ("--mask-prob 1.5", "mask_prob must be in [0, 1), got 1.5"),
            ("--mask-prob 0", "mask_prob must be 0 with masking 'none' and above 0 otherwise"),
            ("--t-init 2.5", "t-init must be whole numbers such as 2,10, got '2.5'"),
            ("--t-init 1", "t_init must be a whole number >= 2, got 1"),
        ],
    )
    @pytest.mark.parametrize("script", [masking, benchmark], ids=["masking", "benchmark"])
    def test_values_that_cannot_be(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: Any, option: str, message: str
    ) -> None:
        assert run(f"{SHORT} {option}", tmp_path / "out", script=script) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "out").exists()

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert masking.main(["--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "choose one point of it on validation" in shown and "--show-test" in shown and "--budget" in shown
        assert sensitivity.main(["--help"]) == 0
        shown = capsys.readouterr().out
        assert "--choice-from" in shown and "--show-test" not in shown


@pytest.mark.usefixtures("no_mlflow")
class TestAChoiceTakenOver:
    BOTH = SHORT.replace("breast_cancer", "breast_cancer,diabetes")

    def test_each_data_set_starts_from_its_own_choice(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{self.BOTH} --seeds 2", tmp_path) == 0
        chosen = {name: choice_in(tmp_path, name)["hyperparameters"] for name in ("breast_cancer", "diabetes")}
        assert chosen["breast_cancer"] != chosen["diabetes"]
        assert run(f"{self.BOTH} --seeds 3 --panel tau --choice-from {tmp_path}", tmp_path, script=sensitivity) == 0
        together = tmp_path / "sensitivity" / "breast_cancer+diabetes"
        for name, point in chosen.items():
            folder = tmp_path / "sensitivity" / name
            manifest = json.loads((folder / "manifest.json").read_text())
            assert manifest["defaults"] == {name: point}
            assert manifest["choices"] == {name: choice_in(tmp_path, name)}
            note = f"Default point of {name}, chosen on validation with seeds 0, 1 (here seeds 0 to 2): masking "
            assert any(told.startswith(note) for told in manifest["notes"])
            assert note in (folder / "caption.txt").read_text() and note in (together / "caption.txt").read_text()
            taus = [
                {k: v for k, v in record["identity"]["hyperparameters"].items() if k != "tau"}
                for record in results(tmp_path, name).values()
                if record["identity"]["hyperparameters"]["tau"] != 1e-4
            ]
            assert len(taus) == 4 * 3 and all(left == {k: v for k, v in point.items() if k != "tau"} for left in taus)
        # The joint table pairs each data set with its own default.
        rows, marks = pd.read_csv(together / "replicas.csv"), pd.read_csv(together / "significance.csv")
        assert set(marks["dataset"]) == set(chosen) and len(marks) == 8
        for row in marks.to_dict("records"):
            of_dataset = rows[rows["dataset"] == row["dataset"]].sort_values("seed")
            point = of_dataset[of_dataset["value"] == row["value"]]["test"].to_numpy()
            default = of_dataset[of_dataset["is_default"]]["test"].to_numpy()
            sign = -1 if row["metric"] == "rmse" else 1
            assert row["difference"] == pytest.approx((sign * (point - default)).mean())
        assert (together / "figure.png").is_file()
        assert "error" not in capsys.readouterr().err

    def test_nothing_is_trained_or_written_when_a_choice_does_not_fit(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{SHORT} --seeds 2", tmp_path / "chosen") == 0
        capsys.readouterr()
        for words, message in (
            (f"{SHORT} --epochs 3", "for the budget of the study that takes it over, epochs 3, got epochs 2 in"),
            (f"{SHORT} --protocol released", "for the protocol of the study"),
            (self.BOTH, "choice-from must be a choice.json, or a folder that holds masking/diabetes/choice.json, got"),
            (
                f"{SHORT} --t-init 2",
                "--choice-from sets masking, mask_prob, t_init, so it takes none of them, got --t-init",
            ),
        ):
            runner = CountingRunner()
            assert run(f"{words} --choice-from {tmp_path}/chosen", tmp_path / "out", runner, sensitivity) == 2
            shown = capsys.readouterr()
            assert shown.err.startswith("error: ") and message in shown.err and shown.err.count("\n") == 1
            assert (shown.out, runner.jobs, (tmp_path / "out").exists()) == ("", [], False)
