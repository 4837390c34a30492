"""Own tables as people have them: each case is a right result, or one clear line that says what to do."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptbin.data.card_file import CardFile, read_card_file
from adaptbin.data.cells import MISSING_WORDS
from adaptbin.data.own import Asked, OwnTable, read_own_table
from adaptbin.errors import AdaptBinError, ConfigError, DataError
from adaptbin.tasks import Task
from tests.data.own_tables import (
    ROWS,
    Check,
    at,
    excel,
    feather,
    frame,
    kinds,
    parquet,
    read,
    reason,
    text,
    write,
)

TABLE = frame()
CSV = text(TABLE)


def zipped(content: bytes, *names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


SAME: dict[str, tuple[str, str | bytes]] = {
    "as is": ("t.csv", CSV),
    "UTF-8 with a mark": ("t.csv", CSV.encode("utf-8-sig")),
    "UTF-16 with a mark": ("t.csv", CSV.encode("utf-16")),
    "UTF-16 big end first": ("t.csv", b"\xfe\xff" + CSV.encode("utf-16-be")),
    "UTF-16 without a mark": ("t.csv", CSV.encode("utf-16-le")),
    "UTF-32": ("t.csv", CSV.encode("utf-32")),
    "CRLF": ("t.csv", CSV.replace("\n", "\r\n")),
    "CR": ("t.csv", CSV.replace("\n", "\r")),
    "semicolons": ("t.csv", text(TABLE, ";")),
    "semicolons and decimal commas": ("t.csv", text(TABLE, ";", decimal=",")),
    "tabs": ("t.tsv", text(TABLE, "\t")),
    "tabs under another name": ("t.csv", text(TABLE, "\t")),
    "bars": ("t.txt", text(TABLE, "|")),
    "decimal commas in quotes": ("t.csv", text(TABLE, decimal=",")),
    "quotes": ("t.csv", text(TABLE, quoting=1)),
    "blanks around cells": ("t.csv", CSV.replace(",", " , ")),
    "blank lines": ("t.csv", CSV.replace("\n", "\n\n")),
    "no final newline": ("t.csv", CSV.rstrip("\n")),
    "gzip": ("t.csv.gz", gzip.compress(CSV.encode())),
    "zip": ("t.zip", zipped(CSV.encode(), "folder/t.csv")),
    "Parquet": ("t.parquet", parquet(TABLE)),
    "Parquet of categories": ("t.parquet", parquet(TABLE.astype({"sex": "category", "outcome": "category"}))),
    "Parquet of numbers as text": ("t.parquet", parquet(TABLE.astype({"age": "str", "crp": "str"}))),
    "Feather": ("t.feather", feather(TABLE)),
    "Excel": ("t.xlsx", excel(TABLE)),
    "Excel with a title for its sheet": ("t.xlsx", excel(TABLE, sheet_name="Werte 2024")),
    "plus signs": ("t.csv", text(TABLE.assign(age=["+" + str(age) for age in TABLE["age"]]))),
    "exponents": ("t.csv", text(TABLE.assign(age=[f"{age * 10:.0f}e-1" for age in TABLE["age"]]))),
}
"""Form -> name and bytes of a file that holds the very same table."""


@pytest.mark.parametrize("form", SAME)
def test_every_form_is_the_same_table(form: str, tmp_path: Path) -> None:
    own, plain = read(tmp_path, *SAME[form], name="clinic"), read(tmp_path, "plain.csv", CSV, name="clinic")
    assert own.table.fingerprint == plain.table.fingerprint == own.table.card.fingerprint
    assert own.table.card.columns == plain.table.card.columns
    np.testing.assert_array_equal(own.table.features["crp"], TABLE["crp"])
    assert list(own.table.target) == list(TABLE["outcome"])


UMLAUTS = frame(ward=np.array(["Süd", "Nord"])[np.arange(ROWS) % 2])


def missing_as(word: str) -> str:
    return text(frame(crp=at(TABLE["crp"], row_2=word, row_9=word)))


def is_missing(name: str = "crp", count: int = 2) -> Check:
    def check(own: OwnTable) -> bool:
        (column,) = (column for column in own.table.card.columns if column.name == name)
        return column.missing and int(own.table.features[name].isna().sum()) == count

    return check


def dropped(name: str, why: str) -> Check:
    return lambda own: kinds(own)[name] == "dropped" and why in reason(own, name) and name not in own.table.features


def label(task: Task, *levels: str) -> Check:
    return lambda own: (own.table.card.task, own.table.card.levels) == (task, levels or None)


def read_again(content: str) -> OwnTable:
    with tempfile.TemporaryDirectory() as folder:
        return read(Path(folder), "t.csv", content)


def of_kind(name: str, kind: str, why: str = "") -> Check:
    return lambda own: kinds(own)[name] == kind and why in reason(own, name)


NUMBERS = np.arange(ROWS) * 1.5 + 0.25
THREE = np.array(["low", "mid", "high"])[np.arange(ROWS) % 3]
GRADES = np.array([1, 2, 10])[np.arange(ROWS) % 3]
WIDE = frame(rows=200, **{f"gene_{j}": np.random.default_rng(j).normal(size=200).round(2) for j in range(9_997)})

RIGHT: dict[str, tuple[str, str | bytes, Mapping[str, Any], Check]] = {
    "Windows-1252, with a note": (
        *("t.csv", text(UMLAUTS).encode("cp1252"), {}),
        lambda own: "Windows-1252" in own.profile.form and set(own.table.features["ward"]) == {"Süd", "Nord"},
    ),
    "a newline in quotes": (
        *("t.csv", text(frame(ward=np.array(["a\nb", "c"])[np.arange(ROWS) % 2])), {}),
        lambda own: set(own.table.features["ward"]) == {"a\nb", "c"} and len(own.table.target) == ROWS,
    ),
    "a delimiter in quotes": (
        *("t.csv", text(frame(ward=np.array(["a,b", 'say "c"'])[np.arange(ROWS) % 2])), {}),
        lambda own: set(own.table.features["ward"]) == {"a,b", 'say "c"'},
    ),
    "commas between thousands": (
        *("t.csv", text(frame(cells=[f"{1000 + 7 * i:,}" for i in range(ROWS)])), {"drop": ("crp",)}),
        lambda own: own.table.features["cells"].tolist() == [1000 + 7 * i for i in range(ROWS)],
    ),
    "thousands and decimal commas": (
        *("t.csv", text(frame(cells=[f"1.{100 + i},5" for i in range(ROWS)]), ";"), {}),
        lambda own: own.table.features["cells"].tolist() == [1100.5 + i for i in range(ROWS)],
    ),
    "commas that may be either, beside a column of decimal commas": (
        *("t.tsv", text(frame(cells=[f"{10 + i % 80},{100 + i}" for i in range(ROWS)]), "\t", decimal=","), {}),
        lambda own: own.table.features["cells"].tolist() == [float(f"{10 + i % 80}.{100 + i}") for i in range(ROWS)],
    ),
    "numbers of many digits beside a word in Excel": (
        *("t.xlsx", excel(frame(cells=[1000.25 + i / 2**10 for i in range(ROWS - 1)] + ["NA"])), {}),
        lambda own: own.table.features["cells"].tolist()[:-1] == [1000.25 + i / 2**10 for i in range(ROWS - 1)],
    ),
    "a number that means missing, as the card says": (
        *("t.csv", missing_as("-999.0"), {"card": CardFile(source="card.yaml", missing_words=("-999",))}),
        is_missing(),
    ),
    "the same in Parquet": (
        *("t.parquet", parquet(frame(crp=at(TABLE["crp"], row_2=-999.0, row_9=-999.0)))),
        *({"card": CardFile(source="card.yaml", missing_words=("-999",))}, is_missing()),
    ),
    "empty rows of commas, before and after": (
        *("t.csv", ",,,\n" + CSV + ",,,\n" * 40, {}),
        lambda own: len(own.table.target) == ROWS and own.table.fingerprint == read_again(CSV).table.fingerprint,
    ),
    "a class called none among numbers": (
        *("t.csv", text(frame(outcome=np.array(["none", "1", "2"])[np.arange(ROWS) % 3])), {}),
        lambda own: set(own.table.target) == {"none", "1", "2"},
    ),
    "thousands parted by points": (
        *(
            "t.csv",
            text(frame(cells=["1.234.567", "950", "1.000.000", *(f"13.{100 + i}" for i in range(3, ROWS))])),
            {},
        ),
        lambda own: own.table.features["cells"].tolist()[:4] == [1234567, 950, 1000000, 13103],
    ),
    "thousands parted by points, beside decimal commas": (
        *("t.csv", text(frame(cells=["1.234.567", "950,5", "1.234", *(f"{10 + i},5" for i in range(3, ROWS))])), {}),
        lambda own: own.table.features["cells"].tolist()[:3] == [1234567, 950.5, 1234],
    ),
    "points that may be either": (
        *("t.csv", text(frame(cells=[f"{10 + i % 80}.{100 + i}" for i in range(ROWS)]), ";"), {}),
        lambda own: own.table.features["cells"].tolist()[:2] == [10.1, 11.101],
    ),
    "commas that may be either, but for one": (
        *("t.csv", text(frame(cells=[f"{i},{100 + i}" for i in range(ROWS)])), {}),
        lambda own: own.table.features["cells"].tolist() == [float(f"{i}.{100 + i}") for i in range(ROWS)],
    ),
    **{
        f"missing as {word!r}": ("t.csv", missing_as(word), {}, is_missing())
        for word in ("", "NA", "N/A", "NaN", "nan", "null", "?", "-", "<NA>", " ")
    },
    "missing in Parquet": ("t.parquet", parquet(frame(crp=at(TABLE["crp"], row_2=None, row_9=None))), {}, is_missing()),
    "missing in Excel": ("t.xlsx", excel(frame(crp=at(TABLE["crp"], row_2=None, row_9=None))), {}, is_missing()),
    "none among numbers is missing": ("t.csv", missing_as("none"), {}, is_missing()),
    "none and no among words are categories": (
        *("t.csv", text(frame(allergy=np.array(["none", "no", "nuts"])[np.arange(ROWS) % 3])), {}),
        lambda own: set(own.table.features["allergy"]) == {"none", "no", "nuts"},
    ),
    "categories that differ in case alone are told": (
        *("t.csv", text(frame(smokes=np.array(["Yes", "yes", "no"])[np.arange(ROWS) % 3])), {}),
        lambda own: (
            set(own.table.features["smokes"]) == {"Yes", "yes", "no"}
            and "differ in case alone, as 'Yes' and 'yes'" in reason(own, "smokes")
        ),
    ),
    "a minus beside plus signs is a finding": (
        *("t.csv", text(frame(strip=np.array(["-", "+", "++"])[np.arange(ROWS) % 3])), {}),
        lambda own: set(own.table.features["strip"]) == {"-", "+", "++"} and "beside '+'" in reason(own, "strip"),
    ),
    "a label of minus and plus": (
        *("t.csv", text(frame(outcome=np.array(["+", "-"])[np.arange(ROWS) % 2])), {}),
        label(Task.BINARY, "-", "+"),
    ),
    **{
        f"a minus where the card names {what}": (
            *("t.csv", text(frame(strip=np.array(["-", "+", "++"])[np.arange(ROWS) % 3]))),
            *({"card": CardFile(source="card.yaml", missing_words=words)}, found),
        )
        for what, words, found in (
            ("it", ("-",), lambda own: set(own.table.features["strip"]) == {"", "+", "++"}),
            ("the usual words", MISSING_WORDS, lambda own: set(own.table.features["strip"]) == {"-", "+", "++"}),
        )
    },
    "a missing word is a category of its own": (
        *("t.csv", text(frame(sex=at(TABLE["sex"], row_1="", row_5="NA"))), {}),
        lambda own: set(own.table.features["sex"]) == {"f", "m", ""} and of_kind("sex", "categorical")(own),
    ),
    "no value at all": ("t.csv", text(frame(empty=[None] * ROWS)), {}, dropped("empty", "no value")),
    "a constant": ("t.csv", text(frame(country=["NL"] * ROWS)), {}, dropped("country", "constant: 'NL'")),
    "identifiers that are words": (
        *("t.csv", text(frame(who=[f"P{i}" for i in range(ROWS)])), {}),
        dropped("who", "identifier: every row that trains has another word"),
    ),
    "identifiers that are numbers": (
        *("t.csv", text(frame(mrn=np.arange(ROWS) * 977 + 4)), {}),
        dropped("mrn", "identifier: every row that trains has another whole number"),
    ),
    "keys of 17 digits": (
        *("t.csv", text(frame(key_of_visit=[str(10**16 + i // 2) for i in range(ROWS)])), {}),
        dropped("key_of_visit", "identifier: whole numbers of 16 digits or more"),
    ),
    "rows that belong together by keys of 17 digits": (
        *("t.parquet", parquet(frame(visit=[10**16 + 1 + i // 2 for i in range(ROWS)])), {"groups": "visit"}),
        lambda own: own.table.groups.nunique() == ROWS // 2 and own.table.groups.iloc[0] == "10000000000000001",
    ),
    "row numbers": ("t.csv", text(frame(n=np.arange(ROWS))), {}, dropped("n", "identifier")),
    "whole numbers that are measured": (
        *("t.csv", text(frame(platelets=np.random.default_rng(0).permutation(90_000)[:ROWS])), {}),
        of_kind("platelets", "numerical"),
    ),
    "dates": (
        *("t.csv", text(frame(seen=pd.date_range("2020-01-01", periods=ROWS).strftime("%d.%m.%Y"))), {}),
        dropped("seen", "dates such as '01.01.2020'"),
    ),
    "moments in Parquet": (
        *("t.parquet", parquet(frame(seen=pd.date_range("2020-01-01", periods=ROWS, freq="h"))), {}),
        dropped("seen", "dates"),
    ),
    "dates in Excel": (
        *("t.xlsx", excel(frame(seen=pd.date_range("2020-01-01", periods=ROWS))), {}),
        dropped("seen", "dates"),
    ),
    "free text": (
        *("t.csv", text(frame(note=[f"came with {i // 2 * 7} and went" for i in range(ROWS)])), {"drop": ()}),
        of_kind("note", "dropped", "free text"),
    ),
    "booleans as text": (
        *("t.csv", text(frame(smoker=np.array(["True", "False"])[np.arange(ROWS) % 2])), {}),
        lambda own: set(own.table.features["smoker"]) == {"True", "False"},
    ),
    "booleans in Parquet": (
        *("t.parquet", parquet(frame(smoker=np.arange(ROWS) % 2 == 0)), {}),
        lambda own: set(own.table.features["smoker"]) == {"True", "False"},
    ),
    "few numbers are categories": (
        *("t.csv", text(frame(grade=GRADES.astype(float))), {}),
        lambda own: (
            of_kind("grade", "categorical", "3 different values, at most 20")(own)
            and set(own.table.features["grade"]) == {"1", "2", "10"}
        ),
    ),
    "numbers with a unit say so": (
        *("t.csv", text(frame(dose=[f"{i} mg" for i in range(ROWS)])), {}),
        of_kind("dose", "dropped", "identifier"),
    ),
    "percentages say so": (
        *("t.csv", text(frame(dose=[f"{i // 2}.5%" for i in range(ROWS)])), {}),
        of_kind("dose", "dropped", "numbers must stand alone to be read as such"),
    ),
    "a million rows": (
        *("t.parquet", parquet(frame(rows=1_000_000)), {}),
        lambda own: (
            len(own.table.target) == own.table.card.rows == 1_000_000 and own.table.card.architecture.batch_size == 128
        ),
    ),
    "10,000 columns": (
        *("t.csv", text(WIDE), {}),
        lambda own: len(own.table.features.columns) == 10_000 and len(own.table.target) == 200,
    ),
    "a label of words": ("t.csv", CSV, {}, label(Task.BINARY, "alive", "died")),
    "the positive one": ("t.csv", CSV, {"positive": "alive"}, label(Task.BINARY, "died", "alive")),
    "a label of 0 and 1": (
        *("t.csv", text(frame(outcome=np.arange(ROWS) % 2.0)), {}),
        label(Task.BINARY, "0", "1"),
    ),
    "numbers in their order": ("t.csv", text(frame(outcome=GRADES)), {}, label(Task.MULTICLASS, "1", "2", "10")),
    "words in alphabetical order": (
        "t.csv",
        text(frame(outcome=THREE)),
        {},
        label(Task.MULTICLASS, "high", "low", "mid"),
    ),
    "levels from low to high": (
        *("t.csv", text(frame(outcome=THREE)), {"ordinal": "low < mid<high"}),
        label(Task.ORDINAL, "low", "mid", "high"),
    ),
    "a number to predict": ("t.csv", text(frame(outcome=NUMBERS)), {}, label(Task.REGRESSION)),
    "a number to predict, as text with decimal commas": (
        *("t.csv", text(frame(outcome=NUMBERS), decimal=",", quoting=1), {}),
        lambda own: own.table.card.levels is None and own.table.target.tolist() == NUMBERS.tolist(),
    ),
    "a number to predict, as text in Parquet": (
        *("t.parquet", parquet(frame(outcome=NUMBERS.astype(str))), {}),
        label(Task.REGRESSION),
    ),
    "5,000 whole numbers are no classes": (
        *("t.csv", text(frame(rows=5_000, outcome=np.arange(5_000))), {}),
        label(Task.REGRESSION),
    ),
    "rows without a label": (
        *("t.csv", text(frame(outcome=at(TABLE["outcome"], row_1="", row_2="NA"))), {}),
        lambda own: own.profile.unlabelled == 2 and list(own.table.target[:2]) == ["", ""],
    ),
    "rows without a number to predict": (
        *("t.csv", text(frame(outcome=at(NUMBERS, row_1=None))), {}),
        lambda own: own.profile.unlabelled == 1 and np.isnan(own.table.target[0]),
    ),
    "a card's own missing words": (
        *("t.csv", text(frame(crp=at(TABLE["crp"], row_2="99999x", row_9=""), land=["DE", "NA"] * 75))),
        {"card": CardFile(missing_words=("99999X",))},
        lambda own: is_missing()(own) and set(own.table.features["land"]) == {"DE", "NA"},
    ),
    "a column that is left out": ("t.csv", CSV, {"drop": ("crp",)}, dropped("crp", "left out with --drop")),
    "rows that belong together": (
        *("t.csv", text(frame(patient=[f"P{i // 5}" for i in range(ROWS)])), {"groups": "patient"}),
        lambda own: (
            own.table.groups is not None and own.table.groups.nunique() == 30 and "patient" not in own.table.features
        ),
    ),
    "rows that may belong together": (
        *("t.csv", text(frame(patient=[i // 5 for i in range(ROWS)])), {}),
        lambda own: own.profile.groups == ("patient",),
    ),
    "rows twice": (
        *("t.csv", text(pd.concat([TABLE, TABLE[:30]])), {}),
        lambda own: own.profile.repeated == 30 and own.profile.twins > 0,
    ),
    "a column that tells the label": (
        *("t.csv", text(frame(died_on=np.where(TABLE["outcome"] == "died", 1.0, 0.0) + TABLE["age"] / 1e3)), {}),
        lambda own: [leak.column for leak in own.profile.leaks] == ["died_on"],
    ),
    "headers with blanks and umlauts": (
        *("t.csv", text(TABLE.rename(columns={"age": " Größe (cm) "})), {}),
        of_kind("Größe (cm)", "numerical"),
    ),
}
"""Case -> name and bytes of a file, what is asked, and what must hold of the table."""


@pytest.mark.parametrize("case", RIGHT)
def test_right_result(case: str, tmp_path: Path) -> None:
    file, content, asked, holds = RIGHT[case]
    assert holds(read(tmp_path, file, content, **asked))


MIXED = text(frame(crp=at(TABLE["crp"], row_17="<5", row_20="error")))
WORDS = [f"word {i}" for i in range(ROWS)]

REFUSED: dict[str, tuple[str, str | bytes, Mapping[str, Any], str]] = {
    "no text": ("t.csv", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, {}, "t.csv must be text, got bytes of zero"),
    "no known encoding": ("t.csv", b"age,outcome\n\x81\x8d,a\n", {}, "UTF-8, UTF-16 or Windows-1252, got byte 0x81"),
    "half a character": ("t.csv", b"\xff\xfea\x00b", {}, "t.csv must be UTF-16 throughout"),
    "an empty file": ("t.csv", b"", {}, "must hold a header and rows, got an empty file"),
    "a header alone": ("t.csv", "age,outcome\n", {}, "must have rows below its header, got none"),
    "1 row": ("t.csv", text(TABLE[:1]), {}, "target 'outcome' must take two values or more"),
    "2 rows": ("t.csv", text(TABLE[1:3]), {}, "every part of the split must hold rows"),
    "few rows": (
        "t.csv",
        text(TABLE[:60]),
        {},
        "train must fill a batch of 64 rows, got 38; a card may ask for smaller",
    ),
    "1 column": ("t.csv", text(TABLE[["outcome"]]), {}, "a column to learn from beside its label, got none"),
    "nothing to learn from": (
        *("t.csv", text(TABLE[["outcome"]].assign(a="x")), {}),
        "got none ('a': constant: 'x' in every row that trains)",
    ),
    "no header": (
        "t.csv",
        "1,2,3\n4,5,6\n",
        {},
        "the first line must hold the names of the columns, got numbers: 1, 2, 3",
    ),
    "headers twice": ("t.csv", CSV.replace("crp", "age", 1), {}, "headers must differ, got 'age' more than once"),
    "headers twice in Excel": (
        "t.xlsx",
        excel(TABLE.set_axis(["a", "a", "b", "outcome"], axis=1)),
        {},
        "got 'a' more than",
    ),
    "an empty header": ("t.csv", CSV.replace("crp", "", 1), {}, "name in the header, got none for column 2 of 4"),
    "a row too short": (
        "t.csv",
        CSV + "60,3\n",
        {},
        "line 152: a row must have 4 cells as the header has (parted by ','), got 2",
    ),
    "a row too long": ("t.csv", CSV + "60,3,f,died,x\n", {}, "line 152: a row must have 4 cells"),
    "no Parquet": ("t.parquet", CSV, {}, "t.parquet must be a Parquet file, as its name says"),
    "no Feather": ("t.feather", CSV, {}, "t.feather must be a Feather file, as its name says"),
    "no workbook": ("t.xlsx", CSV, {}, "t.xlsx must be an Excel workbook, as its name says"),
    "no old workbook": ("t.xls", CSV, {}, "t.xls must be an Excel workbook, as its name says"),
    "half a gzip": ("t.csv.gz", gzip.compress(CSV.encode())[:40], {}, "t.csv.gz must be a whole .gz file"),
    "no zip": ("t.zip", CSV, {}, "t.zip must be a whole .zip file"),
    "two tables in a zip": ("t.zip", zipped(b"a", "a.csv", "b.csv"), {}, "an archive must hold one text table, got 2"),
    "no table": ("t.json", "{}", {}, "a table must be a file named .csv"),
    "a Parquet in a gzip": ("t.parquet.gz", b"", {}, "text also with .gz or .zip"),
    "numbers and words": ("t.csv", MIXED, {}, "column 'crp' holds numbers, but '<5' in row 17 (2 such rows). Correct"),
    "inf": (
        "t.csv",
        text(frame(crp=at(TABLE["crp"], row_3="inf"))),
        {},
        "'crp' must hold finite numbers, got inf in row 3",
    ),
    "-inf in Parquet": (
        *("t.parquet", parquet(frame(crp=at(TABLE["crp"], row_4=-np.inf))), {}),
        "'crp' must hold finite numbers, got -inf in row 4 (1 such rows)",
    ),
    "no target": (
        "t.csv",
        CSV,
        {"target": None},
        "a table of your own needs --target, one of 'age', 'crp', 'sex', 'outcome'",
    ),
    "a target that is not there": ("t.csv", CSV, {"target": "outcom"}, "got 'outcom'; did you mean 'outcome'?"),
    "a target in other letters": ("t.csv", CSV, {"target": "Outcome"}, "got 'Outcome'; did you mean 'outcome'?"),
    "groups that are not there": (
        "t.csv",
        CSV,
        {"groups": "sexx"},
        "groups must be a column, got 'sexx'; did you mean 'sex'?",
    ),
    "a drop that is not there": (
        "t.csv",
        CSV,
        {"drop": ("cpr",)},
        "drop must be a column, got 'cpr'; did you mean 'crp'?",
    ),
    "the target left out": ("t.csv", CSV, {"drop": ("outcome",)}, "must be different columns"),
    "groups that lack a value": (
        *("t.csv", text(frame(sex=at(TABLE["sex"], row_7=""))), {"groups": "sex"}),
        "every row must have a group, got none in 'sex' of row 7",
    ),
    "two groups": ("t.csv", CSV, {"groups": "sex"}, "every part of the split must hold rows"),
    "a label with 1 class": ("t.csv", text(frame(outcome=["a"] * ROWS)), {}, "two values or more, got 'a' in every"),
    "a label without values": (
        "t.csv",
        text(frame(outcome=[""] * ROWS)),
        {},
        "must have values, got none in all 150 rows",
    ),
    "a label with 5,000 classes": (
        *("t.csv", text(frame(rows=5_000, outcome=[f"c{i}" for i in range(5_000)])), {}),
        "must have at most 100 classes, got 5000 different values such as 'c0', 'c1', 'c2'",
    ),
    "a number to predict with its unit": (
        *("t.csv", text(frame(outcome=[f"{i}.5 kg" for i in range(ROWS)])), {}),
        "got 150 different values such as '0.5 kg', '1.5 kg', '2.5 kg'; numbers must stand alone, without a unit",
    ),
    "a number to predict with a word": (
        *("t.csv", text(frame(outcome=at(NUMBERS, row_8="high"))), {}),
        "target 'outcome' must hold numbers throughout, got 'high' in row 8 (1 such rows)",
    ),
    "an infinite label": (
        "t.csv",
        text(frame(outcome=at(NUMBERS, row_8="inf"))),
        {},
        "finite numbers, got inf in row 8",
    ),
    "labels in two cases": (
        *("t.csv", text(frame(outcome=at(TABLE["outcome"], row_1="Died"))), {}),
        "levels that differ in case alone, got 'Died' and 'died'",
    ),
    "a class of one row": (
        *("t.csv", text(frame(outcome=at(THREE, row_15="dire"))), {}),
        "every class must occur in train, got no row of 'dire' (1 in all",
    ),
    "levels without one": ("t.csv", text(frame(outcome=THREE)), {"ordinal": "low<high"}, "got none for 'mid'"),
    "levels with one too many": (
        *("t.csv", text(frame(outcome=THREE)), {"ordinal": "low<mid<high<hihg"}),
        "got 'hihg', which no row has; did you mean 'high'?",
    ),
    "levels twice": ("t.csv", CSV, {"ordinal": "a<a"}, "ordinal must be different levels from low to high"),
    "levels of a number": ("t.csv", text(frame(outcome=NUMBERS)), {"ordinal": "1<2"}, "must have at most 100 classes"),
    "a positive that is not there": (
        "t.csv",
        CSV,
        {"positive": "dead"},
        "positive must be one of 'alive', 'died', got 'dead'",
    ),
    "a positive of three": (
        "t.csv",
        text(frame(outcome=THREE)),
        {"positive": "mid"},
        "positive is for a label with two values",
    ),
    "ordinal and positive": (
        "t.csv",
        CSV,
        {"positive": "died", "ordinal": "alive<died"},
        "at most one of --ordinal and",
    ),
    "a known name": (
        "eol.csv",
        CSV,
        {},
        "the name 'eol' is that of a known data set; give the table another with --name",
    ),
    "a name that is none": ("t.csv", CSV, {"name": "My table"}, "name must be small letters, digits"),
}
"""Case -> name and bytes of a file, what is asked, and a part of the message."""


@pytest.mark.parametrize("case", REFUSED)
def test_clear_message(case: str, tmp_path: Path) -> None:
    file, content, asked, message = REFUSED[case]
    with pytest.raises((DataError, ConfigError)) as raised:
        read(tmp_path, file, content, **asked)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value) and str(tmp_path) not in str(raised.value)


def test_no_such_file(tmp_path: Path) -> None:
    write(tmp_path, "clinic.csv", CSV)
    with pytest.raises(AdaptBinError, match="no such file; did you mean 'clinic.csv'"):
        read_own_table(tmp_path / "clinci.csv", Asked(target="outcome"))


CARDS: dict[str, tuple[str, str]] = {
    "no YAML": ("columns: {age: [", "must be YAML"),
    "a list": ("- age", "must be lines of 'key: value', got list"),
    "an unknown key": ("taget: outcome", "unknown key 'taget'; did you mean 'target'?"),
    "an unknown kind": (
        "columns: {age: number}",
        "kind of 'age' must be one of numerical, categorical, dropped, got 'number'",
    ),
    "an unknown task": ("task: regresion", "did you mean 'regression'?"),
    "an unknown metric": ("primary_metric: f1", "primary_metric must be one of auc, accuracy, qwk, rmse, got 'f1'"),
    "another task's metric": ("primary_metric: rmse", "primary_metric must be one that a binary label has: auc"),
    "yes without quotes": ("levels: [no, yes]", "write yes, no, true, false and null in quotes, got False"),
    "a column too many": ("columns: {weight: numerical}", "has a column 'weight', which t.csv has not"),
    "a column misspelt": (
        "columns: {ages: numerical}",
        "has a column 'ages', which t.csv has not; did you mean 'age'?",
    ),
    "words that are to be numbers": (
        "columns: {sex: numerical}",
        "'sex' must hold numbers, since the card says numerical",
    ),
    "other levels": ("levels: [alive, dead]", "levels must name every value of 'outcome', got none for 'died'"),
    "other rows": ("rows: 151", "is of a table of 151 rows, got 150"),
    "another table": ("fingerprint: abc", "its fingerprint must be"),
    "another target": ("target: sex", "target must be the same for option and card, got 'outcome'"),
    "the target as a column": ("columns: {outcome: categorical}", "the target 'outcome' is no column to learn from"),
    "no architecture": ("architecture: {width: 0}", "architecture: width must be a whole number >= 1"),
    "an unknown setting": ("architecture: {wdith: 8}", "did you mean 'width'?"),
}
"""Case -> a card, and a part of the message."""


@pytest.mark.parametrize("case", CARDS)
def test_cards_that_disagree(case: str, tmp_path: Path) -> None:
    told, message = CARDS[case]
    with pytest.raises(ConfigError if case != "words that are to be numbers" else DataError) as raised:
        read(tmp_path, "t.csv", CSV, card=read_card_file(write(tmp_path, "card.yaml", told)))
    assert message in str(raised.value) and "\n" not in str(raised.value)


SPLITS: dict[str, tuple[str, str]] = {
    "overlapping rows": ("row,part\n1,train\n1,test\n", "parts must not overlap, got row '1' in train and in test"),
    "rows that are left out": ("row,part\n1,train\n", "every labelled row must be in a part, got none for row 2"),
    "rows that are not there": ("row,part\n999,train\n", "got row '999', which it has not"),
    "an unknown part": (
        "row,part\n1,tset\n",
        "a part must be train, val or test, got 'tset' in row 1; did you mean 'test'?",
    ),
    "an unknown column": (
        "patint,part\n1,train\n",
        "rows must be found by 'row' or by a column of the table, got 'patint'",
    ),
    "no part": ("row,fold\n1,train\n", "a split must have a column part or split or set"),
    "too few parts": ("part,\n", "every column must have a name"),
    "another number of rows": ("part\ntrain\ntest\n", "must have 150 rows as the table has, got 2"),
    "no validation": ("part\n" + "train\n" * 100 + "test\n" * 50, "every part of the split must hold rows"),
}
"""Case -> a split file, and a part of the message."""


@pytest.mark.parametrize("case", SPLITS)
def test_splits_that_cannot_be(case: str, tmp_path: Path) -> None:
    content, message = SPLITS[case]
    with pytest.raises(DataError) as raised:
        read(tmp_path, "t.csv", CSV, split_file=write(tmp_path, "split.csv", content))
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("part", ["val", "test"])
def test_a_part_with_one_of_three_classes_scores_nothing(part: str, tmp_path: Path) -> None:
    parts, other = np.full(ROWS, "train", dtype=object), {"val": "test", "test": "val"}[part]
    parts[::6], parts[1::6], parts[2::6] = part, other, other
    split = write(tmp_path, "split.csv", "\n".join(["part", *parts]) + "\n")
    message = (
        f"t: labels of {part} must take two values or more, or they score nothing, got 'low' in all {ROWS // 6} rows"
    )
    with pytest.raises(DataError, match=message):
        read(tmp_path, "t.csv", text(frame(outcome=THREE)), split_file=split)


@pytest.mark.parametrize("said", [{"ordinal": "mid<low<high"}, {}], ids=["another order", "no order"])
def test_what_a_label_means_makes_another_table(said: dict[str, Any], tmp_path: Path) -> None:
    """Else results of a label order that was said wrongly would be taken for those of the right one."""
    content = text(frame(outcome=THREE))
    right = read(tmp_path, "t.csv", content, ordinal="low<mid<high")
    other = read(tmp_path, "t.csv", content, **said)
    assert right.table.fingerprint == right.table.card.fingerprint != other.table.fingerprint


def test_there_are_many_cases() -> None:
    assert sum(map(len, (SAME, RIGHT, REFUSED, CARDS, SPLITS))) >= 150
