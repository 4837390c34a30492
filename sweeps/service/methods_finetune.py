"""The fine-tuning study: models from scratch or pretrained, then trained on labels as a whole (paper: Table 4).

A method is what a model is pretrained on, or nothing.  Every method is trained with every encoder, and compared seed by
seed with what is not pretrained, and with BinRecon, of the same encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self, get_args

from adaptbin.config import Budget, EncoderName, Finetuning, Hyperparameters
from adaptbin.errors import ConfigError
from sweeps.service.choice import Choice
from sweeps.service.methods import PRETEXTS, Objective, candidate_words
from sweeps.service.notes import PRETEXTS_OF, basis_of_choice
from sweeps.service.points import AskedTest, Point, Study, require_each_once

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

FINETUNE = "finetune"
"""Name, and folder under the output, of this study."""

ENCODERS: tuple[EncoderName, ...] = get_args(EncoderName)
"""In the paper's order."""

ENCODER_TITLES: dict[EncoderName, str] = {
    "mlp": "MLP",
    "resnet": "ResNet",
    "tabnet": "TabNet",
    "ft_transformer": "FT-Transformer",
    "t2g_former": "T2G-Former",
}
"""As the paper prints them."""

PretrainedMethod = Literal["MR", "BR", "Ours"]
FinetuneMethod = Literal["supervised", "MR", "BR", "Ours"]

METHODS: tuple[FinetuneMethod, ...] = get_args(FinetuneMethod)
"""From scratch, and by what is pretrained; in the paper's order."""

PRETRAINED: tuple[PretrainedMethod, ...] = get_args(PretrainedMethod)
"""Methods with a pretext."""

AGAINST: dict[FinetuneMethod, tuple[FinetuneMethod, ...]] = {"supervised": ("MR", "BR", "Ours"), "BR": ("MR", "Ours")}
"""Method -> those that are compared with it; of one encoder and data set they are a family of tests."""

MASKS: dict[PretrainedMethod, Mapping[str, Any]] = {"MR": {"masking": "constant", "mask_prob": 0.2}}
"""Masking of a pretext for which nothing was chosen: none, but for the one that predicts which entries are masked."""


@dataclass(frozen=True)
class Arm:
    """One row of the table, on one data set."""

    encoder: EncoderName
    method: FinetuneMethod

    @property
    def place(self) -> dict[str, Any]:
        """Columns that name it."""
        return {"encoder": self.encoder, "method": self.method}


