"""One invocation of the search: the sweep of every script, but for points that are proposed while others train."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.errors import ConfigError, DataError
from adaptbin.metrics import get_metric
from sweeps.service.card_view import show_cards
from sweeps.service.options import Options
from sweeps.service.parameters_search import REPLICAS, TRIALS, SearchOptions
from sweeps.service.plan import Pack
from sweeps.service.points import Point, Study
from sweeps.service.progress import ProgressView
from sweeps.service.projection import describe_point
from sweeps.service.recorder import Recorder
from sweeps.service.results import Reading
from sweeps.service.search_driver import SearchDriver, refuse
from sweeps.service.search_space import SHAPE
from sweeps.service.search_start import begin
from sweeps.service.searches import FINALISTS, SearchStudy, Trial
from sweeps.service.steering import Steering
from sweeps.service.sweep import Sweep
from sweeps.service.work import Failure, Job, Runner

if TYPE_CHECKING:
    from sweeps.service.study_runs import StudyRuns
    from sweeps.service.sweep import Tables
    from sweeps.service.trials import Direction, Trials

WINNER = "winner"
"""What the point is called that a search found, where a model is exported."""


class SearchSweep(Sweep):
    """See :class:`sweeps.service.sweep.Sweep`."""

    def __init__(self, options: Options, study: Study, runner: Runner) -> None:
        assert isinstance(study, SearchStudy) and options.search is not None
        self._search: SearchStudy = study
        self._asked: SearchOptions = options.search
        self._combinations = len(study.space.grid()) if options.search.sampler == "grid" else None
        self._most = options.search.trials or self._combinations or TRIALS
        self._together = points_together(options)
        # A pack holds what is asked for at once, however many workers there are.
        pack = self._together * len(study.seeds) if options.pack is None else options.pack
        super().__init__(replace(options, pack=pack), study, runner)

    def run(self) -> int:
        """See :class:`Sweep`.  ``--budget`` ends the asking: no seed is left out."""
        if self._options.rebuild:
            return self._rebuild()
        show_cards(self._options.cards, self._options.profiles)
        if self._options.plan:
            print(self._describe())
            return 0
        tables = self._tables(self._planner.plan(self._search, Reading()))
        self._require_writable()
        with self._store.lock():
            trials = self._trials()
            seeded = begin(self._search, trials, self._others(), self._store, is_grid=self._asked.sampler == "grid")
            if seeded:
                print(f"{seeded} finished trials of searches of other spaces lie in this one and are taken over")
            return self._search_on(trials, tables)

    def export(self) -> int:
        """See :class:`Sweep`; by default the winner's model, of the first of the fresh seeds."""
        from sweeps.service.export import export

        asked = (self._options.point or WINNER).strip().lower()
        known = self._known() if self._journal.is_file() else []
        study = replace(self._search, trials=tuple(known), confirms=True).told
        options = self._options
        if (named := self._named(asked, study, known)) is not None:
            seeds = study.confirm_seeds if asked == WINNER else study.seeds
            point = describe_point(named.settings(study.moved), {}).key
            options = replace(options, point=point, seed=seeds[0] if options.seed is None else options.seed)
        return export(options, study)

    def _named(self, asked: str, study: SearchStudy, known: Sequence[Trial]) -> Point | None:
        """The point of "winner" or of "trial=5"; None for any other words.  Raises ConfigError where there is none."""
        if asked == WINNER:
            reading = self._store.read(study.all_replicas)
            wanted = [r for point in study.finalists for r in study.replicas_of(point, study.confirm_seeds)]
            left = [replica for replica in wanted if replica.id not in reading.records]
            open_ = len(left) - len(self._failures.read(left)) + sum(trial.state == "running" for trial in known)
            winner = self._winner(study, reading)
            if winner is None or open_:
                got = f"{open_} trials and replicas of it left to train" if wanted else "none of this very search"
                if wanted and not open_:
                    got = "no best trial with a result for every fresh seed"
                raise ConfigError(
                    f"the winner of a search is known when its confirmation is done, got {got} in "
                    f"{self._journal.parent}; the same command without --export goes on with it"
                )
            return study.point_of(winner)
        if match := re.fullmatch(r"trial\s*=?\s*(\d+)", asked):
            trial = next((trial for trial in study.trials if trial.number == int(match[1])), None)
            if trial is None or trial.state != "complete":
                state = "none of that number" if trial is None else f"one that is {trial.state}"
                raise ConfigError(f"a trial to export must be complete, got {state} for {asked!r}")
            return study.point_of(trial)
        return None

    def _winner(self, study: Study, reading: Reading) -> Trial | None:
        from sweeps.service.tables_search import search_tables

        assert isinstance(study, SearchStudy)
        return search_tables(reading.records.values(), study, self._options.test).winner

    def _search_on(self, trials: Trials, tables: Tables) -> int:
        driver = SearchDriver(
            self._search,
            trials,
            self._planner,
            self._store,
            self._failures,
            most=self._most,
            together=self._together,
            ends_at=None if self._options.time_limit is None else self._began + self._options.time_limit,
            retry_failed=self._options.retry_failed,
        )
        packs = driver.first()
        self._study = driver.study.told
        reading = self._read()
        with self._tracking(reading) as runs:
            trained: set[str] = set()
            if packs:
                print(self._describe(), flush=True)
                before = set(reading.records)
                signum = self._train_packs(driver, packs, tables, runs)
                self._study = driver.study
                reading = self._read()
                trained = reading.records.keys() - before
                if signum is not None:
                    runs.abandon(self._study, reading.records, "KILLED")
                    done = sum(trial.state != "running" for trial in driver.study.trials)
                    print(
                        f"interrupted: {done} trials are done; the same command continues from there",
                        file=sys.stderr,
                        flush=True,
                    )
                    return 128 + signum
            else:
                print(f"nothing to train: all trials have results in {self._store.output}")
            code = self._publish(reading, runs, trained=trained)
        self._tell_mlflow(runs)
        if self._winner(self._study, self._read()) is not None:
            print("model of the winner: the same command with --export FOLDER")
        print(f"trials: optuna-dashboard {trials.path}  (pip install optuna-dashboard)")
        return code

    def _train_packs(
        self, driver: SearchDriver, packs: tuple[Pack, ...], tables: Tables, runs: StudyRuns
    ) -> int | None:
        plan = self._planner.plan(driver.study, self._store.read(driver.study.all_replicas))
        study = driver.study
        # A pack that halves is named by its replicas of all epochs, which those that left at a rung never had.
        whole = [replica for trial in study.trials for replica in study.replicas_of(study.point_of(trial))]
        self._forget_useless(packs, plan.failed, [*study.told.all_replicas, *whole])
        with ProgressView(plan, sys.stderr) as view:
            left = self._most - sum(not trial.is_seeded for trial in driver.study.trials)
            confirmation = (FINALISTS + 1) * len(self._search.confirm_seeds)
            view.ask(max(0, left) * len(self._search.seeds) + confirmation)
            driver.say = view.say

            def status() -> Mapping[str, Any]:
                return {**self._identity(), **view.status}

            with Steering(self._store.output, refuse, status) as person:
                driver.steered_by(person)
                job = Job(packs, tables, plan.resources, self._options.device, self._checkpoints(), driver)
                return self._runner.run(job, _Recorder(self._store, self._failures, runs, view, driver))

    def _rebuild(self) -> int:
        if not self._journal.is_file():
            raise DataError(f"--rebuild needs the journal of this very search, got none at {self._journal}")
        with self._store.lock():
            self._study = replace(self._search, trials=tuple(self._trials().all), confirms=True)
            confirmed = {
                replica.id
                for point in self._study.finalists
                for replica in self._study.replicas_of(point, self._study.confirm_seeds)
            }
            if not confirmed & self._read().records.keys():  # it was interrupted before
                self._study = replace(self._study, confirms=False)
        return super()._rebuild()

    def _known(self) -> list[Trial]:
        """The trials of the journal as it is, whoever is writing it."""
        from sweeps.service.trials import read_journal

        return [trial for _, _, found in read_journal(self._journal) for trial in found if "settings" in trial.notes]

    @property
    def _journal(self) -> Path:
        (dataset,) = self._search.datasets
        return self._store.output / self._search.name / dataset / f"{self._search.key}.journal"

    def _trials(self) -> Trials:
        from sweeps.service.trials import Bracket, Trials  # Optuna takes a second to import

        (dataset,) = self._search.datasets
        best: Direction = "maximize" if get_metric(self._search.metric).higher_is_better else "minimize"
        directions: dict[str, Direction] = {"score": best, "seconds": "minimize"}
        halving, bracket = self._search.halving, None
        if halving is not None:
            differs = any(name in self._search.space.searched for name in SHAPE)
            bracket = Bracket(points=self._together, whole=halving.whole(self._together), differs=differs)
        trials = Trials(
            self._journal,
            f"{dataset}-{self._search.key}",
            directions=[directions[name] for name in self._search.objectives],
            names=[self._search.metric if name == "score" else name for name in self._search.objectives],
            notes={"conditions": self._search.conditions, "space": self._search.space.to_json()},
            sampler=self._asked.sampler,
            bracket=bracket,
        )
        trials.fail_unknown()
        return trials

    def _others(self) -> dict[str, Sequence[Trial]]:
        """Trials of searches under the same conditions in the same folder, the newest first."""
        from sweeps.service.trials import read_journal

        paths = [path for path in self._journal.parent.glob("*.journal") if path != self._journal]
        return {
            name: found
            for path in sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
            for name, notes, found in read_journal(path)
            if notes.get("conditions") == self._search.conditions
        }

    def _describe(self) -> str:
        """What is searched, and what the default point alone takes."""
        search, asked = self._search, self._asked
        (dataset,) = search.datasets
        limit = "" if self._options.time_limit is None else " or until the time is up"
        halving = ""
        if search.halving is not None:
            halving = f"; halving at {', '.join(map(str, search.halving.rungs))} epochs"
        beyond = []
        if self._combinations is not None and self._combinations > self._most:
            beyond.append(f"the grid has {self._combinations} combinations: --trials leaves out the last of them")
        lines = [
            f"search of {dataset}: {self._most} trials{limit} x {len(search.seeds)} seeds, sampler {asked.sampler}, "
            f"objective {','.join(search.objectives)} (validation {get_metric(search.metric).label}){halving}",
            *(f"  {name} = {domain}" for name, domain in search.space.searched.items()),
            *beyond,
            f"then the best {FINALISTS} and the default with {len(search.confirm_seeds)} fresh seeds",
            "the default alone, of which the time of others may be far:",
            *(f"  {line}" for line in self._planner.describe(self._planner.plan(search, Reading())).splitlines()),
        ]
        return "\n".join(lines)


class _Recorder(Recorder):
    """Tells the driver, too, once the records are on disk."""

    def __init__(self, *told: Any) -> None:
        *others, self._driver = told
        super().__init__(*others)

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        """A pack is done."""
        super().finished(pack, records)
        self._driver.done(pack)

    def failed(self, pack: Pack, failure: Failure) -> None:
        """A pack will not be finished."""
        super().failed(pack, failure)
        self._driver.done(pack)


def points_together(options: Options) -> int:
    """How many points are asked for at once: those of a pack; under halving one is left of them in the end."""
    assert options.search is not None
    halving, seeds = options.search.halving, len(options.seeds)
    if options.pack is not None or halving is None:
        together = max(1, (options.pack or REPLICAS) // seeds)
        if halving is not None and together < 2:
            raise ConfigError(
                "halving ranks the points of a pack, which must hold two at least, with all seeds of each: "
                f"--pack must be {2 * seeds} or more for {seeds} seeds, got {options.pack}"
            )
        return together
    return round(halving.keep ** (1 - len(halving.rungs)))
