"""The masking figure: one heat map per kind of masking, on one colour scale, with the choice framed.

Rows are T_init, columns p_m; each cell prints the mean validation score that it is coloured by.  Layout is in inches.
"""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.config import MaskingKind
from adaptbin.metrics import Metric, get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_masking import choice_text, mark_key
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.grid import MASKINGS, MaskingStudy
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.tables_masking import MaskingTables

_LEFT, _GAP, _CELL_WIDTH, _CELL_HEIGHT = 0.55, 0.16, 0.72, 0.5
_ABOVE, _BELOW_AXES = 0.42, 0.36
_BAR_GAP, _BAR, _RIGHT = 0.16, 0.12, 0.72

_FRAME = "#D55E00"
_EMPTY = "#F0F0F0"


def masking_figure(tables: MaskingTables, study: MaskingStudy, *, show_test: bool = False) -> Figure:
    """Draw the figure of a study of one data set from its tables.

    A cell's text has the id ``value-<masking>-<p_m>-<T_init>`` and is the table's `val_mean`, or "–" where no seed is
    finished; below it stand, with the ids ``test-...`` and ``count-...``, the test score where ``show_test``, and how
    many seeds diverged or are missing.  The frame of the choice has the id ``chosen-...``.
    """
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    widths = [_CELL_WIDTH * len(study.probabilities_of(masking)) for masking in MASKINGS]
    across = sum(widths) + _GAP * (len(widths) - 1)
    width, heights = _LEFT + across + _BAR_GAP + _BAR + _RIGHT, _CELL_HEIGHT * len(study.t_inits)
    key = f"{choice_text(tables, study)}{mark_key(tables)}"
    footer = wrap_footer([key, *(f"{note}." for note in protocol_notes(study))], width - 0.2)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW_AXES
    height = bottom + heights + _ABOVE
    scale = _scale(points, metric)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        left = _LEFT
        for masking, of_masking in zip(MASKINGS, widths, strict=True):
            axes = figure.add_axes((left / width, bottom / height, of_masking / width, heights / height))
            _draw_map(axes, points, study, masking, scale, show_test=show_test)
            axes.tick_params(labelleft=masking == MASKINGS[0])
            left += of_masking + _GAP
        figure.axes[0].set_ylabel(r"$T_{\mathrm{init}}$", rotation=0, ha="right", va="center")
        place = ((left - _GAP + _BAR_GAP) / width, bottom / height, _BAR / width, heights / height)
        _draw_bar(figure, place, scale)
        title = f"{dataset}: mean validation {axis_metric(metric)}"
        figure.text(_LEFT / width, 1 - 0.05 / height, title, size=8, weight="bold", va="top")
        draw_footer(figure, footer)
    return figure


def _scale(points: pd.DataFrame, metric: Metric) -> ScalarMappable:
    """One colour scale for all cells, from the worst score to the best; brighter is better."""
    scores = points["val_mean"].dropna()
    low, high = (scores.min(), scores.max()) if len(scores) else (0.0, 1.0)
    room = 0.0 if high > low else max(abs(low) * 0.01, 1e-3)
    colours = mpl.colormaps["cividis" if metric.higher_is_better else "cividis_r"].with_extremes(bad=_EMPTY)
    return ScalarMappable(Normalize(low - room, high + room), colours)


def _draw_map(
    axes: Axes,
    points: pd.DataFrame,
    study: MaskingStudy,
    masking: MaskingKind,
    scale: ScalarMappable,
    *,
    show_test: bool,
) -> None:
    columns, rows = study.probabilities_of(masking), study.t_inits
    cells = points[points["masking"] == masking].to_dict("records")
    scores = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        scores[rows.index(cell["t_init"]), columns.index(cell["mask_prob"])] = cell["val_mean"]
    low, high = scale.get_clim()
    edges = [np.arange(count + 1) - 0.5 for count in (len(columns), len(rows))]
    axes.pcolormesh(*edges, np.ma.masked_invalid(scores), cmap=scale.cmap, vmin=low, vmax=high, ec="white", lw=0.8)
    axes.invert_yaxis()
    for cell in cells:
        _draw_cell(
            axes, cell, (columns.index(cell["mask_prob"]), rows.index(cell["t_init"])), scale, show_test=show_test
        )
    axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axes.set_yticks(range(len(rows)), [str(value) for value in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(masking, size=7.5, pad=3)
    axes.set_xlabel("$p_m$", labelpad=1.5)


def _draw_cell(
    axes: Axes, cell: dict[Any, Any], place: tuple[int, int], scale: ScalarMappable, *, show_test: bool
) -> None:
    """The cell's score, below it what else is known of it, and around it a frame where it is chosen."""
    name = f"{cell['masking']}-{cell['mask_prob']:g}-{cell['t_init']}"
    is_known = not math.isnan(cell["val_mean"])
    ink = _ink(np.asarray(scale.to_rgba(cell["val_mean"]))) if is_known else "#303030"
    below = {}
    if show_test and not math.isnan(cell["test_mean"]):
        below["test"] = f"({cell['test_mean']:.4f})"
    if count := _count_text(cell):
        below["count"] = count
    lines = [("value", f"{cell['val_mean']:.4f}" if is_known else "–"), *below.items()]
    for number, (what, text) in enumerate(lines):
        x, y = place[0], place[1] + 0.27 * (number - (len(lines) - 1) / 2)
        weight = "bold" if cell["chosen"] and what == "value" else "normal"
        size = 7.0 if what == "value" else 5.8
        axes.text(x, y, text, ha="center", va="center", color=ink, size=size, weight=weight, gid=f"{what}-{name}")
    if cell["chosen"]:
        corner = (place[0] - 0.5, place[1] - 0.5)
        frame: dict[str, Any] = {"fill": False, "edgecolor": _FRAME, "linewidth": 1.8, "clip_on": False, "zorder": 5}
        axes.add_patch(Rectangle(corner, 1, 1, gid=f"chosen-{name}", **frame))


def _count_text(cell: dict[Any, Any]) -> str:
    """``†2`` for diverged seeds, ``8/10`` where some have no result."""
    there = cell["n"] + cell["n_diverged"]
    diverged = f"†{cell['n_diverged']}" if cell["n_diverged"] else ""
    missing = f"{there}/{there + cell['n_missing']}" if cell["n_missing"] else ""
    return " ".join(filter(None, [diverged, missing]))


def _ink(colour: npt.NDArray[np.float64]) -> str:
    """Black or white, whichever can be read on the colour [4]."""
    luminance = float(colour[:3] @ np.array([0.2126, 0.7152, 0.0722]))
    return "#000000" if luminance > 0.45 else "#FFFFFF"


def _draw_bar(figure: Figure, place: tuple[float, float, float, float], scale: ScalarMappable) -> None:
    axes = figure.add_axes(place)
    bar = figure.colorbar(scale, cax=axes)
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    bar.formatter = ScalarFormatter(useOffset=False)
    bar.update_ticks()
    bar.set_label("validation score", size=6.5)
