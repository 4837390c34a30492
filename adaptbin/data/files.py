"""A file of any usual kind to columns of cells: which format, encoding and delimiter it has is found out here.

What the cells mean is decided elsewhere (:mod:`adaptbin.data.cells`).  Text is parsed by pyarrow, which is fast and,
unlike pandas, takes no word for a missing value on its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.data.extras import require
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

DELIMITERS = (",", ";", "\t", "|")
_SAMPLE_RECORDS = 100
"""Records by which the delimiter is found."""
_SAMPLE_CHARACTERS = 1 << 20

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig", "UTF-8"),
    (b"\xff\xfe\x00\x00", "utf-32", "UTF-32"),
    (b"\x00\x00\xfe\xff", "utf-32", "UTF-32"),
    (b"\xff\xfe", "utf-16", "UTF-16"),
    (b"\xfe\xff", "utf-16", "UTF-16"),
)
"""Byte order mark, codec, name; the longer marks first."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns of a file, as the file has them."""

    names: tuple[str, ...]
    """Headers in order; all differ and none is empty."""
    columns: tuple[Any, ...]
    """One pyarrow array per header, [N] each: strings of a text file, else of the type that the file gives."""
    form: str
    """What the file is, in words: "CSV, delimiter ';', UTF-8"."""
    semicolons: bool = False
    """Whether ``;`` parts the cells, as programs write it where numbers have decimal commas."""

    @property
    def rows(self) -> int:
        """N."""
        return len(self.columns[0])


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
        sheet = _text(_unpacked(content, packing, path.name), path.name, suffix)
    elif suffix in EXCEL:
        sheet = _excel(content, path.name, suffix)
    else:
        sheet = _arrow_file(content, path.name, suffix)
    _check_headers(sheet, path.name)
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


def _utf8(content: bytes, name: str) -> tuple[bytes, str]:
    """The text in UTF-8 without a mark, and what it was written in."""
    for mark, codec, words in _MARKS:
        if content.startswith(mark):
            try:
                return content.decode(codec).encode(), words
            except UnicodeDecodeError as error:
                raise DataError(f"{name} must be {words} throughout, as it begins, got {error.reason}") from error
    zeros = content[:4096].count(0)
    if zeros:
        # Text in UTF-16 without a mark has a zero in every other byte; nothing else that is text has any.
        codec = "utf-16-le" if content[1:4096:2].count(0) > content[0:4096:2].count(0) else "utf-16-be"
        if zeros > min(len(content), 4096) // 4:
            try:
                return content.decode(codec).encode(), "UTF-16 without a mark"
            except UnicodeDecodeError:
                pass
        raise DataError(
            f"{name} must be text, got bytes of zero: is it a spreadsheet or an archive under another name?"
        )
    try:
        if not content.isascii():
            content.decode()
        return content, "UTF-8"
    except UnicodeDecodeError as error:
        try:
            return content.decode(
                "cp1252"
            ).encode(), "Windows-1252, since it is no UTF-8: look whether letters are right"
        except UnicodeDecodeError:
            byte = f"0x{content[error.start]:02x} at position {error.start}"
            raise DataError(f"{name} must be text in UTF-8, UTF-16 or Windows-1252, got byte {byte}") from error


def _text(content: bytes, name: str, suffix: str) -> Sheet:
    arrow, arrow_csv = require("pyarrow"), require("pyarrow.csv")
    content, encoding = _utf8(content, name)
    if b"\0" in content[:_SAMPLE_CHARACTERS]:
        raise DataError(f"{name} must be text, got bytes of zero")
    # Old line ends of one CR are no line ends to pyarrow.
    if b"\r" in content[:_SAMPLE_CHARACTERS] and b"\n" not in content[:_SAMPLE_CHARACTERS]:
        content = content.replace(b"\r", b"\n")
    delimiter, header = _delimiter(content, name, "\t" if suffix in (".tsv", ".tab") else ",")
    ragged: list[Any] = []

    def stop(row: Any) -> str:
        ragged.append(row)
        return "error"

    try:
        table = arrow_csv.read_csv(
            arrow.py_buffer(content),
            # One record may be as long as the block.
            read_options=arrow_csv.ReadOptions(column_names=_places(len(header)), block_size=1 << 24),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=True, invalid_row_handler=stop
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types={place: arrow.string() for place in _places(len(header))},
                strings_can_be_null=False,
                null_values=[],
            ),
        )
    except arrow.ArrowInvalid as error:
        raise DataError(_why_ragged(content, name, delimiter, len(header), error)) from error
    chunks: list[Any] = table.slice(1).columns
    del table, content
    columns = []
    for place, column in enumerate(chunks):
        columns.append(column.combine_chunks())
        chunks[place] = None  # a large table is not held twice
    shown = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}[delimiter]
    return Sheet(header, tuple(columns), f"text in {encoding}, cells parted by a {shown}", delimiter == ";")


def _places(count: int) -> list[str]:
    """Names that differ whatever the headers are."""
    return [str(place) for place in range(count)]


def _records(content: bytes, delimiter: str, most: int | None) -> list[list[str]]:
    """The first records of a text, by Python's own parser; blank lines left out."""
    part = content if most is None else content[:_SAMPLE_CHARACTERS]
    text = part.decode(errors="ignore")
    found: list[list[str]] = []
    for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        if record and any(cell.strip() for cell in record):
            found.append(record)
        if most is not None and len(found) >= most:
            break
    return found


def _delimiter(content: bytes, name: str, usual: str) -> tuple[str, tuple[str, ...]]:
    """What parts the cells, and the header.

    The delimiter by which the first records have the same number of cells, and most of them; where none does, the one
    that the header has most of.
    """
    found: dict[str, tuple[tuple[float, int, bool], list[str]]] = {}
    for delimiter in DELIMITERS:
        try:
            records = _records(content, delimiter, _SAMPLE_RECORDS)
        except csv.Error as error:
            raise DataError(
                f"{name} must be text with cells parted by one of {', '.join(map(repr, DELIMITERS))}: {error}"
            ) from error
        if not records:
            raise DataError(f"{name} must hold a header and rows, got an empty file")
        # The last record may be cut in two.
        counts = Counter(len(record) for record in records[: max(2, len(records) - 1)])
        cells = len(records[0])
        alike = counts[cells] / sum(counts.values()) if cells > 1 else 0.0
        found[delimiter] = ((round(alike, 1), cells, delimiter == usual), records[0])
    best = max(DELIMITERS, key=lambda delimiter: found[delimiter][0])
    if found[best][0][1] == 1:
        best = usual
    return best, tuple(cell.strip() for cell in found[best][1])


def _why_ragged(content: bytes, name: str, delimiter: str, cells: int, error: Exception) -> str:
    """Which record is not as long as the header, found again by a parser that counts lines."""
    reader = csv.reader(io.StringIO(content.decode(errors="replace"), newline=""), delimiter=delimiter)
    try:
        for record in reader:
            if record and len(record) != cells:
                return (
                    f"{name}, line {reader.line_num}: a row must have {cells} cells as the header has (parted by "
                    f"{delimiter!r}), got {len(record)}"
                )
    except csv.Error as fault:
        return f"{name}, line {reader.line_num}: is no valid text table: {fault}"
    return f"{name} is no valid text table: {error}"


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
    words = [None if cell is None else f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in kept]
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


def _check_headers(sheet: Sheet, name: str) -> None:
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
