"""What figures and captions of studies say that choose one of their points on validation."""

from __future__ import annotations

import math

import pandas as pd

from sweeps.service.choosing import ChoosingStudy, P
from sweeps.service.decision import Decision, RunnerUp


def rule_text(simplest: str) -> str:
    """The rule, fixed before the run.  ``simplest``: what comes first among points that tie."""
    return (
        "chosen is the point with the best mean validation score over all seeds; a point with a diverged seed cannot "
        f"be chosen, and ties go to the simplest point ({simplest})"
    )


def scores_text(points: pd.DataFrame, column: str) -> str:
    """``validation 0.91 ± 0.01, test 0.90 ± 0.01`` of the one point that a column of the table marks."""
    row = points[points[column]].iloc[0]
    return ", ".join(
        f"{what} {mean_and_sd(row[f'{part}_mean'], row[f'{part}_sd'])}"
        for what, part in (("validation", "val"), ("test", "test"))
    )


def runner_up_text(decision: Decision[P], study: ChoosingStudy[P]) -> str:
    """How close the best of the other points came."""
    runner_up = decision.runner_up
    if runner_up is None:
        return "no other point could be chosen"
    behind = behind_text(runner_up) if decision.tied == 1 else f"with the same mean{_on_validation(runner_up)}"
    return f"runner-up: {study.words_of(runner_up.point)}, {behind}"


def behind_text(other: RunnerUp[P]) -> str:
    """``behind by 0.01 on validation, paired by seed (95 % t interval 0 to 0.02)``."""
    return f"behind by {other.difference:.2g}{_on_validation(other)}"


def _on_validation(other: RunnerUp[P]) -> str:
    between = "" if math.isnan(other.low) else f" (95 % t interval {other.low:.2g} to {other.high:.2g})"
    return f" on validation, paired by seed{between}"


def mark_key(points: pd.DataFrame) -> str:
    """What the counts in the cells mean, after a space; nothing where there are none."""
    marks = {"†n: n diverged seeds, so not to be chosen": "n_diverged", "n/m: n of m seeds have a result": "n_missing"}
    told = [text for text, column in marks.items() if (points[column] > 0).any()]
    return f" {'; '.join(told)}." if told else ""


def rows_text(replicas: pd.DataFrame, column: str) -> str:
    """`` (n_val = 338)``, or the smallest and the largest number."""
    sizes = sorted(replicas[column].unique())
    return f" (n_{column[2:]} = {' to '.join(str(size) for size in dict.fromkeys((sizes[0], sizes[-1])))})"


def mean_and_sd(mean: float, sd: float) -> str:
    """``0.91 ± 0.01``, without the sd where there is none."""
    return f"{mean:.4f}" if math.isnan(sd) else f"{mean:.4f} ± {sd:.4f}"


def over_seeds(n_seeds: int) -> str:
    """What those numbers are."""
    return f"mean ± sd over {n_seeds} seeds" if n_seeds > 1 else "1 seed"


def diverged_text(replicas: pd.DataFrame) -> str:
    """``No replica diverged``, or how many of how many did."""
    diverged = int((replicas["status"] == "diverged").sum())
    return f"{diverged} of {len(replicas)} replicas diverged" if diverged else "No replica diverged"
