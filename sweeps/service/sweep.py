"""What every script does: options -> study -> plan -> packs -> results -> tables, figure and MLflow."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.config import Replica
from adaptbin.errors import AdaptBinError, ConfigError, DataError
from sweeps.service.card_view import TABLE_WIDTH, show_cards
from sweeps.service.checkpoints import CheckpointPlace, FolderPlace, StoragePlace
from sweeps.service.failures import FailureLog, what_is_missing
from sweeps.service.interrupt import Terminated, raising_signals
from sweeps.service.manifest import manifest
from sweeps.service.options import Options, parse_options
from sweeps.service.own_tables import write_cards
from sweeps.service.plan import Pack, Plan
from sweeps.service.planner import Planner
from sweeps.service.points import Study
from sweeps.service.progress import ProgressView
from sweeps.service.recorder import Recorder
from sweeps.service.results import Reading, ResultsStore
from sweeps.service.steering import Request, Steering
from sweeps.service.stores import resolve_store
from sweeps.service.switches import require_readers
from sweeps.service.work import Change, Job, Runner

# Tables, figures, MLflow, torch and Ray take seconds to import: each is imported where it is needed.
if TYPE_CHECKING:
    import click

    from adaptbin.data.encode import EncodedTable
    from sweeps.service.publish import Published
    from sweeps.service.study_runs import StudyRuns

    Tables = dict[tuple[str, int], EncodedTable]


def run_script(
    argv: Sequence[str] | None,
    *,
    prog: str,
    about: str,
    own_options: Iterable[click.Parameter],
    build: Callable[[Options], Study],
    runner: Runner | None = None,
    kind: type[Sweep] | None = None,
) -> int:
    """Run a script and return its exit code.

    ``own_options``: what it has besides the options of all.  ``build`` makes its study, which knows how to publish
    itself.  ``kind``: what runs it, by default :class:`Sweep`.

    0: every replica asked for has a result (``--plan`` and ``--help``: always).  1: some have none, or a file could not
    be written.  2: the request was refused, before anything was trained.  128 + n: stopped by signal n.
    """
    try:
        with raising_signals():
            options = parse_options(argv, prog=prog, about=about, own_options=own_options)
            if options is None:
                return 0
            study = build(options)
            require_readers(study, dict(options.given.get("switch", ())))
            sweep = (kind or Sweep)(options, study, runner or _ray_runner(options))
            return sweep.run() if options.export is None else sweep.export()
    except AdaptBinError as error:
        _complain(f"error: {error}")
        return 2
    except OSError as error:
        _complain(f"error: {error}")
        return 1
    except KeyboardInterrupt as error:
        _complain("interrupted; the same command continues from what is finished")
        return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


class Sweep:
    """One invocation of a script."""

    def __init__(self, options: Options, study: Study, runner: Runner) -> None:
        self._options = options
        self._study = study
        self._runner = runner
        self._store = ResultsStore(options.output)
        self._failures = FailureLog(self._store.output)
        self._mlflow = resolve_store(options.output, options.root, options.tracking_uri)
        self._began = time.monotonic()
        self._rejected: set[Path] = set()
        self._planner = Planner(options, study, runner, self._store, self._failures, self._checkpoints)

    def _checkpoints(self) -> CheckpointPlace:
        """Where states are kept: in a storage that others may use, too, below the output folder's own id."""
        if self._options.storage is None:
            return FolderPlace(self._store.output / "checkpoints")
        return StoragePlace(self._options.storage).below(self._store.id)

    def run(self) -> int:
        """Do what the options say; returns the exit code of :func:`run_script`.

        Whatever can be refused is refused before anything is written.
        """
        if self._options.rebuild:
            return self._rebuild()
        show_cards(self._options.cards, self._options.profiles)
        reading = self._read()
        plan = self._planner.within_budget(self._planner.plan(self._study, reading), reading)
        if self._options.plan:
            print(self._planner.describe(plan))
            return 0
        if plan.study is not self._study:
            _complain(self._planner.told_of_budget)
        self._study = plan.study
        tables = self._tables(plan)
        self._require_writable()
        with self._store.lock():
            reading = self._read()  # again: another run may have ended just before the lock was free
            return self._train(self._planner.plan(self._study, reading), reading, tables)

    def export(self) -> int:
        """Export the model that the options ask for, and train nothing else; returns the exit code."""
        from sweeps.service.export import export

        return export(self._options, self._study)

    def _require_writable(self) -> None:
        results = [f"results/{name}" for name in self._study.datasets]
        self._store.require_writable(*results, self._study.name, "checkpoints", "failures", "control")
        if self._options.storage is not None:
            StoragePlace(self._options.storage).require()

    def _rebuild(self) -> int:
        reading = self._read()
        if not reading.records:
            raise DataError(f"--rebuild needs results, got none of this study in {self._store.output / 'results'}")
        self._require_writable()
        with self._store.lock():
            with self._tracking(reading) as runs:
                code = self._publish(reading, runs, trained=())
            self._tell_mlflow(runs)
            return code

    def _train(self, plan: Plan, reading: Reading, tables: Tables) -> int:
        with self._tracking(reading) as runs:
            if plan.packs:
                print(self._planner.describe(plan), flush=True)
                signum = self._run_packs(plan, tables, runs)
                reading = self._read()
                if signum is not None:
                    runs.abandon(self._study, reading.records, "KILLED")
                    _complain(
                        f"interrupted: {len(reading.records)} of {len(self._study.all_replicas)} replicas are "
                        "finished; the same command continues from there"
                    )
                    return 128 + signum
            else:
                with suppress(OSError):  # storage out of reach keeps no result from being published
                    # A kill between a pack's last record and the end of its checkpoint leaves one.
                    self._forget_useless((), plan.failed, self._study.all_replicas)
                if not plan.failed:
                    print(f"nothing to train: all {len(plan.done)} replicas have results in {self._store.output}")
            code = self._publish(reading, runs, trained={replica.id for replica in plan.to_do})
        self._tell_mlflow(runs)
        return code

    def _run_packs(self, plan: Plan, tables: Tables, runs: StudyRuns) -> int | None:
        self._forget_useless(plan.packs, plan.failed, self._study.all_replicas)
        with ProgressView(plan, sys.stderr) as view:

            def answer(request: Request) -> tuple[Change, str]:
                return self._change(request, view, tables)

            def status() -> Mapping[str, Any]:
                return {**self._identity(), **view.status}

            with Steering(self._store.output, answer, status) as steering:
                job = Job(
                    self._planner.in_order(plan),
                    tables,
                    plan.resources,
                    self._options.device,
                    self._checkpoints(),
                    steering,
                )
                return self._runner.run(job, Recorder(self._store, self._failures, runs, view))

    def _identity(self) -> dict[str, Any]:
        """What trains, and where; for whoever asks."""
        names = "+".join(self._study.datasets)
        return {"study": f"{self._study.name} {names}", "pid": os.getpid(), "host": socket.gethostname()}

    def _change(self, request: Request, view: ProgressView, tables: Tables) -> tuple[Change, str]:
        """Extend or cut the study while it trains.  Raises ConfigError when that cannot be."""
        before = {replica.id for replica in self._study.all_replicas}
        value: Any = request.value
        if isinstance(value, str) and not self._study.takes_words:
            raise ConfigError(f"values of this study must be numbers, got {request}")
        change = self._study.with_value if request.verb == "add" else self._study.without_value
        study = change(request.panel, value)
        after = {replica.id for replica in study.all_replicas}
        reading = self._store.read([*self._study.all_replicas, *study.all_replicas])
        option = study.option_for(str(request))
        if request.verb == "add":
            instead = f"; start a run with {option} instead" if option else ""
            plan = self._planner.plan(study, reading, leave=before)
            if absent := {pack.table_key[0] for pack in plan.packs if pack.table_key not in tables}:
                raise ConfigError(
                    "points are added to data sets and splits that this run trains, got also "
                    f"{', '.join(sorted(absent))}, of which all was there{instead}"
                )
            asked, effect = Change(added=plan.packs), f"added: {len(plan.to_do)} replicas in {len(plan.packs)} packs"
            later = f"in later runs give {option} to keep it" if option else "later runs of this command leave it out"
        else:
            gone = before - after
            asked, effect = (
                Change(withdrawn=frozenset(gone)),
                f"cancelled: {len(gone - reading.records.keys())} replicas to train less",
            )
            later = "results of its finished replicas stay; a later run of the same command trains it again"
        self._study = study
        view.ask(len(after - before) - len(before - after))
        return asked, f"{request} {effect}; {later}"

    def _publish(self, reading: Reading, runs: StudyRuns, *, trained: Collection[str]) -> int:
        """What the study makes of every data set, and of all together; then say where it is."""
        from rich.console import Console

        names = [
            name for name in self._study.datasets if any(r.id in reading.records for r in self._study.replicas[name])
        ]
        for name in set(self._study.datasets) - set(names):
            runs.abandon(self._study.only(name), reading.records, "FAILED")
        console = Console(highlight=False, width=None if sys.stdout.isatty() else TABLE_WIDTH)
        for name in names:
            study = self._study.only(name)
            published = self._publish_one(study, reading, trained)
            runs.finish(study, published)
            for shown in published.shown:
                console.print(shown)
            print(f"{name}: {published.folder}", flush=True)
        if len(names) > 1 and self._study.is_joint:
            published = self._publish_one(self._study, reading, trained)
            for shown in published.shown:
                console.print(shown)
            print(f"together: {published.folder}")
        missing = [replica for replica in self._study.all_replicas if replica.id not in reading.records]
        if missing:
            _complain(what_is_missing(missing, len(self._study.all_replicas), self._failures.read(missing)))
        return 1 if missing else 0

    def _tell_mlflow(self, runs: StudyRuns) -> None:
        print(f"MLflow: {self._mlflow.ui_command}")
        if self._mlflow.database is not None:
            for name, page in runs.pages.items():
                print(f"  {name}: http://127.0.0.1:5000{page}")

    def _publish_one(self, study: Study, reading: Reading, trained: Collection[str]) -> Published:
        from sweeps.service.publish import folder_of, replaced_study

        folder = folder_of(self._store.output, study)
        records = [reading.records[r.id] for r in study.all_replicas if r.id in reading.records]
        told = manifest(
            study,
            records,
            options=self._options.given,
            run_seconds=time.monotonic() - self._began,
            trained=sum(record["id"] in trained for record in records),
            device=self._options.device if trained else "cpu",
        )
        replaced = replaced_study(folder, study, told)
        if replaced is not None:
            _complain(
                f"{folder}: tables and figure of another study ({replaced}) are replaced; its results stay, and its "
                "command with --rebuild brings them back"
            )
        published = study.publish(records, folder, self._options, told)
        cards = write_cards(folder, study.datasets, self._options.cards, self._options.profiles)
        return replace(published, files=(*published.files, *cards))

    @contextmanager
    def _tracking(self, reading: Reading) -> Iterator[StudyRuns]:
        from sweeps.service.study_runs import StudyRuns
        from sweeps.service.tracker import Tracker

        with Tracker(self._mlflow, on_problem=_complain) as tracker:
            runs = StudyRuns(tracker, self._study, self._store, reading.records)
            runs.replicas(reading.records.values())
            yield runs

    def _read(self) -> Reading:
        reading = self._store.read(self._study.all_replicas)
        for path, reason in reading.rejected.items():
            if path not in self._rejected:
                _complain(f"ignored, as if it were not there: {path}: {reason}")
        self._rejected.update(reading.rejected)
        return reading

    def _tables(self, plan: Plan) -> Tables:
        """Every table that the packs train on, so that bad data stops the run before it starts."""
        if not plan.packs:
            return {}
        from adaptbin.data.encode import encode
        from adaptbin.data.sources import load_table

        keys = dict.fromkeys(pack.table_key for pack in plan.packs)
        loaded = {
            name: self._options.tables.get(name) or load_table(name, data_dir=self._options.data_dir)
            for name in dict.fromkeys(key[0] for key in keys)
        }
        unseen = self._study.protocol.unseen_category
        return {key: encode(loaded[key[0]], split_seed=key[1], unseen_category=unseen) for key in keys}

    def _forget_useless(self, packs: Iterable[Pack], failed: Iterable[Replica], own: Iterable[Replica]) -> None:
        """Remove checkpoints of the study's ``own`` replicas that no pack will resume; those of other studies stay."""
        asked = {replica.id for replica in own}
        used = {key for pack in packs for key in (pack.key, *pack.resumes)}
        kept = {replica.id for replica in failed}  # tried again some day
        checkpoints = self._checkpoints()
        for key, ids in checkpoints.begun().items():
            if key not in used and asked.issuperset(ids) and kept.isdisjoint(ids):
                checkpoints.forget(key)


def _ray_runner(options: Options) -> Runner:
    from sweeps.service.launch import RayRunner

    return RayRunner(options.address)


def _complain(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
