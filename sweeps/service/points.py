"""Which points a study trains: the paper's panels around one default, crossed with seeds and data sets.

A *point* is one choice of hyperparameters.  Each panel moves one hyperparameter and leaves the others at the default,
so every panel holds the default point; it is one set of replicas, trained once (paper: Sec. 3, sensitivity figure).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol as Interface

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica, SeedsVary
from adaptbin.errors import ConfigError, unknown


@dataclass(frozen=True)
class Panel:
    """One hyperparameter and the values it takes."""

    key: str
    """Name on the command line and in tables."""
    symbol: str
    """Name in figures (mathtext)."""
    field: str
    """Field of :class:`adaptbin.config.Hyperparameters`."""
    values: tuple[float, ...]
    """Ascending; the default is one of them."""
    letter: str
    """Label of the panel in the figure."""


PANELS = {
    panel.key: panel
    for panel in (
        Panel("w_sord", r"$w_{\mathrm{SORD}}$", "w_sord", (1, 3, 5, 7, 10), "a"),
        Panel("w_mse", r"$w_{\mathrm{mse}}$", "w_mse", (0.1, 0.3, 0.5, 0.7, 1), "b"),
        Panel("w_var", r"$w_{\mathrm{var}}$", "w_var", (0, 1e-3, 1e-2, 1e-1, 1), "c"),
        Panel("patience", "patience", "patience", (3, 5, 10, 20, 50), "d"),
        Panel("tau", r"$\tau$", "tau", (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), "e"),
    )
}
"""The paper's five sensitivity panels, in the figure's order."""


@dataclass(frozen=True)
class StudyPoint:
    """One place in one panel."""

    panel: str
    value: float
    is_default: bool
    hyperparameters: Hyperparameters


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


@dataclass(frozen=True)
class Study:
    """Points x seeds x data sets under one protocol and budget."""

    name: str
    """Folder under the output, and name of the MLflow study run."""
    cards: tuple[DatasetCard, ...]
    panels: tuple[Panel, ...]
    points: tuple[StudyPoint, ...]
    """One per panel and value, panel by panel; the default point appears once in every panel."""
    default: Hyperparameters
    seeds: tuple[int, ...]
    seeds_vary: SeedsVary
    protocol: Protocol
    budget: Budget

    @property
    def datasets(self) -> tuple[str, ...]:
        """Keys of the data sets, in the order asked for."""
        return tuple(card.key for card in self.cards)

    @cached_property
    def unique_points(self) -> tuple[Hyperparameters, ...]:
        """Distinct points: the default, then the others panel by panel (21 with the paper's panels)."""
        return tuple(dict.fromkeys([self.default, *(point.hyperparameters for point in self.points)]))

    @cached_property
    def replicas(self) -> dict[str, tuple[Replica, ...]]:
        """Per data set its replicas, each once: seed by seed, within a seed point by point."""
        return {
            card.key: tuple(
                self.replica(card, hyperparameters, seed)
                for seed in self.seeds
                for hyperparameters in self.unique_points
            )
            for card in self.cards
        }

    @property
    def all_replicas(self) -> tuple[Replica, ...]:
        """Replicas of all data sets, one data set after the other."""
        return tuple(replica for replicas in self.replicas.values() for replica in replicas)

    def replica(self, card: DatasetCard, hyperparameters: Hyperparameters, seed: int) -> Replica:
        """The replica that trains one point with one seed on one data set."""
        return Replica(
            dataset=card.key,
            fingerprint=card.fingerprint,
            architecture=card.architecture,
            hyperparameters=hyperparameters,
            seed=seed,
            seeds_vary=self.seeds_vary,
            protocol=self.protocol,
            budget=self.budget,
        )

    def only(self, dataset: str) -> Study:
        """The same study of one of its data sets."""
        return replace(self, cards=tuple(card for card in self.cards if card.key == dataset))

    def only_seeds(self, seeds: Sequence[int]) -> Study:
        """The same study of some of its seeds."""
        kept, some = frozenset(seeds), replace(self, seeds=tuple(seeds))
        # The very same replicas: their ids have been computed.
        vars(some)["replicas"] = {
            name: tuple(replica for replica in replicas if replica.seed in kept)
            for name, replicas in self.replicas.items()
        }
        return some


def get_panels(keys: Iterable[str]) -> tuple[Panel, ...]:
    """Panels called ``keys``, each once, in the figure's order.  Raises ConfigError on an unknown one."""
    keys = list(keys)
    for key in keys:
        if key not in PANELS:
            raise ConfigError(unknown("panel", key, PANELS))
    return tuple(panel for panel in PANELS.values() if panel.key in keys)


def sensitivity_study(
    cards: Sequence[DatasetCard],
    *,
    panels: Sequence[Panel] = tuple(PANELS.values()),
    default: Hyperparameters | None = None,
    seeds: Sequence[int] = tuple(range(10)),
    seeds_vary: SeedsVary = "pretrain",
    protocol: Protocol | None = None,
    budget: Budget | None = None,
) -> Study:
    """The paper's sensitivity study: every panel around ``default``, all seeds, all data sets.

    A panel whose values leave out the default gets it as one more value: without it there would be nothing to compare
    with.  Raises ConfigError when there is no data set, panel or seed, or one is named twice.
    """
    for what, names in (
        ("data set", [card.key for card in cards]),
        ("panel", [panel.key for panel in panels]),
        ("seed", list(seeds)),
    ):
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"a study needs at least one {what}, each named once, got {names}")
    default = Hyperparameters() if default is None else default
    panels = tuple(_with_default(panel, default) for panel in panels)
    return Study(
        name="sensitivity",
        cards=tuple(cards),
        panels=panels,
        points=tuple(_points(panels, default)),
        default=default,
        seeds=tuple(seeds),
        seeds_vary=seeds_vary,
        protocol=Protocol() if protocol is None else protocol,
        budget=Budget() if budget is None else budget,
    )


