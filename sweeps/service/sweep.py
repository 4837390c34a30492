"""What every script does: options -> study -> plan -> packs -> results -> tables, figure and MLflow."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.data.registry import get_card
from adaptbin.errors import AdaptBinError, DataError, DataNotFoundError
from sweeps.service.budget import fit_seeds
from sweeps.service.estimate import Speed, describe, estimate, speeds
from sweeps.service.manifest import manifest
from sweeps.service.memory import Sizes, needs
from sweeps.service.nodes import local_nodes
from sweeps.service.options import Options, parse_options
from sweeps.service.plan import Pack, Plan, make_plan
from sweeps.service.points import Study
from sweeps.service.progress import ProgressView
from sweeps.service.results import Reading, ResultsStore
from sweeps.service.stores import resolve_store
from sweeps.service.work import Job, Runner, begun_packs, forget, threads

# Tables, figures, MLflow, torch and Ray take seconds to import: each is imported where it is needed.
if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.pack import PackProgress
    from sweeps.service.estimate import Estimate
    from sweeps.service.nodes import Node
    from sweeps.service.publish import Published, StudyRuns
    from sweeps.service.timing import Timing

    Tables = dict[tuple[str, int], EncodedTable]

TABLE_WIDTH = 110
"""Columns of the summary where there is no terminal to ask."""


def run_script(
    argv: Sequence[str] | None,
    *,
    prog: str,
    about: str,
    build: Callable[[Options], Study],
    runner: Runner | None = None,
) -> int:
    """Run a script and return its exit code.

    0: every replica asked for has a result (``--plan`` and ``--help``: always).  1: some have none, or a file could not
    be written.  2: the request was refused, before anything was trained.  128 + n: stopped by signal n.
    """
    try:
        options = parse_options(argv, prog=prog, about=about)
        return 0 if options is None else Sweep(options, build(options), runner or _ray_runner(options)).run()
    except AdaptBinError as error:
        _complain(f"error: {error}")
        return 2
    except OSError as error:
        _complain(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _complain("interrupted; the same command continues from what is finished")
        return 130


class Sweep:
    """One invocation of a script."""

    def __init__(self, options: Options, study: Study, runner: Runner) -> None:
        self._options = options
        self._study = study
        self._runner = runner
        self._store = ResultsStore(options.output)
        self._checkpoints = self._store.output / "checkpoints"
        self._mlflow = resolve_store(options.output, options.root, options.tracking_uri)
        self._began = time.monotonic()
        self._rejected: set[Path] = set()
        self._speeds: dict[str, Speed] = {}
        self._told = ""

    def run(self) -> int:
        """Do what the options say; returns the exit code of :func:`run_script`.

        Whatever can be refused is refused before anything is written.
        """
        if self._options.rebuild:
            return self._rebuild()
        reading = self._read()
        plan = self._within_budget(self._plan(reading), reading)
        if self._options.plan:
            print(self._describe(plan))
            return 0
        tables = self._tables(plan)
        self._require_writable()
        with self._store.lock():
            reading = self._read()  # again: another run may have ended just before the lock was free
            return self._train(self._plan(reading, workers=plan.workers), reading, tables)

    def _require_writable(self) -> None:
        results = [f"results/{name}" for name in self._study.datasets]
        self._store.require_writable(*results, self._study.name, self._checkpoints.name)

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
                print(self._describe(plan), flush=True)
                self._forget_useless(plan)
                job = Job(plan.packs, tables, plan.resources, self._options.device, self._checkpoints)
                with ProgressView(plan, sys.stderr) as view:
                    signum = self._runner.run(job, _Recorder(self._store, runs, view))
                reading = self._read()
                if signum is not None:
                    _complain(
                        f"interrupted: {len(reading.records)} of {len(self._study.all_replicas)} replicas are "
                        "finished; the same command continues from there"
                    )
                    return 128 + signum
            else:
                print(f"nothing to train: all {len(plan.done)} replicas have results in {self._store.output}")
            code = self._publish(reading, runs, trained={replica.id for replica in plan.to_do})
        self._tell_mlflow(runs)
        return code

    def _publish(self, reading: Reading, runs: StudyRuns, *, trained: Collection[str]) -> int:
        """Tables and figure of every data set, and of all together; then say where they are."""
        from rich.console import Console

        from sweeps.service.tables import summary_table

        names = [
            name for name in self._study.datasets if any(r.id in reading.records for r in self._study.replicas[name])
        ]
        console = Console(highlight=False, width=None if sys.stdout.isatty() else TABLE_WIDTH)
        for name in names:
            published = self._publish_one(self._study.only(name), reading, trained)
            runs.finish(published)
            console.print(summary_table(published.points, published.significance, published.study, name))
            print(f"{name}: {published.folder}", flush=True)
        if len(names) > 1:
            print(f"together: {self._publish_one(self._study, reading, trained).folder}")
        missing = len(self._study.all_replicas) - len(reading.records)
        if missing:
            _complain(
                f"{missing} of {len(self._study.all_replicas)} replicas have no result; the same command tries again"
            )
        return 1 if missing else 0

    def _tell_mlflow(self, runs: StudyRuns) -> None:
        print(f"MLflow: {self._mlflow.ui_command}")
        if self._mlflow.database is not None:
            for name, page in runs.pages.items():
                print(f"  {name}: http://127.0.0.1:5000{page}")

    def _publish_one(self, study: Study, reading: Reading, trained: Collection[str]) -> Published:
        from sweeps.service.publish import folder_of, publish, replaced_study

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
        replaced = replaced_study(folder, told)
        if replaced is not None:
            _complain(
                f"{folder}: tables and figure of another study ({replaced}) are replaced; its results stay, and its "
                "command with --rebuild brings them back"
            )
        return publish(
            study,
            records,
            folder,
            metrics=self._options.metrics,
            primary=self._options.primary,
            test=self._options.test,
            manifest=told,
        )

    @contextmanager
    def _tracking(self, reading: Reading) -> Iterator[StudyRuns]:
        from sweeps.service.publish import StudyRuns
        from sweeps.service.tracking import Tracker

        with Tracker(self._mlflow, on_problem=_complain) as tracker:
            runs = StudyRuns(tracker, self._study)
            runs.replicas(reading.records.values())
            yield runs

    def _read(self) -> Reading:
        reading = self._store.read(self._study.all_replicas)
        for path, reason in reading.rejected.items():
            if path not in self._rejected:
                _complain(f"ignored, as if it were not there: {path}: {reason}")
        self._rejected.update(reading.rejected)
        return reading

    def _plan(self, reading: Reading, workers: int | None = None, study: Study | None = None) -> Plan:
        study, options = study or self._study, self._options
        if workers is None:
            # This machine costs nothing to ask; a cluster is called only when there is something to train.
            ask = options.address is None or len(reading.records) < len(study.all_replicas)
            workers = self._runner.at_once(options.resources) if ask else 1
        return make_plan(
            study,
            reading.records,
            resources=options.resources,
            workers=workers,
            pack_size=options.pack,
            begun=begun_packs(self._checkpoints),
            nodes=self._nodes,
            needs=needs(study, self._sizes, self._samples, options.device),
        )

    @cached_property
    def _nodes(self) -> list[Node]:
        options = self._options
        return local_nodes(with_gpus=options.resources.gpus > 0) if options.address is None else []

    @cached_property
    def _sizes(self) -> dict[str, Sizes]:
        # 64 % of the rows are train rows under every split (method: "Splits").
        cards = [get_card(name) for name in self._study.datasets]
        return {card.key: Sizes(round(0.64 * card.rows), len(card.columns), card.rows) for card in cards}

    @cached_property
    def _samples(self) -> list[dict[str, Any]]:
        """Some earlier records, of any study: they tell of time and memory."""
        return [record for name in self._study.datasets for record in self._store.sample(name)]

    def _within_budget(self, plan: Plan, reading: Reading) -> Plan:
        """The plan, or one of fewer seeds that fits in the time asked for; from then on that is the study."""
        if self._options.time_limit is None:
            return plan

        def seconds_of(study: Study) -> float:
            return self._estimate(self._plan(reading, plan.workers, study)).seconds

        self._estimate(plan)  # steps are timed on the whole study's packs
        self._study, self._told = fit_seeds(plan, self._options.time_limit, seconds_of, test=self._options.test)
        if self._study is not plan.study and not self._options.plan:
            _complain(self._told)
        return self._plan(reading, plan.workers)

    def _describe(self, plan: Plan) -> str:
        return "\n".join(filter(None, [describe(plan, self._estimate(plan)), self._told]))

    def _estimate(self, plan: Plan) -> Estimate:
        if not {pack.dataset for pack in plan.packs} <= self._speeds.keys():
            time_it = self._timed if self._options.address is None else None
            self._speeds = speeds(plan, self._sizes, self._samples, device=self._options.device, time_it=time_it)
        return estimate(plan, self._speeds)

    def _timed(self, pack: Pack) -> Timing | None:
        """A few timed steps of a pack on this machine, where its data file is at hand."""
        from adaptbin.data.encode import encode
        from adaptbin.data.sources import load_table
        from sweeps.service.timing import time_pack

        try:
            table = load_table(pack.dataset, data_dir=self._options.data_dir, download=False)
        except DataNotFoundError:
            return None
        encoded = encode(table, split_seed=pack.split_seed, unseen_category=self._study.protocol.unseen_category)
        return time_pack(
            pack.replicas,
            encoded,
            device=self._options.device,
            threads=threads(self._options.resources),
            seconds=max(0.5, 2.0 / len(self._study.datasets)),
        )

    def _tables(self, plan: Plan) -> Tables:
        """Every table that the packs train on, so that bad data stops the run before it starts."""
        if not plan.packs:
            return {}
        from adaptbin.data.encode import encode
        from adaptbin.data.sources import load_table

        keys = dict.fromkeys(pack.table_key for pack in plan.packs)
        loaded = {name: load_table(name, data_dir=self._options.data_dir) for name in dict.fromkeys(k[0] for k in keys)}
        unseen = self._study.protocol.unseen_category
        return {key: encode(loaded[key[0]], split_seed=key[1], unseen_category=unseen) for key in keys}

    def _forget_useless(self, plan: Plan) -> None:
        """Remove checkpoints of this study that no pack will resume; those of other studies stay."""
        asked = {replica.id for replica in self._study.all_replicas}
        used = {pack.resumes or pack.key for pack in plan.packs}
        for key, ids in begun_packs(self._checkpoints).items():
            if key not in used and asked.issuperset(ids):
                forget(self._checkpoints, key)


class _Recorder:
    """Listens to a run: each record goes to its file first, then to MLflow, then to the view."""

    def __init__(self, store: ResultsStore, runs: StudyRuns, view: ProgressView) -> None:
        self._store = store
        self._runs = runs
        self._view = view

    def progress(self, pack: Pack, progress: PackProgress) -> None:
        self._view.progress(pack, progress)

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            self._store.write(record)
        self._runs.replicas(records)
        self._view.finished(pack)

    def failed(self, pack: Pack, reason: str) -> None:
        self._view.failed(pack, reason)

    def retried(self, pack: Pack, reason: str) -> None:
        self._view.retried(pack, reason)


def _ray_runner(options: Options) -> Runner:
    from sweeps.service.launch import RayRunner

    return RayRunner(options.address)


def _complain(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
