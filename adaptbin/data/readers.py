"""Bytes of a file to a parsed table, checked against the card column by column.

Whatever does not decide a value is accepted: LF, CRLF or CR, a byte order mark, quotes, ".7" or "0.70".  Everything
else is an error that names the line.  Parsing is by :mod:`csv` and ``float`` rather than by pandas, which would read
"no" or "NA" as missing and may round the last digit of a number.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from adaptbin.data.extras import require
from adaptbin.data.registry import Card
from adaptbin.data.table import Table, make_table, verify
from adaptbin.errors import DataError, ResourceError

_SHOWN = 5
"""Names listed in a message before it says how many more there are."""


class RawRows(NamedTuple):
    """Cells of a file as text, stripped."""

    header: list[str] | None
    """Column names as written; None when the file has none."""
    rows: list[list[str]]
    lines: list[int]
    """Line (or sheet row) number of each row, counted from 1."""


def read_table(card: Card, path: Path) -> Table:
    """Read the file at ``path`` and check that it holds the table ``card`` declares.

    Raises DataError for an undecodable file, wrong columns, cells that are no finite number, unknown label levels, and
    a table with other rows; ResourceError when the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResourceError(f"{card.key}: {path} cannot be read: {error.strerror}") from error
    return verify(parse_table(card, content, str(path), path), str(path))


def read_embedded(card: Card) -> Table:
    """The table of an embedded data set, from scikit-learn's own files.  Raises DataError if it is another one."""
    from sklearn import datasets

    # Diabetes in the units it was measured in: scikit-learn scales with all rows, test ones included, by default.
    options = {"scaled": False} if card.key == "diabetes" else {}
    bunch = getattr(datasets, f"load_{card.key}")(**options)
    values = np.asarray(bunch.data, dtype=np.float64)
    features = pd.DataFrame({c.name: values[:, i] for i, c in enumerate(card.columns)})
    if card.task.is_classification:
        levels = [str(bunch.target_names[code]) for code in bunch.target]
        target: pd.Series = pd.Series(levels, name=card.target, dtype="str")
    else:
        target = pd.Series(np.asarray(bunch.target, dtype=np.float64), name=card.target)
    return verify(make_table(card, features, target), "the installed scikit-learn")


def parse_table(card: Card, content: bytes, source: str, path: Path | None = None) -> Table:
    """Parse ``content``, named ``source`` in errors.

    Like :func:`read_table`, but the number of rows and the fingerprint are not compared.
    """
    where = f"{card.key}: {source}"
    raw = _cardiotocography(content, where) if card.reader == "cardiotocography" else _csv(card, content, where)
    if raw.header is not None:
        _check_header(card, raw.header, where)
    if not raw.rows:
        raise DataError(f"{where} holds no rows; the data set has {card.rows}")
    for line, row in zip(raw.lines, raw.rows, strict=True):
        if len(row) != len(card.header):
            raise DataError(f"{where}, line {line}: must have {len(card.header)} fields, got {len(row)}")
    raw = _drop_incomplete(card, raw)
    if not raw.rows:
        raise DataError(f"{where} holds no row with a value in {card.incomplete!r}; the data set has {card.rows}")
    # A name that stands in the header twice means its first column.
    columns = list(zip(*raw.rows, strict=True))
    cells = {name: columns[card.header.index(name)] for name in dict.fromkeys(card.header)}

    features = pd.DataFrame(
        {
            c.name: _words(cells[c.name], raw.lines, c.name, where)
            if c.text
            else _numbers(cells[c.name], raw.lines, c.name, where)
            for c in card.columns
        }
    )
    if card.levels is None:
        target = _numbers(cells[card.target], raw.lines, card.target, where)
    else:
        target = _labels(cells[card.target], raw.lines, card.target, card.levels, where)
    groups = None if card.group is None else _numbers(cells[card.group], raw.lines, card.group, where)
    return make_table(card, features, target, groups, path)


def _csv(card: Card, content: bytes, where: str) -> RawRows:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where} must be text in UTF-8, got byte 0x{content[error.start]:02x} at position {error.start}"
        ) from error
    rows, lines = [], []
    reader = csv.reader(io.StringIO(text, newline=None), strict=True)
    try:
        for row in reader:
            if row:
                rows.append([cell.strip() for cell in row])
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{where}, line {reader.line_num}: is no valid csv: {error}") from error
    if not rows:
        raise DataError(f"{where} is empty; the data set has {card.rows} rows")
    if card.reader == "headerless":
        return RawRows(None, rows, lines)
    return RawRows(rows[0], rows[1:], lines[1:])


