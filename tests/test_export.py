"""`--export` from command line to folder: the model that was scored, its card, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import adaptbin
from adaptbin.data import encode, load_table
from adaptbin.estimators.folder import MANIFEST
from adaptbin.training.pack import train_pack
from sweeps import ablation, benchmark, finetune, masking, sensitivity
from sweeps.service.local import InProcessRunner
from tests.scripts import check_refused, comparable, results, run
from tests.service.fakes import fake_train

TINY = "--preset quick --epochs 3 --probe-epochs 2 --probes 2"
WORDS = f"--dataset breast_cancer {TINY}"
TUNED = "--preset quick --epochs 2 --finetune-epochs 3 --encoder mlp"


def exported(script: Any, words: str, output: Path, folder: Path) -> int:
    """Exit code; what trains is the real thing."""
    return run(script, f"{words} --export {folder}", output)


def features(dataset: str) -> pd.DataFrame:
    return load_table(dataset, download=False).features


@pytest.mark.usefixtures("no_mlflow")
def test_the_replica_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trained in a pack, exported alone: the same scores, and the embeddings that had them."""
    words = f"{WORDS} --panel tau --seeds 2"
    output, folder = tmp_path / "out", tmp_path / "model"
    assert run(sensitivity, words, output, InProcessRunner()) == 0
    before = results(output)
    capsys.readouterr()
    assert exported(sensitivity, f"{words} --point tau=0.001 --seed 1", output, folder) == 0
    shown = capsys.readouterr().out
    assert "its scores are those of" in shown and "569 rows: the same bits as in training" in shown
    assert results(output) == before, "nothing was written there"
    model = adaptbin.load(folder)
    record = before[model.origin_["replica"]]
    assert record["identity"]["hyperparameters"]["tau"] == 0.001 and record["identity"]["seed"] == 1
    assert model.origin_["scores"] == record["scores"] and model.origin_["point"] == "tau = 0.001"
    table = encode(load_table("breast_cancer"))
    stacks: list[Any] = []
    replica = adaptbin.Replica.from_identity(record["identity"])
    train_pack([replica], table, trained=lambda pretrained, _: stacks.extend(pretrained))
    np.testing.assert_array_equal(model.transform(features("breast_cancer")), stacks[0].embed(table.inputs)[0])
    # The same by its id.
    assert exported(sensitivity, f"{words} --point {replica.id[:9]}", output, tmp_path / "again") == 0
    again = adaptbin.load(tmp_path / "again")
    np.testing.assert_array_equal(
        again.transform(features("breast_cancer")), model.transform(features("breast_cancer"))
    )


