"""What the models without pretraining leave, per data set: a table of their scores, and a manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from adaptbin.config import METHOD_VERSION, Protocol
from adaptbin.data import Table
from adaptbin.metrics import get_metric
from sweeps.service.alternatives import scores_frame
from sweeps.service.manifest import git_state, hardware, versions
from sweeps.service.tables import write_manifest, write_tables

STUDY = "alternatives"
"""Folder under the output."""


def folder_of(output: Path, table: Table) -> Path:
    """``<output>/alternatives/<data set>``."""
    return output / STUDY / table.card.key


def publish(table: Table, output: Path, *, seeds: Sequence[int], protocol: Protocol) -> str:
    """Fit and score; write ``scores.csv`` and ``manifest.json`` below ``<output>/alternatives/<data set>``.

    Returns what the console shows.
    """
    scores = scores_frame(table, seeds=seeds, protocol=protocol)
    card, folder = table.card, folder_of(output, table)
    write_tables(folder, scores=scores)
    told = {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "study": STUDY,
        "method_version": METHOD_VERSION,
        "git": git_state(),
        "versions": versions(),
        "hardware": hardware(),
        "tables": {card.key: card.summary()},
        "protocol": protocol.to_dict(),
        "seeds": list(seeds),
        "metrics": {card.key: str(scores["metric"].iloc[0])},
        "notes": [],
    }
    write_manifest(folder / "manifest.json", told)
    return "\n".join([*_lines(scores), f"{card.key}: {folder}"])


def _lines(scores: pd.DataFrame) -> list[str]:
    """``eol HistGradientBoosting: test QWK 0.9939 (1 fit)`` per model."""
    return [
        f"{dataset} {model}: test {get_metric(rows['metric'].iloc[0]).label} {rows['test'].mean():.4f} "
        f"({len(rows)} fit{'s' if len(rows) > 1 else ''})"
        for (dataset, model), rows in scores.groupby(["dataset", "model"], sort=False)
    ]
