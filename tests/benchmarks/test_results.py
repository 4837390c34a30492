"""The results file: prose outlives every run, and old runs make room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.results import BEGIN, END, FRESH, RUN, table, with_run, write_run


def test_newest_first_and_at_most_so_many() -> None:
    text = FRESH
    for i in range(4):
        text = with_run(text, f"{RUN}day {i}\n\n### Part\n\ntext {i}\n", kept=3)
    headings = [line for line in text.splitlines() if line.startswith(RUN)]
    assert headings == [f"{RUN}day {i}" for i in (3, 2, 1)]
    assert "text 0" not in text
    assert text.count("### Part") == 3


def test_prose_stays(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    write_run(path, f"{RUN}one")
    before, after = path.read_text().split(BEGIN)[0], path.read_text().split(END)[1]
    path.write_text(path.read_text().replace("*(by hand)*", f"mine, with a\n\n{RUN}that is prose") + "\nand a tail\n")
    for i in range(9):
        write_run(path, f"{RUN}{i}")
    text = path.read_text()
    assert text.split(BEGIN)[0] == before.replace("*(by hand)*", f"mine, with a\n\n{RUN}that is prose")
    assert text.split(END)[1] == after + "\nand a tail\n"


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{END}"])
def test_a_file_without_its_markers_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="once each"):
        write_run(path, f"{RUN}one")
    assert path.read_text() == text


def test_table_is_aligned() -> None:
    lines = table(["what", "ms"], [["a", "1.25"], ["a longer one", "10"]]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].startswith("| :--") and lines[1].endswith("-: |")
