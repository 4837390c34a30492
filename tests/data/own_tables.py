"""A small table of a clinic, in any form and with any fault, so that own tables are tried without a file of anybody."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.data.own import Asked, OwnTable, read_own_table

ROWS = 150
"""Enough for 96 train rows, more than a batch of 64."""


def frame(rows: int = ROWS, **columns: Any) -> pd.DataFrame:
    """Two numbers, a word and a label of two values, then ``columns``; an existing name is replaced."""
    draw = np.random.default_rng(3)
    told: dict[str, Any] = {
        "age": draw.normal(60, 9, rows).round(1),
        "crp": draw.lognormal(1, 1, rows).round(2),
        "sex": np.array(["f", "m"])[draw.integers(0, 2, rows)],
        "outcome": np.array(["alive", "died"])[(np.arange(rows) % 5 < 2).astype(int)],
    }
    return pd.DataFrame(told | columns)


def text(table: pd.DataFrame, sep: str = ",", **options: Any) -> str:
    return table.to_csv(index=False, sep=sep, **options)


def at(values: Any, **cells: Any) -> list[Any]:
    """``values`` with some cells in place of others: ``row_17="<5"``, counted from 1."""
    found = list(values)
    for name, cell in cells.items():
        found[int(name.removeprefix("row_")) - 1] = cell
    return found


def excel(table: pd.DataFrame, **options: Any) -> bytes:
    buffer = io.BytesIO()
    table.to_excel(buffer, index=False, **options)
    return buffer.getvalue()


def parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def feather(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_feather(buffer)
    return buffer.getvalue()


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, file: str, content: str | bytes, **asked: Any) -> OwnTable:
    return read_own_table(write(folder, file, content), Asked(**{"target": "outcome", **asked}))


def kinds(own: OwnTable) -> Mapping[str, str]:
    return {column.name: column.kind for column in own.profile.columns}


def reason(own: OwnTable, name: str) -> str:
    return next(column.reason for column in own.profile.columns if column.name == name)


Check = Callable[[OwnTable], Any]
