"""The variance study: one point of each data set, trained with seeds that change more and more.

Under "probe" all seeds share a split and a pretraining, under "pretrain" a split, under "split" nothing.  What a score
varies by under one and not under the one before is the part of what was let go
(:mod:`sweeps.service.tables_variance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from adaptbin.config import Hyperparameters, SeedsVary
from adaptbin.errors import ConfigError
from sweeps.service.points import Study

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

KINDS: tuple[SeedsVary, ...] = ("probe", "pretrain", "split")
"""What seeds change, from the least to all."""


@dataclass(frozen=True, kw_only=True)
class VarianceStudy(Study):
    """The default point of each data set under every kind of seeds, of which there are at least two."""

    extent_name: ClassVar[str] = "kinds_of_seeds"
    is_joint: ClassVar[bool] = False
    fewest_seeds: ClassVar[int] = 2

    name: str = "variance"

    def __post_init__(self) -> None:
        if len(self.seeds) < self.fewest_seeds:
            raise ConfigError(f"a variance needs at least {self.fewest_seeds} seeds, got {len(self.seeds)}")
        if self.seeds_vary != "pretrain":  # that of the choices it takes over; all are trained
            raise ConfigError(
                f"seeds of a variance study vary in every way, so none can be named, got {self.seeds_vary!r}"
            )
        super().__post_init__()

    @property
    def all_seeds_vary(self) -> tuple[SeedsVary, ...]:
        """All of :data:`KINDS`."""
        return KINDS

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """The default point alone."""
        return (self.default_of(dataset),)

    @property
    def extent(self) -> dict[str, list[Any]]:
        """``seeds_vary`` -> its kinds."""
        return {"seeds_vary": list(KINDS)}

    def with_value(self, key: str, value: float) -> Self:
        """Raises ConfigError: the study has one point."""
        _refuse("added to", key, value)

    def without_value(self, key: str, value: float) -> Self:
        """Raises ConfigError: the study has one point."""
        _refuse("cancelled in", key, value)

    def option_for(self, value: str) -> None:
        """None: there are no values."""

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_variance import publish  # what draws takes seconds to import

        return publish(self, records, folder, primary=options.primary, manifest=manifest)


def _refuse(what: str, key: str, value: float) -> NoReturn:
    raise ConfigError(f"a variance study has one point, so nothing can be {what} it, got {key}={value:g}")
