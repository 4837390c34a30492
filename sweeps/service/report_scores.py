"""Our scores beside the paper's: one row per number of its Tables 1, 3 and 4 that was run, one per variance component,
and one per alternative.

All are in the paper's units: AUC, accuracy and QWK in percent, RMSE in target units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from adaptbin.errors import DataError
from adaptbin.metrics import get_metric
from sweeps.service.choice import CHOSEN_FIELDS
from sweeps.service.methods import METHOD
from sweeps.service.methods_finetune import FINETUNE
from sweeps.service.paper import (
    PaperScore,
    ablation_scores,
    finetune_line,
    finetune_scores,
    linear_probe_scores,
    paper_scale,
)
from sweeps.service.report_sources import Source, Sources
from sweeps.service.stats import standard_deviation
from sweeps.service.tables import finished_scores
from sweeps.service.tables_variance import COMPONENTS

OTHER_ORDER = {"qwk": "qwk_alphabetical", "qwk_alphabetical": "qwk"}
"""Kappa in the protocol's order of labels -> the same predictions scored in the other order."""

PAPER: dict[int, Callable[[], dict[str, dict[str, PaperScore]]]] = {
    1: linear_probe_scores,
    3: ablation_scores,
    4: finetune_scores,
}
"""Number of the paper's table -> what it prints: line -> data set -> score."""

COLUMNS = (
    *("table", "dataset", "name", "metric", "role", "study", "setting", "protocol", "n", "n_diverged"),
    *("paper_mean", "paper_sd", "mean", "sd", "gap", "within_paper_sd", "may_be_within"),
)

ALTERNATIVES_COLUMNS = ("dataset", "name", "metric", "n", "depends_on_seed", "val_mean", "mean", "sd")


VARIANCE_COLUMNS = (
    *("dataset", "name", "metric", "protocol", "setting", "sd", "sd_low", "sd_high", "share"),
    *("n", "n_diverged", "mean", "sd_of_scores", "paper_sd"),
)


def scores_frame(sources: Sources) -> pd.DataFrame:
    """One row per number of the paper and study that ran it, with columns :data:`COLUMNS`.

    `gap` is ours minus the paper's; `within_paper_sd` says whether its size is at most the paper's sd as printed, and
    `may_be_within` whether it is more by so little that rounding may be why; both are False where a seed diverged, for
    a mean over the others would praise what lost its worst.  `role` is "primary" for the metric of the protocol;
    ordinal data sets have a second row for the other order of labels, "exploratory", since epochs and settings were
    not chosen by it.
    """
    studies: dict[str, Callable[[Source], Iterator[dict[str, Any]]]] = {
        "benchmark": _benchmark,
        "masking": _masking,
        "sensitivity": _sensitivity,
        "ablation": _ablation,
        FINETUNE: _finetune,
    }
    rows = [row for study, rows_of in studies.items() for source in sources.of(study) for row in rows_of(source)]
    order = {name: position for position, name in enumerate(name for of in PAPER.values() for name in of())}
    rows.sort(key=lambda row: (row["table"], sources.datasets.index(row["dataset"]), order[row["name"]]))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def within_frame(scores: pd.DataFrame) -> pd.DataFrame:
    """Per table and protocol how many primary numbers were `compared`, how many lie `within` the paper's sd, and of
    how many others the printed sd `cannot_tell`.

    Where several studies ran the same number the first counts: benchmark, masking, sensitivity.
    """
    primary = scores[scores["role"] == "primary"].drop_duplicates(["table", "protocol", "dataset", "name"])
    rows = [
        {
            "table": table,
            "protocol": protocol,
            "compared": len(rows),
            "within": int(rows["within_paper_sd"].sum()),
            "cannot_tell": int(rows["may_be_within"].sum()),
        }
        for (table, protocol), rows in primary.groupby(["table", "protocol"], sort=False)
    ]
    return pd.DataFrame(rows, columns=["table", "protocol", "compared", "within", "cannot_tell"])


