"""The sensitivity study: the paper's panels around one default point of each data set.

Each panel moves one hyperparameter and leaves the others at the default, so every panel holds the default point; it is
one set of replicas, trained once (paper: Sec. 3, sensitivity figure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError, unknown
from sweeps.service.points import AskedTest, Study, require_each_once

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published


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
class PanelPoint:
    """One place in one panel."""

    panel: str
    value: float
    is_default: bool
    hyperparameters: Hyperparameters


@dataclass(frozen=True, kw_only=True)
class SensitivityStudy(Study):
    """Panels around the default point of each data set; every point is tested against it.

    A panel whose values leave out the default gets it as one more value: without it there would be nothing to compare
    with.  Raises ConfigError when there is no panel, or one is named twice.
    """

    extent_name: ClassVar[str] = "panels"
    is_joint: ClassVar[bool] = True

    name: str = "sensitivity"
    panels: tuple[Panel, ...] = tuple(PANELS.values())
    test: AskedTest = "wilcoxon"

    def __post_init__(self) -> None:
        require_each_once("panel", [panel.key for panel in self.panels])
        panels = tuple(_with_values(panel, self.default_values(panel)) for panel in self.panels)
        object.__setattr__(self, "panels", panels)
        super().__post_init__()

    @cached_property
    def points(self) -> dict[str, tuple[PanelPoint, ...]]:
        """Per data set one point per panel and value, panel by panel; the default point is in every panel."""
        return {name: tuple(_points(self.panels, self.default_of(name))) for name in self.datasets}

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """The default, then the others panel by panel (21 with the paper's panels)."""
        points = (point.hyperparameters for point in self.points[dataset])
        return tuple(dict.fromkeys([self.default_of(dataset), *points]))

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Panel -> its values."""
        return {panel.key: list(panel.values) for panel in self.panels}

    def with_value(self, key: str, value: float) -> Self:
        """The study with one more value in the panel called ``key``.  Raises ConfigError when it cannot take it."""
        panel = self._panel(key)
        whole = float(value).is_integer()
        value = int(value) if whole and all(isinstance(known, int) for known in panel.values) else value
        if value in panel.values:
            raise ConfigError(f"a value to add must be a new one, got {key}={value:g} of {_values(panel)}")
        return self._with_panel(replace(panel, values=tuple(sorted((*panel.values, value)))))

    def without_value(self, key: str, value: float) -> Self:
        """The study without a value of the panel ``key``.  Raises ConfigError when it must stay, or is not there."""
        panel = self._panel(key)
        if value not in panel.values:
            raise ConfigError(f"a value to cancel must be one of {_values(panel)}, got {key}={value:g}")
        if value in self.default_values(panel):
            raise ConfigError(f"the default, which all points are compared with, must stay, got {key}={value:g}")
        return self._with_panel(replace(panel, values=tuple(known for known in panel.values if known != value)))

    def option_for(self, value: str) -> str:
        """See :class:`sweeps.service.points.Study`."""
        return f"--value {value}"

    def default_values(self, panel: Panel) -> tuple[float, ...]:
        """Default values of a panel, ascending; more than one where choices of the data sets differ in its field."""
        return tuple(sorted({getattr(self.default_of(name), panel.field) for name in self.datasets}))

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_sensitivity import publish  # what draws takes seconds to import

        return publish(self, records, folder, metrics=options.metrics, primary=options.primary, manifest=manifest)

    def _panel(self, key: str) -> Panel:
        panels = {panel.key: panel for panel in self.panels}
        if key not in panels:
            raise ConfigError(unknown("panel of this study", key, panels))
        return panels[key]

    def _with_panel(self, panel: Panel) -> Self:
        return replace(self, panels=tuple(panel if old.key == panel.key else old for old in self.panels))


def get_panels(keys: Iterable[str]) -> tuple[Panel, ...]:
    """Panels called ``keys``, each once, in the figure's order.  Raises ConfigError on an unknown one."""
    keys = list(keys)
    for key in keys:
        if key not in PANELS:
            raise ConfigError(unknown("panel", key, PANELS))
    return tuple(panel for panel in PANELS.values() if panel.key in keys)


def _values(panel: Panel) -> str:
    return ", ".join(f"{value:g}" for value in panel.values)


def _with_values(panel: Panel, values: Sequence[float]) -> Panel:
    return replace(panel, values=tuple(sorted({*panel.values, *values})))


def _points(panels: Iterable[Panel], default: Hyperparameters) -> Iterable[PanelPoint]:
    for panel in panels:
        for value in panel.values:
            hyperparameters = Hyperparameters.from_dict({**default.to_dict(), panel.field: value})
            yield PanelPoint(panel.key, value, hyperparameters == default, hyperparameters)
