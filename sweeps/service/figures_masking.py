"""The masking figure: one heat map per kind of masking, on one colour scale, with the choice framed.

Rows are T_init, columns p_m; each cell prints the mean validation score that it is coloured by.  Layout is in inches.
"""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_choosing import mark_key
from sweeps.service.captions_masking import choice_text
from sweeps.service.figures_heat import CELL_HEIGHT, CELL_WIDTH, Side, colour_scale, draw_bar, draw_map
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.grid import MASKINGS, MaskingStudy, mask_probs_of
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.tables_masking import MaskingTables

_LEFT, _GAP = 0.55, 0.16
_ABOVE, _BELOW_AXES = 0.42, 0.36
_BAR_GAP, _BAR, _RIGHT = 0.16, 0.12, 0.72


def masking_figure(tables: MaskingTables, study: MaskingStudy, *, show_test: bool = False) -> Figure:
    """Draw the figure of a study of one data set from its tables.

    Cells are called ``<masking>-<p_m>-<T_init>``; ids are those of :func:`sweeps.service.figures_heat.draw_map`.
    """
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    widths = [CELL_WIDTH * len(mask_probs_of(masking, study.mask_probs)) for masking in MASKINGS]
    across = sum(widths) + _GAP * (len(widths) - 1)
    width, heights = _LEFT + across + _BAR_GAP + _BAR + _RIGHT, CELL_HEIGHT * len(study.t_inits)
    key = f"{choice_text(tables, study)}{mark_key(points)}"
    footer = wrap_footer([key, *(f"{note}." for note in protocol_notes(study))], width - 0.2)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW_AXES
    height = bottom + heights + _ABOVE
    scale = colour_scale(points, metric)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        left = _LEFT
        for masking, of_masking in zip(MASKINGS, widths, strict=True):
            axes = figure.add_axes((left / width, bottom / height, of_masking / width, heights / height))
            sides = Side("mask_prob", mask_probs_of(masking, study.mask_probs)), Side("t_init", study.t_inits)
            of_this = points[points["masking"] == masking]
            draw_map(axes, of_this, *sides, scale, prefix=f"{masking}-", show_test=show_test)
            axes.set_title(masking, size=7.5, pad=3)
            axes.set_xlabel("$p_m$", labelpad=1.5)
            axes.tick_params(labelleft=masking == MASKINGS[0])
            left += of_masking + _GAP
        figure.axes[0].set_ylabel(r"$T_{\mathrm{init}}$", rotation=0, ha="right", va="center")
        place = ((left - _GAP + _BAR_GAP) / width, bottom / height, _BAR / width, heights / height)
        draw_bar(figure, place, scale)
        title = f"{dataset}: mean validation {axis_metric(metric)}"
        figure.text(_LEFT / width, 1 - 0.05 / height, title, size=8, weight="bold", va="top")
        draw_footer(figure, footer)
    return figure
