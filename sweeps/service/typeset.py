"""Tables for reading: Markdown, and LaTeX with the booktabs package.

A *sheet* is a table as it is printed, whatever the format.  Each kind of study lays out its own, in a module called
``typeset_*``.  Scores are printed times 100, errors in target units, as the paper does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from adaptbin.metrics import Metric

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
    """``†2`` where two replicas diverged."""
    marks: str = ""
    """Marks of tests."""


@dataclass(frozen=True)
class Sheet:
    """The table as it is printed, whatever the format."""

    names: tuple[str, ...]
    """Heads of the columns that name a row."""
    heads: tuple[tuple[str, str], ...]
    """Per column of numbers its name, and below it the metric and whether it should go up or down."""
    rows: tuple[tuple[str, ...], ...]
    """Names of every row; where the first of them changes there is a rule."""
    cells: tuple[tuple[Cell, ...], ...]
    """Per row, one per column of numbers."""


def head_of(dataset: str, metric: Metric) -> tuple[str, str]:
    """Head of a data set's column."""
    return dataset, f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"


def score_texts(metric: Metric, mean: float, sd: float) -> tuple[str, str]:
    """Mean and sd as printed; an empty sd where there is none."""
    scale = 1.0 if metric.in_target_units else 100.0
    return f"{scale * mean:.2f}", "" if math.isnan(sd) else f"{scale * sd:.2f}"


def markdown_sheet(sheet: Sheet) -> list[str]:
    """Lines of the table in Markdown."""
    heads = [f"{name}<br>{below}" for name, below in sheet.heads]
    return markdown_table(
        sheet.names, heads, sheet.rows, [[_markdown_cell(cell) for cell in row] for row in sheet.cells]
    )


def markdown_table(
    names: Sequence[str], heads: Sequence[str], rows: Sequence[Sequence[str]], cells: Sequence[Sequence[str]]
) -> list[str]:
    """Lines of a table in Markdown: columns that name a row to the left, others to the right."""
    lines = [[*names, *heads], ["---"] * len(names) + ["---:"] * len(heads)]
    lines += [[*words, *row] for words, row in zip(rows, cells, strict=True)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _markdown_cell(cell: Cell) -> str:
    mean = {"best": f"**{cell.mean}**", "second": f"<u>{cell.mean}</u>", "": cell.mean}[cell.place]
    # A star in a mark is no emphasis.
    marks = cell.marks.replace("*", r"\*")
    return " ".join(filter(None, [mean, f"± {cell.sd}" if cell.sd else "", marks, cell.count]))


def latex_sheet(sheet: Sheet, caption: str) -> str:
    """The table as a fragment for a document that uses booktabs; how to compile it alone is told in its first lines.

    ``caption``: plain text.
    """
    names = r"@{\hspace{5pt}}".join("l" * len(sheet.names))
    lines = [
        *(f"% {line}" for line in ["To compile it alone:", *LATEX_WRAPPER.splitlines()]),
        r"\begin{table}[ht]",
        r"\centering",
        f"\\caption{{{_escaped(caption)}}}",
        r"\vspace{4pt}",
        r"\scriptsize",
        r"\setlength{\tabcolsep}{1.5pt}",
        rf"\begin{{tabular}}{{@{{}}{names}{'r' * len(sheet.heads)}@{{}}}}",
        r"\toprule",
        _latex_row([*(name.capitalize() for name in sheet.names), *(_escaped(name) for name, _ in sheet.heads)]),
        _latex_row([*("" for _ in sheet.names), *(_escaped(text) for _, text in sheet.heads)]),
        r"\midrule",
    ]
    for number, (words, cells) in enumerate(zip(sheet.rows, sheet.cells, strict=True)):
        if number and words[0] != sheet.rows[number - 1][0]:
            lines.append(r"\midrule")
        lines.append(_latex_row([*map(_escaped, words), *(_latex_cell(cell) for cell in cells)]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return f"{' & '.join(cells)} \\\\"


def _latex_cell(cell: Cell) -> str:
    mean = _escaped(cell.mean)
    mean = {"best": f"\\textbf{{{mean}}}", "second": f"\\underline{{{mean}}}", "": mean}[cell.place]
    spread = f"$_{{\\pm {cell.sd}}}$" if cell.sd else ""
    marks = f"\\textsuperscript{{{_escaped(cell.marks)}}}" if cell.marks else ""
    return f"{mean}{spread}{marks}{_escaped(cell.count)}"


_ESCAPES = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "†": r"$\dagger$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$", "×": r"$\times$"},
    **{"≤": r"$\le$", "≡": r"$\equiv$", "≈": r"$\approx$"},
}


def _escaped(text: str) -> str:
    """Plain text as LaTeX reads it."""
    return "".join(_ESCAPES.get(character, character) for character in text)
