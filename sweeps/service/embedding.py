"""New rows of a file to a table of embeddings, batch by batch: no more rows are held than a batch has."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from adaptbin.errors import ConfigError, DataError, ResourceError, nearest
from sweeps.service.files import write_atomically

if TYPE_CHECKING:
    from adaptbin.estimators.model import PretrainedModel

FORMATS = (".csv", ".parquet")
"""Ends of names that say what an embedding table is written as."""

BATCH_ROWS = 8192

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass
class Told:
    """What came of a file."""

    rows: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Column -> rows whose category the model has never seen."""
    unread: tuple[str, ...] = ()
    """Columns of the file that the model does not read."""


def embed_file(
    model: PretrainedModel, rows: Path, output: Path, *, identifier: str | None = None, batch_rows: int = BATCH_ROWS
) -> Told:
    """Embed the rows of a CSV or TSV file, gzipped or not; the table of embeddings appears whole or not at all.

    The table has a column for ``identifier``, as written in the file, then z0, z1, ... float32.  Cells are read as the
    model's columns say, not by guess; an empty one is a missing number, or the empty word.

    Raises ConfigError for another kind of file, or a column to identify by that is not there; DataError for a file that
    is no table, lacks a column of the model, or holds what the model cannot read, with the row; ResourceError where the
    file cannot be read, OSError where the output cannot be written.
    """
    if output.suffix not in FORMATS:
        raise ConfigError(f"output must end in {' or '.join(FORMATS)}, got {output.name}")
    names = [f"z{j}" for j in range(model.model_.width)]
    if identifier in names:
        raise ConfigError(f"the column to identify rows by must have another name than embeddings, got {identifier!r}")
    told = Told()
    tables = _embedded(model, rows, names, identifier, batch_rows, told)
    write_atomically(output, lambda file: _WRITERS[output.suffix](tables, file))
    return told


def _embedded(
    model: PretrainedModel, path: Path, names: Sequence[str], identifier: str | None, batch_rows: int, told: Told
) -> Iterator[pd.DataFrame]:
    """Tables of embeddings, batch by batch; ``told`` is filled in on the way."""
    batches = _batches(path, batch_rows)
    header = next(batches)[0]
    _check_header(model, header, path, identifier)
    read = model.columns_.names
    told.unread = tuple(name for name in header if name not in read and name != identifier)
    for rows in batches:
        where = f"{path}, rows {told.rows + 1} to {told.rows + len(rows)}"
        cells = dict(zip(header, zip(*rows, strict=True), strict=True))
        frame = _frame(model, cells, where, told.rows)
        for name, count in _unknown(model, frame).items():
            told.unknown[name] += count
        try:
            # A model that was fitted to an array has no names to compare.
            embeddings = model.embed(frame if hasattr(model, "feature_names_in_") else frame.to_numpy())
        except DataError as error:
            raise DataError(f"{where}: {error} (the first of these rows is row 0)") from error
        told.rows += len(rows)
        ids = {} if identifier is None else {identifier: list(cells[identifier])}
        yield pd.concat([pd.DataFrame(ids), pd.DataFrame(embeddings, columns=list(names))], axis=1)
    if not told.rows:
        raise DataError(f"{path} must hold rows below its header, got none")


def _batches(path: Path, batch_rows: int) -> Iterator[list[list[str]]]:
    """The header by itself, then the rows in batches; cells are stripped."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix not in _DELIMITERS:
        raise ConfigError(
            f"rows must be a file that ends in {', '.join(_DELIMITERS)}, or these and .gz, got {path.name}"
        )
    try:
        with _open(path) as file:
            reader = csv.reader(file, delimiter=_DELIMITERS[suffix], strict=True)
            lines = ([cell.strip() for cell in line] for line in reader if line)
            header = next(lines, None)
            if header is None:
                raise DataError(f"{path} must have a header, got an empty file")
            yield [header]
            while rows := list(islice(lines, batch_rows)):
                for row in rows:
                    if len(row) != len(header):
                        raise DataError(f"{path}: a row must have {len(header)} cells as the header has, got {row}")
                yield rows
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


def _check_header(model: PretrainedModel, header: Sequence[str], path: Path, identifier: str | None) -> None:
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


def _frame(model: PretrainedModel, cells: Mapping[str, Sequence[str]], where: str, before: int) -> pd.DataFrame:
    """The columns that the model reads, each of the kind that it had in training."""
    columns = model.columns_
    known = dict(zip(columns.names_of("categorical"), columns.categories, strict=True))
    read: dict[str, Any] = {}
    for name, kind in zip(columns.names, columns.kinds, strict=True):
        if kind == "constant":  # asked for, and not read
            read[name] = np.zeros(len(cells[name]))
        elif name in known and isinstance(known[name].values[0], str):
            read[name] = pd.Series(cells[name], dtype=object)
        else:
            read[name] = _numbers(cells[name], name, where, before)
    return pd.DataFrame(read)


def _numbers(cells: Sequence[str], name: str, where: str, before: int) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        row = next(row for row, cell in enumerate(cells) if cell and not _is_number(cell))
        raise DataError(
            f"{where}: column {name!r} must hold numbers, got {cells[row]!r} in row {before + row + 1}"
        ) from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _unknown(model: PretrainedModel, frame: pd.DataFrame) -> dict[str, int]:
    """Column -> rows of ``frame`` whose category training never saw."""
    columns = model.columns_
    known = zip(columns.names_of("categorical"), columns.categories, strict=True)
    counts = {name: int((~frame[name].isin(categories.values)).sum()) for name, categories in known}
    return {name: count for name, count in counts.items() if count}


def _write_csv(tables: Iterator[pd.DataFrame], file: IO[bytes]) -> None:
    for number, table in enumerate(tables):
        file.write(table.to_csv(index=False, header=number == 0, lineterminator="\n").encode())


def _write_parquet(tables: Iterator[pd.DataFrame], file: IO[bytes]) -> None:
    import pyarrow
    from pyarrow import parquet

    writer = None
    for table in tables:
        rows = pyarrow.Table.from_pandas(table, preserve_index=False)
        writer = writer or parquet.ParquetWriter(file, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet}
