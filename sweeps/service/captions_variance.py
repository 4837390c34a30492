"""What the variance figure says in words; all of it is read from the tables."""

from __future__ import annotations

import math

from adaptbin.config import SPLIT_SEED
from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.notes import protocol_notes
from sweeps.service.stats import standard_deviation
from sweeps.service.tables import finished_scores
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
        "Components: probe is the variance of single probes of one pretraining, mean over all pretrainings, divided by "
        f"{probes}; pretraining is the variance of scores of one split minus that; split is the variance of scores "
        "over splits minus that of one split. They take pretraining to vary as much on other splits as on that one. A "
        "difference can come out below 0, which is drawn as 0. Intervals (chi square; for differences the modified "
        "large-sample interval) take scores as normal. Shares have no interval: with few seeds they are rough."
        f"{' Seed 0 is the same model under all three kinds.' if 0 in study.seeds else ''}",
        f"{_found(tables)} The pretraining part is that of the one split which other studies use"
        f"{_place_of_that_split(tables, study)}",
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


def _place_of_that_split(tables: VarianceTables, study: VarianceStudy) -> str:
    """How its mean score lies among the scores of other splits; that it is among the splits would pull it to them."""
    replicas = tables.replicas
    usual = finished_scores(replicas[replicas["seeds_vary"] == "pretrain"])
    (of_dataset,) = study.replicas.values()
    elsewhere = [r.id for r in of_dataset if r.seeds.split != SPLIT_SEED]
    others = finished_scores(replicas[replicas["id"].isin(elsewhere)])
    if not len(usual) or not len(others):
        return "."
    chosen = ", on whose validation rows the default point was chosen" if study.choices else ""
    sd = f" (sd {standard_deviation(others):.4f})" if len(others) > 1 else ""
    return f"{chosen}: mean {usual.mean():.4f}, against {others.mean():.4f}{sd} over {len(others)} other splits."


def _counts(tables: VarianceTables) -> str:
    replicas, missing = tables.replicas, int(tables.points["n_missing"].sum())
    diverged = int((replicas["status"] == "diverged").sum())
    told = (
        f"{diverged} of {len(replicas)} replicas diverged, and are in no number" if diverged else "No replica diverged"
    )
    return f"{told}{f'; {missing} have no result' if missing else ''}."
