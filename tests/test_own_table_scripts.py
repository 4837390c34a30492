"""Own tables from the command line to files: shown, trained, kept, taken back, and refused before any is written."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from adaptbin.data import encode
from adaptbin.errors import ConfigError
from sweeps import ablation, alternatives, architecture, benchmark, finetune, masking, sensitivity, variance
from sweeps.service.checkpoints import FolderPlace
from sweeps.service.failures import FailureLog
from sweeps.service.local import InProcessRunner
from sweeps.service.options import Options, parse_options
from sweeps.service.own_tables import is_path, split_names
from sweeps.service.planner import Planner
from sweeps.service.results import ResultsStore
from tests.data.own_tables import ROWS, frame, text, write
from tests.scripts import CountingRunner, check_rebuild, check_refused, results, run

TINY = "--preset quick --seeds 2 --epochs 2 --probe-epochs 2 --probes 2 --panel tau"
SHORT = "--preset quick --seeds 2"


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """A CSV with everything a card tells: an identifier, dates, categories, missing values and rows without a label."""
    draw = np.random.default_rng(5)
    table = frame(
        patient=[f"P{i // 3}" for i in range(ROWS)],
        seen=pd.date_range("2021-01-01", periods=ROWS).strftime("%Y-%m-%d"),
        stage=draw.integers(1, 5, ROWS),
    )
    table.loc[draw.random(ROWS) < 0.1, "crp"] = np.nan
    folder = tmp_path / "in"
    folder.mkdir()
    return write(folder, "My Clinic.csv", text(table))


def parse(words: list[str], script: Any = sensitivity) -> Options:
    options = parse_options(words, prog="x.py", about="", own_options=script.OPTIONS)
    assert options is not None
    return options


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_from_a_csv_to_a_figure(clinic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Real Ray, and the same command again."""
    output = tmp_path / "out"
    words = ["--dataset", str(clinic), "--target", "outcome", *TINY.split(), "--output", str(output)]
    assert sensitivity.main(words) == 0
    shown = capsys.readouterr().out
    for told in ("my_clinic: 150 rows", "dates such as '2021-01-01'", "positive: 'died'", "do rows belong together"):
        assert told in shown
    assert len(results(output, "my_clinic")) == 10
    folder = output / "sensitivity" / "my_clinic"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["tables"]["my_clinic"]["rows"], manifest["options"]["dataset"]) == (ROWS, ["my_clinic"])
    assert str(tmp_path) not in json.dumps(manifest["options"])
    card = yaml.safe_load((folder / "card.yaml").read_text())
    assert card["fingerprint"] == manifest["tables"]["my_clinic"]["fingerprint"]
    assert (folder / "figure.png").stat().st_size > 10_000
    assert sensitivity.main(words) == 0
    assert "nothing to train: all 10 replicas have results" in capsys.readouterr().out


def test_real_training_in_process_with_the_card_that_was_kept(clinic: Path, tmp_path: Path) -> None:
    output, words = tmp_path / "out", [*TINY.split(), "--output", str(tmp_path / "out")]
    assert alternatives.main(["--dataset", str(clinic), "--target", "outcome", "--output", str(output)]) == 0
    kept = output / "alternatives" / "my_clinic" / "card.yaml"
    scores = pd.read_csv(output / "alternatives" / "my_clinic" / "scores.csv")
    assert set(scores["dataset"]) == {"my_clinic"} and scores["test"].between(0, 1).all()
    options = parse(["--dataset", str(clinic), "--card", str(kept), *words])
    assert options.cards == parse(["--dataset", str(clinic), "--target", "outcome", *words]).cards
    encoded = encode(options.tables["my_clinic"])
    assert encoded.categorical_names == ("sex", "patient", "stage", "crp is missing") or encoded.n_numerical == 2


