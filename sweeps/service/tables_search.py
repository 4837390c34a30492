"""Tables of a search: its trials, their replicas, the confirmation of the best, and one test: the best or the default.

Validation chooses.  Test scores are read of the confirmation alone, and there of the winner and of the default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sweeps.service.importances import importances_frame
from sweeps.service.points import AskedTest, Point
from sweeps.service.search_space import FIELDS, settings_of
from sweeps.service.searches import SearchStudy, Trial
from sweeps.service.tables import as_frame, recorded
from sweeps.service.tables_confirmation import (
    VALIDATION,
    confirmation_frame,
    mark_winner,
    numbers_of,
    validation_of,
    winner_against_default,
    winner_of,
)

_FIRST = ["dataset", "stage", "trial", "is_default", "epochs", "seed", "seeds_vary", "id", "status", "metric", "role"]


@dataclass(frozen=True)
class SearchTables:
    """Everything that is told of a search."""

    trials: pd.DataFrame
    """One row per trial, the best first, then those that were pruned or failed; see :func:`trials_frame`."""
    replicas: pd.DataFrame
    """One row per replica; test scores of the winner and the default in the confirmation, else nan."""
    confirmation: pd.DataFrame
    """One row per finalist, the default last; of no rows before there are any."""
    significance: pd.DataFrame
    """The winner against the default on test with fresh seeds: one row, or none."""
    importances: pd.DataFrame
    winner: Trial | None
    """The best of the finalists but the default with fresh seeds, on validation."""


def search_tables(records: Iterable[Mapping[str, Any]], study: SearchStudy, test: AskedTest) -> SearchTables:
    """All tables of a search of one data set."""
    replicas = _replica_frame({record["id"]: record for record in records}, study)
    trials = trials_frame(replicas, study)
    confirmation = confirmation_frame(replicas, study)
    winner = winner_of(confirmation, study)
    shown = pd.Series(False, index=replicas.index)
    if winner is not None:
        compared = replicas["is_default"] | (replicas["trial"] == winner.number)
        shown = compared & (replicas["stage"] == "confirmation")
    scores = ["test", "bootstrap_se", *(str(name) for name in replicas if str(name).startswith("test_"))]
    replicas.loc[~shown, scores] = math.nan
    mark_winner(confirmation, replicas, winner)
    return SearchTables(
        trials=trials,
        replicas=replicas,
        confirmation=confirmation,
        significance=winner_against_default(replicas, study, winner, test),
        importances=importances_frame(study),
        winner=winner,
    )


def trials_frame(replicas: pd.DataFrame, study: SearchStudy) -> pd.DataFrame:
    """One row per trial: `rank` (of complete ones, the best 1), `state`, `epochs` that it had, its scores and fields.

    `val_mean`, `val_sd` and the 95 % t interval `val_low`, `val_high` are over its finished seeds; `core_seconds` are
    those of one replica, on average.  `on_front`: no other trial betters it in all objectives.  `seeded_from` names a
    trial of another search that it was taken over from.
    """
    front = study.front
    ranks = {trial.number: rank for rank, trial in enumerate(study.ranked, 1)}
    searched, numbers = replicas[replicas["stage"] == "search"], numbers_of(study)
    rows = []
    for trial in study.trials:
        point = study.rungs_of(trial)[-1]
        group = searched[(searched["trial"] == numbers[point]) & (searched["epochs"] == point.budget.epochs)]
        rows.append(
            {
                "trial": trial.number,
                "rank": ranks.get(trial.number, math.nan),
                "state": trial.state,
                "epochs": point.budget.epochs,
                "is_default": study.point_of(trial) == study.default_point,
                "on_front": trial in front,
                **validation_of(group),
                "core_seconds": trial.notes.get("core_seconds", math.nan),
                **settings_of(point),
                "seeded_from": trial.notes.get("seeded_from", ""),
                "reason": trial.notes.get("reason", ""),
            }
        )
    columns = ["trial", "rank", "state", "epochs", "is_default", "on_front", *VALIDATION, "core_seconds", *FIELDS]
    frame = pd.DataFrame(rows, columns=[*columns, "seeded_from", "reason"])
    order = frame["rank"].fillna(math.inf)
    return frame.assign(order=order).sort_values(["order", "trial"]).drop(columns="order").reset_index(drop=True)


def _replica_frame(records: Mapping[str, Mapping[str, Any]], study: SearchStudy) -> pd.DataFrame:
    """A row per replica that has a record: of the trials, of the default where it is none, of the confirmation.

    Trials of one point share its rows, which have the number of the first.
    """
    numbers = numbers_of(study)
    stages: list[tuple[str, Point, Sequence[int]]] = [("search", point, study.seeds) for point in numbers]
    stages += [("confirmation", point, study.confirm_seeds) for point in study.finalists]
    rows = [
        {
            "dataset": study.datasets[0],
            "stage": stage,
            "trial": numbers[point],
            "is_default": point == study.default_point,
            "epochs": point.budget.epochs,
            "seed": replica.seed,
            "seeds_vary": study.seeds_vary,
            "role": "primary",
            **recorded(records[replica.id], study.metric),
        }
        for stage, point, seeds in stages
        for replica in study.replicas_of(point, seeds)
        if replica.id in records
    ]
    return as_frame(rows, _FIRST)
