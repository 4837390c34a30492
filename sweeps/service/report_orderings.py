"""How many of the paper's orderings hold: our method against BinRecon, its ablations, and other values of the default.

An ordering is of two test scores of one data set.  Where a paired test of the two was planned (ablation, sensitivity),
its mark stands beside; where none was (benchmark), the difference of the means is descriptive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.metrics import Metric, get_metric
from sweeps.service.methods_finetune import FINETUNE
from sweeps.service.panels import PANELS
from sweeps.service.paper import (
    PaperScore,
    ablation_scores,
    finetune_line,
    finetune_scores,
    linear_probe_scores,
    paper_scale,
)
from sweeps.service.report_sources import Source, Sources
from sweeps.service.stats import IDENTICAL_MARK, signed_differences

ORDERINGS = {
    "ours_above_bin_recon": "adaptive binning > BinRecon with the same masking",
    "full_above_ablation": "full > each ablation of Table 3",
    "default_not_below_values": "default ≥ the other values of the paper's sensitivity panels",
    "finetuned_above_supervised": "adaptive binning, fine-tuned > supervised with the same encoder",
    "finetuned_above_bin_recon": "adaptive binning, fine-tuned > BR with the same encoder",
    "finetuned_above_mr": "adaptive binning, fine-tuned > MR with the same encoder",
}
"""Name in report.csv -> what it says."""

UNTESTED = ("ours_above_bin_recon", "finetuned_above_mr")
"""Orderings of pairs that no test was planned for."""

_FINETUNED = {"supervised": "finetuned_above_supervised", "BR": "finetuned_above_bin_recon"}
"""What a fine-tuned model was tested against -> ordering."""

COLUMNS = (
    *("ordering", "dataset", "name", "metric", "study", "protocol", "n", "n_diverged", "difference", "holds"),
    *("tested", "p_holm", "mark", "verdict", "paper_difference"),
)

COUNTS_COLUMNS = (
    *("ordering", "protocol", "compared", "hold", "hold_significantly", "fail", "fail_significantly", "undecided"),
    *("identical", "paper_compared", "paper_hold"),
)

_NAN = math.nan


def orderings_frame(sources: Sources) -> pd.DataFrame:
    """One row per comparison that was run, with columns :data:`COLUMNS`.

    `difference` is in the paper's units, of the side that should be better minus the other (errors: the other way
    round), so that an ordering that `holds` has a positive one ("yes", "no"; the default's may be 0).  With diverged
    replicas the sign of the signed-rank statistic decides, in which they have the worst rank; "undecided" where there
    is none.  `paper_difference`: the same of the paper's means, where it prints them.
    """
    rows = [
        *(row for source in sources.of("benchmark") for row in _against_bin_recon(source)),
        *(row for source in sources.of("ablation") for row in _against_ablations(source)),
        *(row for source in sources.of("sensitivity") for row in _against_values(source)),
        *(row for source in sources.of(FINETUNE) for row in _finetuned(source)),
        *(row for source in sources.of(FINETUNE) for row in _finetuned_against_mr(source)),
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def counts_frame(orderings: pd.DataFrame) -> pd.DataFrame:
    """One row per ordering and protocol: full and reduced ones are never counted together.

    Of `compared` pairs some `hold`, some `fail` and some are `undecided`; "significantly" are those whose planned test
    found a difference (Holm, level 0.05).  Of pairs with `identical` scores, seed by seed, nothing was to be learnt:
    the default is not below its equal, so it holds there, and full is not above its, so it fails.  `paper_hold` of the
    `paper_compared` same pairs hold in the paper.
    """
    rows = []
    for (ordering, protocol), group in orderings.groupby(["ordering", "protocol"], sort=False):
        # Verdicts are of the side that should be worse, but of ours where fine-tuned models are compared.
        words = ("better", "worse") if ordering in _FINETUNED.values() else ("worse", "better")
        worse, better = (group["verdict"].str.contains(word) for word in words)
        paper = group["paper_difference"].dropna()
        rows.append(
            {
                "ordering": ordering,
                "protocol": protocol,
                "compared": len(group),
                "hold": int((group["holds"] == "yes").sum()),
                "hold_significantly": int(((group["holds"] == "yes") & worse).sum()),
                "fail": int((group["holds"] == "no").sum()),
                "fail_significantly": int(((group["holds"] == "no") & better).sum()),
                "undecided": int((group["holds"] == "undecided").sum()),
                "identical": int((group["mark"] == IDENTICAL_MARK).sum()),
                "paper_compared": len(paper),
                "paper_hold": int((paper > 0).sum()),
            }
        )
    return pd.DataFrame(rows, columns=list(COUNTS_COLUMNS))


def _against_bin_recon(source: Source) -> Iterator[dict[str, Any]]:
    table = source.table("table.csv")
    rows = {} if table is None else {(row["objective"], row["masking"]): row for row in table.to_dict("records")}
    for (objective, masking), ours in rows.items():
        other = rows.get(("BR", masking))
        if objective != "Ours" or other is None or "missing" in (ours["status"], other["status"]):
            continue
        metric, (dataset,) = get_metric(ours["metric"]), source.datasets
        pair = [f"adaptive/{masking}/Ours", f"fixed/{masking}/BR"]
        # nan, the mean of what diverged, is worse than any score.
        means = [np.array([row["mean"]], dtype=np.float64) for row in (ours, other)]
        difference = float(signed_differences(means[0], means[1], metric.sign)[0])
        lost = [row["status"] == "diverged" for row in (ours, other)]
        yield {
            "ordering": "ours_above_bin_recon",
            "dataset": dataset,
            "name": " against ".join(pair),
            "metric": metric.name,
            "study": source.study,
            "protocol": source.protocol,
            "n": min(int(ours["n"]), int(other["n"])),
            "n_diverged": sum(lost),
            "difference": paper_scale(metric) * difference if math.isfinite(difference) else _NAN,
            "holds": "undecided" if all(lost) else _yes(difference > 0),
            "tested": False,
            "p_holm": _NAN,
            "mark": "",
            "verdict": "",
            "paper_difference": _paper_difference(linear_probe_scores(), pair, dataset, metric),
        }


def _against_ablations(source: Source) -> Iterator[dict[str, Any]]:
    contrasts = source.table("significance.csv")
    for row in [] if contrasts is None else contrasts[contrasts["group"] == "paper"].to_dict("records"):
        yield {
            "ordering": "full_above_ablation",
            "name": row["variant"],
            **_tested(source, row, may_tie=False),
            "paper_difference": _paper_difference(
                ablation_scores(), ["full", row["variant"]], row["dataset"], get_metric(row["metric"])
            ),
        }


def _against_values(source: Source) -> Iterator[dict[str, Any]]:
    contrasts = source.table("significance.csv")
    for row in [] if contrasts is None else contrasts.to_dict("records"):
        if row["value"] not in PANELS[row["panel"]].values:  # added with --value
            continue
        yield {
            "ordering": "default_not_below_values",
            "name": f"{row['panel']} {row['value']:g}",
            **_tested(source, row, may_tie=True),
            "paper_difference": _NAN,  # the paper draws these, and prints none
        }


def _finetuned(source: Source) -> Iterator[dict[str, Any]]:
    """Ours against supervised and against BR, encoder by encoder, with the tests that were planned."""
    contrasts = source.table("significance.csv")
    for row in [] if contrasts is None else contrasts[contrasts["method"] == "Ours"].to_dict("records"):
        if not row["n"]:
            continue
        # These contrasts are of ours minus the other.
        reverse = {name: -row[name] for name in ("difference", "statistic")}
        yield _finetuned_row(source, row["encoder"], row["against"], _tested(source, {**row, **reverse}, may_tie=False))


def _finetuned_against_mr(source: Source) -> Iterator[dict[str, Any]]:
    """Ours against MR, encoder by encoder: means, which say nothing where a seed diverged or is missing."""
    table = source.table("table.csv")
    rows = {} if table is None else {(row["encoder"], row["method"]): row for row in table.to_dict("records")}
    for (encoder, method), ours in rows.items():
        other = rows.get((encoder, "MR"))
        if method != "Ours" or other is None or not all(row["n"] + row["n_diverged"] for row in (ours, other)):
            continue
        metric, n_diverged = get_metric(ours["metric"]), int(ours["n_diverged"] + other["n_diverged"])
        missing = ours["n_missing"] or other["n_missing"]
        means = [np.array([row["mean"]], dtype=np.float64) for row in (ours, other)]
        difference = float(signed_differences(means[0], means[1], metric.sign)[0])
        told = {
            "dataset": ours["dataset"],
            "metric": metric.name,
            "study": source.study,
            "protocol": source.protocol,
            "n": min(int(ours["n"]), int(other["n"])),
            "n_diverged": n_diverged,
            "difference": paper_scale(metric) * difference if math.isfinite(difference) else _NAN,
            "holds": "undecided" if n_diverged or missing else _yes(difference > 0),
            "tested": False,
            "p_holm": _NAN,
            "mark": "",
            "verdict": "",
        }
        yield _finetuned_row(source, encoder, "MR", told)


def _finetuned_row(source: Source, encoder: Any, other: Any, told: dict[str, Any]) -> dict[str, Any]:
    pair = [finetune_line(encoder, "Ours"), finetune_line(encoder, other)]
    (dataset,), metric = source.datasets, get_metric(told["metric"])
    return {
        "ordering": _FINETUNED.get(other, "finetuned_above_mr"),
        "name": " against ".join(pair),
        **told,
        "paper_difference": _paper_difference(finetune_scores(), pair, dataset, metric),
    }


def _tested(source: Source, row: dict[Any, Any], *, may_tie: bool) -> dict[str, Any]:
    """A row of a table of contrasts, which are of the other side minus the one that should be better."""
    metric = get_metric(row["metric"])
    towards_us = -(row["statistic"] if row["n_diverged"] else row["difference"])
    holds = "undecided" if math.isnan(towards_us) else _yes(towards_us > 0 or (may_tie and towards_us == 0))
    text = {name: "" if pd.isna(row[name]) else row[name] for name in ("mark", "verdict")}
    return {
        "dataset": row["dataset"],
        "metric": metric.name,
        "study": source.study,
        "protocol": source.protocol,
        "n": int(row["n"]),
        "n_diverged": int(row["n_diverged"]),
        "difference": -paper_scale(metric) * row["difference"] + 0.0,
        "holds": holds,
        "tested": text["verdict"] != "no test",
        "p_holm": row["p_holm"],
        **text,
    }


def _paper_difference(scores: dict[str, dict[str, PaperScore]], pair: list[str], dataset: str, metric: Metric) -> float:
    ours, other = (scores.get(name, {}).get(dataset) for name in pair)
    if ours is None or other is None:
        return _NAN
    return metric.sign * round(ours.mean - other.mean, 6)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
