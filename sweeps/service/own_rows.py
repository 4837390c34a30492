"""New rows of an own table, from any file that such a table may come in, read as the table itself was."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from adaptbin.data.cells import NONE, Cells, read_cells
from adaptbin.data.files import read_sheet
from adaptbin.errors import DataError
from sweeps.service.new_rows import Batch, NewRows, check_header

if TYPE_CHECKING:
    from adaptbin.estimators.model import PretrainedModel


def read_own_rows(
    model: PretrainedModel, path: Path, identifier: str | None, batch_rows: int, missing_words: Collection[str]
) -> NewRows:
    """As :func:`sweeps.service.new_rows.read_rows`, but of any kind of file, which is read at once.

    Where decimal commas are and which cells are missing is found out as for the table, and from the whole column.
    Raises what :func:`adaptbin.data.files.read_sheet` raises, and DataError for words in place of numbers.
    """
    sheet = read_sheet(path)
    check_header(model, sheet.names, path, identifier)
    arrays = dict(zip(sheet.names, sheet.columns, strict=True))
    columns = model.columns_
    known = dict(zip(columns.names_of("categorical"), columns.categories, strict=True))
    commas, points = (model.origin_.get(name, ()) for name in ("decimal_commas", "thousands_points"))

    def cells_of(name: str) -> Cells:
        words = known[name].values if name in known else ()
        is_none = not any(_number(word) is None for word in words if word)  # among numbers it means missing
        missing = [word for word in missing_words if word not in words]  # "-" may have been a finding beside "+"
        return read_cells(
            name,
            arrays[name],
            missing_words=[*missing, NONE] if is_none else missing,
            decimal_commas=name in commas or sheet.decimal_commas,
            thousands_points=name in points,
            none_is_missing=False,
        )

    read: dict[str, Any] = {}
    for name in columns.names:
        cells = cells_of(name)
        if name not in known:
            read[name] = _numbers(cells, path)
        else:
            # Where the empty word is no category of its own, nothing was there.
            empty = "" if "" in known[name].values else None
            read[name] = pd.Series([word or empty for word in _as_known(cells, known[name].values)], dtype=object)
    ids = None
    if identifier is not None:
        cells = cells_of(identifier)
        ids = np.append(cells.words, "")[cells.codes].tolist()
    return NewRows(sheet.names, _batches(pd.DataFrame(read), ids, batch_rows))


def _as_known(cells: Cells, known: Collection[str]) -> np.ndarray:
    """[N] object (str), "" where missing; a cell is called as training called it, by its words or by its number.

    Whether "1.0" is called "1" depends on all cells of a column, and a file of few rows has few.
    """
    by_number: dict[float | None, str] = {number: word for word in known if (number := _number(word)) is not None}
    called = [
        word if word in known else by_number.get(_number(word), spelled)
        for word, spelled in zip(cells.words, cells.spelled(), strict=True)
    ]
    found: np.ndarray = np.array([*called, ""], dtype=object)[cells.codes]
    return found


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _batches(features: pd.DataFrame, ids: list[str] | None, batch_rows: int) -> Iterator[Batch]:
    for start in range(0, len(features), batch_rows):
        rows = slice(start, start + batch_rows)
        yield Batch(start + 1, features.iloc[rows].reset_index(drop=True), None if ids is None else ids[rows])


def _numbers(cells: Cells, path: Path) -> np.ndarray:
    if not cells.is_numeric:
        place = int(np.flatnonzero(cells.is_word)[0])
        raise DataError(
            f"{path}: column {cells.name!r} must hold numbers, got {cells.words[place]!r} in row {cells.row_of(place)}"
        )
    return cells.as_numbers()
