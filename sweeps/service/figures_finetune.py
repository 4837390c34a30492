"""The figure of gains: per encoder and pretext the paired differences to training from scratch, a panel per data set.

Every panel has the unit of its metric.  An encoder whose scores are far noisier than those of the others does not widen
the axis: arrows say where it goes on.  Layout is in inches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.config import EncoderName
from adaptbin.errors import DataError
from sweeps.service.captions import figure_notes
from sweeps.service.captions_finetune import axis_label, figure_key
from sweeps.service.figures_style import SETTINGS, STYLES, darkened, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.methods_finetune import ENCODER_TITLES, PRETRAINED, FinetuneStudy
from sweeps.service.rows_finetune import DrawnArm, drawn_arms, limits_of, margin_on
from sweeps.service.tables import number_text, rows_of
from sweeps.service.tables_finetune import FinetuneTables

LINE, BETWEEN = 0.13, 0.12
"""Height of one method of an encoder, and the room between encoders."""
_LEFT, _RIGHT, _GAP = 0.86, 0.06, 0.1
_MARK, _COUNT, _NUMBER = 0.32, 0.2, 0.55
"""Widths of the columns to the right of each axes: marks, diverged pairs and, of one data set, scores from scratch."""
_TITLE, _LEGEND, _HEAD, _BELOW_AXES = 0.26, 0.2, 0.2, 0.36
_MOST_COLUMNS = 4
_STYLES = dict(zip(PRETRAINED, (STYLES[1], STYLES[2], STYLES[0]), strict=True))
_ACROSS = {1: 3.2, 2: 1.9, 3: 1.35}
"""Number of columns -> width of an axes."""


@dataclass(frozen=True)
class _Grid:
    """Where the panels are."""

    columns: int
    rows: int
    across: float
    """Width of an axes."""
    down: float
    """Height of an axes."""
    beside: float
    """Room to the right of an axes."""

    @classmethod
    def of(cls, n_datasets: int, n_encoders: int) -> _Grid:
        columns = min(n_datasets, _MOST_COLUMNS)
        return cls(
            columns=columns,
            rows=math.ceil(n_datasets / columns),
            across=_ACROSS.get(columns, 1.15),
            down=n_encoders * (len(PRETRAINED) * LINE + BETWEEN),
            beside=_MARK + _COUNT + (_NUMBER if n_datasets == 1 else 0.0),
        )

    @property
    def width(self) -> float:
        return _LEFT + self.columns * (self.across + self.beside + _GAP) - _GAP + _RIGHT

    @property
    def height(self) -> float:
        return self.rows * (_HEAD + self.down + _BELOW_AXES)

    def place(self, number: int, height: float, above: float) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of panel ``number``, as fractions of a figure that is ``height`` high."""
        row, column = divmod(number, self.columns)
        left = _LEFT + column * (self.across + self.beside + _GAP)
        top = above + row * (_HEAD + self.down + _BELOW_AXES) + _HEAD
        return left / self.width, 1 - (top + self.down) / height, self.across / self.width, self.down / height


def finetune_figure(tables: FinetuneTables, study: FinetuneStudy) -> Figure:
    """Draw the figure of a study from its tables.  Data sets without any replica are left out.

    Every mark is a text with the id ``mark-<data set>-<encoder>-<method>`` and exactly the `mark` of the contrast with
    what is not pretrained; counts of pairs with a diverged replica are ``diverged-...``.  With one data set the mean
    scores from scratch stand to the right, as ``supervised-<data set>-<encoder>``.
    Raises DataError when there is no replica at all.
    """
    if not tables.datasets:
        raise DataError("a figure needs the result of at least one replica, got none")
    grid = _Grid.of(len(tables.datasets), len(study.encoders))
    with mpl.rc_context(SETTINGS):
        notes = (f"{note}." for note in figure_notes(study, tables.replicas))
        footer = wrap_footer([figure_key(tables), *notes], grid.width)
        above = _TITLE + _LEGEND
        height = above + grid.height + FOOTER_LINE * len(footer) + 0.08
        figure = Figure(figsize=(grid.width, height))
        FigureCanvasAgg(figure)
        for number, dataset in enumerate(tables.datasets):
            axes = figure.add_axes(grid.place(number, height, above))
            _draw_panel(axes, tables, dataset, study, has_names=number % grid.columns == 0)
        title = "Fine-tuning: gain of pretraining over training from scratch"
        figure.text(0.06 / grid.width, 1 - 0.06 / height, title, size=8, weight="bold", va="top")
        _draw_legend(figure, study, grid.width, 1 - _TITLE / height)
        draw_footer(figure, footer)
    return figure