@dataclass(frozen=True, kw_only=True)
class FinetuneStudy(Study):
    """Methods x encoders, all of them fine-tuned.

    Raises ConfigError when there is no encoder, or one is named twice, and when choices lack a pretext.
    """

    extent_name: ClassVar[str] = "arms"
    is_joint: ClassVar[bool] = True
    moved: ClassVar[tuple[str, ...]] = ("encoder", "epochs")

    name: str = FINETUNE
    encoders: tuple[EncoderName, ...] = ENCODERS
    pretext_choices: Mapping[str, Mapping[Objective, Choice]] = field(default_factory=dict)
    """Data set -> pretext -> what an earlier study chose; all pretexts of a data set, or none."""
    finetuning: Finetuning = Finetuning()
    test: AskedTest = "wilcoxon"

    def __post_init__(self) -> None:
        require_each_once("encoder", self.encoders)
        for dataset, choices in self.pretext_choices.items():
            if lacking := [objective for objective in PRETRAINED if objective not in choices]:
                raise ConfigError(f"all pretexts of {dataset} must be chosen, or none, got none for {lacking[0]}")
            made_with = {(chosen.seeds, chosen.budget) for chosen in choices.values()}
            if len(made_with) > 1:
                raise ConfigError(
                    f"pretexts of {dataset} must be chosen with the same seeds and probes, got {len(made_with)} kinds"
                )
        super().__post_init__()

    def default_of(self, dataset: str) -> Hyperparameters:
        """Those of a model that is not pretrained."""
        return Hyperparameters(pretext="none")

    def hyperparameters_of(self, dataset: str, method: FinetuneMethod) -> Hyperparameters:
        """How a method is pretrained on a data set: as was chosen, else without masking (but :data:`MASKS`), T 2."""
        if method == "supervised":
            return self.default_of(dataset)
        choice = self.pretext_choices.get(dataset, {}).get(method)
        if choice is not None:
            return replace(choice.apply_to(self.default), pretext=PRETEXTS[method])
        changed: dict[str, Any] = {**MASKS.get(method, {}), "pretext": PRETEXTS[method]}
        return replace(self.default, **changed)

    def base_of(self, dataset: str, pretext: str | None) -> Point:
        """The method of that pretext, as it is pretrained; see :class:`sweeps.service.points.Study`."""
        methods = [method for method in PRETRAINED if PRETEXTS[method] == pretext]
        return self.point(dataset, self.hyperparameters_of(dataset, methods[0] if methods else "supervised"))

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """One for each method."""
        return tuple(self.hyperparameters_of(dataset, method) for method in METHODS)

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """Encoder by encoder its methods."""
        return tuple(Arm(encoder, method) for encoder in self.encoders for method in METHODS)

    def point_of(self, dataset: str, arm: Arm) -> Point:
        """What is trained for an arm on a data set."""
        point = self.point(dataset, self.hyperparameters_of(dataset, arm.method))
        return replace(point, architecture=replace(point.architecture, encoder=arm.encoder))

    def points_of(self, dataset: str) -> tuple[Point, ...]:
        """One for each of :attr:`arms`."""
        return tuple(self.point_of(dataset, arm) for arm in self.arms)

    def setting_of(self, dataset: str, method: FinetuneMethod) -> str:
        """How a method is pretrained, in words: ``random, p_m 0.2, T 10``, or ``not pretrained``."""
        if method == "supervised":
            return "not pretrained"
        return candidate_words(method, self.hyperparameters_of(dataset, method)).removeprefix(f"{method} ")

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Encoders, methods, and how each method is pretrained on each data set."""
        settings = [
            f"{dataset} {method} {self.setting_of(dataset, method)}"
            for dataset in self.datasets
            for method in PRETRAINED
        ]
        return {"encoder": list(self.encoders), "method": list(METHODS), "setting": settings}

    @property
    def notes(self) -> tuple[str, ...]:
        """How the pretexts of every data set were trained, and who chose that."""
        alike: dict[str, list[str]] = {}
        for dataset in self.datasets:
            settings = "; ".join(f"{method} {self.setting_of(dataset, method)}" for method in PRETRAINED)
            choices = self.pretext_choices.get(dataset)
            how = "not tuned"
            if choices is not None:
                ours = choices["Ours"]
                probes = "linear probes"
                if (ours.budget.probes, ours.budget.probe_epochs) != (Budget.probes, Budget.probe_epochs):
                    probes = f"{ours.budget.probes} x {ours.budget.probe_epochs} epochs of linear probes"
                    probes += f" (full: {Budget.probes} x {Budget.probe_epochs})"
                how = f"chosen by {probes} on validation with {basis_of_choice(ours, self.seeds)}"
            alike.setdefault(f"{how}: {settings}", []).append(dataset)
        return tuple(f"{PRETEXTS_OF} {', '.join(datasets)}, {told}" for told, datasets in alike.items())

    def only(self, dataset: str) -> Self:
        """See :class:`sweeps.service.points.Study`."""
        choices = {name: chosen for name, chosen in self.pretext_choices.items() if name == dataset}
        return replace(super().only(dataset), pretext_choices=choices)

    def with_value(self, key: str, value: float) -> Self:
        """Raises ConfigError: nothing that can be added is a number."""
        _refuse("added", key, value)

    def without_value(self, key: str, value: float) -> Self:
        """Raises ConfigError: nothing that can be cancelled is a number."""
        _refuse("cancelled", key, value)

    def option_for(self, value: str) -> None:
        """None: there are no values."""

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_finetune import publish  # what draws takes seconds to import

        return publish(self, records, folder, metrics=options.metrics, primary=options.primary, manifest=manifest)


def _refuse(what: str, key: str, value: float) -> NoReturn:
    raise ConfigError(
        f"a fine-tuning study has encoders and methods and no values, so none can be {what}, got {key}={value:g}; "
        "--encoder says which are trained"
    )
