"""The variance figure: scores under every kind of seeds, and the sd that each source adds.  Layout is in inches."""

from __future__ import annotations

import math
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_variance import LET_GO
from sweeps.service.figures_style import SETTINGS, STYLES, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.tables import finished_scores, number_text
from sweeps.service.tables_variance import COMPONENTS, VarianceTables, share_text
from sweeps.service.variance import VarianceStudy

_WIDTH, _LEFT, _GAP, _RIGHT = 6.4, 1.1, 0.4, 0.85
_ROW, _ABOVE, _BELOW_AXES = 0.36, 0.28, 0.36
_SCORES = 0.55
"""Part of the axes' width that scores take; components take the rest."""


def variance_figure(tables: VarianceTables, study: VarianceStudy) -> Figure:
    """Draw the figure of a study of one data set from its tables.

    A row per component.  To its right stand, with the ids ``sd-<component>`` and ``share-<component>``, the table's
    `sd` and `share`, or "–" where it could not be estimated; counts of diverged replicas are ``diverged-<component>``.
    Raises DataError when there is no replica at all.
    """
    if tables.replicas.empty:
        raise DataError("a figure needs the result of at least one replica, got none")
    metric = get_metric(tables.points["metric"].iloc[0])
    probes = study.budget.probes
    of = f"mean of {probes} linear probes" if probes > 1 else "one linear probe"
    key = f"Each score: {of}; lines: means over seeds. Sd that each source adds to a score, with 95 % intervals."
    footer = wrap_footer([key, *(f"{note}." for note in protocol_notes(study))], _WIDTH)
    rows = _ROW * len(COMPONENTS)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW_AXES
    height = bottom + rows + _ABOVE
    across = _WIDTH - _LEFT - _GAP - _RIGHT
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(_WIDTH, height))
        FigureCanvasAgg(figure)
        scores, parts = (
            figure.add_axes((left / _WIDTH, bottom / height, width / _WIDTH, rows / height))
            for left, width in (
                (_LEFT, _SCORES * across),
                (_LEFT + _SCORES * across + _GAP, (1 - _SCORES) * across),
            )
        )
        _draw_scores(scores, tables)
        scores.set_xlabel(f"Test {axis_metric(metric)}", labelpad=1.5)
        _draw_components(parts, tables)
        parts.set_xlabel(f"Sd of test {metric.label}", labelpad=1.5)
        title = f"{study.datasets[0]}: where the variance is"
        figure.text(0.06 / _WIDTH, 1 - 0.06 / height, title, size=8, weight="bold", va="top")
        draw_footer(figure, footer)
    return figure


def _frame(axes: Axes) -> None:
    axes.set_ylim(len(COMPONENTS) - 0.5, -0.5)
    axes.set_yticks(range(len(COMPONENTS)))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    for row in range(len(COMPONENTS)):
        axes.axhline(row, color="#E8E8E8", lw=0.6, zorder=0)


def _draw_scores(axes: Axes, tables: VarianceTables) -> None:
    """Scores of single seeds, and their mean, of every kind of seeds."""
    _frame(axes)
    axes.set_yticklabels([LET_GO[name] for name in COMPONENTS])
    for row, (name, kind) in enumerate(COMPONENTS.items()):
        group = tables.replicas[tables.replicas["seeds_vary"] == kind]
        scores, colour = finished_scores(group), STYLES[row][0]
        heights = row + (np.linspace(-0.18, 0.18, len(scores)) if len(scores) > 1 else np.zeros(len(scores)))
        axes.plot(scores, heights, ls="", marker="o", ms=2.6, mfc=colour, mew=0, alpha=0.55, zorder=2)
        if len(scores):
            axes.vlines(float(scores.mean()), row - 0.3, row + 0.3, color=colour, lw=1.2, zorder=3)
        if diverged := len(group) - len(scores):
            place: Any = ((1, row), (3, 0), ("axes fraction", "data"), "offset points")
            style: dict[str, Any] = {"ha": "left", "va": "center", "annotation_clip": False, "size": 5.5}
            axes.annotate(f"†{diverged}", *place, gid=f"diverged-{name}", **style)


def _draw_components(axes: Axes, tables: VarianceTables) -> None:
    """Sd and interval of every component; in print its sd and its share."""
    _frame(axes)
    axes.set_yticklabels([])
    style: dict[str, Any] = {"va": "center", "annotation_clip": False, "size": 6.0}
    where: Any = ("axes fraction", "data")
    components = {row["component"]: row for row in tables.components.to_dict("records")}
    for row, name in enumerate(COMPONENTS):
        part, colour = components[name], STYLES[row][0]
        known = not math.isnan(part["variance"])
        if known:
            axes.hlines(row, part["sd_low"], part["sd_high"], color=colour, lw=1.0, zorder=2)
            axes.plot(
                [part["sd"]],
                [row],
                ls="",
                marker="o",
                ms=4.5,
                mfc=colour,
                mec="white",
                mew=0.4,
                zorder=3,
                clip_on=False,
            )
        cells = {"sd": number_text(part["sd"], ".4f"), "share": share_text(part["share"])}
        for (what, text), (right, side) in zip(cells.items(), ((34, "right"), (58, "right")), strict=True):
            axes.annotate(
                text or "–", (1, row), (right, 0), where, "offset points", ha=side, gid=f"{what}-{name}", **style
            )
        axes.annotate(name, (0, row), (3, 7), where, "offset points", ha="left", color="#505050", **style)
    for head, right in (("sd", 34), ("share", 58)):
        axes.annotate(
            head, (1, 1), (right, 4), "axes fraction", "offset points", ha="right", **{**style, "va": "bottom"}
        )
    axes.set_xlim(left=0.0)
