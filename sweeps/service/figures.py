"""The sensitivity figure: one panel per hyperparameter, one line per data set, marks from the significance table.

The only module that imports matplotlib.  Figures are objects drawn by the Agg canvas; nothing touches pyplot or
changes settings outside a ``with`` block.  Layout is in inches, so text never depends on what the data look like.

With one data set the axis is the test score.  With several, whose scores have no common scale, it is the difference to
the default of the same seed, signed so that up is better, errors in standard deviations of the train target.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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

from adaptbin.metrics import get_metric
from sweeps.service.captions import DOTS_UP_TO, axis_metric, mark_key, protocol_notes
from sweeps.service.contrasts import SCORE_MARGIN, TARGET_SD_MARGIN, pairs_of
from sweeps.service.points import Panel, Study
from sweeps.service.stats import Floats, signed_differences
from sweeps.service.tables import finished_scores, rows_of, write_atomically

# Okabe & Ito's colours without yellow, then three of Tol's; told apart under the common colour blindnesses, and each
# has a marker of its own.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255", "#999933", "#332288")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")

_SETTINGS = {
    "font.family": ["DejaVu Sans"],
    "font.size": 7.0,
    "axes.labelsize": 7.0,
    "axes.linewidth": 0.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "mathtext.fontset": "dejavusans",
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "adaptbin",  # ids depend on the content only: the same tables give the same file
}

# Inches.
_TEXT_WIDTH = 7.0
_LEFT, _RIGHT, _GAP = 0.52, 0.06, 0.14
_AXES_HEIGHT = 1.45
_BELOW_AXES, _ABOVE_AXES = 0.36, 0.17
_LEGEND_LINE, _FOOTER_LINE, _MARK_LINE = 0.15, 0.115, 0.095


@dataclass(frozen=True)
class _Series:
    """One line of one panel, ready to draw; every array has one entry per value of the panel."""

    dataset: str
    colour: str
    marker: str
    values: tuple[float, ...]
    means: Floats
    lows: Floats
    highs: Floats
    dots: tuple[Floats, ...]
    marks: tuple[str, ...]
    diverged: tuple[int, ...]


def sensitivity_figure(
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: Study,
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Draw the figure of a study from its tables.

    titles: how the legend names the data sets, by key.  Data sets without any replica are left out.
    Every mark is a text with the id ``mark-<data set>-<panel>-<value>`` and exactly the table's `mark`.
    """
    titles = titles or {}
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    with mpl.rc_context(_SETTINGS):
        single = len(datasets) == 1
        footer = [mark_key(significance), *(f"{note}." for note in protocol_notes(study))]
        layout = _Layout.of(len(study.panels), len(datasets), footer)
        figure = Figure(figsize=(layout.width, layout.height))
        FigureCanvasAgg(figure)
        build = _score_series if single else _difference_series
        everything = []
        shared: Axes | None = None
        for number, panel in enumerate(study.panels):
            axes = figure.add_axes(layout.axes(number), sharey=shared)
            shared = shared or axes
            series = [
                build(dataset, panel, points, significance, replicas, _COLOURS[i % 10], _MARKERS[i % 10])
                for i, dataset in enumerate(datasets)
            ]
            everything += series
            _draw_reference(axes, series, panel, study, replicas, points)
            _draw_panel(axes, series, panel, study, lettered=len(study.panels) > 1, strip=not single)
            axes.tick_params(labelleft=layout.is_first_column(number))
            if layout.is_first_column(number):
                axes.set_ylabel(_axis_label(datasets, replicas))
                if not single:
                    _name_strip(axes, series)
        if shared is not None:
            _set_limits(shared, everything, single)
        _draw_legend(figure, layout, datasets, replicas, study, titles)
        for line, (text, is_note) in enumerate(layout.footer):
            y = (_FOOTER_LINE * (len(layout.footer) - line - 1) + 0.05) / layout.height
            style: dict[str, Any] = {"color": "#9C1C1C", "weight": "bold"} if is_note else {"color": "#404040"}
            figure.text(0.06 / layout.width, y, text, size=6.5 if is_note else 6.0, va="bottom", **style)
    return figure


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write ``figure.png`` (300 dpi), ``figure.pdf`` and ``figure.svg``, each atomically and free of dates."""
    paths = []
    with mpl.rc_context(_SETTINGS):
        for kind, metadata in (("png", {}), ("pdf", {"CreationDate": None}), ("svg", {"Date": None})):
            paths.append(
                write_atomically(
                    folder / f"figure.{kind}",
                    lambda file, kind=kind, metadata=metadata: figure.savefig(
                        file, format=kind, dpi=300, metadata=metadata
                    ),
                )
            )
    return paths


@dataclass(frozen=True)
class _Layout:
    """Where things are, in inches from the lower left corner."""

    width: float
    height: float
    columns: int
    rows: int
    strip: float
    """Room above each panel for the marks of several data sets."""
    bottom: float
    legend_in_grid: bool
    """Whether the legend fills the last cell of the grid instead of a line above it."""
    footer: tuple[tuple[str, bool], ...]
    """Lines of text, and whether each is a note on the protocol."""

    @classmethod
    def of(cls, n_panels: int, n_datasets: int, footer: list[str]) -> _Layout:
        # Many lines need wide panels: three columns, and the legend in the cell that five panels leave free.
        columns = 3 if n_datasets > 2 and n_panels > 3 else n_panels
        rows = math.ceil(n_panels / columns)
        width = {1: 3.4, 2: 5.0}.get(columns, _TEXT_WIDTH)
        lines: list[tuple[str, bool]] = []
        for number, text in enumerate(footer):
            wrapped = textwrap.wrap(text, int(width * (18 if number else 21.5)))
            lines += [(line, number > 0) for line in wrapped]
        strip = 0.0 if n_datasets == 1 else _MARK_LINE * n_datasets + 0.03
        bottom = _FOOTER_LINE * len(lines) + 0.08
        in_grid = rows * columns > n_panels
        legend = 0.0 if in_grid else _LEGEND_LINE * _legend_rows(n_datasets, width) + 0.05
        height = bottom + rows * (_BELOW_AXES + _AXES_HEIGHT + strip + _ABOVE_AXES) + legend
        return cls(width, height, columns, rows, strip, bottom, in_grid, tuple(lines))

    def is_first_column(self, number: int) -> bool:
        return number % self.columns == 0

    def axes(self, number: int) -> tuple[float, float, float, float]:
        """Left, bottom, width, height of a panel as fractions of the figure."""
        row, column = divmod(number, self.columns)
        wide = (self.width - _LEFT - _RIGHT - _GAP * (self.columns - 1)) / self.columns
        left = _LEFT + column * (wide + _GAP)
        cell = _BELOW_AXES + _AXES_HEIGHT + self.strip + _ABOVE_AXES
        bottom = self.bottom + (self.rows - 1 - row) * cell + _BELOW_AXES
        return left / self.width, bottom / self.height, wide / self.width, _AXES_HEIGHT / self.height


def _legend_rows(n_datasets: int, width: float) -> int:
    return math.ceil((n_datasets + 2) / _legend_columns(n_datasets, width))


def _legend_columns(n_datasets: int, width: float) -> int:
    return min(n_datasets + 2, max(1, int(width / 1.15)))


def _score_series(
    dataset: str,
    panel: Panel,
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    colour: str,
    marker: str,
) -> _Series:
    """Test scores as they are."""
    rows = rows_of(points, dataset, panel.key).sort_values("value")
    values = tuple(rows["value"])
    return _Series(
        dataset=dataset,
        colour=colour,
        marker=marker,
        values=values,
        means=rows["mean"].to_numpy(),
        lows=rows["low"].to_numpy(),
        highs=rows["high"].to_numpy(),
        dots=tuple(finished_scores(rows_of(replicas, dataset, panel.key, value)) for value in values),
        marks=_marks(significance, dataset, panel.key, values),
        diverged=tuple(rows["n_diverged"]),
    )


def _difference_series(
    dataset: str,
    panel: Panel,
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    colour: str,
    marker: str,
) -> _Series:
    """Paired differences to the default, up is better; the default itself is 0 by definition."""
    rows = rows_of(points, dataset, panel.key).sort_values("value")
    of_dataset = rows_of(replicas, dataset)
    metric = get_metric(of_dataset["metric"].iloc[0])
    scale = 1 / float(of_dataset["target_sd"].mean()) if metric.in_target_units else 1.0
    contrasts = {row["value"]: row for row in rows_of(significance, dataset, panel.key).to_dict("records")}
    nothing = {"difference": 0.0, "low": math.nan, "high": math.nan}
    of_values = [contrasts.get(value, nothing) for value in rows["value"]]
    dots = []
    for value in rows["value"]:
        pairs = signed_differences(*pairs_of(of_dataset, panel.key, value), metric.sign)
        dots.append(pairs[np.isfinite(pairs)] * scale if value in contrasts else np.zeros(0))
    return _Series(
        dataset=dataset,
        colour=colour,
        marker=marker,
        values=tuple(rows["value"]),
        means=np.array([row["difference"] for row in of_values]) * scale,
        lows=np.array([row["low"] for row in of_values]) * scale,
        highs=np.array([row["high"] for row in of_values]) * scale,
        dots=tuple(dots),
        marks=_marks(significance, dataset, panel.key, tuple(rows["value"])),
        diverged=tuple(rows["n_diverged"]),
    )


def _marks(significance: pd.DataFrame, dataset: str, panel: str, values: tuple[float, ...]) -> tuple[str, ...]:
    rows = rows_of(significance, dataset, panel)
    marks = dict(zip(rows["value"], rows["mark"], strict=True))
    return tuple(marks.get(value, "") for value in values)
