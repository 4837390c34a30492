"""The trials of one search: asked of a sampler and told their outcome, all kept in a journal.

Only this module and :mod:`sweeps.service.importances` import Optuna.

The driver alone writes the journal (it holds the lock of the output folder), so a lock file or a half-written line that
is found there was left by a killed one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from sweeps.service.point_fields import Value
from sweeps.service.search_ranges import Choices, Domain
from sweeps.service.search_space import FIELDS, Space
from sweeps.service.searches import State, Trial

Direction = Literal["minimize", "maximize"]

SETTINGS = "settings"
"""Note of a trial that says what its point is; it is made last."""

_BEGUN = "begun"

FIRST_BRACKETS = 5
"""Brackets of halving whose points are drawn at random."""
_GOOD = 0.25
"""Share of the trials with all epochs that TPE takes for good under halving."""

_STATES: dict[TrialState, State] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


class Bracket(NamedTuple):
    """Points that are halved together."""

    points: int
    whole: int
    """How many of them have all epochs in the end."""
    differs: bool
    """Whether others are of other shapes."""


class Trials:
    """One study of Optuna in a journal of its own, made or continued.

    Args:
        path: The journal.
        name: The study's name.
        directions: "maximize" or "minimize", one for each objective.
        names: What the objectives are called.
        notes: What is noted of the study when it is made.
        sampler: What proposes points, of :data:`sweeps.service.parameters_search.SAMPLERS`.  A grid's are all enqueued.
        bracket: What is halved together; None without halving.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        directions: Sequence[Direction],
        names: Sequence[str],
        notes: Mapping[str, Any],
        sampler: str = "tpe",
        bracket: Bracket | None = None,
    ) -> None:
        self.path = path
        self.sampler = sampler
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path.parent.mkdir(parents=True, exist_ok=True)
        _mend(path)
        self._storage = JournalStorage(JournalFileBackend(str(path)))
        self._study = optuna.create_study(
            study_name=name, storage=self._storage, directions=directions, load_if_exists=True
        )
        for key, value in notes.items() if not self._study.user_attrs else ():
            self._study.set_user_attr(key, value)
        if not self.has_begun:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                self._study.set_metric_names(list(names))
        # A seed that grows with the trials, for a run that continues must not draw the same points again.
        self._study.sampler = _sampler(sampler, len(self._study.get_trials(deepcopy=False)), bracket)

    @property
    def has_begun(self) -> bool:
        """Whether all that a study begins with is in it; see :meth:`begin`."""
        return bool(self._study.user_attrs.get(_BEGUN))

    def begin(self) -> None:
        """Note that all that the study begins with, enqueued points and those of other studies, is in it."""
        self._study.set_user_attr(_BEGUN, True)

    @property
    def all(self) -> list[Trial]:
        """Every trial whose point is known; those that wait to be asked for are not."""
        return [_told(trial) for trial in self._study.get_trials(deepcopy=False) if SETTINGS in trial.user_attrs]

    @property
    def n_waiting(self) -> int:
        """How many were enqueued and not asked for yet."""
        return len(self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    def enqueue(self, chosen: Mapping[str, Value], *, once: bool = False) -> None:
        """Have one of the next asks give these values; fields that are not named are sampled.

        ``once``: not where a trial with these values is there.
        """
        self._study.enqueue_trial(dict(chosen), skip_if_exists=once)

    def ask(self, space: Space) -> Trial:
        """A new trial, running from now on."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that samplers are experimental, or leave a field to another one
            trial = self._study.ask()
            chosen: dict[str, Value] = {}
            for name, domain in space.searched.items():
                if space.is_tried(name, chosen):
                    chosen[name] = _suggest(trial, name, domain)
        return Trial(number=trial.number, state="running", chosen=chosen)

    def fail_unknown(self) -> None:
        """Tell trials as failed that a killed driver had begun to ask for: their points are not known."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if SETTINGS not in trial.user_attrs:
                if fixed := trial.system_attrs.get("fixed_params"):  # a point that was enqueued is still wanted
                    self._study.enqueue_trial(fixed)
                self._tell(trial.number, state=TrialState.FAIL)

    def note(self, number: int, **notes: Any) -> None:
        """Note something of a trial that runs."""
        for key, value in notes.items():
            self._storage.set_trial_user_attr(self._id_of(number), key, value)

    def complete(self, number: int, values: Sequence[float], steps: Mapping[int, float]) -> None:
        """Tell the objectives' values of a trial, and its scores at rungs."""
        self._note_steps(number, steps)
        self._tell(number, values=list(values), state=TrialState.COMPLETE)

    def prune(self, number: int, steps: Mapping[int, float]) -> None:
        """Tell that a trial left after the last of these rungs."""
        self._note_steps(number, steps)
        self._tell(number, state=TrialState.PRUNED)

    def fail(self, number: int, reason: str, steps: Mapping[int, float]) -> None:
        """Tell that a trial has no score, and why; ``steps`` are scores at rungs before that."""
        self._note_steps(number, steps)
        self.note(number, reason=reason)
        self._tell(number, state=TrialState.FAIL)

    def seed(self, trials: Iterable[Trial], space: Space, origin: str) -> None:
        """Add finished trials of another study, whose values lie in the space."""
        for trial in trials:
            self._study.add_trial(
                optuna.create_trial(
                    state=TrialState.COMPLETE,
                    params=dict(trial.chosen),
                    distributions={name: distribution_of(space.searched[name]) for name in trial.chosen},
                    values=list(trial.values),
                    user_attrs={**trial.notes, "seeded_from": origin},
                )
            )

    def _note_steps(self, number: int, steps: Mapping[int, float]) -> None:
        for epochs, score in sorted(steps.items()):
            self._storage.set_trial_intermediate_value(self._id_of(number), epochs, score)

    def _tell(self, number: int, **outcome: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.tell(number, **outcome)

    def _id_of(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(self._study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)


def read_journal(path: Path) -> list[tuple[str, Mapping[str, Any], list[Trial]]]:
    """Name, notes and trials of the studies in a journal; none where it cannot be read."""
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        studies = storage.get_all_studies()
        return [
            (study.study_name, study.user_attrs, [_told(trial) for trial in storage.get_all_trials(study._study_id)])
            for study in studies
        ]
    except (OSError, ValueError, KeyError):
        return []


def _told(trial: FrozenTrial) -> Trial:
    return Trial(
        number=trial.number,
        state=_STATES[trial.state],
        chosen={name: trial.params[name] for name in FIELDS if name in trial.params},
        values=tuple(trial.values or ()),
        steps=dict(trial.intermediate_values),
        notes=dict(trial.user_attrs),
    )


def _suggest(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    if isinstance(domain, Choices):
        value: Any = trial.suggest_categorical(name, domain.values)
    elif domain.is_whole:
        value = trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log)
    else:
        value = trial.suggest_float(name, domain.low, domain.high, log=domain.log)
    return value  # type: ignore[no-any-return]


def distribution_of(domain: Domain) -> BaseDistribution:
    """What is tried of a field, as Optuna has it."""
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.values)
    if domain.is_whole:
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=domain.log)


def _sampler(name: str, seed: int, bracket: Bracket | None) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)  # gamma, which Optuna 6 is to have no more
        match name:
            case "tpe":  # points in training count as bad, so that a batch does not gather in one place
                halving: dict[str, Any] = {} if bracket is None else _after_halving(bracket)
                return optuna.samplers.TPESampler(seed=seed, constant_liar=True, **halving)
            case "cmaes":
                return optuna.samplers.CmaEsSampler(seed=seed)
            case "qmc":  # its sequence goes on by itself
                return optuna.samplers.QMCSampler(
                    seed=0, scramble=True, independent_sampler=optuna.samplers.RandomSampler(seed=seed)
                )
            case _:
                return optuna.samplers.RandomSampler(seed=seed)


def _after_halving(bracket: Bracket) -> dict[str, Any]:
    """What TPE must know where each bracket has trials that are whole, however bad the shape of all its points.

    By default the best tenth of the trials count as good, which would be all of these: shapes would be proposed
    because they were tried, not because they are good.  And as the points of a bracket are of one shape, more of them
    are drawn at random where shapes are searched, so that there are several to tell apart.
    """
    told: dict[str, Any] = {"gamma": lambda n: math.ceil(_GOOD * n * bracket.whole / bracket.points)}
    return told | ({"n_startup_trials": FIRST_BRACKETS * bracket.points} if bracket.differs else {})


def _mend(path: Path) -> None:
    """Remove what a killed driver left: its lock, and a line that it had not finished."""
    for lock in path.parent.glob(f"{path.name}.lock*"):
        lock.unlink(missing_ok=True)
    if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
        with path.open("rb+") as file:
            file.truncate(content.rfind(b"\n") + 1)
