"""The report as Markdown.  Every number on the page is in the tables that it is made from, which become report.csv."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.report_architectures import architecture_cells
from sweeps.service.report_orderings import ORDERINGS, UNTESTED
from sweeps.service.report_ranks import RANKS, contrast_lines, without_rank
from sweeps.service.report_scores import OTHER_ORDER
from sweeps.service.report_searches import search_cells
from sweeps.service.report_sources import FULL, TABLES, Source, Sources
from sweeps.service.report_tables import Report

TABLE = "report.csv"
"""Name of the file with every number."""

TITLES = {1: "Table 1: linear probes after pretraining", 3: "Table 3: ablations", 4: "Table 4: fine-tuning"}

_UNITS = (
    "Paper: arXiv 2606.19827. AUC, accuracy and QWK are in percent, RMSE in target units, as the paper prints them. "
    "All are test scores, mean ± sd over n seeds, on one split unless a row says otherwise; the paper does not say "
    "what its seeds vary. Every "
    f"number on this page is in [{TABLE}]({TABLE})."
)
_APART = (
    "Numbers of protocols other than full are counted apart, and say nothing of the full one; only ranks are also "
    "averaged over all data sets, since a rank compares methods on one. A short pretraining may favour some of them, "
    "though: bins that are fixed are there from the start, and adaptive ones take epochs to grow."
)
_GAP = (
    "Gap: ours − paper. Within: its size is at most the paper's sd, which is printed with one decimal (0.0 is anything "
    "below 0.05); where it is more by less than that rounding, nobody can tell."
)
_FULL = "The paper's full is the masking that scored best on test in its Table 1; ours is the default point named."
_ORDER = (
    "QWK is compared, and counted, in the {order} order of labels, the protocol's. The other order is the same "
    "predictions scored anew; nothing was chosen by it, so it is exploratory and not counted. The paper does not say "
    "which it uses; its eol scores fit the alphabetical one."
)
_DIFFERENCE = (
    "Difference: of the side that should be better minus the other, in the units above, positive where the ordering "
    "holds. Marks: the paired test over seeds that was planned (Holm; `*` p ≤ .05, `**` ≤ .01, `***` ≤ .001; `≈` "
    "equivalent within the margin, `≡` identical). No test was planned between methods of Table 1 on one data "
    "set, nor between adaptive binning and MR after fine-tuning."
)
_VARIANCE = (
    "Sd that each source adds to a score (the mean of a replica's probes), with its 95 % interval; what comes out "
    "below 0 is printed as 0. Share: of the sum of these variances; it has no interval, and is rough with few seeds. "
    "Scores: mean ± sd over n seeds, which change this source and those below it; those of the probe are of one "
    "pretraining. The splits of one table share rows, so the split's part understates what other patients would "
    "change. Paper's sd: of the same line of its Table 1, but for kappas, which fit another order of labels; what its "
    "seeds vary is not told, so it may hold one of these parts, or more."
)
_ALTERNATIVES = (
    "Models with their defaults, fitted to the same train rows; n is 1 where the fit does not depend on a seed. A "
    "category that no train row has is a missing value to them. Beside them stands adaptive binning with its linear "
    'probe; which protocol is not the full one is told under "What it rests on".'
)


def page(report: Report, folder: Path) -> str:
    """The page; ``folder`` is where it will lie, so that it can name tables from there."""
    parts = [
        _head(report.sources),
        _basis(report, folder),
        *(_paper_table(report.scores, number) for number in TITLES),
        _ranks(report),
        _orderings(report),
        _variance(report.variance),
        _architectures(report.architectures),
        _searches(report.searches),
        _alternatives(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def counts_lines(report: Report) -> list[str]:
    """How many numbers are within the paper's sd and how many orderings hold, for the page and the console."""
    within = [_within_text(row) for row in report.within.to_dict("records")]
    return [*within, *(_count_text(row) for row in report.counts.to_dict("records"))]


def _head(sources: Sources) -> list[str]:
    names = ", ".join(sources.datasets)
    return ["# Results beside the paper's", "", f"Data sets: {names}. {_UNITS}"]


def _basis(report: Report, folder: Path) -> list[str]:
    sources = report.sources
    links = [_link(source, folder) for study in TABLES for source in sources.of(study)]
    rows = []
    for row, link in zip(report.basis.to_dict("records"), links, strict=True):
        counts = "{replicas_found} of {replicas_asked}, {replicas_diverged} diverged".format_map(row)
        replicas = "–" if row["replicas_asked"] == "" else counts
        rows.append([row["dataset"], row["study"], row["protocol"], replicas, row["method_version"], link])
    heads = ["data set", "study", "protocol", "replicas", "method version", "tables"]
    lines = ["## What it rests on", "", *_markdown(heads, rows)]
    missing = [f"{study} ({', '.join(names)})" for study in TABLES if (names := sources.not_run(study))]
    if missing:
        lines += ["", f"Not run: {'; '.join(missing)}."]
    if sources.left_out:
        left_out = ", ".join(f"{source.name} in {_link(source, folder)}" for source in sources.left_out)
        lines += ["", f"Left out, since an earlier folder has the same study: {left_out}."]
    if (report.basis["protocol"] != FULL).any():
        lines += ["", _APART]
    return lines


