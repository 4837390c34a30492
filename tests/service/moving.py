"""A study whose points differ in encoder and pretext, and are fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NoReturn

from adaptbin.config import Budget, EncoderName, Finetuning, Hyperparameters
from sweeps.service.points import Point, Study


@dataclass(frozen=True, kw_only=True)
class EncoderStudy(Study):
    """Encoders x (nothing, value reconstruction)."""

    extent_name: ClassVar[str] = "encoders"
    is_joint: ClassVar[bool] = False
    moved: ClassVar[tuple[str, ...]] = ("encoder",)

    name: str = "encoders"
    encoders: tuple[EncoderName, ...] = ("mlp", "resnet")
    default: Hyperparameters = Hyperparameters(pretext="none")
    budget: Budget = Budget(epochs=10)
    finetuning: Finetuning | None = Finetuning(epochs=5)

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        return self.default_of(dataset), replace(self.default_of(dataset), pretext="value_recon")

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        return tuple(
            replace(point, architecture=replace(point.architecture, encoder=encoder))
            for encoder in self.encoders
            for point in super(EncoderStudy, self).points_of(dataset)
        )

    @property
    def extent(self) -> dict[str, list[Any]]:
        return {"encoder": list(self.encoders)}

    def with_value(self, key: str, value: float) -> NoReturn:
        raise NotImplementedError

    without_value = with_value

    def option_for(self, value: str) -> None:
        return None

    def publish(self, *arguments: Any) -> NoReturn:
        raise NotImplementedError
