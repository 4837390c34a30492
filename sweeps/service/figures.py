"""The sensitivity figure: one panel per hyperparameter, one line per data set, marks from the significance table.

Layout is in inches, so text has room whatever the data look like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.captions import DOTS_UP_TO, axis_label, figure_notes, mark_key, value_labels
from sweeps.service.contrasts import SCORE_MARGIN, TARGET_SD_MARGIN
from sweeps.service.figures_style import SETTINGS, STYLES, darkened, draw_footer
from sweeps.service.layout import MARK_LINE, Layout
from sweeps.service.panels import Panel, SensitivityStudy
from sweeps.service.point_fields import value_text
from sweeps.service.series import Series, difference_series, score_series
from sweeps.service.tables import rows_of

_MARK_SIZE = 7.0


def sensitivity_figure(
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: SensitivityStudy,
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Draw the figure of a study from its tables.

    titles: how the legend names the data sets, by key.  Data sets without any replica are left out.
    Every mark is a text with the id ``mark-<data set>-<panel>-<value>`` and exactly the table's `mark`.
    Raises DataError when there is no replica at all.
    """
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    if not datasets:
        raise DataError("a figure needs the result of at least one replica, got none")
    with mpl.rc_context(SETTINGS):
        entries = legend_entries(datasets, replicas, points, study, titles or {})
        footer = [mark_key(significance), *(f"{note}." for note in figure_notes(study, replicas))]
        layout = Layout.of(len(study.panels), len(datasets), len(entries), footer)
        figure = Figure(figsize=(layout.width, layout.height))
        FigureCanvasAgg(figure)
        draw_panels(figure, layout, points, significance, replicas, study)
        draw_legend(figure, layout, entries)
        draw_footer(figure, layout.footer)
    return figure


def draw_panels(
    figure: Figure,
    layout: Layout,
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: SensitivityStudy,
) -> None:
    """Draw the panels of one field into an empty figure, at least one."""
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    build = score_series if len(datasets) == 1 else difference_series
    panels = {
        panel.key: [build(dataset, panel.key, points, significance, replicas) for dataset in datasets]
        for panel in study.panels
    }
    for number, panel in enumerate(study.panels):
        axes = figure.add_axes(layout.axes(number), sharey=figure.axes[0] if figure.axes else None)
        _draw_reference(axes, datasets, points, replicas)
        _draw_axes(axes, panel, study, layout)
        for index, series in enumerate(panels[panel.key]):
            _draw_series(axes, series, index, len(datasets))
            if len(datasets) == 1:
                _draw_marks_above_points(axes, series)
            else:
                row, colour = len(datasets) - index - 1, STYLES[index % len(STYLES)][0]
                _draw_marks_in_row(axes, series, row, colour, named=layout.is_first_column(number))
        axes.tick_params(labelleft=layout.is_first_column(number))
        if layout.is_first_column(number):
            axes.set_ylabel(axis_label(replicas), linespacing=1.1)
            axes.yaxis.set_label_coords(-0.41 / layout.axes_width, 0.5)
    everything = [series for of_panel in panels.values() for series in of_panel]
    _set_limits(figure.axes[0], everything, _margins(datasets, replicas))


def _default_band(dataset: str, points: pd.DataFrame) -> tuple[float, float, float]:
    """Mean and interval of the default's score; the interval is nan with fewer than two seeds."""
    default = rows_of(points, dataset)
    row = default[default["is_default"]].iloc[0]
    return float(row["mean"]), float(row["low"]), float(row["high"])


def _margins(datasets: Sequence[str], replicas: pd.DataFrame) -> list[float]:
    """Equivalence margins on the difference axis, widest first."""
    metrics = [get_metric(rows_of(replicas, dataset)["metric"].iloc[0]) for dataset in datasets]
    return sorted({TARGET_SD_MARGIN if m.in_target_units else SCORE_MARGIN for m in metrics}, reverse=True)


def _draw_reference(axes: Axes, datasets: Sequence[str], points: pd.DataFrame, replicas: pd.DataFrame) -> None:
    """What a point is compared with: the default's interval, or no difference and the equivalence margin."""
    if len(datasets) > 1:
        for shade, margin in zip(("#EDEDED", "#DCDCDC"), _margins(datasets, replicas), strict=False):
            axes.axhspan(-margin, margin, color=shade, lw=0, zorder=0)
        axes.axhline(0.0, color="#808080", lw=0.6, zorder=1)
        return
    mean, low, high = _default_band(datasets[0], points)
    if math.isfinite(low):
        axes.axhspan(low, high, color="#E2E2E2", lw=0, zorder=0)
    if math.isfinite(mean):
        axes.axhline(mean, color="#808080", lw=0.6, ls=(0, (4, 3)), zorder=1)


