"""Which panels are trained, and with which further values, as typed: the paper's panels, or those of own grids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adaptbin.errors import ConfigError, nearest, unknown
from sweeps.service.own_grids import TIMES, OwnGrid
from sweeps.service.panels import PANELS
from sweeps.service.point_fields import Value, get_field
from sweeps.service.points import require_each_once


def panels_asked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options ``panel`` and ``value`` as typed, read as those of the grids asked for, or else of the paper's panels.

    Raises ConfigError on what neither has.
    """
    words = tuple(tuple(word.lower() for word in re.split(r"[,\s]+", text) if word) for text in given["panel"])
    read: Any = read_value if given["grid"] else _papers_value
    if not given["grid"]:
        words = tuple(map(_papers_panels, words))
    return {"panel": words, "value": tuple(map(read, given["value"]))}


def chosen_grids(grids: Sequence[OwnGrid], panels: Iterable[str]) -> tuple[OwnGrid, ...]:
    """Grids whose panels are called ``panels``, in the order of the grids; all where none or "all" is named.

    Raises ConfigError when two grids have one name, and on a name that no grid has.
    """
    known = [grid.key for grid in grids]
    require_each_once("grid", known)
    asked = [TIMES.join(get_field(name).name for name in word.split(TIMES)) for word in panels if word != "all"]
    for key in asked:
        if key not in known:
            hint = nearest(key, known)
            raise ConfigError(f"unknown panel {key!r} of the grids asked for{hint} (known: {', '.join(known)})")
    return tuple(grid for grid in grids if not asked or grid.key in asked)


def read_value(text: str) -> tuple[str, Value]:
    """Field and value of ``lr=3e-4``.  Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise ConfigError(f"a value must be given as field=value, such as tau=0.003, got {text!r}")
    field = get_field(name)
    return field.name, field.read(value)


def _papers_panels(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if word not in PANELS and word != "all":
            raise ConfigError(unknown("panel", word, [*PANELS, "all"]))
    if not words:
        raise ConfigError(f"panel must be one of {', '.join(PANELS)} or all, got none")
    return tuple(PANELS) if "all" in words else words


def _papers_value(text: str) -> tuple[str, float]:
    panel, _, number = text.partition("=")
    if panel not in PANELS:
        raise ConfigError(unknown("panel", panel, PANELS))
    try:
        return panel, float(number)
    except ValueError:
        raise ConfigError(f"a value must be given as panel=number, such as tau=0.003, got {text!r}") from None
