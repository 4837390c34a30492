"""Tables of a study: one row per replica, one row per point, files written whole or not at all, and the console's view.

Every table is computed from result records, so it can be made again at any time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from adaptbin.config import Hyperparameters
from adaptbin.errors import DataError
from adaptbin.metrics import METRICS, get_metric
from sweeps.service.files import write_text
from sweeps.service.panels import SensitivityStudy
from sweeps.service.point_fields import Value, value_text
from sweeps.service.points import Point, Study
from sweeps.service.stats import Floats, mean_interval, standard_deviation

POINT_KEYS = ["dataset", "panel", "value"]
"""Columns that name one point of one panel of one data set."""


def replica_frame(
    records: Iterable[Mapping[str, Any]],
    study: SensitivityStudy,
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
) -> pd.DataFrame:
    """One row per (data set, panel, value, seed) that has a record; the default point has a row in every panel.

    records: result records; those that the study does not ask for are left out.
    metrics: name of the metric to look at, per data set.  primary: the data set's primary metric; where the two differ
    the column `role` says "exploratory".

    Columns `val` and `test` hold the metric; `val_<name>` and `test_<name>` every recorded one, nan for a diverged
    replica.  Raises ConfigError on an unknown metric, DataError when a finished record lacks the metric.
    """
    places = {
        name: [({"panel": p.panel, "value": p.cell, "is_default": p.is_default}, p.point) for p in points]
        for name, points in study.points.items()
    }
    return frame_of_places(records, study, places, metrics, primary, [*POINT_KEYS, "is_default"])


def frame_of_places(
    records: Iterable[Mapping[str, Any]],
    study: Study,
    places: Mapping[str, Sequence[tuple[Mapping[str, Any], Point | Hyperparameters]]],
    metrics: Mapping[str, str],
    primary: Mapping[str, str],
    first: Sequence[str],
) -> pd.DataFrame:
    """What :func:`replica_frame` tells, of any study.

    places: data set -> columns that name a place in the study, and the point there; several places may share a point.
    first: the columns to begin with, the data set and those of a place.
    """
    by_id = {record["id"]: record for record in records}
    rows = []
    for card in study.cards:
        metric = get_metric(metrics[card.key]).name
        role = "primary" if metric == primary[card.key] else "exploratory"
        for place, point in places[card.key]:
            for seed in study.seeds:
                record = by_id.get(study.replica(card, point, seed).id)
                if record is not None:
                    told = {"dataset": card.key, "seed": seed, "seeds_vary": study.seeds_vary, "role": role}
                    rows.append({**place, **told, **recorded(record, metric)})
    return as_frame(rows, [*first, "seed", "seeds_vary", "id", "status", "metric", "role"])


def as_frame(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> pd.DataFrame:
    """Rows made with :func:`recorded` as a table: columns ``first``, then what every record tells, then its scores."""
    there = {name for row in rows for name in row}
    scores = [f"{part}_{name}" for part in ("val", "test") for name in METRICS if f"{part}_{name}" in there]
    return pd.DataFrame(rows, columns=[*first, *_RECORDED, *scores])


_RECORDED = (
    *("val", "test", "bootstrap_se", "n_train", "n_val", "n_test", "target_sd"),
    *("bins_mean", "bins_max", "triggers", "splits", "seconds"),
)


def recorded(record: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """What a record tells of its replica, flat; `val` and `test` are scores by ``metric``, nan where it diverged.

    Raises DataError when a finished record lacks the metric.
    """
    scores = record["scores"]
    if record["status"] == "finished" and metric not in scores["test"]:
        dataset, names = record["identity"]["dataset"], ", ".join(scores["test"])
        raise DataError(f"{dataset}: metric {metric!r} must be in the record {record['id']}, which has {names}")
    bins = record["bins"]["final"]
    return {
        "id": record["id"],
        "status": record["status"],
        "metric": metric,
        "val": scores["val"].get(metric, math.nan),
        "test": scores["test"].get(metric, math.nan),
        "bootstrap_se": record["test_bootstrap_se"].get(metric, math.nan),
        "n_train": record["n_rows"]["train"],
        "n_val": record["n_rows"]["val"],
        "n_test": record["n_rows"]["test"],
        "target_sd": record["target_sd"],
        "bins_mean": float(np.mean(bins)) if bins else math.nan,
        "bins_max": float(np.max(bins)) if bins else math.nan,
        "triggers": record["bins"]["triggers"],
        "splits": record["bins"]["splits"],
        "seconds": record["runtime"]["seconds"],
        **{f"val_{name}": score for name, score in scores["val"].items()},
        **{f"test_{name}": score for name, score in scores["test"].items()},
    }


def rows_of(frame: pd.DataFrame, dataset: str, panel: str | None = None, value: Value | None = None) -> pd.DataFrame:
    """Rows of a data set, or of one of its panels, or of one point."""
    keep = frame["dataset"] == dataset
    if panel is not None:
        keep &= frame["panel"] == panel
    if value is not None:
        keep &= frame["value"] == value
    return frame[keep]


Part = Literal["val", "test"]
"""Rows that a score was computed on."""


def variance_ratio(replicas: pd.DataFrame, part: Part = "test") -> float:
    """n_test (or n_val) / n_train over these replicas where the split varies with the seed, else 0 (see `stats`)."""
    if replicas.empty or replicas["seeds_vary"].iloc[0] != "split":
        return 0.0
    return float(replicas[f"n_{part}"].mean() / replicas["n_train"].mean())


def finished_scores(replicas: pd.DataFrame, part: Part = "test") -> Floats:
    """Test (or validation) scores [n] of the replicas that did not diverge."""
    return np.asarray(replicas.loc[replicas["status"] == "finished", part].to_numpy(), dtype=np.float64)


def points_frame(replicas: pd.DataFrame, study: SensitivityStudy) -> pd.DataFrame:
    """One row per planned point of every panel: test mean, sd (ddof 1) and 95 % t interval over its finished seeds.

    `n` counts finished replicas, `n_diverged` the others; `n` is 0 where nothing has run.  Under varying splits the
    interval is the corrected one (see `stats`).
    """
    rows = []
    for dataset in study.datasets:
        of_dataset = rows_of(replicas, dataset)
        ratio = variance_ratio(of_dataset)
        for point in study.points[dataset]:
            group = rows_of(of_dataset, dataset, point.panel, point.cell)
            rows.append(
                {
                    "dataset": dataset,
                    "panel": point.panel,
                    "value": point.cell,
                    "is_default": point.is_default,
                    "metric": of_dataset["metric"].iloc[0] if len(of_dataset) else "",
                    **point_numbers(group, ratio),
                }
            )
    return pd.DataFrame(rows)


def point_numbers(group: pd.DataFrame, ratio: float) -> dict[str, float]:
    """What :func:`points_frame` tells of the replicas of one point.  ratio: see :func:`variance_ratio`."""
    test = finished_scores(group)
    low, high = mean_interval(test, variance_ratio=ratio)
    finished = group[group["status"] == "finished"]
    return {
        "n": len(test),
        "n_diverged": len(group) - len(test),
        "mean": float(test.mean()) if len(test) else math.nan,
        "sd": standard_deviation(test),
        "low": low,
        "high": high,
        "val_mean": float(finished["val"].mean()),
        **run_averages(finished),
    }


def run_averages(finished: pd.DataFrame) -> dict[str, float]:
    """Bins, refinements and seconds of the finished replicas of a point; `bins_max` is the most of any of them."""
    return {
        "bins_mean": float(finished["bins_mean"].mean()),
        "bins_max": float(finished["bins_max"].max()),
        "triggers_mean": float(finished["triggers"].mean()),
        "splits_mean": float(finished["splits"].mean()),
        "seconds_mean": float(finished["seconds"].mean()),
    }


def summary_table(points: pd.DataFrame, significance: pd.DataFrame, study: SensitivityStudy, dataset: str) -> Table:
    """What the console shows of one data set: per panel and value the mean, its interval, the difference and mark."""
    metric = get_metric(rows_of(points, dataset)["metric"].iloc[0])
    direction = "higher" if metric.higher_is_better else "lower"
    title = f"{dataset}: test {metric.label} ({direction} is better)"
    names = ("value", *SCORE_COLUMNS, "vs default", *CONTRAST_COLUMNS)
    table = console_table(title, ("panel", *names), left=("panel", "mark", "verdict"))
    contrasts = {(row["panel"], row["value"]): row for row in rows_of(significance, dataset).to_dict("records")}
    for panel in study.panel_keys:
        for position, row in enumerate(rows_of(points, dataset, panel).to_dict("records")):
            cells = [panel if position == 0 else "", value_text(row["value"]), *score_cells(row)]
            if row["is_default"]:
                table.add_row(*cells, "", "", "", "default", style="bold")
            else:
                table.add_row(*cells, *contrast_cells(contrasts[panel, row["value"]]))
        table.add_section()
    return table


SCORE_COLUMNS = ("n", "mean", "95 % interval")
"""Columns of :func:`score_cells`."""
CONTRAST_COLUMNS = ("p (Holm)", "mark", "verdict")
"""Columns of :func:`contrast_cells` after the difference."""


def console_table(title: str, columns: Sequence[str], left: Sequence[str]) -> Table:
    """An empty table for the console, with numbers to the right and the columns ``left`` to the left."""
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right")
    return table


def score_cells(row: Mapping[Any, Any]) -> tuple[str, str, str]:
    """Replicas, mean and interval of a row of the table of points, for the console."""
    diverged = f" (†{row['n_diverged']})" if row["n_diverged"] else ""
    between = "" if math.isnan(row["low"]) else f"{row['low']:.4f} – {row['high']:.4f}"
    return f"{row['n']}{diverged}", number_text(row["mean"], ".4f"), between


def contrast_cells(row: Mapping[Any, Any]) -> tuple[str, str, str, str]:
    """Difference, adjusted p, mark and verdict of a contrast, for the console."""
    return number_text(row["difference"], "+.4f"), number_text(row["p_holm"], ".2g"), row["mark"], row["verdict"]


def number_text(value: float, form: str) -> str:
    """The number in that format; nothing for nan."""
    return "" if math.isnan(value) else format(value, form)


def write_frame(path: Path, frame: pd.DataFrame) -> Path:
    """Write a table as CSV, atomically; nan becomes an empty cell, floats keep every digit."""
    return write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> Path:
    """Write what a study was (versions, protocol, hardware, times) as JSON, atomically.

    Raises ValueError when a number is not finite.
    """
    return write_text(path, json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def write_tables(folder: Path, **frames: pd.DataFrame) -> list[Path]:
    """Write each table as ``<name>.csv`` under `folder`."""
    return [write_frame(folder / f"{name}.csv", frame) for name, frame in frames.items()]
