"""The architectures that validation chose beside the paper's: one row per data set, and their part of the page."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.paper import paper_scale
from sweeps.service.report_sources import FULL, Sources

STUDY = "architecture"

COLUMNS = (
    *("dataset", "study", "protocol", "metric", "n", "chosen_depth", "chosen_width", "paper_depth", "paper_width"),
    *("val_chosen", "val_paper", "difference", "low", "high", "standard_error", "test_chosen", "test_paper", "verdict"),
)

_EXPLAINED = (
    "Depth and width of the MLP by supervised validation, mean over seeds; the paper's choice is where it comes from "
    "in all other studies. Difference: of our choice's validation score and that of the paper's, paired by seed, "
    "positive where ours is better, with its 95 % t interval; it is flattered, since ours is the best of many. "
    "Standard error: of our choice's mean validation score. No test was planned."
)


def architectures_frame(sources: Sources) -> pd.DataFrame:
    """One row per data set with a comparison, with columns :data:`COLUMNS`, in the paper's units."""
    rows = []
    for source in sources.of(STUDY):
        comparison = source.table("comparison.csv")
        for row in [] if comparison is None else comparison.to_dict("records"):
            scale = paper_scale(get_metric(row["metric"]))
            rows.append(
                {
                    **{name: row[name] for name in COLUMNS if name in row},
                    "study": source.study,
                    "protocol": source.protocol,
                    **{f"val_{which}": scale * row[f"{which}_val_mean"] for which in ("chosen", "paper")},
                    **{f"test_{which}": scale * row[f"{which}_test_mean"] for which in ("chosen", "paper")},
                    **{name: scale * row[name] for name in ("difference", "low", "high", "standard_error")},
                    "verdict": _verdict(row),
                }
            )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _verdict(row: dict[Any, Any]) -> str:
    if row["reproduced"]:
        return "reproduced"
    if row["difference"] == 0:
        return "a tie"
    within = str(row["within_one_standard_error"]) == "True"  # empty where one seed has no standard error
    return "within one standard error" if within else "not reproduced"


def architecture_cells(architectures: pd.DataFrame) -> tuple[list[str], list[list[Any]], str]:
    """Heads and cells of the page's table, and what is to be said below it."""
    cells = [
        [
            row["dataset"],
            get_metric(row["metric"]).label,
            *(f"{row[f'{which}_depth']} × {row[f'{which}_width']}" for which in ("chosen", "paper")),
            *(f"{row[f'val_{which}']:.2f}" for which in ("chosen", "paper")),
            f"{row['difference']:+.2f}" + _interval(row["low"], row["high"]),
            "–" if math.isnan(row["standard_error"]) else f"{row['standard_error']:.2f}",
            *(f"{row[f'test_{which}']:.2f}" for which in ("chosen", "paper")),
            row["n"],
            row["verdict"] + ("" if row["protocol"] == FULL else f" ({row['protocol']})"),
        ]
        for row in architectures.to_dict("records")
    ]
    heads = [
        *("data set", "metric", "ours: depth × width", "paper's", "validation, ours", "paper's", "difference"),
        *("standard error", "test, ours", "paper's", "n", "the paper's choice"),
    ]
    return heads, cells, _EXPLAINED


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" ({low:.2f} to {high:.2f})"
