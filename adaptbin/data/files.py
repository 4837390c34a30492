"""A file of any usual kind to columns of cells; what the cells mean is decided in :mod:`adaptbin.data.cells`."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pandas as pd

from adaptbin.data.cells import spell
from adaptbin.data.extras import require
from adaptbin.data.sheet import Sheet, require_headers
from adaptbin.data.text_file import read_text
from adaptbin.errors import DataError, DataNotFoundError, ResourceError, nearest

TEXT, EXCEL, PARQUET, FEATHER = (
    (".csv", ".tsv", ".tab", ".txt", ".data"),
    (".xlsx", ".xls"),
    (".parquet",),
    (".feather",),
)
PACKED = (".gz", ".zip")
SUFFIXES = (*TEXT, *EXCEL, *PARQUET, *FEATHER)
"""How the name of a table's file may end; that of a text file may have one of :data:`PACKED` after it."""


def is_table_file(path: Path) -> bool:
    """Whether a name is that of a table's file, whether or not there is one."""
    return _suffixes(path)[0] in SUFFIXES


def read_sheet(path: Path) -> Sheet:
    """Read the file at ``path``.

    Raises DataNotFoundError when there is none, ResourceError when it cannot be read or needs a package that is not
    installed, and DataError when it is of no known kind, is not what its name says, has rows of different lengths or
    none, or headers that are empty or the same.
    """
    suffix, packing = _suffixes(path)
    if suffix not in SUFFIXES or (packing and suffix not in TEXT):
        raise DataError(
            f"{path.name}: a table must be a file named {', '.join(SUFFIXES)} (text also with {' or '.join(PACKED)} "
            f"after it), got {path.suffix or 'no ending'!r}{nearest(path.suffix, SUFFIXES)}"
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        near = nearest(path.name, [other.name for other in path.parent.glob("*")]) if path.parent.is_dir() else ""
        raise DataNotFoundError(f"{path}: {what}{near}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResourceError(f"{path} cannot be read: {error.strerror}") from error
    if suffix in TEXT:
        sheet = read_text(
            _unpacked(content, packing, path.name), path.name, "\t" if suffix in (".tsv", ".tab") else ","
        )
    elif suffix in EXCEL:
        sheet = _excel(content, path.name, suffix)
    else:
        sheet = _arrow_file(content, path.name, suffix)
    require_headers(sheet, path.name)
    if not sheet.rows:
        raise DataError(f"{path.name}: a table must have rows below its header, got none")
    return sheet


def _suffixes(path: Path) -> tuple[str, str]:
    """``.csv`` and ``.gz`` of ``table.csv.gz``; the second is empty where nothing is packed."""
    last = path.suffix.lower()
    return (Path(path.stem).suffix.lower() or ".csv", last) if last in PACKED else (last, "")


def _unpacked(content: bytes, packing: str, name: str) -> bytes:
    try:
        if packing == ".gz":
            return gzip.decompress(content)
        if packing == ".zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = [
                    m for m in archive.namelist() if Path(m).suffix.lower() in TEXT and not Path(m).name.startswith(".")
                ]
                if len(members) != 1:
                    raise DataError(
                        f"{name}: an archive must hold one text table, got {len(members)} of {archive.namelist()}"
                    )
                return archive.read(members[0])
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{name} must be a whole {packing} file: {error}") from error
    return content


def _excel(content: bytes, name: str, suffix: str) -> Sheet:
    arrow = require("pyarrow")
    require("openpyxl" if suffix == ".xlsx" else "xlrd")
    try:
        # Without dtype=object pandas would change types, and with a header it would rename columns of one name.
        sheets = pd.read_excel(
            io.BytesIO(content),
            sheet_name=None,
            header=None,
            dtype=object,
            keep_default_na=False,
            na_values=[],
            engine="openpyxl" if suffix == ".xlsx" else "xlrd",
        )
    # Bytes that are no workbook make the readers fail in many ways.
    except Exception as error:
        raise DataError(f"{name} must be an Excel workbook, as its name says: {error}") from error
    filled = {title: frame for title, frame in sheets.items() if len(frame)}
    if len(filled) != 1:
        titles = ", ".join(repr(title) for title in filled) or "none"
        raise DataError(f"{name}: a workbook must have one sheet that is not empty, got {titles}")
    ((title, frame),) = filled.items()
    header = ["" if pd.isna(cell) else str(cell).strip() for cell in frame.iloc[0]]
    body = frame.iloc[1:]
    body = body[~(body.isna() | (body == "")).all(axis=1)]
    columns = tuple(_typed(body.iloc[:, place].tolist(), arrow) for place in range(len(header)))
    return Sheet(tuple(header), columns, f"sheet {title!r} of a workbook")


def _typed(cells: list[Any], arrow: Any) -> Any:
    """Cells of a worksheet as an array of numbers, of moments, or of words where they are mixed."""
    there = [cell for cell in cells if not (cell is None or cell is pd.NaT or cell == "" or cell != cell)]
    kinds = {type(cell) for cell in there}
    kept = [None if cell is None or cell is pd.NaT or cell == "" or cell != cell else cell for cell in cells]
    if there and kinds <= {int, float}:
        return arrow.array([None if cell is None else float(cell) for cell in kept], type=arrow.float64())
    if there and all(hasattr(cell, "isoformat") for cell in there):
        return arrow.array([None if cell is None else cell.isoformat() for cell in kept], type=arrow.string())
    words = [None if cell is None else spell(cell) if isinstance(cell, float) else str(cell) for cell in kept]
    return arrow.array(words, type=arrow.string())


def _arrow_file(content: bytes, name: str, suffix: str) -> Sheet:
    arrow = require("pyarrow")
    try:
        if suffix in PARQUET:
            # A file opened by itself, so that no column is renamed, merged or left out.
            table = require("pyarrow.parquet").ParquetFile(arrow.BufferReader(content)).read()
        else:
            table = require("pyarrow.feather").read_table(arrow.BufferReader(content))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{name} must be a {suffix.removeprefix('.').capitalize()} file, as its name says: {error}"
        ) from error
    names = tuple(str(column).strip() for column in table.column_names)
    columns = tuple(column.combine_chunks() for column in table.columns)
    return Sheet(names, columns, f"{suffix.removeprefix('.').capitalize()} file")
