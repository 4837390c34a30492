"""Compile every ``table.tex`` with pdflatex, as its first lines say; no part of ``make test``.

    python -m tests.latex                 tables of made-up scores: a benchmark of eight data sets, one, and one with
                                          empty cells, and a fine-tuning of the paper's four
    python -m tests.latex FOLDER ...      the table.tex of these folders

Debian has what is needed in texlive-latex-base and texlive-latex-recommended.  The exit code is 0 when every table
compiles and fits its page, 1 when one does not, 2 without pdflatex.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from sweeps.service import captions_finetune, typeset_finetune
from sweeps.service.captions_benchmark import table_caption
from sweeps.service.methods import BenchmarkStudy
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.tables_benchmark import benchmark_tables
from sweeps.service.tables_finetune import finetune_tables
from sweeps.service.typeset import LATEX_WRAPPER
from sweeps.service.typeset_benchmark import latex
from tests.service.synthetic import (
    METRIC_OF,
    FakeCard,
    as_printed,
    gaining,
    make_benchmark_records,
    make_finetune_records,
)

SECONDS = 60


def problems(fragment: str) -> list[str]:
    """What pdflatex finds wrong with a table: errors, and boxes that stick out of the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "table.tex").write_text(fragment, encoding="utf-8")
        (folder / "document.tex").write_text(LATEX_WRAPPER, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith(("!", "Overfull", "LaTeX Warning"))]
        made = (folder / "document.pdf").is_file()
    return found if made else [*found, f"no document (exit code {done.returncode})"]


def samples() -> Iterator[tuple[str, str]]:
    """Name and fragment of tables of made-up scores."""
    study = BenchmarkStudy(cards=tuple(FakeCard(name) for name in METRIC_OF), seeds=(0, 1))
    records = make_benchmark_records(study, as_printed)
    tables = {name: benchmark_tables(records, study.only(name), metric).table for name, metric in METRIC_OF.items()}
    yield "eight data sets", latex(pd.concat(tables.values(), ignore_index=True), table_caption(tables["eol"], study))
    yield "one data set", latex(tables["eol"], table_caption(tables["eol"], study))
    lost = make_benchmark_records(
        study.only("pt"), lambda *place: None if place[1].name == "fixed/none/BR" else as_printed(*place)
    )
    empty = benchmark_tables(lost[:-1], study.only("pt"), "rmse").table.assign(dataset="breast_cancer")
    yield "empty cells", latex(empty, table_caption(empty, study))
    tuned = FinetuneStudy(cards=tuple(FakeCard(name) for name in ("hfc", "esr", "eol", "bfp")))
    metrics = {name: METRIC_OF[name] for name in tuned.datasets}
    arms = finetune_tables(make_finetune_records(tuned, gaining()), tuned, metrics, metrics)
    yield "fine-tuning", typeset_finetune.latex(arms.table, captions_finetune.table_caption(arms, tuned))


def main(argv: Sequence[str]) -> int:
    """Compile what is named, else the samples; returns the exit code."""
    if shutil.which("pdflatex") is None:
        print("pdflatex must be installed for this check, got none (Debian: texlive-latex-recommended)")
        return 2
    named = [(folder, (Path(folder) / "table.tex").read_text(encoding="utf-8")) for folder in argv]
    failed = False
    for name, fragment in named or samples():
        found = problems(fragment)
        failed |= bool(found)
        print(f"{name}: {'; '.join(found) or 'compiles'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
