"""What searches found beside the default: one row per data set, and their part of the page."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.paper import paper_scale
from sweeps.service.report_sources import FULL, Sources

STUDY = "search"

COLUMNS = (
    *("dataset", "study", "protocol", "metric", "trials", "complete", "pruned", "failed", "halved_at", "trial", "n"),
    *("n_diverged", "val_search", "val_fresh", "val_default", "test_winner", "test_default", "difference", "low"),
    *("high", "test", "p", "verdict"),
)

_EXPLAINED = (
    "The winner of a search is the best on validation of its three best points, trained again with n fresh seeds; what "
    "it won the search with flatters it. Test was read of it and of the default alone. Difference: winner − default "
    "on test, paired by seed, positive where the winner is better, with its 95 % t interval, p and verdict of the one "
    "test that was planned. Halved: points left at these epochs unless they were among the best third there."
)


def searches_frame(sources: Sources) -> pd.DataFrame:
    """One row per search, with columns :data:`COLUMNS`, in the paper's units; nan where it has no winner."""
    rows = []
    for source in sources.of(STUDY):
        trials, confirmation, contrast = map(source.table, ("trials.csv", "confirmation.csv", "significance.csv"))
        assert trials is not None  # without it there is no source
        counts = trials["state"].value_counts()
        halved = (source.manifest.get("search") or {}).get("halving") or []
        metric = source.manifest["metrics"][source.datasets[0]]
        row: dict[str, Any] = {
            **dict.fromkeys(COLUMNS, math.nan),
            **{"dataset": source.datasets[0], "study": STUDY, "protocol": source.protocol, "metric": metric},
            **{"trials": len(trials)}
            | {state: int(counts.get(state, 0)) for state in ("complete", "pruned", "failed")},
            "halved_at": ", ".join(map(str, halved[:-1])),
        }
        if contrast is not None and len(contrast) and confirmation is not None:
            row |= _found(confirmation, contrast.iloc[0].to_dict(), scale=paper_scale(get_metric(metric)))
        rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _found(confirmation: pd.DataFrame, contrast: dict[Any, Any], *, scale: float) -> dict[str, Any]:
    won, usual = (confirmation[confirmation[name]].iloc[0] for name in ("winner", "is_default"))
    scores = {
        "val_search": won["search_mean"],
        "val_fresh": won["val_mean"],
        "val_default": usual["val_mean"],
        "test_winner": won["test_mean"],
        "test_default": usual["test_mean"],
        **{name: contrast[name] for name in ("difference", "low", "high")},
    }
    told = {name: contrast[name] for name in ("trial", "n", "n_diverged", "test", "p", "verdict")}
    return told | {name: scale * value for name, value in scores.items()}


def search_cells(searches: pd.DataFrame) -> tuple[list[str], list[list[Any]], str]:
    """Heads and cells of the page's table, and what is to be said below it."""
    cells = [
        [
            row["dataset"],
            get_metric(row["metric"]).label,
            f"{row['trials']} ({row['complete']} complete)",
            row["halved_at"] or "–",
            *map(_score, (row["val_search"], row["val_fresh"], row["val_default"])),
            *map(_score, (row["test_winner"], row["test_default"])),
            _difference(row),
            "–"
            if pd.isna(row["n"])
            else f"{row['n']:.0f}" + (f" †{row['n_diverged']:.0f}" if row["n_diverged"] else ""),
            ("no winner" if pd.isna(row["n"]) else row["verdict"])
            + ("" if row["protocol"] == FULL else f" ({row['protocol']})"),
        ]
        for row in searches.to_dict("records")
    ]
    heads = [
        *("data set", "metric", "trials", "halved", "validation: winner in the search", "with fresh seeds"),
        *("default", "test: winner", "default", "difference", "n", "verdict"),
    ]
    return heads, cells, _EXPLAINED


def _difference(row: dict[Any, Any]) -> str:
    if pd.isna(row["difference"]):
        return "–"
    interval = "" if pd.isna(row["low"]) else f" ({row['low']:.2f} to {row['high']:.2f})"
    return f"{row['difference']:+.2f}{interval}" + ("" if row["test"] == "none" else f", p {row['p']:.2g}")


def _score(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