def _paper_table(scores: pd.DataFrame, number: int) -> list[str]:
    rows = scores[scores["table"] == number]
    lines = [f"## {TITLES[number]}", ""]
    if rows.empty:
        return [*lines, "None of its numbers was run."]
    cells = [
        [
            row["dataset"],
            row["name"],
            _metric_words(row),
            _mean_sd(row["paper_mean"], row["paper_sd"], 1),
            _mean_sd(row["mean"], row["sd"], 2) + _lost(row),
            row["n"],
            _number(row["gap"], "+.2f"),
            "yes" if row["within_paper_sd"] else "cannot tell" if row["may_be_within"] else "no",
            f"{row['study']}: {row['setting']}" + ("" if row["protocol"] == FULL else f" ({row['protocol']})"),
        ]
        for row in rows.to_dict("records")
    ]
    heads = ["data set", "line", "metric", "paper", "ours", "n", "gap", "within ± 1 sd", "from"]
    lines += _markdown(heads, cells)
    lines += ["", _GAP]
    if number == 3 and "full" in set(rows["name"]):
        lines += ["", _FULL]
    if (rows["role"] == "exploratory").any():
        primary = rows.loc[rows["metric"].isin(OTHER_ORDER) & (rows["role"] == "primary"), "metric"].iloc[0]
        order = "alphabetical" if primary == "qwk_alphabetical" else "clinical"
        lines += ["", _ORDER.format(order=order)]
    return lines


def _ranks(report: Report) -> list[str]:
    missing = without_rank(report.sources)
    if report.ranks.empty and not missing:
        return []
    told = ["", f"Without ranks, since a cell of the table is missing: {', '.join(missing)}."] if missing else []
    lines = ["## Table 1: average ranks", *told]
    for _, rows in report.ranks.groupby(["protocol", "datasets"], sort=False):
        protocol, datasets, distance = (rows[name].iloc[0] for name in ("protocol", "datasets", "critical_distance"))
        cells = [
            [row["name"], _number(row["paper_mean"], ".2f"), f"{row['mean']:.2f}", _number(row["gap"], "+.2f")]
            for row in rows.to_dict("records")
        ]
        lines += ["", f"Over {datasets.count('+') + 1} data sets, {datasets.replace('+', ', ')} ({protocol}):", ""]
        lines += _markdown(["line", "paper", "ours", "gap"], cells)
        lines += ["", RANKS.format(distance=distance), ""]
        lines += contrast_lines(report.over_datasets, protocol, datasets)
    return lines


def _within_text(row: dict[Any, Any]) -> str:
    share = f"{row['within']} of {row['compared']} numbers that were run are within the paper's ± 1 sd"
    coarse = f"; {row['cannot_tell']} more may be, before rounding" if row["cannot_tell"] else ""
    return f"Table {row['table']} ({row['protocol']}): {share}{coarse}."


def _orderings(report: Report) -> list[str]:
    lines = ["## How much holds", ""]
    told = counts_lines(report)
    if not told:
        return [*lines, "Nothing of it was run."]
    lines += [f"- {line}" for line in told]
    for row in report.counts.to_dict("records"):
        alike = (report.orderings["ordering"] == row["ordering"]) & (report.orderings["protocol"] == row["protocol"])
        exceptions = report.orderings[alike & (report.orderings["holds"] != "yes")]
        if len(exceptions):
            heading = f"Exceptions to: {ORDERINGS[row['ordering']]} ({row['protocol']})"
            lines += ["", heading, "", *_exceptions(exceptions)]
    if len(report.orderings):
        lines += ["", _DIFFERENCE]
    return lines


def _count_text(row: dict[Any, Any]) -> str:
    tested = row["ordering"] not in UNTESTED
    holds = f" ({row['hold_significantly']} significantly)" if tested else ""
    fails = f" ({row['fail_significantly']} significantly)" if tested else ""
    undecided = f", {row['undecided']} undecided" if row["undecided"] else ""
    alike = f"; {row['identical']} have identical scores" if row["identical"] else ""
    paper = (
        f"; in the paper {row['paper_hold']} of the same {row['paper_compared']} hold" if row["paper_compared"] else ""
    )
    return (
        f"{ORDERINGS[row['ordering']]} ({row['protocol']}): {row['hold']} of {row['compared']} hold{holds}, "
        f"{row['fail']} fail{fails}{undecided}{alike}{paper}."
    )


