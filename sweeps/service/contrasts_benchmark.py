"""The few comparisons of the benchmark that were named beforehand, over data sets.

The unit is the data set: the mean test score of an arm against that of another.  An arm is a group of methods, and on
each data set the one with the best validation score stands for it.  Test: exact two-sided Wilcoxon signed rank over
data sets, Holm over the comparisons; its least p is .0078 with 8 data sets, and with fewer than 6 nothing is tested.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service import stats
from sweeps.service.contrasts import LEVEL
from sweeps.service.decision import best_of
from sweeps.service.methods import METHODS, Method
from sweeps.service.ranks import missing_cells
from sweeps.service.tables import rows_of

LEAST_DATASETS = 6
"""With five the least p is .0625."""

ARMS: dict[str, tuple[Method, ...]] = {
    **{name: tuple(method for method in METHODS if method.objective == name) for name in ("VR", "MX", "MR", "BR")},
    "Ours": tuple(method for method in METHODS if method.objective == "Ours"),
    "Ours, masked": tuple(method for method in METHODS if method.objective == "Ours" and method.masking != "none"),
    "Ours, not masked": tuple(method for method in METHODS if method.objective == "Ours" and method.masking == "none"),
}
"""Name of an arm -> the methods that may stand for it, the simplest masking first: ties go to the first."""

CONTRASTS = (
    *(("Ours", other) for other in ("BR", "VR", "MX", "MR")),
    ("Ours, masked", "Ours, not masked"),
)
"""Arm, and what it is compared with."""

PAIR_COLUMNS = (
    *("arm", "against", "dataset", "metric", "arm_method", "against_method"),
    *("arm_mean", "against_mean", "difference"),
)

COLUMNS = (
    *("arm", "against", "test", "n", "n_better", "n_worse", "n_equal", "n_diverged", "difference"),
    *("statistic", "p", "p_holm", "p_floor", "p_floor_holm", "family", "mark", "verdict", "note"),
)


def pairs_frame(table: pd.DataFrame) -> pd.DataFrame:
    """One row per comparison and data set on which both arms are known, from the table of methods of all data sets.

    `difference` is of mean test scores, signed so that positive is better for the arm; errors are in standard
    deviations of the train target.  It is infinite where one of the arms diverged, 0 where both did.
    """
    rows: list[dict[str, Any]] = []
    for arm, against in CONTRASTS:
        for dataset in table["dataset"].unique():
            of_dataset = rows_of(table, dataset)
            metric = get_metric(of_dataset["metric"].iloc[0])
            one, other = (_stands_for(of_dataset, ARMS[name], metric.sign) for name in (arm, against))
            if one is None or other is None:
                continue
            scale = float(of_dataset["target_sd"].mean()) if metric.in_target_units else 1.0
            means = [np.array([side["mean"] / scale]) for side in (one, other)]
            rows.append(
                {
                    "arm": arm,
                    "against": against,
                    "dataset": dataset,
                    "metric": metric.name,
                    "arm_method": one["method"],
                    "against_method": other["method"],
                    "arm_mean": one["mean"],
                    "against_mean": other["mean"],
                    "difference": float(stats.signed_differences(means[0], means[1], metric.sign)[0]),
                }
            )
    return pd.DataFrame(rows, columns=list(PAIR_COLUMNS))


def _stands_for(of_dataset: pd.DataFrame, arm: tuple[Method, ...], sign: int) -> dict[str, Any] | None:
    """Name and mean test score of the arm's best method on validation; None while a method of it is missing."""
    by_method = {Method.of_row(row): row for row in of_dataset.to_dict("records")}
    rows = [by_method[method] for method in arm]
    if any(row["status"] == "missing" for row in rows):
        return None
    known = [position for position, row in enumerate(rows) if row["status"] == "chosen"]
    if not known:
        return {"method": "", "mean": math.nan}
    first, _ = best_of(sign * np.array([row["val_mean"] for row in rows]), known)
    return {"method": arm[first].name, "mean": rows[first]["mean"]}


def contrasts_frame(pairs: pd.DataFrame, table: pd.DataFrame, untested: str = "") -> pd.DataFrame:
    """One row per comparison, with columns :data:`COLUMNS`, from its pairs.

    `n` data sets, of which the arm is better on `n_better`; `n_diverged` have an arm that diverged, which takes the
    worst rank.  `difference` is the mean over the others.  Nothing is tested while a cell is missing, nor
    where ``untested`` says why not; `note` says what keeps a test from being run or from finding anything.
    """
    missing = missing_cells(table)
    rows: list[dict[str, Any]] = []
    for arm, against in CONTRASTS:
        of_pair = pairs[(pairs["arm"] == arm) & (pairs["against"] == against)]
        differences = of_pair["difference"].to_numpy(dtype=np.float64)
        known = of_pair[["arm_mean", "against_mean"]].notna().all(axis=1).to_numpy()
        reason = untested or _untested(len(differences), known, missing)
        row: dict[str, Any] = {
            "arm": arm,
            "against": against,
            "test": "none" if reason else "wilcoxon",
            "n": len(differences),
            "n_better": int((differences > 0).sum()),
            "n_worse": int((differences < 0).sum()),
            "n_equal": int((differences == 0).sum()),
            "n_diverged": int((~known).sum()),
            "difference": float(differences[known].mean()) if known.any() else math.nan,
            "family": len(CONTRASTS),
            **_tested(differences, bool(reason)),
        }
        row["p_floor_holm"] = float(np.minimum(1.0, row["p_floor"] * len(CONTRASTS)))
        powerless = f"nothing can be significant: least adjusted p is {row['p_floor_holm']:.3g}"
        rows.append(row | {"note": reason or (powerless if row["p_floor_holm"] > LEVEL else "")})
    adjusted = stats.holm(np.array([row["p"] for row in rows]))
    return pd.DataFrame(
        [row | {"p_holm": float(p)} | _judge(row, float(p)) for row, p in zip(rows, adjusted, strict=True)],
        columns=list(COLUMNS),
    )


def _untested(n: int, known: Any, missing: list[str]) -> str:
    """Why there is no test; empty where there is one."""
    if missing:
        return f"no test: {len(missing)} cells have no result"
    if n < LEAST_DATASETS:
        return f"no test: needs at least {LEAST_DATASETS} data sets, got {n}"
    return "" if known.any() else "no test: an arm diverged on every data set"


def _tested(differences: stats.Floats, without: bool) -> dict[str, float]:
    if without:
        return {"statistic": math.nan, "p": math.nan, "p_floor": math.nan}
    rank = stats.signed_rank_test(differences)
    return {"statistic": rank.statistic, "p": rank.p, "p_floor": rank.floor}


def _judge(row: Mapping[str, Any], p_holm: float) -> dict[str, str]:
    if row["test"] == "none":
        return {"mark": "", "verdict": "no test"}
    if row["n_equal"] == row["n"] and not row["n_diverged"]:
        return {"mark": stats.IDENTICAL_MARK, "verdict": "identical"}
    mark = stats.stars(p_holm)
    return {"mark": mark, "verdict": ("better" if row["statistic"] > 0 else "worse") if mark else "undecided"}
