"""`sweeps/benchmark.py` from command line to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from adaptbin.config import Replica
from sweeps import benchmark, masking
from sweeps.service import planner
from sweeps.service.local import InProcessRunner
from tests.scripts import (
    SHORT,
    CountingRunner,
    artifacts_in_mlflow,
    at_twelve_seconds,
    check_refused,
    diverging,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_train

BOTH = SHORT.replace("breast_cancer", "breast_cancer,diabetes")
DRAWN = {"figure.png", "figure.pdf", "figure.svg"}
READ = {"table.csv", "table.md", "table.tex", "caption.txt", "manifest.json"}
OF_ONE = {*READ, *DRAWN, "candidates.csv", "replicas.csv", "choices.json"}
OF_SEVERAL = {*READ, "contrasts.csv", "contrast_pairs.csv"}


def run(words: str, output: Path, runner: InProcessRunner | None = None, script: Any = benchmark) -> int:
    return run_script(script, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "benchmark" / dataset


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training of every pretext, real MLflow, two epochs."""
    assert run(f"{SHORT} --seeds 1", tmp_path, InProcessRunner()) == 0
    assert len(results(tmp_path)) == 47
    folder = folder_of(tmp_path)
    assert names_in(folder) == OF_ONE
    table = pd.read_csv(folder / "table.csv", keep_default_na=False, na_values=[""])
    candidates = pd.read_csv(folder / "candidates.csv", keep_default_na=False, na_values=[""])
    assert len(table) == 13 and len(candidates) == 47 and set(table["status"]) == {"chosen"}
    assert not [name for name in candidates if "test" in name]
    for row in table.to_dict("records"):
        of_method = candidates[(candidates[["binning", "masking", "objective"]] == [*row.values()][1:4]).all(axis=1)]
        assert row["val_mean"] == of_method["val_mean"].max()
        assert of_method.loc[of_method["chosen"], "mask_prob"].to_list() == [row["mask_prob"]]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["grid"]["method"]) == 13 and manifest["grid"]["mask_prob"] == [0.1, 0.2, 0.3]
    assert manifest["replicas"] == {"asked": 47, "found": 47, "diverged": 0, "trained_by_this_run": 47}
    assert manifest["metrics"] == {"breast_cancer": "auc"}
    shown = capsys.readouterr().out
    assert "benchmark of breast_cancer: 47 points x 1 seeds = 47 replicas, 0 done, 47 to do" in shown
    assert "breast_cancer: test AUC (higher is better)" in shown and "together" not in shown
    assert all(f"{row['mean']:.4f}" in shown for row in table.to_dict("records"))
    refined = candidates[candidates["chosen"] & (candidates["objective"] == "Ours")]
    told = [
        f"{row['masking']} {row['triggers_mean']:.0f}, {row['splits_mean']:.0f}, {row['bins_mean']:.1f}"
        for row in refined.to_dict("records")
    ]
    words = f"bins per feature at the end, of adaptive binning by masking: {'; '.join(told)}."
    assert words in " ".join(shown.split()) and words in (folder / "caption.txt").read_text()

    # One choice per objective is left for other studies, the best of all its methods.
    choices = json.loads((folder / "choices.json").read_text())
    assert list(choices["choices"]) == ["VR", "MX", "MR", "BR", "Ours"] and choices["undecided"] == {}
    for objective, choice in choices["choices"].items():
        assert choice["val_mean"] == candidates.loc[candidates["objective"] == objective, "val_mean"].max()
    assert "Chosen for each objective, over all its maskings: VR " in " ".join(shown.split())

    # Seen by MLflow: points named by what they change; test scores of what was chosen alone.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 47, 47]
    (study,) = kinds["study"]
    assert study.info.run_name == "benchmark breast_cancer" and study.info.status == "FINISHED"
    assert artifacts_in_mlflow(tmp_path, study) == OF_ONE
    named = {run.info.run_name for run in kinds["point"]}
    assert {"default", "pretext = value_recon", "t_init = 10, pretext = bin_recon"} <= named
    chosen = [run for run in kinds["point"] if run.data.tags["adaptbin.chosen"] == "yes"]
    assert sorted(run.data.metrics["test_mean"] for run in chosen) == sorted(table["mean"])
    assert [run for run in kinds["point"] if "test_mean" in run.data.metrics] == chosen and len(chosen) == 13


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained_and_masking_shares_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runner = CountingRunner()
        for seeds in (1, 1, 2):
            assert run(f"{SHORT} --seeds {seeds}", tmp_path, runner) == 0
        assert runner.seeds == [[0], [1]]
        assert f"nothing to train: all 47 replicas have results in {tmp_path}" in capsys.readouterr().out
        for job in runner.jobs:
            assert all(len({r.hyperparameters.pretext for r in pack.replicas}) == 1 for pack in job.packs)
        assert run(f"{SHORT} --seeds 2", tmp_path, runner, masking) == 0
        assert len(runner.jobs) == 2

    def test_a_plan_writes_nothing_and_a_budget_leaves_seeds_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(planner, "speeds", at_twelve_seconds)
        assert run(f"{SHORT} --seeds 5 --budget 30m --plan", tmp_path / "out") == 0
        shown = capsys.readouterr().out.splitlines()
        assert shown[0] == "benchmark of breast_cancer: 47 points x 3 seeds = 141 replicas, 0 done, 141 to do"
        assert shown[-1].startswith("budget 30 min 00 s: 3 of 5 seeds fit; seeds 3, 4 are dropped")
        assert not (tmp_path / "out").exists()

    def test_several_data_sets_are_ranked_together_and_rebuilt(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{BOTH} --seeds 2", tmp_path) == 0
        assert names_in(tmp_path / "benchmark") == {"breast_cancer", "diabetes", "breast_cancer+diabetes"}
        together = folder_of(tmp_path, "breast_cancer+diabetes")
        assert names_in(folder_of(tmp_path, "diabetes")) == OF_ONE
        assert names_in(together) == {*OF_SEVERAL, *DRAWN, "ranks.csv"}
        singles = [pd.read_csv(folder_of(tmp_path, name) / "table.csv") for name in ("breast_cancer", "diabetes")]
        table, ranks = pd.read_csv(together / "table.csv"), pd.read_csv(together / "ranks.csv")
        pd.testing.assert_frame_equal(table, pd.concat(singles, ignore_index=True))
        for number, single in zip(("breast_cancer", "diabetes"), singles, strict=True):
            assert list(ranks[number]) == list(single["rank"])
        assert list(ranks["average"]) == list((ranks["breast_cancer"] + ranks["diabetes"]) / 2)
        assert set(pd.read_csv(together / "contrasts.csv")["note"]) == {"no test: needs at least 6 data sets, got 2"}
        shown = capsys.readouterr().out
        assert shown.count("ranks over 2 data sets") == 1 and f"together: {together}" in shown.splitlines()
        assert "not tested: needs at least 6 data sets, got 2" in " ".join(shown.split())

        before = {path: path.read_bytes() for path in (tmp_path / "benchmark").rglob("*.*")}
        for path in before:
            path.unlink()
        runner = CountingRunner()
        assert run(f"{BOTH} --seeds 2 --rebuild", tmp_path, runner) == 0
        assert runner.jobs == []
        for path, content in before.items():
            assert path.name == "manifest.json" or path.read_bytes() == content, path

    def test_a_missing_cell_leaves_no_ranks_until_it_is_trained(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            first = replicas[0]
            if (first.dataset, first.seed, first.hyperparameters.pretext) == ("diabetes", 1, "value_recon"):
                raise RuntimeError("worn out")
            return fake_train(replicas, *arguments, **settings)

        together = folder_of(tmp_path, "breast_cancer+diabetes")
        assert run(f"{BOTH} --seeds 1", tmp_path) == 0
        assert names_in(together) == {*OF_SEVERAL, *DRAWN, "ranks.csv"}
        assert run(f"{BOTH} --seeds 2", tmp_path, InProcessRunner(train)) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert (
            "No average ranks, and no rank diagram: 3 of 26 cells have no result (diabetes none/none/VR, diabetes "
            "none/constant/VR, diabetes none/random/VR)."
        ) in shown
        # The ranks of one seed do not fit the tables of two.
        assert names_in(together) == OF_SEVERAL
        table = pd.read_csv(folder_of(tmp_path, "diabetes") / "table.csv", keep_default_na=False, na_values=[""])
        assert list(table.loc[table["status"] == "missing", "objective"]) == ["VR"] * 3
        assert table.loc[table["status"] == "missing", "mean"].isna().all() and table["rank"].isna().all()
        assert run(f"{BOTH} --seeds 2 --retry-failed", tmp_path) == 0
        assert names_in(together) == {*OF_SEVERAL, *DRAWN, "ranks.csv"}

    def test_a_diverged_method_is_counted_and_ranked_last(self, tmp_path: Path) -> None:
        def is_lost(replica: Replica) -> bool:
            point = replica.hyperparameters
            return (point.pretext, point.masking) == ("value_recon", "none")

        assert run(f"{SHORT} --seeds 2", tmp_path, diverging(is_lost)) == 0
        row = pd.read_csv(folder_of(tmp_path) / "table.csv", keep_default_na=False, na_values=[""]).iloc[0]
        assert (row["status"], row["n"], row["n_diverged"], row["rank"]) == ("diverged", 0, 2, 13)
        assert "| † |" in (folder_of(tmp_path) / "table.md").read_text()
        assert "†2" in (folder_of(tmp_path) / "figure.svg").read_text()


@pytest.mark.usefixtures("no_mlflow")
class TestChoiceFrom:
    def test_all_methods_start_from_what_the_masking_study_chose(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{BOTH} --seeds 2", tmp_path, script=masking) == 0
        runner = CountingRunner()
        assert run(f"{BOTH} --seeds 2 --choice-from {tmp_path}", tmp_path, runner) == 0
        trained = [replica for job in runner.jobs for pack in job.packs for replica in pack.replicas]
        assert {replica.hyperparameters.pretext for replica in trained} >= {"value_recon", "bin_recon"}
        for dataset in ("breast_cancer", "diabetes"):
            chosen = json.loads((tmp_path / "masking" / dataset / "choice.json").read_text())["hyperparameters"]
            table = pd.read_csv(folder_of(tmp_path, dataset) / "table.csv", keep_default_na=False, na_values=[""])
            assert set(table["n_candidates"]) == {1} and len(table) == 13
            assert set(table.loc[table["masking"] != "none", "mask_prob"]) == {chosen["mask_prob"] or 0.2}
            assert set(table["t_init"].dropna()) == {chosen["t_init"]}
            manifest = json.loads((folder_of(tmp_path, dataset) / "manifest.json").read_text())
            assert manifest["choices"][dataset]["hyperparameters"] == chosen
            for name in ("caption.txt", "table.md", "table.tex"):
                assert "Nothing was tuned" in (folder_of(tmp_path, dataset) / name).read_text()
        assert "Nothing was tuned" in (folder_of(tmp_path, "breast_cancer+diabetes") / "caption.txt").read_text()
        # Results are shared with the tuned benchmark: the masking study's 14 points are there, and 10 of these 13.
        capsys.readouterr()
        assert run(f"{BOTH} --seeds 2 --plan", tmp_path) == 0
        assert f"188 replicas, {2 * 28 + len(trained)} done" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--choice-from nowhere", "choice-from must be a choice.json, or a folder that holds"),
            (
                "--choice-from nowhere --t-init 10",
                "--choice-from sets mask_prob, t_init, so it takes none of them, got --t-init",
            ),
            ("--choice-from nowhere --mask-prob 0.2", "got --mask-prob"),
        ],
    )
    def test_bad_input_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, message: str
    ) -> None:
        check_refused(benchmark, f"{SHORT} {words}", message, tmp_path / "out", capsys)

    def test_a_choice_of_another_budget_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(f"{SHORT} --seeds 1", tmp_path, script=masking) == 0
        capsys.readouterr()
        words = f"{SHORT} --seeds 1 --probes 3 --choice-from {tmp_path}"
        check_refused(benchmark, words, "a choice must be made for the budget of the study", tmp_path / "out", capsys)


@pytest.mark.usefixtures("no_mlflow")
class TestOptions:
    @pytest.mark.parametrize("option", ["--panel tau", "--test t", "--metric auc", "--masking none", "--show-test"])
    def test_what_makes_no_sense_is_not_offered(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
    ) -> None:
        assert run(f"{SHORT} {option}", tmp_path / "out") == 2
        assert f"error: unknown option {option.split()[0]}" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert benchmark.main(["--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "Each method is tuned on validation" in shown and "--rebuild" in shown and "--budget" in shown
