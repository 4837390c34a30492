"""What each column of an own table is for a model, and why: a number, a category, or nothing to learn from.

The rule is the paper's: at most 20 distinct values among the rows that train make a category.  It is applied to the
rows that train under the default split, so that a kind changes neither with a seed nor with anything asked for later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from adaptbin.data.cells import DECIMAL_COMMAS, LONG_NUMBERS, THOUSANDS_POINTS, Cells
from adaptbin.errors import DataError

MOST_CATEGORIES = 20
"""Numbers with more distinct values than this are numerical (the paper's rule)."""
MANY_ROWS = 1000
"""So many whole numbers that all differ are no measurement."""

Kind = Literal["numerical", "categorical", "dropped"]

_ID_WORDS = frozenset(
    "id ids uid uuid guid key nr no num number index idx mrn record recordid case caseid code patient patientid "
    "subject subjectid person personid pid sid row rowid encounter visit sample sampleid".split()
)
_OWNER_WORDS = frozenset(
    "id patient patientid subject subjectid person personid pid mrn family household hospital clinic site centre "
    "center ward cohort recording case caseid group cluster".split()
)


@dataclass(frozen=True, kw_only=True)
class ColumnProfile:
    """What is known of one column."""

    name: str
    kind: Kind
    reason: str
    missing: int
    """Cells without a value, of all rows."""
    distinct: int
    """Distinct values among the rows that train, missing left out."""
    decimal_commas: bool = False
    """Whether its numbers have decimal commas; likewise the next one."""
    thousands_points: bool = False


@dataclass(frozen=True, eq=False)
class Judged:
    """A column with its values as the table has them."""

    profile: ColumnProfile
    values: pd.Series | None
    """[N] float64 or str; None where it is dropped."""
    may_group: bool
    """Whether its values may tell which rows belong together."""
    fault: str = ""
    """Why no table can be made with it; empty where one can."""


def judge(cells: Cells, fitted: np.ndarray, declared: Kind | None = None) -> Judged:
    """Decide what a column is, by its values in the rows ``fitted`` (int64 row numbers).

    ``declared``: what a card says it is, which is then checked.
    """
    codes = cells.codes[fitted]
    there = codes[codes >= 0]
    seen = np.flatnonzero(np.bincount(there, minlength=cells.numbers.size))
    n_missing, n_fitted_missing = int(cells.missing.sum()), int(codes.size - there.size)
    kind, reason, fault = _kind(cells, fitted.size, seen, there, n_fitted_missing)
    if declared is not None and declared != kind:
        kind, reason, fault = declared, "as the card says", _fault_of_declared(cells, declared)
    elif declared is not None:
        reason = f"as the card says; {reason}"
    notes = f" ({'; '.join(cells.notes)})" if cells.notes and kind != "dropped" else ""
    profile = ColumnProfile(
        name=cells.name,
        kind=kind,
        reason=f"{reason}{notes}",
        missing=n_missing,
        distinct=int(seen.size),
        decimal_commas=DECIMAL_COMMAS in cells.notes,
        thousands_points=THOUSANDS_POINTS in cells.notes,
    )
    values = None
    if kind == "numerical" and not fault:
        values = pd.Series(cells.as_numbers(), name=cells.name)
    elif kind == "categorical":
        values = pd.Series(cells.as_words(), name=cells.name, dtype="str")
    return Judged(profile, values, _may_group(cells), fault)


def require_no_faults(judged: Sequence[Judged], where: str) -> None:
    """Raise DataError that names every column no table can be made with."""
    faults = [column.fault for column in judged if column.fault]
    if faults:
        more = f" (and {len(faults) - 5} more columns)" if len(faults) > 5 else ""
        raise DataError(
            f"{where}: {'; '.join(faults[:5])}{more}. Correct the file, leave columns out with --drop, or say in a "
            "card what they are (kind: categorical) or which words mean missing (missing_words)"
        )


def _kind(cells: Cells, rows: int, seen: np.ndarray, there: np.ndarray, n_missing: int) -> tuple[Kind, str, str]:
    """Kind, reason and fault; ``seen`` are the distinct values of ``there``, the cells of the rows that train."""
    if not seen.size:
        return "dropped", "no value in any row that trains", ""
    if cells.is_date:
        return "dropped", f"dates such as {cells.words[seen[0]]!r}", ""
    if seen.size == 1 and not n_missing:
        return "dropped", f"constant: {str(cells.words[seen[0]])!r} in every row that trains", ""
    all_differ = seen.size == there.size and seen.size > MOST_CATEGORIES
    if cells.is_numeric:
        return _kind_of_numbers(cells, cells.numbers[seen], all_differ)
    numbers = ~cells.is_word
    if (numbers[there].mean() > 0.5) and numbers[seen].sum() > MOST_CATEGORIES:
        return "categorical", "words among numbers", _mixed(cells)
    if all_differ:
        return "dropped", f"identifier: every row that trains has another word, as {cells.words[seen[0]]!r}", ""
    if seen.size > MOST_CATEGORIES and seen.size > there.size / 2:
        unit = "; numbers must stand alone to be read as such" if cells.looks_like_units() else ""
        return (
            "dropped",
            f"free text: {seen.size} different words in {there.size} rows, as {cells.words[seen[0]]!r}{unit}",
            "",
        )
    told = "1 value or missing" if seen.size == 1 else f"{seen.size} different words"
    if seen.size > MOST_CATEGORIES and cells.looks_like_units():
        told += f", as {cells.words[seen[0]]!r}; numbers must stand alone to be read as such"
    return "categorical", told + _alike(cells.words[seen]), ""


def _alike(words: np.ndarray) -> str:
    """What to say of words that differ in case alone, which stay categories of their own."""
    by_lower: dict[str, str] = {}
    for word in map(str, words):
        if (other := by_lower.setdefault(word.lower(), word)) != word:
            return f"; some differ in case alone, as {other!r} and {word!r}"
    return ""


def _kind_of_numbers(cells: Cells, seen: np.ndarray, all_differ: bool) -> tuple[Kind, str, str]:
    infinite = np.flatnonzero(np.isinf(cells.numbers))
    if infinite.size:
        rows = int(np.isin(cells.codes, infinite).sum())
        fault = (
            f"column {cells.name!r} must hold finite numbers, got {cells.words[infinite[0]]} in row "
            f"{cells.row_of(int(infinite[0]))} ({rows} such rows)"
        )
        return "numerical", "numbers", fault
    if seen.size <= MOST_CATEGORIES:
        values = f"{seen.size} different values" if seen.size > 1 else "1 value or missing"
        return "categorical", f"{values}, at most {MOST_CATEGORIES}", ""
    whole = bool((seen == np.floor(seen)).all())
    if whole and np.abs(seen).min() >= LONG_NUMBERS:
        return "dropped", "identifier: whole numbers of 16 digits or more", ""
    if all_differ and whole and (_named(cells.name, _ID_WORDS) or _counted(seen)):
        return "dropped", "identifier: every row that trains has another whole number", ""
    return "numerical", f"{seen.size} different values, more than {MOST_CATEGORIES}", ""


def _counted(numbers: np.ndarray) -> bool:
    """Whether whole numbers that all differ look counted rather than measured: too many, or without wide gaps."""
    return numbers.size >= MANY_ROWS or float(numbers.max() - numbers.min()) < 3 * numbers.size


def _mixed(cells: Cells) -> str:
    words = np.flatnonzero(cells.is_word)
    rows = int(np.isin(cells.codes, words).sum())
    return (
        f"column {cells.name!r} holds numbers, but {cells.words[words[0]]!r} in row {cells.row_of(int(words[0]))} "
        f"({rows} such row{'' if rows == 1 else 's'})"
    )


def _fault_of_declared(cells: Cells, declared: Kind) -> str:
    if declared != "numerical":
        return ""
    if not cells.is_numeric:
        word = int(np.flatnonzero(cells.is_word)[0])
        return (
            f"column {cells.name!r} must hold numbers, since the card says numerical, got {cells.words[word]!r} in row "
            f"{cells.row_of(word)}"
        )
    return _kind_of_numbers(cells, cells.numbers, all_differ=False)[2]


def _named(name: str, words: frozenset[str]) -> bool:
    """Whether a word of a name, as ``patient_id`` or ``PatientID`` has two, is among ``words``."""
    parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())
    return any(part in words for part in (*parts, "".join(parts)))


def _may_group(cells: Cells) -> bool:
    """Whether rows may belong together by this column: ids that repeat, or words of many values that do."""
    distinct, rows = cells.numbers.size, int((cells.codes >= 0).sum())
    if cells.is_date or not 2 < distinct < rows:
        return False
    if _named(cells.name, _OWNER_WORDS):
        return not cells.is_numeric or bool((cells.numbers == np.floor(cells.numbers)).all())
    return not cells.is_numeric and MOST_CATEGORIES < distinct <= rows / 2
