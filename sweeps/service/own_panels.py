"""The sensitivity study of panels that a person asks for: any field of a point, and maps of two fields.

Points, pairs, tests and marks are those of the paper's panels.  Panels and maps of several data sets have the default
values of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, ClassVar, Self

from adaptbin.errors import ConfigError, unknown
from sweeps.service.grid import DEFAULT_MASK_PROB
from sweeps.service.own_grids import TIMES, OwnGrid
from sweeps.service.panels import Panel, PanelPoint, SensitivityStudy, values_text, with_values
from sweeps.service.point_fields import ARCHITECTURE_FIELDS, Value, get_field, move, value_text
from sweeps.service.points import Point

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published


@dataclass(frozen=True)
class PanelMap:
    """Two fields, each value of one with each value of the other."""

    across: Panel
    down: Panel
    letter: str
    """Label of the map in the figure."""

    @property
    def key(self) -> str:
        """Name in tables and on the command line, as ``w_sord*tau``."""
        return f"{self.across.field}{TIMES}{self.down.field}"

    @property
    def sides(self) -> tuple[Panel, Panel]:
        """Across, then down."""
        return self.across, self.down

    @property
    def cells(self) -> dict[str, dict[str, Value]]:
        """Value in tables, as ``3*0.001`` -> value of each field; row by row.

        Masking "none" has p_m 0, and no other kind has: cells that say otherwise do not exist.
        """
        places = (
            {self.across.field: across, self.down.field: down}
            for down in self.down.values
            for across in self.across.values
        )
        return {
            TIMES.join(map(value_text, place.values())): place
            for place in places
            if not {"masking", "mask_prob"} <= place.keys() or (place["masking"] == "none") == (place["mask_prob"] == 0)
        }


@dataclass(frozen=True, kw_only=True)
class OwnPanelsStudy(SensitivityStudy):
    """Panels and maps that a person asks for, around the default point of each data set.

    All that moves masking alone takes the p_m of the default point where that is masked, else
    :data:`sweeps.service.grid.DEFAULT_MASK_PROB`.  Raises ConfigError on a panel of the default alone, and on points
    that cannot be.
    """

    moved: ClassVar[tuple[str, ...]] = ARCHITECTURE_FIELDS
    takes_words: ClassVar[bool] = True

    name: str = "grid"
    panels: tuple[Panel, ...] = ()
    maps: tuple[PanelMap, ...] = field(default=())

    def __post_init__(self) -> None:
        maps = tuple(self._with_defaults(of_two) for of_two in self.maps)
        object.__setattr__(self, "maps", maps)
        super().__post_init__()
        for panel in self._sides():
            if len(panel.values) < 2:
                raise ConfigError(
                    f"a panel must have a value besides the default, got {panel.field} {values_text(panel)}"
                )

    @property
    def panel_keys(self) -> tuple[str, ...]:
        """Panels, then maps."""
        return (*super().panel_keys, *(of_two.key for of_two in self.maps))

    def places_around(self, default: Point) -> Iterator[PanelPoint]:
        """See :class:`SensitivityStudy`; panels, then maps."""
        lines = {panel.key: [(value, {panel.field: value}) for value in panel.values] for panel in self.panels}
        cells: dict[str, list[tuple[Value, dict[str, Value]]]]
        cells = {of_two.key: list(of_two.cells.items()) for of_two in self.maps}
        for key, places in (*lines.items(), *cells.items()):
            for value, settings in places:
                point = _moved(default, settings)
                yield PanelPoint(key, value, point == default, point)

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Panel -> its values; map -> its cells."""
        return {**super().extent, **{of_two.key: list(of_two.cells) for of_two in self.maps}}

    @property
    def notes(self) -> tuple[str, ...]:
        """Which the panels are, and what else moves with a field."""
        told = [f"{panel.key} {values_text(panel)}" for panel in self.panels]
        told += [" × ".join(f"{side.field} {values_text(side)}" for side in of_two.sides) for of_two in self.maps]
        notes = [f"The panels are the user's own, not the paper's: {'; '.join(told)}"]
        moved = [{side.field for side in of_two.sides} for of_two in self.maps] + [{p.field} for p in self.panels]
        if any("masking" in fields and "mask_prob" not in fields for fields in moved):
            used = sorted({_mask_prob(self.default_point_of(name)) for name in self.datasets})
            told_p_m = " or ".join(map(value_text, used)) + (", by data set" if len(used) > 1 else "")
            notes.append(f"Where masking is moved and p_m is not, p_m is {told_p_m}; with none, 0")
        if any({"masking", "mask_prob"} <= fields for fields in moved):
            notes.append("Masking none has p_m 0, and no other kind has: cells that say otherwise stay empty")
        return tuple(notes)

    def with_value(self, key: str, value: Value) -> Self:
        """The study with one more value of the field ``key``, wherever it is moved and has not got it.

        Raises ConfigError when nothing moves it, or all have the value.
        """
        name, value = get_field(key).name, get_field(key).read(value)
        moving = self._moving(name)
        if all(value in panel.values for panel in moving):
            raise ConfigError(
                f"a value to add must be a new one, got {name}={value_text(value)} of {values_text(moving[0])}"
            )
        return self._changed(name, lambda panel: with_values(panel, [value]))

    def without_value(self, key: str, value: Value) -> Self:
        """The study without a value of the field ``key``, wherever it is moved.

        Raises ConfigError when it is nowhere, or must stay.
        """
        name, value = get_field(key).name, get_field(key).read(value)
        moving, told = self._moving(name), f"got {name}={value_text(value)}"
        if all(value not in panel.values for panel in moving):
            known = get_field(name).in_order(known for panel in moving for known in panel.values)
            raise ConfigError(f"a value to cancel must be one of {', '.join(map(value_text, known))}, {told}")
        if value in self.default_values(moving[0]):
            raise ConfigError(f"the default, which all points are compared with, must stay, {told}")
        fewer = self._changed(
            name, lambda panel: replace(panel, values=tuple(known for known in panel.values if known != value))
        )
        if fewer == self:
            raise ConfigError(f"masking none and p_m 0 go together, so neither leaves alone, {told}")
        return fewer

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.captions_own import caption_text
        from sweeps.service.figures_own import own_figure  # what draws takes seconds to import
        from sweeps.service.publish_sensitivity import publish

        shown: dict[str, Any] = {"draw": own_figure, "describe": caption_text}
        metrics: dict[str, Any] = {"metrics": options.metrics, "primary": options.primary}
        return publish(self, records, folder, **metrics, manifest=manifest, **shown)

    def _sides(self) -> tuple[Panel, ...]:
        """Panels, and both sides of maps."""
        return (*self.panels, *(side for of_two in self.maps for side in of_two.sides))

    def _moving(self, name: str) -> list[Panel]:
        """Panels and sides that move a field.  Raises ConfigError when there is none."""
        moving = [panel for panel in self._sides() if panel.field == name]
        if not moving:
            raise ConfigError(unknown("field of this study's panels", name, {panel.field for panel in self._sides()}))
        return moving

    def _changed(self, name: str, change: Callable[[Panel], Panel]) -> Self:
        def changed(panel: Panel) -> Panel:
            return change(panel) if panel.field == name else panel

        maps = tuple(replace(of_two, across=changed(of_two.across), down=changed(of_two.down)) for of_two in self.maps)
        return replace(self, panels=tuple(map(changed, self.panels)), maps=maps)

    def _with_defaults(self, of_two: PanelMap) -> PanelMap:
        """The map with the default values of its fields; of masking and p_m, "none" and 0 come together."""
        across, down = (with_values(side, self.default_values(side)) for side in of_two.sides)
        together: dict[str, Value] = {"masking": "none", "mask_prob": 0.0}
        if {across.field, down.field} == together.keys() and any(
            together[side.field] in side.values for side in (across, down)
        ):
            across, down = (with_values(side, [together[side.field]]) for side in (across, down))
        return replace(of_two, across=across, down=down)


