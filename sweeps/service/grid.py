"""The masking study: what replaces masked inputs, how often, and how many bins a feature starts with.

Every kind of masking is crossed with the probabilities p_m, and with T_init; "none" has p_m 0 (paper: Table 1, of
which this is the part on adaptive bins).  Validation chooses one point per data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from adaptbin.config import Hyperparameters, MaskingKind
from sweeps.service.choice import CHOOSING_STUDY
from sweeps.service.choosing import ChoosingStudy, listed_values

if TYPE_CHECKING:
    from sweeps.service.options import Options
    from sweeps.service.publish import Published

MASKINGS: tuple[MaskingKind, ...] = get_args(MaskingKind)
"""Kinds of masking, the simplest first."""

MASK_PROBS, T_INITS = (0.1, 0.2, 0.3), (2, 10)
"""The paper's values of p_m, and of T and T_init (Sec. 3)."""

DEFAULT_MASK_PROB = 0.2
"""p_m when a masking is asked for without one: the middle of the paper's grid."""

GRID = ("masking", "mask_prob", "t_init")
"""Fields of :class:`adaptbin.config.Hyperparameters` that the masking study moves; columns that name its points."""


def mask_probs_of(masking: MaskingKind, mask_probs: Sequence[float]) -> tuple[float, ...]:
    """Those p_m, of ``mask_probs``, that a kind of masking is trained with: 0 alone where nothing is masked."""
    return (0.0,) if masking == "none" else tuple(mask_probs)


@dataclass(frozen=True, kw_only=True)
class GridStudy(ChoosingStudy[Hyperparameters]):
    """Points that differ in masking, p_m and T_init, among which validation chooses."""

    sides: ClassVar[dict[str, tuple[str, str]]] = {"mask_prob": ("mask_probs", "p_m"), "t_init": ("t_inits", "T_init")}

    mask_probs: tuple[float, ...] = MASK_PROBS
    """p_m of every masking but "none", ascending."""
    t_inits: tuple[int, ...] = T_INITS
    """T_init, ascending."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Values among which the paper chooses otherwise."""
        sides = (("p_m", self.mask_probs, MASK_PROBS), ("T_init", self.t_inits, T_INITS))
        changed = [(name, got, full) for name, got, full in sides if got != full]
        if not changed:
            return ()
        reduced = all(set(got) < set(full) for _, got, full in changed)
        words = ["{} {} (full: {})".format(name, *map(listed_values, (got, full))) for name, got, full in changed]
        return (f"{'Reduced' if reduced else 'Changed'} grid: {', '.join(words)}",)

    def unique_points_of(self, dataset: str) -> tuple[Hyperparameters, ...]:
        """The same grid for every data set."""
        return self.points


@dataclass(frozen=True, kw_only=True)
class MaskingStudy(GridStudy):
    """A grid of masking and first bins; one of its points is chosen for each data set."""

    is_joint: ClassVar[bool] = False

    name: str = CHOOSING_STUDY

    @cached_property
    def points(self) -> tuple[Hyperparameters, ...]:
        """The grid (14 points with the paper's values): by masking, then p_m, then T_init; the simplest point first."""
        return tuple(
            replace(self.default, masking=masking, mask_prob=mask_prob, t_init=t_init)
            for masking in MASKINGS
            for mask_prob in mask_probs_of(masking, self.mask_probs)
            for t_init in self.t_inits
        )

    @property
    def extent(self) -> dict[str, list[Any]]:
        """Side of the grid -> its values."""
        return {"masking": list(MASKINGS), "mask_prob": list(self.mask_probs), "t_init": list(self.t_inits)}

    def place_of(self, point: Hyperparameters) -> dict[str, Any]:
        """Columns :data:`GRID`."""
        return {name: getattr(point, name) for name in GRID}

    def words_of(self, point: Hyperparameters) -> str:
        """See :func:`point_words`."""
        return point_words(point)

    def publish(
        self, records: Sequence[Mapping[str, Any]], folder: Path, options: Options, manifest: Mapping[str, Any]
    ) -> Published:
        """See :class:`sweeps.service.points.Study`."""
        from sweeps.service.publish_masking import publish  # what draws takes seconds to import

        return publish(self, records, folder, primary=options.primary, show_test=options.show_test, manifest=manifest)


def point_words(hyperparameters: Hyperparameters) -> str:
    """``random, p_m 0.2, T_init 10``; a point without masking has no p_m."""
    masked = "" if hyperparameters.masking == "none" else f", p_m {hyperparameters.mask_prob:g}"
    return f"{hyperparameters.masking}{masked}, T_init {hyperparameters.t_init}"
