"""Tables that lack numbers, categories or labels, and tables with a split of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from adaptbin.config import SPLIT_SEED
from adaptbin.data import Column, Table, encode, load_table, split_rows
from adaptbin.data.readers import parse_table
from adaptbin.data.table import make_table
from adaptbin.errors import ConfigError, DataError
from tests.data import toy

CARD = dataclasses.replace(
    toy.CARD,
    columns=tuple(dataclasses.replace(c, missing=c.kind == "numerical") for c in toy.CARD.columns),
)
WHOLE = parse_table(toy.CARD, toy.text().encode(), "toy")
TRAIN, VAL, TEST = split_rows(WHOLE)


def changed(
    *,
    lacking: dict[str, Any] | None = None,
    unlabelled: Any = (),
    groups: Any = None,
    parts: Any = None,
    card: Any = CARD,
) -> Table:
    """The toy table without the values of some rows (by column) and the labels of others."""
    features, target = WHOLE.features.copy(), WHOLE.target.copy()
    for name, rows in (lacking or {}).items():
        features.loc[rows, name] = "" if name == "answer" else np.nan
    target[list(unlabelled)] = ""
    return make_table(
        card,
        features,
        target,
        None if groups is None else pd.Series(groups, name="group"),
        parts=None if parts is None else pd.Series(parts, name="part", dtype=object),
    )


def test_missing_numbers_are_medians_and_indicated() -> None:
    gone = [*TRAIN[:5], VAL[0], TEST[1]]
    table = encode(changed(lacking={"ratio": gone}))
    there = np.setdiff1d(TRAIN, gone)
    seen = WHOLE.features["ratio"].to_numpy()[there]
    expected = ((WHOLE.features["ratio"].to_numpy() - seen.mean()) / seen.std()).astype(np.float32)
    filled = np.float32((np.median(seen) - seen.mean()) / seen.std())
    ratio = table.inputs[:, 1].numpy()
    rest = np.setdiff1d(np.arange(40), gone)
    np.testing.assert_array_equal(ratio[rest], expected[rest])
    assert set(ratio[gone].tolist()) == {float(filled)}
    assert table.categorical_names == ("answer", "grade", "ratio is missing")
    assert table.cardinalities == (3, 4, 2)
    np.testing.assert_array_equal(np.flatnonzero(table.inputs[:, -1]), sorted(gone))
    assert table.observed is not None and table.observed.dtype == torch.bool
    np.testing.assert_array_equal(np.argwhere(~table.observed.numpy()), [[row, 1] for row in sorted(gone)])


def test_a_table_that_lacks_nothing_is_encoded_as_ever() -> None:
    """Bit for bit, also where it might lack something; and its other columns, where one lacks something."""
    plain, allowed = encode(WHOLE), encode(changed())
    assert allowed.observed is None and allowed.unlabelled is None and allowed.pretraining is allowed.train
    assert torch.equal(plain.inputs, allowed.inputs) and plain.categorical_names == allowed.categorical_names
    assert plain.fingerprint == allowed.fingerprint
    lacking = encode(changed(lacking={"ratio": TRAIN[:3]}))
    for column in (0, 2, 3):
        assert torch.equal(plain.inputs[:, column], lacking.inputs[:, column])


def test_what_only_held_out_rows_lack_has_no_indicator() -> None:
    table = encode(changed(lacking={"size": [VAL[0]]}))
    assert table.categorical_names == ("answer", "grade")
    assert table.observed is not None and not table.observed[VAL[0], 0] and int((~table.observed).sum()) == 1
    sizes = WHOLE.features["size"].to_numpy()[TRAIN]
    expected = np.float32((np.median(sizes) - sizes.mean()) / sizes.std())
    assert float(table.inputs[VAL[0], 0]) == expected


def test_a_missing_word_is_a_category() -> None:
    table = encode(changed(lacking={"answer": [TRAIN[0], TEST[0]]}))
    assert table.cardinalities == (4, 4) and table.unseen == {}
    assert table.inputs[[TRAIN[0], TEST[0]], 2].tolist() == [0.0, 0.0]  # "" sorts first
    assert encode(changed(lacking={"answer": [TEST[0]]})).unseen == {"answer": {"val": 0, "test": 1}}


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        ({"ratio": range(40)}, "column 'ratio' must hold numbers in train, got none: all 25 rows lack it"),
        ({"ratio": TRAIN}, "column 'ratio' must hold numbers in train, got none: all 25 rows lack it"),
        ({"ratio": TRAIN[1:]}, "column 'ratio' must take two values or more in train, got .* in all 1 rows"),
    ],
)
def test_a_column_with_too_few_numbers_is_refused(lacking: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode(changed(lacking=lacking))


def test_what_must_be_complete_still_must() -> None:
    with pytest.raises(DataError, match="column 'ratio' must hold finite numbers, got nan in row 3"):
        encode(changed(lacking={"ratio": [3]}, card=toy.CARD))
    with pytest.raises(DataError, match="column 'grade' must hold finite numbers, got nan in row 3"):
        encode(changed(lacking={"grade": [3]}))
    endless = changed()
    endless.features.loc[4, "ratio"] = np.inf
    with pytest.raises(DataError, match="column 'ratio' must hold finite numbers, got inf in row 4"):
        encode(endless)


def test_a_column_named_as_an_indicator_is_refused() -> None:
    columns = tuple(dataclasses.replace(c, name="ratio is missing") if c.name == "answer" else c for c in CARD.columns)
    table = changed(lacking={"ratio": TRAIN[:2]})
    card = dataclasses.replace(CARD, columns=columns)
    renamed = make_table(card, table.features.rename(columns={"answer": "ratio is missing"}), table.target)
    with pytest.raises(DataError, match="must differ from those of indicators .*, got 'ratio is missing'"):
        encode(renamed)


def test_all_nans_are_one_in_the_fingerprint() -> None:
    """Whatever bits a reader gives them."""
    one, other = changed(lacking={"ratio": [2]}), changed(lacking={"ratio": [2]})
    other.features.loc[2, "ratio"] = -np.float64(np.nan)
    assert make_table(CARD, other.features, other.target).fingerprint == one.fingerprint != WHOLE.fingerprint


# --- rows without a label


def test_rows_without_a_label_are_in_no_part_and_the_others_split_as_by_themselves() -> None:
    gone = np.array([0, 7, 8, 30, 39])
    kept = np.setdiff1d(np.arange(40), gone)
    table = changed(unlabelled=gone)
    split = split_rows(table)
    alone = split_rows(
        make_table(
            toy.CARD, WHOLE.features.iloc[kept].reset_index(drop=True), WHOLE.target.iloc[kept].reset_index(drop=True)
        )
    )
    for part, positions in zip(split, alone, strict=True):
        np.testing.assert_array_equal(part, kept[positions])
    encoded = encode(table)
    assert encoded.unlabelled is not None
    assert encoded.unlabelled.tolist() == gone.tolist() and encoded.unlabelled.dtype == torch.int64
    assert encoded.pretraining.tolist() == [*split.train, *gone]
    codes = [toy.LEVELS.index(level) for level in WHOLE.target.iloc[kept]]
    assert encoded.target[kept].tolist() == codes


def test_scale_codes_and_medians_are_fitted_on_all_rows_of_pretraining() -> None:
    gone = [0, 7, 8]
    table = changed(unlabelled=gone, lacking={"ratio": [7]})
    table.features.loc[0, "answer"] = "only here"
    encoded = encode(table)
    numbers = encoded.inputs[encoded.pretraining, 0].double()
    assert abs(float(numbers.mean())) < 1e-6 and float(numbers.std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert encoded.cardinalities == (4, 4, 2)
    assert encoded.categorical_names[-1] == "ratio is missing" and float(encoded.inputs[7, -1]) == 1.0


def test_unlabelled_rows_of_a_regression() -> None:
    source = load_table("diabetes")
    target = source.target.copy()
    target[::10] = np.nan
    table = encode(make_table(source.card, source.features, target))
    assert table.unlabelled is not None and table.unlabelled.tolist() == list(range(0, 442, 10))
    assert torch.isfinite(table.target).all()
    assert table.target_mean == pytest.approx(table.target[table.train].mean().item(), rel=1e-12)


def test_unlabelled_rows_of_a_held_out_group_are_left_out() -> None:
    groups = np.repeat(np.arange(10.0), 4)
    gone = np.arange(0, 40, 4)  # one row of every group
    table = changed(unlabelled=gone, groups=groups)
    encoded = encode(table)
    held_out = set(groups[encoded.val].tolist()) | set(groups[encoded.test].tolist())
    assert len(held_out) == 4 and encoded.unlabelled is not None
    assert encoded.unlabelled.tolist() == [row for row in gone if groups[row] not in held_out]


# --- a split that is given


def given_parts() -> np.ndarray:
    return np.array(["train"] * 24 + ["val"] * 8 + ["test"] * 8, dtype=object)


def test_a_given_split_is_taken_in_file_order() -> None:
    parts = given_parts()[np.random.default_rng(0).permutation(40)]
    table = changed(parts=parts)
    for name, rows in split_rows(table)._asdict().items():
        np.testing.assert_array_equal(rows, np.flatnonzero(parts == name))
    assert table.fingerprint not in (WHOLE.fingerprint, changed(parts=given_parts()).fingerprint)


def test_rows_without_a_label_have_no_part() -> None:
    parts = given_parts()
    parts[3] = ""
    encoded = encode(changed(parts=parts, unlabelled=[3, 39]))
    assert encoded.unlabelled is not None and encoded.unlabelled.tolist() == [3]
    assert 39 not in encoded.test.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: np.where(np.arange(40) == 5, "", parts), "must be in one of the parts .*, got '' for row 5"),
        (lambda parts: np.where(parts == "val", "validation", parts), r"got 'validation' for row 24 \(8 such rows\)"),
        (lambda parts: np.where(parts == "val", "train", parts), "every part of the split must hold rows, .* val 0"),
    ],
)
def test_a_split_that_is_none_is_refused(change: Callable[[np.ndarray], np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_rows(changed(parts=change(given_parts())))


def test_a_group_in_two_parts_is_refused() -> None:
    with pytest.raises(DataError, match="rows of a group must be in one part of the split, got 4.0 in two"):
        split_rows(changed(parts=given_parts(), groups=np.repeat(np.arange(8.0), 5) + (np.arange(40) >= 28)))


def test_a_given_split_is_the_only_one() -> None:
    with pytest.raises(ConfigError, match="so seeds_vary must not be 'split'"):
        split_rows(changed(parts=given_parts()), SPLIT_SEED + 1)


def test_a_column_says_whether_it_may_lack_values() -> None:
    assert not Column(name="x", kind="numerical").missing
