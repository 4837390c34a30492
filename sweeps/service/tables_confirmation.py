"""The confirmation of a search: the best trials and the default with fresh seeds, the winner, and its one test.

A trial is among the best partly for its luck with the seeds of the search; fresh seeds know nothing of that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import CONTRAST, contrast_rows
from sweeps.service.points import AskedTest, Point
from sweeps.service.search_space import FIELDS, settings_of
from sweeps.service.searches import SearchStudy, Trial
from sweeps.service.stats import Floats, mean_interval, signed_differences, standard_deviation
from sweeps.service.tables import finished_scores

DEFAULT = -1
"""Number in the tables of the default where it is no trial."""

VALIDATION = ("n", "n_diverged", "val_mean", "val_sd", "val_low", "val_high")
"""Columns of :func:`validation_of`."""

TEST = ("test_mean", "test_sd", "test_low", "test_high")
"""Columns of the confirmation that test scores are in."""

_COLUMNS = [
    *("dataset", "place", "trial", "is_default", "metric", "search_mean", *VALIDATION, "n_missing"),
    *("difference", "low", "high", *FIELDS),
]


def numbers_of(study: SearchStudy) -> dict[Point, int]:
    """Number of the first trial of each point, a complete one if there is one; of the default, where it is no trial,
    :data:`DEFAULT`.
    """
    numbers: dict[Point, int] = {}
    # A point that failed may have been asked for again: those that are done speak for it.
    for trial in sorted(study.trials, key=lambda trial: (trial.state != "complete", trial.number)):
        for point in study.rungs_of(trial):
            numbers.setdefault(point, trial.number)
    numbers.setdefault(study.default_point, DEFAULT)
    return numbers


def validation_of(group: pd.DataFrame) -> dict[str, float]:
    """What :func:`trials_frame` tells of the validation scores of some replicas."""
    scores = finished_scores(group, "val")
    low, high = mean_interval(scores)
    mean = float(scores.mean()) if len(scores) else math.nan
    numbers = (len(scores), len(group) - len(scores), mean, standard_deviation(scores), low, high)
    return dict(zip(VALIDATION, numbers, strict=True))


def confirmation_frame(replicas: pd.DataFrame, study: SearchStudy) -> pd.DataFrame:
    """One row per finalist, by its place in the search, the default last.

    `search_mean` is the validation mean that it was chosen by; :data:`VALIDATION` are of fresh seeds, `n_missing` of
    which have no result.  `difference` is its fresh score minus the default's, paired by seed, signed so that positive
    is better, with its 95 % t interval.
    """
    numbers, sign = numbers_of(study), get_metric(study.metric).sign
    default = _of(replicas, "confirmation", numbers[study.default_point])
    rows: list[dict[str, Any]] = []
    for place, point in enumerate(study.finalists, 1):
        number, is_default = numbers[point], point == study.default_point
        own, searched = _of(replicas, "confirmation", number), _of(replicas, "search", number)
        seeds = own.index.intersection(default.index)
        differences = signed_differences(_scores(own, seeds), _scores(default, seeds), sign)
        paired = differences[np.isfinite(differences)]
        low, high = mean_interval(paired)
        compared = not is_default and len(paired) > 0
        rows.append(
            {
                "dataset": study.datasets[0],
                "place": "default" if is_default else str(place),
                "trial": number,
                "is_default": is_default,
                "metric": study.metric,
                "search_mean": validation_of(searched[searched["epochs"] == study.budget.epochs])["val_mean"],
                **validation_of(own),
                "n_missing": len(study.confirm_seeds) - len(own),
                "difference": float(paired.mean()) if compared else math.nan,
                "low": low if compared else math.nan,
                "high": high if compared else math.nan,
                **settings_of(point),
            }
        )
    return pd.DataFrame(rows, columns=_COLUMNS)


def winner_of(confirmation: pd.DataFrame, study: SearchStudy) -> Trial | None:
    """The trial with the best validation mean over fresh seeds; none where all have a diverged or a missing one.

    Ties go to the one that was better in the search.
    """
    sign = get_metric(study.metric).sign
    by_number = {trial.number: trial for trial in study.best}
    found: tuple[float, Trial] | None = None
    for row in confirmation.to_dict("records"):
        if row["is_default"] or row["n_diverged"] or row["n_missing"]:
            continue
        score = sign * row["val_mean"]
        if found is None or score > found[0]:
            found = score, by_number[row["trial"]]
    return None if found is None else found[1]


def mark_winner(confirmation: pd.DataFrame, replicas: pd.DataFrame, winner: Trial | None) -> None:
    """Add `winner` and the test scores of the winner and the default to the confirmation, nan for all others."""
    confirmation["winner"] = confirmation["trial"] == (math.nan if winner is None else winner.number)
    told: dict[str, list[float]] = {name: [] for name in TEST}
    for row in confirmation.to_dict("records"):
        scores = finished_scores(_of(replicas, "confirmation", row["trial"]))
        if winner is None or not (row["winner"] or row["is_default"]):
            scores = scores[:0]
        mean = float(scores.mean()) if len(scores) else math.nan
        for name, value in zip(TEST, (mean, standard_deviation(scores), *mean_interval(scores)), strict=True):
            told[name].append(value)
    for name, values in told.items():
        confirmation[name] = values


def winner_against_default(
    replicas: pd.DataFrame, study: SearchStudy, winner: Trial | None, test: AskedTest
) -> pd.DataFrame:
    """The one test: the winner minus the default on test rows, paired by fresh seeds.  No row without a winner."""
    columns = ["dataset", "trial", *CONTRAST]
    if winner is None:
        return pd.DataFrame(columns=columns)
    confirmed = replicas[replicas["stage"] == "confirmation"]
    rows = contrast_rows(confirmed, [[{"trial": winner.number}]], test=test, planned=len(study.confirm_seeds))
    return pd.DataFrame([{"dataset": study.datasets[0], **row} for row in rows], columns=columns)


def _of(replicas: pd.DataFrame, stage: str, number: int) -> pd.DataFrame:
    """Rows of a trial in a stage, by seed."""
    return replicas[(replicas["stage"] == stage) & (replicas["trial"] == number)].set_index("seed")


def _scores(rows: pd.DataFrame, seeds: pd.Index[Any]) -> Floats:
    return rows["val"].loc[seeds].to_numpy(dtype=np.float64)