@pytest.mark.usefixtures("no_mlflow")
@pytest.mark.parametrize(
    "script", [sensitivity, masking, benchmark, ablation, variance, finetune, architecture], ids=lambda s: s.__name__
)
def test_every_script_takes_it(script: Any, clinic: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    link = tmp_path / "clinic.csv"
    link.write_bytes(clinic.read_bytes())
    assert run(script, f"--dataset {link} --target outcome {SHORT}", output) == 0
    (folder,) = (output / script.__name__.rpartition(".")[2]).iterdir()
    assert "paper's" not in (folder / "caption.txt").read_text() or script is not architecture
    assert folder.name == "clinic" and {"card.yaml", "manifest.json", "figure.png"} <= {
        p.name for p in folder.iterdir()
    }


@pytest.mark.usefixtures("no_mlflow")
def test_beside_a_registered_set_and_rebuilt(tmp_path: Path) -> None:
    path = write(tmp_path, "clinic.csv", text(frame()))
    output = tmp_path / "out"
    words = f"--dataset {path},breast_cancer --target outcome {SHORT} --panel tau"
    assert run(sensitivity, words, output) == 0
    assert (output / "sensitivity" / "clinic+breast_cancer" / "card_clinic.yaml").is_file()
    assert not list((output / "sensitivity" / "breast_cancer").glob("card*"))
    check_rebuild(
        sensitivity, f"--dataset {path} --target outcome {SHORT} --panel tau", output, output / "sensitivity" / "clinic"
    )


@pytest.mark.usefixtures("no_mlflow")
def test_a_written_card_says_the_same_and_may_be_changed(clinic: Path, tmp_path: Path) -> None:
    path, output = tmp_path / "cards" / "card.yaml", tmp_path / "out"
    words = ["--dataset", str(clinic), "--output", str(output)]
    first = parse([*words, "--target", "outcome", "--write-card", str(path)])
    again = parse([*words, "--card", str(path)])
    assert again.cards == first.cards and again.tables["my_clinic"].fingerprint == first.tables["my_clinic"].fingerprint
    with pytest.raises(ConfigError, match="metric must be one"):
        parse([*words, "--target", "outcome", "--metric", "rmse", "--write-card", str(tmp_path / "refused.yaml")])
    assert not (tmp_path / "refused.yaml").exists()
    told = yaml.safe_load(path.read_text())
    told |= {"levels": ["died", "alive"], "architecture": {"width": 8, "depth": 1, "batch_size": 32}}
    told["columns"] |= {"stage": {"kind": "numerical", "unit": "grade"}, "sex": {"kind": "dropped"}}
    path.write_text(yaml.safe_dump(told))
    changed = parse([*words, "--card", str(path)]).cards["my_clinic"]
    assert (changed.levels, changed.architecture.width, changed.architecture.batch_size) == (("died", "alive"), 8, 32)
    stage = next(column for column in changed.columns if column.name == "stage")
    assert (stage.kind, stage.unit) == ("numerical", "grade")
    assert "sex" not in [column.name for column in changed.columns]
    assert changed.fingerprint != first.cards["my_clinic"].fingerprint


@pytest.mark.usefixtures("no_mlflow")
def test_a_written_card_replaces_no_other_file(
    clinic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = clinic.read_bytes()
    words = f"--dataset '{clinic}' --target outcome {SHORT} --plan --write-card"
    for place in (clinic, write(tmp_path, "mine.yaml", "positive: alive\n")):
        content = place.read_bytes()
        assert sensitivity.main([*shlex.split(f"{words} '{place}'"), "--output", str(tmp_path / "out")]) == 2
        assert place.name in capsys.readouterr().err and place.read_bytes() == content
    assert clinic.read_bytes() == before


@pytest.mark.usefixtures("no_mlflow")
def test_a_table_of_the_same_name_says_what_it_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    for folder, rows in (("a", ROWS), ("b", ROWS + 10)):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder, "clinic.csv", text(frame(rows)))
        assert run(sensitivity, f"--dataset {path} --target outcome {SHORT}", output) == 0
        assert ("are replaced" in capsys.readouterr().err) == (folder == "b")


def test_kinds_do_not_change_with_what_is_asked(clinic: Path) -> None:
    words = ["--dataset", str(clinic), "--target", "outcome"]
    usual = parse(words).cards
    for more in (["--seeds-vary", "split"], ["--seeds", "7,"], ["--protocol", "released"], ["--preset", "quick"]):
        assert parse([*words, *more]).cards == usual


@pytest.mark.usefixtures("no_mlflow")
def test_a_split_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "clinic.csv", text(frame(id=[f"P{i}" for i in range(ROWS)])))
    parts = ["train"] * 90 + ["val"] * 30 + ["test"] * 30
    by_id = write(tmp_path, "ids.csv", text(pd.DataFrame({"id": [f"P{i}" for i in range(ROWS)], "part": parts})))
    by_row = write(tmp_path, "rows.csv", text(pd.DataFrame({"row": range(1, ROWS + 1), "Split": parts})))
    in_order = write(
        tmp_path, "parts.csv", text(pd.DataFrame({"part": [p.replace("val", "Validation") for p in parts]}))
    )
    prints = set()
    for file in (by_id, by_row, in_order):
        table = parse(["--dataset", str(path), "--target", "outcome", "--split-file", str(file)]).tables["clinic"]
        assert table.parts is not None and table.parts.tolist() == parts
        prints.add(table.fingerprint)
        encoded = encode(table)
        assert [len(rows) for rows in (encoded.train, encoded.val, encoded.test)] == [90, 30, 30]
    assert len(prints) == 1
    assert prints != {parse(["--dataset", str(path), "--target", "outcome"]).tables["clinic"].fingerprint}
    words = f"--dataset {path} --target outcome --split-file {by_row} {SHORT}"
    output = tmp_path / "out"
    check_refused(sensitivity, f"{words} --seeds-vary split", "clinic has a split of its own", output, capsys)
    check_refused(variance, words, "clinic has a split of its own", output, capsys)


