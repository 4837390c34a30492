"""Rows of a file as a model reads them: each column of the kind that it had in training, and nothing is guessed."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from adaptbin.errors import ConfigError, DataError, ResourceError, nearest

if TYPE_CHECKING:
    from adaptbin.estimators.model import PretrainedModel

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class Batch(NamedTuple):
    """Some rows of a file, one after the other."""

    first: int
    """Number of the first one, counted from 1 below the header."""
    features: pd.DataFrame
    """The columns that the model reads, in its order."""
    ids: list[str] | None
    """What identifies the rows, as the file has it."""


@dataclass(frozen=True)
class NewRows:
    """Rows of a file, batch by batch."""

    header: tuple[str, ...]
    batches: Iterator[Batch]


def read_rows(model: PretrainedModel, path: Path, identifier: str | None, batch_rows: int) -> NewRows:
    """Read a CSV or TSV file, gzipped or not.

    Columns are found by name.  Cells are stripped; an empty one is a missing number, or the empty word.

    Raises ConfigError for another kind of file, and where no column is called ``identifier``; DataError for a file that
    lacks a column, has one twice or has none at all, and, as batches are read, for rows of another length and words in
    place of numbers; ResourceError where the file cannot be read.
    """
    records = _records(path)
    header = next(records, None)
    if header is None:
        raise DataError(f"{path} must have a header, got an empty file")
    check_header(model, header, path, identifier)
    return NewRows(tuple(header), _batches(model, path, header, records, identifier, batch_rows))


def check_header(model: PretrainedModel, header: Sequence[str], path: Path, identifier: str | None) -> None:
    """Raise DataError unless a file has every column of the model once, ConfigError unless it has ``identifier``."""
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise DataError(f"{path}: names of columns must be distinct, got {twice[0]!r} more than once")
    missing = [name for name in model.columns_.names if name not in header]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"{path} must have the columns that the model reads, got none called {missing[0]!r}{more}"
            f"{nearest(missing[0], header)} (it has: {', '.join(header)})"
        )
    if identifier is not None and identifier not in header:
        raise ConfigError(
            f"the column to identify rows by must be one of {path.name}, "
            f"got {identifier!r}{nearest(identifier, header)}"
        )


def _batches(
    model: PretrainedModel,
    path: Path,
    header: Sequence[str],
    records: Iterator[list[str]],
    identifier: str | None,
    batch_rows: int,
) -> Iterator[Batch]:
    first = 1
    while rows := list(islice(records, batch_rows)):
        for number, row in enumerate(rows, first):
            if len(row) != len(header):
                raise DataError(
                    f"{path}: every row must have {len(header)} cells as the header has, got {len(row)} in row {number}"
                )
        cells = dict(zip(header, zip(*rows, strict=True), strict=True))
        yield Batch(first, _features(model, cells, path, first), None if identifier is None else [*cells[identifier]])
        first += len(rows)


def _records(path: Path) -> Iterator[list[str]]:
    """The lines of the file that are not empty, the header first."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix not in _DELIMITERS:
        raise ConfigError(
            f"rows must be a file that ends in {', '.join(_DELIMITERS)}, or these and .gz, got {path.name}"
        )
    try:
        with _open(path) as file:
            reader = csv.reader(file, delimiter=_DELIMITERS[suffix], strict=True)
            yield from ([cell.strip() for cell in line] for line in reader if line)
    except (OSError, EOFError, zlib.error) as error:
        raise ResourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be text in UTF-8, got byte 0x{error.object[error.start]:02x}") from error
    except csv.Error as error:
        raise DataError(f"{path} must be a table, got: {error} (line {reader.line_num})") from error


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _features(model: PretrainedModel, cells: Mapping[str, Sequence[str]], path: Path, first: int) -> pd.DataFrame:
    columns = model.columns_
    known = dict(zip(columns.names_of("categorical"), columns.categories, strict=True))
    read: dict[str, Any] = {}
    for name, kind in zip(columns.names, columns.kinds, strict=True):
        if kind == "constant":  # asked for, and not read
            read[name] = np.zeros(len(cells[name]))
        elif name in known and isinstance(known[name].values[0], str):
            read[name] = pd.Series(cells[name], dtype=object)
        else:
            read[name] = _numbers(cells[name], name, path, first)
    return pd.DataFrame(read)


def _numbers(cells: Sequence[str], name: str, path: Path, first: int) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        row = next(row for row, cell in enumerate(cells) if cell and not _is_number(cell))
        raise DataError(f"{path}: column {name!r} must hold numbers, got {cells[row]!r} in row {first + row}") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
