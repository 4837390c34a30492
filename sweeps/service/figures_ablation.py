"""The ablation figure: a row per variant, its paired differences to full, marks from the significance table.

The paper's variants stand above the further ones.  With one data set each row also tells triggers, splits and bins.
Layout is in inches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.captions import DOTS_UP_TO, axis_metric, figure_notes, mark_key
from sweeps.service.captions_ablation import WORDS, axis_label
from sweeps.service.figures_style import SETTINGS, STYLES, darkened, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.rows_ablation import LINE, DrawnVariant, Rows, drawn_variants, margins_of, name_of
from sweeps.service.tables import number_text, rows_of
from sweeps.service.tables_ablation import AblationTables
from sweeps.service.variants import FULL, GROUPS, AblationStudy

_WIDTH, _LEFT, _RIGHT = 6.4, 1.0, 0.06
_MARK, _COUNT, _NUMBER = 0.45, 0.3, 0.5
"""Widths of the columns to the right of the axes: marks, diverged replicas, and each of triggers, splits and bins."""
_TITLE, _LEGEND_LINE, _BELOW_AXES = 0.26, 0.17, 0.34
_LEGEND_COLUMNS = 5
_NUMBERS = {"triggers": "triggers_mean", "splits": "splits_mean", "bins": "bins_mean"}
"""Head of a column of numbers -> column of the table of points."""


def ablation_figure(tables: AblationTables, study: AblationStudy) -> Figure:
    """Draw the figure of a study from its tables.  Data sets without any replica are left out.

    Every mark is a text with the id ``mark-<data set>-<variant>``, blanks as underscores, and exactly the table's
    `mark`; counts of diverged replicas are ``diverged-...``.  With one data set the numbers to the right are
    ``triggers-...``, ``splits-...`` and ``bins-...``.
    Raises DataError when there is no replica at all.
    """
    if not tables.datasets:
        raise DataError("a figure needs the result of at least one replica, got none")
    drawn, rows, margins = drawn_variants(tables), Rows.of(tables), margins_of(tables)
    with mpl.rc_context(SETTINGS):
        entries = _legend_entries(tables, study, drawn, margins)
        above = _TITLE + _LEGEND_LINE * math.ceil(len(entries) / _LEGEND_COLUMNS) + 0.04
        notes = (f"{note}." for note in figure_notes(study, tables.replicas))
        footer = wrap_footer([mark_key(tables.significance, WORDS), *notes], _WIDTH)
        height = above + rows.height + _BELOW_AXES + FOOTER_LINE * len(footer) + 0.08
        figure = Figure(figsize=(_WIDTH, height))
        FigureCanvasAgg(figure)
        beside = _MARK + _COUNT + _RIGHT + (_NUMBER * len(_NUMBERS) if len(rows.datasets) == 1 else 0.0)
        bottom, across = height - above - rows.height, _WIDTH - _LEFT - beside
        axes = figure.add_axes((_LEFT / _WIDTH, bottom / height, across / _WIDTH, rows.height / height))
        _draw_axes(axes, rows, margins)
        axes.set_xlabel(axis_label(tables), labelpad=1.5)
        with_dots = len(rows.datasets) <= DOTS_UP_TO
        _set_limits(axes, drawn, margins, with_dots)
        for variant in drawn:
            _draw_variant(axes, variant, rows, with_dots)
        if len(rows.datasets) == 1:
            _write_numbers(axes, tables, rows)
        figure.text(0.06 / _WIDTH, 1 - 0.06 / height, _title(tables), size=8, weight="bold", va="top")
        _draw_legend(figure, entries, 1 - _TITLE / height)
        draw_footer(figure, footer)
    return figure


def _draw_axes(axes: Axes, rows: Rows, margins: Sequence[float]) -> None:
    """Names of variants and groups, no difference, and the margin."""
    for shade, margin in zip(("#EDEDED", "#DCDCDC")[-len(margins) :], margins, strict=True):
        axes.axvspan(-margin, margin, color=shade, lw=0, zorder=0)
    axes.axvline(0.0, color="#808080", lw=0.6, zorder=1)
    axes.set_ylim(rows.height, 0.0)
    axes.set_yticks(list(rows.middles.values()), list(rows.middles))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    for group, top in rows.heads.items():
        axes.axhline(top + 0.03, color="#B0B0B0", lw=0.4, zorder=1)
        style: dict[str, Any] = {"size": 6.0, "style": "italic", "color": "#505050", "ha": "right", "va": "top"}
        axes.annotate(GROUPS[group], (0, top + 0.06), (-3, 0), ("axes fraction", "data"), "offset points", **style)


def _set_limits(axes: Axes, drawn: Sequence[DrawnVariant], margins: Sequence[float], with_dots: bool) -> None:
    """All that is drawn, and the margins."""
    ends = [sign * 1.1 * margin for margin in margins for sign in (-1, 1)]
    numbers = np.concatenate([*(variant.numbers(with_dots) for variant in drawn), ends])
    low, high = float(numbers.min()), float(numbers.max())
    axes.set_xlim(low - 0.04 * (high - low), high + 0.04 * (high - low))


def _draw_variant(axes: Axes, variant: DrawnVariant, rows: Rows, with_dots: bool) -> None:
    """Mean, interval and single seeds of one variant of one data set, and beside the axes its mark and count."""
    y = rows.place(variant)
    if y is None:
        return
    index, several = rows.datasets.index(variant.dataset), len(rows.datasets) > 1
    colour, marker = STYLES[index % len(STYLES)]
    if with_dots:
        spread = (0.25 if several else 0.4) * LINE if len(variant.dots) > 1 else 0.0
        heights = np.linspace(y - spread, y + spread, len(variant.dots))
        axes.plot(variant.dots, heights, ls="", marker="o", ms=1.8, mfc=colour, mew=0, alpha=0.35, zorder=2)
    if math.isfinite(variant.low):
        axes.hlines(y, variant.low, variant.high, color=colour, lw=1.0, zorder=4)
    if math.isfinite(variant.difference):
        axes.plot([variant.difference], [y], ls="", marker=marker, ms=4.0, mfc=colour, mec="white", mew=0.4, zorder=5)
    ink = darkened(colour) if several else "#000000"
    if variant.mark:
        _write(axes, variant.mark, _MARK / 2, y, size=7.0, color=ink, gid=f"mark-{variant.name}")
    if variant.diverged:
        count = f"†{variant.diverged}"
        _write(axes, count, _MARK + _COUNT / 2, y, size=5.5, color=ink, gid=f"diverged-{variant.name}")


def _write(axes: Axes, text: str, right: float, y: float, **style: Any) -> None:
    """Text beside the axes, so many inches to the right."""
    usual: dict[str, Any] = {"ha": "center", "va": "center", "annotation_clip": False}
    axes.annotate(text, (1, y), (72 * right, 0), ("axes fraction", "data"), "offset points", **usual, **style)


def _write_numbers(axes: Axes, tables: AblationTables, rows: Rows) -> None:
    """Columns of triggers, splits and bins per feature of the only data set, means over replicas."""
    (dataset,) = tables.datasets
    for column, (head, number) in enumerate(_NUMBERS.items()):
        right = _MARK + _COUNT + _NUMBER * (column + 0.5)
        _write(axes, head, right, -0.06, size=6.0, color="#505050")
        for row in rows_of(tables.points, dataset).to_dict("records"):
            if text := number_text(row[number], ".1f"):
                name = f"{head}-{name_of(dataset, row['variant'])}"
                _write(axes, text, right, rows.middles[row["variant"]], size=6.0, gid=name)


def _title(tables: AblationTables) -> str:
    if len(tables.datasets) > 1:
        return "Ablation of adaptive binning"
    full = rows_of(tables.points, tables.datasets[0]).iloc[0]
    score = "" if math.isnan(full["mean"]) else f"; full {full['mean']:.4f}"
    return f"{full['dataset']}: test {axis_metric(get_metric(full['metric']))}{score}"


def _legend_entries(
    tables: AblationTables, study: AblationStudy, drawn: Sequence[DrawnVariant], margins: Sequence[float]
) -> list[Any]:
    """Handles: one per data set, then what dots and grey mean."""
    metrics = {name: get_metric(rows_of(tables.replicas, name)["metric"].iloc[0]) for name in tables.datasets}
    lost = {variant.dataset: variant.diverged for variant in drawn if variant.variant == FULL}
    handles: list[Any] = []
    for index, (name, metric) in enumerate(metrics.items()):
        colour, marker = STYLES[index % len(STYLES)]
        if len(metrics) > 1:
            diverged = f", full †{lost[name]}" if lost[name] else ""
            label = f"{name} ({metric.label}{' / sd' if metric.in_target_units else ''}{diverged})"
        elif len(study.seeds) == 1:
            label = "one seed"
        else:
            label = "mean difference" + ("" if study.seeds_vary == "probe" else " and 95 % interval")
        handles.append(Line2D([], [], color=colour, marker=marker, ms=4, mec="white", mew=0.4, lw=1.0, label=label))
    if len(study.seeds) > 1 and len(metrics) <= DOTS_UP_TO:
        handles.append(Line2D([], [], color="#808080", ls="", marker="o", ms=2.2, mew=0, label="one seed"))
    named = ", ".join(f"±{margin:.3g}" for margin in reversed(margins))
    handles.append(Patch(color="#DCDCDC", lw=0, label=f"equivalence margin {named}"))
    return handles


def _draw_legend(figure: Figure, entries: list[Any], top: float) -> None:
    style: dict[str, Any] = {"frameon": False, "fontsize": 6.5, "handlelength": 1.6, "handletextpad": 0.5}
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.06 / _WIDTH, top), "borderaxespad": 0}
    columns: dict[str, Any] = {"ncols": min(len(entries), _LEGEND_COLUMNS), "columnspacing": 1.2}
    figure.legend(handles=entries, borderpad=0, labelspacing=0.3, **columns, **place, **style)
