"""Tables of studies whose points are chosen from: a row per replica and per point, the choices, test scores hidden.

Validation chooses, so test scores of points that were not chosen leave no trace: :func:`hide_test` drops them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.choosing import ChoosingStudy, P
from sweeps.service.points import Point
from sweeps.service.stats import mean_interval, standard_deviation
from sweeps.service.tables import Part, as_frame, finished_scores, recorded, run_averages, variance_ratio

TEST_OF_POINT = ["test_mean", "test_sd", "test_low", "test_high"]
"""Columns of the table of points that test scores are in."""

SUMMARY = tuple(f"{part}_{number}" for part in ("val", "test") for number in ("mean", "sd", "low", "high"))
"""Columns of the table of points that become metrics of a point's MLflow run; of test scores those that are shown."""


def replica_frame(records: Iterable[Mapping[str, Any]], study: ChoosingStudy[P], metric: str) -> pd.DataFrame:
    """One row per replica of a study of one data set that has a record, point by point.

    ``records`` that the study does not ask for are left out.  `val` and `test` hold ``metric``; `val_<name>` and
    `test_<name>` every recorded one, nan for a diverged replica.

    Raises ConfigError on an unknown metric, DataError when a finished record lacks it.
    """
    by_id = {record["id"]: record for record in records}
    (card,), metric = study.cards, get_metric(metric).name
    rows = []
    for point in study.points:
        for seed in study.seeds:
            record = by_id.get(study.replica(card, point, seed).id)
            if record is not None:
                rows.append(
                    {
                        "dataset": card.key,
                        **study.place_of(point),
                        "seed": seed,
                        "seeds_vary": study.seeds_vary,
                        **recorded(record, metric),
                    }
                )
    places = study.place_of(study.points[0])
    return as_frame(rows, ["dataset", *places, "seed", "seeds_vary", "id", "status", "metric"])


def points_frame(replicas: pd.DataFrame, study: ChoosingStudy[P], metric: str) -> pd.DataFrame:
    """One row per point of a study of one data set, in its order, from its table of replicas.

    Mean, sd (ddof 1) and 95 % t interval are over finished replicas, of which there are `n`; `n_diverged` count the
    others, `n_missing` seeds without a result.  Under varying splits intervals are the corrected ones (see `stats`).
    """
    (dataset,) = study.datasets
    rows = []
    for point in study.points:
        group = replicas[_rows_of(replicas, study, point)]
        finished = group[group["status"] == "finished"]
        rows.append(
            {
                "dataset": dataset,
                **study.place_of(point),
                "metric": metric,
                "n": len(finished),
                "n_diverged": len(group) - len(finished),
                "n_missing": len(study.seeds) - len(group),
                **_summary(group, replicas, "val"),
                **_summary(group, replicas, "test"),
                **run_averages(finished),
            }
        )
    return pd.DataFrame(rows)


def mark_chosen(
    replicas: pd.DataFrame,
    points: pd.DataFrame,
    study: ChoosingStudy[P],
    chosen: Sequence[P | None],
    column: str = "chosen",
) -> None:
    """Add ``column`` to both tables: whether a row is of one of these points; None is of no row."""
    for frame in (replicas, points):
        frame[column] = np.zeros(len(frame), dtype=bool)
        for point in chosen:
            if point is not None:
                frame[column] |= _rows_of(frame, study, point)


def hide_test(replicas: pd.DataFrame, points: pd.DataFrame, shown: Sequence[str] = ("chosen",)) -> None:
    """Put nan in place of every test score of points that none of the columns ``shown`` marks."""
    scores = ["test", "bootstrap_se", *(name for name in replicas if str(name).startswith("test_"))]
    replicas.loc[~replicas[list(shown)].any(axis=1), scores] = math.nan
    points.loc[~points[list(shown)].any(axis=1), TEST_OF_POINT] = math.nan


def point_summaries(points: pd.DataFrame, study: ChoosingStudy[P]) -> dict[Point, dict[str, Any]]:
    """Aggregates of every point, for MLflow, from the table of points."""
    (dataset,) = study.datasets
    return {
        study.point(dataset, point): {
            **{name: row[name] for name in SUMMARY},
            "n": row["n"],
            "diverged": row["n_diverged"],
            "metric": row["metric"],
            "chosen": "yes" if row["chosen"] else "no",
        }
        for point, row in zip(study.points, points.to_dict("records"), strict=True)
    }


def _summary(group: pd.DataFrame, replicas: pd.DataFrame, part: Part) -> dict[str, float]:
    scores = finished_scores(group, part)
    low, high = mean_interval(scores, variance_ratio=variance_ratio(replicas, part))
    return {
        f"{part}_mean": float(scores.mean()) if len(scores) else math.nan,
        f"{part}_sd": standard_deviation(scores),
        f"{part}_low": low,
        f"{part}_high": high,
    }


def _rows_of(frame: pd.DataFrame, study: ChoosingStudy[P], point: P) -> Any:
    """Which rows [len(frame)] of a table are of a point."""
    return np.logical_and.reduce([(frame[name] == value).to_numpy() for name, value in study.place_of(point).items()])