def _cardiotocography(content: bytes, where: str) -> RawRows:
    """Sheet "Data": a row of numbers, the header, the records, a blank row, two summary rows; empty spacer columns."""
    xlrd = require("xlrd")
    try:
        # xlrd reports oddities of the file on standard output unless it is given another one.
        book = xlrd.open_workbook(file_contents=content, logfile=io.StringIO())
        sheet = book.sheet_by_name("Data")
    # Bytes that are no workbook make xlrd fail in many ways, from its own errors to struct.error and IndexError.
    except Exception as error:
        raise DataError(f"{where} must be an .xls workbook with a sheet 'Data': {error}") from error
    if sheet.nrows < 2:
        raise DataError(f"{where}: sheet 'Data' must have its header in row 2, got {sheet.nrows} rows")
    header = [str(cell).strip() for cell in sheet.row_values(1)]
    columns = [j for j, name in enumerate(header) if name]
    rows = []
    for i in range(2, sheet.nrows):
        values = sheet.row_values(i)
        row = [repr(values[j]) if isinstance(values[j], float) else str(values[j]).strip() for j in columns]
        if not any(row):
            break
        rows.append(row)
    return RawRows([header[j] for j in columns], rows, list(range(3, 3 + len(rows))))


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _check_header(card: Card, header: list[str], where: str) -> None:
    aliases = dict(card.aliases)
    got = tuple(name if name in card.header else aliases.get(name, name) for name in header)
    if got == card.header:
        return
    missing = list((Counter(card.header) - Counter(got)).elements())
    extra = list((Counter(got) - Counter(card.header)).elements())
    if missing or extra:
        faults = [f"lacks {_listed(missing)}"] * bool(missing) + [f"has {_listed(extra)} too many"] * bool(extra)
        raise DataError(f"{where} must have the {len(card.header)} columns of the data set; it {' and '.join(faults)}")
    place = next(i for i, (a, b) in enumerate(zip(got, card.header, strict=True)) if a != b)
    raise DataError(
        f"{where} has its columns in another order: column {place + 1} must be {card.header[place]!r}, "
        f"got {got[place]!r}"
    )


def _drop_incomplete(card: Card, raw: RawRows) -> RawRows:
    if card.incomplete is None:
        return raw
    place = card.header.index(card.incomplete)
    kept = [i for i, row in enumerate(raw.rows) if row[place]]
    return RawRows(raw.header, [raw.rows[i] for i in kept], [raw.lines[i] for i in kept])


def _numbers(cells: Sequence[str], lines: list[int], name: str, where: str) -> pd.Series:
    values = np.empty(len(cells), dtype=np.float64)
    for i, cell in enumerate(cells):
        try:
            values[i] = float(cell)
        except ValueError:
            values[i] = np.nan
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        first = int(bad[0])
        raise DataError(
            f"{where}, line {lines[first]}: column {name!r} must be a finite number, got {cells[first]!r} "
            f"({bad.size} such rows)"
        )
    return pd.Series(values, name=name)


def _words(cells: Sequence[str], lines: list[int], name: str, where: str) -> pd.Series:
    for line, cell in zip(lines, cells, strict=True):
        if not cell:
            raise DataError(f"{where}, line {line}: column {name!r} must hold a word, got an empty field")
    return pd.Series(list(cells), name=name, dtype="str")


def _labels(cells: Sequence[str], lines: list[int], name: str, levels: tuple[str, ...], where: str) -> pd.Series:
    spelled = {level: level for level in levels}
    for line, cell in zip(lines, cells, strict=True):
        if cell in spelled:
            continue
        try:
            level = f"{float(cell):g}"  # "1.0" is level "1"
        except ValueError:
            level = cell
        if level not in levels:
            raise DataError(f"{where}, line {line}: label {name!r} must be one of {_listed(levels)}, got {cell!r}")
        spelled[cell] = level
    return pd.Series([spelled[cell] for cell in cells], name=name, dtype="str")
