"""The figure of a search: how the best score grew with the trials, and which fields mattered.  Layout is in inches."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_search import found_text, importances_text
from sweeps.service.figures_style import SETTINGS, STYLES, draw_footer
from sweeps.service.layout import FOOTER_LINE, wrap_footer
from sweeps.service.notes import protocol_notes
from sweeps.service.searches import SearchStudy
from sweeps.service.tables_search import SearchTables

BLUE, VERMILION, GREEN = (STYLES[i][0] for i in range(3))

LEGEND: Any = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 1.0}
"""Trials may lie anywhere, so that a legend covers what is behind it."""

_WIDTH, _LEFT, _RIGHT, _BETWEEN, _ABOVE, _BELOW, _HEIGHT = 7.0, 0.62, 0.1, 1.15, 0.3, 0.36, 2.3
_HISTORY = 3.35
"""Width of the history; the importances have the rest."""

LOW_SHARE = 0.02
"""Share of scores, the worst ones, that an axis leaves out where they would press all others together."""


def search_figure(tables: SearchTables, study: SearchStudy) -> Figure:
    """Draw history and importances; ids are ``history`` and ``importances``."""
    (dataset,), metric = study.datasets, get_metric(study.metric)
    footer = wrap_footer([found_text(tables, study), *(f"{note}." for note in protocol_notes(study))], _WIDTH - 0.3)
    bottom = FOOTER_LINE * len(footer) + 0.08 + _BELOW
    height = bottom + _HEIGHT + _ABOVE
    right = _LEFT + _HISTORY + _BETWEEN
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(_WIDTH, height))
        FigureCanvasAgg(figure)
        sides = bottom / height, _HISTORY / _WIDTH, _HEIGHT / height
        _draw_history(figure.add_axes((_LEFT / _WIDTH, *sides)), tables, study)
        other = (_WIDTH - right - _RIGHT) / _WIDTH
        _draw_importances(figure.add_axes((right / _WIDTH, bottom / height, other, _HEIGHT / height)), tables)
        title = f"{dataset}: search by validation {axis_metric(metric)}"
        figure.text(_LEFT / _WIDTH, 1 - 0.05 / height, title, size=8, weight="bold", va="top")
        draw_footer(figure, footer)
    return figure


def score_limits(scores: np.ndarray, higher_is_better: bool) -> tuple[float, float]:
    """Limits of an axis of scores [n] that leaves out the worst few where they lie far off."""
    worst = np.quantile(scores, LOW_SHARE if higher_is_better else 1 - LOW_SHARE)
    best = scores.max() if higher_is_better else scores.min()
    edge = 0.08 * (abs(best - worst) or abs(best) or 1.0)
    low, high = sorted((float(worst), float(best)))
    return low - edge, high + edge


def _draw_history(axes: Axes, tables: SearchTables, study: SearchStudy) -> None:
    """Every trial's score, the best so far, and the default's."""
    axes.set_gid("history")
    frame = tables.trials.sort_values("trial")
    complete = frame[frame["state"] == "complete"]
    pruned = frame[frame["state"] == "pruned"]
    failed = frame[frame["state"] == "failed"]
    axes.set_xlabel("trial", labelpad=1.5)
    axes.set_ylabel(get_metric(study.metric).label)
    if complete.empty:
        axes.text(0.5, 0.5, "no complete trial", ha="center", va="center", transform=axes.transAxes)
        return
    higher = get_metric(study.metric).higher_is_better
    scores = complete["val_mean"].to_numpy(dtype=float)
    best = np.maximum.accumulate(scores) if higher else np.minimum.accumulate(scores)
    axes.plot(pruned["trial"], pruned["val_mean"], "x", color="#999999", ms=2.6, mew=0.6, label="left at a rung")
    axes.plot(complete["trial"], scores, "o", color=BLUE, ms=2.6, mew=0, alpha=0.7, label="trial")
    axes.step(complete["trial"], best, where="post", color=VERMILION, lw=1.0, label="best so far")
    default = tables.replicas[(tables.replicas["stage"] == "search") & tables.replicas["is_default"]]
    level = default["val"].mean()
    if np.isfinite(level):
        axes.axhline(level, color="black", lw=0.6, ls="--", label="default")
    shown = np.concatenate([scores, pruned["val_mean"].to_numpy(dtype=float), [level] if np.isfinite(level) else []])
    low, high = score_limits(shown, higher)
    axes.set_ylim(low, high)
    edge = low if higher else high
    beyond = scores[(scores < low) | (scores > high)]
    lost = complete["trial"][(scores < low) | (scores > high)]
    axes.plot(lost, np.full(len(beyond), edge), "v" if higher else "^", color=BLUE, ms=3, mew=0, clip_on=False)
    axes.plot(failed["trial"], np.full(len(failed), edge), "x", color="#9C1C1C", ms=3, clip_on=False)
    handles, labels = axes.get_legend_handles_labels()
    kept = [(h, label) for h, label in zip(handles, labels, strict=True) if label != "left at a rung" or len(pruned)]
    axes.legend(*zip(*kept, strict=True), loc="lower right" if higher else "upper right", fontsize=6, **LEGEND)
    told = [
        f"{name} at the edge: {what}"
        for name, what, there in (("triangle", "far off", len(beyond)), ("red cross", "failed", len(failed)))
        if there
    ]
    axes.set_title("; ".join(told), fontsize=6, loc="right", pad=2)


def _draw_importances(axes: Axes, tables: SearchTables) -> None:
    """Two bars per field, the most important above."""
    axes.set_gid("importances")
    frame = tables.importances
    if frame.empty:
        axes.set_axis_off()
        axes.text(0, 0.5, importances_text(tables), va="center", wrap=True, transform=axes.transAxes, fontsize=6)
        return
    places = np.arange(len(frame))
    for shift, name, label, colour in ((-0.2, "fanova", "fANOVA", BLUE), (0.2, "ped_anova", "PED-ANOVA", GREEN)):
        axes.barh(places + shift, frame[name], height=0.38, color=colour, label=label, lw=0)
    axes.set_yticks(places, list(frame["field"]))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("importance (share)", labelpad=1.5)
    axes.legend(loc="lower right", fontsize=6, **LEGEND)
