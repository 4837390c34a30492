"""What the figure of own panels says in words."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from sweeps.service.captions import SENSITIVITY, Words, dataset_line, drawn_text, figure_notes, testing_text
from sweeps.service.notes import seeds_and_probes
from sweeps.service.own_panels import OwnPanelsStudy
from sweeps.service.point_fields import value_text


def words_of(study: OwnPanelsStudy) -> Words:
    """How its points are compared and adjusted."""
    return SENSITIVITY._replace(family="panel or map") if study.maps else SENSITIVITY


def caption_text(
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: OwnPanelsStudy,
    titles: Mapping[str, str] | None = None,
) -> str:
    """The caption as plain text; see :func:`sweeps.service.captions.caption_text`."""
    titles = titles or {}
    words = words_of(study)
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    text = [
        f"Sensitivity of {', '.join(titles.get(dataset, dataset) for dataset in datasets)} to "
        f"{', '.join(panel_titles(study))}.",
        f"{_what_moves(study)}; everything else stays at the default ({_defaults(study)}).",
        *([drawn_text(replicas, study)] if study.panels else []),
        *([_map_text(replicas, study)] if study.maps else []),
        *testing_text(significance, study, words),
    ]
    lines = [dataset_line(name, titles.get(name, name), significance, replicas, words) for name in datasets]
    notes = [f"{note}." for note in figure_notes(study, replicas)]
    return "\n".join([" ".join(text), *lines, *notes]) + "\n"


def panel_titles(study: OwnPanelsStudy) -> list[str]:
    """``w_sord``, ``w_sord × tau``: panels, then maps."""
    maps = [" × ".join(side.field for side in of_two.sides) for of_two in study.maps]
    return [*(panel.key for panel in study.panels), *maps]


def _what_moves(study: OwnPanelsStudy) -> str:
    if not study.maps:
        return "Each panel moves one of them" if len(study.panels) > 1 else "One field moves"
    maps = "each map moves two" if len(study.maps) > 1 else "the map moves two"
    return f"Each panel moves one of them, {maps}" if study.panels else maps[0].upper() + maps[1:]


def _defaults(study: OwnPanelsStudy) -> str:
    """Default values of all fields that are moved, and how they are told from others."""
    sides = {side.field: side for side in (*study.panels, *(side for of_two in study.maps for side in of_two.sides))}
    told = [f"{name} {' or '.join(map(value_text, study.default_values(side)))}" for name, side in sides.items()]
    shown = (["bold tick"] if study.panels else []) + (["framed cell"] if study.maps else [])
    return f"{', '.join(told)}; {', '.join(shown)}"


def _map_text(replicas: pd.DataFrame, study: OwnPanelsStudy) -> str:
    """What cells of maps are."""
    if replicas["dataset"].nunique() == 1:
        cells = f"mean test score over {seeds_and_probes(study)}, brighter is better"
    else:
        cells = (
            f"mean paired difference of the test score to the default over {seeds_and_probes(study)}, signed so that "
            "above 0 (blue) is better, errors in sd of the train target"
        )
    return f"Cells of maps: {cells}; below it the mark, n diverged replicas (†n), and seeds there of those asked for."
