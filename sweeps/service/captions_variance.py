"""What the variance figure says in words; all of it is read from the tables."""

from __future__ import annotations

import math

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.notes import protocol_notes
from sweeps.service.tables_variance import COMPONENTS, TOTAL, VarianceTables, share_text
from sweeps.service.variance import VarianceStudy

LET_GO = {
    "split": "split, pretraining\nand probes change",
    "pretraining": "pretraining\nand probes change",
    "probe": "probes change",
}
"""Component -> what the seeds change under the kind that adds it, in two lines at most."""


def caption_text(tables: VarianceTables, study: VarianceStudy) -> str:
    """The caption as plain text: what was trained, what each component is, what it came to, and what it is not."""
    (dataset,) = study.datasets
    metric = get_metric(tables.points["metric"].iloc[0])
    probes = study.budget.probes
    score = f"the mean of {probes} linear probes" if probes > 1 else "that of one linear probe"
    lines = [
        f"Where the variance of a score of {dataset} is: test {axis_metric(metric)} of the default point, {score} "
        f"each, over {len(study.seeds)} seeds that change the probes alone, the pretraining too (initial weights, "
        "batch order, dropout, corruption), and the split too. Left: scores; dots: single seeds, lines: their means. "
        "Right: sd that each source adds, with 95 % intervals.",
        "Components: probe is the variance of single probes of one pretraining, pooled over all pretrainings and "
        f"divided by {probes}; pretraining is the variance of scores of one split minus that; split is the variance of "
        "scores over splits minus that of one split. Estimates are unbiased, so one can come out below 0, which is "
        "drawn as 0. Intervals (chi square; for differences the modified large-sample interval) take scores as normal.",
        f"{_found(tables)} The pretraining part is that of the one split which other studies use: "
        f"{_place_of_that_split(tables)}.",
        "Splits share rows, so the split's part understates what other patients would change.",
        f"{_counts(tables)}",
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(lines) + "\n"


def _found(tables: VarianceTables) -> str:
    rows = {row["component"]: row for row in tables.components.to_dict("records")}
    told = []
    for name in (*COMPONENTS, TOTAL):
        row = rows[name]
        if math.isnan(row["variance"]):
            told.append(f"{name} not estimated")
            continue
        share = "" if math.isnan(row["share"]) else f", {share_text(row['share'])}"
        told.append(f"{name} {row['sd']:.4f} ({row['sd_low']:.4f} to {row['sd_high']:.4f}{share})")
    return f"Sd: {'; '.join(told)}."


def _place_of_that_split(tables: VarianceTables) -> str:
    points = {row["seeds_vary"]: row for row in tables.points.to_dict("records")}
    fixed, free = points["pretrain"], points["split"]
    if math.isnan(fixed["mean"]) or math.isnan(free["sd"]):
        return "where it lies among splits is not known"
    away = f", {(fixed['mean'] - free['mean']) / free['sd']:+.1f} sd" if free["sd"] > 0 else ""
    return f"mean {fixed['mean']:.4f}, against {free['mean']:.4f} (sd {free['sd']:.4f}) over {free['n']} splits{away}"


def _counts(tables: VarianceTables) -> str:
    replicas, missing = tables.replicas, int(tables.points["n_missing"].sum())
    diverged = int((replicas["status"] == "diverged").sum())
    told = (
        f"{diverged} of {len(replicas)} replicas diverged, and are in no number" if diverged else "No replica diverged"
    )
    return f"{told}{f'; {missing} have no result' if missing else ''}."
