"""What an architecture study leaves: tables, the heat map, caption and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from sweeps.service.architectures import ArchitectureStudy
from sweeps.service.captions_architecture import caption_text, choice_text
from sweeps.service.figures_architecture import architecture_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.notes import protocol_notes
from sweeps.service.publish import Published
from sweeps.service.tables import write_manifest, write_tables
from sweeps.service.tables_architecture import architecture_tables, summary_table
from sweeps.service.tables_grid import point_summaries


def publish(
    study: ArchitectureStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, ``comparison.csv``, the figure, ``caption.txt`` and ``manifest.json``.

    ``study`` is of one data set; ``primary`` names its primary metric.
    """
    (dataset,) = study.datasets
    metric = primary[dataset]
    tables = architecture_tables(records, study, metric)
    files = write_tables(folder, replicas=tables.replicas, points=tables.points, comparison=tables.comparison_frame)
    files += save_figure(architecture_figure(tables, study), folder)
    files.append(write_text(folder / "caption.txt", caption_text(tables, study)))
    chosen = tables.decision.chosen
    told = {
        **manifest,
        "notes": list(protocol_notes(study)),
        "metrics": {dataset: metric},
        "chosen": None if chosen is None else chosen.architecture.to_dict(),
    }
    files.append(write_manifest(folder / "manifest.json", told))
    return Published(
        folder,
        tuple(files),
        summaries={(dataset, study.seeds_vary): point_summaries(tables.points, study)},
        shown=(summary_table(tables, study), Text(choice_text(tables, study))),
    )
