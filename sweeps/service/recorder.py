"""Listens to a run: each record goes to its file first, then to MLflow, then to the view; failures are kept as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.service.failures import FailureLog
from sweeps.service.plan import Pack
from sweeps.service.progress import ProgressView
from sweeps.service.results import ResultsStore
from sweeps.service.work import Failure

if TYPE_CHECKING:
    from adaptbin.training.pack import PackProgress
    from sweeps.service.study_runs import StudyRuns


class Recorder:
    """See :class:`sweeps.service.work.Listener`."""

    def __init__(self, store: ResultsStore, failures: FailureLog, runs: StudyRuns, view: ProgressView) -> None:
        self._store = store
        self._failures = failures
        self._runs = runs
        self._view = view

    def began(self, pack: Pack, worker: Mapping[str, Any]) -> None:
        """A worker took a pack."""
        self._view.began(pack, worker)

    def progress(self, pack: Pack, progress: PackProgress) -> None:
        """A pack got on."""
        self._view.progress(pack, progress)

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        """A pack is done: its records are on disk when this returns."""
        for record in records:
            self._store.write(record)
        self._failures.clear(records)
        self._runs.replicas(records)
        self._view.finished(pack)

    def failed(self, pack: Pack, failure: Failure) -> None:
        """A pack will not be finished."""
        self._failures.write(pack.replicas, failure)
        self._view.failed(pack, failure)

    def retried(self, pack: Pack, reason: str) -> None:
        """A pack starts again."""
        self._view.retried(pack, reason)