def test_test_rows_in_a_file_of_their_own(tmp_path: Path) -> None:
    table = frame(rows=220, patient=[f"P{i // 4}" for i in range(220)])
    first = write(tmp_path, "clinic.csv", text(table[:170]))
    test = write(tmp_path, "later.csv", text(table[170:][["outcome", "sex", "crp", "age", "patient"]], ";"))
    words = ["--dataset", str(first), "--target", "outcome", "--test-file", str(test)]
    for more in ([], ["--groups", "patient"]):
        if more:
            table.loc[170:, "patient"] = [f"Q{i // 4}" for i in range(50)]
            test.write_text(text(table[170:]))
        own = parse([*words, *more]).tables["clinic"]
        assert own.parts is not None and own.parts[170:].tolist() == ["test"] * 50
        assert own.parts[:170].value_counts()["val"] in range(30, 40)
        assert list(own.features["age"]) == list(table["age"])
        encode(own)
    overlapping = write(tmp_path, "same.csv", text(table[170:].assign(patient="P1")))
    with pytest.raises(Exception, match="rows of a group must be in one part of the split"):
        parse([*words[:-1], str(overlapping), "--groups", "patient"])


def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a, b.csv", "x")
    write(tmp_path, "eol", "x")
    assert split_names("a, b.csv", ("eol",)) == ("a, b.csv",)
    assert split_names("eol, my table.csv,HFC", ()) == ("eol", "my table.csv", "hfc")
    assert split_names("all", ("eol", "hfc")) == ("eol", "hfc")
    assert [is_path(name) for name in ("eol", "./eol", "x.parquet", "x.csv.gz", "folder/x")] == [False, *[True] * 4]
    with pytest.raises(ConfigError, match="did you mean 'hfc'.* a table of your own is named by its file"):
        split_names("hcf", ())


REFUSED = {
    "a target without a table": ("--dataset breast_cancer --target y", "--target is for a table of your own"),
    "a card of two tables": ("--dataset {0},{1} --target outcome --card x.yaml", "--card is for one table of your own"),
    "one name for two": ("--dataset {0},{2} --target outcome", "data sets must have different names, got 'clinic'"),
    "no such table": ("--dataset {3} --target outcome", "no such file; did you mean 'clinic.csv'"),
    "no such card": ("--dataset {0} --card {3}.yaml", "cannot be read: No such file"),
    "two splits": (
        "--dataset {0} --target outcome --split-file {1} --test-file {1}",
        "at most one of --split-file and",
    ),
    "another task's metric": (
        "--dataset {0} --target outcome --metric rmse",
        "metric must be one that clinic (binary) has",
    ),
}
"""Case -> words ({n}: files) and a part of the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_written(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, message = REFUSED[case]
    folder = tmp_path / "other"
    folder.mkdir()
    files = [
        write(place, name, text(frame()))
        for place, name in ((tmp_path, "clinic.csv"), (tmp_path, "b.csv"), (folder, "clinic.csv"))
    ]
    check_refused(sensitivity, words.format(*files, tmp_path / "clinci.csv"), message, tmp_path / "out", capsys)


@pytest.mark.usefixtures("no_mlflow")
def test_a_table_is_read_once(clinic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sweeps.service import own_tables

    reads = []
    read = own_tables.read_own_table
    monkeypatch.setattr(own_tables, "read_own_table", lambda *words: (reads.append(words), read(*words))[1])
    words = ["--dataset", str(clinic), "--target", "outcome", *TINY.split(), "--output", str(tmp_path / "out")]
    runner = CountingRunner()
    assert sensitivity.main(words, runner=runner) == 0
    assert (len(reads), len(runner.jobs)) == (1, 1)
    assert sensitivity.main([*words, "--rebuild"], runner=InProcessRunner()) == 0
    assert len(reads) == 2


def test_the_plan_counts_rows_that_are_pretrained_on(tmp_path: Path) -> None:
    """One row in seven has a label: all of the others are pretrained on, too."""
    table = frame(1000)
    table.loc[table.index % 7 > 0, "outcome"] = None
    options = parse(["--dataset", str(write(tmp_path, "few.csv", text(table))), "--target", "outcome"])
    store = ResultsStore(tmp_path / "out")
    study = sensitivity.study(options)
    planner = Planner(options, study, InProcessRunner(), store, FailureLog(store.output), lambda: FolderPlace(tmp_path))
    sizes = planner.sizes["few"]
    encoded = encode(options.tables["few"])
    assert sizes.train_rows == len(encoded.pretraining) > 900 and sizes.rows == 1000
