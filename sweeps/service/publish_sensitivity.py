"""What a sensitivity study leaves: its tables, the figure of its panels, caption and manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from sweeps.service.captions import caption_text, refinement_text
from sweeps.service.contrasts import significance_frame
from sweeps.service.figures import sensitivity_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.notes import protocol_notes
from sweeps.service.panels import SensitivityStudy
from sweeps.service.points import Point
from sweeps.service.publish import Published
from sweeps.service.tables import points_frame, replica_frame, rows_of, summary_table, write_manifest, write_tables

SUMMARY = {"test_mean": "mean", "test_sd": "sd", "test_low": "low", "test_high": "high", "val_mean": "val_mean"}
"""Metric of a point's MLflow run -> column of the table of points."""


def publish(
    study: SensitivityStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
    draw: Callable[..., Any] = sensitivity_figure,
    describe: Callable[..., str] = caption_text,
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, ``significance.csv``, the figure, ``caption.txt`` and ``manifest.json``.

    ``metrics`` and ``primary`` name a metric per data set.  A departure from the paper's protocol goes on the figure,
    into the caption and, as ``notes``, into the manifest.  ``draw`` and ``describe`` make figure and caption.
    """
    replicas = replica_frame(records, study, metrics, primary)
    points = points_frame(replicas, study)
    significance = significance_frame(replicas, study, test=study.test)
    files = write_tables(folder, replicas=replicas, points=points, significance=significance)
    files += save_figure(draw(points, significance, replicas, study), folder)
    files.append(write_text(folder / "caption.txt", describe(significance, replicas, study)))
    notes = list(protocol_notes(study))
    files.append(write_manifest(folder / "manifest.json", {**manifest, "notes": notes, "metrics": dict(metrics)}))
    # The tables of several data sets have been shown one by one.
    drawn = [name for name in study.datasets if len(study.datasets) == 1 and name in set(replicas["dataset"])]
    return Published(
        folder,
        tuple(files),
        summaries={(name, study.seeds_vary): _summaries(points, study, name) for name in study.datasets},
        shown=tuple(shown for name in drawn for shown in _shown(points, significance, replicas, study, name)),
    )


def _shown(
    points: pd.DataFrame, significance: pd.DataFrame, replicas: pd.DataFrame, study: SensitivityStudy, dataset: str
) -> tuple[RenderableType, ...]:
    rows = rows_of(replicas, dataset)
    default = rows[rows["is_default"]].drop_duplicates("seed")
    refined = (Text(f"{dataset}: {refinement_text(default)}"),) if len(default) else ()
    return (summary_table(points, significance, study, dataset), *refined)


def _summaries(points: pd.DataFrame, study: SensitivityStudy, dataset: str) -> dict[Point, dict[str, Any]]:
    """Aggregates of a data set, one per point: the default has a row in every panel, all alike."""
    rows = rows_of(points, dataset).to_dict("records")
    return {place.point: summary_of(row) for place, row in zip(study.points[dataset], rows, strict=True)}


def summary_of(row: Mapping[Any, Any]) -> dict[str, Any]:
    """What a row of the table of points tells MLflow."""
    return {
        **{name: row[column] for name, column in SUMMARY.items()},
        "n": row["n"],
        "diverged": row["n_diverged"],
        "metric": row["metric"],
    }
