"""The benchmark's table for reading: Markdown, and LaTeX with the booktabs package.  Cells repeat ``table.csv``.

Scores are printed times 100, errors in target units, as the paper does (Table 1).  On each data set the best mean is
bold and the second best underlined, ties alike; both are read from the ranks, so no column with a missing cell has any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.methods import METHOD, Method, settings_of
from sweeps.service.ranks import ranks_frame
from sweeps.service.tables import rows_of

Place = Literal["best", "second", ""]

MISSING, DIVERGED = "–", "†"
"""What stands in a cell without a score."""

LATEX_WRAPPER = r"""\documentclass{article}
\usepackage[margin=0.9in]{geometry}
\usepackage{booktabs}
\begin{document}
\input{table.tex}
\end{document}
"""
"""The least document that ``table.tex`` compiles in, from its own folder."""


@dataclass(frozen=True)
class Cell:
    """One number of the table, as printed."""

    mean: str
    sd: str = ""
    """Empty where there is none."""
    place: Place = ""
    count: str = ""
    """``†2`` where two replicas of the method's candidates diverged."""


@dataclass(frozen=True)
class Sheet:
    """The table as it is printed, whatever the format."""

    heads: tuple[tuple[str, str], ...]
    """Per column of numbers its name, and below it the metric and whether it should go up or down."""
    methods: tuple[Method, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """Per method, one per column."""


def sheet_of(table: pd.DataFrame) -> Sheet:
    """Lay out the table of methods; several data sets get a column of average ranks, if no cell is missing."""
    datasets = list(table["dataset"].unique())
    methods = tuple(Method.of_row(row) for row in rows_of(table, datasets[0]).to_dict("records"))
    heads, columns = [], []
    for dataset in datasets:
        of_dataset = rows_of(table, dataset)
        metric = get_metric(of_dataset["metric"].iloc[0])
        heads.append((dataset, f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"))
        scale = 1.0 if metric.in_target_units else 100.0
        places = _places(of_dataset["rank"])
        columns.append(
            [_cell(row, scale, place) for row, place in zip(of_dataset.to_dict("records"), places, strict=True)]
        )
    ranks = ranks_frame(table) if len(datasets) > 1 else None
    if ranks is not None:
        heads.append(("rank", "average ↓"))
        places = _places(ranks["average"])
        columns.append([Cell(f"{rank:.2f}", "", place) for rank, place in zip(ranks["average"], places, strict=True)])
    return Sheet(tuple(heads), methods, tuple(zip(*columns, strict=True)))


def _places(ranks: pd.Series[float]) -> list[Place]:
    """Which ranks are the lowest and the second lowest; none are where there are no ranks."""
    lowest = sorted(set(ranks.dropna()))[:2]
    names: dict[float, Place] = dict(zip(lowest, ("best", "second"), strict=False))
    return [names.get(rank, "") for rank in ranks]


def _cell(row: dict[Any, Any], scale: float, place: Place) -> Cell:
    count = f"†{row['n_diverged']}" if row["n_diverged"] and row["status"] != "diverged" else ""
    if row["status"] != "chosen":
        return Cell(DIVERGED if row["status"] == "diverged" else MISSING, count=count)
    sd = "" if math.isnan(row["sd"]) else f"{scale * row['sd']:.2f}"
    return Cell(f"{scale * row['mean']:.2f}", sd, place, count)


def markdown(table: pd.DataFrame, caption: str) -> str:
    """The table below its caption, and what was chosen for each cell, in Markdown."""
    sheet = sheet_of(table)
    scores = _markdown_table(
        [f"{name}<br>{below}" for name, below in sheet.heads],
        sheet.methods,
        [[_markdown_cell(cell) for cell in row] for row in sheet.cells],
    )
    datasets = list(table["dataset"].unique())
    columns = [[_choice_text(row) for row in rows_of(table, name).to_dict("records")] for name in datasets]
    choices = _markdown_table(datasets, sheet.methods, list(zip(*columns, strict=True)))
    return "\n".join([caption, "", *scores, "", "Chosen on validation:", "", *choices]) + "\n"


def _markdown_table(heads: list[str], methods: tuple[Method, ...], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [[*METHOD, *heads], ["---"] * len(METHOD) + ["---:"] * len(heads)]
    lines += [[*method.words, *row] for method, row in zip(methods, cells, strict=True)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _markdown_cell(cell: Cell) -> str:
    mean = {"best": f"**{cell.mean}**", "second": f"<u>{cell.mean}</u>", "": cell.mean}[cell.place]
    return " ".join(filter(None, [mean, f"± {cell.sd}" if cell.sd else "", cell.count]))


def _choice_text(row: dict[Any, Any]) -> str:
    """``p_m 0.2, T 10``; what has nothing to choose is one candidate."""
    if row["status"] != "chosen":
        return DIVERGED if row["status"] == "diverged" else MISSING
    return ", ".join(settings_of(Method.of_row(row), row["mask_prob"], row["t_init"])) or "one candidate"


def latex(table: pd.DataFrame, caption: str) -> str:
    """The table as a fragment for a document that uses booktabs; how to compile it alone is told in its first lines.

    ``caption``: plain text.
    """
    sheet = sheet_of(table)
    numbers = "r" * len(sheet.heads)
    lines = [
        *(f"% {line}" for line in ["To compile it alone:", *LATEX_WRAPPER.splitlines()]),
        r"\begin{table}[ht]",
        r"\centering",
        f"\\caption{{{_escaped(caption)}}}",
        r"\vspace{4pt}",
        r"\scriptsize",
        r"\setlength{\tabcolsep}{1.5pt}",
        rf"\begin{{tabular}}{{@{{}}l@{{\hspace{{5pt}}}}l@{{\hspace{{5pt}}}}l{numbers}@{{}}}}",
        r"\toprule",
        _latex_row(["Binning", "Masking", "Objective", *(_escaped(name) for name, _ in sheet.heads)]),
        _latex_row(["", "", "", *(_escaped(text) for _, text in sheet.heads)]),
        r"\midrule",
    ]
    for number, (method, cells) in enumerate(zip(sheet.methods, sheet.cells, strict=True)):
        if number and method.binning != sheet.methods[number - 1].binning:
            lines.append(r"\midrule")
        lines.append(_latex_row([*method.words, *(_latex_cell(cell) for cell in cells)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_cell(cell: Cell) -> str:
    mean = _escaped(cell.mean)
    mean = {"best": f"\\textbf{{{mean}}}", "second": f"\\underline{{{mean}}}", "": mean}[cell.place]
    spread = f"$_{{\\pm {cell.sd}}}$" if cell.sd else ""
    return f"{mean}{spread}{_escaped(cell.count)}"


_ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "†": r"$\dagger$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$", "×": r"$\times$"},
    **{"≤": r"$\le$", "≡": r"$\equiv$"},
}


def _escaped(text: str) -> str:
    """Plain text as LaTeX reads it."""
    return "".join(_ESCAPES.get(character, character) for character in text)
