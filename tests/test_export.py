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
from adaptbin.data.own import Asked, read_own_table
from adaptbin.estimators.folder import MANIFEST
from adaptbin.training.pack import train_pack
from sweeps import ablation, benchmark, embed, finetune, masking, search, sensitivity
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


@pytest.mark.usefixtures("no_mlflow")
def test_the_winner_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, folder = tmp_path / "out", tmp_path / "model"
    words = f"{WORDS} --seeds 1 --confirm-seeds 2 --trials 4 --search tau=1e-5..1e-3,log --fix width=16 --fix depth=1"
    check_refused(search, f"{words} --export {folder}", "a search is known when its confirmation", output, capsys)
    assert run(search, words, output, InProcessRunner()) == 0
    assert "--export FOLDER" in capsys.readouterr().out
    before = results(output)
    confirmation = pd.read_csv(output / "search" / "breast_cancer" / "confirmation.csv")
    won = confirmation[confirmation["winner"]].iloc[0]
    assert exported(search, words, output, folder) == 0
    assert "its scores are those of" in capsys.readouterr().out and results(output) == before
    origin = adaptbin.load(folder).origin_
    assert origin["identity"]["hyperparameters"]["tau"] == won["tau"] and origin["seed"] == 1
    assert origin["identity"]["architecture"]["width"] == 16
    # Without all of the confirmation nobody knows the winner, however many finalists have theirs.
    gone = [path for path in (output / "results" / "breast_cancer").glob("*.json") if path.stem != origin["replica"]]
    gone = [path for path in gone if before[path.stem]["identity"]["seed"] == origin["seed"]]
    kept = gone[0].read_bytes()
    gone[0].unlink()
    assert run(search, f"{words} --export {tmp_path / 'no'}", output) == 2
    assert "got 1 trials and replicas of it left to train" in capsys.readouterr().err
    gone[0].write_bytes(kept)
    # Another of its trials, by the number that tables have, with a seed of the search.
    trials = pd.read_csv(output / "search" / "breast_cancer" / "trials.csv").set_index("trial")
    assert exported(search, f"{words} --point trial=3", output, tmp_path / "other") == 0
    origin = adaptbin.load(tmp_path / "other").origin_
    assert origin["identity"]["hyperparameters"]["tau"] == trials.loc[3, "tau"] and origin["seed"] == 0
    for point, message in (("trial=9", "must be complete, got none of that number"), ("winer", "must be given as")):
        other = f"{words} --export {tmp_path / 'no'} --point {point}"
        assert run(search, other, output) == 2 and message in capsys.readouterr().err


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


def own_table(folder: Path) -> Path:
    """Semicolons, decimal commas, gaps in numbers and words, rows without a label, categories of digits and signs."""
    rng = np.random.default_rng(0)
    age, rows = rng.normal(60, 9, 300).round(1), np.arange(300)
    lines = ["patient;age;beds;ward;code;strip;cells;outcome"]
    for row in rows:
        label = "" if row % 9 == 0 else "bad" if age[row] > 60 else "good"
        years = "?" if row % 7 == 0 else str(age[row]).replace(".", ",")
        ward = ["east", "west", ""][row % 3]
        strip = ["-", "+", "++"][row // 5 % 3]
        cells = f"{800 + row * 2000:,}".replace(",", ".") if row < 290 else f"{row}.000.000"
        known = f"p{row:04d};{years};{rng.normal():.3f};{ward};{row % 4 + 1};{strip}".replace(".", ",")
        lines.append(f"{known};{cells};{label}")
    path = folder / "ward.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "script, words", [(sensitivity, TINY), (finetune, f"{TUNED} --point pretext=adaptive_binning")]
)
def test_an_own_table(
    script: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the file that it was trained on the same embeddings, and so from another kind of file."""
    monkeypatch.chdir(tmp_path)
    path = own_table(tmp_path)
    words = f"--dataset {path} --target outcome --drop patient {words}"
    assert exported(script, words, tmp_path / "out", tmp_path / "model") == 0
    assert "the same bits as in training" in capsys.readouterr().out
    model = adaptbin.load("model")
    assert model.origin_["n_rows"]["unlabelled"] == 34 and model.origin_["target"]["name"] == "outcome"
    asked = Asked(target="outcome", drop=("patient",))
    features = read_own_table(path, asked).table.features
    typed = features.assign(patient=[f"p{row:04d}" for row in range(300)])
    typed.to_parquet("typed.parquet")
    for rows in (str(path), "typed.parquet"):
        assert embed.main(["model", rows, "--output", "e.parquet", "--id", "patient", "--overwrite"]) == 0
        found = pd.read_parquet("e.parquet")
        assert list(found["patient"]) == list(typed["patient"])
        np.testing.assert_array_equal(found.drop(columns="patient"), model.embed(features))
    shown = capsys.readouterr().out
    assert "age: 43 of 300 rows lack a number" in shown and "never seen" not in shown
    card = Path("model/MODEL_CARD.md").read_text(encoding="utf-8")
    assert "34 without a label" in card and "*missing*, east, west" in card
    (snippet,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    features.to_csv("rows.csv", index=False)
    executed: dict[str, Any] = {}
    exec(compile(snippet, "MODEL_CARD.md", "exec"), executed)
    if script is sensitivity:
        np.testing.assert_allclose(executed["embeddings"], model.embed(features), rtol=1e-5, atol=1e-6)
    else:
        assert (executed["predictions"] == model.predict(features)).mean() > 0.99
    # A file of few rows need not have a "+" for "-" to be what it was, nor a million for points to part thousands.
    assert set(features["strip"].head(3)) == {"-"} and list(features["cells"].head(3)) == [800, 2800, 4800]
    Path("few.csv").write_text("".join(line + "\n" for line in path.read_text().splitlines()[:4]))
    assert embed.main(["model", "few.csv", "--output", "few.parquet"]) == 0
    np.testing.assert_array_equal(pd.read_parquet("few.parquet"), model.embed(features.head(3)))
    Path("words.csv").write_text("age,beds,ward,code,strip,cells\nold,1,east,1,-,1\n")
    assert embed.main(["model", "words.csv", "--output", "w.csv"]) == 2
    assert "column 'age' must hold numbers, got 'old' in row 1" in capsys.readouterr().err


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
