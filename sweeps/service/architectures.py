"""The architecture study: depth and width of the perceptron, chosen by supervised validation (paper: Sec. 3).

Every point is trained on labels alone, from scratch.  The cards have the depth and width that the paper chose in this
way for each data set; the study says whether it chooses the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from adaptbin.config import Budget, Finetuning, Hyperparameters
from adaptbin.data.registry import CARDS
from adaptbin.errors import ConfigError
from sweeps.service.choosing import ChoosingStudy
from sweeps.service.points import Point, require_each_once

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

DEPTHS, WIDTHS = (1, 2, 3, 4, 5), (128, 256, 512, 1024)
"""The grid that the paper chooses from."""


def chooser_of(dataset: str) -> str:
    """Who chose the depth and width that a study compares with: "paper", or of an own table its "card"."""
    return "paper" if dataset in CARDS else "card"


@dataclass(frozen=True, kw_only=True)
class ArchitectureStudy(ChoosingStudy[Point]):
    """Depths x widths of the perceptron, all trained from scratch; one is chosen for each data set.

    Sides that leave out the paper's choice for a data set get it as one more value: without it there would be nothing
    to compare with.  Raises ConfigError as :class:`ChoosingStudy` does, and when something is to be pretrained.
    """

    is_joint: ClassVar[bool] = False
    moved: ClassVar[tuple[str, ...]] = ("depth", "width")
    sides: ClassVar[dict[str, tuple[str, str]]] = {"depth": ("depths", "depth"), "width": ("widths", "width")}

    name: str = "architecture"
    budget: Budget = Budget(epochs=0)
    finetuning: Finetuning = Finetuning()
    depths: tuple[int, ...] = DEPTHS
    """Hidden blocks, ascending."""
    widths: tuple[int, ...] = WIDTHS
    """Units of a block, ascending."""

    def __post_init__(self) -> None:
        if self.budget.epochs:
            raise ConfigError(f"a study of architectures pretrains nothing, got {self.budget.epochs} epochs")
        for field, words in self.sides.values():
            asked: tuple[int, ...] = getattr(self, field)
            require_each_once(words, asked)
            papers = {getattr(card.architecture, words) for card in self.cards}
            object.__setattr__(self, field, tuple(sorted({*asked, *papers})))
        super().__post_init__()

    def default_of(self, dataset: str) -> Hyperparameters:
        """Those of a model that is not pretrained."""
        return Hyperparameters(pretext="none")

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """The same for all architectures."""
        return (self.default_of(dataset),)

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """By depth, then width (20 points with the paper's values); all else as the paper has it for the data set."""
        paper = self.default_point_of(dataset)
        return tuple(
            replace(paper, architecture=replace(paper.architecture, depth=depth, width=width))
            for depth in self.depths
            for width in self.widths
        )

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Those of the first data set; the smallest architecture first."""
        return self.points_of(self.datasets[0])

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Side of the grid -> its values."""
        return {"depth": list(self.depths), "width": list(self.widths)}

    def place_of(self, point: Point) -> dict[str, Any]:
        """Columns ``depth`` and ``width``."""
        return {"depth": point.architecture.depth, "width": point.architecture.width}

    def words_of(self, point: Point) -> str:
        """``depth 2, width 128``."""
        return f"depth {point.architecture.depth}, width {point.architecture.width}"

    def without_value(self, key: str, value: float) -> Self:
        """See :class:`ChoosingStudy`; what the paper chose must stay."""
        if key in self.sides and value in {getattr(card.architecture, key) for card in self.cards}:
            raise ConfigError(f"the paper's choice, which others are compared with, must stay, got {key}={value:g}")
        return super().without_value(key, value)

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_architecture import publish  # what draws takes seconds to import

        return publish(self, records, folder, primary=options.primary, manifest=manifest)
