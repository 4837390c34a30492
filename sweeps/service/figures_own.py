"""The figure of own panels: those of one field as in the paper's figure, below them a heat map per pair of fields.

With one data set maps show test scores; several have a map each, of differences to their defaults.  Layout is in
inches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_label, figure_notes, mark_key, value_labels
from sweeps.service.captions_own import words_of
from sweeps.service.figures import draw_legend, draw_panels, legend_entries, write_letter
from sweeps.service.figures_heat import (
    CELL_HEIGHT,
    CELL_WIDTH,
    Shown,
    Side,
    colour_scale,
    difference_colours,
    draw_bar,
    draw_map,
)
from sweeps.service.figures_style import SETTINGS, draw_footer
from sweeps.service.layout import WIDTH, Layout, columns_for, flow
from sweeps.service.own_panels import OwnPanelsStudy, PanelMap
from sweeps.service.panels import Panel
from sweeps.service.point_fields import value_text
from sweeps.service.series import difference_scale
from sweeps.service.tables import rows_of

_CHARACTER = 0.056
"""Width of one in a tick label, about."""
_ABOVE, _BELOW, _LABEL, _RIGHT = 0.3, 0.38, 0.24, 0.14
"""Room around a map: its title, its tick labels across and their name, the name of those down, and the next map."""
_BAR, _BAR_LABELS = 0.12, 0.72


@dataclass(frozen=True)
class _Map:
    """The map of one data set, and its cells, a row each."""

    of_two: PanelMap
    dataset: str
    cells: pd.DataFrame

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of its cells."""
        return CELL_WIDTH * len(self.of_two.across.values), CELL_HEIGHT * len(self.of_two.down.values)

    @property
    def left(self) -> float:
        """Room for its labels."""
        return _LABEL + _CHARACTER * max(len(value_text(value)) for value in self.of_two.down.values)

    @property
    def outer(self) -> tuple[float, float]:
        """Width and height with all labels."""
        width, height = self.inner
        return self.left + width + _RIGHT, _ABOVE + height + _BELOW


