"""Tables of the masking study: one row per replica, one row per point, the choice, and the console's view.

Validation chooses, so test scores of points that were not chosen leave no trace in these tables unless they are asked
for: :func:`masking_tables` is the one place where they are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich import box
from rich.table import Table

from adaptbin.config import Hyperparameters
from adaptbin.metrics import get_metric
from sweeps.service.decision import Decision, decide
from sweeps.service.grid import MaskingStudy
from sweeps.service.tables import number_text
from sweeps.service.tables_grid import hide_test, mark_chosen, points_frame, replica_frame


@dataclass(frozen=True)
class MaskingTables:
    """What is known of one data set."""

    replicas: pd.DataFrame
    """One row per replica that has a record, point by point."""
    points: pd.DataFrame
    """One row per point, in the grid's order."""
    decision: Decision[Hyperparameters]


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
    replicas = replica_frame(records, study, metric)
    points = points_frame(replicas, study, metric)
    decision = decide(points, replicas, study, study.points)
    mark_chosen(replicas, points, study, [decision.chosen])
    if not show_test:
        hide_test(replicas, points)
    return MaskingTables(replicas, points, decision)


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
