"""Tables of the fine-tuning study: one row per replica, per arm and per contrast, and the console's view.

An arm is one method with one encoder on one data set.  It is compared, seed by seed, with what is not pretrained and
with BinRecon, of the same encoder; the contrasts with one of them are a family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from adaptbin.config import EncoderName
from adaptbin.metrics import get_metric
from sweeps.service.contrasts import CONTRAST, family_rows, judged
from sweeps.service.methods_finetune import AGAINST, ENCODER_TITLES, METHODS, Arm, FinetuneMethod, FinetuneStudy
from sweeps.service.ranks import rank_scores
from sweeps.service.tables import (
    console_table,
    frame_of_places,
    number_text,
    point_numbers,
    rows_of,
    variance_ratio,
)

ARM = ("dataset", "encoder", "method")
"""Columns that name an arm."""

MARKS: dict[FinetuneMethod, str] = {"supervised": "mark_supervised", "BR": "mark_br"}
"""What an arm is compared with -> the column of the table that its mark is in."""

COLUMNS = (
    *(*ARM, "setting", "masking", "mask_prob", "t_init", "chosen", "metric", "n", "n_diverged", "n_missing"),
    *("mean", "sd", "low", "high", "val_mean", *MARKS.values(), "is_best"),
    *("bins_mean", "bins_max", "triggers_mean", "splits_mean", "seconds_mean"),
)


@dataclass(frozen=True)
class FinetuneTables:
    """What is known of a study of one or several data sets."""

    replicas: pd.DataFrame
    """One row per replica that has a record, arm by arm."""
    table: pd.DataFrame
    """One row per arm, with columns :data:`COLUMNS`; see :func:`finetune_tables`."""
    significance: pd.DataFrame
    """One row per contrast; `against` says with what, see :mod:`sweeps.service.contrasts`."""

    @property
    def datasets(self) -> list[str]:
        """Data sets that have a replica, in the study's order."""
        return list(dict.fromkeys(self.replicas["dataset"]))

    def against(self, other: FinetuneMethod) -> pd.DataFrame:
        """Contrasts with one method."""
        return self.significance[self.significance["against"] == other]


def finetune_tables(
    records: Iterable[Mapping[str, Any]], study: FinetuneStudy, metrics: Mapping[str, str], primary: Mapping[str, str]
) -> FinetuneTables:
    """Tables of a study; ``records`` that it does not ask for are left out.

    ``metrics`` and ``primary`` name a metric per data set; where the two differ the column `role` says "exploratory".
    Of each arm `setting` (and `masking`, `mask_prob`, `t_init`: empty where nothing is pretrained, or nothing binned)
    is how it was pretrained, `chosen` whether validation chose that; `n` counts finished seeds, over which mean, sd
    (ddof 1), the 95 % t interval (`low`, `high`) and the mean validation score are; `n_diverged` and `n_missing` the
    others.
    `mark_supervised` and `mark_br` repeat the table of contrasts.  `is_best`: no other method of the encoder has a
    better mean; of no arm while one of the encoder lacks seeds, and of none with a diverged seed.

    Raises ConfigError on an unknown metric, DataError when a finished record lacks the metric.
    """
    places = {name: [(arm.place, study.point_of(name, arm)) for arm in study.arms] for name in study.datasets}
    replicas = frame_of_places(records, study, places, metrics, primary, ARM)
    contrasts: list[dict[str, Any]] = []
    for dataset in study.datasets:
        contrasts += _contrasts(rows_of(replicas, dataset), dataset, study)
    significance = pd.DataFrame(contrasts, columns=["dataset", "encoder", "against", "method", *CONTRAST])
    marks = {tuple(row[name] for name in (*ARM, "against")): row["mark"] for row in significance.to_dict("records")}
    rows = []
    for dataset in study.datasets:
        of_dataset = rows_of(replicas, dataset)
        for encoder in study.encoders:
            rows += _rows_of_encoder(of_dataset, dataset, encoder, study, metrics[dataset], marks)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return FinetuneTables(replicas, table.astype({"t_init": "Int64"}), significance)


