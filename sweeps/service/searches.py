"""The search study: points that a sampler proposes, one after the other, for one data set.

A *trial* is one of these points with all seeds.  Its score is the mean validation score over the seeds; test takes no
part.  When all trials are done, the best three and the default are trained again with fresh seeds, for the best of many
looks better than it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from adaptbin.config import Replica, method_version_of
from adaptbin.errors import ConfigError
from adaptbin.metrics import get_metric
from sweeps.service.parameters_search import Objective
from sweeps.service.plan import Halving
from sweeps.service.point_fields import Value
from sweeps.service.points import Point, Study
from sweeps.service.projection import content_hash
from sweeps.service.search_space import Space, settings_of

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

FINALISTS = 3
"""Best points of the search that are confirmed."""

State = Literal["waiting", "running", "complete", "pruned", "failed"]

Records = Mapping[str, Mapping[str, Any]]
"""Replica id -> its record."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One point that was asked for, and what came of it."""

    number: int
    """Place in the study, from 0 on."""
    state: State
    chosen: Mapping[str, Value]
    """Values of the searched fields."""
    values: tuple[float, ...] = ()
    """Of the objectives; of a pruned trial the score at the last rung that it reached."""
    steps: Mapping[int, float] = field(default_factory=dict)
    """Epochs of a rung -> score there."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What was noted of it: ``settings`` of its point, ``epochs`` that it had, ``bracket`` that it was halved in,
    ``reason`` of a failure, ``seeded_from`` another study."""

    @property
    def is_seeded(self) -> bool:
        """Whether it is a trial of another study."""
        return "seeded_from" in self.notes


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is to be told of a trial."""

    state: State
    epochs: int
    """That its replicas had."""
    values: tuple[float, ...] = ()
    steps: Mapping[int, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SearchStudy(Study):
    """Trials of one data set, and the confirmation of the best.

    Raises ConfigError when there are several data sets: what is good is found for each by itself.
    """

    extent_name: ClassVar[str] = "space"
    is_joint: ClassVar[bool] = False
    moved: ClassVar[tuple[str, ...]] = ("width", "depth", "dropout")

    name: str = "search"
    space: Space
    metric: str
    """Whose validation mean is the score."""
    objectives: tuple[Objective, ...] = ("score",)
    halving: Halving | None = None
    trials: tuple[Trial, ...] = ()
    confirm_seeds: tuple[int, ...]
    """Seeds of the confirmation, none of them among ``seeds``."""
    confirms: bool = False
    """Whether the trials are all done, so that the best are confirmed."""

    def __post_init__(self) -> None:
        if len(self.cards) != 1:
            raise ConfigError(f"a search is of one data set, got {', '.join(self.datasets)}")
        if self.halving is not None and self.protocol.pretrain_schedule != "constant":
            raise ConfigError(
                "halving needs a constant learning rate, else the first epochs are not those of a shorter run, got "
                f"pretrain_schedule {self.protocol.pretrain_schedule}"
            )
        super().__post_init__()

    @property
    def conditions(self) -> dict[str, Any]:
        """All that decides the values of trials but the space, as plain JSON."""
        (card,) = self.cards
        return {
            "method_version": method_version_of(card.architecture.encoder),
            "dataset": card.key,
            "fingerprint": card.fingerprint,
            "architecture": card.architecture.to_dict(),
            "protocol": self.protocol.to_dict(),
            "budget": self.budget.to_dict(),
            "seeds": list(self.seeds),
            "seeds_vary": self.seeds_vary,
            "metric": self.metric,
            "objectives": list(self.objectives),
            "rungs": None if self.halving is None else [*self.halving.rungs, self.halving.keep],
        }

    @cached_property
    def key(self) -> str:
        """16 hex digits of the hash of space and conditions, which names the study."""
        return content_hash([self.conditions, self.space.to_json()])[:16]

    # -------------------------------------------------------------------- trials and their points

    def point_of(self, trial: Trial, epochs: int | None = None) -> Point:
        """The point of a trial, after all epochs or so many."""
        point = self.space.point(trial.chosen)
        return replace(point, budget=self.budget.at_rung(epochs or self.budget.epochs))

    def rungs_of(self, trial: Trial) -> tuple[Point, ...]:
        """The points that a trial has records of, or is to have: one for each rung that it reached, the last last."""
        last = trial.notes.get("epochs", self.budget.epochs)
        return tuple(self.point_of(trial, epochs) for epochs in sorted({*trial.steps, last}))

    def replicas_of(self, point: Point, seeds: Sequence[int] | None = None) -> tuple[Replica, ...]:
        """The replicas of a point, with all seeds of the search or with others."""
        return tuple(self.replica(self.cards[0], point, seed) for seed in (self.seeds if seeds is None else seeds))

    def outcome_of(self, trial: Trial, records: Records) -> Outcome | None:
        """What the records say of a trial; None where there are none of all seeds.

        Under halving "pruned" is right only when its pack is done.
        """
        rungs = (self.budget.epochs,) if self.halving is None else self.halving.rungs
        steps: dict[int, float] = {}
        epochs, last = 0, []
        for rung in rungs:
            found = [records.get(replica.id) for replica in self.replicas_of(self.point_of(trial, rung))]
            there = [record for record in found if record is not None]
            if len(there) < len(self.seeds):
                continue
            epochs, last = rung, there
            if all(record["status"] == "finished" for record in there):
                steps[rung] = float(np.mean([record["scores"]["val"][self.metric] for record in there]))
        if not epochs:
            return None
        lost = sum(record["status"] != "finished" for record in last)
        if lost:
            reason = f"{lost} of {len(last)} seeds diverged"
            return Outcome(state="failed", epochs=epochs, steps=steps, reason=reason)
        told = {} if self.halving is None else steps
        if epochs < self.budget.epochs:
            return Outcome(state="pruned", epochs=epochs, values=(steps[epochs],), steps=told)
        seconds = float(np.mean([record["runtime"]["core_seconds"] for record in last]))
        values = {"score": steps[epochs], "seconds": seconds}
        return Outcome(
            state="complete", epochs=epochs, values=tuple(values[name] for name in self.objectives), steps=told
        )

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """Complete trials, the best score first; of equal ones the earlier."""
        sign = get_metric(self.metric).sign
        done = [trial for trial in self.trials if trial.state == "complete"]
        return tuple(sorted(done, key=lambda trial: (-sign * trial.values[0], trial.number)))

    @property
    def front(self) -> tuple[Trial, ...]:
        """Complete trials that no other one betters in all objectives, the best score first."""
        sign = get_metric(self.metric).sign
        found: list[Trial] = []
        for trial in self.ranked:  # what comes later has no better score, so it must have another advantage
            costs = [-sign * trial.values[0], *trial.values[1:]]
            others = [[-sign * other.values[0], *other.values[1:]] for other in found]
            if not any(all(a <= b for a, b in zip(other, costs, strict=True)) for other in others):
                found.append(trial)
        return tuple(found)

    @property
    def best(self) -> tuple[Trial, ...]:
        """The best trials, at most :data:`FINALISTS`, of different points and none of the default."""
        found: dict[Point, Trial] = {}
        for trial in self.ranked:
            if (point := self.point_of(trial)) != self.default_point:
                found.setdefault(point, trial)
        return tuple(found.values())[:FINALISTS]

    @property
    def told(self) -> Self:
        """The same search of the trials alone that are done: nobody knows yet what epochs the others will have."""
        return replace(self, trials=tuple(trial for trial in self.trials if trial.state != "running"))

    @property
    def finalists(self) -> tuple[Point, ...]:
        """The points that are confirmed: those of the best trials, and the default; none before all trials are done."""
        if not self.confirms or not self.best:
            return ()
        return (*map(self.point_of, self.best), self.default_point)

    # -------------------------------------------------------------------- what every study has

    @property
    def default_point(self) -> Point:
        """What the best is compared with: the paper's point, with the values that were fixed."""
        return replace(self.space.default, budget=self.budget)

    def default_point_of(self, dataset: str) -> Point:
        """See :class:`Study`; with the architecture that was fixed."""
        return self.default_point

    def unique_points_of(self, dataset: str) -> tuple[Any, ...]:
        """Hyperparameters of :meth:`points_of`."""
        return tuple(dict.fromkeys(point.hyperparameters for point in self.points_of(dataset)))

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """The default, then the points of the trials in their order, under halving at each rung that they reached."""
        points = [point for trial in self.trials for point in self.rungs_of(trial)]
        return tuple(dict.fromkeys([self.default_point, *points]))

    @cached_property
    def replicas(self) -> dict[str, tuple[Replica, ...]]:
        """Every point with the seeds of the search, then the finalists with fresh ones."""
        return {name: tuple(self._all_replicas(name)) for name in self.datasets}

    def _all_replicas(self, dataset: str) -> Iterator[Replica]:
        for point in self.points_of(dataset):
            yield from self.replicas_of(point)
        for point in self.finalists:
            yield from self.replicas_of(point, self.confirm_seeds)

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Searched field -> what is tried of it, in words."""
        return {name: [str(domain)] for name, domain in self.space.searched.items()}

    def with_value(self, key: str, value: float) -> Self:
        """Always ConfigError."""
        self._refuse(key, value)

    def without_value(self, key: str, value: float) -> Self:
        """Always ConfigError."""
        self._refuse(key, value)

    def _refuse(self, key: str, value: float) -> NoReturn:
        raise ConfigError(
            f"a search proposes its points itself, so it takes none and gives none away, got {key}={value:g}"
        )

    def option_for(self, value: str) -> str | None:
        """None: it takes no values."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Fixed values of the architecture, and halving."""
        (card,) = self.cards
        differing = [
            f"{name} {value:g}"
            for name, value in settings_of(self.default_point).items()
            if hasattr(card.architecture, name) and value != getattr(card.architecture, name)
        ]
        notes = [f"Architecture of the default point: {', '.join(differing)}"] if differing else []
        if self.halving is not None:
            rungs = ", ".join(map(str, self.halving.rungs))
            notes.append(f"Halving at {rungs} epochs: points that left had fewer than all")
        return tuple(notes)

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_search import publish  # what draws takes seconds to import

        return publish(self, records, folder, manifest=manifest, test=options.test)


@dataclass(frozen=True, kw_only=True)
class HalvingSearchStudy(SearchStudy):
    """A search whose points differ in their epochs, too."""

    moved: ClassVar[tuple[str, ...]] = (*SearchStudy.moved, "epochs")
