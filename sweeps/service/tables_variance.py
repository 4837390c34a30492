"""Tables of the variance study: one row per replica, per kind of seeds and per component, and the console's view.

A score is the mean of a replica's probes.  With n seeds, what its variance is made of:

===========  ==========================================================  ========================
component    estimate                                                    degrees of freedom
===========  ==========================================================  ========================
probe        variance of single probes of one pretraining, mean over     Satterthwaite's
             all pretrainings, divided by the probes of a replica
pretraining  variance of scores under "pretrain", minus that             n - 1, and the above
split        variance of scores under "split", minus under "pretrain"    n - 1, n - 1
total        variance of scores under "split"                            n - 1
===========  ==========================================================  ========================

Seed 0 has the usual split and the pretraining of seed 0 under every kind: it is one and the same model, whose probes
count once, and one score that all three kinds have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from adaptbin.config import SeedsVary
from adaptbin.metrics import get_metric
from sweeps.service.components import Component, MeanSquare, average, difference, mean_square, whole
from sweeps.service.stats import standard_deviation
from sweeps.service.tables import as_frame, console_table, finished_scores, number_text, recorded, run_averages
from sweeps.service.variance import KINDS, VarianceStudy

COMPONENTS: dict[str, SeedsVary] = {"split": "split", "pretraining": "pretrain", "probe": "probe"}
"""Component, the largest source first -> the kind of seeds that lets it vary, and those below it, but nothing above."""

TOTAL = "total"

Probes = dict[tuple[int, int], dict[int, list[float]]]
"""Seeds of the split and of the pretraining -> seed of the probes -> test scores of single probes."""


@dataclass(frozen=True)
class VarianceTables:
    """What is known of one data set."""

    replicas: pd.DataFrame
    """One row per replica that has a record, kind by kind."""
    points: pd.DataFrame
    """One row per kind of seeds: test mean, sd and range over its finished replicas, and what they did."""
    components: pd.DataFrame
    """One row per component, and the total."""


def variance_tables(records: Iterable[Mapping[str, Any]], study: VarianceStudy, metric: str) -> VarianceTables:
    """Tables of a study of one data set; ``records`` that it does not ask for are left out.

    Components: `variance` with its 95 % interval (`low`, `high`) can be below 0; `sd`, `sd_low` and `sd_high` are the
    roots, 0 where there is none; `share` is of the sum of the components that are above 0.  They are of finished
    replicas; what cannot be estimated is nan.

    Raises ConfigError on an unknown metric, DataError when a finished record lacks it.
    """
    (card,), metric = study.cards, get_metric(metric).name
    by_id = {record["id"]: record for record in records}
    rows: list[dict[str, Any]] = []
    probes: Probes = {}
    for replica in study.replicas[card.key]:
        record = by_id.get(replica.id)
        if record is not None:
            told = {"dataset": card.key, "seeds_vary": replica.seeds_vary, "seed": replica.seed}
            rows.append({**told, **recorded(record, metric)})
            of_pretraining = probes.setdefault((replica.seeds.split, replica.seeds.pretrain), {})
            of_pretraining[replica.seeds.probe] = [float(probe["test"][metric]) for probe in record["probes"]]
    replicas = as_frame(rows, ["dataset", "seeds_vary", "seed", "id", "status", "metric"])
    points = pd.DataFrame([_point_row(replicas, study, kind, metric) for kind in KINDS])
    components = _components(replicas, probes, study)
    told = {"dataset": card.key, "metric": metric}
    return VarianceTables(replicas, points, pd.DataFrame([{**told, **row} for row in components]))


def _point_row(replicas: pd.DataFrame, study: VarianceStudy, kind: SeedsVary, metric: str) -> dict[str, Any]:
    group = replicas[replicas["seeds_vary"] == kind]
    test, finished = finished_scores(group), group[group["status"] == "finished"]
    return {
        "dataset": study.datasets[0],
        "seeds_vary": kind,
        "metric": metric,
        "n": len(test),
        "n_diverged": len(group) - len(test),
        "n_missing": len(study.seeds) - len(group),
        "mean": float(test.mean()) if len(test) else math.nan,
        "sd": standard_deviation(test),
        "least": float(test.min()) if len(test) else math.nan,
        "most": float(test.max()) if len(test) else math.nan,
        "val_mean": float(finished["val"].mean()),
        "bootstrap_se": float(finished["bootstrap_se"].mean()),
        **run_averages(finished),
    }


def _components(replicas: pd.DataFrame, probes: Probes, study: VarianceStudy) -> list[dict[str, Any]]:
    squares = {kind: mean_square(finished_scores(replicas[replicas["seeds_vary"] == kind])) for kind in KINDS}
    single = [mean_square(np.array(sum(of_seeds.values(), []))) for of_seeds in probes.values()]
    probe = average(single).divided(study.budget.probes)
    found: dict[str, tuple[Component, Sequence[MeanSquare]]] = {
        "split": (difference(squares["split"], squares["pretrain"]), (squares["split"], squares["pretrain"])),
        "pretraining": (difference(squares["pretrain"], probe), (squares["pretrain"], probe)),
        "probe": (whole(probe), (probe,)),
    }
    above = {name: max(found[name][0].value, 0.0) for name in COMPONENTS}  # nan stays nan
    shares = {
        name: value / sum(above.values()) if sum(above.values()) > 0 else math.nan for name, value in above.items()
    }
    rows = [_component_row(name, *found[name], shares[name]) for name in COMPONENTS]
    return [*rows, _component_row(TOTAL, whole(squares["split"]), (squares["split"],), math.nan)]


def _component_row(name: str, part: Component, squares: Sequence[MeanSquare], share: float) -> dict[str, Any]:
    roots = {key: math.sqrt(max(value, 0.0)) for key, value in part._asdict().items()}
    return {
        "component": name,
        "variance": part.value,
        "low": part.low,
        "high": part.high,
        "sd": roots["value"],
        "sd_low": roots["low"],
        "sd_high": roots["high"],
        "share": share,
        "degrees": "/".join(f"{square.degrees:.4g}" for square in squares),
    }


def summary_table(tables: VarianceTables) -> Table:
    """What the console shows: per component its sd, interval and share, and the scores of its kind of seeds."""
    metric = get_metric(tables.points["metric"].iloc[0])
    title = f"{tables.points['dataset'].iloc[0]}: where the variance of test {metric.label} is"
    columns = ("component", "sd", "95 % interval", "share", "seeds vary", "n", "mean", "sd of scores")
    table = console_table(title, columns, left=("component", "seeds vary"))
    of_kind = {row["seeds_vary"]: row for row in tables.points.to_dict("records")}
    for row in tables.components.to_dict("records"):
        kind = COMPONENTS.get(row["component"])
        between = "" if math.isnan(row["low"]) else f"{row['sd_low']:.4f} – {row['sd_high']:.4f}"
        cells = [row["component"], number_text(row["sd"], ".4f"), between, share_text(row["share"])]
        if kind is not None:
            point = of_kind[kind]
            diverged = f" (†{point['n_diverged']})" if point["n_diverged"] else ""
            cells += [kind, f"{point['n']}{diverged}", *(number_text(point[name], ".4f") for name in ("mean", "sd"))]
        if row["component"] == TOTAL:
            table.add_section()
        table.add_row(*cells)
    return table


def share_text(share: float) -> str:
    """``79 %``; nothing for nan."""
    return "" if math.isnan(share) else f"{100 * share:.0f} %"
