"""The parsed table, and the fingerprint by which two file forms are recognised as the same data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from adaptbin.data.registry import Card
from adaptbin.errors import DataError


@dataclass(frozen=True, eq=False)
class Table:
    """One data set as parsed, before any split or scaling.  All parts have N rows, in file order."""

    card: Card
    features: pd.DataFrame
    """Columns of ``card.columns`` in that order: float64 (NaN where missing), or str where the card says text."""
    target: pd.Series
    """str, one of ``card.levels``, for classification; float64 in target units for regression.  A row without a label
    has "" or NaN."""
    groups: pd.Series | None
    """float64 values of the card's group column, or None when rows are independent."""
    fingerprint: str
    """:func:`table_fingerprint` of the parts above, and of ``parts`` where there are any."""
    path: Path | None
    """The file it came from; None for embedded sets."""
    parts: pd.Series | None = None
    """A split that is given: "train", "val" or "test" for each labelled row; None where rows are drawn."""


def _column_bytes(values: pd.Series) -> bytes:
    if pd.api.types.is_numeric_dtype(values):
        # + 0.0 turns -0.0 into 0.0: the two are the same number and must hash alike.  So must all that are none.
        numbers = values.to_numpy(dtype="<f8") + 0.0
        numbers[np.isnan(numbers)] = np.nan
        return b"number" + numbers.tobytes()
    places, distinct = pd.factorize(values.to_numpy(dtype=object), use_na_sentinel=False)
    words = [str(word).encode() for word in distinct]
    blocks = np.array([len(word).to_bytes(4, "little") + word for word in words], dtype=object)
    return b"text" + b"".join(blocks[places])


def table_fingerprint(
    features: pd.DataFrame, target: pd.Series, groups: pd.Series | None, parts: pd.Series | None = None
) -> str:
    """SHA-256 (64 hex digits) of names, kinds, values and row order of a parsed table; [N] rows each.

    Line ends, byte order marks, quotes and the spelling of numbers take no part, so every form of a file that holds
    the same table has the same fingerprint.
    """
    digest = hashlib.sha256()
    columns = [(str(name), features[name]) for name in features.columns] + [("target", target)]
    columns += [(name, values) for name, values in (("groups", groups), ("parts", parts)) if values is not None]
    for name, values in columns:
        for block in (name.encode(), _column_bytes(values)):
            digest.update(len(block).to_bytes(8, "little"))
            digest.update(block)
    return digest.hexdigest()


def make_table(
    card: Card,
    features: pd.DataFrame,
    target: pd.Series,
    groups: pd.Series | None = None,
    path: Path | None = None,
    parts: pd.Series | None = None,
) -> Table:
    """Put the parts together and compute their fingerprint; nothing is checked here."""
    return Table(card, features, target, groups, table_fingerprint(features, target, groups, parts), path, parts)


def verify(table: Table, source: str) -> Table:
    """Return ``table`` if it is the one its card declares.

    Raises DataError, naming ``source``, when it has another number of rows or other values.
    """
    card = table.card
    if len(table.target) != card.rows:
        raise DataError(f"{card.key}: {source} holds {len(table.target)} complete rows; the data set has {card.rows}")
    if table.fingerprint != card.fingerprint:
        raise DataError(
            f"{card.key}: {source} has the right columns and number of rows, but other values or another row order: "
            f"its fingerprint must be {card.fingerprint[:16]}..., got {table.fingerprint[:16]}..."
        )
    return table


def check_finite(card: Card, features: pd.DataFrame, target: pd.Series) -> None:
    """Raise DataError when a number of ``features`` [N, D + C] or ``target`` [N] is infinite, or NaN in a column that
    must be complete: the target of a row without a label is NaN."""
    numeric = [(features[c.name], c.missing) for c in card.columns if not c.text]
    for values, may_be_missing in numeric + ([] if card.task.is_classification else [(target, True)]):
        numbers = values.to_numpy(dtype=np.float64)
        bad = np.flatnonzero(np.isinf(numbers) if may_be_missing else ~np.isfinite(numbers))
        if bad.size:
            raise DataError(
                f"{card.key}: column {values.name!r} must hold finite numbers, "
                f"got {values.iloc[bad[0]]} in row {bad[0]} ({bad.size} such rows)"
            )
