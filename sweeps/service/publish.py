"""From result records to what a person reads: tables, figure, caption, manifest, and the runs in MLflow.

Everything here is computed from the records, so it can be made again at any time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from sweeps.service.captions import caption_text, protocol_notes
from sweeps.service.contrasts import significance_frame
from sweeps.service.figures import save_figure, sensitivity_figure
from sweeps.service.files import write_text
from sweeps.service.points import Study
from sweeps.service.results import ResultsStore
from sweeps.service.runs import Status, StudyRun
from sweeps.service.tables import points_frame, replica_frame, rows_of, write_manifest, write_tables
from sweeps.service.tracker import Tracker

SUMMARY = {"test_mean": "mean", "test_sd": "sd", "test_low": "low", "test_high": "high", "val_mean": "val_mean"}
"""Metric of a point's MLflow run -> column of the table of points."""


@dataclass(frozen=True)
class Published:
    """One folder of tables and figures."""

    study: Study
    folder: Path
    files: tuple[Path, ...]
    points: pd.DataFrame
    significance: pd.DataFrame


def folder_of(output: Path, study: Study) -> Path:
    """``<output>/<study>/<data set>``; several data sets are joined by ``+``."""
    return output / study.name / "+".join(study.datasets)


def publish(
    study: Study,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
    test: Literal["wilcoxon", "t"],
    manifest: Mapping[str, Any],
) -> Published:
    """Write ``replicas.csv``, ``points.csv``, ``significance.csv``, the figure, ``caption.txt`` and ``manifest.json``.

    ``metrics`` and ``primary`` name a metric per data set.  A departure from the paper's protocol goes on the figure,
    into the caption and, as ``notes``, into the manifest.
    """
    replicas = replica_frame(records, study, metrics, primary)
    points = points_frame(replicas, study)
    significance = significance_frame(replicas, study, test=test)
    frames = {"replicas": replicas, "points": points, "significance": significance}
    files = write_tables(folder, **frames)
    files += save_figure(sensitivity_figure(points, significance, replicas, study), folder)
    files.append(write_text(folder / "caption.txt", caption_text(points, significance, replicas, study)))
    notes = list(protocol_notes(study))
    files.append(write_manifest(folder / "manifest.json", {**manifest, "notes": notes, "metrics": dict(metrics)}))
    return Published(study, folder, tuple(files), points, significance)


def replaced_study(folder: Path, manifest: Mapping[str, Any]) -> str | None:
    """What the folder's tables and figure show now, if they hold something that the new ones will not; else None."""
    try:
        old = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        same = all(old[part] == manifest[part] for part in ("budget", "protocol", "default", "seeds_vary"))
        if same and set(old["seeds"]) <= set(manifest["seeds"]) and set(old["panels"]) <= set(manifest["panels"]):
            return None
        panels = f"panels {', '.join(old['panels'])}"
        return f"{len(old['seeds'])} seeds, {old['budget']['epochs']} epochs, {panels}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


class StudyRuns:
    """The studies of one run in MLflow, one per data set."""

    def __init__(self, tracker: Tracker, study: Study, results: ResultsStore, done: Container[str]) -> None:
        """``done``: ids of the replicas that have results already."""
        self._tracker = tracker
        self._results = results
        self._runs: dict[str, StudyRun] = {}
        for dataset, replicas in study.replicas.items():
            unfinished = dict.fromkeys(replica.hyperparameters for replica in replicas if replica.id not in done)
            self._runs[dataset] = tracker.study(
                study.name,
                replicas[0].identity(),
                study.default.to_dict(),
                points=[point.to_dict() for point in study.unique_points],
                unfinished=[point.to_dict() for point in unfinished],
                note=_note(study.only(dataset)),
                tags={
                    "seeds": ",".join(map(str, study.seeds)),
                    "panels": ",".join(panel.key for panel in study.panels),
                },
            )

    @property
    def pages(self) -> dict[str, str]:
        """Per data set what to append to the interface's address; complete once the tracker is closed."""
        pages = {dataset: self._tracker.page(run) for dataset, run in self._runs.items()}
        return {dataset: page for dataset, page in pages.items() if page is not None}

    def replicas(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write finished replicas, whose files are read again when it is their turn; those already there stay."""
        for record in records:
            dataset = record["identity"]["dataset"]
            path = self._results.path(dataset, record["id"])
            self._tracker.replica(self._runs[dataset], partial(_read, path))

    def finish(self, published: Published) -> None:
        """Write the aggregates of every point of one data set, and its files as artifacts.

        A point that lacks replicas, and then its study, is shown as failed.
        """
        study = published.study
        (dataset,) = study.datasets
        run = self._runs[dataset]
        rows = rows_of(published.points, dataset).to_dict("records")
        # The default point has a row in every panel, all alike; MLflow has one run per point.
        summaries = {p.hyperparameters: row for p, row in zip(study.points, rows, strict=True)}
        asked = Counter(replica.hyperparameters for replica in study.replicas[dataset])
        all_missing = 0
        for hyperparameters, row in summaries.items():
            numbers = {name: row[column] for name, column in SUMMARY.items()}
            missing = asked[hyperparameters] - row["n"] - row["n_diverged"]
            counts = {"n": row["n"], "diverged": row["n_diverged"], "missing": missing}
            summary = {**numbers, **counts, "metric": row["metric"]}
            self._tracker.point(run, hyperparameters.to_dict(), summary, _status(missing))
            all_missing += missing
        self._tracker.finish(run, published.files, _status(all_missing), all_missing)

    def abandon(self, study: Study, done: Container[str], status: Status) -> None:
        """End the studies of all data sets of ``study`` without aggregates, as they are."""
        for dataset, replicas in study.replicas.items():
            missing = sum(replica.id not in done for replica in replicas)
            self._tracker.finish(self._runs[dataset], (), status, missing)


def _status(missing: int) -> Status:
    return "FAILED" if missing else "FINISHED"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _note(study: Study) -> str:
    values = "; ".join(f"{panel.key} {', '.join(f'{value:g}' for value in panel.values)}" for panel in study.panels)
    notes = "".join(f"\n\n{note}." for note in protocol_notes(study))
    return f"Points: {values}; everything else at the default. Seeds {', '.join(map(str, study.seeds))}.{notes}"
