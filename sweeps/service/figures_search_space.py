"""Pictures of the space that a search has seen: slices along each field, parallel coordinates, and ranks of pairs."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.figures_search import BLUE, LEGEND, VERMILION, score_limits
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.point_fields import value_text
from sweeps.service.search_ranges import Range
from sweeps.service.search_space import settings_of
from sweeps.service.searches import SearchStudy
from sweeps.service.tables_search import SearchTables

COLOURS = "viridis"

COLUMNS = 4
"""Slices side by side."""

PAIRED_FIELDS = 4
"""Most important fields whose pairs are drawn."""


def slices_figure(tables: SearchTables, study: SearchStudy) -> Figure:
    """Scores of complete trials along each searched field; colour tells early from late trials."""
    done, metric = _done(tables), get_metric(study.metric)
    fields = list(study.space.searched)
    columns = min(COLUMNS, len(fields))
    rows = math.ceil(len(fields) / columns)
    limits = score_limits(done["val_mean"].to_numpy(dtype=float), metric.higher_is_better)
    with mpl.rc_context(SETTINGS):
        figure = _figure(max(3.4, 1.75 * columns), 1.5 * rows + 0.35, study)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
        norm = Normalize(0, max(1, int(done["trial"].max())))
        for number, axes in enumerate(grid.flat):
            if number >= len(fields):
                axes.set_axis_off()
                continue
            name = fields[number]
            some = _with_field(done, study, name)
            places = _places(some[name], study, name)
            axes.scatter(places, some["val_mean"], c=some["trial"], cmap=COLOURS, norm=norm, s=7, lw=0)
            default = settings_of(study.default_point)[name]
            if default in study.space.searched[name]:
                axes.axvline(_place(default, study, name), color="black", lw=0.5, ls="--")
            _scale_x(axes, study, name)
            axes.set_ylim(*limits)
            if number % columns == 0:
                axes.set_ylabel(metric.label)
        _bar(figure, grid, norm, "trial")
        _title(figure, f"{study.datasets[0]}: validation {axis_metric(metric)} along each field (dashed: the default)")
        return _laid_out(figure)


def parallel_figure(tables: SearchTables, study: SearchStudy) -> Figure:
    """A line per complete trial through its values of all fields; the best are drawn last."""
    done, metric = _done(tables), get_metric(study.metric)
    fields = list(study.space.searched)
    scores = done["val_mean"].to_numpy(dtype=float)
    low, high = score_limits(scores, metric.higher_is_better)
    norm = Normalize(low, high)
    colours = mpl.colormaps[COLOURS if metric.higher_is_better else f"{COLOURS}_r"]
    order = np.argsort(scores if metric.higher_is_better else -scores, kind="stable")
    best = order[-1]
    with mpl.rc_context(SETTINGS):
        figure = _figure(max(4.0, 0.62 * len(fields) + 1.2), 2.9, study)
        axes = figure.add_subplot()
        heights = np.column_stack([_heights(done, study, name) for name in fields])
        for row in order:
            style: dict[str, Any] = {"color": colours(norm(scores[row])), "lw": 0.6, "alpha": 0.8}
            if row == best:
                style = {"color": VERMILION, "lw": 1.4}
            axes.plot(range(len(fields)), heights[row], **style)
        for place, name in enumerate(fields):
            axes.axvline(place, color="#808080", lw=0.4, zorder=0)
            bottom, top = _end_texts(study, name)
            axes.text(place, -0.03, bottom, ha="center", va="top", fontsize=5.5)
            axes.text(place, 1.03, top, ha="center", va="bottom", fontsize=5.5)
        axes.set_xticks(range(len(fields)), fields, rotation=45, ha="right")
        axes.tick_params(axis="x", pad=9, length=0)
        axes.set_yticks([])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlim(-0.4, len(fields) - 0.6)
        for side in axes.spines.values():
            side.set_visible(False)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, pad=0.01, aspect=30)
        bar.set_label(metric.label)
        bar.outline.set_linewidth(0.4)
        _title(
            figure,
            f"{study.datasets[0]}: trials by validation {metric.label} (orange: the best); gaps: p_m without masking",
        )
        return _laid_out(figure)


def rank_figure(tables: SearchTables, study: SearchStudy) -> Figure:
    """Ranks of complete trials over pairs of the most important fields, yellow the best."""
    done = _done(tables)
    ranked = list(tables.importances["field"]) if len(tables.importances) else list(study.space.searched)
    fields = ranked[:PAIRED_FIELDS] if len(ranked) > 1 else [*study.space.searched][:PAIRED_FIELDS]
    pairs = list(combinations(fields, 2)) or [(fields[0], fields[0])]
    columns = min(3, len(pairs))
    rows = math.ceil(len(pairs) / columns)
    norm = Normalize(1, max(2, len(done)))
    with mpl.rc_context(SETTINGS):
        figure = _figure(max(3.4, 2.25 * columns), 1.9 * rows + 0.35, study)
        grid = figure.subplots(rows, columns, squeeze=False)
        for number, axes in enumerate(grid.flat):
            if number >= len(pairs):
                axes.set_axis_off()
                continue
            across, down = pairs[number]
            some = _with_field(_with_field(done, study, across), study, down).sort_values("rank", ascending=False)
            places = _places(some[across], study, across), _places(some[down], study, down)
            axes.scatter(*places, c=some["rank"], cmap=f"{COLOURS}_r", norm=norm, s=10, lw=0)
            top = some[some["rank"] == 1]
            axes.plot(
                _places(top[across], study, across),
                _places(top[down], study, down),
                "o",
                mfc="none",
                mec=VERMILION,
                ms=6,
            )
            _scale_x(axes, study, across)
            _scale_y(axes, study, down)
        _bar(figure, grid, norm, "rank", colours=f"{COLOURS}_r")
        _title(figure, f"{study.datasets[0]}: rank of trials on validation (ringed: the best)")
        return _laid_out(figure)


def front_figure(tables: SearchTables, study: SearchStudy) -> Figure:
    """Score against core-seconds of one replica; the trials that no other one betters in both are joined."""
    done, metric = _done(tables), get_metric(study.metric)
    front = done[done["on_front"]].sort_values("core_seconds")
    with mpl.rc_context(SETTINGS):
        figure = _figure(3.6, 2.7, study)
        axes = figure.add_subplot()
        axes.plot(done["core_seconds"], done["val_mean"], "o", color=BLUE, ms=3, mew=0, alpha=0.7, label="trial")
        axes.step(front["core_seconds"], front["val_mean"], "o-", where="post", color=VERMILION, ms=3.5, lw=1.0,
                  label="bettered by none in both")  # fmt: skip
        default = done[done["is_default"]]
        axes.plot(default["core_seconds"], default["val_mean"], "*", color="black", ms=6, label="default")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("core-seconds of a replica", labelpad=1.5)
        axes.set_ylabel(f"validation {axis_metric(metric)}")
        axes.legend(loc="lower right" if metric.higher_is_better else "upper right", fontsize=6, **LEGEND)
        _title(figure, f"{study.datasets[0]}: score against time")
        return _laid_out(figure)


def _figure(width: float, height: float, study: SearchStudy) -> Figure:
    """An empty figure, sizes in inches; what is to be told of the protocol stands below them."""
    footer = wrap_footer(["", *(f"{note}." for note in protocol_notes(study))], width - 0.3)
    below = FOOTER_LINE * len(footer) + 0.06 if footer else 0.0
    figure = Figure(figsize=(width, height + below))
    FigureCanvasAgg(figure)
    share = below / (height + below)
    figure.set_layout_engine("constrained", rect=(0, share, 1, 1 - share))
    draw_footer(figure, footer)
    return figure


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, size=8, weight="bold", x=0.01, ha="left")


def _laid_out(figure: Figure) -> Figure:
    """The figure with everything in its place for good: otherwise each file that is written finds it anew."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _done(tables: SearchTables) -> pd.DataFrame:
    return tables.trials[tables.trials["state"] == "complete"]


