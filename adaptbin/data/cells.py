"""What the cells of a column are: missing, numbers, dates or words.  Every distinct cell is looked at once.

Text needs rules that typed files do not: the usual words for a missing value, decimal commas, dates.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from adaptbin.data.extras import require

MISSING_WORDS = ("", "?", "-", ".", "na", "n/a", "#n/a", "<na>", "nan", "null")
"""Cells that stand for no value unless a card names others; case does not matter."""
LONG_NUMBERS = 1e15
"""Whole numbers that are all this long are keys, which float64 could not tell apart."""
DECIMAL_COMMAS, THOUSANDS_POINTS = "decimal commas", "points between thousands"
"""Notes on a column that has them."""
NONE = "none"
"""A category among words; no value where all other cells are numbers."""

MINUS = "-"
"""A finding beside others that are plus signs, as on a test strip; else no value."""
_PLUS = r"^\++$"

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
COMMA = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+([eE][+-]?\d+)?$"
"""A number with a decimal comma, whole thousands perhaps parted by points."""
THOUSANDS = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$"
"""A number whose thousands are parted by commas."""
_POINTS = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"
"""A number whose thousands are parted by points, or one with three decimals."""
_DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}[-/]\d{1,2}[-/]\d{2})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?\s*([aApP][mM])?(Z|[+-]\d{2}:?\d{2})?)?$"
)
_WITH_UNIT = r"^[<>~]?\s*[+-]?\d+([.,]\d+)?\s*[^\d\s.,:/-].*$"


@dataclass(frozen=True, eq=False)
class Cells:
    """One column: N cells, of which U are distinct and not missing."""

    name: str
    codes: np.ndarray
    """[N] int64, position of each cell's value below; -1 where it is missing."""
    numbers: np.ndarray
    """[U] float64, NaN where a value is no number."""
    texts: Any
    """[U] pyarrow strings: the values as written; None for the numbers of a typed file."""
    is_date: bool
    """Whether all values are dates or moments."""
    notes: tuple[str, ...] = ()
    """How the text was read where that is not plain."""

    @cached_property
    def words(self) -> np.ndarray:
        """[U] object (str): the values as written; numbers of typed files in short."""
        if self.texts is None:
            return np.array([*map(spell, self.numbers)], dtype=object)
        found: np.ndarray = self.texts.to_numpy(zero_copy_only=False).astype(object)
        return found

    @cached_property
    def is_word(self) -> np.ndarray:
        """[U] bool: values that are no numbers."""
        found: np.ndarray = np.isnan(self.numbers)
        return found

    @property
    def is_numeric(self) -> bool:
        """Whether every value is a number; also where there is none."""
        return not self.is_word.any()

    @property
    def missing(self) -> np.ndarray:
        """[N] bool."""
        found: np.ndarray = np.less(self.codes, 0)
        return found

    def as_numbers(self) -> np.ndarray:
        """[N] float64, NaN where missing.  Only where :attr:`is_numeric`."""
        values: np.ndarray = np.append(self.numbers, np.nan)[self.codes]
        return values

    def spelled(self) -> np.ndarray:
        """[U] object (str): every value as a category or label is called; 1, 1.0 and 01 are one."""
        spelled = self.words.copy()
        # Numbers longer than float64 tells apart stay as they are written.
        for place in np.flatnonzero(np.abs(self.numbers) < LONG_NUMBERS) if self.is_numeric else ():
            spelled[place] = spell(self.numbers[place])
        return spelled

    def as_words(self) -> np.ndarray:
        """[N] object (str), "" where missing."""
        values: np.ndarray = np.append(self.spelled(), "")[self.codes]
        return values

    def row_of(self, value: int) -> int:
        """Number of the first row that has the value at a place of :attr:`words`, counted from 1 below the header."""
        return int(np.flatnonzero(self.codes == value)[0]) + 1

    def looks_like_units(self) -> bool:
        """Whether the words are numbers with something after them, as "12 mg"."""
        return bool(self.is_word.any()) and bool(_matches(self.texts, _WITH_UNIT)[self.is_word].all())


def spell(number: float) -> str:
    """A number in short: 1.0 is "1"."""
    if not np.isfinite(number):
        return str(number)
    return str(int(number)) if abs(number) < LONG_NUMBERS and number == int(number) else repr(float(number))


def read_cells(
    name: str,
    column: Any,
    *,
    missing_words: Collection[str] = MISSING_WORDS,
    decimal_commas: bool = False,
    thousands_points: bool = False,
    none_is_missing: bool = True,
    minus_is_missing: bool = True,
) -> Cells:
    """The cells of ``column`` [N], a pyarrow array.

    ``missing_words``: what stands for no value, words in any case and numbers however written; an empty cell always
    does.  ``none_is_missing``: whether "none" does where all other cells are numbers.  ``minus_is_missing``: whether
    "-", if it is one of these words, does where other cells are "+" or "++".
    ``decimal_commas``: whether a comma with three digits after it is a decimal comma rather than one between thousands,
    which the digits alone do not tell; ``thousands_points``: likewise, whether a point is one between thousands.
    """
    arrow, compute = require("pyarrow"), require("pyarrow.compute")
    types = arrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_temporal(column.type) and not types.is_duration(column.type):
        return _coded(name, compute.cast(column, arrow.string()), is_date=True)
    if types.is_boolean(column.type):
        column = compute.if_else(column, "True", "False")
    if types.is_integer(column.type) and (compute.max(column).as_py() or 0) >= LONG_NUMBERS:
        column = column.cast(arrow.string())
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_decimal(column.type):
        values = column.cast(arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return _of_numbers(name, np.where(np.isin(values, _numbers_among(missing_words)), np.nan, values))
    try:
        column = column.cast(arrow.string())
    except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):  # lists, structs, raw bytes
        column = arrow.array([None if cell is None else str(cell) for cell in column.to_pylist()], type=arrow.string())
    return _of_text(
        name,
        compute.utf8_trim_whitespace(column),
        {"", *map(str.lower, missing_words)},
        (decimal_commas, thousands_points),
        none_is_missing,
        minus_is_missing,
    )