def own_figure(
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: OwnPanelsStudy,
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Draw the figure of a study from its tables; see :func:`sweeps.service.figures.sensitivity_figure`.

    Marks of cells have the id ``mark-<data set>-<map>-<value across>-<value down>``; other ids of cells are those of
    :func:`sweeps.service.figures_heat.draw_map`.  Raises DataError when there is no replica at all.
    """
    titles = titles or {}
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    if not datasets:
        raise DataError("a figure needs the result of at least one replica, got none")
    maps = [
        _Map(of_two, dataset, _cells(study, of_two, dataset, points, significance, replicas, joint=len(datasets) > 1))
        for of_two in study.maps
        for dataset in datasets
    ]
    with mpl.rc_context(SETTINGS):
        footer = [mark_key(significance, words_of(study)), *(f"{note}." for note in figure_notes(study, replicas))]
        entries = legend_entries(datasets, replicas, points, study, titles)
        layout, places = _layout(study, maps, len(datasets), len(entries), footer)
        figure = Figure(figsize=(layout.width, layout.height))
        FigureCanvasAgg(figure)
        if study.panels:
            draw_panels(figure, layout, points, significance, replicas, study)
            draw_legend(figure, layout, entries)
        if maps:
            _draw_maps(figure, layout, maps, places, study, replicas, titles)
        draw_footer(figure, layout.footer)
    return figure


def _layout(
    study: OwnPanelsStudy, maps: Sequence[_Map], n_datasets: int, n_entries: int, footer: Sequence[str]
) -> tuple[Layout, list[tuple[float, float]]]:
    """Layout of the panels above, and left and top of each map, and of the colour scale, in the room below."""
    sizes = [one.outer for one in maps]
    bar = _RIGHT + _BAR + _BAR_LABELS
    page = max([WIDTH, *(width + bar for width, _ in sizes)])
    if maps:
        sizes.append((bar, maps[-1].outer[1]))
    places, below = flow(sizes, page)
    columns = 1
    if study.panels:
        needed = max(_width_of(panel, study) for panel in study.panels)
        columns = columns_for(len(study.panels), needed, n_datasets)
    width = None
    if maps:
        taken = max(left + size[0] for (left, _), size in zip(places, sizes, strict=True))
        columns, width = (max(columns, min(3, len(study.panels) + 1)), page) if study.panels else (1, max(3.4, taken))
    return Layout.of(
        len(study.panels), n_datasets, n_entries, footer, columns=columns, width=width, below=below
    ), places


def _width_of(panel: Panel, study: OwnPanelsStudy) -> float:
    """Inches that a panel's tick labels need side by side."""
    labels = value_labels(panel.values, study.default_values(panel))
    # Mathtext: powers are some four characters wide; all else stands between the braces.
    longest = max(4 if "^" in label else len(label.split("{")[-1].rstrip("}$")) for label in labels)
    return (len(labels) + 0.1) * (_CHARACTER * longest + 0.06)


def _cells(
    study: OwnPanelsStudy,
    of_two: PanelMap,
    dataset: str,
    points: pd.DataFrame,
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    *,
    joint: bool,
) -> pd.DataFrame:
    """Rows of the table of points, with the value of each field, the mark, and what is shown: see :func:`_shown`."""
    rows = rows_of(points, dataset, of_two.key)
    contrasts = rows_of(significance, dataset, of_two.key).set_index("value")
    scale = difference_scale(rows_of(replicas, dataset)) if joint else 1.0
    cells = []
    for row in rows.to_dict("records"):
        told: dict[Any, Any] = {
            "mark": "",
            "difference": 0.0,
            "n_missing": len(study.seeds) - row["n"] - row["n_diverged"],
        }
        if not row["is_default"]:
            contrast = contrasts.loc[row["value"]]
            told |= {"mark": contrast["mark"], "difference": contrast["difference"] * scale}
        cells.append({**row, **of_two.cells[row["value"]], **told})
    return pd.DataFrame(cells)


def _shown(maps: Sequence[_Map], replicas: pd.DataFrame) -> tuple[Shown, ScalarMappable]:
    """What all cells print and are coloured by: scores of one data set, or differences of several."""
    cells = pd.concat([one.cells for one in maps])
    if replicas["dataset"].nunique() > 1:
        return Shown("difference", "+.4f"), difference_colours(cells["difference"])
    return Shown("mean", ".4f"), colour_scale(cells, get_metric(replicas["metric"].iloc[0]), "mean")


def _draw_maps(
    figure: Figure,
    layout: Layout,
    maps: Sequence[_Map],
    places: Sequence[tuple[float, float]],
    study: OwnPanelsStudy,
    replicas: pd.DataFrame,
    titles: Mapping[str, str],
) -> None:
    """Maps one after the other, then the colour scale."""
    shown, scale = _shown(maps, replicas)
    is_named = len({one.dataset for one in maps}) > 1 or not study.panels
    for one, (left, top) in zip(maps, places, strict=False):
        width, height = one.inner
        of_two = one.of_two
        across, down = (Side(side.field, side.values) for side in of_two.sides)
        place = (left + one.left, layout.bottom - top - _ABOVE - height, width, height)
        axes = figure.add_axes(_fractions(place, layout))
        draw_map(axes, one.cells, across, down, scale, prefix=f"{one.dataset}-{of_two.key}-", shown=shown)
        axes.set_xlabel(of_two.across.symbol, labelpad=1.5)
        axes.set_ylabel(of_two.down.symbol, labelpad=2)
        if len(study.panel_keys) > 1 and one.dataset == maps[0].dataset:
            write_letter(axes, of_two.letter, 3)
        if is_named:
            axes.set_title(titles.get(one.dataset, one.dataset), size=7.5, pad=3)
    left, top = places[-1]
    height = maps[-1].inner[1]
    place = (left + _RIGHT, layout.bottom - top - _ABOVE - height, _BAR, height)
    draw_bar(figure, _fractions(place, layout), scale, axis_label(replicas))


def _fractions(place: tuple[float, float, float, float], layout: Layout) -> tuple[float, float, float, float]:
    left, bottom, width, height = place
    return left / layout.width, bottom / layout.height, width / layout.width, height / layout.height
