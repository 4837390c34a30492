"""Tables with gaps: what the model reads of them, whatever says that a value is missing, and that it is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import adaptbin
from adaptbin import AdaptiveBinningClassifier, AdaptiveBinningEncoder, DataError
from adaptbin.estimators.columns import FittedColumns
from adaptbin.estimators.folder import MANIFEST, _digest
from adaptbin.estimators.reading import read_columns
from tests.estimators.tables import TINY, TINY_TUNING, clinic, outcome

GAPS = {"age": slice(0, 120, 4), "ward": slice(1, 120, 5), "smoker": slice(2, 120, 7), "grade": slice(3, 120, 11)}


def gappy(word: Any = None) -> pd.DataFrame:
    """The clinic's table without some values; ``word`` says so where the ward is missing."""
    table = clinic().astype({"smoker": object, "ward": object})
    for name, rows in GAPS.items():
        table.loc[table.index[rows], name] = np.nan if name in ("age", "grade") else word
    return table


def fitted(table: Any, categorical_features: Any = "from_dtype") -> FittedColumns:
    return FittedColumns.of(read_columns(AdaptiveBinningEncoder(), table, fitting=True), categorical_features)


def inputs(columns: FittedColumns, table: Any) -> np.ndarray:
    return columns.inputs(read_columns(AdaptiveBinningEncoder(), table, fitting=True)).numpy()


def test_what_the_model_reads() -> None:
    table = gappy()
    columns = fitted(table)
    read = inputs(columns, table)
    assert [c.values[-1] for c in columns.categories] == [None, None, None]
    assert columns.for_encoder.cardinalities == (4, 3, 4, 2)
    age = table["age"].to_numpy()
    expected = (np.where(np.isnan(age), np.nanmedian(age), age) - np.nanmean(age)) / np.nanstd(age)
    np.testing.assert_array_equal(read[:, 0], expected.astype(np.float32))
    np.testing.assert_array_equal(read[:, 2] == 3, table["ward"].isna())
    np.testing.assert_array_equal(read[:, 3] == 2, table["smoker"].isna())
    np.testing.assert_array_equal(read[:, 4] == 3, table["grade"].isna())
    np.testing.assert_array_equal(read[:, 5], table["age"].isna())
    rows = columns.rows(read_columns(AdaptiveBinningEncoder(), table, fitting=True))
    assert rows.categorical_names == ("ward", "smoker", "grade", "age is missing")
    assert rows.observed is not None
    np.testing.assert_array_equal(rows.observed, np.column_stack([table["age"].notna(), np.full(120, True)]))


@pytest.mark.parametrize("word", [None, np.nan, pd.NA])
def test_whatever_says_missing_is_the_same(word: Any) -> None:
    np.testing.assert_array_equal(inputs(fitted(gappy(word)), gappy(word)), inputs(fitted(gappy()), gappy()))
    own_types = gappy().astype({"ward": "string", "smoker": "boolean", "age": "Float64"})
    np.testing.assert_array_equal(inputs(fitted(own_types), own_types), inputs(fitted(gappy()), gappy()))


def test_numbers_as_categories_may_be_missing() -> None:
    array = np.column_stack([np.tile([3.0, np.nan, 2.0], 10), np.arange(30.0)])
    for asked in ([0], "auto"):
        columns = fitted(array, asked)
        assert columns.categories[0].values == (2.0, 3.0, None)
        assert inputs(columns, array)[:3, 1].tolist() == [1.0, 2.0, 0.0]
    assert fitted(array).imputation.indicated == (0,)


def test_a_gap_that_fit_did_not_have() -> None:
    """A number becomes the median; a category is one that fit had not."""
    columns, later = fitted(clinic()), clinic().astype({"ward": object})
    later.loc[3, "age"], later.loc[3, "ward"] = np.nan, None
    read = inputs(columns, later)
    ages = clinic()["age"]
    assert read.shape == (120, 5)
    assert read[3, 0] == np.float32((ages.median() - ages.mean()) / ages.std(ddof=0))
    assert read[3, 2] == 3


def test_where_the_empty_word_is_known_a_gap_is_one() -> None:
    """As in models of a data set's own table, where an empty field is the empty word."""
    table, later = clinic(), clinic().astype({"ward": object})
    table.loc[::4, "ward"] = ""
    later.loc[3, "ward"], later.loc[4, "ward"] = None, ""
    assert inputs(fitted(table), later)[3:5, 2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "table, message",
    [
        (
            gappy().assign(age=[5.0, np.nan] * 60),
            "'age' must hold two numbers or more where it is not missing, got 5.0",
        ),
        (gappy().rename(columns={"site": "age is missing"}), "must differ from those of indicators"),
        (gappy().assign(age=[np.inf, np.nan] * 60), "column 'age' must hold finite numbers, got inf in row 0"),
        (gappy()[["ward"]].assign(ward=[None] * 120), "at least one column must take two values or more"),
    ],
)
def test_tables_that_are_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AdaptiveBinningEncoder(**TINY).fit(table)


def test_an_empty_column_is_left_out() -> None:
    table = gappy().assign(beds=np.nan)
    assert fitted(table).names_of("constant") == ("beds", "site")


@pytest.mark.parametrize("pretext", ["adaptive_binning", "value_recon"])
def test_what_is_missing_is_kept(pretext: Any, tmp_path: Path) -> None:
    table = gappy()
    model = AdaptiveBinningClassifier(**TINY_TUNING, pretext=pretext).fit(table, outcome(clinic()))
    model.save(tmp_path)
    loaded = adaptbin.load(tmp_path)
    assert isinstance(loaded, AdaptiveBinningClassifier)
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    assert loaded.columns_.to_dict() == model.columns_.to_dict()
    assert model.score(table, outcome(clinic())) > 0.7


def test_models_of_before_come_back(tmp_path: Path) -> None:
    """A version that refused gaps kept no medians: its models still do what they did, and refuse gaps."""
    model = AdaptiveBinningEncoder(**TINY).fit(clinic())
    model.save(tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    del manifest["digest"], manifest["columns"]["median"], manifest["columns"]["indicated"]
    manifest["schema"] = 1
    (tmp_path / MANIFEST).write_text(json.dumps(manifest | {"digest": _digest(manifest)}))
    loaded = AdaptiveBinningEncoder.load(tmp_path)
    np.testing.assert_array_equal(loaded.transform(clinic()), model.transform(clinic()))
    with pytest.raises(DataError, match="column 'age' must hold numbers of the size that fit had, got nan in row 0"):
        loaded.transform(gappy())
