"""Which columns are numbers and which categories, what a model reads of them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptbin import AdaptiveBinningEncoder, ConfigError, DataError
from adaptbin.data import encode, load_table
from adaptbin.estimators.columns import FittedColumns
from adaptbin.estimators.reading import read_columns
from tests.estimators.tables import TINY, clinic


def fitted(table: Any, categorical_features: Any = "from_dtype") -> FittedColumns:
    return FittedColumns.of(read_columns(AdaptiveBinningEncoder(), table, fitting=True), categorical_features)


def inputs(columns: FittedColumns, table: Any) -> np.ndarray:
    """[N, D + C] of ``table``, as the model reads it."""
    return columns.inputs(read_columns(AdaptiveBinningEncoder(), table, fitting=True)).numpy()


@pytest.mark.parametrize(
    "asked, categorical",
    [
        ("from_dtype", ["ward", "smoker", "grade"]),
        ("auto", ["beds", "ward", "smoker", "grade"]),
        (["ward", "grade"], ["ward", "grade"]),
        ([1, 2, 4], ["beds", "ward", "grade"]),
        (np.array([2, "grade"], dtype=object), ["ward", "grade"]),
        ([False, True, True, False, True, False], ["beds", "ward", "grade"]),
    ],
)
def test_which_columns_are_categorical(asked: Any, categorical: list[str]) -> None:
    columns = fitted(clinic(), asked)
    assert list(columns.names_of("categorical")) == categorical
    assert columns.names_of("constant") == ("site",)
    assert len(columns.names_of("numerical")) == 5 - len(categorical)


def test_what_the_model_reads() -> None:
    table = clinic()
    columns = fitted(table)
    read = inputs(columns, table)
    assert read.dtype == np.float32 and read.shape == (120, 5)
    np.testing.assert_allclose(read[:, :2].mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(read[:, :2].std(0), 1, atol=1e-6)
    assert columns.categories[0].values == ("east", "north", "west")
    assert columns.categories[2].values == ("mild", "severe", "grave"), "the order of the type, not of the alphabet"
    np.testing.assert_array_equal(read[:, 2], table["ward"].map({"east": 0, "north": 1, "west": 2}))
    np.testing.assert_array_equal(read[:, 4], table["grade"].cat.codes)


def test_the_same_as_in_a_sweep() -> None:
    """One table standardised and coded here and there: where all rows train, a split's train rows alone do."""
    source = load_table("diabetes")
    table = encode(source)
    train = source.features.iloc[table.train.numpy()]
    columns = fitted(train, list(source.card.categorical))
    np.testing.assert_array_equal(inputs(columns, source.features), table.inputs.numpy())


def test_an_unseen_category_has_a_code_of_its_own() -> None:
    table = clinic()
    columns = fitted(table)
    table["ward"], table["grade"] = "south", pd.Categorical(["hopeless"] * len(table))
    read = inputs(columns, table)
    assert (read[:, 2] == 3).all() and (read[:, 4] == 3).all()


def test_a_constant_column_is_not_read() -> None:
    table = clinic()
    encoder = AdaptiveBinningEncoder(**TINY).fit(table)
    embedded = encoder.transform(table)
    np.testing.assert_array_equal(embedded, encoder.transform(table.assign(site="there")))
    with pytest.raises(DataError, match="at least one column must take two values"):
        AdaptiveBinningEncoder(**TINY).fit(table[["site"]])


def test_numbers_that_differ_by_rounding_are_one() -> None:
    rounded = np.where(np.arange(30) % 2, 0.3, 0.1 + 0.2)
    assert len(np.unique(rounded)) == 2
    columns = fitted(np.column_stack([rounded, np.arange(30.0), 1e9 + np.arange(30.0) * 1e-3]))
    assert columns.kinds == ("constant", "numerical", "numerical")


def test_types_of_pandas_are_read_alike() -> None:
    """Nullable, Python's objects and plain columns of the same values give the same inputs."""
    table = clinic()
    columns = fitted(table)
    other = pd.DataFrame(
        {
            "age": table["age"].astype("Float64"),
            "beds": table["beds"].astype(object),
            "ward": table["ward"].astype("category"),
            "smoker": table["smoker"].astype("boolean"),
            "grade": table["grade"].astype(object),
            "site": table["site"].astype(object),
        }
    )
    again = fitted(other)
    assert again.kinds == columns.kinds
    np.testing.assert_array_equal(inputs(columns, other), inputs(columns, table))


