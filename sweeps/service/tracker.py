"""Result records as MLflow runs, written beside the sweep by one thread that outlives whatever happens to the store.

A projection, not a store: the results files stay the truth, and projecting them again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sweeps.service import projection
from sweeps.service.results import ResultsStore
from sweeps.service.runs import Client, RunTree, Status, StudyRun
from sweeps.service.stores import Store, without_password
from sweeps.service.tracking import connected, environment, is_refusal, reason
from sweeps.service.writer import BackgroundWriter

# Left alone, the interface opens on its pages for chat bots, and lists the newest hundred runs, all replicas.  This
# opens it on the study and its points; clearing the search shows the rest.
_VIEW = f"workflowType=machine_learning&searchFilter={quote('tags.`adaptbin.kind` != ' + repr('replica'))}"

_REPAIR = "the results files have everything: the same command, or --rebuild, brings MLflow up to date"


class Tracker:
    """Context manager that projects records into MLflow from one writer thread, and never raises into training.

    Calls queue and return at once; the queue holds how to read a record, not the record.  While the store is away they
    stay queued and are tried again; what is left at the end is counted and told, and the next run writes it.  The
    caller holds the lock of the output folder: runs that an earlier run left running are ended first.  MLflow's own
    globals (active run, tracking URI) are never touched, and the environment is as before on exit.

    ``on_problem`` gets one line when the store fails, when it is there again, for the first write that is refused, and
    at the end for what is missing; from the writer thread but for the last.
    """

    def __init__(self, store: Store, *, on_problem: Callable[[str], None], patience_seconds: float = 60.0) -> None:
        self._store = store
        self._on_problem = on_problem
        self._patience_seconds = patience_seconds
        self._environment = ExitStack()
        self._asked: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._refusal: Exception | None = None
        self._studies: dict[StudyRun, Callable[[], RunTree]] = {}
        self._unfinished: dict[StudyRun, list[Mapping[str, Any]]] = {}
        self._pages: dict[StudyRun, str] = {}
        # From here on the writer thread's own.
        self._client: Client
        self._output: str | None = None
        self._is_announced = False
        self._trees: dict[StudyRun, RunTree] = {}
        self._ended: set[StudyRun] = set()
        self._writer = BackgroundWriter(self._connected, self, name="mlflow-writer")

    def __enter__(self) -> Self:
        # Set and restored in the caller's thread: a change from the writer could meet a copy being made of it.
        self._environment.enter_context(environment())
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End unfinished studies as killed, write what is queued, and stop.

        Gives up when nothing gets written for ``patience_seconds``, or when the store fails several times in a row.
        """
        with self._environment:
            self._writer.put(self._kill_unfinished)
            in_time = self._writer.close(self._patience_seconds)
            missing = {what: asked - self._written[what] for what, asked in self._asked.items()}
            if not any(missing.values()) and self._writer.error is None and in_time:
                return
            error = self._writer.error or self._refusal
            if error is None or not (in_time or self._writer.error):
                error = TimeoutError(f"stopped waiting: nothing was written for {self._patience_seconds:g} s")
            counts = ", ".join(f"{count} of {self._asked[what]} {what}" for what, count in missing.items() if count)
            self._tell(f"{self._reason(error)}; not written: {counts or 'the last changes'}; {_REPAIR}")

    def study(
        self,
        name: str,
        identity: Mapping[str, Any],
        default: Mapping[str, Any],
        *,
        points: Sequence[Mapping[str, Any]],
        unfinished: Sequence[Mapping[str, Any]] = (),
        moved: Sequence[str] = (),
        epochs: int | None = None,
        note: str,
        tags: Mapping[str, Any] | None = None,
    ) -> StudyRun:
        """Open or continue a study of one data set, and mark its run as running.

        Args:
            name: What kind of study, as "sensitivity"; the run is called "sensitivity eol".
            identity: ``Replica.identity()`` of any replica of the study; of the default point where it moves more than
                hyperparameters.  All of it but seed and hyperparameters decides, with ``name`` and ``default``, which
                tree this is: more seeds or panels join the same one.
            default: Hyperparameters of the default point.
            points: Settings of the points to come (:func:`sweeps.service.projection.point_settings`), in the order to
                list them in.
            unfinished: Those of them with replicas still to come; they are marked as running.
            moved: What points differ in besides hyperparameters.
            epochs: Most epochs that one of them is pretrained for; by default those of ``identity``.
            note: Markdown shown on the run's page; replaced each time.
            tags: What may differ from one invocation to the next (seeds, panels); replaced each time.
        """
        settings = projection.study_settings(identity, default)
        if epochs is not None:
            settings["budget"] = {**settings["budget"], "epochs": epochs}
        key = projection.content_hash([name, settings])
        usual = projection.point_settings({**identity, "hyperparameters": default}, moved)
        study = StudyRun(identity["dataset"], key, tuple(sorted(usual.items())), tuple(moved))
        opening = partial(self._open, study, name, settings, list(points), note, dict(tags or {}))
        self._studies[study] = opening
        self._unfinished[study] = list(unfinished)
        self._put("studies", lambda: self._begin(study))
        return study

    def page(self, study: StudyRun) -> str | None:
        """What to append to the interface's address to see the study's runs; None until they are there."""
        return self._pages.get(study)

    def replica(self, study: StudyRun, read: Callable[[], Mapping[str, Any]]) -> None:
        """Write the result record that ``read`` returns as a run below its point's; it is called later, elsewhere."""
        self._put("replicas", lambda: self._write_replica(study, read))

    def point(
        self,
        study: StudyRun,
        settings: Mapping[str, Any],
        summary: Mapping[str, Any],
        status: Status = "FINISHED",
    ) -> None:
        """Write the aggregate of one point, and end its run.

        ``summary``: numbers become metrics (test_mean, test_sd, test_low, test_high, val_mean, n, diverged, missing;
        what is not finite is left out), texts become tags (``metric``: which score it is).
        """
        told = dict(settings), dict(summary), status
        self._put("points", lambda: self._tree(study).write_point(*told))

    def finish(
        self,
        study: StudyRun,
        artifacts: Iterable[Path],
        status: Status = "FINISHED",
        missing: int | None = None,
    ) -> None:
        """Upload files to the study's run (same names are overwritten); end it and the points still running.

        ``missing``: how many of its replicas have no result.
        """
        self._put("summaries", partial(self._finish, study, tuple(artifacts), status, missing))

    # ---------------------------------------------------------------- from here on: the writer thread

    def is_poisoned(self, error: Exception) -> bool:
        """See :class:`sweeps.service.writer.Watcher`."""
        return is_refusal(error)

    def failing(self, error: Exception) -> None:
        """See :class:`sweeps.service.writer.Watcher`."""
        self._is_announced = True
        self._tell(f"{self._reason(error)}; training goes on, results stay in files, and writing is tried again")

    def recovered(self) -> None:
        """See :class:`sweeps.service.writer.Watcher`."""
        if self._is_announced:
            self._is_announced = False
            self._tell("there again; what was held back is being written")

    def skipped(self, error: Exception) -> None:
        """See :class:`sweeps.service.writer.Watcher`."""
        if self._refusal is None:
            self._tell(f"refused a write, which is left out: {self._reason(error)}")
        self._refusal = error

    def _put(self, what: str, task: Callable[[], None]) -> None:
        def counted() -> None:
            task()
            self._written[what] += 1

        self._asked[what] += 1
        self._writer.put(counted)

    def _begin(self, study: StudyRun) -> None:
        self._tree(study)

    def _write_replica(self, study: StudyRun, read: Callable[[], Mapping[str, Any]]) -> None:
        try:
            record = read()
        except OSError as error:  # not the store's fault, and nothing to wait for
            raise ValueError(f"a result cannot be read again: {error}") from error
        self._tree(study).write_replica(record)

    def _finish(self, study: StudyRun, artifacts: tuple[Path, ...], status: Status, missing: int | None) -> None:
        self._ended.add(study)
        self._tree(study).finish(artifacts, status, missing)

    def _kill_unfinished(self) -> None:
        for study in self._studies.keys() - self._ended:
            self._tree(study).finish((), "KILLED")

    def _tree(self, study: StudyRun) -> RunTree:
        """The study's tree; opened anew after each failure, since what arrived of the failed write is not known."""
        if study not in self._trees:
            self._trees[study] = self._studies[study]()
        return self._trees[study]

    def _open(
        self,
        study: StudyRun,
        name: str,
        settings: Mapping[str, Any],
        points: Sequence[Mapping[str, Any]],
        note: str,
        tags: Mapping[str, Any],
    ) -> RunTree:
        assert self._output is not None
        root = self._store.artifact_root
        artifacts = None if root is None else f"{root}/{study.dataset}"
        tree = RunTree(self._client, study, artifacts, name, settings, self._output)
        self._pages[study] = f"/#/experiments/{tree.experiment}/runs?{_VIEW}"
        tree.describe(note, tags)
        tree.make_points(points, self._unfinished[study])
        # Opened again, it leaves alone which points have been ended meanwhile.
        self._unfinished[study] = []
        return tree

    @contextmanager
    def _connected(self) -> Iterator[None]:
        self._trees.clear()
        with connected(self._store, self._tell) as client:
            self._client = client
            if self._output is None:
                output = ResultsStore(self._store.output).keep_id()
                killed = client.kill_left_running(output, is_own=self._store.is_own)
                if killed:
                    self._tell(f"{killed} runs that an earlier run left running are set as killed")
                self._output = output
            yield

    def _reason(self, error: Exception) -> str:
        return reason(self._store, error)

    def _tell(self, message: str) -> None:
        self._on_problem(f"MLflow at {without_password(self._store.tracking_uri)}: {message}")