def _draw_panel(axes: Axes, tables: FinetuneTables, dataset: str, study: FinetuneStudy, *, has_names: bool) -> None:
    margin, block = margin_on(tables, dataset), len(PRETRAINED) * LINE + BETWEEN
    middles = {name: (position + 0.5) * block for position, name in enumerate(study.encoders)}
    axes.axvspan(-margin, margin, color="#DCDCDC", lw=0, zorder=0)
    axes.axvline(0.0, color="#808080", lw=0.6, zorder=1)
    axes.set_ylim(len(middles) * block, 0.0)
    axes.set_xlim(*limits_of(tables, dataset))
    axes.set_yticks(list(middles.values()), [ENCODER_TITLES[name] if has_names else "" for name in middles])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(3 if len(tables.datasets) > 1 else 6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axes.set_xlabel(axis_label(dataset, tables), labelpad=1.5)
    axes.annotate(dataset, (0, 1), (0, 4), "axes fraction", "offset points", weight="bold", va="bottom")
    for arm in drawn_arms(tables, dataset):
        _draw_arm(axes, arm, middles[arm.encoder] + LINE * (PRETRAINED.index(arm.method) - (len(PRETRAINED) - 1) / 2))
    if len(tables.datasets) == 1:
        _write_scores(axes, tables, dataset, middles)


def _draw_arm(axes: Axes, arm: DrawnArm, y: float) -> None:
    """Mean, interval and single seeds of one arm, and beside the axes its mark and count."""
    colour, marker = _STYLES[arm.method]
    heights = np.linspace(y - 0.3 * LINE, y + 0.3 * LINE, len(arm.dots)) if len(arm.dots) > 1 else [y] * len(arm.dots)
    axes.plot(arm.dots, heights, ls="", marker="o", ms=1.8, mfc=colour, mew=0, alpha=0.35, zorder=2)
    if math.isfinite(arm.low):
        axes.hlines(y, arm.low, arm.high, color=colour, lw=1.0, zorder=4)
    if math.isfinite(arm.difference):
        axes.plot([arm.difference], [y], ls="", marker=marker, ms=4.0, mfc=colour, mec="white", mew=0.4, zorder=5)
    low, high = axes.get_xlim()
    for end, arrow, is_beyond in (
        (low, "<", any(number < low for number in arm.numbers)),
        (high, ">", any(number > high for number in arm.numbers)),
    ):
        if is_beyond:
            style: dict[str, Any] = {"marker": arrow, "ms": 3.0, "mfc": colour, "mew": 0, "clip_on": False}
            axes.plot([end], [y], ls="", zorder=6, gid=f"beyond-{arm.name}", **style)
    if arm.mark:
        _write(axes, arm.mark, _MARK / 2, y, size=6.5, color=darkened(colour), gid=f"mark-{arm.name}")
    if arm.diverged:
        count = f"†{arm.diverged}"
        _write(axes, count, _MARK + _COUNT / 2, y, size=5.5, color=darkened(colour), gid=f"diverged-{arm.name}")


def _write(axes: Axes, text: str, right: float, y: float, **style: Any) -> None:
    """Text beside the axes, so many inches to the right."""
    usual: dict[str, Any] = {"ha": "center", "va": "center", "annotation_clip": False}
    axes.annotate(text, (1, y), (72 * right, 0), ("axes fraction", "data"), "offset points", **usual, **style)


def _write_scores(axes: Axes, tables: FinetuneTables, dataset: str, middles: Mapping[EncoderName, float]) -> None:
    """A column of mean scores from scratch of the only data set."""
    right = _MARK + _COUNT + _NUMBER / 2
    _write(axes, "supervised", right, -0.08, size=6.0, color="#505050")
    rows = rows_of(tables.table, dataset)
    for row in rows[rows["method"] == "supervised"].to_dict("records"):
        if text := number_text(row["mean"], ".4f"):
            name = f"supervised-{dataset}-{row['encoder']}"
            _write(axes, text, right, middles[row["encoder"]], size=6.0, gid=name)


def _draw_legend(figure: Figure, study: FinetuneStudy, width: float, top: float) -> None:
    handles: list[Any] = []
    for method in PRETRAINED:
        colour, marker = _STYLES[method]
        style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "mec": "white", "mew": 0.4, "lw": 1.0}
        handles.append(Line2D([], [], label=method, **style))
    if len(study.seeds) > 1:
        handles.append(Line2D([], [], color="#808080", ls="", marker="o", ms=2.2, mew=0, label="one seed"))
    handles.append(Patch(color="#DCDCDC", lw=0, label="equivalence margin"))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.06 / width, top), "borderaxespad": 0}
    spaces: dict[str, Any] = {"columnspacing": 1.2, "handlelength": 1.6, "handletextpad": 0.5, "borderpad": 0}
    figure.legend(handles=handles, frameon=False, fontsize=6.5, ncols=len(handles), **spaces, **place)
