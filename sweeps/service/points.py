"""What every study is: points x seeds x data sets under one protocol and budget, and how its results are published.

A *point* is one choice of what is trained: hyperparameters and, where a study moves it, the architecture.  Studies
differ in the points that they train and in what they make of the results.  Each kind is a subclass in a module of its
own: :mod:`sweeps.service.panels`, :mod:`sweeps.service.grid`, :mod:`sweeps.service.methods`,
:mod:`sweeps.service.methods_finetune`, :mod:`sweeps.service.variants`, :mod:`sweeps.service.variance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from typing import Protocol as Interface

from adaptbin.config import (
    Architecture,
    Budget,
    Finetuning,
    Hyperparameters,
    Protocol,
    Replica,
    SeedsVary,
)
from adaptbin.errors import ConfigError
from sweeps.service.choice import Choice
from sweeps.service.projection import point_settings

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

AskedTest = Literal["wilcoxon", "t"]
"""A paired test, fixed before the run."""


class DatasetCard(Interface):
    """What a study needs to know of a data set; ``adaptbin.data.registry.Card`` has it."""

    @property
    def key(self) -> str:
        """Name of the data set."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of its parsed table."""

    @property
    def architecture(self) -> Architecture:
        """Width, depth and batch size used for it."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """What replicas have in common that differ in nothing but their seeds."""

    hyperparameters: Hyperparameters
    architecture: Architecture
    budget: Budget
    finetuning: Finetuning | None = None
    """None: linear probes read the embeddings."""

    def __post_init__(self) -> None:
        if self.finetuning is not None:  # as in a replica, what is said of probes decides nothing then
            object.__setattr__(self, "budget", Budget(epochs=self.budget.epochs))

    def settings(self, moved: Sequence[str] = ()) -> dict[str, Any]:
        """Hyperparameters, and those other settings that a study moves (:attr:`Study.moved`), as plain JSON."""
        told = {} if self.finetuning is None else {"finetuning": self.finetuning.to_dict()}
        parts = {"hyperparameters": self.hyperparameters.to_dict(), "architecture": self.architecture.to_dict(), **told}
        return point_settings({**parts, "budget": self.budget.to_dict()}, moved)


def point_of(replica: Replica) -> Point:
    """The point that a replica is of."""
    return Point(
        hyperparameters=replica.hyperparameters,
        architecture=replica.architecture,
        budget=replica.budget,
        finetuning=replica.finetuning,
    )


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """Points x seeds x data sets under one protocol and budget; what is not given is the paper's.

    Raises ConfigError when there is no data set or seed, or one is named twice, and on hyperparameters that cannot be.
    """

    extent_name: ClassVar[str]
    """What :attr:`extent` is called in the manifest and in MLflow."""
    is_joint: ClassVar[bool]
    """Whether several data sets have one folder of tables and a figure together, besides their own."""

    fewest_seeds: ClassVar[int] = 1
    """Seeds without which there is nothing to publish."""

    moved: ClassVar[tuple[str, ...]] = ()
    """What its points differ in besides hyperparameters: "encoder", "width", "depth", or one of "finetuning.epochs" and
    the like.  In MLflow these are parameters of a point."""

    name: str
    """Folder under the output, and name of the MLflow study run."""
    cards: tuple[DatasetCard, ...]
    default: Hyperparameters = Hyperparameters()
    """The default point of data sets for which nothing was chosen; see :meth:`default_of`."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """Data set -> choice of an earlier study that its default point takes over."""
    seeds: tuple[int, ...] = tuple(range(10))
    seeds_vary: SeedsVary = "pretrain"
    protocol: Protocol = Protocol()
    budget: Budget = Budget()
    finetuning: Finetuning | None = None
    """How points are fine-tuned; None: linear probes read their embeddings."""
    test: AskedTest | None = None
    """Test of every point against the default; None where none is planned."""

    def __post_init__(self) -> None:
        require_each_once("data set", self.datasets)
        require_each_once("seed", self.seeds)
        for dataset in self.datasets:
            self.points_of(dataset)  # points that cannot be are refused here

    # -------------------------------------------------------------------- what each kind of study has of its own

    @abstractmethod
    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """Distinct hyperparameters of a data set, in the order to train and list them in; as many for every one."""

    @property
    @abstractmethod
    def extent(self) -> dict[str, list[Any]]:
        """Name of each thing that is moved -> the values it takes."""

    @abstractmethod
    def with_value(self, key: str, value: float) -> Self:
        """The study with one more value of what is called ``key``.  Raises ConfigError when it cannot take it."""

    @abstractmethod
    def without_value(self, key: str, value: float) -> Self:
        """The study without a value of what is called ``key``.  Raises ConfigError when it is not there, or must be."""

    @abstractmethod
    def option_for(self, value: str) -> str | None:
        """Option that asks for one more value, as "tau=0.003", from the start; None where the script has none."""

    @abstractmethod
    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """Write tables, figure, caption and manifest of the study's ``records`` to ``folder``.

        Several data sets at once are asked for only where the study :attr:`is_joint`.
        """

    @property
    def notes(self) -> tuple[str, ...]:
        """What of its points must be told wherever results are shown, a sentence each without the full stop."""
        return ()

    # -------------------------------------------------------------------- what all have in common

    @property
    def datasets(self) -> tuple[str, ...]:
        """Keys of the data sets, in the order asked for."""
        return tuple(card.key for card in self.cards)

    @property
    def unique_points(self) -> tuple[Hyperparameters, ...]:
        """Distinct hyperparameters of the first data set; see :meth:`unique_points_of`."""
        return self.unique_points_of(self.datasets[0])

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """Distinct points of a data set, in the order to train and list them in; as many for every data set.

        By default one for each of :meth:`unique_points_of`.  A study that moves the architecture has its own.
        """
        return tuple(self.point(dataset, hyperparameters) for hyperparameters in self.unique_points_of(dataset))

    def point(self, dataset: str, hyperparameters: Point | Hyperparameters) -> Point:
        """The point with these hyperparameters, and everything else as the data set's card and the study have it.

        A whole point is what it is.
        """
        if isinstance(hyperparameters, Point):
            return hyperparameters
        return Point(
            hyperparameters=hyperparameters,
            architecture=self.card(dataset).architecture,
            budget=replace(self.budget, epochs=0) if hyperparameters.pretext == "none" else self.budget,
            finetuning=self.finetuning,
        )

    def card(self, dataset: str) -> DatasetCard:
        """Card of one of the data sets."""
        return next(card for card in self.cards if card.key == dataset)

    @property
    def all_seeds_vary(self) -> tuple[SeedsVary, ...]:
        """What seeds change in turn: every point is trained with all seeds under each; most studies have one."""
        return (self.seeds_vary,)

    def default_of(self, dataset: str) -> Hyperparameters:
        """Hyperparameters of a data set's default point: the study's, with what was chosen for that data set."""
        choice = self.choices.get(dataset)
        return self.default if choice is None else choice.apply_to(self.default)

    def default_point_of(self, dataset: str) -> Point:
        """The default point of a data set, which the names of the others in MLflow say the difference to."""
        return self.point(dataset, self.default_of(dataset))

    def base_of(self, dataset: str, pretext: str | None) -> Point:
        """The point that settings given by hand are relative to; ``pretext``: the one they ask for, if any."""
        return self.default_point_of(dataset)

    @cached_property
    def replicas(self) -> dict[str, tuple[Replica, ...]]:
        """Per data set its replicas, each once: kind of seeds by kind, seed by seed, within a seed point by point."""
        found = {}
        for card in self.cards:
            points = self.points_of(card.key)
            found[card.key] = tuple(
                self.replica(card, point, seed, seeds_vary)
                for seeds_vary in self.all_seeds_vary
                for seed in self.seeds
                for point in points
            )
        return found

    @property
    def all_replicas(self) -> tuple[Replica, ...]:
        """Replicas of all data sets, one data set after the other."""
        return tuple(replica for replicas in self.replicas.values() for replica in replicas)

    def replica(
        self, card: DatasetCard, point: Point | Hyperparameters, seed: int, seeds_vary: SeedsVary | None = None
    ) -> Replica:
        """The replica that trains one point with one seed on one data set; ``seeds_vary``: by default the study's.

        Hyperparameters alone stand for their :meth:`point`.
        """
        point = self.point(card.key, point)
        return Replica(
            dataset=card.key,
            fingerprint=card.fingerprint,
            architecture=point.architecture,
            hyperparameters=point.hyperparameters,
            seed=seed,
            seeds_vary=seeds_vary or self.seeds_vary,
            protocol=self.protocol,
            budget=point.budget,
            finetuning=point.finetuning,
        )

    def only(self, dataset: str) -> Self:
        """The same study of one of its data sets."""
        choices = {name: choice for name, choice in self.choices.items() if name == dataset}
        return replace(self, cards=tuple(card for card in self.cards if card.key == dataset), choices=choices)

    def only_seeds(self, seeds: Sequence[int]) -> Self:
        """The same study of some of its seeds."""
        kept, some = frozenset(seeds), replace(self, seeds=tuple(seeds))
        # The very same replicas: their ids have been computed.
        vars(some)["replicas"] = {
            name: tuple(replica for replica in replicas if replica.seed in kept)
            for name, replicas in self.replicas.items()
        }
        return some


def require_each_once(what: str, names: Sequence[Hashable]) -> None:
    """Raise ConfigError unless there is at least one name, and none twice."""
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"a study needs at least one {what}, each named once, got {list(names)}")
