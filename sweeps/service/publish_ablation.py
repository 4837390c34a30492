"""What an ablation study leaves: its tables, the figure of its variants, caption and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.service.captions_ablation import caption_text
from sweeps.service.figures_ablation import ablation_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.notes import protocol_notes
from sweeps.service.points import Point
from sweeps.service.publish import Published
from sweeps.service.publish_sensitivity import summary_of
from sweeps.service.tables import rows_of, write_manifest, write_tables
from sweeps.service.tables_ablation import AblationTables, ablation_tables, refinement_table, summary_table
from sweeps.service.variants import AblationStudy


def publish(
    study: AblationStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, ``significance.csv``, the figure, ``caption.txt`` and ``manifest.json``.

    ``metrics`` and ``primary`` name a metric per data set.  A departure from the paper's protocol goes on the figure,
    into the caption and, as ``notes``, into the manifest.
    """
    tables = ablation_tables(records, study, metrics, primary)
    files = write_tables(folder, replicas=tables.replicas, points=tables.points, significance=tables.significance)
    files += save_figure(ablation_figure(tables, study), folder)
    files.append(write_text(folder / "caption.txt", caption_text(tables, study)))
    told = {**manifest, "notes": list(protocol_notes(study)), "metrics": dict(metrics)}
    files.append(write_manifest(folder / "manifest.json", told))
    # The tables of several data sets have been shown one by one.
    shown = tables.datasets if len(study.datasets) == 1 else []
    return Published(
        folder,
        tuple(files),
        summaries={(name, study.seeds_vary): _summaries(tables, study, name) for name in study.datasets},
        shown=tuple(table(tables, name) for name in shown for table in (summary_table, refinement_table)),
    )


def _summaries(tables: AblationTables, study: AblationStudy, dataset: str) -> dict[Point, dict[str, Any]]:
    """Aggregates of a data set, one per point: variants that share a point have rows that are alike."""
    rows = rows_of(tables.points, dataset).to_dict("records")
    return {
        study.point(dataset, variant.hyperparameters): summary_of(row)
        for variant, row in zip(study.variants[dataset], rows, strict=True)
    }
