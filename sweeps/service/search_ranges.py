"""The values that a search tries of one field: a range, or a list of choices; and how both are written.

``0.1..10`` is a range, ``0.1..10,log`` one whose logarithm is drawn evenly, ``128,256,512`` are choices, and a single
value is a field that is not searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adaptbin.errors import ConfigError
from sweeps.service.point_fields import Value, value_text

FORMS = "low..high, low..high,log, or values such as a,b,c"


@dataclass(frozen=True, kw_only=True)
class Range:
    """All numbers from ``low`` to ``high``, both included; whole ones where both ends are ``int``.

    Raises ConfigError unless low < high, and 0 < low where the logarithm is drawn evenly.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"a range must go upwards, got {self}")
        if self.log and self.low <= 0:
            raise ConfigError(f"a range with log must begin above 0, got {self}")

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers alone."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Value, Value]:
        """Its least and its greatest value."""
        return self.low, self.high

    def __contains__(self, value: object) -> bool:
        fits = isinstance(value, int) if self.is_whole else isinstance(value, int | float)
        return fits and not isinstance(value, bool) and self.low <= value <= self.high  # type: ignore[operator]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"low": self.low, "high": self.high, "log": self.log}

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{',log' if self.log else ''}"


@dataclass(frozen=True)
class Choices:
    """Some values, of which each is as likely as the others.  Raises ConfigError unless there are two at least."""

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise ConfigError(f"choices must be two values or more, each once, got {self}")

    @property
    def ends(self) -> tuple[Value, Value]:
        """Its least and its greatest value; of words the first and the last."""
        if any(isinstance(value, str) for value in self.values):
            return self.values[0], self.values[-1]
        return min(self.values), max(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"choices": list(self.values)}

    def __str__(self) -> str:
        return ",".join(value_text(value) for value in self.values)


Domain = Range | Choices
"""What a search tries of one field."""


def parse_domain(field: str, kind: type, text: Any) -> Domain | Value:
    """What is written of a field: text as in the module's docstring, a list, a mapping with low and high, or a value.

    ``kind``: ``str``, ``int`` or ``float``, what the field's values are.  Raises ConfigError.
    """
    try:
        if isinstance(text, Mapping):
            return _from_mapping(kind, text)
        if isinstance(text, Sequence) and not isinstance(text, str):
            return _one_or_choices([_value(kind, part) for part in text])
        if not isinstance(text, str):
            return _value(kind, text)
        first, *rest = [part.strip() for part in text.split(",")]
        if ".." in first:
            if rest not in ([], ["log"]):
                raise ConfigError(f"after a range there may be log and nothing else, got {text!r}")
            low, _, high = first.partition("..")
            return _range(kind, low, high, log=bool(rest))
        return _one_or_choices([_value(kind, part) for part in (first, *rest)])
    except ConfigError as error:
        raise ConfigError(f"{field}: {error}") from None


def _from_mapping(kind: type, told: Mapping[Any, Any]) -> Domain | Value:
    if set(told) == {"choices"}:
        return Choices(tuple(_value(kind, value) for value in told["choices"]))
    if not {"low", "high"} <= set(told) <= {"low", "high", "log"} or not isinstance(told.get("log", False), bool):
        raise ConfigError(f"a range must have low and high, and may have log: true, got {dict(told)}")
    return _range(kind, told["low"], told["high"], log=told.get("log", False))


def _range(kind: type, low: Any, high: Any, *, log: bool) -> Range:
    if kind is str:
        raise ConfigError(f"words have no range, only choices such as a,b,c, got {low}..{high}")
    return Range(low=_number(kind, low), high=_number(kind, high), log=log)


def _one_or_choices(values: Sequence[Value]) -> Choices | Value:
    return values[0] if len(values) == 1 else Choices(tuple(values))


def _value(kind: type, word: Any) -> Value:
    return str(word).strip().lower() if kind is str else _number(kind, word)


def _number(kind: type, word: Any) -> int | float:
    """One number of that kind; 5 and 5.0 and "5" are one whole number."""
    try:
        number = float(word)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(word, bool) or not abs(number) < float("inf") or (kind is int and not number.is_integer()):
        rule = "whole numbers" if kind is int else "finite numbers"
        raise ConfigError(f"values must be {rule}, written as {FORMS}, got {word!r}")
    return int(number) if kind is int else number