def _exceptions(rows: pd.DataFrame) -> list[str]:
    columns: dict[str, Callable[[dict[Any, Any]], Any]] = {
        "data set": lambda row: row["dataset"],
        "pair": lambda row: row["name"],
        "holds": lambda row: row["holds"],
        "difference": lambda row: _number(row["difference"], "+.3f") + _lost(row),
        "n": lambda row: row["n"],
    }
    if rows["tested"].any():
        columns |= {"p (Holm)": lambda row: _number(row["p_holm"], ".2g"), "mark": lambda row: row["mark"]}
    if rows["paper_difference"].notna().any():
        columns |= {"paper's": lambda row: _number(row["paper_difference"], "+.2f")}
    return _markdown(list(columns), [[cell(row) for cell in columns.values()] for row in rows.to_dict("records")])


def _variance(variance: pd.DataFrame) -> list[str]:
    lines = ["## Where the variance is", ""]
    if variance.empty:
        return [*lines, "Not run."]
    cells = [
        [
            row["dataset"],
            row["name"],
            _metric_words({**row, "role": "primary"}),
            _number(row["sd"], ".2f"),
            "–" if math.isnan(row["sd_low"]) else f"{row['sd_low']:.2f} to {row['sd_high']:.2f}",
            "–" if math.isnan(row["share"]) else f"{row['share']:.0f} %",
            _mean_sd(row["mean"], row["sd_of_scores"], 2) + _lost(row),
            row["n"],
            _number(row["paper_sd"], ".1f"),
            row["setting"] + ("" if row["protocol"] == FULL else f" ({row['protocol']})"),
        ]
        for row in variance.to_dict("records")
    ]
    heads = ["data set", "source", "metric", "sd", "95 % interval", "share", "scores", "n", "paper's sd", "of"]
    return [*lines, *_markdown(heads, cells), "", _VARIANCE]


def _architectures(architectures: pd.DataFrame) -> list[str]:
    lines = ["## Depth and width of the MLP", ""]
    if architectures.empty:
        return [*lines, "Not run, or nothing was chosen."]
    heads, cells, explained = architecture_cells(architectures)
    return [*lines, *_markdown(heads, cells), "", explained]


def _searches(searches: pd.DataFrame) -> list[str]:
    lines = ["## Searched settings", ""]
    if searches.empty:
        return [*lines, "Not run."]
    heads, cells, explained = search_cells(searches)
    return [*lines, *_markdown(heads, cells), "", explained]


def _alternatives(report: Report) -> list[str]:
    lines = ["## Without pretraining", ""]
    if report.alternatives.empty:
        return [*lines, "Not run."]
    ours = report.scores[report.scores["name"].str.startswith("adaptive/") & (report.scores["role"] == "primary")]
    # Studies share replicas: of one number the first is enough.
    ours = ours.drop_duplicates(["protocol", "dataset", "name", "mean"])
    cells = []
    for dataset, models in report.alternatives.groupby("dataset", sort=False):
        cells += [[*_score_cells(row), _number(row["val_mean"], ".2f")] for row in models.to_dict("records")]
        for row in ours[ours["dataset"] == dataset].to_dict("records"):
            source = row["study"] if row["protocol"] == FULL else f"{row['study']}, not the full protocol"
            cells.append([*_score_cells({**row, "name": f"{row['name']} ({source})"}), "–"])
    heads = ["data set", "model", "metric", "test", "n", "validation"]
    return [*lines, *_markdown(heads, cells), "", _ALTERNATIVES]


def _score_cells(row: dict[Any, Any]) -> list[Any]:
    return [row["dataset"], row["name"], get_metric(row["metric"]).label, _mean_sd(row["mean"], row["sd"], 2), row["n"]]


def _metric_words(row: dict[Any, Any]) -> str:
    words = {"qwk": "QWK, clinical order", "qwk_alphabetical": "QWK, alphabetical order"}
    label = words.get(row["metric"], get_metric(row["metric"]).label)
    return label if row["role"] == "primary" else f"{label} (exploratory)"


def _mean_sd(mean: float, sd: float, digits: int) -> str:
    if math.isnan(mean):
        return "†"
    return f"{mean:.2f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def _lost(row: dict[Any, Any]) -> str:
    return f" †{row['n_diverged']}" if row["n_diverged"] else ""


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _link(source: Source, folder: Path) -> str:
    path = Path(os.path.relpath(source.folder / next(iter(TABLES[source.study])), folder)).as_posix()
    return f"[{path}]({path})"


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]