@pytest.mark.usefixtures("no_mlflow")
def test_what_was_not_trained_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its result is kept, and is the one that a sweep finds there."""
    words = f"--dataset diabetes {TINY}"
    assert exported(masking, f"{words} --seed 1", tmp_path, tmp_path / "model") == 0
    assert "its result is kept in" in capsys.readouterr().out
    (kept,) = results(tmp_path, "diabetes").values()
    assert kept["runtime"]["pack_size"] == 1 and not any((tmp_path / "checkpoints").iterdir())
    assert run(masking, f"{words} --seeds 2", tmp_path, InProcessRunner()) == 0
    assert "1 done, 27 to do" in capsys.readouterr().out
    assert run(masking, f"{words} --seeds 2", tmp_path / "other", InProcessRunner()) == 0
    assert comparable(results(tmp_path, "diabetes")) == comparable(results(tmp_path / "other", "diabetes"))


@pytest.mark.parametrize("dataset", ["breast_cancer", "diabetes", "eol"])
def test_the_snippet_of_the_card(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Both kinds of models, on a file with the table's rows."""
    if dataset == "eol":
        monkeypatch.setenv("ADAPTBIN_DATA", str(request.getfixturevalue("data_dir")))
    monkeypatch.chdir(tmp_path)
    table = features(dataset)
    table.assign(more=1).to_csv("rows.csv", index=False)
    for script, words, name in (
        (ablation, f"--dataset {dataset} {TINY}", "embeddings"),
        (finetune, f"--dataset {dataset} {TUNED} --point pretext=adaptive_binning", "predictions"),
    ):
        folder = tmp_path / name
        assert exported(script, words, tmp_path / "out", folder) == 0
        card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
        (snippet,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        found: dict[str, Any] = {}
        exec(compile(snippet, "MODEL_CARD.md", "exec"), found)
        model = adaptbin.load(folder)
        if name == "embeddings":
            np.testing.assert_allclose(found[name], model.embed(table), rtol=1e-5, atol=1e-6)
        else:
            predicted = model.predict(table)  # pandas rounds last digits of the file's numbers
            same = np.isclose(found[name], predicted) if dataset == "diabetes" else found[name] == predicted
            assert same.mean() > 0.99
        for told in (model.origin_["replica"], load_table(dataset).fingerprint, "(1000)", "adaptbin 0."):
            assert told in card
        assert ("fine-tuned, seed 0" in card.splitlines()[0]) == (script is finetune)
        primary = model.origin_["metric"]
        assert f"{model.origin_['scores']['test'][primary]:.4f}" in card
        if dataset == "eol":
            assert "The label follows from Height and Weight" in card


def test_methods_of_the_benchmark(tmp_path: Path) -> None:
    """A pretext without adaptive bins has no edges; the point is named by what it changes."""
    words = f"{WORDS} --protocol released --point pretext=bin_recon,masking=random,mask_prob=0.1,t_init=10"
    assert exported(benchmark, words, tmp_path / "out", tmp_path / "model") == 0
    model = adaptbin.load(tmp_path / "model")
    assert (model.bin_edges_, model.get_params()["masking"]) == ({}, "random")
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert card.startswith(
        "# breast_cancer: t_init = 10, masking = random, mask_prob = 0.1, pretext = bin_recon, seed 0"
    )
    assert "label_order alphabetical (clinical)" in card and "pretrained by indices of fixed bins" in card


@pytest.mark.usefixtures("no_mlflow")
def test_another_model_than_that_of_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result that this machine does not come to again is told, with the first number that differs."""
    output, folder = tmp_path / "out", tmp_path / "model"
    assert run(sensitivity, f"{WORDS} --panel tau", output, InProcessRunner(fake_train)) == 0
    capsys.readouterr()
    assert exported(sensitivity, WORDS, output, folder) == 1
    shown = capsys.readouterr().err
    assert "a replica trained again must be the one of its result" in shown
    assert re.search(r"where scores val auc is 0\.\d+, got 0\.\d+; there: .*; here: .*torch", shown)
    assert not folder.exists()


def test_a_replica_that_diverged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{WORDS} --point learning_rate=1e30"
    assert exported(sensitivity, words, tmp_path / "out", tmp_path / "model") == 1
    assert "must be finite, got one that diverged in epoch" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


def test_folders_that_hold_something(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, folder = tmp_path / "out", tmp_path / "model"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert exported(sensitivity, f"{WORDS} --overwrite", output, folder) == 2
    assert "got other files in" in capsys.readouterr().err
    assert exported(sensitivity, WORDS, output, folder / "mine.txt") == 2
    assert "got a file" in capsys.readouterr().err
    (folder / "mine.txt").unlink()
    assert exported(sensitivity, WORDS, output, folder) == 0
    first = (folder / MANIFEST).read_bytes()
    assert exported(sensitivity, f"{WORDS} --seed 1", output, folder) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err and (folder / MANIFEST).read_bytes() == first
    assert exported(sensitivity, f"{WORDS} --seed 1 --overwrite", output, folder) == 0
    assert json.loads((folder / MANIFEST).read_text())["origin"]["seed"] == 1
    assert "seed 1" in (folder / "MODEL_CARD.md").read_text().splitlines()[0]
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    "words, message",
    [
        ("--dataset breast_cancer --export model --point taus=1", "did you mean 'tau'"),
        ("--dataset breast_cancer --export model --point abcdef", "got 'abcdef'"),
        ("--dataset breast_cancer --export model --seed -3", "seed must be a whole number"),
        ("--dataset breast_cancer,diabetes --export model", "one data set, got breast_cancer, diabetes"),
        ("--dataset breast_cancer --export model --plan", "takes no --plan"),
        ("--dataset breast_cancer --export model --rebuild", "takes no --rebuild"),
        ("--dataset breast_cancer --export model --budget 1h", "takes no --budget"),
        ("--dataset breast_cancer --point tau=1", "--point says what --export exports"),
        ("--dataset breast_cancer --seed 0", "--seed says what --export exports"),
        ("--dataset breast_cancer --overwrite", "--overwrite says what --export exports"),
    ],
)
def test_what_is_refused(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(sensitivity, words, message, tmp_path / "out", capsys)
    assert not (tmp_path / "model").exists()