def _benchmark(source: Source) -> Iterator[dict[str, Any]]:
    table = source.table("table.csv")
    for row in [] if table is None else table.to_dict("records"):
        if row["status"] == "missing":
            continue
        setting = _setting_words(row, row["masking"] != "none", row["binning"] != "none")
        place = {name: row[name] for name in METHOD}
        tuned = f"chosen on validation: {setting}" if setting else "nothing to choose"
        words = "every candidate diverged"
        if row["status"] == "chosen":  # which no diverged candidate can be
            lost = f"; {row['n_diverged']} replicas of other candidates diverged" if row["n_diverged"] else ""
            words, row["n_diverged"] = tuned + lost, 0
        yield from _rows(source, 1, "/".join(place.values()), row, words, place)


def _masking(source: Source) -> Iterator[dict[str, Any]]:
    """The chosen point is the line of Table 1 with its masking: what is best of all is best of that masking."""
    points = source.table("points.csv")
    for row in [] if points is None else points[points["chosen"]].to_dict("records"):
        words = f"chosen on validation: {_setting_words(row, row['masking'] != 'none', True)}"
        scores = {**row, "mean": row["test_mean"], "sd": row["test_sd"]}
        yield from _rows(source, 1, f"adaptive/{row['masking']}/Ours", scores, words, {"chosen": True})


def _sensitivity(source: Source) -> Iterator[dict[str, Any]]:
    """The default point is in every panel, alike."""
    points = source.table("points.csv")
    rows = [] if points is None else points[points["is_default"]].to_dict("records")
    name = f"adaptive/{source.default.masking}/Ours"
    for row in rows[:1]:
        yield from _rows(source, 1, name, row, _default_words(source), {"is_default": True})


def _ablation(source: Source) -> Iterator[dict[str, Any]]:
    points = source.table("points.csv")
    for row in [] if points is None else points[points["group"].isin(["full", "paper"])].to_dict("records"):
        changes = "" if row["changes"] == "nothing" else f"; {row['changes']}"
        words = _default_words(source) + changes
        yield from _rows(source, 3, row["variant"], row, words, {"variant": row["variant"]})


def _finetune(source: Source) -> Iterator[dict[str, Any]]:
    table = source.table("table.csv")
    for row in [] if table is None else table.to_dict("records"):
        place = {name: row[name] for name in ("encoder", "method")}
        words = row["setting"]
        if row["method"] != "supervised":
            words = f"{'chosen on validation' if row['chosen'] else 'not tuned'}: {words}"
        yield from _rows(source, 4, finetune_line(row["encoder"], row["method"]), row, words, place)


def _default_words(source: Source) -> str:
    point = {name: getattr(source.default, name) for name in CHOSEN_FIELDS}
    chosen = source.datasets[0] in source.manifest.get("choices", {})
    masking = f"masking {point['masking']}, {_setting_words(point, point['masking'] != 'none', True)}"
    return f"default point, {'chosen on validation' if chosen else 'not tuned'}: {masking}"


def _setting_words(point: Mapping[Any, Any], masks: bool, has_bins: bool) -> str:
    words = [f"p_m {point['mask_prob']:g}"] if masks else []
    return ", ".join([*words, f"T {point['t_init']:g}"] if has_bins else words)


