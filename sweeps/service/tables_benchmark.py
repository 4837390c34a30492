"""Tables of the benchmark: one row per candidate, one row per method, and the replicas of what was chosen.

Validation chooses a candidate per method, and test scores of the others leave no trace in these tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich import box
from rich.table import Table

from adaptbin.config import Hyperparameters
from adaptbin.metrics import get_metric
from sweeps.service.decision import Decision, decide
from sweeps.service.methods import METHOD, METHODS, PRETEXTS, BenchmarkStudy, Method, Objective
from sweeps.service.ranks import rank_scores
from sweeps.service.tables import number_text
from sweeps.service.tables_grid import TEST_OF_POINT, hide_test, mark_chosen, points_frame, replica_frame

COLUMNS = (
    *("dataset", *METHOD, "metric", "status", "mask_prob", "t_init"),
    *("n", "n_diverged", "n_missing", "mean", "sd", "val_mean", "val_sd", "rank"),
    *("n_candidates", "bootstrap_se", "target_sd", "reason"),
)


@dataclass(frozen=True)
class BenchmarkTables:
    """What is known of one data set."""

    points: pd.DataFrame
    """One row per candidate, method by method; test scores of the chosen ones alone."""
    replicas: pd.DataFrame
    """One row per replica of a chosen candidate."""
    table: pd.DataFrame
    """One row per method, with columns :data:`COLUMNS`; see :func:`benchmark_tables`."""
    objectives: Mapping[Objective, Decision[Hyperparameters]]
    """What validation chooses for each objective, among the candidates of all its methods: masking, p_m and T."""

    @property
    def candidates(self) -> pd.DataFrame:
        """The table of candidates: validation scores only."""
        return self.points.drop(columns=TEST_OF_POINT)


def benchmark_tables(records: Iterable[Mapping[str, Any]], study: BenchmarkStudy, metric: str) -> BenchmarkTables:
    """Tables of a study of one data set.

    Of each method `status` is "chosen", with the chosen `mask_prob` and `t_init`, the number `n` of its seeds, and mean
    and sd (ddof 1) over them of its score on test (`mean`, `sd`) and validation; or "missing" or "diverged", and
    `reason` says what keeps validation from choosing (see :mod:`sweeps.service.decision`).  `n_diverged` and
    `n_missing` count replicas over all candidates of the method, of which there are `n_candidates`.  `rank` is by
    `mean`; a diverged method has the worst; nobody has one while a method is missing.  `t_init` is empty where a method
    has no bins.

    Raises ConfigError on an unknown metric, DataError when a finished record lacks it.
    """
    replicas = replica_frame(records, study, metric)
    points = points_frame(replicas, study, metric)
    decisions = {}
    for method, candidates in study.candidates.items():
        decisions[method] = decide(rows_of_method(points, method), replicas, study, candidates)
    objectives = {objective: _decide_objective(points, replicas, study, objective) for objective in PRETEXTS}
    mark_chosen(replicas, points, study, [decision.chosen for decision in decisions.values()])
    hide_test(replicas, points)
    table = _table(points, replicas, decisions, metric)
    for frame in (points, replicas, table):
        frame["t_init"] = frame["t_init"].astype("Int64").mask(frame["binning"] == "none")
    chosen = replicas[replicas["chosen"]].drop(columns="chosen").reset_index(drop=True)
    return BenchmarkTables(points, chosen, table, objectives)


def _decide_objective(
    points: pd.DataFrame, replicas: pd.DataFrame, study: BenchmarkStudy, objective: Objective
) -> Decision[Hyperparameters]:
    """Methods of one objective follow each other with the simplest masking first, and so do their candidates."""
    methods = [method for method in METHODS if method.objective == objective]
    candidates = [point for method in methods for point in study.candidates[method]]
    return decide(points[points["objective"] == objective], replicas, study, candidates)


def _table(
    points: pd.DataFrame, replicas: pd.DataFrame, decisions: Mapping[Method, Decision[Hyperparameters]], metric: str
) -> pd.DataFrame:
    rows = []
    for method, decision in decisions.items():
        of_method = rows_of_method(points, method)
        rows.append(
            {
                **dict(zip(METHOD, method.words, strict=True)),
                **_choice_of(of_method, replicas, decision),
                **{name: int(of_method[name].sum()) for name in ("n_diverged", "n_missing")},
                "dataset": points["dataset"].iloc[0],
                "metric": metric,
                "n_candidates": decision.n_points,
                "target_sd": float(replicas["target_sd"].mean()),
                "reason": decision.reason,
            }
        )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    if (table["status"] != "missing").all():
        table["rank"] = rank_scores(table["mean"].to_numpy(dtype=np.float64), get_metric(metric).sign)
    return table.astype({"rank": np.float64})


def _choice_of(of_method: pd.DataFrame, replicas: pd.DataFrame, decision: Decision[Hyperparameters]) -> dict[str, Any]:
    """What the table says of the choice among the candidates of a method, or that there is none."""
    if decision.chosen is None:
        names = ("mask_prob", "mean", "sd", "val_mean", "val_sd", "bootstrap_se")
        status = "missing" if of_method["n_missing"].any() else "diverged"
        return {**dict.fromkeys(names, math.nan), "n": 0, "t_init": None, "status": status}
    (point,) = of_method[of_method["chosen"]].to_dict("records")
    chosen = rows_of_method(replicas[replicas["chosen"]], Method.of_row(point))
    return {
        "status": "chosen",
        "mask_prob": point["mask_prob"],
        "t_init": point["t_init"],
        "n": point["n"],
        "mean": point["test_mean"],
        "sd": point["test_sd"],
        "val_mean": point["val_mean"],
        "val_sd": point["val_sd"],
        "bootstrap_se": float(chosen["bootstrap_se"].mean()),
    }


def rows_of_method(frame: pd.DataFrame, method: Method) -> pd.DataFrame:
    """Rows of a table that are of a method."""
    return frame[np.logical_and.reduce([frame[n] == word for n, word in zip(METHOD, method.words, strict=True)])]


def summary_table(table: pd.DataFrame) -> Table:
    """What the console shows of one data set: per method its choice, its scores and its rank."""
    metric, dataset = get_metric(table["metric"].iloc[0]), table["dataset"].iloc[0]
    direction = "higher" if metric.higher_is_better else "lower"
    shown = Table(title=f"{dataset}: test {metric.label} ({direction} is better)", box=box.SIMPLE, pad_edge=False)
    for name in METHOD:
        shown.add_column(name)
    for name in ("p_m", "T", "n", "validation", "test", "sd", "rank"):
        shown.add_column(name, justify="right")
    before = None
    for row in table.to_dict("records"):
        if before not in (None, row["binning"]):
            shown.add_section()
        shown.add_row(
            row["binning"] if row["binning"] != before else "",
            row["masking"],
            row["objective"],
            number_text(row["mask_prob"], "g"),
            "" if pd.isna(row["t_init"]) else str(row["t_init"]),
            f"{row['n']}" if row["status"] == "chosen" else row["status"],
            *(number_text(row[name], ".4f") for name in ("val_mean", "mean", "sd")),
            number_text(row["rank"], "g"),
            style="bold" if row["rank"] == table["rank"].min() else None,
        )
        before = row["binning"]
    return shown


def ranks_table(ranks: pd.DataFrame) -> Table:
    """What the console shows of several data sets: the rank of every method on each, and the average."""
    datasets = [str(name) for name in ranks.columns if name not in (*METHOD, "average")]
    shown = Table(title=f"ranks over {len(datasets)} data sets (1 is the best)", box=box.SIMPLE, pad_edge=False)
    for name in METHOD:
        shown.add_column(name)
    for name in (*datasets, "average"):
        shown.add_column(name, justify="right")
    for row in ranks.to_dict("records"):
        numbers = [*(f"{row[name]:g}" for name in datasets), f"{row['average']:.2f}"]
        style = "bold" if row["average"] == ranks["average"].min() else None
        shown.add_row(*(row[name] for name in METHOD), *numbers, style=style)
    return shown
