"""Heat maps of scores over a grid: one colour scale, the score in every cell, frames around some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.metrics import Metric
from sweeps.service.point_fields import Value, value_text

CELL_WIDTH, CELL_HEIGHT = 0.72, 0.5
"""Inches."""

_EMPTY = "#F0F0F0"

_FRAMES: dict[str, dict[str, Any]] = {
    "chosen": {"edgecolor": "#D55E00", "linewidth": 1.8, "zorder": 5},
    "paper": {"edgecolor": "#000000", "linewidth": 1.2, "linestyle": (0, (2, 1.5)), "zorder": 6},
    "is_default": {"edgecolor": "#000000", "linewidth": 1.2, "zorder": 5},
}
"""Column that marks a cell -> its frame."""


@dataclass(frozen=True)
class Side:
    """One side of a map."""

    column: str
    """Column of the table that says where a cell is."""
    values: Sequence[Value]


@dataclass(frozen=True)
class Shown:
    """What is printed in a cell and coloured by."""

    column: str
    """Column of the table."""
    form: str
    """Format of the number."""


VALIDATION = Shown("val_mean", ".4f")


def colour_scale(points: pd.DataFrame, metric: Metric, column: str = "val_mean") -> ScalarMappable:
    """One colour scale for all cells, from the worst score to the best; brighter is better."""
    scores = points[column].dropna()
    low, high = (scores.min(), scores.max()) if len(scores) else (0.0, 1.0)
    room = 0.0 if high > low else max(abs(low) * 0.01, 1e-3)
    colours = mpl.colormaps["cividis" if metric.higher_is_better else "cividis_r"].with_extremes(bad=_EMPTY)
    return ScalarMappable(Normalize(low - room, high + room), colours)


def difference_colours(differences: pd.Series) -> ScalarMappable:
    """One colour scale for all differences: white is none, blue is better and red worse."""
    most = float(differences.abs().max()) if differences.notna().any() else 0.0
    colours = mpl.colormaps["RdBu"].with_extremes(bad=_EMPTY)
    return ScalarMappable(Normalize(-most or -1e-3, most or 1e-3), colours)


def draw_map(
    axes: Axes,
    points: pd.DataFrame,
    across: Side,
    down: Side,
    scale: ScalarMappable,
    *,
    prefix: str,
    show_test: bool = False,
    shown: Shown = VALIDATION,
) -> None:
    """Draw the cells of ``points``, a row each; places without a row stay empty.

    A cell's text has the id ``value-<name>`` and is what is ``shown``, or "–" where no seed is finished; its name is
    ``prefix``, then its values across and down.  Below it stand, with the ids ``mark-...``, ``test-...`` and
    ``count-...``, its `mark` where it has one, the test score where there is one and ``show_test``, and how many seeds
    diverged or are missing.  Frames have the ids ``chosen-...``, ``paper-...`` and ``is_default-...``.
    """
    columns, rows = list(across.values), list(down.values)
    cells = points.to_dict("records")
    places = [(columns.index(cell[across.column]), rows.index(cell[down.column])) for cell in cells]
    scores = np.full((len(rows), len(columns)), np.nan)
    for cell, (x, y) in zip(cells, places, strict=True):
        scores[y, x] = cell[shown.column]
    low, high = scale.get_clim()
    edges = [np.arange(count + 1) - 0.5 for count in (len(columns), len(rows))]
    axes.pcolormesh(*edges, np.ma.masked_invalid(scores), cmap=scale.cmap, vmin=low, vmax=high, ec="white", lw=0.8)
    axes.invert_yaxis()
    for cell, place in zip(cells, places, strict=True):
        name = f"{prefix}{value_text(cell[across.column])}-{value_text(cell[down.column])}"
        _draw_cell(axes, cell, name, place, scale, shown, show_test=show_test)
    axes.set_xticks(range(len(columns)), [value_text(value) for value in columns])
    axes.set_yticks(range(len(rows)), [value_text(value) for value in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _draw_cell(
    axes: Axes,
    cell: Mapping[Any, Any],
    name: str,
    place: tuple[int, int],
    scale: ScalarMappable,
    shown: Shown,
    *,
    show_test: bool,
) -> None:
    """The cell's score, below it what else is known of it, and a frame where it is marked."""
    score = cell[shown.column]
    is_known = not math.isnan(score)
    ink = _ink(np.asarray(scale.to_rgba(score))) if is_known else "#303030"
    below = {}
    if cell.get("mark"):
        below["mark"] = cell["mark"]
    if show_test and not math.isnan(cell["test_mean"]):
        below["test"] = f"({cell['test_mean']:.4f})"
    if count := _count_text(cell):
        below["count"] = count
    lines = [("value", format(score, shown.form) if is_known else "–"), *below.items()]
    for number, (what, text) in enumerate(lines):
        x, y = place[0], place[1] + 0.27 * (number - (len(lines) - 1) / 2)
        weight = "bold" if (cell.get("chosen") or cell.get("is_default")) and what == "value" else "normal"
        size = 7.0 if what == "value" else 5.8
        axes.text(x, y, text, ha="center", va="center", color=ink, size=size, weight=weight, gid=f"{what}-{name}")
    for column, style in _FRAMES.items():
        if cell.get(column):
            corner = (place[0] - 0.5, place[1] - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, gid=f"{column}-{name}", fill=False, clip_on=False, **style))


def _count_text(cell: Mapping[Any, Any]) -> str:
    """``†2`` for diverged seeds, ``8/10`` where some have no result."""
    there = cell["n"] + cell["n_diverged"]
    diverged = f"†{cell['n_diverged']}" if cell["n_diverged"] else ""
    missing = f"{there}/{there + cell['n_missing']}" if cell["n_missing"] else ""
    return " ".join(filter(None, [diverged, missing]))


def _ink(colour: npt.NDArray[np.float64]) -> str:
    """Black or white, whichever can be read on the colour [4]."""
    luminance = float(colour[:3] @ np.array([0.2126, 0.7152, 0.0722]))
    return "#000000" if luminance > 0.45 else "#FFFFFF"


def draw_bar(
    figure: Figure, place: tuple[float, float, float, float], scale: ScalarMappable, label: str = "validation score"
) -> None:
    """The colour scale, in axes at left, bottom, width and height as fractions of the figure."""
    axes = figure.add_axes(place)
    bar = figure.colorbar(scale, cax=axes)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    bar.formatter = ScalarFormatter(useOffset=False)
    bar.update_ticks()
    bar.set_label(label, size=6.5)
