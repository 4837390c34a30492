"""`sweeps/finetune.py` from command line to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from adaptbin.config import Replica
from sweeps import benchmark, finetune
from sweeps.service.local import InProcessRunner
from sweeps.service.methods_finetune import ENCODERS, METHODS
from tests.scripts import (
    SHORT,
    CountingRunner,
    artifacts_in_mlflow,
    check_rebuild,
    check_refused,
    diverging,
    results,
    runs_in_mlflow,
)
from tests.scripts import run as run_script
from tests.service.fakes import fake_train

PROBED = "--dataset breast_cancer --preset quick --epochs 2"
WORDS = f"{PROBED} --finetune-epochs 2 --encoder mlp,resnet"
FILES = {
    *("figure.png", "figure.pdf", "figure.svg", "caption.txt", "manifest.json"),
    *("table.csv", "table.md", "table.tex", "significance.csv", "replicas.csv"),
}


def run(words: str, output: Path, runner: InProcessRunner | None = None, script: Any = finetune) -> int:
    return run_script(script, words, output, runner)


def folder_of(output: Path, dataset: str = "breast_cancer") -> Path:
    return output / "finetune" / dataset


def table_in(output: Path, dataset: str = "breast_cancer") -> pd.DataFrame:
    return pd.read_csv(folder_of(output, dataset) / "table.csv").set_index(["encoder", "method"])


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_from_options_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real training from scratch and after pretraining, real MLflow."""
    assert run(f"{WORDS} --seeds 2", tmp_path, InProcessRunner()) == 0
    records = results(tmp_path)
    assert len(records) == 16
    folder = folder_of(tmp_path)
    assert {path.name for path in folder.iterdir()} == FILES
    table = table_in(tmp_path)
    assert len(table) == 8 and list(table["n"]) == [2] * 8
    for encoder, method in table.index:
        scores = [
            record["scores"]["test"]["auc"]
            for record in records.values()
            if record["identity"]["architecture"].get("encoder", "mlp") == encoder
            and {"none": "supervised", "mask_xent_value_recon": "MR", "bin_recon": "BR"}.get(
                record["identity"]["hyperparameters"].get("pretext"), "Ours"
            )
            == method
        ]
        assert len(scores) == 2 and sum(scores) / 2 == pytest.approx(table.loc[(encoder, method), "mean"])
    scratch = [record for record in records.values() if record["identity"]["budget"] == {"epochs": 0}]
    assert len(scratch) == 4 and all(record["curves"] == {} for record in scratch)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["arms"]["encoder"] == ["mlp", "resnet"] and manifest["finetuning"]["epochs"] == 2
    assert manifest["arms"]["setting"][0] == "breast_cancer MR constant, p_m 0.2" and manifest["choices"] == {}
    assert manifest["replicas"] == {"asked": 16, "found": 16, "diverged": 0, "trained_by_this_run": 16}
    shown = capsys.readouterr().out
    assert "finetune of breast_cancer: 8 points x 2 seeds = 16 replicas, 0 done, 16 to do" in shown
    assert "breast_cancer: test AUC (higher is better)" in shown and f"breast_cancer: {folder}" in shown.splitlines()

    # Seen by MLflow: what is not pretrained is the default; points are named by what they change.
    kinds = runs_in_mlflow(tmp_path)
    assert [len(of_kind) for of_kind in kinds.values()] == [1, 8, 16]
    (study,) = kinds["study"]
    assert study.info.run_name == "finetune breast_cancer" and study.info.status == "FINISHED"
    assert artifacts_in_mlflow(tmp_path, study) == FILES
    assert study.data.params["epochs"] == "2", "of what is pretrained"
    means = {point.info.run_name: point.data.metrics["test_mean"] for point in kinds["point"]}
    assert means["default"] == table.loc[("mlp", "supervised"), "mean"]
    assert means["encoder = resnet"] == table.loc[("resnet", "supervised"), "mean"]
    assert {name.count("pretext = bin_recon") for name in means} == {0, 1} and len(means) == 8


@pytest.mark.usefixtures("no_mlflow")
def test_all_encoders_for_real(tmp_path: Path) -> None:
    """The script's default: every encoder from scratch and after every pretext, if for no more than an epoch each."""
    words = "--dataset breast_cancer --preset quick --epochs 1 --finetune-epochs 1 --seeds 1"
    assert run(words, tmp_path, InProcessRunner()) == 0
    table = table_in(tmp_path)
    assert list(table.index) == [(encoder, method) for encoder in ENCODERS for method in METHODS]
    assert list(table["n"]) == [1] * 20 and table["n_diverged"].sum() == 0
    assert table["mean"].between(0, 1).all() and table["mean"].nunique() > 10


