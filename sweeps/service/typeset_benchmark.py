"""The benchmark's table for reading: Markdown, and LaTeX with the booktabs package.  Cells repeat ``table.csv``.

On each data set the best mean is bold and the second best underlined, ties alike; both are read from the ranks, so no
column with a missing cell has any.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.methods import METHOD, Method, settings_of
from sweeps.service.ranks import ranks_frame
from sweeps.service.tables import rows_of
from sweeps.service.typeset import (
    DIVERGED,
    MISSING,
    Cell,
    Place,
    Sheet,
    head_of,
    latex_sheet,
    markdown_sheet,
    markdown_table,
    score_texts,
)


def sheet_of(table: pd.DataFrame) -> Sheet:
    """Lay out the table of methods; several data sets get a column of average ranks, if no cell is missing."""
    datasets = list(table["dataset"].unique())
    heads, columns = [], []
    for dataset in datasets:
        of_dataset = rows_of(table, dataset)
        heads.append(head_of(dataset, get_metric(of_dataset["metric"].iloc[0])))
        places = _places(of_dataset["rank"])
        columns.append([_cell(row, place) for row, place in zip(of_dataset.to_dict("records"), places, strict=True)])
    ranks = ranks_frame(table) if len(datasets) > 1 else None
    if ranks is not None:
        heads.append(("rank", "average ↓"))
        places = _places(ranks["average"])
        columns.append([Cell(f"{rank:.2f}", "", place) for rank, place in zip(ranks["average"], places, strict=True)])
    rows = tuple(Method.of_row(row).words for row in rows_of(table, datasets[0]).to_dict("records"))
    return Sheet(METHOD, tuple(heads), rows, tuple(zip(*columns, strict=True)))


def _places(ranks: pd.Series[float]) -> list[Place]:
    """Which ranks are the lowest and the second lowest; none are where there are no ranks."""
    lowest = sorted(set(ranks.dropna()))[:2]
    names: dict[float, Place] = dict(zip(lowest, ("best", "second"), strict=False))
    return [names.get(rank, "") for rank in ranks]


def _cell(row: dict[Any, Any], place: Place) -> Cell:
    count = f"†{row['n_diverged']}" if row["n_diverged"] and row["status"] != "diverged" else ""
    if row["status"] != "chosen":
        return Cell(DIVERGED if row["status"] == "diverged" else MISSING, count=count)
    return Cell(*score_texts(get_metric(row["metric"]), row["mean"], row["sd"]), place, count)


def markdown(table: pd.DataFrame, caption: str) -> str:
    """The table below its caption, and what was chosen for each cell, in Markdown."""
    sheet = sheet_of(table)
    datasets = list(table["dataset"].unique())
    columns = [[_choice_text(row) for row in rows_of(table, name).to_dict("records")] for name in datasets]
    choices = markdown_table(METHOD, datasets, sheet.rows, list(zip(*columns, strict=True)))
    return "\n".join([caption, "", *markdown_sheet(sheet), "", "Chosen on validation:", "", *choices]) + "\n"


def _choice_text(row: dict[Any, Any]) -> str:
    """``p_m 0.2, T 10``; what has nothing to choose is one candidate."""
    if row["status"] != "chosen":
        return DIVERGED if row["status"] == "diverged" else MISSING
    return ", ".join(settings_of(Method.of_row(row), row["mask_prob"], row["t_init"])) or "one candidate"


def latex(table: pd.DataFrame, caption: str) -> str:
    """The table as a fragment; see :func:`sweeps.service.typeset.latex_sheet`."""
    return latex_sheet(sheet_of(table), caption)
