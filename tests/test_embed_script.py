"""`sweeps/embed.py`: files to tables of embeddings, in batches; what is counted, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import adaptbin
from adaptbin import AdaptiveBinningClassifier, AdaptiveBinningEncoder
from adaptbin.estimators.folder import MANIFEST
from sweeps import embed
from sweeps.service.embedding import embed_file
from tests.estimators.tables import TINY, TINY_TUNING, clinic, outcome

# Truth values and categories of pandas are words in a file.
TABLE = clinic().assign(smoker=lambda t: t["smoker"].map(str), grade=lambda t: t["grade"].astype(str))
TABLE["dose"] = np.tile([0.5, 1.0, 2.0], 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    words = ["ward", "smoker", "grade", "dose"]
    AdaptiveBinningEncoder(**TINY, categorical_features=words).fit(TABLE).save(folder)
    return folder


def written(folder: Path, table: pd.DataFrame = TABLE, name: str = "rows.csv") -> Path:
    table.to_csv(folder / name, index=False, sep="\t" if ".tsv" in name else ",")
    return folder / name


def read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype={"patient": str})


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.csv.gz", "rows.tsv.gz"])
@pytest.mark.parametrize("output", ["e.csv", "e.parquet"])
def test_embeddings_of_a_file(
    name: str, output: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = TABLE[TABLE.columns[::-1]].assign(patient=[f"{i:03d}" for i in range(120)], more="x")
    rows = written(tmp_path, table, name)
    assert embed.main([str(model), str(rows), "--output", str(tmp_path / output), "--id", "patient"]) == 0
    found = read(tmp_path / output)
    assert list(found.columns) == ["patient", *(f"z{j}" for j in range(16))]
    assert list(found["patient"]) == list(table["patient"]), "as in the file, zeros in front"
    embeddings = found.drop(columns="patient").to_numpy(np.float32)
    np.testing.assert_array_equal(embeddings, adaptbin.load(model).embed(TABLE))
    shown = capsys.readouterr().out
    assert "120 rows as 16 numbers each" in shown and "does not read: more" in shown and "never seen" not in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, output])


@pytest.mark.parametrize("output", ["e.csv", "e.parquet"])
def test_batches_change_nothing(output: str, model: Path, tmp_path: Path) -> None:
    loaded, rows = adaptbin.load(model), written(tmp_path)
    for batch_rows in (7, 120, 1000):
        told = embed_file(loaded, rows, tmp_path / f"{batch_rows}-{output}", batch_rows=batch_rows)
        assert (told.rows, told.unread, +told.unknown) == (120, (), {})
        found = read(tmp_path / f"{batch_rows}-{output}").to_numpy(np.float32)
        np.testing.assert_array_equal(found, loaded.embed(TABLE))


def test_categories_never_seen_are_counted(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ward = TABLE["ward"].mask(TABLE.index < 3, "south").mask(TABLE.index == 50, "")
    rows = written(tmp_path, TABLE.assign(ward=ward, dose=TABLE["dose"].replace(2.0, 4.0)))
    assert embed.main([str(model), str(rows), "--output", str(tmp_path / "e.csv")]) == 0
    shown = capsys.readouterr().out
    assert "ward: 4 of 120 rows have a category that the model has never seen" in shown
    assert "dose: 40 of 120 rows" in shown


def test_models_of_all_kinds(tmp_path: Path) -> None:
    """One that predicts, and one that was fitted to an array, whose columns have no names of their own."""
    classifier = AdaptiveBinningClassifier(**TINY_TUNING, categorical_features=["ward", "smoker", "grade"])
    numbers = TABLE[["age", "beds", "dose"]].set_axis(["x0", "x1", "x2"], axis=1)
    for table, model in (
        (TABLE, classifier.fit(TABLE, outcome(TABLE))),
        (numbers, AdaptiveBinningEncoder(**TINY, categorical_features=[2]).fit(numbers.to_numpy())),
    ):
        embed_file(model, written(tmp_path, table), tmp_path / "e.parquet")
        expected = model.embed(table if table is TABLE else table.to_numpy())
        np.testing.assert_array_equal(read(tmp_path / "e.parquet"), expected)


def lines(*rows: str) -> Callable[[Path], Any]:
    header = "age,beds,ward,smoker,grade,site,dose"
    return lambda path: path.write_text("\n".join([header, *rows]) + "\n")


ROW = "61.5,2,east,True,mild,here,0.5"


@pytest.mark.parametrize(
    "make, options, message",
    [
        (lines(), "", "must hold rows below its header, got none"),
        (lambda path: path.write_text(""), "", "must have a header, got an empty file"),
        (
            lambda path: path.write_text("age,beds,wards,smoker,grade,site\n"),
            "",
            "none called 'ward' and 1 more; did you",
        ),
        (lambda path: path.write_text(f"age,age\n{ROW}\n"), "", "must be distinct, got 'age' more than once"),
        (lines(ROW, "61.5,2,east"), "", "must have 7 cells as the header has, got 3 in row 2"),
        (lines(ROW, f"{ROW},9"), "", "must have 7 cells"),
        (lines(ROW, ROW.replace("61.5", "old")), "", "column 'age' must hold numbers, got 'old' in row 2"),
        (lines(ROW, ROW.replace("0.5", "half")), "", "column 'dose' must hold numbers, got 'half' in row 2"),
        (lines(ROW, ROW.replace("61.5", "")), "", "rows 1 to 2, of which the first is row 0: column 'age' must"),
        (lines(ROW, ROW.replace("61.5", "inf")), "", "column 'age' must hold finite numbers, got inf"),
        (lines(ROW, ROW.replace("61.5", "1e300")), "", "numbers of the size that fit had"),
        (lines(ROW, '"61.5'), "", "must be a table, got: unexpected end of data"),
        (lambda path: path.write_bytes(b"\xff\xfe,\n"), "", "must be text in UTF-8, got byte 0xff"),
        (lambda path: path.mkdir(), "", "cannot be read: Is a directory"),
        (lambda path: None, "", "cannot be read: No such file or directory"),
        (lines(ROW), "--id wards", "must be one of rows.csv, got 'wards'; did you mean 'ward'"),
        (lines(ROW), "--id z0", "must have another name than embeddings, got 'z0'"),
        (lines(ROW), "--output e.xlsx", "output must end in .csv or .parquet, got e.xlsx"),
        (
            lines(ROW),
            "--output there.csv",
            "must be a new file, got one that is there, there.csv; --overwrite replaces it",
        ),
        (lines(ROW), "--outputs e.csv", "unknown option --outputs"),
    ],
)
def test_what_is_refused(
    make: Callable[[Path], Any],
    options: str,
    message: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("mine")
    make(Path("rows.csv"))
    before = sorted(path.name for path in tmp_path.iterdir())
    assert embed.main([str(model), "rows.csv", "--output", "e.csv", *options.split()]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and message in shown.err and shown.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before and Path("there.csv").read_text() == "mine"


def test_other_files(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--output", str(tmp_path / "e.csv")]
    (tmp_path / "rows.xlsx").write_text("")
    assert embed.main([str(model), str(tmp_path / "rows.xlsx"), *words]) == 2
    assert "must be a file that ends in .csv, .tsv, or these and .gz, got rows.xlsx" in capsys.readouterr().err
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(written(tmp_path).read_bytes())[:-9])
    assert embed.main([str(model), str(tmp_path / "rows.csv.gz"), *words]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert embed.main([str(tmp_path), str(written(tmp_path)), *words]) == 2
    assert "must be a folder that an estimator was saved to" in capsys.readouterr().err
    assert not (tmp_path / "e.csv").exists()


def test_a_folder_that_was_changed(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    adaptbin.load(model).save(tmp_path / "model")
    manifest = tmp_path / "model" / MANIFEST
    manifest.write_text(manifest.read_text().replace("east", "best"))
    assert embed.main([str(tmp_path / "model"), str(written(tmp_path)), "--output", str(tmp_path / "e.csv")]) == 2
    assert "must be as it was saved, got other content" in capsys.readouterr().err


def test_asking_to_overwrite(model: Path, tmp_path: Path) -> None:
    rows, output = written(tmp_path), tmp_path / "e.csv"
    output.write_text("mine")
    assert embed.main([str(model), str(rows), "--output", str(output), "--overwrite"]) == 0
    assert len(read(output)) == 120


def test_an_output_that_cannot_be_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    words = [str(model), str(written(tmp_path)), "--output", str(tmp_path / "file" / "e.csv")]
    assert embed.main(words) == 1
    assert "File exists" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert embed.main(["--help"]) == 0
    assert "Embed the rows of a file" in capsys.readouterr().out
