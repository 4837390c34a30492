"""What a fine-tuning study leaves: tables to compute with and to read, the figure of gains, caption and manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.service.captions_finetune import caption_text, table_caption
from sweeps.service.figures_finetune import finetune_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.notes import protocol_notes
from sweeps.service.points import Point
from sweeps.service.publish import Published
from sweeps.service.publish_sensitivity import summary_of
from sweeps.service.tables import rows_of, write_manifest, write_tables
from sweeps.service.tables_finetune import FinetuneTables, finetune_tables, summary_table
from sweeps.service.typeset_finetune import latex, markdown


def publish(
    study: FinetuneStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``table.csv``, ``table.md``, ``table.tex``, ``significance.csv``, ``replicas.csv``, the figure,
    ``caption.txt`` and ``manifest.json``.

    ``metrics`` and ``primary`` name a metric per data set.
    """
    tables = finetune_tables(records, study, metrics, primary)
    files = write_tables(folder, table=tables.table, significance=tables.significance, replicas=tables.replicas)
    files += save_figure(finetune_figure(tables, study), folder)
    words = table_caption(tables, study)
    files.append(write_text(folder / "table.md", markdown(tables.table, words)))
    files.append(write_text(folder / "table.tex", latex(tables.table, words)))
    files.append(write_text(folder / "caption.txt", caption_text(tables, study)))
    told = {
        **manifest,
        "notes": list(protocol_notes(study)),
        "metrics": {name: metrics[name] for name in study.datasets},
        "choices": {
            dataset: {objective: choice.to_dict() for objective, choice in choices.items()}
            for dataset, choices in study.pretext_choices.items()
        },
    }
    files.append(write_manifest(folder / "manifest.json", told))
    # The tables of several data sets have been shown one by one.
    shown = tables.datasets if len(study.datasets) == 1 else []
    return Published(
        folder,
        tuple(files),
        summaries={(name, study.seeds_vary): _summaries(tables, study, name) for name in study.datasets},
        shown=tuple(summary_table(tables, name) for name in shown),
    )


def _summaries(tables: FinetuneTables, study: FinetuneStudy, dataset: str) -> dict[Point, dict[str, Any]]:
    """Aggregates of a data set, one per arm."""
    rows = rows_of(tables.table, dataset).to_dict("records")
    return {study.point_of(dataset, arm): summary_of(row) for arm, row in zip(study.arms, rows, strict=True)}
