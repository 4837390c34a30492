"""Grids that a person asks for in place of the paper's panels, as words of the command line or as a YAML file.

``w_sord=1,3,10`` moves one field; ``w_sord=1,3,10*tau=1e-4,1e-3`` moves two, each value of one with each of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaptbin.errors import ConfigError
from sweeps.service.point_fields import FIELDS, SHORT_NAMES, Value, get_field, value_text

TIMES = "*"
"""Between the two fields of a grid."""

_RULE = "a grid must be given as field=values, such as w_sord=1,3,10 or w_sord=1,3,10*tau=1e-4,1e-3, or as a YAML file"


@dataclass(frozen=True)
class OwnGrid:
    """One field and its values, or two, which are crossed.

    Raises ConfigError unless there are one or two fields, each with values that differ.
    """

    sides: tuple[tuple[str, tuple[Value, ...]], ...]
    """Field and values, as asked for."""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sides]
        if len(names) > 2 or len(set(names)) < len(names):
            raise ConfigError(f"a grid must move one field, or two different ones, got {', '.join(names)}")
        for name, values in self.sides:
            twice = [value for value in values if values.count(value) > 1]
            if not values or twice:
                got = f"{value_text(twice[0])} {values.count(twice[0])} times" if twice else "none"
                raise ConfigError(f"values of {name} must be at least one, each named once, got {got}")

    @property
    def key(self) -> str:
        """``w_sord``, or ``w_sord*tau``: the name of its panel."""
        return TIMES.join(name for name, _ in self.sides)

    def __str__(self) -> str:
        return TIMES.join(f"{name}={','.join(map(_exact, values))}" for name, values in self.sides)


def read_grids(word: str) -> tuple[OwnGrid, ...]:
    """Grids that one word of the command line asks for: itself, or those in the YAML file that it names.

    Raises ConfigError when it is neither, on a field that cannot be moved, and on a value that the field cannot have.
    """
    if word.strip().lower().endswith((".yaml", ".yml")):
        return _read_file(Path(word.strip()).expanduser())
    return (parse_grid(word),)


def parse_grid(text: str) -> OwnGrid:
    """The grid that is written so.  Raises ConfigError as :func:`read_grids` does."""
    sides = []
    for side in text.split(TIMES):
        name, equals, values = side.partition("=")
        if not equals or not name.strip() or "=" in values:
            raise ConfigError(f"{_RULE}, got {text!r}")
        sides.append(_side(name, [word for word in values.replace(",", " ").split() if word]))
    return OwnGrid(tuple(sides))


def fields_help() -> str:
    """The fields that a grid can move, with their short names."""
    short = {name: alias for alias, name in SHORT_NAMES.items()}
    return ", ".join(f"{name} ({short[name]})" if name in short else name for name in FIELDS)


def _side(name: str, values: Sequence[Any]) -> tuple[str, tuple[Value, ...]]:
    field = get_field(name)
    return field.name, tuple(field.read(value) for value in values)


def _exact(value: Value) -> str:
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


def _read_file(path: Path) -> tuple[OwnGrid, ...]:
    """A list of grids, each a mapping of one or two fields to their values, or text; or one mapping, a grid a field."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        asked = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"a grid file must be readable YAML, got {path}: {' '.join(str(error).split())}") from error
    if not isinstance(asked, list | Mapping) or not asked:
        raise ConfigError(f"a grid file must hold a list of grids, such as - w_sord: [1, 3, 10], got {path}")
    _require_once(text, path)
    if isinstance(asked, Mapping):
        asked = [{name: values} for name, values in asked.items()]
    return tuple(_from_yaml(item, path) for item in asked)


def _require_once(text: str, path: Path) -> None:
    """Raise ConfigError where a mapping of a YAML text has a key twice, of which the last would count."""
    import yaml

    tree: Any = yaml.compose(text, yaml.SafeLoader)
    for node in [tree] if isinstance(tree, yaml.MappingNode) else tree.value:
        keys = [key.value for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(f"a field must stand once in a mapping, got {key} twice in {path}")


def _from_yaml(item: Any, path: Path) -> OwnGrid:
    if isinstance(item, str):
        return parse_grid(item)
    if not isinstance(item, Mapping) or not item:
        raise ConfigError(f"a grid must be a mapping of fields to values, got {item!r} in {path}")
    sides = []
    for name, values in item.items():
        values = values if isinstance(values, list) else [values]
        # YAML takes 1e-4 for text, and true for a number.
        if not all(isinstance(value, str | int | float) and not isinstance(value, bool) for value in values):
            raise ConfigError(f"values of {name} must be numbers or words, got {values!r} in {path}")
        sides.append(_side(str(name), values))
    return OwnGrid(tuple(sides))
