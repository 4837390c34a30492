"""The runs of a study in MLflow, from result records and from what is published of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from adaptbin.config import Replica, SeedsVary
from sweeps.service.notes import protocol_notes
from sweeps.service.points import Study, point_of
from sweeps.service.publish import Published
from sweeps.service.results import ResultsStore
from sweeps.service.runs import Status, StudyRun
from sweeps.service.tracker import Tracker


class StudyRuns:
    """The studies of one run in MLflow, one per data set and per what its seeds vary."""

    def __init__(self, tracker: Tracker, study: Study, results: ResultsStore, done: Container[str]) -> None:
        """``done``: ids of the replicas that have results already."""
        self._tracker = tracker
        self._results = results
        self._runs: dict[tuple[str, SeedsVary], StudyRun] = {}
        for dataset in study.datasets:
            for seeds_vary, replicas in _by_kind_of_seeds(study, dataset).items():
                unfinished = dict.fromkeys(point_of(replica) for replica in replicas if replica.id not in done)
                default = study.default_point_of(dataset)
                identity = study.replica(study.card(dataset), default, study.seeds[0], seeds_vary).identity()
                self._runs[dataset, seeds_vary] = tracker.study(
                    study.name if len(study.all_seeds_vary) == 1 else f"{study.name} ({seeds_vary})",
                    identity,
                    default.hyperparameters.to_dict(),
                    points=[point.settings(study.moved) for point in study.points_of(dataset)],
                    unfinished=[point.settings(study.moved) for point in unfinished],
                    moved=study.moved,
                    # The default may be from scratch: the others' pretraining tells studies apart.
                    epochs=max(point.budget.epochs for point in study.points_of(dataset)),
                    note=_note(study.only(dataset), seeds_vary),
                    tags={
                        "seeds": ",".join(map(str, study.seeds)),
                        study.extent_name: ",".join(study.extent),
                    },
                )

    @property
    def pages(self) -> dict[str, str]:
        """Per data set what to append to the interface's address; complete once the tracker is closed."""
        pages = {dataset: self._tracker.page(run) for (dataset, _), run in self._runs.items()}
        return {dataset: page for dataset, page in pages.items() if page is not None}

    def replicas(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write finished replicas, whose files are read again when it is their turn; those already there stay."""
        for record in records:
            dataset, seeds_vary = record["identity"]["dataset"], record["identity"]["seeds_vary"]
            path = self._results.path(dataset, record["id"])
            self._tracker.replica(self._runs[dataset, seeds_vary], partial(_read, path))

    def finish(self, study: Study, published: Published) -> None:
        """Write the aggregates of every point of a study of one data set, and its files as artifacts.

        A point that lacks replicas, and then its study, is shown as failed.
        """
        (dataset,) = study.datasets
        for seeds_vary, replicas in _by_kind_of_seeds(study, dataset).items():
            run = self._runs[dataset, seeds_vary]
            asked = Counter(point_of(replica) for replica in replicas)
            all_missing = 0
            for point, summary in published.summaries[dataset, seeds_vary].items():
                missing = asked[point] - summary["n"] - summary["diverged"]
                told = {**summary, "missing": missing}
                self._tracker.point(run, point.settings(study.moved), told, _status(missing))
                all_missing += missing
            self._tracker.finish(run, published.files, _status(all_missing), all_missing)

    def abandon(self, study: Study, done: Container[str], status: Status) -> None:
        """End the studies of all data sets of ``study`` without aggregates, as they are."""
        for dataset in study.datasets:
            for seeds_vary, replicas in _by_kind_of_seeds(study, dataset).items():
                missing = sum(replica.id not in done for replica in replicas)
                self._tracker.finish(self._runs[dataset, seeds_vary], (), status, missing)


def _by_kind_of_seeds(study: Study, dataset: str) -> dict[SeedsVary, list[Replica]]:
    """Replicas of a data set by what their seeds vary: each has a tree of its own."""
    replicas = study.replicas[dataset]
    return {kind: [r for r in replicas if r.seeds_vary == kind] for kind in study.all_seeds_vary}


def _status(missing: int) -> Status:
    return "FAILED" if missing else "FINISHED"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _note(study: Study, seeds_vary: SeedsVary) -> str:
    values = "; ".join(f"{name} {', '.join(map(_short, values))}" for name, values in study.extent.items())
    points = f"Points: {values}; everything else at the default."
    if len(study.all_seeds_vary) > 1:
        points = f"One of {len(study.all_seeds_vary)} kinds of seeds ({values}): {seeds_vary}. The default point alone."
    notes = "".join(f"\n\n{note}." for note in protocol_notes(study))
    return f"{points} Seeds {', '.join(map(str, study.seeds))}.{notes}"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