def _numbers_among(words: Collection[str]) -> list[float]:
    return [float(word) for word in words if re.match(_NUMBER, word)]


def _of_numbers(name: str, values: np.ndarray) -> Cells:
    import pandas as pd

    codes, distinct = pd.factorize(np.where(np.isnan(values), np.nan, values + 0.0))
    numbers = np.asarray(distinct, dtype=np.float64)
    return Cells(name, codes.astype(np.int64), numbers, None, is_date=False)


def _coded(name: str, column: Any, *, is_date: bool) -> Cells:
    coded = column.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Cells(name, codes, np.full(len(coded.dictionary), np.nan), coded.dictionary, is_date=is_date)


def _of_text(
    name: str,
    column: Any,
    missing_words: set[str],
    marks: tuple[bool, bool],
    none_is_missing: bool,
    minus_is_missing: bool,
) -> Cells:
    arrow, compute = require("pyarrow"), require("pyarrow.compute")
    coded = column.dictionary_encode()
    distinct = coded.dictionary
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    lower = compute.utf8_lower(distinct)
    gone = compute.is_in(lower, value_set=arrow.array(sorted(missing_words), type=arrow.string()))
    gone = gone.to_numpy(zero_copy_only=False)
    is_minus = compute.equal(distinct, MINUS).to_numpy(zero_copy_only=False) & gone
    is_finding = not minus_is_missing and bool(is_minus.any()) and bool(_matches(distinct, _PLUS).any())
    gone = gone & ~(is_minus & is_finding)
    numbers, notes = _numbers_of(distinct, gone, *marks)
    if is_finding:
        notes = (*notes, f"{MINUS!r} read as a value, since it stands beside '+'")
    gone = gone | np.isin(numbers, _numbers_among(missing_words))
    is_none = compute.equal(lower, NONE).to_numpy(zero_copy_only=False) & ~gone & none_is_missing
    others = ~gone & ~is_none
    if is_none.any() and others.any() and not np.isnan(numbers[others]).any():
        gone |= is_none
        notes = (*notes, f"{NONE!r} read as missing, since all other cells are numbers")
    kept = np.flatnonzero(~gone)
    place = np.full(len(distinct) + 1, -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    texts, numbers = distinct.take(arrow.array(kept)), numbers[kept]
    is_date = kept.size > 0 and bool(np.isnan(numbers).all()) and bool(_matches(texts, _DATE).all())
    return Cells(name, place[codes], numbers, texts, is_date, notes)


def _numbers_of(
    distinct: Any, gone: np.ndarray, decimal_commas: bool, thousands_points: bool
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Distinct texts [U] as float64, NaN where they are no numbers, and how commas and points were read."""
    compute = require("pyarrow.compute")
    plain = compute.match_substring_regex(distinct, _NUMBER)
    numbers = _parsed(compute.if_else(plain, distinct, None))
    rest = np.isnan(numbers) & ~gone
    if not rest.any() and not thousands_points:
        return numbers, ()
    notes: tuple[str, ...] = ()
    comma = rest & _matches(distinct, COMMA)
    thousands = rest & _matches(distinct, THOUSANDS)
    # Both readings fit "1,234"; a column of nothing else is read as its file is written.
    is_comma = comma.any() and (decimal_commas or (comma & ~thousands).any()) and not (thousands & ~comma).any()
    # And "1.234" may be a number of three decimals, but not beside decimal commas or several as "1.234.567".
    points = ~gone & _matches(distinct, _POINTS)
    others = ~gone & ~points & ~comma & _array(compute.match_substring(distinct, "."))
    if points.any() and not others.any() and (thousands_points or is_comma or (points & rest).sum() > 1):
        numbers = np.where(points, _parsed(_only(compute.replace_substring(distinct, ".", ""), points)), numbers)
        notes = (THOUSANDS_POINTS,)
    if is_comma:
        text = compute.replace_substring(compute.replace_substring(distinct, ".", ""), ",", ".")
        return np.where(comma, _parsed(_only(text, comma)), numbers), (*notes, DECIMAL_COMMAS)
    if thousands.any():
        text = compute.replace_substring(distinct, ",", "")
        return np.where(thousands, _parsed(_only(text, thousands)), numbers), (*notes, "commas between thousands")
    return numbers, notes


def _parsed(text: Any) -> np.ndarray:
    """Texts of numbers [U], null where there is none, as float64."""
    arrow, compute = require("pyarrow"), require("pyarrow.compute")
    unsigned = compute.replace_substring_regex(text, r"^\+", "")
    parsed: np.ndarray = unsigned.cast(arrow.float64()).to_numpy(zero_copy_only=False)
    return parsed


def _only(text: Any, there: np.ndarray) -> Any:
    arrow, compute = require("pyarrow"), require("pyarrow.compute")
    return compute.if_else(arrow.array(there), text, None)


def _array(column: Any) -> np.ndarray:
    found: np.ndarray = column.to_numpy(zero_copy_only=False)
    return found


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return _array(require("pyarrow.compute").match_substring_regex(texts, pattern))