def _contrasts(of_dataset: pd.DataFrame, dataset: str, study: FinetuneStudy) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if of_dataset.empty:
        return rows
    for encoder in study.encoders:
        of_encoder = of_dataset["encoder"] == encoder
        for other, methods in AGAINST.items():
            # An encoder without records keeps its contrasts: the family of all must not shrink for the others.
            compared = of_dataset.assign(is_default=of_encoder & (of_dataset["method"] == other))
            places = [{"encoder": encoder, "method": method} for method in methods]
            family = family_rows(compared, places, test=study.test, planned=len(study.seeds))
            rows += [{"dataset": dataset, "against": other, **row} for row in family]
    return judged(rows)


def _rows_of_encoder(
    of_dataset: pd.DataFrame,
    dataset: str,
    encoder: EncoderName,
    study: FinetuneStudy,
    metric: str,
    marks: Mapping[tuple[str, ...], str],
) -> list[dict[str, Any]]:
    ratio, rows = variance_ratio(of_dataset), []
    for method in METHODS:
        arm = rows_of_arm(of_dataset, dataset, Arm(encoder, method))
        rows.append(
            {
                "dataset": dataset,
                "encoder": encoder,
                "method": method,
                **_pretraining(study, dataset, method),
                "metric": metric,
                "n_missing": len(study.seeds) - len(arm),
                **{column: marks.get((dataset, encoder, method, other), "") for other, column in MARKS.items()},
                **point_numbers(arm, ratio),
            }
        )
    # A mean over the other seeds would praise an arm for losing its worst.
    means = np.array([math.nan if row["n_diverged"] else row["mean"] for row in rows])
    ranks = rank_scores(means, get_metric(metric).sign)
    complete = all(row["n_missing"] == 0 for row in rows)
    for row, mean, rank in zip(rows, means, ranks, strict=True):
        row["is_best"] = bool(complete and np.isfinite(mean) and rank == ranks.min())
    return rows


def _pretraining(study: FinetuneStudy, dataset: str, method: FinetuneMethod) -> dict[str, Any]:
    point, chosen = study.hyperparameters_of(dataset, method), dataset in study.pretext_choices
    is_pretrained, has_bins = method != "supervised", method in ("BR", "Ours")
    return {
        "setting": study.setting_of(dataset, method),
        "masking": point.masking if is_pretrained else None,
        "mask_prob": point.mask_prob if is_pretrained else np.nan,
        "t_init": point.t_init if has_bins else None,
        "chosen": chosen and is_pretrained,
    }


def rows_of_arm(frame: pd.DataFrame, dataset: str, arm: Arm) -> pd.DataFrame:
    """Rows of a table that are of an arm."""
    return frame[(frame["dataset"] == dataset) & (frame["encoder"] == arm.encoder) & (frame["method"] == arm.method)]


def summary_table(tables: FinetuneTables, dataset: str) -> Table:
    """What the console shows of one data set: per encoder and method the score and both differences, with marks."""
    rows = rows_of(tables.table, dataset)
    metric = get_metric(rows["metric"].iloc[0])
    title = f"{dataset}: test {metric.label} ({'higher' if metric.higher_is_better else 'lower'} is better)"
    against = [text for other in AGAINST for text in (f"vs\n{other}", "mark")]
    columns = ("encoder", "method", "pretrained with", "n", "mean", "sd", *against)
    table = console_table(title, columns, left=("encoder", "method", "pretrained with", "mark"))
    contrasts = {
        (row["encoder"], row["method"], row["against"]): row
        for row in rows_of(tables.significance, dataset).to_dict("records")
    }
    for encoder, of_encoder in rows.groupby("encoder", sort=False):
        for position, row in enumerate(of_encoder.to_dict("records")):
            compared = [contrasts.get((encoder, row["method"], other)) for other in AGAINST]
            table.add_row(
                ENCODER_TITLES[row["encoder"]] if position == 0 else "",
                row["method"],
                "" if row["method"] == "supervised" else row["setting"],
                f"{row['n']} (†{row['n_diverged']})" if row["n_diverged"] else str(row["n"]),
                *(number_text(row[name], ".4f") for name in ("mean", "sd")),
                *(text for contrast in compared for text in _difference_cells(contrast)),
                style="bold" if row["is_best"] else None,
            )
        table.add_section()
    return table


def _difference_cells(contrast: Mapping[Any, Any] | None) -> tuple[str, str]:
    return ("", "") if contrast is None else (number_text(contrast["difference"], "+.4f"), contrast["mark"])