def _rows(
    source: Source, table: int, name: str, row: Mapping[Any, Any], setting: str, place: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The row of one number, and of an ordinal data set that of the other order of labels."""
    (dataset,) = source.datasets
    paper = PAPER[table]().get(name, {}).get(dataset)
    counts = {"n": int(row["n"]), "n_diverged": int(row["n_diverged"])}
    if paper is None or not any(counts.values()):  # a data set that the paper does not have, or nothing has run
        return
    common = {
        "table": table,
        "dataset": dataset,
        "name": name,
        "study": source.study,
        "setting": setting,
        "protocol": source.protocol,
    }
    scored = _beside(paper, row["metric"], row["mean"], row["sd"], counts["n_diverged"])
    yield {**common, **counts, **scored, "role": "primary"}
    other = OTHER_ORDER.get(row["metric"])
    scores = None if other is None else _replica_scores(source, place, f"test_{other}")
    if other is not None and scores is not None:
        mean = float(scores.mean()) if len(scores) else math.nan
        scored = _beside(paper, other, mean, standard_deviation(scores), counts["n_diverged"])
        yield {**common, **counts, **scored, "n": len(scores), "role": "exploratory"}


def _beside(paper: PaperScore, metric: str, mean: float, sd: float, n_diverged: int) -> dict[str, Any]:
    scale = paper_scale(get_metric(metric))
    return {
        "metric": metric,
        "paper_mean": paper.mean,
        "paper_sd": paper.sd,
        "mean": scale * mean,
        "sd": scale * sd,
        "gap": scale * mean - paper.mean,
        "within_paper_sd": paper.has(scale * mean) and not n_diverged,
        "may_be_within": paper.may_have(scale * mean) and not n_diverged,
    }


def _replica_scores(source: Source, place: Mapping[str, Any], column: str) -> Any:
    """Scores [n] of the finished replicas at a place; None where the study's table of replicas lacks the column."""
    replicas = source.table("replicas.csv")
    if replicas is None or column not in replicas:
        return None
    for name, value in place.items():
        replicas = replicas[replicas[name] == value]
    once = replicas.drop_duplicates("id")  # the default point has a row in every panel
    return finished_scores(once.assign(test=once[column]))


def variance_frame(sources: Sources) -> pd.DataFrame:
    """One row per data set and variance component, with columns :data:`VARIANCE_COLUMNS`.

    `share` is in percent.  `n`, `n_diverged`, `mean` and `sd_of_scores` are of the scores under the kind of seeds that
    adds the component.
    """
    rows = []
    for source in sources.of("variance"):
        (dataset,) = source.datasets
        components, points = source.table("components.csv"), source.table("points.csv")
        if components is None or points is None:
            raise DataError(f"a variance study must have components.csv and points.csv, got {source.folder}")
        of_kind = {row["seeds_vary"]: row for row in points.to_dict("records")}
        paper = linear_probe_scores()[f"adaptive/{source.default.masking}/Ours"].get(dataset)
        for row in components.to_dict("records"):
            if row["component"] not in COMPONENTS:
                continue
            scale, point = paper_scale(get_metric(row["metric"])), of_kind[COMPONENTS[row["component"]]]
            rows.append(
                {
                    "dataset": dataset,
                    "name": row["component"],
                    "metric": row["metric"],
                    "protocol": source.protocol,
                    "setting": _default_words(source),
                    **{name: scale * row[name] for name in ("sd", "sd_low", "sd_high")},
                    "share": 100 * row["share"],
                    "n": int(point["n"]),
                    "n_diverged": int(point["n_diverged"]),
                    "mean": scale * point["mean"],
                    "sd_of_scores": scale * point["sd"],
                    # The paper's kappas fit the other order of labels, whose sd is another.
                    "paper_sd": math.nan if paper is None or row["metric"] in OTHER_ORDER else paper.sd,
                }
            )
    return pd.DataFrame(rows, columns=list(VARIANCE_COLUMNS))


def alternatives_frame(sources: Sources) -> pd.DataFrame:
    """One row per data set and model without pretraining: mean (and sd) over its fits, `n` of them."""
    rows = []
    for source in sources.of("alternatives"):
        scores = source.table("scores.csv")
        for model, fits in [] if scores is None else scores.groupby("model", sort=False):
            scale = paper_scale(get_metric(fits["metric"].iloc[0]))
            rows.append(
                {
                    "dataset": source.datasets[0],
                    "name": model,
                    "metric": fits["metric"].iloc[0],
                    "n": len(fits),
                    "depends_on_seed": bool(fits["depends_on_seed"].iloc[0]),
                    "val_mean": scale * float(fits["val"].mean()),
                    "mean": scale * float(fits["test"].mean()),
                    "sd": scale * standard_deviation(fits["test"].to_numpy(dtype=float)),
                }
            )
    return pd.DataFrame(rows, columns=list(ALTERNATIVES_COLUMNS))
