"""A text table to columns of cells: its encoding and what parts its cells are found out here.

Text is parsed by pyarrow, which is fast and, unlike pandas, takes no word for a missing value on its own.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from typing import Any

from adaptbin.data.cells import COMMA, THOUSANDS
from adaptbin.data.extras import require
from adaptbin.data.sheet import Sheet
from adaptbin.errors import DataError

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


def read_text(content: bytes, name: str, usual: str) -> Sheet:
    """Columns of a text table; ``usual``: what parts the cells where the text does not tell.

    Raises DataError for what is no text in a known encoding, is empty, or has rows of different lengths.
    """
    arrow, arrow_csv = require("pyarrow"), require("pyarrow.csv")
    content, encoding = _utf8(content, name)
    if b"\0" in content[:_SAMPLE_CHARACTERS]:
        raise DataError(f"{name} must be text, got bytes of zero")
    # Old line ends of one CR are no line ends to pyarrow.
    if b"\r" in content[:_SAMPLE_CHARACTERS] and b"\n" not in content[:_SAMPLE_CHARACTERS]:
        content = content.replace(b"\r", b"\n")
    delimiter, header = _delimiter(content, name, usual)
    commas = delimiter == ";" or _has_decimal_commas(content, delimiter)
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
    chunks: list[Any] = _without_empty_rows(table).slice(1).columns
    del table, content
    columns = []
    for place, column in enumerate(chunks):
        columns.append(column.combine_chunks())
        chunks[place] = None  # a large table is not held twice
    shown = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}[delimiter]
    return Sheet(header, tuple(columns), f"text in {encoding}, cells parted by a {shown}", commas)


def _without_empty_rows(table: Any) -> Any:
    """The rows in which some cell is there: spreadsheets write what was once used below, or above, a table."""
    compute = require("pyarrow.compute")
    empty: Any = None
    for column in table.columns:
        here = compute.equal(compute.utf8_trim_whitespace(column), "")
        empty = here if empty is None else compute.and_(empty, here)
        if not compute.any(empty).as_py():
            return table
    return table.filter(compute.invert(empty))


def _has_decimal_commas(content: bytes, delimiter: str) -> bool:
    """Whether a number among the first records has a comma that parts no thousands, and none has one that does."""
    cells = {cell.strip() for record in _records(content, delimiter, _SAMPLE_RECORDS) for cell in record if "," in cell}
    kinds = {(bool(re.match(COMMA, cell)), bool(re.match(THOUSANDS, cell))) for cell in cells}
    return (True, False) in kinds and (False, True) not in kinds


def _places(count: int) -> list[str]:
    """Names that differ whatever the headers are."""
    return [str(place) for place in range(count)]


def _records(content: bytes, delimiter: str, most: int) -> list[list[str]]:
    """The first records of a text, by Python's own parser; blank lines left out."""
    # However long the header is, some rows come with it.
    part = content[: max(_SAMPLE_CHARACTERS, 8 * content.find(b"\n"))]
    text = part.decode(errors="ignore")
    found: list[list[str]] = []
    for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        if record and any(cell.strip() for cell in record):
            found.append(record)
        if len(found) >= most:
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
        except csv.Error:  # a whole wide line as one cell is too long for Python's parser
            continue
        if not records:
            raise DataError(f"{name} must hold a header and rows, got an empty file")
        # The last record may be cut in two.
        counts = Counter(len(record) for record in records[: max(2, len(records) - 1)])
        cells = len(records[0])
        alike = counts[cells] / sum(counts.values()) if cells > 1 else 0.0
        found[delimiter] = ((round(alike, 1), cells, delimiter == usual), records[0])
    if not found:
        raise DataError(f"{name} must be text with cells parted by one of {', '.join(map(repr, DELIMITERS))}")
    best = max(found, key=lambda delimiter: found[delimiter][0])
    if found[best][0][1] == 1:
        return usual, tuple(cell.strip() for cell in found[best][1])
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