def test_numbers_as_categories() -> None:
    array = np.column_stack([np.tile([3.0, 1.0, 2.0], 10), np.arange(30.0)])
    columns = fitted(array, [0])
    assert columns.names_of("categorical") == ("x0",) and columns.categories[0].values == (1.0, 2.0, 3.0)
    coded = clinic().assign(beds=lambda t: t["beds"].astype("category"))
    assert fitted(coded).categories[0].values == (1, 2, 3, 4)
    assert fitted(np.arange(60.0).reshape(30, 2)).names_of("categorical") == ()


def spoilt(column: str, value: Any) -> pd.DataFrame:
    table = clinic().astype({"age": object, "beds": object, "ward": object})
    table.loc[3, column] = value
    return table


@pytest.mark.parametrize(
    "table, message",
    [
        (spoilt("age", np.inf), "column 'age' must hold finite numbers, got inf in row 3"),
        (spoilt("age", "old"), "column 'age' must hold numbers, words"),
        (spoilt("ward", 5), "column 'ward' must hold numbers, words"),
        (clinic().assign(day=pd.Timestamp("2024-01-01")), "column 'day' must hold numbers, words"),
        (clinic().assign(wave=1j), "column 'wave' must hold numbers, words"),
        (clinic().assign(age=pd.Categorical([pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-02")] * 60)), "astype"),
        (clinic().assign(age=[1e300, -1e300] * 60), "column 'age' must have a spread"),
        (clinic().iloc[:1], "at least 2 rows"),
        (clinic()[[]], "1 column"),
        (clinic()[["age", "beds", "age"]], "names of columns must be distinct, got 'age'"),
    ],
)
def test_tables_that_are_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AdaptiveBinningEncoder(**TINY).fit(table)


@pytest.mark.parametrize(
    "asked, message",
    [
        ("some", "must be 'from_dtype', 'auto', or a list"),
        (3, "must be 'from_dtype', 'auto', or a list"),
        (["wards"], "did you mean 'ward'"),
        ([6], "positions, 0 to 5, got 6"),
        ([-1], "positions, 0 to 5, got -1"),
        ([True], "one truth value per column"),
    ],
)
def test_categorical_features_that_are_not_there(asked: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptiveBinningEncoder(**TINY, categorical_features=asked).fit(clinic())


def test_words_must_be_categorical() -> None:
    with pytest.raises(DataError, match="'ward' holds words, so it must be among categorical_features"):
        AdaptiveBinningEncoder(**TINY, categorical_features=["grade"]).fit(clinic())


@pytest.mark.parametrize(
    "change, message",
    [
        ({"age": "old"}, "column 'age' is numerical and must hold numbers, got 'old'"),
        ({"ward": 4}, "column 'ward' must hold words as it did in fit, got 4"),
        ({"smoker": "yes"}, "column 'smoker' must hold numbers as it did in fit, got 'yes'"),
        ({"beds": 1e60}, "column 'beds' must hold numbers of the size that fit had"),
        ({"age": -np.inf}, "column 'age' must hold finite numbers, got -inf in row 0"),
    ],
)
def test_rows_that_are_refused_after_fit(change: dict[str, Any], message: str) -> None:
    encoder = AdaptiveBinningEncoder(**TINY).fit(clinic())
    with pytest.raises(DataError, match=message):
        encoder.transform(clinic().assign(**change))


@pytest.mark.parametrize("keep", [["age", "beds"], ["ward", "smoker", "grade"], ["age"], ["ward"]])
@pytest.mark.parametrize("pretext", ["adaptive_binning", "mask_xent_value_recon"])
def test_tables_with_few_columns_of_one_kind(keep: list[str], pretext: Any) -> None:
    masking: dict[str, Any] = {"masking": "random", "mask_prob": 0.3} if pretext != "adaptive_binning" else {}
    encoder = AdaptiveBinningEncoder(**TINY, pretext=pretext, **masking)
    embedded = encoder.fit_transform(clinic(20)[keep])
    assert embedded.shape == (20, 16) and np.isfinite(embedded).all()
    assert set(encoder.bin_edges_) == (set(keep) & {"age", "beds"} if pretext == "adaptive_binning" else set())


def test_edges_are_in_the_columns_own_units() -> None:
    table = clinic(400)
    eager: dict[str, Any] = {"learning_rate": 1e-2, "patience": 1, "delta": 0.01, "tau": 1e-6, "min_bin": 8}
    encoder = AdaptiveBinningEncoder(**(TINY | {"epochs": 15}), **eager).fit(table)
    edges = np.array(encoder.bin_edges_["age"])
    assert len(edges) > 1 and (np.diff(edges) > 0).all()
    assert table["age"].min() < edges[0] and edges[-1] < table["age"].max()
    assert np.isclose(edges, table["age"].median(), atol=0.2).any(), "the bin edge to start with is the median"
    assert len(encoder.loss_curve_) == 15
