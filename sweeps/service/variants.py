"""The ablation study: the full method of each data set, and variants of it that lack one part or have a lower bound.

*Full* is the default point.  Four variants take one part away each (paper: Sec. 3, Table 3).  The further ones, which
the paper does not have, split by the other half of DIGS' score, or stop at fewer bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from adaptbin.config import Hyperparameters
from adaptbin.errors import ConfigError
from sweeps.service.points import AskedTest, Study
from sweeps.service.projection import describe_point

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

FULL = "full"
"""Name of the variant that lacks nothing."""

GROUPS = {"paper": "the paper's (Table 3)", "further": "further"}
"""Group of variants -> its name in words; the contrasts of one group are a family, adjusted together."""

T_MAXS = (10, 50)
"""Bounds on the bins of a feature that are tried in place of the paper's 200."""

_WHOLE = {"pretext": "adaptive_binning", "refine_every": 0, "split_score": "product"}
"""What the parts are that variants take away, where the method has them all: HORD, FPT, DIGS."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Full, or full with one change."""

    name: str
    """As in the paper's Table 3, where it is there."""
    group: Literal["full", "paper", "further"]
    changed: Mapping[str, Any]
    """Field of :class:`adaptbin.config.Hyperparameters` -> the value that it has here."""
    changes: str
    """The same in words, as "t_max = 2"; "nothing" where full has that value already."""
    hyperparameters: Hyperparameters

    @property
    def is_full(self) -> bool:
        """Whether this is what the others are compared with."""
        return self.group == "full"

    @property
    def is_same_point(self) -> bool:
        """Whether this is trained as full is, though not full by name."""
        return not self.is_full and self.changes == "nothing"


@dataclass(frozen=True, kw_only=True)
class AblationStudy(Study):
    """Full and its variants for each data set; every variant is tested against full.

    Raises ConfigError when full lacks a part; when ``refine_every`` is below 1, or a T_max is not above T_init, is that
    of full, or is named twice.
    """

    extent_name: ClassVar[str] = "variants"
    is_joint: ClassVar[bool] = True

    name: str = "ablation"
    refine_every: int | None = None
    """Epochs between refinements w/o FPT; None: full's patience + 1, as often as FPT can trigger."""
    t_maxs: tuple[int, ...] | None = None
    """T_max of further variants; None: see :attr:`bounds`."""
    test: AskedTest = "wilcoxon"

    def __post_init__(self) -> None:
        if self.refine_every is not None and not (type(self.refine_every) is int and self.refine_every >= 1):
            raise ConfigError(f"refine_every must be a whole number >= 1, got {self.refine_every!r}")
        # Settled here, for a part of the study must have the bounds of the whole.
        object.__setattr__(self, "t_maxs", self.bounds)
        if len(set(self.bounds)) < len(self.bounds):
            raise ConfigError(f"each t_max must be given once, got {self._bounds_in_words}")
        for dataset in self.datasets:
            self._check(dataset, self.default_of(dataset))
        super().__post_init__()

    def _check(self, dataset: str, full: Hyperparameters) -> None:
        for name, needed in _WHOLE.items():
            if getattr(full, name) != needed:
                raise ConfigError(
                    f"full must have all parts of the method, {name} {needed!r}, got {getattr(full, name)!r} "
                    f"for {dataset}"
                )
        for t_max in self.bounds:
            if not (type(t_max) is int and t_max > full.t_init):
                raise ConfigError(
                    f"t_max must be whole and above t_init, {full.t_init} for {dataset}, got {t_max!r}; --t-max says "
                    "which are tried"
                )
            if t_max == full.t_max:
                raise ConfigError(f"t_max must differ from that of full, {full.t_max} for {dataset}, got {t_max}")

    @property
    def bounds(self) -> tuple[int, ...]:
        """T_max of further variants, ascending; those of :data:`T_MAXS` above every T_init unless others were given."""
        if self.t_maxs is not None:
            return tuple(sorted(self.t_maxs))
        fulls = [self.default_of(dataset) for dataset in self.datasets]
        return tuple(t_max for t_max in T_MAXS if all(full.t_init < t_max != full.t_max for full in fulls))

    @cached_property
    def variants(self) -> dict[str, tuple[Variant, ...]]:
        """Per data set full, the paper's four, then the further ones."""
        return {name: tuple(self._variants(self.default_of(name))) for name in self.datasets}

    def _variants(self, full: Hyperparameters) -> Iterator[Variant]:
        every = full.patience + 1 if self.refine_every is None else self.refine_every
        changed: dict[Literal["paper", "further"], dict[str, dict[str, Any]]] = {
            "paper": {
                "w/o FWA": {"t_max": full.t_init},
                "w/o FPT": {"refine_every": every},
                "w/o DIGS": {"split_score": "variance"},
                "w/o HORD": {"pretext": "adaptive_bin_recon"},
            },
            "further": {
                "w/o Gain_var": {"split_score": "dispersion"},
                **{f"T_max {t_max}": {"t_max": t_max} for t_max in self.bounds},
            },
        }
        yield Variant(name=FULL, group="full", changed={}, changes="nothing", hyperparameters=full)
        for group, of_group in changed.items():
            for name, change in of_group.items():
                point = replace(full, **change)
                words = "nothing" if point == full else describe_point(point.to_dict(), full.to_dict()).name
                yield Variant(name=name, group=group, changed=change, changes=words, hyperparameters=point)

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """Full, then the variants (8 with the usual ones); a variant that is full itself is no point of its own."""
        return tuple(dict.fromkeys(variant.hyperparameters for variant in self.variants[dataset]))

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Hyperparameter -> the values that variants have in place of full's."""
        found: dict[str, list[Any]] = {}
        for variants in self.variants.values():
            for variant in variants:
                for name, value in variant.changed.items():
                    if value not in found.setdefault(name, []):
                        found[name].append(value)
        return found

    def with_value(self, key: str, value: float) -> Self:
        """The study with one more T_max.  Raises ConfigError when it cannot take it."""
        _require_t_max(key, value)
        if value in self.bounds:
            raise ConfigError(f"a value to add must be a new one, got {key}={value:g} of {self._bounds_in_words}")
        t_max: Any = int(value) if float(value).is_integer() else value
        return replace(self, t_maxs=tuple(sorted((*self.bounds, t_max))))

    def without_value(self, key: str, value: float) -> Self:
        """The study without a T_max.  Raises ConfigError when it is not there."""
        _require_t_max(key, value)
        if value not in self.bounds:
            raise ConfigError(
                f"a value to cancel must be one of {self._bounds_in_words or 'none'}, got {key}={value:g}"
            )
        return replace(self, t_maxs=tuple(known for known in self.bounds if known != value))

    def option_for(self, value: str) -> str:
        """See :class:`sweeps.service.points.Study`; the option names all values."""
        return f"--t-max {self._bounds_in_words.replace(' ', '')}"

    @property
    def _bounds_in_words(self) -> str:
        return ", ".join(map(str, self.bounds))

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_ablation import publish  # what draws takes seconds to import

        return publish(self, records, folder, metrics=options.metrics, primary=options.primary, manifest=manifest)


def _require_t_max(key: str, value: float) -> None:
    if key != "t_max":
        raise ConfigError(f"only values of t_max can be added to an ablation and cancelled, got {key}={value:g}")