def panels_and_maps(grids: Iterable[OwnGrid]) -> dict[str, Any]:
    """Fields ``panels`` and ``maps`` of a study of these grids; letters go through the panels, then the maps."""
    grids = sorted(grids, key=lambda grid: len(grid.sides))
    panels: list[Panel] = []
    maps: list[PanelMap] = []
    for number, grid in enumerate(grids):
        again, place = divmod(number, len(ascii_lowercase))
        letter = ascii_lowercase[place] * (again + 1)
        sides = [Panel(name, get_field(name).symbol, name, values, letter) for name, values in grid.sides]
        if len(sides) == 1:
            panels.append(sides[0])
        else:
            across, down = sides
            maps.append(PanelMap(across, down, letter))
    return {"panels": tuple(panels), "maps": tuple(maps)}


def _moved(default: Point, settings: Mapping[str, Value]) -> Point:
    """The default with other values of some fields, and with the p_m that goes with a masking that is moved alone."""
    told = ", ".join(f"{name}={value_text(value)}" for name, value in settings.items())
    masking = settings.get("masking")
    together = dict(settings)
    if masking is not None and "mask_prob" not in settings:
        together["mask_prob"] = 0.0 if masking == "none" else _mask_prob(default)
    try:
        return move(default, together)
    except ConfigError as error:
        instead = ""
        if "mask_prob" in settings and masking is None:
            instead = (
                "; p_m is moved where the default point is masked (--masking, --choice-from), or with masking "
                "(masking=constant,random*mask_prob=0.1,0.3)"
            )
        raise ConfigError(f"a point of the grid cannot be, {told}: {error}{instead}") from error


def _mask_prob(default: Point) -> float:
    """p_m of points whose masking is moved alone."""
    return default.hyperparameters.mask_prob or DEFAULT_MASK_PROB
