"""Which of some points of a grid is chosen on validation, and how close the next best one came.

The best mean validation score over all seeds wins.  The rule is fixed before the run:

- All points must have a result for every seed; until then nothing is chosen.
- A point with a diverged seed cannot be chosen: a mean over the others would praise it for losing its worst.
- Ties go to the point that comes first in the grid, the simplest: less masking, then lower p_m, then lower T_init; of
  architectures lower depth, then lower width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import pandas as pd

from adaptbin.config import Hyperparameters, method_version_of
from adaptbin.metrics import get_metric
from sweeps.service.choice import Choice
from sweeps.service.choosing import ChoosingStudy, P
from sweeps.service.grid import GridStudy
from sweeps.service.notes import named_seeds
from sweeps.service.stats import Floats, mean_interval, signed_differences
from sweeps.service.tables import variance_ratio

TIE = 1e-12
"""Relative difference of two means up to which they tie: what the order of a sum can make."""

_NAMED_POINTS = 3


@dataclass(frozen=True)
class RunnerUp(Generic[P]):
    """A point that was not chosen, usually the best of these, against the choice."""

    point: P
    difference: float
    """Validation score of the choice minus its own, mean over seeds, signed so that positive is better."""
    low: float
    """95 % t interval of that mean over seeds; nan where seeds say nothing of another pretraining."""
    high: float


@dataclass(frozen=True)
class Decision(Generic[P]):
    """The point chosen, or why there is none."""

    chosen: P | None
    reason: str
    """Why nothing is chosen; empty where something is."""
    n_points: int
    """Points compared."""
    n_diverged: int
    """How many of these had a diverged seed and could not be chosen."""
    val_mean: float = math.nan
    """Validation score of the choice, mean over seeds; nan where nothing is chosen."""
    runner_up: RunnerUp[P] | None = None
    tied: int = 1
    """Points with the best mean; the first of them is the choice."""


def decide(
    points: pd.DataFrame, replicas: pd.DataFrame, study: ChoosingStudy[P], candidates: Sequence[P]
) -> Decision[P]:
    """Choose among ``candidates`` for one data set; ``points`` has a row for each, in the same order.

    ``replicas`` are the rows that ``points`` summarise; only validation scores are read.
    """
    n_diverged = int((points["n_diverged"] > 0).sum())
    if (points["n_missing"] > 0).any():
        return Decision(
            chosen=None,
            reason=_what_is_missing(replicas, study, candidates),
            n_points=len(points),
            n_diverged=n_diverged,
        )
    eligible = [position for position, lost in enumerate(points["n_diverged"]) if not lost]
    if not eligible:
        return Decision(
            chosen=None, reason="every point has a diverged seed", n_points=len(points), n_diverged=n_diverged
        )
    sign = get_metric(points["metric"].iloc[0]).sign
    gains = sign * points["val_mean"].to_numpy(dtype=np.float64)
    first, tied = best_of(gains, eligible)
    others = [position for position in eligible if position != first]
    runner_up = None
    if others:
        runner_up = against(candidates[first], candidates[best_of(gains, others)[0]], replicas, study, sign)
    return Decision(
        chosen=candidates[first],
        reason="",
        val_mean=float(points["val_mean"].iloc[first]),
        runner_up=runner_up,
        tied=tied,
        n_points=len(points),
        n_diverged=n_diverged,
    )


def choice_of(decision: Decision[Hyperparameters], study: GridStudy, metric: str) -> Choice | None:
    """What was chosen for the only data set of ``study``, with all conditions; None where nothing was."""
    if decision.chosen is None:
        return None
    (card,) = study.cards
    return Choice(
        method_version=method_version_of(card.architecture.encoder),
        dataset=card.key,
        fingerprint=card.fingerprint,
        architecture=card.architecture,
        protocol=study.protocol,
        budget=study.budget,
        seeds=study.seeds,
        seeds_vary=study.seeds_vary,
        metric=metric,
        higher_is_better=get_metric(metric).higher_is_better,
        hyperparameters=decision.chosen,
        val_mean=decision.val_mean,
        points_compared=decision.n_points,
        points_diverged=decision.n_diverged,
    )


def best_of(gains: Floats, positions: Sequence[int]) -> tuple[int, int]:
    """The first of the best ``positions`` in gains [n], and how many of them tie with it."""
    top = max(gains[position] for position in positions)
    best = [position for position in positions if top - gains[position] <= TIE * abs(top)]
    return best[0], len(best)


def against(chosen: P, other: P, replicas: pd.DataFrame, study: ChoosingStudy[P], sign: int) -> RunnerUp[P]:
    """Both points seed by seed; neither has a diverged or missing one.  ``sign``: 1 where higher is better, else -1."""
    scores = replicas.set_index("id")["val"]

    def of(point: P) -> Floats:
        ids = [study.replica(study.cards[0], point, seed).id for seed in study.seeds]
        return np.asarray(scores.loc[ids], dtype=np.float64)

    differences = signed_differences(of(chosen), of(other), sign)
    interval = (math.nan, math.nan)
    if study.seeds_vary != "probe":
        interval = mean_interval(differences, variance_ratio=variance_ratio(replicas, "val"))
    return RunnerUp(other, float(differences.mean()), *interval)


def _what_is_missing(replicas: pd.DataFrame, study: ChoosingStudy[P], candidates: Sequence[P]) -> str:
    """``2 of 14 points lack results: none, T_init 2 (seeds 1, 2); ...``."""
    there = set(replicas["id"])
    lacking = []
    for point in candidates:
        ids = {seed: study.replica(study.cards[0], point, seed).id for seed in study.seeds}
        if seeds := [seed for seed in study.seeds if ids[seed] not in there]:
            lacking.append(f"{study.words_of(point)} ({named_seeds(seeds)})")
    named = "; ".join(lacking[:_NAMED_POINTS])
    such_as = ", such as" if len(lacking) > _NAMED_POINTS else ":"
    return f"{len(lacking)} of {len(candidates)} points lack results{such_as} {named}"
