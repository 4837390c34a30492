"""Splits that a person gives: a file that says which row is in which part, or test rows in a file of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from adaptbin.config import SPLIT_SEED
from adaptbin.data.cells import Cells, read_cells
from adaptbin.data.files import read_sheet
from adaptbin.data.splits import VAL_SHARE
from adaptbin.errors import ConfigError, DataError, nearest

PART_HEADERS = ("part", "split", "set")
"""How the column of parts may be called, in any case."""
ROW = "row"
"""Header of row numbers, counted from 1 below the header; a column of the table of that name comes first."""
_PARTS = {
    **{"train": "train", "training": "train"},
    **{"val": "val", "valid": "val", "validation": "val", "dev": "val"},
    **{"test": "test", "testing": "test"},
}


def parts_from_file(
    path: Path, names: tuple[str, ...], column: Callable[[str], Cells], labelled: np.ndarray
) -> pd.Series:
    """Part of each row [N] str, "" for rows without a label that are in none.

    The file has a column of parts, and beside it row numbers or a column of the table, as a patient's number, by which
    rows are found; with a column of parts alone its rows are those of the table in order.  ``labelled``: [N] bool.
    ``column``: reads a column of the table, whose ``names`` are given.

    Raises DataError or ConfigError when that does not give every labelled row exactly one part.
    """
    sheet, rows = read_sheet(path), labelled.size
    by_lower = {name.lower(): name for name in sheet.names}
    header = next((by_lower[name] for name in PART_HEADERS if name in by_lower), None)
    if header is None or len(sheet.names) > 2:
        raise DataError(
            f"{path.name}: a split must have a column {' or '.join(PART_HEADERS)} and at most one more, by which rows "
            f"are found, got {', '.join(map(repr, sheet.names[:5]))}"
        )
    parts = _parts(read_cells(header, sheet.columns[sheet.names.index(header)]), path)
    others = [name for name in sheet.names if name != header]
    if not others:
        if parts.size != rows:
            raise DataError(
                f"{path.name}: a split without row numbers must have {rows} rows as the table has, got {parts.size}"
            )
        found = parts
    else:
        keys = read_cells(others[0], sheet.columns[sheet.names.index(others[0])])
        if keys.missing.any():
            raise DataError(
                f"{path.name}: every row must have a value of {others[0]!r}, got {int(keys.missing.sum())} without"
            )
        found = _found_by(others[0], keys.as_words(), parts, path, names, column, rows)
    absent = np.flatnonzero((found == "") & labelled)
    if absent.size:
        raise DataError(
            f"{path.name}: every labelled row must be in a part, got none for row {absent[0] + 1} "
            f"({absent.size} such rows)"
        )
    return pd.Series(found, name="part", dtype="str")


def _parts(cells: Cells, path: Path) -> np.ndarray:
    words = cells.spelled()
    for place, word in enumerate(words):
        if str(word).lower() not in _PARTS:
            raise DataError(
                f"{path.name}: a part must be train, val or test, got {word!r} in row {cells.row_of(place)}"
                f"{nearest(word, ('train', 'val', 'test'))}"
            )
    if cells.missing.any():
        raise DataError(f"{path.name}: a part must be train, val or test, got none in {int(cells.missing.sum())} rows")
    known: np.ndarray = np.array([_PARTS[str(word).lower()] for word in words], dtype=object)
    of_row: np.ndarray = known[cells.codes]
    return of_row


def _found_by(
    key: str,
    values: np.ndarray,
    parts: np.ndarray,
    path: Path,
    names: tuple[str, ...],
    column: Callable[[str], Cells],
    rows: int,
) -> np.ndarray:
    """The part of each row of the table, by a column of the split file; "" for rows it does not name."""
    if key in names:
        of_row = column(key).as_words()
    elif key.lower() == ROW:
        of_row = np.arange(1, rows + 1).astype(str).astype(object)
    else:
        raise DataError(
            f"{path.name}: rows must be found by {ROW!r} or by a column of the table, got {key!r}{nearest(key, names)}"
        )
    part_of: dict[str, str] = {}
    for value, part in zip(values, parts, strict=True):
        other = part_of.setdefault(value, part)
        if other != part:
            raise DataError(f"{path.name}: parts must not overlap, got {key} {value!r} in {other} and in {part}")
    strangers = sorted(set(part_of) - set(of_row))
    if strangers:
        raise DataError(
            f"{path.name}: a split must be of rows of the table, got {key} {strangers[0]!r}, which it has not "
            f"({len(strangers)} such values)"
        )
    return np.array([part_of.get(value, "") for value in of_row], dtype=object)


def parts_with_test_rows(n_first: int, labelled: np.ndarray, groups: pd.Series | None, name: str) -> pd.Series:
    """Parts [N] where the rows from ``n_first`` on came from a file of test rows.

    Of the others a fifth is validation, drawn with the default split's seed; by groups where there are some.
    """
    if not labelled[n_first:].all():
        raise DataError(f"{name}: every test row must have a label, got {int((~labelled[n_first:]).sum())} without")
    rows = np.flatnonzero(labelled[:n_first])
    draw = np.random.RandomState(SPLIT_SEED)
    if groups is None:
        val = draw.permutation(rows)[: round(VAL_SHARE * rows.size)]
    else:
        of_row = groups.to_numpy(dtype=object)
        ids = np.unique(of_row[rows].astype(str))
        chosen = draw.permutation(ids)[: round(VAL_SHARE * ids.size)]
        val = rows[np.isin(of_row[rows].astype(str), chosen)]
    parts = np.full(labelled.size, "", dtype=object)
    parts[rows], parts[val], parts[n_first:] = "train", "val", "test"
    return pd.Series(parts, name="part", dtype="str")


def refuse_both(split_file: Path | None, test_file: Path | None) -> None:
    """Raise ConfigError when a split is given in two ways."""
    if split_file is not None and test_file is not None:
        raise ConfigError("at most one of --split-file and --test-file may be given, got both")