def _with_field(done: pd.DataFrame, study: SearchStudy, name: str) -> pd.DataFrame:
    """Trials for which a field has a meaning."""
    return done[done["masking"] != "none"] if name == "mask_prob" else done


def _is_log(study: SearchStudy, name: str) -> bool:
    domain = study.space.searched[name]
    return isinstance(domain, Range) and domain.log


def _place(value: Any, study: SearchStudy, name: str) -> float:
    """Where a value lies: choices have one place each, in their order."""
    domain = study.space.searched[name]
    return float(value) if isinstance(domain, Range) else float(domain.values.index(value))


def _places(values: pd.Series[Any], study: SearchStudy, name: str) -> np.ndarray:
    return np.array([_place(value, study, name) for value in values])


def _heights(done: pd.DataFrame, study: SearchStudy, name: str) -> np.ndarray:
    """Values of a field between 0 and 1 from the low to the high end; nan where it has no meaning."""
    domain = study.space.searched[name]
    places = _places(done[name], study, name) if name != "mask_prob" else done[name].to_numpy(dtype=float)
    if name == "mask_prob":
        places = np.where(done["masking"] == "none", math.nan, places)
        if not isinstance(domain, Range):
            places = np.array([math.nan if math.isnan(p) else float(domain.values.index(p)) for p in places])
    if not isinstance(domain, Range):
        return np.asarray(places / (len(domain.values) - 1))
    low, high = (math.log(end) if domain.log else end for end in (domain.low, domain.high))
    return np.asarray(((np.log(places) if domain.log else places) - low) / (high - low))


