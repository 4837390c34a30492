"""The space of a search: for each field of a point what is tried of it, or the one value that it keeps.

A field is a hyperparameter of the pretraining or a part of the perceptron's architecture.  p_m depends on the masking:
it is tried where something is masked, and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, get_args

from adaptbin.config import MaskingKind
from adaptbin.errors import AdaptBinError, ConfigError, unknown
from sweeps.service import point_fields
from sweeps.service.grid import DEFAULT_MASK_PROB
from sweeps.service.point_fields import SHORT_NAMES, PointField, Value, move, value_text
from sweeps.service.points import Point
from sweeps.service.search_ranges import Choices, Domain, Range, parse_domain

USUAL: dict[str, Domain] = {
    "w_sord": Range(low=0.1, high=100.0, log=True),
    "w_mse": Range(low=1e-3, high=10.0, log=True),
    "w_var": Range(low=1e-5, high=1.0, log=True),
    "patience": Range(low=1, high=20, log=True),
    "delta": Range(low=1e-6, high=1e-2, log=True),
    "tau": Range(low=1e-6, high=1e-2, log=True),
    "min_bin": Range(low=8, high=128, log=True),
    "t_init": Range(low=2, high=20, log=True),
    "t_max": Range(low=20, high=300, log=True),
    "masking": Choices(get_args(MaskingKind)),
    "mask_prob": Range(low=0.05, high=0.5),
    "learning_rate": Range(low=1e-5, high=1e-2, log=True),
    "weight_decay": Range(low=1e-6, high=1e-1, log=True),
    "width": Choices((64, 128, 256, 512)),
    "depth": Range(low=1, high=5),
    "dropout": Choices((0.0, 0.1, 0.2, 0.3)),
}
"""What is tried unless somebody says otherwise: around the paper's values, on a scale of ratios where that is how a
field acts.  Widths, depths and dropouts are few, so that some points have the same shape and train together."""

FIELDS: dict[str, PointField] = {name: point_fields.FIELDS[name] for name in USUAL}
"""All fields that can be searched."""

SHAPE = tuple(name for name, field in FIELDS.items() if field.part == "architecture")
"""Those of the architecture.  Points that differ in one cannot be stacked."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """What is tried of the fields, and what the others keep.

    Raises ConfigError where a field has a value that it cannot have, or T_init could exceed T_max.
    """

    searched: Mapping[str, Domain]
    """Field -> what is tried of it, in the order of :data:`FIELDS`."""
    default: Point
    """Point whose values the other fields keep."""
    mask_prob: float = DEFAULT_MASK_PROB
    """p_m wherever something is masked and p_m is not searched."""

    def __post_init__(self) -> None:
        if not self.searched:
            raise ConfigError("a search must try two values of one field at least, got a space of one point")
        for name, domain in self.searched.items():
            for value in domain.values if isinstance(domain, Choices) else domain.ends:
                self._check(name, value)
        t_init, t_max = self._ends("t_init")[1], self._ends("t_max")[0]
        if t_init > t_max:
            raise ConfigError(
                f"t_init must be at most t_max everywhere in the space, got t_init up to {t_init:g} and t_max from "
                f"{t_max:g}"
            )
        if "mask_prob" in self.searched and self.masks_nothing:
            raise ConfigError("mask_prob can be searched where something is masked only, got masking none")

    @classmethod
    def of(
        cls,
        default: Point,
        *,
        asked: Mapping[str, Domain] | None = None,
        fixed: Mapping[str, Value] | None = None,
        only_asked: bool = False,
    ) -> Self:
        """The usual space with other ranges and fixed values.

        ``default``: what is trained without a search; it is given the fixed values, and its width is one of the usual
        choices.  ``only_asked``: leave at the default what is not ``asked`` for.
        """
        asked, fixed = dict(asked or {}), dict(fixed or {})
        if both := sorted(asked.keys() & fixed.keys()):
            raise ConfigError(f"a field is either searched or fixed, got both for {both[0]}")
        default = with_values(default, fixed)
        mask_prob: Any = fixed.get("mask_prob", default.hyperparameters.mask_prob or DEFAULT_MASK_PROB)
        usual = {} if only_asked else USUAL | {"width": _with_width(default.architecture.width)}
        searched = {name: domain for name, domain in (usual | asked).items() if name not in fixed}
        if "masking" not in searched and default.hyperparameters.masking == "none":
            if "mask_prob" in fixed:
                raise ConfigError("mask_prob can be fixed where something is masked only, got masking none")
            if "mask_prob" not in asked:
                searched.pop("mask_prob", None)
        in_order = {name: searched[name] for name in FIELDS if name in searched}
        return cls(searched=in_order, default=default, mask_prob=mask_prob)

    @property
    def masks_nothing(self) -> bool:
        """Whether no point of it has masked inputs."""
        return "masking" not in self.searched and self.default_value("masking") == "none"

    def default_value(self, name: str) -> Value:
        """What a field is at the default point."""
        return settings_of(self.default)[name]

    def point(self, chosen: Mapping[str, Value]) -> Point:
        """The point with these values of the searched fields."""
        values = {name: value for name, value in chosen.items() if name in self.searched}
        if "mask_prob" not in values and self.is_tried("mask_prob", chosen):
            values["mask_prob"] = self.mask_prob
        return with_values(self.default, values)

    def is_tried(self, name: str, chosen: Mapping[str, Value]) -> bool:
        """Whether a searched field has a meaning next to values ``chosen`` of the fields before it."""
        return name != "mask_prob" or chosen.get("masking", self.default_value("masking")) != "none"

    def values_of(self, settings: Mapping[str, Value]) -> dict[str, Value] | None:
        """Values of the searched fields at a point with these :func:`settings_of`; None where it lies outside."""
        kept = settings_of(self.default)
        chosen: dict[str, Value] = {}
        for name in FIELDS:
            if name == "mask_prob" and settings["masking"] == "none":
                continue
            if name in self.searched:
                if settings[name] not in self.searched[name]:
                    return None
                chosen[name] = settings[name]
            elif name == "mask_prob":
                if settings[name] != self.mask_prob:
                    return None
            elif settings[name] != kept[name]:
                return None
        return chosen

    def grid(self) -> list[dict[str, Value]]:
        """Every combination of the choices.  Raises ConfigError where a field has a range, which has no end."""
        points: list[dict[str, Value]] = [{}]
        for name, domain in self.searched.items():
            if isinstance(domain, Range):
                raise ConfigError(f"a grid needs values such as {name}=a,b,c, got the range {name}={domain}")
            points = [
                {**point, name: value} if self.is_tried(name, point) else point
                for point in points
                for value in (domain.values if self.is_tried(name, point) else domain.values[:1])
            ]
        return points

    def to_json(self) -> dict[str, Any]:
        """All that makes it this space and no other."""
        kept = {name: value for name, value in settings_of(self.default).items() if name not in self.searched}
        if not self.masks_nothing and "mask_prob" not in self.searched:
            kept["mask_prob"] = self.mask_prob
        return {"searched": {name: domain.to_json() for name, domain in self.searched.items()}, "kept": kept}

    def _ends(self, name: str) -> tuple[Any, Any]:
        domain = self.searched.get(name)
        return (self.default_value(name),) * 2 if domain is None else domain.ends

    def _check(self, name: str, value: Value) -> None:
        values = {name: value}
        if name == "mask_prob":
            values["masking"] = "random"
        elif name in ("t_init", "t_max"):  # whether they fit together is another question
            other = "t_max" if name == "t_init" else "t_init"
            values[other] = max(value, 2)
        with_values(self.default, values)


def settings_of(point: Point) -> dict[str, Value]:
    """Value of every field at a point."""
    return {name: field.of(point) for name, field in FIELDS.items()}


def with_values(point: Point, values: Mapping[str, Value]) -> Point:
    """The point with other values of some fields.  Raises ConfigError where one cannot be.

    A masking without a p_m has the one it would have on the command line, and without a masking p_m is 0.
    """
    values = dict(values)
    masking = values.get("masking", point.hyperparameters.masking)
    if masking == "none":
        values["mask_prob"] = 0.0
    elif "mask_prob" not in values and not point.hyperparameters.mask_prob:
        values["mask_prob"] = DEFAULT_MASK_PROB
    return move(point, values)


def parse_asked(words: Iterable[str]) -> dict[str, Domain]:
    """``field=low..high[,log]`` and ``field=a,b,c`` by field.  Raises ConfigError."""
    asked: dict[str, Domain] = {}
    for name, domain in _each_once(map(_parse_word, words)).items():
        if not isinstance(domain, Range | Choices):
            raise ConfigError(f"{name}: one value is not searched but fixed, with --fix {name}={value_text(domain)}")
        asked[name] = domain
    return asked


def parse_fixed(words: Iterable[str]) -> dict[str, Value]:
    """``field=value`` by field.  Raises ConfigError."""
    fixed: dict[str, Value] = {}
    for name, value in _each_once(map(_parse_word, words)).items():
        if isinstance(value, Range | Choices):
            raise ConfigError(f"{name}: a fixed field has one value, got {value}")
        fixed[name] = value
    return fixed


def read_space(path: Path) -> tuple[dict[str, Domain], dict[str, Value]]:
    """What a YAML file says of fields: those searched, and those fixed.  Raises ConfigError."""
    import yaml

    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"a space must be a YAML file, got {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"a space must be a YAML file, got {path}: {' '.join(str(error).split())}") from error
    if not isinstance(told, dict) or not told:
        raise ConfigError(f"a space must have a line for each field, such as tau: 1e-5..1e-3,log, got {path}")
    try:
        by_field = _each_once((_known(str(word)), text) for word, text in told.items())
        parsed = {name: parse_domain(name, FIELDS[name].kind, text) for name, text in by_field.items()}
    except AdaptBinError as error:
        raise ConfigError(f"{path}: {error}") from error
    searched = {name: domain for name, domain in parsed.items() if isinstance(domain, Range | Choices)}
    return searched, {name: value for name, value in parsed.items() if not isinstance(value, Range | Choices)}


def _parse_word(word: str) -> tuple[str, Domain | Value]:
    name, equals, text = word.partition("=")
    name = _known(name.strip())
    if not equals or not text.strip():
        raise ConfigError(f"{name}: a field must be given as field=..., such as tau=1e-5..1e-3,log, got {word!r}")
    return name, parse_domain(name, FIELDS[name].kind, text)


def _each_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, told in pairs:
        if name in found:
            raise ConfigError(f"each field must be given once, got two for {name}")
        found[name] = told
    return found


def _known(word: str) -> str:
    """The name of the field called so, or so for short."""
    name = SHORT_NAMES.get(word, word)
    if name not in FIELDS:
        short = (short for short, meant in SHORT_NAMES.items() if meant in FIELDS)
        raise ConfigError(unknown("field of a point", word, [*FIELDS, *short]))
    return name


def _with_width(width: int) -> Choices:
    """The usual choices, and the data set's own."""
    usual = USUAL["width"]
    assert isinstance(usual, Choices)
    return Choices(tuple(sorted({*usual.values, width})))
