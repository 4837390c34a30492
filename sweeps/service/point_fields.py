"""The fields of a point that a panel can move: what their values are, how they are called, and how they are moved.

All of :class:`adaptbin.config.Hyperparameters` but the pretext, which decides what a model is; and of
:class:`adaptbin.config.Architecture` what sets the sizes of the perceptron and its training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints

from adaptbin.config import Architecture, Hyperparameters
from adaptbin.errors import ConfigError, nearest, unknown
from sweeps.service.points import Point

Value = float | str
"""What a field is moved to: a number, or one of its words."""

ARCHITECTURE_FIELDS = ("width", "depth", "dropout", "batch_size")
"""Fields of :class:`adaptbin.config.Architecture` that a panel can move; they decide shapes or steps of a pack."""

SHORT_NAMES = {"lr": "learning_rate", "wd": "weight_decay", "p_m": "mask_prob", "bs": "batch_size"}
"""Usual short names of fields."""

_SYMBOLS = {
    "w_sord": r"$w_{\mathrm{SORD}}$",
    "w_mse": r"$w_{\mathrm{mse}}$",
    "w_var": r"$w_{\mathrm{var}}$",
    "delta": r"$\delta$",
    "tau": r"$\tau$",
    "t_init": r"$T_{\mathrm{init}}$",
    "t_max": r"$T_{\mathrm{max}}$",
    "mask_prob": "$p_m$",
}


@dataclass(frozen=True)
class PointField:
    """One field of a point."""

    name: str
    part: Literal["hyperparameters", "architecture"]
    """Part of a point that it is in."""
    is_whole: bool
    """Whether its values are whole numbers."""
    words: tuple[str, ...]
    """The words that it takes, the plainest first; empty where it takes numbers."""

    @property
    def kind(self) -> type[str] | type[int] | type[float]:
        """What its values are."""
        return str if self.words else int if self.is_whole else float

    @property
    def symbol(self) -> str:
        """Name in figures (mathtext)."""
        return _SYMBOLS.get(self.name, self.name.replace("_", " "))

    def of(self, point: Point) -> Value:
        """Its value at a point."""
        value: Value = getattr(getattr(point, self.part), self.name)
        return value

    def read(self, text: str | float) -> Value:
        """The value that is written so.  Raises ConfigError when it is of another kind.

        Whether a number is in range is for the settings to say, when a point is made of it.
        """
        if self.words:
            word = str(text).strip().lower()
            if word not in self.words:
                hint = nearest(word, self.words)
                raise ConfigError(f"{self.name} must be one of {', '.join(self.words)}, got {text!r}{hint}")
            return word
        try:
            number = float(text)
        except ValueError:
            kind = "whole numbers" if self.is_whole else "numbers"
            raise ConfigError(f"values of {self.name} must be {kind}, got {text!r}") from None
        return int(number) if self.is_whole and number.is_integer() else number

    def in_order(self, values: Iterable[Value]) -> tuple[Value, ...]:
        """The values, each once: numbers ascending, words as the field lists them."""

        def place(value: Value) -> float:
            return self.words.index(value) if isinstance(value, str) else value

        return tuple(sorted(set(values), key=place))


def _fields() -> dict[str, PointField]:
    found = {}
    for part, kind, names in (
        ("hyperparameters", Hyperparameters, [f.name for f in fields(Hyperparameters) if f.name != "pretext"]),
        ("architecture", Architecture, ARCHITECTURE_FIELDS),
    ):
        hints = get_type_hints(kind)
        for name in names:
            settings: Any = {"part": part, "is_whole": hints[name] is int, "words": get_args(hints[name])}
            found[name] = PointField(name=name, **settings)
    return found


FIELDS = _fields()
"""Every field that a panel can move, by name."""


def get_field(name: str) -> PointField:
    """The field called so, or so for short; "-" stands for "_".  Raises ConfigError, naming the nearest, for others."""
    plain = name.strip().lower().replace("-", "_")
    plain = SHORT_NAMES.get(plain, plain)
    if plain == "pretext":
        raise ConfigError("the pretext decides what a model is, so no panel moves it (benchmark.py compares them)")
    if plain not in FIELDS:
        raise ConfigError(unknown("field", name.strip(), [*FIELDS, *SHORT_NAMES]))
    return FIELDS[plain]


def move(point: Point, settings: Mapping[str, Value]) -> Point:
    """The point with other values of some fields.  Raises ConfigError when it cannot be."""
    parts: dict[str, dict[str, Any]] = {"hyperparameters": {}, "architecture": {}}
    for name, value in settings.items():
        parts[FIELDS[name].part][name] = value
    changed: dict[str, Any] = {part: replace(getattr(point, part), **values) for part, values in parts.items()}
    return replace(point, **changed)


def value_text(value: Value) -> str:
    """The value as tables and figures name it."""
    return value if isinstance(value, str) else f"{value:g}"
