"""Tables of the ablation study: one row per replica, per variant and per contrast with full, and the console's view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.table import Table

from adaptbin.metrics import get_metric
from sweeps.service.contrasts import CONTRAST, contrast_rows
from sweeps.service.stats import IDENTICAL_MARK
from sweeps.service.tables import (
    CONTRAST_COLUMNS,
    SCORE_COLUMNS,
    console_table,
    contrast_cells,
    frame_of_places,
    number_text,
    point_numbers,
    rows_of,
    score_cells,
    variance_ratio,
)
from sweeps.service.variants import GROUPS, AblationStudy, Variant

SAME_POINT = "the same point as full, trained once"

_KEYS = ("dataset", "group", "variant")


@dataclass(frozen=True)
class AblationTables:
    """What is known of a study of one or several data sets."""

    replicas: pd.DataFrame
    """One row per data set, variant and seed that has a record; a variant that is full itself repeats full's."""
    points: pd.DataFrame
    """One row per data set and variant, full first: what changes, test mean, sd, interval, triggers, splits, bins."""
    significance: pd.DataFrame
    """One row per data set and variant but full: the contrast with full, see :mod:`sweeps.service.contrasts`."""

    @property
    def datasets(self) -> list[str]:
        """Data sets that have a replica, in the study's order."""
        return list(dict.fromkeys(self.replicas["dataset"]))


def ablation_tables(
    records: Iterable[Mapping[str, Any]], study: AblationStudy, metrics: Mapping[str, str], primary: Mapping[str, str]
) -> AblationTables:
    """Tables of a study; ``records`` that it does not ask for are left out.

    ``metrics`` and ``primary`` name a metric per data set; where the two differ the column `role` says "exploratory".
    Columns are those of the sensitivity study's tables, with `group` and `variant` in place of panel and value.  The
    contrasts of one group of one data set are a family.  Raises ConfigError on an unknown metric, DataError when a
    finished record lacks the metric.
    """
    places = {
        name: [(_place(variant) | {"is_default": variant.is_full}, variant.hyperparameters) for variant in variants]
        for name, variants in study.variants.items()
    }
    replicas = frame_of_places(records, study, places, metrics, primary, [*_KEYS, "is_default"])
    points: list[dict[str, Any]] = []
    contrasts: list[dict[str, Any]] = []
    for dataset, variants in study.variants.items():
        of_dataset = rows_of(replicas, dataset)
        points += [_point_row(of_dataset, dataset, variant, metrics[dataset]) for variant in variants]
        if len(of_dataset):
            contrasts += _contrasts(of_dataset, dataset, study)
    return AblationTables(
        replicas, pd.DataFrame(points), pd.DataFrame(contrasts, columns=[*_KEYS, "changes", *CONTRAST])
    )


def _place(variant: Variant) -> dict[str, Any]:
    return {"group": variant.group, "variant": variant.name}


def _point_row(of_dataset: pd.DataFrame, dataset: str, variant: Variant, metric: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        **_place(variant),
        "changes": variant.changes,
        "is_default": variant.is_full,
        "metric": metric,
        **point_numbers(of_dataset[of_dataset["variant"] == variant.name], variance_ratio(of_dataset)),
    }


def _contrasts(of_dataset: pd.DataFrame, dataset: str, study: AblationStudy) -> list[dict[str, Any]]:
    variants = {variant.name: variant for variant in study.variants[dataset]}
    families = [[_place(variant) for variant in variants.values() if variant.group == group] for group in GROUPS]
    rows = []
    for row in contrast_rows(of_dataset, families, test=study.test, planned=len(study.seeds)):
        variant = variants[row["variant"]]
        if variant.is_same_point:  # known without a test, and whatever the seeds did
            row |= {"verdict": "identical", "note": SAME_POINT}
            row["mark"] = "" if row["test"] == "none" else IDENTICAL_MARK
        rows.append({"dataset": dataset, "changes": variant.changes, **row})
    return rows


def summary_table(tables: AblationTables, dataset: str) -> Table:
    """What the console shows of one data set's scores: per variant mean, interval, difference to full and mark."""
    points, contrasts = (rows_of(frame, dataset) for frame in (tables.points, tables.significance))
    metric = get_metric(points["metric"].iloc[0])
    title = f"{dataset}: test {metric.label} ({'higher' if metric.higher_is_better else 'lower'} is better)"
    columns = ("variant", *SCORE_COLUMNS, "vs full", *CONTRAST_COLUMNS)
    table = console_table(title, columns, left=("variant", "mark", "verdict"))
    of_variant = {row["variant"]: row for row in contrasts.to_dict("records")}
    for group, rows in points.groupby("group", sort=False):
        for row in rows.to_dict("records"):
            cells = (row["variant"], *score_cells(row))
            if group == "full":
                table.add_row(*cells, style="bold")
            else:
                table.add_row(*cells, *contrast_cells(of_variant[row["variant"]]))
        table.add_section()
    return table


def refinement_table(tables: AblationTables, dataset: str) -> Table:
    """What the console shows of one data set's bins: per variant what changes, and triggers, splits and bins of it."""
    columns = ("variant", "changes", "triggers", "splits", "bins per feature", "most bins")
    table = console_table(f"{dataset}: refinement, mean per replica", columns, left=("variant", "changes"))
    for group, rows in rows_of(tables.points, dataset).groupby("group", sort=False):
        for row in rows.to_dict("records"):
            table.add_row(
                row["variant"],
                row["changes"],
                *(number_text(row[name], ".1f") for name in ("triggers_mean", "splits_mean", "bins_mean")),
                number_text(row["bins_max"], ".0f"),
                style="bold" if group == "full" else None,
            )
        table.add_section()
    return table
