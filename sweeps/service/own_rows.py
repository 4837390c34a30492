"""New rows of an own table, from any file that such a table may come in, read as the table itself was."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from adaptbin.data.cells import Cells, read_cells
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

    def cells_of(name: str) -> Cells:
        return read_cells(name, arrays[name], missing_words=missing_words, decimal_commas=sheet.semicolons)

    columns = model.columns_
    known = dict(zip(columns.names_of("categorical"), columns.categories, strict=True))
    read: dict[str, Any] = {}
    for name in columns.names:
        cells = cells_of(name)
        if name not in known:
            read[name] = _numbers(cells, path)
        else:
            # Where the empty word is no category of its own, nothing was there.
            empty = "" if "" in known[name].values else None
            read[name] = pd.Series([word or empty for word in cells.as_words()], dtype=object)
    ids = None
    if identifier is not None:
        cells = cells_of(identifier)
        ids = np.append(cells.words, "")[cells.codes].tolist()
    return NewRows(sheet.names, _batches(pd.DataFrame(read), ids, batch_rows))


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