def with_value(study: Study, key: str, value: float) -> Study:
    """The study with one more value in the panel called ``key``.  Raises ConfigError when it cannot take it."""
    panel = _panel_of(study, key)
    whole = float(value).is_integer()
    value = int(value) if whole and all(isinstance(known, int) for known in panel.values) else value
    if value in panel.values:
        raise ConfigError(f"a value to add must be a new one, got {key}={value:g} of {_values(panel)}")
    return _with_panel(study, replace(panel, values=tuple(sorted((*panel.values, value)))))


def without_value(study: Study, key: str, value: float) -> Study:
    """The study without a value of the panel called ``key``.  Raises ConfigError when it must stay, or is not there."""
    panel = _panel_of(study, key)
    if value not in panel.values:
        raise ConfigError(f"a value to cancel must be one of {_values(panel)}, got {key}={value:g}")
    if value == getattr(study.default, panel.field):
        raise ConfigError(f"the default, which all points are compared with, must stay, got {key}={value:g}")
    return _with_panel(study, replace(panel, values=tuple(known for known in panel.values if known != value)))


def _panel_of(study: Study, key: str) -> Panel:
    panels = {panel.key: panel for panel in study.panels}
    if key not in panels:
        raise ConfigError(unknown("panel of this study", key, panels))
    return panels[key]


def _with_panel(study: Study, panel: Panel) -> Study:
    panels = tuple(panel if old.key == panel.key else old for old in study.panels)
    return replace(study, panels=panels, points=tuple(_points(panels, study.default)))


def _values(panel: Panel) -> str:
    return ", ".join(f"{value:g}" for value in panel.values)


def _with_default(panel: Panel, default: Hyperparameters) -> Panel:
    value = getattr(default, panel.field)
    return panel if value in panel.values else replace(panel, values=tuple(sorted((*panel.values, value))))


def _points(panels: Iterable[Panel], default: Hyperparameters) -> Iterable[StudyPoint]:
    for panel in panels:
        for value in panel.values:
            hyperparameters = Hyperparameters.from_dict({**default.to_dict(), panel.field: value})
            yield StudyPoint(panel.key, value, hyperparameters == default, hyperparameters)
