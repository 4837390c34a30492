"""The benchmark study: the paper's linear probes, thirteen methods with candidates each (paper: Table 1).

A method is what is binned, what is masked and what is predicted.  Its candidates differ in p_m, and in the number of
bins where it has bins; validation chooses one of them per data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from adaptbin.config import Hyperparameters, MaskingKind, PretextName
from sweeps.service.grid import MASKINGS, GridStudy

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

Binning = Literal["none", "fixed", "adaptive"]
Objective = Literal["VR", "MX", "MR", "BR", "Ours"]

PRETEXTS: dict[Objective, PretextName] = {
    "VR": "value_recon",
    "MX": "mask_xent",
    "MR": "mask_xent_value_recon",
    "BR": "bin_recon",
    "Ours": "adaptive_binning",
}
"""Objective, as the paper abbreviates it -> pretext."""

BENCHMARK = "benchmark"
"""Name, and folder under the output, of the study that compares the paper's linear probes."""

METHOD = ("binning", "masking", "objective")
"""Columns that name a method."""


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    binning: Binning
    masking: MaskingKind
    objective: Objective

    @property
    def name(self) -> str:
        """``none/constant/VR``."""
        return "/".join(self.words)

    @classmethod
    def of_row(cls, row: Mapping[Any, Any]) -> Self:
        """The method that a row of a table is of."""
        return cls(row["binning"], row["masking"], row["objective"])

    @property
    def words(self) -> tuple[str, str, str]:
        """What stands in columns :data:`METHOD`."""
        return self.binning, self.masking, self.objective

    @property
    def pretext(self) -> PretextName:
        """What its models are pretrained to predict."""
        return PRETEXTS[self.objective]

    @property
    def has_bins(self) -> bool:
        """Whether it has a number of bins: T of fixed ones, T_init of adaptive ones."""
        return self.binning != "none"


METHODS = (
    Method("none", "none", "VR"),
    *(Method("none", "constant", objective) for objective in ("VR", "MX", "MR")),
    *(Method("none", "random", objective) for objective in ("VR", "MX", "MR")),
    *(Method("fixed", masking, "BR") for masking in MASKINGS),
    *(Method("adaptive", masking, "Ours") for masking in MASKINGS),
)
"""The paper's methods, in its order; within one objective the simplest masking comes first."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkStudy(GridStudy):
    """Methods with their candidates; one candidate per method is chosen for each data set."""

    is_joint: ClassVar[bool] = True

    name: str = BENCHMARK

    @cached_property
    def candidates(self) -> dict[Method, tuple[Hyperparameters, ...]]:
        """Method -> its points, by p_m, then T; without bins T stays at the default, which then decides nothing."""
        return {
            method: tuple(
                replace(
                    self.default, pretext=method.pretext, masking=method.masking, mask_prob=mask_prob, t_init=t_init
                )
                for mask_prob in self.probabilities_of(method.masking)
                for t_init in (self.t_inits if method.has_bins else (self.default.t_init,))
            )
            for method in METHODS
        }

    @cached_property
    def points(self) -> tuple[Hyperparameters, ...]:
        """Candidates of all methods, method by method (47 with the paper's values)."""
        return tuple(point for candidates in self.candidates.values() for point in candidates)

    @cached_property
    def _methods_of_points(self) -> dict[Hyperparameters, Method]:
        return {point: method for method, candidates in self.candidates.items() for point in candidates}

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Side of the grid -> its values."""
        return {
            "method": [method.name for method in METHODS],
            "mask_prob": list(self.mask_probs),
            "t_init": list(self.t_inits),
        }

    def method_of(self, point: Hyperparameters) -> Method:
        """The method that a point of this study is a candidate of."""
        return self._methods_of_points[point]

    def place_of(self, point: Hyperparameters) -> dict[str, Any]:
        """Columns :data:`METHOD`, `mask_prob` and `t_init`."""
        method = self.method_of(point)
        return {**dict(zip(METHOD, method.words, strict=True)), "mask_prob": point.mask_prob, "t_init": point.t_init}

    def words_of(self, point: Hyperparameters) -> str:
        """``fixed/random/BR, p_m 0.2, T 10``."""
        method = self.method_of(point)
        return ", ".join([method.name, *settings_of(method, point.mask_prob, point.t_init)])

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_benchmark import publish  # what draws takes seconds to import

        return publish(self, records, folder, primary=options.primary, manifest=manifest)


def settings_of(method: Method, mask_prob: float, t_init: int | None) -> list[str]:
    """What was tuned of a method, in words: p_m where it masks, T of fixed bins, T_init of adaptive ones."""
    words = [] if method.masking == "none" else [f"p_m {mask_prob:g}"]
    if method.has_bins:
        words.append(f"{'T' if method.binning == 'fixed' else 'T_init'} {t_init}")
    return words


def candidate_words(objective: Objective, point: Hyperparameters) -> str:
    """``BR random, p_m 0.2, T 10``: a candidate of any method of an objective."""
    (method,) = (each for each in METHODS if (each.objective, each.masking) == (objective, point.masking))
    return ", ".join([f"{objective} {point.masking}", *settings_of(method, point.mask_prob, point.t_init)])
