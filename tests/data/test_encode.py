"""Tables to tensors: the released code's values, fitted on train alone; what cannot be trained on is refused."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from adaptbin.config import SPLIT_SEED, Architecture
from adaptbin.data import CARDS, EncodedTable, Table, encode, load_table, split_rows
from adaptbin.data.readers import parse_table
from adaptbin.data.table import make_table
from adaptbin.errors import ConfigError, DataError
from tests.conftest import GOLDEN
from tests.data import toy

REAL = [key for key, card in CARDS.items() if not card.embedded]
TOY = parse_table(toy.CARD, toy.text().encode(), "toy")


@pytest.mark.parametrize("key", REAL)
def test_golden_encoding(key: str, real_table: Callable[[str], Table], golden_tables: dict[str, Any]) -> None:
    golden, table = golden_tables[key], encode(real_table(key))
    assert list(table.numerical_names) == golden["numerical"]
    assert list(table.categorical_names) == golden["categorical"]
    assert list(table.cardinalities) == golden["cardinalities"]
    # The golden row is in file order; ours has numerical columns first.  Theirs was scaled in float32.
    row = dict(zip(golden["columns"], golden["x_train_row0_prepared"], strict=True))
    ours = table.inputs[table.train[0]]
    assert ours.tolist() == pytest.approx([row[n] for n in golden["numerical"] + golden["categorical"]], abs=5e-6)
    train_target = table.target[table.train]
    if table.card.levels is None:
        assert table.target_sd == pytest.approx(golden["y_train_std"], rel=1e-6)
        assert table.target_mean == pytest.approx(train_target.mean().item(), rel=1e-12)
    else:
        counts = dict(zip(table.card.levels, train_target.bincount().tolist(), strict=True))
        # The released code sorts labels: words alphabetically, numbers by size.
        order = sorted(counts, key=lambda level: (int(level), "") if level.isdigit() else (0, level))
        assert [counts[level] for level in order] == golden["train_class_counts_in_code_order"]


@pytest.mark.parametrize("key", ["eol", "hfc"])
def test_golden_train_rows(key: str, real_table: Callable[[str], Table]) -> None:
    with np.load(GOLDEN / f"trace_{key}.npz") as trace:
        golden, order = trace["x_train"], [str(name) for name in trace["input_order"]]
    source = real_table(key)
    table = encode(source)
    assert order == [*table.numerical_names, *table.categorical_names]
    np.testing.assert_allclose(table.inputs[table.train].numpy(), golden, rtol=0, atol=5e-6)
    # The released code scales each column in float32; done its way, our values are its values to the last bit.
    for j, name in enumerate(table.numerical_names):
        column = source.features[name].to_numpy(dtype=np.float32)[table.train]
        np.testing.assert_array_equal((column - column.mean()) / column.std(), golden[:, j])
    np.testing.assert_array_equal(table.inputs[table.train, table.n_numerical :], golden[:, table.n_numerical :])


def test_unseen_ages_of_pt(real_table: Callable[[str], Table]) -> None:
    own, zero = (encode(real_table("pt"), unseen_category=kind) for kind in ("own", "zero"))
    assert own.unseen == zero.unseen == {"age": {"val": 474, "test": 384}}
    ages = own.inputs[:, own.n_numerical]
    assert int((ages[own.val] == 18).sum()) == 474 and int((ages[own.test] == 18).sum()) == 384
    assert ages[own.train].max() == 17
    moved = own.inputs != zero.inputs
    assert torch.equal(moved[:, own.n_numerical], ages == 18) and int(moved.sum()) == 474 + 384


def test_class_codes_are_in_clinical_order(real_table: Callable[[str], Table]) -> None:
    table = real_table("eol")
    codes = encode(table).target
    assert table.card.levels is not None
    assert [table.card.levels[code] for code in codes.tolist()] == table.target.tolist()


@pytest.mark.parametrize("key", ["breast_cancer", "diabetes"])
@pytest.mark.parametrize("split_seed", [SPLIT_SEED, SPLIT_SEED + 1])
def test_embedded_tables(key: str, split_seed: int) -> None:
    source = load_table(key)
    table = encode(source, split_seed=split_seed)
    n, d, c = source.card.rows, table.n_numerical, table.n_categorical
    assert table.inputs.shape == (n, d + c) and table.inputs.dtype == torch.float32 and table.inputs.is_contiguous()
    numbers = table.inputs[table.train, :d].double()
    assert numbers.mean(0).abs().max() < 1e-6
    assert (numbers.std(0, correction=0) - 1).abs().max() < 1e-6
    for j, cardinality in enumerate(table.cardinalities, start=d):
        assert table.inputs[table.train, j].unique().tolist() == list(range(cardinality))
    expected = split_rows(source, split_seed)
    for ours, rows in zip((table.train, table.val, table.test), expected, strict=True):
        assert ours.dtype == torch.int64 and ours.tolist() == rows.tolist()
    assert (table.split_seed, table.fingerprint, table.unseen) == (split_seed, source.card.fingerprint, {})


def test_target_of_each_task(breast_cancer: EncodedTable, diabetes: EncodedTable) -> None:
    assert (breast_cancer.target.dtype, breast_cancer.n_classes) == (torch.int64, 2)
    assert breast_cancer.target.bincount().tolist() == [357, 212]
    assert (breast_cancer.target_mean, breast_cancer.target_sd) == (0.0, 1.0)
    assert (diabetes.target.dtype, diabetes.n_classes) == (torch.float64, 0)
    assert diabetes.target.tolist() == load_table("diabetes").target.tolist()
    assert diabetes.target_sd == pytest.approx(diabetes.target[diabetes.train].std(correction=0).item(), rel=1e-12)


def test_it_survives_a_journey(diabetes: EncodedTable) -> None:
    copy = pickle.loads(pickle.dumps(diabetes))
    for field in dataclasses.fields(EncodedTable):
        a, b = getattr(diabetes, field.name), getattr(copy, field.name)
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def with_column(name: str, change: Callable[[np.ndarray], Any], source: Table = TOY) -> Table:
    """``source`` with one column (or the target) changed."""
    features, target = source.features.copy(), source.target
    if name == source.card.target:
        target = pd.Series(change(target.to_numpy(copy=True)), name=name, dtype=target.dtype)
    else:
        features[name] = change(features[name].to_numpy(copy=True))
    return make_table(source.card, features, target, source.groups)


def filled(row: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: np.where(np.arange(values.size) == row, value, values)


def test_only_train_decides() -> None:
    """Values outside train change neither scale, codes nor cardinalities of train."""
    split = split_rows(TOY)
    moved = with_column("size", lambda v: np.where(np.isin(np.arange(v.size), split.train), v, 1e6))
    moved = with_column("answer", lambda v: np.where(np.isin(np.arange(v.size), split.train), v, "aaa"), moved)
    before, after = encode(TOY), encode(moved)
    assert torch.equal(before.inputs[before.train], after.inputs[after.train])
    assert before.cardinalities == after.cardinalities
    assert after.unseen["answer"] == {"val": split.val.size, "test": split.test.size}
    own = after.inputs[after.test, after.n_numerical]
    assert (own == after.cardinalities[0]).all()
    assert (encode(moved, unseen_category="zero").inputs[after.test, after.n_numerical] == 0).all()


def test_text_and_numeric_categories_are_coded_in_sorted_order() -> None:
    table = encode(with_column("grade", lambda v: np.where(v == 8, 10.5, v)))
    answers = dict(zip(TOY.features["answer"], table.inputs[:, 2].tolist(), strict=True))
    assert answers == {"NA": 0, "None": 1, "no": 2}
    assert table.cardinalities == (3, 4)
    grades = table.inputs[:, 3]
    assert set(grades[torch.tensor((TOY.features["grade"] == 8).to_numpy())].tolist()) == {2.0}  # 9 < 10 < 10.5 < 11


SPLIT = split_rows(TOY)
REFUSED = {
    "NaN": (
        with_column("size", filled(5, np.nan)),
        r"column 'size' must hold finite numbers, got nan in row 5 \(1 such",
    ),
    "inf": (with_column("ratio", filled(6, np.inf)), "column 'ratio' must hold finite numbers, got inf in row 6"),
    "NaN category": (with_column("grade", filled(7, np.nan)), "column 'grade' must hold finite numbers, got nan"),
    "constant": (
        with_column("size", lambda v: np.full(v.size, 3.5)),
        r"toy \(split seed 123456\): column 'size' must take two values or more in train, got 3.5 in all 25 rows",
    ),
    "constant in train alone": (
        with_column("ratio", lambda v: np.where(np.isin(np.arange(v.size), SPLIT.train), 0.1, v)),
        "column 'ratio' must take two values or more in train, got 0.1 in all 25 rows",
    ),
    "constant category": (
        with_column("answer", lambda v: np.full(v.size, "no")),
        "column 'answer' must take two values or more in train, got no in all",
    ),
    "class absent": (
        with_column("risk", lambda v: np.where(v == "mid", "low", v)),
        "every class must occur in train, got no row of 'mid'$",
    ),
    "class absent from train alone": (
        with_column(
            "risk", lambda v: np.where(np.isin(np.arange(v.size), SPLIT.train), np.where(v == "high", "low", v), "high")
        ),
        "every class must occur in train, got no row of 'high'$",
    ),
    "one class in validation": (
        with_column("risk", lambda v: np.where(np.isin(np.arange(v.size), SPLIT.val), "low", v)),
        r"labels of val must take two values or more, or they score nothing, got 'low' in all \d+ rows; a split",
    ),
    "one class in test": (
        with_column("risk", lambda v: np.where(np.isin(np.arange(v.size), SPLIT.test), "high", v)),
        "labels of test must take two values or more, or they score nothing, got 'high' in all",
    ),
    "unknown class": (
        with_column("risk", lambda v: np.where(np.arange(v.size) == 0, "dire", v)),
        "labels must be among low, mid, high, got dire",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_refused(fault: str) -> None:
    table, message = REFUSED[fault]
    with pytest.raises(DataError, match=message) as caught:
        encode(table)
    assert str(caught.value).startswith("toy")


def test_fewer_rows_than_a_batch() -> None:
    for size in (25, 26):
        card = dataclasses.replace(toy.CARD, architecture=Architecture(width=8, depth=1, batch_size=size))
        table = dataclasses.replace(TOY, card=card)
        if size == 25:
            assert encode(table).train.numel() == 25
            continue
        with pytest.raises(DataError, match=r"train must fill a batch of 26 rows, got 25"):
            encode(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: np.full(v.size, 2.0), "column 'progression' must take two values or more in train, got 2.0"),
        (filled(3, -np.inf), "column 'progression' must hold finite numbers, got -inf in row 3"),
        (
            lambda v: np.where(np.isin(np.arange(v.size), split_rows(load_table("diabetes")).val), 2.0, v),
            "labels of val must take two values or more, or they score nothing, got 2.0 in all 71 rows",
        ),
    ],
)
def test_refused_regression_targets(change: Callable[[np.ndarray], np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode(with_column("progression", change, load_table("diabetes")))


def test_numbers_next_to_constant_are_scaled_not_hidden() -> None:
    """A spread of one part in 1e12 is a spread: nothing is added to the sd."""
    table = encode(with_column("size", lambda v: 1 + 1e-12 * np.arange(v.size)))
    scaled = table.inputs[table.train, 0].double()
    assert scaled.std(correction=0).item() == pytest.approx(1, abs=1e-3)


def test_unknown_choice() -> None:
    with pytest.raises(ConfigError, match="unseen_category must be one of own, zero, got 'zeros'; did you mean 'zero'"):
        encode(TOY, unseen_category="zeros")  # type: ignore[arg-type]
