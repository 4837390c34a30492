"""tests/benchmarks/RESULTS.md: the last runs between two markers, newest first; everything else is written by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

BEGIN, END = "<!-- runs: written by make bench -->", "<!-- end of runs -->"
RUN = "## Run of "
KEPT = 5

FRESH = f"""# Benchmarks

`make bench` trains on one core and writes one section per run below, newest first; text outside the markers stays.

# Profiles before and after

*(by hand)*

# Runs

{BEGIN}
{END}
"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table, padded so that it can be read in a terminal too."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = [
            row[0].ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
        ]
        return "| " + " | ".join(padded) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(cells[0]), line(rule), *(line(row) for row in cells[1:])])


def with_run(text: str, section: str, kept: int = KEPT) -> str:
    """``text`` of the file with ``section`` (its heading starts with ``RUN``) as its newest run, at most ``kept``.

    Raises ValueError when the markers are not there exactly once, in order: then nothing can be replaced safely.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the results file needs the lines {BEGIN!r} and {END!r} once each, in this order")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    runs = [run.strip() for run in re.split(f"^(?={re.escape(RUN)})", old, flags=re.MULTILINE) if run.strip()]
    return "\n\n".join([before + BEGIN, section.strip(), *runs[: kept - 1], END + after])


def write_run(path: Path, section: str) -> None:
    """Add ``section`` to the file at ``path``, which is begun if there is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else FRESH
    path.write_text(with_run(text, section), encoding="utf-8")
