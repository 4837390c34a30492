"""The benchmark of own tables, on a table of few rows."""

from __future__ import annotations

from pathlib import Path

from adaptbin.data.own import Asked, read_own_table
from tests.benchmarks.own_table import CODES, GAPS, NUMBERS, WORDS, measure, write_table


def test_the_table_is_what_it_says(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", 3000)
    card = read_own_table(tmp_path / "t.csv", Asked(target="outcome")).table.card
    kinds = [column.kind for column in card.columns]
    assert kinds.count("numerical") == NUMBERS + GAPS + CODES and kinds.count("categorical") == WORDS
    assert sum(column.missing for column in card.columns) == GAPS and card.levels == ("alive", "died")
    assert "patient" not in [column.name for column in card.columns]


def test_it_measures_in_a_process_of_its_own(tmp_path: Path) -> None:
    lines = measure(3000, tmp_path).splitlines()
    cells = [cell.strip() for cell in lines[-1].strip("|").split("|")]
    assert cells[0] == "3,000" and float(cells[3]) >= float(cells[2]) > 0
    assert int(cells[5]) == NUMBERS + 2 * GAPS + CODES + WORDS and int(cells[6]) > 50
