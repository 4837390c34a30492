"""Every spelling of a table is the same table; everything else is refused by line and column."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptbin.data import CARDS, find_file
from adaptbin.data.readers import parse_table, read_embedded, read_table
from adaptbin.errors import DataError, ResourceError
from tests.data import toy

FORMS = {
    "as is": toy.text().encode(),
    "CRLF": toy.text(end="\r\n").encode(),
    "CR": toy.text(end="\r").encode(),
    "byte order mark": toy.text().encode("utf-8-sig"),
    "no final newline": toy.text().rstrip("\n").encode(),
    "blank lines": toy.text(end="\n\n").encode(),
    "aliases": toy.text(("", *toy.HEADER[1:-1], "RISK")).encode(),
    "quoted": toy.text(
        tuple(f'"{n}"' for n in toy.HEADER), [[f'"{cell}"' for cell in row] for row in toy.cells()]
    ).encode(),
    "spaces": toy.text(rows=[[f" {cell} " for cell in row] for row in toy.cells()]).encode(),
    "short numbers": toy.text(
        rows=[[*row[:3], f"{row[3]}.0", row[4].removeprefix("0"), row[5]] for row in toy.cells()]
    ).encode(),
    "exponents": toy.text(rows=[[row[0], f"{row[1]}e+000", *row[2:]] for row in toy.cells()]).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_same_table(form: str, tmp_path: Path) -> None:
    path = tmp_path / "any name.csv"
    path.write_bytes(FORMS[form])
    table = read_table(toy.CARD, path)
    assert table.fingerprint == toy.CARD.fingerprint
    assert table.path == path
    assert list(table.features.columns) == ["size", "answer", "grade", "ratio"]


def test_values_are_those_of_the_file() -> None:
    table = parse_table(toy.CARD, toy.text().encode(), "toy")
    complete = [row for row in toy.cells() if row[4]]
    assert len(complete) == len(toy.cells()) - 1 == 40
    assert table.features["size"].tolist() == [float(row[1]) for row in complete]
    assert table.features["answer"].tolist() == [row[2] for row in complete]
    assert table.target.tolist() == [row[5] for row in complete]
    assert set(table.features["answer"]) == {"no", "NA", "None"}


def changed(row: int, column: int, cell: str) -> str:
    rows = toy.cells()
    rows[row][column] = cell
    return toy.text(rows=rows)


def without(column: int) -> str:
    return toy.text(toy.HEADER[:column] + toy.HEADER[column + 1 :], [r[:column] + r[column + 1 :] for r in toy.cells()])


SWAPPED = toy.text(
    (*toy.HEADER[:1], "answer", "size", *toy.HEADER[3:]), [[r[0], r[2], r[1], *r[3:]] for r in toy.cells()]
)
ROWS = toy.cells()
BAD = {
    "missing column": (without(3), "must have the 6 columns of the data set; it lacks 'grade'$"),
    "extra column": (
        toy.text((*toy.HEADER, "colour"), [[*r, "red"] for r in ROWS]),
        "6 columns of the data set; it has 'colour' too many",
    ),
    "misspelt column": (toy.text(("id", "sise", *toy.HEADER[2:])), "lacks 'size' and has 'sise' too many"),
    "column twice": (
        toy.text((*toy.HEADER, "size"), [[*r, "1"] for r in ROWS]),
        "it has 'size' too many",
    ),
    "reordered columns": (SWAPPED, "columns in another order: column 2 must be 'size', got 'answer'"),
    "another delimiter": (toy.text().replace(",", ";"), "lacks 'id', 'size', 'answer', 'grade', 'ratio' and 1 more"),
    "fewer rows": (toy.text(rows=ROWS[:-1]), "holds 39 complete rows; the data set has 40"),
    "more rows": (toy.text(rows=[*ROWS, ROWS[0]]), "holds 41 complete rows; the data set has 40"),
    "another value": (changed(3, 1, "5.5"), "other values or another row order: its fingerprint must be [0-9a-f]{16}"),
    "another word": (changed(3, 2, "maybe"), "other values or another row order"),
    "another row order": (toy.text(rows=[ROWS[1], ROWS[0], *ROWS[2:]]), "other values or another row order"),
    "text in a number": (changed(3, 1, "abc"), r"line 5: column 'size' must be a finite number, got 'abc' \(1 such"),
    "text in a numeric category": (changed(4, 3, "ten"), "line 6: column 'grade' must be a finite number, got 'ten'"),
    "NaN": (changed(3, 1, "NaN"), "line 5: column 'size' must be a finite number, got 'NaN'"),
    "infinity": (changed(3, 4, "-inf"), "line 5: column 'ratio' must be a finite number, got '-inf'"),
    "empty number": (changed(3, 1, ""), "line 5: column 'size' must be a finite number, got ''"),
    "empty word": (changed(3, 2, ""), "line 5: column 'answer' must hold a word, got an empty field"),
    "unknown label": (
        changed(3, 5, "medium"),
        "line 5: label 'risk' must be one of 'low', 'mid', 'high', got 'medium'",
    ),
    "short row": (toy.text(rows=[*ROWS[:2], ROWS[2][:-1], *ROWS[3:]]), "line 4: must have 6 fields, got 5"),
    "long row": (toy.text(rows=[[*ROWS[0], "1"], *ROWS[1:]]), "line 2: must have 6 fields, got 7"),
    "open quote": (toy.text() + '"', r"line 43: is no valid csv"),
    "no complete row": (
        toy.text(rows=[[*r[:4], "", r[5]] for r in ROWS]),
        "holds no row with a value in 'ratio'; the data set has 40",
    ),
    "header alone": (toy.text(rows=[]), "holds no rows; the data set has 40"),
    "nothing": ("", "is empty; the data set has 40 rows"),
    "a web page": ("<!DOCTYPE html>\n<html>\n</html>\n", "and has '<!DOCTYPE html>' too many"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_files_are_refused(fault: str, tmp_path: Path) -> None:
    content, message = BAD[fault]
    path = tmp_path / "toy.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(toy.CARD, path)
    assert str(caught.value).startswith(f"toy: {path}")
    assert path.read_text() == content


@pytest.mark.parametrize(("encoding", "byte"), [("utf-16", "0xff"), ("latin-1", "0xe9")])
def test_wrong_encoding(encoding: str, byte: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.csv"
    path.write_bytes(toy.text().replace("low", "élevé").encode(encoding))
    with pytest.raises(DataError, match=f"must be text in UTF-8, got byte {byte} at position"):
        read_table(toy.CARD, path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="toy: .* cannot be read: Is a directory"):
        read_table(toy.CARD, tmp_path)


def test_a_file_without_header() -> None:
    card = dataclasses.replace(toy.CARD, reader="headerless")
    assert parse_table(card, toy.text(header=None).encode(), "toy").fingerprint == card.fingerprint
    with pytest.raises(DataError, match="line 1: column 'size' must be a finite number, got 'size'"):
        parse_table(card, toy.text().encode(), "toy")
    with pytest.raises(DataError, match="line 1: must have 6 fields, got 5"):
        parse_table(card, toy.text(None, [row[1:] for row in ROWS]).encode(), "toy")


def test_numeric_labels_may_be_written_as_floats() -> None:
    card = dataclasses.replace(toy.CARD, levels=("0", "1", "2"))
    rows = [[*row[:-1], str(toy.LEVELS.index(row[-1]))] for row in ROWS]
    floats = [[*row[:-1], f"{row[-1]}.0"] for row in rows]
    tables = [parse_table(card, toy.text(rows=r).encode(), "toy") for r in (rows, floats)]
    assert tables[0].fingerprint == tables[1].fingerprint
    assert set(tables[1].target) == {"0", "1", "2"}


def test_minus_zero_is_zero() -> None:
    tables = [parse_table(toy.CARD, changed(0, 1, zero).encode(), "toy") for zero in ("0", "-0.0")]
    assert tables[0].fingerprint == tables[1].fingerprint


def test_words_cannot_run_into_one_another() -> None:
    """Same letters, cut elsewhere: another table."""
    cuts = (("ab", "c"), ("a", "bc"))
    texts = [toy.text(rows=[[*r[:2], w, *r[3:]] for r, w in zip(ROWS, cut, strict=False)]) for cut in cuts]
    tables = [parse_table(toy.CARD, text.encode(), "toy") for text in texts]
    assert tables[0].fingerprint != tables[1].fingerprint


@pytest.mark.parametrize("content", [b"", b"no workbook", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)])
def test_no_workbook(content: bytes) -> None:
    with pytest.raises(DataError, match="ctg: CTG.xls must be an .xls workbook with a sheet 'Data'"):
        parse_table(CARDS["ctg"], content, "CTG.xls")


class FakeSheet:
    """The layout of CTG.xls: numbers above the header, an empty spacer column, a blank row, two summary rows."""

    def __init__(self, *, summary: bool, rows: int = 3):
        names = list(CARDS["ctg"].header)
        self.cells: list[list[Any]] = [["", *map(float, range(len(names)))], ["", *names]]
        for i in range(rows):
            row = [float(i + j) for j in range(len(names))]
            row[names.index("CLASS")] = float(i + 1)
            self.cells.append(["", *row])
        if summary:
            self.cells += [[""] * len(self.cells[0])] + [["", *[9.0] * 39, *[""] * 4]] * 2
        self.nrows = len(self.cells)

    def row_values(self, i: int) -> list[Any]:
        return self.cells[i]

    def sheet_by_name(self, name: str) -> FakeSheet:
        assert name == "Data"
        return self


@pytest.mark.parametrize("summary", [True, False])
def test_the_layout_of_ctg(summary: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlrd.open_workbook", lambda file_contents, logfile: FakeSheet(summary=summary))
    table = parse_table(CARDS["ctg"], b"", "CTG.xls")
    assert table.target.tolist() == ["1", "2", "3"]
    # Columns 2 and 10 of the header are both AC: the counts are the first.
    assert [j for j, name in enumerate(CARDS["ctg"].header) if name == "AC"] == [2, 10]
    assert table.features["AC"].tolist() == [2.0, 3.0, 4.0]


def test_a_workbook_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = FakeSheet(summary=True, rows=0)
    monkeypatch.setattr("xlrd.open_workbook", lambda file_contents, logfile: sheet)
    with pytest.raises(DataError, match="ctg: CTG.xls holds no rows; the data set has 2126"):
        parse_table(CARDS["ctg"], b"", "CTG.xls")
    sheet.nrows = 1
    with pytest.raises(DataError, match="sheet 'Data' must have its header in row 2, got 1 rows"):
        parse_table(CARDS["ctg"], b"", "CTG.xls")


@pytest.mark.parametrize("key", ["breast_cancer", "diabetes"])
def test_embedded_tables_are_as_declared(key: str) -> None:
    table = read_embedded(CARDS[key])
    assert table.fingerprint == CARDS[key].fingerprint
    assert table.path is None
    assert table.features.shape == (CARDS[key].rows, len(CARDS[key].columns))


def test_another_embedded_table_is_refused() -> None:
    with pytest.raises(DataError, match="diabetes: the installed scikit-learn holds 442 complete rows; .* has 443"):
        read_embedded(dataclasses.replace(CARDS["diabetes"], rows=443))


FORMS_THERE = {
    "ilpd": ("Indian Liver Patient Dataset (ILPD).csv", "uci_crlf_Indian Liver Patient Dataset.csv"),
    "hfc": ("heart_failure.csv", "heart_failure_clinical_records_dataset.csv"),
    "ctg": ("CTG.xls",),
    "esr": ("Epileptic Seizure Recognition.csv", "data.csv"),
    "eol": ("ObesityDataSet_raw_and_data_sinthetic.csv",),
    "mhr": ("Maternal Health Risk Data Set.csv", "uci_crlf_Maternal Health Risk Data Set.csv"),
    "pt": ("parkinsons_updrs.data",),
    "bfp": ("bodyfat.csv", "alt_ielbadisy_bodyfat.csv"),
}


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, names in FORMS_THERE.items() for name in names])
def test_every_real_form_has_its_card_s_fingerprint(key: str, name: str, data_dir: Path) -> None:
    assert read_table(CARDS[key], data_dir / key / name).fingerprint == CARDS[key].fingerprint


def test_what_the_real_tables_hold(real_table: Any) -> None:
    """The traps of the eight files, each by a fact that a wrong reading would change."""
    ilpd = real_table("ilpd")
    assert ilpd.target.value_counts().to_dict() == {"1": 414, "2": 165}
    ctg = real_table("ctg")
    # Counts are whole numbers and reach 26; rates per second stay below 1.
    assert ctg.features["AC"].max() == 26 and (ctg.features[["AC", "FM", "UC"]] % 1 == 0).all(axis=None)
    assert ctg.target.value_counts(sort=False).reindex([str(i) for i in range(1, 11)]).tolist() == [
        *(384, 579, 53, 81, 72, 332, 252, 107, 69, 197)
    ]
    eol = real_table("eol")
    assert (eol.features["CALC"] == "Always").sum() == 1 and "no" in set(eol.features["CAEC"])
    mhr = real_table("mhr")
    assert list(mhr.features.columns)[0] == "Age" and (mhr.features["HeartRate"] == 7).sum() == 2
    pt = real_table("pt")
    assert pt.groups is not None and pt.groups.nunique() == 42 and (pt.features["test_time"] < 0).sum() == 12
    bfp = real_table("bfp")
    assert "Density" not in bfp.features and bfp.target[181] == 0 and bfp.features["Height"][41] == 29.5
    esr = real_table("esr")
    assert esr.features.iloc[0, :3].tolist() == [135, 190, 229] and esr.target[0] == "4"
    assert np.unique(esr.target, return_counts=True)[1].tolist() == [2300] * 5


def test_a_workbook_with_another_header(data_dir: Path) -> None:
    card = dataclasses.replace(CARDS["ctg"], header=(*CARDS["ctg"].header, "NSP2"))
    path = find_file(CARDS["ctg"], data_dir)
    assert path is not None
    with pytest.raises(DataError, match="must have the 43 columns of the data set; it lacks 'NSP2'"):
        read_table(card, path)
