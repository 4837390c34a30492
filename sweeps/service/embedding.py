"""New rows of a file to a table of embeddings, batch by batch: no more rows are held than a batch has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pandas as pd

from adaptbin.errors import ConfigError, DataError
from sweeps.service.files import write_atomically
from sweeps.service.new_rows import Batch, read_rows

if TYPE_CHECKING:
    from adaptbin.estimators.model import PretrainedModel

BATCH_ROWS = 8192


@dataclass
class Told:
    """What came of a file."""

    rows: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Column -> rows whose category the model has never seen."""
    unread: tuple[str, ...] = ()
    """Columns of the file that the model does not read."""


def embed_file(
    model: PretrainedModel, path: Path, output: Path, *, identifier: str | None = None, batch_rows: int = BATCH_ROWS
) -> Told:
    """Embed the rows of a file, and write a table of the embeddings, which appears whole or not at all.

    The table has a column for ``identifier``, as written in the file, then z0, z1, ... float32.

    Raises ConfigError for an output of another kind than CSV or Parquet, and an identifier that cannot be; DataError
    for a file without rows, and for what the model cannot read, with the rows it is in; what
    :func:`~sweeps.service.new_rows.read_rows` raises; OSError where the output cannot be written.
    """
    if output.suffix not in _WRITERS:
        raise ConfigError(f"output must end in {' or '.join(_WRITERS)}, got {output.name}")
    names = [f"z{j}" for j in range(model.model_.width)]
    if identifier in names:
        raise ConfigError(f"the column to identify rows by must have another name than embeddings, got {identifier!r}")
    rows = read_rows(model, path, identifier, batch_rows)
    told = Told(unread=tuple(name for name in rows.header if name not in (*model.columns_.names, identifier)))
    tables = (_embedded(model, batch, path, names, identifier, told) for batch in rows.batches)
    write_atomically(output, lambda file: _write(tables, output, file, path))
    return told


def _embedded(
    model: PretrainedModel, batch: Batch, path: Path, names: Sequence[str], identifier: str | None, told: Told
) -> pd.DataFrame:
    """A batch's part of the table; ``told`` counts its rows."""
    features = batch.features
    last = batch.first + len(features) - 1
    columns = model.columns_
    for name, known in zip(columns.names_of("categorical"), columns.categories, strict=True):
        told.unknown[name] += int((~features[name].isin(known.values)).sum())
    try:
        # A model that was fitted to an array has no names to compare.
        embeddings = model.embed(features if hasattr(model, "feature_names_in_") else features.to_numpy())
    except DataError as error:
        raise DataError(f"{path}, rows {batch.first} to {last}, of which the first is row 0: {error}") from error
    told.rows = last
    ids = {} if batch.ids is None else {identifier: batch.ids}
    return pd.concat([pd.DataFrame(ids), pd.DataFrame(embeddings, columns=list(names))], axis=1)


def _write(tables: Iterator[pd.DataFrame], output: Path, file: IO[bytes], path: Path) -> None:
    first = next(tables, None)
    if first is None:
        raise DataError(f"{path} must hold rows below its header, got none")
    _WRITERS[output.suffix](first, tables, file)


def _write_csv(first: pd.DataFrame, others: Iterator[pd.DataFrame], file: IO[bytes]) -> None:
    file.write(first.to_csv(index=False, lineterminator="\n").encode())
    for table in others:
        file.write(table.to_csv(index=False, header=False, lineterminator="\n").encode())


def _write_parquet(first: pd.DataFrame, others: Iterator[pd.DataFrame], file: IO[bytes]) -> None:
    import pyarrow
    from pyarrow import parquet

    rows = pyarrow.Table.from_pandas(first, preserve_index=False)
    with parquet.ParquetWriter(file, rows.schema) as writer:
        writer.write_table(rows)
        for table in others:
            writer.write_table(pyarrow.Table.from_pandas(table, schema=rows.schema, preserve_index=False))


_WRITERS = {".csv": _write_csv, ".parquet": _write_parquet}
"""End of a name -> what writes such a file."""
