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
from sweeps.service.point_fields import Value, get_field, move, value_text
from sweeps.service.points import AskedTest, Point, Study, require_each_once

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
    """Field of a point; see :mod:`sweeps.service.point_fields`."""
    values: tuple[Value, ...]
    """Numbers ascending, words in the field's order; the default is one of them."""
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
    value: Value
    is_default: bool
    point: Point

    @property
    def cell(self) -> Value:
        """The value in tables, where all numbers are of one kind."""
        return self.value if isinstance(self.value, str) else float(self.value)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Those of the point."""
        return self.point.hyperparameters


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
        require_each_once("panel", self.panel_keys)
        panels = tuple(with_values(panel, self.default_values(panel)) for panel in self.panels)
        object.__setattr__(self, "panels", panels)
        super().__post_init__()

    @property
    def panel_keys(self) -> tuple[str, ...]:
        """Names of the panels, in the figure's order."""
        return tuple(panel.key for panel in self.panels)

    @cached_property
    def points(self) -> dict[str, tuple[PanelPoint, ...]]:
        """Per data set one point per panel and value, panel by panel; the default point is in every panel."""
        return {name: tuple(self.places_around(self.default_point_of(name))) for name in self.datasets}

    def places_around(self, default: Point) -> Iterable[PanelPoint]:
        """Every place of every panel around a default point.  Raises ConfigError on a point that cannot be."""
        for panel in self.panels:
            for value in panel.values:
                point = move(default, {panel.field: value})
                yield PanelPoint(panel.key, value, point == default, point)

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """The default, then the others panel by panel (21 with the paper's panels)."""
        points = (place.point for place in self.points[dataset])
        return tuple(dict.fromkeys([self.default_point_of(dataset), *points]))

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """Those of :meth:`points_of`."""
        return tuple(dict.fromkeys(point.hyperparameters for point in self.points_of(dataset)))

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Panel -> its values."""
        return {panel.key: list(panel.values) for panel in self.panels}

    def with_value(self, key: str, value: Value) -> Self:
        """The study with one more value in the panel called ``key``.  Raises ConfigError when it cannot take it."""
        panel = self._panel(key)
        value = float(get_field(panel.field).read(value))
        value = int(value) if value.is_integer() and all(isinstance(known, int) for known in panel.values) else value
        if value in panel.values:
            raise ConfigError(f"a value to add must be a new one, got {key}={value:g} of {values_text(panel)}")
        return self._with_panel(with_values(panel, [value]))

    def without_value(self, key: str, value: Value) -> Self:
        """The study without a value of the panel ``key``.  Raises ConfigError when it must stay, or is not there."""
        panel = self._panel(key)
        value = float(get_field(panel.field).read(value))
        if value not in panel.values:
            raise ConfigError(f"a value to cancel must be one of {values_text(panel)}, got {key}={value:g}")
        if value in self.default_values(panel):
            raise ConfigError(f"the default, which all points are compared with, must stay, got {key}={value:g}")
        return self._with_panel(replace(panel, values=tuple(known for known in panel.values if known != value)))

    def option_for(self, value: str) -> str:
        """See :class:`sweeps.service.points.Study`."""
        return f"--value {value}"

    def default_values(self, panel: Panel) -> tuple[Value, ...]:
        """Default values of a panel, in its order; more than one where those of the data sets differ in its field."""
        field = get_field(panel.field)
        return field.in_order(field.of(self.default_point_of(name)) for name in self.datasets)

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


def values_text(panel: Panel) -> str:
    """``1, 3, 10``."""
    return ", ".join(map(value_text, panel.values))


def with_values(panel: Panel, values: Iterable[Value]) -> Panel:
    """The panel with further values, those that it has already left out."""
    return replace(panel, values=get_field(panel.field).in_order([*panel.values, *values]))
