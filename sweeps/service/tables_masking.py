"""Tables of the masking study: one row per replica, one row per point, the choice, and the console's view.

Validation chooses, so test scores of points that were not chosen leave no trace in these tables unless they are asked
for: :func:`masking_tables` is the one place where they are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from adaptbin.config import Hyperparameters
from adaptbin.metrics import get_metric
from sweeps.service.decision import Decision, decide
from sweeps.service.grid import MaskingStudy
from sweeps.service.stats import mean_interval, standard_deviation
from sweeps.service.tables import as_frame, finished_scores, number_text, recorded, run_averages, variance_ratio

GRID = ("masking", "mask_prob", "t_init")
"""Columns that name a point; also fields of :class:`adaptbin.config.Hyperparameters`."""

_TEST_OF_POINT = ["test_mean", "test_sd", "test_low", "test_high"]


@dataclass(frozen=True)
class MaskingTables:
    """What is known of one data set."""

    replicas: pd.DataFrame
    """One row per replica that has a record, point by point."""
    points: pd.DataFrame
    """One row per point, in the grid's order."""
    decision: Decision


def masking_tables(
    records: Iterable[Mapping[str, Any]], study: MaskingStudy, metric: str, *, show_test: bool = False
) -> MaskingTables:
    """Tables of a study of one data set; test scores are in them for the chosen point alone unless ``show_test``.

    ``records`` that the study does not ask for are left out.  Replicas: `val` and `test` hold ``metric``;
    `val_<name>` and `test_<name>` every recorded one, nan for a diverged replica.  Points: mean, sd (ddof 1) and 95 % t
    interval over finished replicas, of which there are `n`; `n_diverged` count the others, `n_missing` seeds without a
    result.  Under varying splits intervals are the corrected ones (see `stats`).

    Raises ConfigError on an unknown metric, DataError when a finished record lacks it.
    """
    replicas = _replica_frame(records, study, get_metric(metric).name)
    points = _points_frame(replicas, study, metric)
    decision = decide(points, replicas, study)
    for frame in (replicas, points):
        frame["chosen"] = _rows_of(frame, decision.chosen)
    if not show_test:
        scores = ["test", "bootstrap_se", *(name for name in replicas if str(name).startswith("test_"))]
        replicas.loc[~replicas["chosen"], scores] = math.nan
        points.loc[~points["chosen"], _TEST_OF_POINT] = math.nan
    return MaskingTables(replicas, points, decision)


def _replica_frame(records: Iterable[Mapping[str, Any]], study: MaskingStudy, metric: str) -> pd.DataFrame:
    by_id = {record["id"]: record for record in records}
    (card,) = study.cards
    rows = []
    for point in study.points:
        for seed in study.seeds:
            record = by_id.get(study.replica(card, point, seed).id)
            if record is not None:
                rows.append(
                    {
                        "dataset": card.key,
                        **_place(point),
                        "seed": seed,
                        "seeds_vary": study.seeds_vary,
                        **recorded(record, metric),
                    }
                )
    return as_frame(rows, ["dataset", *GRID, "seed", "seeds_vary", "id", "status", "metric"])


def _points_frame(replicas: pd.DataFrame, study: MaskingStudy, metric: str) -> pd.DataFrame:
    (dataset,) = study.datasets
    rows = []
    for point in study.points:
        group = replicas[_rows_of(replicas, point)]
        finished = group[group["status"] == "finished"]
        rows.append(
            {
                "dataset": dataset,
                **_place(point),
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


def _summary(group: pd.DataFrame, replicas: pd.DataFrame, part: Literal["val", "test"]) -> dict[str, float]:
    scores = finished_scores(group, part)
    low, high = mean_interval(scores, variance_ratio=variance_ratio(replicas, part))
    return {
        f"{part}_mean": float(scores.mean()) if len(scores) else math.nan,
        f"{part}_sd": standard_deviation(scores),
        f"{part}_low": low,
        f"{part}_high": high,
    }


def _place(point: Hyperparameters) -> dict[str, Any]:
    return {name: getattr(point, name) for name in GRID}


def _rows_of(frame: pd.DataFrame, point: Hyperparameters | None) -> Any:
    """Which rows [len(frame)] of a table are of a point; none where there is no point."""
    if point is None:
        return np.zeros(len(frame), dtype=bool)
    return np.logical_and.reduce([(frame[name] == value).to_numpy() for name, value in _place(point).items()])


def summary_table(tables: MaskingTables, study: MaskingStudy, *, show_test: bool = False) -> Table:
    """What the console shows: per point its validation score, triggers, splits and bins; the choice is marked."""
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    direction = "higher" if metric.higher_is_better else "lower"
    table = Table(title=f"{dataset}: validation {metric.label} ({direction} is better)", box=box.SIMPLE, pad_edge=False)
    table.add_column("masking")
    names = ["p_m", "T_init", "n", "mean", "95 % interval", "triggers", "splits", "bins"]
    for name in [*names, *(["test"] if show_test else [])]:
        table.add_column(name, justify="right")
    table.add_column("")
    before = None
    for row in points.to_dict("records"):
        if before not in (None, row["masking"]):
            table.add_section()
        diverged = f" (†{row['n_diverged']})" if row["n_diverged"] else ""
        table.add_row(
            row["masking"] if row["masking"] != before else "",
            f"{row['mask_prob']:g}",
            str(row["t_init"]),
            f"{row['n']}{diverged}",
            number_text(row["val_mean"], ".4f"),
            "" if math.isnan(row["val_low"]) else f"{row['val_low']:.4f} – {row['val_high']:.4f}",
            *(number_text(row[name], ".1f") for name in ("triggers_mean", "splits_mean", "bins_mean")),
            *([number_text(row["test_mean"], ".4f")] if show_test else []),
            "chosen" if row["chosen"] else "",
            style="bold" if row["chosen"] else None,
        )
        before = row["masking"]
    return table
