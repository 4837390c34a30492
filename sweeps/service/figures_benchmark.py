"""The benchmark's figures: the methods' scores on one data set, and their average ranks over several.

Both have a line per method: its names on the left, dots in the middle, numbers on the right.  Layout is in inches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_benchmark import ranks_text, undecided_text
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.methods import METHOD, METHODS, BenchmarkStudy, Method
from sweeps.service.notes import protocol_notes
from sweeps.service.ranks import critical_distance, missing_cells, ranks_frame
from sweeps.service.stats import Floats
from sweeps.service.tables_benchmark import BenchmarkTables, rows_of_method

_NAMES = (0.06, 0.62, 1.2)
_SETTINGS = (0.14, 0.46)
_SCORE, _COUNT = 1.66, 1.72
_LEFT, _AXES_WIDTH = 1.78, 3.2
_LINE, _GROUP_GAP = 0.165, 0.09
_HEAD, _TITLE, _BELOW_AXES = 0.2, 0.27, 0.36

COLOURS = {"none": "#0072B2", "fixed": "#009E73", "adaptive": "#D55E00"}
"""Binning -> colour of Okabe & Ito."""


def benchmark_figure(tables: BenchmarkTables, study: BenchmarkStudy) -> Figure:
    """Draw a study of one data set from its tables.

    Of each method the texts with the ids ``mask_prob-<method>``, ``t_init-<method>`` and ``score-<method>`` are the
    table's `mask_prob`, `t_init`, `mean` and `sd`; the dot at its mean has the id ``mean-<method>``, the small ones
    ``seeds-<method>``.  ``diverged-<method>`` counts diverged replicas.
    """
    (dataset,), rows = study.datasets, tables.table.to_dict("records")
    metric = get_metric(rows[0]["metric"])
    ys, y = [], _LINE / 2
    for number, row in enumerate(rows):
        y += _GROUP_GAP if number and row["binning"] != rows[number - 1]["binning"] else 0.0
        ys.append(y)
        y += _LINE
    one = len(study.seeds) == 1
    key = (
        f"{'Dots: one seed' if one else f'Dots and bars: mean ± sd over {len(study.seeds)} seeds; small dots: seeds'}. "
        f"p_m and T (T_init of adaptive bins) {'were' if study.is_tuned else 'are those'} chosen on validation"
        f"{'' if study.is_tuned else ' for adaptive binning'}."
    )
    counts = "†n: n replicas of a method's candidates diverged." if (tables.table["n_diverged"] > 0).any() else ""
    texts = [" ".join(filter(None, [key, counts, *undecided_text(tables.table)]))]
    with mpl.rc_context(SETTINGS):
        frame = _frame(ys, f"{dataset}: linear probes after pretraining", 2.06, [*texts, *_notes(study)])
        for number, row in enumerate(rows):
            is_first = number == 0 or row["binning"] != rows[number - 1]["binning"]
            _name_line(frame, number, row, with_binning=is_first)
            best = row["rank"] == tables.table["rank"].min()
            _draw_scores(frame, number, row, tables.replicas, is_best=best)
        right = _LEFT + _AXES_WIDTH
        for x, name in zip(_SETTINGS, ("$p_m$", "$T$"), strict=True):
            frame.write(-1, right + x, name)
        frame.write(-1, right + _SCORE, "mean ± sd", ha="right", style="italic")
        axes = frame.axes
        axes.set_xlabel(f"Test {axis_metric(metric)}", labelpad=2)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        axes.margins(x=0.04)
    return frame.figure


def rank_figure(table: pd.DataFrame, study: BenchmarkStudy) -> Figure:
    """Draw average ranks over the data sets of the table of methods, the best method on top.

    The texts with the ids ``rank-<method>`` are the averages of :func:`sweeps.service.ranks.ranks_frame`; the dot has
    the id ``average-<method>``, the ranks on single data sets ``ranks-<method>``, the bar of the critical distance
    ``critical-distance``.  Raises DataError while a cell is missing.
    """
    ranks = ranks_frame(table)
    if ranks is None:
        raise DataError(f"a rank diagram needs a result in every cell, got none in {', '.join(missing_cells(table))}")
    rows = ranks.sort_values("average", kind="stable").to_dict("records")
    datasets = list(table["dataset"].unique())
    ys = [_LINE * (number + 0.5) for number in range(len(rows))]
    distance, best = critical_distance(len(rows), len(datasets)), rows[0]["average"]
    with mpl.rc_context(SETTINGS):
        title = f"Average ranks over {len(datasets)} data sets"
        frame = _frame(ys, title, 0.62, [ranks_text(table), *_notes(study)], above=0.22)
        axes = frame.axes
        axes.set_xlim(0.5, len(METHODS) + 0.5)
        axes.axvspan(best, best + distance, color="#EDEDED", lw=0, zorder=0)
        for number, row in enumerate(rows):
            _name_line(frame, number, row, with_binning=True)
            name, colour = Method.of_row(row).name, COLOURS[row["binning"]]
            single = [row[dataset] for dataset in datasets]
            _dots(axes, single, ys[number], colour, f"ranks-{name}")
            _large_dot(axes, row["average"], ys[number], colour, f"average-{name}")
            weight = "bold" if row["average"] == best else "normal"
            x = _LEFT + _AXES_WIDTH + 0.48
            frame.write(number, x, f"{row['average']:.2f}", ha="right", weight=weight, gid=f"rank-{name}")
        frame.write(-1, _LEFT + _AXES_WIDTH + 0.48, "average", ha="right", style="italic")
        _draw_distance(axes, best, distance)
        axes.set_xticks(range(1, len(METHODS) + 1))
        axes.set_xlabel("Rank by mean test score (1 is the best)", labelpad=2)
    return frame.figure


@dataclass(frozen=True)
class _Frame:
    """A figure of lines of text around one pair of axes, whose y counts inches downwards."""

    figure: Figure
    axes: Axes
    ys: Sequence[float]

    def write(self, number: int, x: float, text: str, **style: Any) -> None:
        """Text in line ``number``, ``x`` inches from the left edge of the figure; -1 is the line of headings."""
        y = self.ys[number] if number >= 0 else -_HEAD / 2
        usual: dict[str, Any] = {"size": 6.5, "va": "center", "ha": "left", "clip_on": False}
        place = {"transform": self.axes.get_yaxis_transform()}
        self.axes.text((x - _LEFT) / _AXES_WIDTH, y, text, **(usual | style | place))


def _frame(ys: Sequence[float], title: str, right: float, texts: Sequence[str], above: float = 0.0) -> _Frame:
    """Empty axes with a line at each of ``ys``, room of ``right`` inches beside them and ``above`` the headings."""
    lines, width = ys[-1] + _LINE / 2, _LEFT + _AXES_WIDTH + right
    footer = wrap_footer(texts, width - 0.2)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW_AXES
    height = bottom + lines + _HEAD + above + _TITLE
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((_LEFT / width, bottom / height, _AXES_WIDTH / width, lines / height))
    axes.set_ylim(lines, 0)
    axes.set_yticks([])
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.hlines(ys, 0, 1, transform=axes.get_yaxis_transform(), color="#E6E6E6", lw=0.4, zorder=1)
    frame = _Frame(figure, axes, ys)
    for x, name in zip(_NAMES, METHOD, strict=True):
        frame.write(-1, x, name, style="italic")
    figure.text(_NAMES[0] / width, 1 - 0.05 / height, title, size=8, weight="bold", va="top")
    draw_footer(figure, footer)
    return frame


def _name_line(frame: _Frame, number: int, row: dict[Any, Any], *, with_binning: bool) -> None:
    for x, column in zip(_NAMES, METHOD, strict=True):
        if column != "binning" or with_binning:
            frame.write(number, x, row[column], color=COLOURS[row["binning"]] if column == "binning" else "#000000")


def _draw_scores(frame: _Frame, number: int, row: dict[Any, Any], replicas: pd.DataFrame, *, is_best: bool) -> None:
    """Dots, bar and numbers of one method; where nothing is chosen a dash stands for its numbers."""
    axes, y, colour, method = frame.axes, frame.ys[number], COLOURS[row["binning"]], Method.of_row(row)
    right = _LEFT + _AXES_WIDTH
    if row["n_diverged"]:
        frame.write(number, right + _COUNT, f"†{row['n_diverged']}", size=5.8, gid=f"diverged-{method.name}")
    if row["status"] != "chosen":
        frame.write(number, right + _SCORE, f"– ({row['status']})", ha="right", gid=f"score-{method.name}")
        return
    _dots(axes, rows_of_method(replicas, method)["test"].to_list(), y, colour, f"seeds-{method.name}")
    if math.isfinite(row["sd"]):
        axes.hlines(y, row["mean"] - row["sd"], row["mean"] + row["sd"], color=colour, lw=1.1, zorder=3)
    _large_dot(axes, row["mean"], y, colour, f"mean-{method.name}")
    spread = f" ± {row['sd']:.4f}" if math.isfinite(row["sd"]) else ""
    if method.masking != "none":
        frame.write(number, right + _SETTINGS[0], f"{row['mask_prob']:g}", gid=f"mask_prob-{method.name}")
    if method.has_bins:
        frame.write(number, right + _SETTINGS[1], f"{row['t_init']}", gid=f"t_init-{method.name}")
    style: dict[str, Any] = {"ha": "right", "weight": "bold" if is_best else "normal", "gid": f"score-{method.name}"}
    frame.write(number, right + _SCORE, f"{row['mean']:.4f}{spread}", **style)


def _dots(axes: Axes, values: Sequence[float], y: float, colour: str, name: str) -> None:
    """Small dots, spread a little so that equal values are seen."""
    offsets: Floats = np.linspace(-0.03, 0.03, len(values)) if len(values) > 1 else np.zeros(len(values))
    axes.plot(values, y + offsets, ls="", marker="o", ms=2.0, mfc=colour, mew=0, alpha=0.4, gid=name, zorder=2)


def _large_dot(axes: Axes, x: float, y: float, colour: str, name: str) -> None:
    axes.plot(x, y, marker="o", ms=4.4, color=colour, mec="white", mew=0.5, gid=name, zorder=4)


def _draw_distance(axes: Axes, best: float, distance: float) -> None:
    """A bar from the best average as long as the critical distance, above the headings; it ends where the axis does."""
    y, end = -_HEAD - 0.06, min(best + distance, axes.get_xlim()[1])
    style: dict[str, Any] = {"color": "#303030", "lw": 0.9, "clip_on": False}
    axes.plot([best, end], [y, y], gid="critical-distance", **style)
    for x in (best, *([end] if end == best + distance else [])):
        axes.plot([x, x], [y - 0.03, y + 0.03], **style)
    text = f"Nemenyi critical distance {distance:.2f} (descriptive)"
    axes.text(best, y - 0.09, text, size=6.2, va="center", ha="left", clip_on=False)


def _notes(study: BenchmarkStudy) -> list[str]:
    return [f"{note}." for note in protocol_notes(study)]
