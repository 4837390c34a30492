"""The fine-tuning table for reading: Markdown, and LaTeX with the booktabs package.  Cells repeat ``table.csv``.

Rows are methods by encoder, columns data sets (paper: Table 4).  Behind a score stand the marks of its contrasts: S
with what is not pretrained, B with BinRecon.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.methods_finetune import AGAINST, ENCODER_TITLES, PRETRAINED, FinetuneMethod
from sweeps.service.tables import rows_of
from sweeps.service.tables_finetune import MARKS
from sweeps.service.typeset import (
    DIVERGED,
    MISSING,
    Cell,
    Sheet,
    head_of,
    latex_sheet,
    markdown_sheet,
    markdown_table,
    score_texts,
)

LETTERS: dict[FinetuneMethod, str] = {"supervised": "S", "BR": "B"}
"""What stands before a mark: what the arm is compared with."""

NAMES = ("encoder", "method")


def sheet_of(table: pd.DataFrame) -> Sheet:
    """Lay out the table of arms."""
    datasets = list(table["dataset"].unique())
    heads, columns = [], []
    for dataset in datasets:
        of_dataset = rows_of(table, dataset)
        heads.append(head_of(dataset, get_metric(of_dataset["metric"].iloc[0])))
        columns.append([_cell(row) for row in of_dataset.to_dict("records")])
    first = rows_of(table, datasets[0]).to_dict("records")
    rows = tuple((ENCODER_TITLES[row["encoder"]], row["method"]) for row in first)
    return Sheet(NAMES, tuple(heads), rows, tuple(zip(*columns, strict=True)))


def marks_text(row: dict[Any, Any]) -> str:
    """``S** B*``; nothing where no contrast has a mark."""
    return " ".join(f"{LETTERS[other]}{row[MARKS[other]]}" for other in AGAINST if row[MARKS[other]])


def _cell(row: dict[Any, Any]) -> Cell:
    if row["n"] == 0:
        return Cell(DIVERGED if row["n_diverged"] else MISSING)
    mean, sd = score_texts(get_metric(row["metric"]), row["mean"], row["sd"])
    count = f"†{row['n_diverged']}" if row["n_diverged"] else ""
    return Cell(mean, sd, "best" if row["is_best"] else "", count, marks_text(row))


def markdown(table: pd.DataFrame, caption: str) -> str:
    """The table below its caption, and how each pretext was trained, in Markdown."""
    datasets = list(table["dataset"].unique())
    settings = table.drop_duplicates(["dataset", "method"]).set_index(["method", "dataset"])["setting"]
    cells = [[settings[method, dataset] for dataset in datasets] for method in PRETRAINED]
    how = markdown_table(["method"], datasets, [[method] for method in PRETRAINED], cells)
    return "\n".join([caption, "", *markdown_sheet(sheet_of(table)), "", "Pretrained with:", "", *how]) + "\n"


def latex(table: pd.DataFrame, caption: str) -> str:
    """The table as a fragment; see :func:`sweeps.service.typeset.latex_sheet`."""
    return latex_sheet(sheet_of(table), caption)