@pytest.mark.usefixtures("no_mlflow")
class TestTheSameService:
    def test_only_what_is_missing_is_trained(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        runner = CountingRunner()
        for words in (f"{WORDS} --seeds 1", f"{WORDS} --seeds 1", f"{WORDS} --seeds 2"):
            assert run(words, tmp_path, runner) == 0
        assert runner.seeds == [[0], [1]]
        assert f"nothing to train: all 8 replicas have results in {tmp_path}" in capsys.readouterr().out
        for job in runner.jobs:
            for pack in job.packs:
                kinds = {(r.architecture.encoder, r.hyperparameters.pretext) for r in pack.replicas}
                assert len(kinds) == 1
        assert run(f"{WORDS.replace('mlp,resnet', 'resnet,tabnet')} --seeds 2", tmp_path, runner) == 0
        assert {r.architecture.encoder for pack in runner.jobs[-1].packs for r in pack.replicas} == {"tabnet"}

    def test_several_data_sets_have_one_table(self, tmp_path: Path) -> None:
        both = WORDS.replace("breast_cancer", "breast_cancer,diabetes")
        assert run(f"{both} --seeds 2", tmp_path) == 0
        together = folder_of(tmp_path, "breast_cancer+diabetes")
        assert {path.name for path in together.iterdir()} == FILES
        singles = [pd.read_csv(folder_of(tmp_path, name) / "table.csv") for name in ("breast_cancer", "diabetes")]
        pd.testing.assert_frame_equal(pd.read_csv(together / "table.csv"), pd.concat(singles, ignore_index=True))
        assert "| MLP | supervised |" in (together / "table.md").read_text()
        assert (
            "| encoder | method | breast_cancer<br>AUC ↑ | diabetes<br>RMSE ↓ |" in (together / "table.md").read_text()
        )

    def test_tables_are_made_again_from_results_alone(self, tmp_path: Path) -> None:
        check_rebuild(finetune, f"{WORDS} --seeds 2", tmp_path, folder_of(tmp_path))

    def test_a_diverged_seed_is_counted(self, tmp_path: Path) -> None:
        def is_lost(replica: Replica) -> bool:
            return (replica.hyperparameters.pretext, replica.architecture.encoder, replica.seed) == ("none", "mlp", 1)

        assert run(f"{WORDS} --seeds 2", tmp_path, diverging(is_lost)) == 0
        table = table_in(tmp_path)
        assert (table.loc[("mlp", "supervised"), "n"], table.loc[("mlp", "supervised"), "n_diverged"]) == (1, 1)
        assert "†1" in (folder_of(tmp_path) / "figure.svg").read_text()

    def test_what_is_missing_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        def worn_out(replicas: Any, *arguments: Any, **settings: Any) -> Any:
            if replicas[0].hyperparameters.pretext == "bin_recon":
                raise RuntimeError("worn out")
            return fake_train(replicas, *arguments, **settings)

        assert run(f"{WORDS} --seeds 1", tmp_path, InProcessRunner(worn_out)) == 1
        assert "2 of 8 replicas have no result" in capsys.readouterr().err
        assert list(table_in(tmp_path)["n_missing"]) == [0, 0, 1, 0] * 2
        assert "| MLP | BR | – |" in (folder_of(tmp_path) / "table.md").read_text()


@pytest.mark.usefixtures("no_mlflow")
class TestChoices:
    def test_pretexts_start_from_what_the_benchmark_chose(self, tmp_path: Path) -> None:
        """Both scripts as they are: a benchmark of linear probes chooses, the fine-tuning takes over."""
        assert run(f"{SHORT} --seeds 2", tmp_path, None, benchmark) == 0
        chosen = json.loads((tmp_path / "benchmark" / "breast_cancer" / "choices.json").read_text())["choices"]
        assert run(f"{WORDS} --seeds 2 --choice-from {tmp_path}", tmp_path) == 0
        table = table_in(tmp_path)
        for method in ("MR", "BR", "Ours"):
            point, row = chosen[method]["hyperparameters"], table.loc[("resnet", method)]
            assert (row["masking"], row["mask_prob"], bool(row["chosen"])) == (
                point["masking"],
                point["mask_prob"],
                True,
            )
            assert method == "MR" or row["t_init"] == point["t_init"]
        manifest = json.loads((folder_of(tmp_path) / "manifest.json").read_text())
        assert manifest["choices"]["breast_cancer"] == {name: chosen[name] for name in ("MR", "BR", "Ours")}
        assert manifest["notes"][-1].startswith(
            "Pretexts of breast_cancer, chosen by 2 x 2 epochs of linear probes (full: 5 x 100) on validation with the "
            "same seeds: MR "
        )

    def test_nothing_is_trained_when_a_choice_does_not_fit(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(f"{SHORT} --seeds 1", tmp_path / "chosen", None, benchmark) == 0
        capsys.readouterr()
        for words, message in (
            (WORDS.replace("breast_cancer", "diabetes"), "a folder that holds benchmark/diabetes/choices.json, got"),
            (
                WORDS.replace("--epochs 2 ", "--epochs 3 "),
                "made for the budget of the study that takes it over, epochs 3",
            ),
        ):
            words = f"{words} --choice-from {tmp_path}/chosen"
            check_refused(finetune, words, message, tmp_path / "out", capsys)
