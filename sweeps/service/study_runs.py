"""The runs of a study in MLflow, from result records and from what is published of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sweeps.service.notes import protocol_notes
from sweeps.service.points import Study
from sweeps.service.publish import Published
from sweeps.service.results import ResultsStore
from sweeps.service.runs import Status, StudyRun
from sweeps.service.tracker import Tracker


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
                study.default_of(dataset).to_dict(),
                points=[point.to_dict() for point in study.unique_points_of(dataset)],
                unfinished=[point.to_dict() for point in unfinished],
                note=_note(study.only(dataset)),
                tags={
                    "seeds": ",".join(map(str, study.seeds)),
                    study.extent_name: ",".join(study.extent),
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

    def finish(self, study: Study, published: Published) -> None:
        """Write the aggregates of every point of a study of one data set, and its files as artifacts.

        A point that lacks replicas, and then its study, is shown as failed.
        """
        (dataset,) = study.datasets
        run = self._runs[dataset]
        asked = Counter(replica.hyperparameters for replica in study.replicas[dataset])
        all_missing = 0
        for hyperparameters, summary in published.summaries[dataset].items():
            missing = asked[hyperparameters] - summary["n"] - summary["diverged"]
            self._tracker.point(run, hyperparameters.to_dict(), {**summary, "missing": missing}, _status(missing))
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
    values = "; ".join(f"{name} {', '.join(map(_short, values))}" for name, values in study.extent.items())
    notes = "".join(f"\n\n{note}." for note in protocol_notes(study))
    return f"Points: {values}; everything else at the default. Seeds {', '.join(map(str, study.seeds))}.{notes}"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