def _draw_axes(axes: Axes, panel: Panel, study: SensitivityStudy, layout: Layout) -> None:
    """Ticks, labels and letter; values are evenly spaced categories and the default's label is bold."""
    axes.set_xticks(range(len(panel.values)))
    axes.set_xticklabels(value_labels(panel.values, study.default_values(panel)))
    if layout.columns > 3 and any("^" in label.get_text() for label in axes.get_xticklabels()):
        axes.tick_params(axis="x", labelsize=6.0)
    axes.set_xlim(-0.55, len(panel.values) - 0.45)
    axes.set_xlabel(panel.symbol, labelpad=1.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    if len(study.panel_keys) > 1:
        write_letter(axes, panel.letter, 72 * layout.strip + 3)


def write_letter(axes: Axes, letter: str, height: float) -> None:
    """The letter of a panel above its left edge, by so many typographic points."""
    place: dict[str, Any] = {"xytext": (0, height), "xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(letter, (0, 1), **place, size=8, weight="bold", va="bottom")


def _draw_series(axes: Axes, series: Series, index: int, n_datasets: int) -> None:
    """Line between numbers, intervals, means and seeds of one data set; several stand side by side at each value."""
    colour, marker = STYLES[index % len(STYLES)]
    x = np.arange(len(series.values)) + _shift(index, n_datasets)
    if n_datasets <= DOTS_UP_TO:
        width = 0.2 if n_datasets == 1 else 0.04
        for position, dots in zip(x, series.dots, strict=True):
            offsets = np.linspace(-width, width, len(dots)) if len(dots) > 1 else np.zeros(len(dots))
            axes.plot(position + offsets, dots, ls="", marker="o", ms=1.5, mfc=colour, mew=0, alpha=0.35, zorder=2)
    if not any(isinstance(value, str) for value in series.values):  # nothing lies between two words
        axes.plot(x, series.means, color=colour, lw=0.8 if n_datasets == 1 else 0.6, alpha=0.8, zorder=3)
    barred = np.isfinite(series.lows)
    axes.vlines(x[barred], series.lows[barred], series.highs[barred], color=colour, lw=0.9, zorder=4)
    size = 3.8 if n_datasets <= 2 else 3.0
    axes.plot(x, series.means, ls="", marker=marker, ms=size, mfc=colour, mec="white", mew=0.4, zorder=5)


def _shift(index: int, n_datasets: int) -> float:
    """Sideways place of a data set within a category, in categories."""
    return min(0.64, 0.16 * n_datasets) * (index / (n_datasets - 1) - 0.5) if n_datasets > 1 else 0.0


def _draw_marks_above_points(axes: Axes, series: Series) -> None:
    """Marks right above the points of the only data set; counts of diverged replicas along the lower edge."""
    for position, (mark, diverged) in enumerate(zip(series.marks, series.diverged, strict=True)):
        if mark:
            _write(axes, mark, (position, series.top(position)), "data", (0, 1), gid=_name("mark", series, position))
        if diverged:
            place = ("data", "axes fraction")
            name = _name("diverged", series, position)
            _write(axes, f"†{diverged}", (position, 0), place, (0, 1), size=5.5, gid=name)


def _draw_marks_in_row(axes: Axes, series: Series, row: int, colour: str, *, named: bool) -> None:
    """Marks of one of several data sets, in a row of its own above the panel: there no mark can fall on data.

    row: counted from below.  Beside each mark stands the count of diverged replicas.
    """
    ink = darkened(colour)
    height = 72 * MARK_LINE * row + 3
    place = ("data", "axes fraction")
    for position, (mark, diverged) in enumerate(zip(series.marks, series.diverged, strict=True)):
        if mark:
            _write(axes, mark, (position, 1), place, (0, height), color=ink, gid=_name("mark", series, position))
        if diverged:
            style = {"size": 5.0, "color": ink, "ha": "left", "gid": _name("diverged", series, position)}
            _write(axes, f"†{diverged}", (position, 1), place, (1 + 1.8 * len(mark), height), **style)
    if named:
        _write(axes, series.dataset, (0, 1), "axes fraction", (-3, height), size=5.5, color=ink, ha="right")


def _write(
    axes: Axes, text: str, at: tuple[float, float], place: Any, offset: tuple[float, float], **style: Any
) -> None:
    """Text at a point, moved by an offset in typographic points."""
    usual: dict[str, Any] = {"ha": "center", "va": "bottom", "size": _MARK_SIZE, "annotation_clip": False}
    axes.annotate(text, at, xytext=offset, xycoords=place, textcoords="offset points", **(usual | style))


def _name(what: str, series: Series, position: int) -> str:
    return f"{what}-{series.dataset}-{series.panel}-{value_text(series.values[position])}"


def _set_limits(axes: Axes, everything: Sequence[Series], margins: Sequence[float]) -> None:
    """One y range for all panels, with room for marks above and for counts of diverged replicas below."""
    several = len({series.dataset for series in everything}) > 1
    with_dots = len({series.dataset for series in everything}) <= DOTS_UP_TO
    numbers = np.concatenate([series.extent(with_dots) for series in everything])
    if several:
        numbers = np.append(numbers, [sign * margin * 1.1 for margin in margins for sign in (-1, 1)])
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    room = (high - low) or max(abs(high) * 0.02, 1e-3)
    below = 0.12 if not several and any(count for series in everything for count in series.diverged) else 0.05
    axes.set_ylim(low - room * below, high + room * (0.05 if several else 0.12))


def legend_entries(
    datasets: Sequence[str],
    replicas: pd.DataFrame,
    points: pd.DataFrame,
    study: SensitivityStudy,
    titles: Mapping[str, str],
) -> list[Any]:
    """Handles: one per data set, then what dots and grey mean."""
    handles: list[Any] = []
    metrics = {dataset: get_metric(rows_of(replicas, dataset)["metric"].iloc[0]) for dataset in datasets}
    for index, dataset in enumerate(datasets):
        colour, marker = STYLES[index % len(STYLES)]
        label = titles.get(dataset, dataset)
        if len(datasets) > 1 and len(set(metrics.values())) > 1:
            label += f" ({metrics[dataset].label}{' / sd' if metrics[dataset].in_target_units else ''})"
        elif len(datasets) == 1:
            label += ": one seed" if len(study.seeds) == 1 else ": mean and 95 % interval"
        handles.append(Line2D([], [], color=colour, marker=marker, ms=3.6, mec="white", mew=0.4, lw=0.8, label=label))
    if len(study.seeds) > 1 and len(datasets) <= DOTS_UP_TO:
        handles.append(Line2D([], [], color="#808080", ls="", marker="o", ms=2, mew=0, label="one seed"))
    if len(datasets) > 1:
        margins = [f"±{margin:g}" for margin in _margins(datasets, replicas)]
        handles.append(Patch(color="#DCDCDC", lw=0, label=f"equivalence margin {', '.join(margins[::-1])}"))
    elif math.isfinite(_default_band(datasets[0], points)[1]):
        handles.append(Patch(color="#E2E2E2", lw=0, label="interval of the default"))
    else:
        handles.append(Line2D([], [], color="#808080", lw=0.6, ls=(0, (4, 3)), label="default"))
    return handles


def draw_legend(figure: Figure, layout: Layout, entries: list[Any]) -> None:
    """The one legend: centred above the panels, or in the cell of the grid that holds no panel."""
    style: dict[str, Any] = {"frameon": False, "fontsize": 6.5, "handlelength": 1.6, "handletextpad": 0.5}
    if layout.legend_in_grid:
        left, bottom, width, height = layout.axes(layout.rows * layout.columns - 1)
        box: dict[str, Any] = {"loc": "center", "bbox_to_anchor": (left, bottom, width, height), "labelspacing": 0.6}
        figure.legend(handles=entries, ncols=1, borderaxespad=0, **box, **style)
    else:
        box = {"loc": "upper center", "bbox_to_anchor": (0.5, 1 - 0.03 / layout.height)}
        columns: dict[str, Any] = {"ncols": layout.legend_columns, "columnspacing": 1.2, "labelspacing": 0.3}
        figure.legend(handles=entries, borderaxespad=0, borderpad=0, **box, **columns, **style)
