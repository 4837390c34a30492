"""Columns of a file as the file has them, whatever kind of file it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.errors import DataError


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns of a file, as the file has them."""

    names: tuple[str, ...]
    """Headers in order; all differ and none is empty."""
    columns: tuple[Any, ...]
    """One pyarrow array per header, [N] each: strings of a text file, else of the type that the file gives."""
    form: str
    """What the file is, in words: "CSV, delimiter ';', UTF-8"."""
    decimal_commas: bool = False
    """Whether numbers have decimal commas as far as the file tells: some have, or ``;`` parts the cells."""

    @property
    def rows(self) -> int:
        """N."""
        return len(self.columns[0])


def require_headers(sheet: Sheet, name: str) -> None:
    """Raise DataError unless every column of the file ``name`` has a name of its own, and they look like names."""
    if not sheet.names:
        raise DataError(f"{name}: a table must have columns, got none")
    empty = [place for place, header in enumerate(sheet.names, start=1) if not header]
    if empty:
        raise DataError(
            f"{name}: every column must have a name in the header, got none for column {empty[0]} of "
            f"{len(sheet.names)} ({len(empty)} such columns); a first column of row numbers needs one, too"
        )
    twice = [header for header, count in Counter(sheet.names).items() if count > 1]
    if twice:
        raise DataError(f"{name}: headers must differ, got {', '.join(map(repr, twice[:5]))} more than once")
    numbers = pd.to_numeric(pd.Series(sheet.names, dtype=object), errors="coerce")
    if np.isfinite(numbers).all():
        raise DataError(
            f"{name}: the first line must hold the names of the columns, got numbers: {', '.join(sheet.names[:5])}"
        )
