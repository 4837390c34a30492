"""The architecture figure: a heat map of validation scores, rows depths and columns widths, with the choice and the
paper's framed.  Layout is in inches."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adaptbin.metrics import get_metric
from sweeps.service.architectures import ArchitectureStudy
from sweeps.service.captions import axis_metric
from sweeps.service.captions_architecture import choice_text, frame_key
from sweeps.service.figures_heat import CELL_HEIGHT, CELL_WIDTH, Side, colour_scale, draw_bar, draw_map
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.tables_architecture import ArchitectureTables

_LEFT, _ABOVE, _BELOW_AXES = 0.5, 0.28, 0.36
_BAR_GAP, _BAR, _RIGHT = 0.16, 0.12, 0.72
_LEAST_WIDTH, _LEAST_HEIGHT = 4.2, 1.0
"""Of the figure and of the map, so that few cells leave room for the text around them."""


def architecture_figure(tables: ArchitectureTables, study: ArchitectureStudy) -> Figure:
    """Draw the figure of a study of one data set from its tables.

    Cells are called ``<width>-<depth>``; ids are those of :func:`sweeps.service.figures_heat.draw_map`.
    """
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    across, down = CELL_WIDTH * len(study.widths), max(_LEAST_HEIGHT, CELL_HEIGHT * len(study.depths))
    width = max(_LEAST_WIDTH, _LEFT + across + _BAR_GAP + _BAR + _RIGHT)
    key = f"{choice_text(tables, study)} {frame_key(tables)}"
    footer = wrap_footer([key, *(f"{note}." for note in protocol_notes(study))], width - 0.2)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW_AXES
    height = bottom + down + _ABOVE
    scale = colour_scale(points, metric)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((_LEFT / width, bottom / height, across / width, down / height))
        sides = Side("width", study.widths), Side("depth", study.depths)
        draw_map(axes, points, *sides, scale, prefix="", show_test=True)
        axes.set_xlabel("width", labelpad=1.5)
        axes.set_ylabel("depth")
        left = _LEFT + across + _BAR_GAP
        draw_bar(figure, (left / width, bottom / height, _BAR / width, down / height), scale)
        title = f"{dataset}: mean validation {axis_metric(metric)}, from scratch"
        figure.text(_LEFT / width, 1 - 0.05 / height, title, size=8, weight="bold", va="top")
        draw_footer(figure, footer)
    return figure
