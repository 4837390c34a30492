"""Tables of the architecture study: a row per replica and per point, the choice, and how the paper's compares with it.

Validation chooses, so test scores are in these tables for the chosen point and for the paper's alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table

from adaptbin.metrics import get_metric
from sweeps.service.architectures import ArchitectureStudy, chooser_of
from sweeps.service.decision import Decision, RunnerUp, against, decide
from sweeps.service.points import Point
from sweeps.service.stats import standard_error
from sweeps.service.tables import console_table, finished_scores, number_text
from sweeps.service.tables_grid import hide_test, mark_chosen, points_frame, replica_frame

SHOWN = ("chosen", "paper")
"""Columns that mark the points whose test scores are shown."""

_OF_BINS = ["bins_mean", "bins_max", "triggers", "splits", "triggers_mean", "splits_mean"]
"""Columns of other studies about bins, of which these models have none."""


@dataclass(frozen=True)
class Comparison:
    """The paper's choice against ours, on validation."""

    paper: RunnerUp[Point]
    """How far it is behind; by 0 where it is ours."""
    standard_error: float
    """Of the mean validation score of ours over seeds; nan for one seed."""
    is_reproduced: bool
    """Whether both are the same point."""

    @property
    def is_within(self) -> bool:
        """Whether the paper's choice is within one standard error of the best; a single seed cannot tell."""
        return self.is_reproduced or self.paper.difference <= self.standard_error


@dataclass(frozen=True)
class ArchitectureTables:
    """What is known of one data set."""

    replicas: pd.DataFrame
    """One row per replica that has a record, point by point."""
    points: pd.DataFrame
    """One row per point, in the study's order."""
    decision: Decision[Point]
    comparison: Comparison | None
    """None where nothing is chosen, or the paper's point could not have been."""

    @property
    def comparison_frame(self) -> pd.DataFrame:
        """One row: the choice, the paper's, and how they compare; no row where they cannot be."""
        found = self.comparison
        if found is None:
            return pd.DataFrame(columns=_COMPARED)
        rows = {column: self.points[self.points[column]].iloc[0] for column in SHOWN}
        told = {
            f"{column}_{name}": row[name]
            for column, row in rows.items()
            for name in ("depth", "width", "val_mean", "test_mean")
        }
        same = {name: rows["chosen"][name] for name in ("dataset", "metric", "n")}
        numbers = {
            "difference": found.paper.difference,
            "low": found.paper.low,
            "high": found.paper.high,
            "standard_error": found.standard_error,
            "within_one_standard_error": found.is_within
            if found.is_reproduced or not math.isnan(found.standard_error)
            else None,
            "reproduced": found.is_reproduced,
        }
        return pd.DataFrame([{**same, **told, **numbers}], columns=_COMPARED)


_COMPARED = [
    *("dataset", "metric", "n"),
    *(f"{column}_{name}" for column in SHOWN for name in ("depth", "width", "val_mean", "test_mean")),
    *("difference", "low", "high", "standard_error", "within_one_standard_error", "reproduced"),
]


def architecture_tables(
    records: Iterable[Mapping[str, Any]], study: ArchitectureStudy, metric: str
) -> ArchitectureTables:
    """Tables of a study of one data set.

    ``records`` that the study does not ask for are left out.  Replicas: `val` and `test` hold ``metric``; `val_<name>`
    and `test_<name>` every recorded one, nan for a diverged replica.  Points: mean, sd (ddof 1) and 95 % t interval
    over finished replicas, of which there are `n`; `n_diverged` count the others, `n_missing` seeds without a result.

    Raises ConfigError on an unknown metric, DataError when a finished record lacks it.
    """
    replicas = replica_frame(records, study, metric)
    points = points_frame(replicas, study, metric)
    replicas, points = (frame.drop(columns=_OF_BINS, errors="ignore") for frame in (replicas, points))
    decision = decide(points, replicas, study, study.points)
    paper = study.default_point_of(study.datasets[0])
    mark_chosen(replicas, points, study, [decision.chosen])
    mark_chosen(replicas, points, study, [paper], "paper")
    comparison = _compared(replicas, points, study, decision, paper)
    hide_test(replicas, points, SHOWN)
    return ArchitectureTables(replicas, points, decision, comparison)


def _compared(
    replicas: pd.DataFrame, points: pd.DataFrame, study: ArchitectureStudy, decision: Decision[Point], paper: Point
) -> Comparison | None:
    if decision.chosen is None or points.loc[points["paper"], "n_diverged"].iloc[0]:
        return None
    sign = get_metric(points["metric"].iloc[0]).sign
    behind = against(decision.chosen, paper, replicas, study, sign)
    error = standard_error(finished_scores(replicas[replicas["chosen"]], "val"))
    return Comparison(behind, error, decision.chosen == paper)


def summary_table(tables: ArchitectureTables, study: ArchitectureStudy) -> Table:
    """What the console shows: per point its validation score; the choice and the paper's are marked."""
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    direction = "higher" if metric.higher_is_better else "lower"
    table = console_table(
        f"{dataset}: validation {metric.label} from scratch ({direction} is better)",
        ["depth", "width", "n", "mean", "95 % interval", "test", ""],
        left=[""],
    )
    before = None
    for row in points.to_dict("records"):
        if before not in (None, row["depth"]):
            table.add_section()
        diverged = f" (†{row['n_diverged']})" if row["n_diverged"] else ""
        marks = [
            words for words, column in (("chosen", "chosen"), (f"the {chooser_of(dataset)}'s", "paper")) if row[column]
        ]
        table.add_row(
            str(row["depth"]) if row["depth"] != before else "",
            str(row["width"]),
            f"{row['n']}{diverged}",
            number_text(row["val_mean"], ".4f"),
            "" if math.isnan(row["val_low"]) else f"{row['val_low']:.4f} – {row['val_high']:.4f}",
            number_text(row["test_mean"], ".4f"),
            ", ".join(marks),
            style="bold" if row["chosen"] else None,
        )
        before = row["depth"]
    return table
