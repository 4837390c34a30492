"""The benchmark study: the paper's linear probes, thirteen methods with candidates each (paper: Table 1).

A method is what is binned, what is masked and what is predicted.  Its candidates differ in p_m, and in the number of
bins where it has bins; validation chooses one of them per data set.  Where the masking study has chosen a point for
adaptive binning, all methods can start from that instead, each with one candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from adaptbin.config import Hyperparameters, MaskingKind, PretextName
from adaptbin.errors import ConfigError
from sweeps.service.grid import DEFAULT_MASK_PROB, MASKINGS, GridStudy, mask_probs_of

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

UNTUNED = (
    "Nothing was tuned: all methods have the p_m and T that validation chose for adaptive binning, so the others may "
    f"do better than here (p_m {DEFAULT_MASK_PROB} where the choice masks nothing)"
)
"""What must be told of a benchmark that starts from the masking study's choice."""

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


_BY_PRETEXT = {(method.pretext, method.masking): method for method in METHODS}
"""Pretext and masking of a point -> its method."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkStudy(GridStudy):
    """Methods with their candidates; one candidate per method is chosen for each data set.

    With :attr:`choices` nothing is tuned: every method has the p_m and the T of the point that was chosen for adaptive
    binning on that data set, and p_m :data:`sweeps.service.grid.DEFAULT_MASK_PROB` where that point masks nothing.
    """

    is_joint: ClassVar[bool] = True

    name: str = BENCHMARK

    @property
    def is_tuned(self) -> bool:
        """Whether validation chooses each method's p_m and T, and not the masking study's choice."""
        return not self.choices

    def sides_of(self, dataset: str) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """p_m of masked methods, and T of those with bins, that are candidates for a data set."""
        if self.is_tuned:
            return self.mask_probs, self.t_inits
        chosen = self.choices[dataset].hyperparameters
        return (chosen.mask_prob or DEFAULT_MASK_PROB,), (chosen.t_init,)

    @cached_property
    def candidates(self) -> dict[Method, tuple[Hyperparameters, ...]]:
        """Of the first data set; see :meth:`candidates_of`."""
        return self.candidates_of(self.datasets[0])

    def candidates_of(self, dataset: str) -> dict[Method, tuple[Hyperparameters, ...]]:
        """Method -> its points, by p_m, then T; without bins T stays at the default, which then decides nothing."""
        mask_probs, t_inits = self.sides_of(dataset)
        return {
            method: tuple(
                replace(
                    self.default, pretext=method.pretext, masking=method.masking, mask_prob=mask_prob, t_init=t_init
                )
                for mask_prob in mask_probs_of(method.masking, mask_probs)
                for t_init in (t_inits if method.has_bins else (self.default.t_init,))
            )
            for method in METHODS
        }

    @cached_property
    def points(self) -> tuple[Hyperparameters, ...]:
        """Those of the first data set; see :meth:`unique_points_of`."""
        return self.unique_points_of(self.datasets[0])

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """Candidates of all methods, method by method (47 with the paper's values, 13 where nothing is tuned)."""
        return tuple(point for candidates in self.candidates_of(dataset).values() for point in candidates)

    @property
    def notes(self) -> tuple[str, ...]:
        """Another grid than the paper's, or none at all."""
        return super().notes if self.is_tuned else (UNTUNED,)

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Side of the grid -> its values, on any data set."""
        sides = zip(*map(self.sides_of, self.datasets), strict=True)
        mask_probs, t_inits = (sorted({value for values in side for value in values}) for side in sides)
        return {"method": [method.name for method in METHODS], "mask_prob": mask_probs, "t_init": t_inits}

    def method_of(self, point: Hyperparameters) -> Method:
        """The method that a point of this study is a candidate of."""
        return _BY_PRETEXT[point.pretext, point.masking]

    def place_of(self, point: Hyperparameters) -> dict[str, Any]:
        """Columns :data:`METHOD`, `mask_prob` and `t_init`."""
        method = self.method_of(point)
        return {**dict(zip(METHOD, method.words, strict=True)), "mask_prob": point.mask_prob, "t_init": point.t_init}

    def words_of(self, point: Hyperparameters) -> str:
        """``fixed/random/BR, p_m 0.2, T 10``."""
        method = self.method_of(point)
        return ", ".join([method.name, *settings_of(method, point.mask_prob, point.t_init)])

    def _with_side(self, key: str, values: tuple[float, ...]) -> Self:
        if not self.is_tuned:
            raise ConfigError(f"p_m and T are those of --choice-from, so none is added or cancelled, got {key}")
        return super()._with_side(key, values)

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
