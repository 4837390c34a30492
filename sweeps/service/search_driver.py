"""Drives a search: asks for points, cuts them into packs, and tells what came of them, all in the driver's main thread.

While packs train, the next ones are asked for: one pack more than are trained at once is in hand, so that no core waits
for a sampler.  When all trials are done, the confirmation of the best goes into the same queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adaptbin.errors import ConfigError, ResourceError
from sweeps.service.failures import FailureLog
from sweeps.service.plan import Pack
from sweeps.service.planner import Planner
from sweeps.service.results import ResultsStore
from sweeps.service.search_space import SHAPE, settings_of
from sweeps.service.searches import FINALISTS, Outcome, SearchStudy, Trial
from sweeps.service.work import Change, Failure, Steering

if TYPE_CHECKING:
    from sweeps.service.trials import Trials

END_SECONDS = 10.0
"""Of a time limit, what is left for tables and pictures."""


class SearchDriver:
    """What a runner asks for packs; see :class:`sweeps.service.work.Steering`.

    Args:
        study: The search, without its trials.
        trials: Where they are asked for and told.
        most: How many trials to try.
        together: How many points to ask for at once.
        ends_at: When no more is asked for, by ``time.monotonic``; None: never.
    """

    def __init__(
        self,
        study: SearchStudy,
        trials: Trials,
        planner: Planner,
        store: ResultsStore,
        failures: FailureLog,
        *,
        most: int,
        together: int,
        ends_at: float | None = None,
        retry_failed: bool = False,
    ) -> None:
        self._study = replace(study, trials=tuple(trials.all))
        self._trials = trials
        self._planner = planner
        self._store = store
        self._failures = failures
        self._most = most
        self._together = together
        self._ends_at = ends_at
        self.say: Callable[[str], None] = print
        """Tells a person of the best trial so far, and of those that failed."""
        self._workers = 1
        self._person: Steering | None = None
        self._training: set[str] = set()
        """Ids of replicas in packs that were handed out and are not done."""
        self._packs: list[frozenset[str]] = []
        self._heard: list[frozenset[str]] = []
        self._lock = threading.Lock()
        self._exhausted = False
        self._confirmed: set[str] = set()
        """Ids of the confirmation that were handed out."""
        self._over = False
        if retry_failed:
            self._ask_failed_again()

    @property
    def study(self) -> SearchStudy:
        """The search with its trials as they are now."""
        return self._study

    def steered_by(self, person: Steering) -> None:
        """Hear what is asked through ``person``, too."""
        self._person = person

    # -------------------------------------------------------------------- what the listener says, in its own thread

    def done(self, pack: Pack) -> None:
        """A pack is finished, with its records on disk, or will not be."""
        with self._lock:
            self._heard.append(frozenset(replica.id for replica in pack.replicas))

    # -------------------------------------------------------------------- what the runner asks

    @property
    def more(self) -> bool:
        """Whether packs are to come, or trials to be told."""
        return not self._over

    def changes(self) -> Sequence[Change]:
        """See :class:`sweeps.service.work.Steering`."""
        asked = list(self._person.changes()) if self._person is not None else []
        self._hear()
        packs = self._next()
        return [*asked, Change(added=packs)] if packs else asked

    def first(self) -> tuple[Pack, ...]:
        """The packs to begin with: the default, what earlier runs left unfinished, and new trials."""
        packs = self._plan(replace(self._study, trials=()))
        # Results may have been deleted since their trials were told.
        packs += self._plan(replace(self._study, trials=tuple(t for t in self._study.trials if t.state != "running")))
        for bracket in self._unfinished():
            packs += self._plan_trials(bracket)
        return (*packs, *self._next())

    # -------------------------------------------------------------------- inside

    def _hear(self) -> None:
        with self._lock:
            heard, self._heard = self._heard, []
        if not heard:
            return
        self._training.difference_update(*heard)
        self._packs = [pack for pack in self._packs if pack & self._training]
        for trial in self._running():
            self._settle(trial)

    def _running(self) -> list[Trial]:
        return [trial for trial in self._study.trials if trial.state == "running"]

    def _settle(self, trial: Trial) -> None:
        """Tell a trial, unless some of its replicas are in training."""
        replicas = self._study.replicas_of(self._study.point_of(trial))
        if any(replica.id in self._training for replica in replicas):
            return
        outcome = self._outcome(trial)
        if outcome is None:
            lost = self._failures.read(replicas)
            failure = next(iter(lost.values()), Failure("no result, and no reason is known"))
            outcome = Outcome(state="failed", epochs=self._study.budget.epochs, reason=failure.reason)
        self._tell(trial, outcome)

    def _outcome(self, trial: Trial) -> Outcome | None:
        reading = self._store.read(self._replicas_at_rungs(trial))
        return self._study.outcome_of(trial, reading.records)

    def _replicas_at_rungs(self, trial: Trial) -> list[Any]:
        halving = self._study.halving
        rungs = (self._study.budget.epochs,) if halving is None else halving.rungs
        return [replica for rung in rungs for replica in self._study.replicas_of(self._study.point_of(trial, rung))]

    def _tell(self, trial: Trial, outcome: Outcome) -> None:
        number = trial.number
        seconds = self._seconds_of(trial, outcome)
        notes = {"epochs": outcome.epochs} | ({} if seconds is None else {"core_seconds": seconds})
        self._trials.note(number, **notes)
        match outcome.state:
            case "complete":
                self._trials.complete(number, outcome.values, outcome.steps)
            case "pruned":
                self._trials.prune(number, outcome.steps)
            case _:
                self._trials.fail(number, outcome.reason, outcome.steps)
        told = replace(
            trial,
            state=outcome.state,
            values=outcome.values,
            steps=outcome.steps,
            notes={**trial.notes, **notes, "reason": outcome.reason},
        )
        others = [known for known in self._study.trials if known.number != number]
        self._study = replace(self._study, trials=tuple(sorted([*others, told], key=lambda known: known.number)))
        if outcome.state == "failed":
            self.say(f"trial {number} failed: {outcome.reason}")
        elif self._study.ranked[:1] == (told,):
            self.say(f"trial {number}: validation {outcome.values[0]:.4f}, the best so far")

    def _seconds_of(self, trial: Trial, outcome: Outcome) -> float | None:
        """Mean core-seconds of a trial's replicas."""
        point = self._study.point_of(trial, outcome.epochs)
        records = self._store.read(self._study.replicas_of(point)).records.values()
        seconds = [record["runtime"]["core_seconds"] for record in records]
        return sum(seconds) / len(seconds) if seconds else None

    def _next(self) -> tuple[Pack, ...]:
        """What to train now, so that no worker waits."""
        packs: list[Pack] = []
        while len(self._packs) <= self._workers and self._may_ask():
            packs += self._plan_trials(self._ask())
        if not self._training and not packs and not self._running() and not self._may_ask():
            packs = self._confirm()
            self._over = not packs
        return tuple(packs)

    def _confirm(self) -> list[Pack]:
        """Packs of the best trials and the default with fresh seeds; none where all is there."""
        self._study = replace(self._study, confirms=True)
        wanted = {
            replica.id
            for point in self._study.finalists
            for replica in self._study.replicas_of(point, self._study.confirm_seeds)
        }
        packs = self._plan(self._study, only=wanted - self._confirmed)
        self._confirmed |= wanted  # what fails is not tried again in this run, whatever --retry-failed says
        return packs

    def _may_ask(self) -> bool:
        """Whether one more trial is wanted, and there is time for it and for the confirmation."""
        asked = sum(not trial.is_seeded for trial in self._study.trials)
        open_to_more = not self._study.confirms and not self._exhausted
        return open_to_more and asked < self._most and self._room() > 0

    def _room(self) -> int:
        """How many points at most to ask for at once, so that they and the confirmation end in time."""
        if self._ends_at is None:
            return self._together
        costs = [t.notes["core_seconds"] for t in self._study.trials if "core_seconds" in t.notes]
        if not costs:  # the first ones tell what the others cost
            return 0 if self._running() else min(self._together, FINALISTS)
        mean = sum(costs) / len(costs)
        dear = max([t.notes["core_seconds"] for t in self._study.best if "core_seconds" in t.notes], default=mean)
        confirmation = dear * len(self._study.confirm_seeds) * (1 + FINALISTS)
        left = self._ends_at - END_SECONDS - time.monotonic()
        left -= (mean * len(self._training) + confirmation) / self._workers
        fitting = int(left / (mean * len(self._study.seeds)))  # one pack, which one worker trains
        # With the default alone there would be nothing to say.
        least = FINALISTS if len(self._study.trials) < 2 else 0
        return max(min(fitting, self._together), min(least, self._together))

    def _ask(self) -> list[Trial]:
        """A pack's worth of new trials; under halving all of one shape, so that they can be ranked in one pack."""
        asked: list[Trial] = []
        left = self._most - sum(not trial.is_seeded for trial in self._study.trials)
        for _ in range(min(self._room(), left)):
            if self._is_grid and not self._trials.n_waiting:
                self._exhausted = True
                break
            if asked and self._study.halving is not None and not self._trials.n_waiting:
                shape = {name: value for name, value in asked[0].chosen.items() if name in SHAPE}
                if shape:
                    self._trials.enqueue(shape)
            trial = self._trials.ask(self._study.space)
            point = self._study.point_of(trial)
            notes: dict[str, Any] = {}
            if self._study.halving is not None:
                notes["bracket"] = asked[0].number if asked else trial.number
            notes["settings"] = settings_of(point)
            self._trials.note(trial.number, **notes)
            asked.append(replace(trial, notes=notes))
            if len(asked) == 1 and point == self._study.default_point:
                break  # it is in training by itself, for it is compared with: it leaves at no rung
        self._study = replace(self._study, trials=(*self._study.trials, *asked))
        return asked

    @property
    def _is_grid(self) -> bool:
        return self._trials.sampler == "grid"

    def _plan_trials(self, trials: Sequence[Trial]) -> list[Pack]:
        """Packs of what these trials lack; those that lack nothing are told."""
        try:
            packs = self._plan(replace(self._study, trials=tuple(trials)), halves=True)
        except ResourceError as error:  # of their shape; others may well fit
            packs, points = [], map(self._study.point_of, trials)
            lost = [replica for point in points for replica in self._study.replicas_of(point)]
            self._failures.write(lost, Failure(str(error)))
        for trial in trials:
            self._settle(trial)
        return packs

    def _plan(self, study: SearchStudy, only: Iterable[str] | None = None, halves: bool = False) -> list[Pack]:
        """Packs of what a part of the search lacks and nobody trains; of the ids in ``only``."""
        default = {replica.id for replica in study.replicas_of(study.default_point)}
        leave = set(self._training)
        if only is not None:
            leave |= {replica.id for replica in study.all_replicas} - set(only)
        elif study.trials:  # the default has packs of its own
            leave |= default
        halves = halves and study.halving is not None
        plan = self._planner.plan(study, self._store.read(study.all_replicas), leave=leave, whole_points=halves)
        self._workers = plan.workers
        packs = [_halved(pack, study) if halves else pack for pack in plan.packs]
        for pack in packs:
            ids = frozenset(replica.id for replica in pack.replicas)
            self._packs.append(ids)
            self._training |= ids
        return packs

    def _unfinished(self) -> list[list[Trial]]:
        """Trials that a run before this one asked for and did not tell, by bracket; those that can be told are."""
        brackets: dict[Any, list[Trial]] = {}
        for trial in self._running():
            outcome = self._outcome(trial)
            if outcome is not None and (outcome.state != "pruned" or self._is_ranked(trial)):
                self._tell(trial, outcome)
            else:
                brackets.setdefault(trial.notes.get("bracket"), []).append(trial)
        return list(brackets.values())

    def _is_ranked(self, trial: Trial) -> bool:
        """Whether the pack that a trial was halved in is done: some point of it has all epochs."""
        mates = [t for t in self._study.trials if t.notes.get("bracket") == trial.notes.get("bracket")]
        outcomes = (self._outcome(mate) for mate in mates)
        return any(outcome is not None and outcome.epochs == self._study.budget.epochs for outcome in outcomes)

    def _ask_failed_again(self) -> None:
        """Enqueue the points of trials that failed for want of a result; what diverged would diverge again."""
        for trial in self._study.trials:
            replicas = self._study.replicas_of(self._study.point_of(trial))
            if trial.state == "failed" and self._failures.read(replicas):
                self._trials.enqueue(trial.chosen)
                self._most += 1


def refuse(request: object) -> tuple[Change, str]:
    """The answer to whoever wants to add points to a search, or take them away: always ConfigError."""
    raise ConfigError(f"a search proposes its points itself, got {request}")


def _halved(pack: Pack, study: SearchStudy) -> Pack:
    halved = replace(pack, halving=study.halving)
    return replace(halved, resumes=tuple(key for key in pack.resumes if key != halved.key))
