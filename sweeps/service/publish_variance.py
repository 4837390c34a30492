"""What a variance study leaves: its tables, the figure of its components, caption and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.service.captions_variance import caption_text
from sweeps.service.figures_style import save_figure
from sweeps.service.figures_variance import variance_figure
from sweeps.service.files import write_text
from sweeps.service.notes import protocol_notes
from sweeps.service.publish import Published
from sweeps.service.tables import write_manifest, write_tables
from sweeps.service.tables_variance import summary_table, variance_tables
from sweeps.service.variance import VarianceStudy


def publish(
    study: VarianceStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, ``components.csv``, the figure, ``caption.txt`` and ``manifest.json``.

    ``study`` is of one data set; ``primary`` names its primary metric.
    """
    (dataset,) = study.datasets
    metric = primary[dataset]
    tables = variance_tables(records, study, metric)
    files = write_tables(folder, replicas=tables.replicas, points=tables.points, components=tables.components)
    files += save_figure(variance_figure(tables, study), folder)
    files.append(write_text(folder / "caption.txt", caption_text(tables, study)))
    told = {**manifest, "notes": list(protocol_notes(study)), "metrics": {dataset: metric}}
    files.append(write_manifest(folder / "manifest.json", told))
    return Published(
        folder,
        tuple(files),
        summaries={
            (dataset, row["seeds_vary"]): {
                study.default_point_of(dataset): {
                    "test_mean": row["mean"],
                    "test_sd": row["sd"],
                    "val_mean": row["val_mean"],
                    "n": row["n"],
                    "diverged": row["n_diverged"],
                    "metric": metric,
                }
            }
            for row in tables.points.to_dict("records")
        },
        shown=(summary_table(tables),),
    )
