"""What studies have in common among whose points validation chooses one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError, unknown
from sweeps.service.points import Point, Study, require_each_once

P = TypeVar("P", bound=Point | Hyperparameters)
"""What tells the points of a study apart: hyperparameters alone, or more."""


@dataclass(frozen=True, kw_only=True)
class ChoosingStudy(Study, Generic[P]):
    """A grid of points, the same for every data set, among which validation chooses.

    Raises ConfigError where a side of the grid has no value, or one twice.
    """

    extent_name: ClassVar[str] = "grid"

    sides: ClassVar[dict[str, tuple[str, str]]]
    """Sides that can grow: what each is called -> the field with its values, ascending, and its name in sentences."""

    @property
    @abstractmethod
    def points(self) -> tuple[P, ...]:
        """The points of every data set, the simplest first: ties go to the first."""

    @abstractmethod
    def place_of(self, point: P) -> dict[str, Any]:
        """Columns that name a point in tables, and what they hold."""

    @abstractmethod
    def words_of(self, point: P) -> str:
        """The name of a point in sentences."""

    def __post_init__(self) -> None:
        for field, words in self.sides.values():
            require_each_once(words, getattr(self, field))
        super().__post_init__()

    def with_value(self, key: str, value: float) -> Self:
        """The study with one more value of a side.  Raises ConfigError when it cannot take it."""
        values = self._side(key)
        if value in values:
            raise ConfigError(f"a value to add must be a new one, got {key}={value:g} of {listed_values(values)}")
        value = int(value) if float(value).is_integer() else value
        return self._with_side(key, tuple(sorted((*values, value))))

    def without_value(self, key: str, value: float) -> Self:
        """The study without a value of a side.  Raises ConfigError when it is not there, or is the last one."""
        values = self._side(key)
        if value not in values:
            raise ConfigError(f"a value to cancel must be one of {listed_values(values)}, got {key}={value:g}")
        if len(values) == 1:
            raise ConfigError(f"one value must stay, got {key}={value:g}, the last one")
        return self._with_side(key, tuple(known for known in values if known != value))

    def option_for(self, value: str) -> str | None:
        """All values of the side: with the option of its name they take the place of the paper's."""
        key = value.partition("=")[0]
        return f"--{key.replace('_', '-')} {','.join(f'{each:g}' for each in self._side(key))}"

    def _side(self, key: str) -> tuple[float, ...]:
        if key not in self.sides:
            raise ConfigError(unknown("side of this grid", key, self.sides))
        values: tuple[float, ...] = getattr(self, self.sides[key][0])
        return values

    def _with_side(self, key: str, values: tuple[float, ...]) -> Self:
        changed: Any = {self.sides[key][0]: values}
        return replace(self, **changed)


def listed_values(values: Sequence[float]) -> str:
    """``0.1, 0.2``."""
    return ", ".join(f"{value:g}" for value in values)