def _end_texts(study: SearchStudy, name: str) -> tuple[str, str]:
    domain = study.space.searched[name]
    ends = domain.ends if isinstance(domain, Range) else (domain.values[0], domain.values[-1])
    return value_text(ends[0]), value_text(ends[1])


def _scale_x(axes: Axes, study: SearchStudy, name: str) -> None:
    axes.set_xlabel(name, labelpad=1.5)
    if _is_log(study, name):
        axes.set_xscale("log")
    ticks, labels, limits = _ticks(study, name)
    axes.set_xticks(ticks, labels)
    axes.set_xticks([], minor=True)
    axes.set_xlim(*limits)


def _scale_y(axes: Axes, study: SearchStudy, name: str) -> None:
    axes.set_ylabel(name)
    if _is_log(study, name):
        axes.set_yscale("log")
    ticks, labels, limits = _ticks(study, name)
    axes.set_yticks(ticks, labels)
    axes.set_yticks([], minor=True)
    axes.set_ylim(*limits)


def _ticks(study: SearchStudy, name: str) -> tuple[list[float], list[str], tuple[float, float]]:
    """Places, their labels, and limits: of a range both ends and the middle, of choices all."""
    domain = study.space.searched[name]
    if not isinstance(domain, Range):
        places = list(map(float, range(len(domain.values))))
        return places, [value_text(value) for value in domain.values], (-0.5, len(domain.values) - 0.5)
    middle = math.sqrt(domain.low * domain.high) if domain.log else (domain.low + domain.high) / 2
    if domain.is_whole:
        middle = round(middle)
    ticks = [domain.low, middle, domain.high]
    if domain.log:
        edge = (domain.high / domain.low) ** 0.06
        return ticks, [f"{tick:.3g}" for tick in ticks], (domain.low / edge, domain.high * edge)
    edge = 0.06 * (domain.high - domain.low)
    return ticks, [f"{tick:.3g}" for tick in ticks], (domain.low - edge, domain.high + edge)


def _bar(figure: Figure, grid: Any, norm: Normalize, label: str, colours: str = COLOURS) -> None:
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=grid, pad=0.01, aspect=40)
    bar.set_label(label)
    bar.outline.set_linewidth(0.4)
