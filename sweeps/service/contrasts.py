"""Every point against the default, seed by seed: one row per contrast, adjusted within its panel and over the figure.

The unit is the seed of pretraining.  A family is one panel of one data set (k - 1 contrasts, Holm), or one group of
ablations; beside it stands a figure-wide Holm over all contrasts of the data set.  The test is chosen before the run:

=============  =========================  ===========================================
`seeds_vary`   asked for                  test
=============  =========================  ===========================================
pretrain       wilcoxon (default), t      exact signed rank, or paired t
split          either                     corrected resampled t (splits share rows)
probe          either                     none: one pretraining says nothing of another
=============  =========================  ===========================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from adaptbin.metrics import Metric, get_metric
from sweeps.service import stats
from sweeps.service.panels import SensitivityStudy
from sweeps.service.points import AskedTest
from sweeps.service.stats import Floats
from sweeps.service.tables import rows_of, variance_ratio

LEVEL = 0.05
"""Family-wise error of a panel, and of its equivalence tests."""

SCORE_MARGIN = 0.01
"""Differences of a unitless score (AUC, accuracy, kappa, ...) below this are of no interest."""

TARGET_SD_MARGIN = 0.02
"""The same for an error in target units, in standard deviations of the train target."""

_NAN_PAIR = (math.nan, math.nan)

PROBE_NOTE = "no test: seeds vary the evaluation alone, and one pretraining says nothing about another"

Place = Mapping[str, Any]
"""Columns of the table of replicas that name a point -> what they hold for it."""

CONTRAST = (
    *("metric", "role", "test"),
    *("n", "n_diverged", "n_zero", "difference", "low", "high", "sd_difference", "dz"),
    *("p_better", "p_better_low", "p_better_high", "correlation", "detectable"),
    *("statistic", "p", "p_holm", "p_holm_figure", "p_floor", "p_floor_holm", "family", "figure_family"),
    *("margin", "tost_low", "tost_high", "p_tost", "p_tost_holm", "equivalent", "margin_out_of_reach"),
    *("mark", "verdict", "note"),
)
"""Columns that tell of a contrast; before them stand those that name it."""

COLUMNS = ("dataset", "panel", "value", "default_value", *CONTRAST)


def margin_of(metric: Metric, target_sd: float) -> float:
    """Equivalence margin in the metric's unit.  target_sd: sd of the train target, in target units."""
    return TARGET_SD_MARGIN * target_sd if metric.in_target_units else SCORE_MARGIN


def pairs_of(of_dataset: pd.DataFrame, place: Place) -> tuple[Floats, Floats]:
    """Test scores of a point and of the default, [n] each, for the seeds that both have; nan for a diverged replica."""
    of_point = np.logical_and.reduce([of_dataset[column] == value for column, value in place.items()])
    point = of_dataset[of_point].set_index("seed")["test"]
    default = of_dataset[of_dataset["is_default"]].drop_duplicates("seed").set_index("seed")["test"]
    both = point.index.intersection(default.index, sort=True)
    return point.loc[both].to_numpy(dtype=np.float64), default.loc[both].to_numpy(dtype=np.float64)


def significance_frame(
    replicas: pd.DataFrame, study: SensitivityStudy, *, test: AskedTest = "wilcoxon"
) -> pd.DataFrame:
    """One row per planned contrast, with columns :data:`COLUMNS`.

    Differences, intervals (`low`, `high`: 95 % t interval, unadjusted) and margins are in the metric's unit, signed so
    that positive is better.  A p, interval or effect that does not exist is nan, and `note` says why.

    p_floor: least p this test can give for these pairs; p_floor_holm: that times the family.
    detectable: true difference that a paired t test at 0.05 / family finds with 80 % power.
    mark: ``*`` to ``***`` from `p_holm`, then ``≈`` where `p_tost_holm` <= 0.05; ``≡`` alone where all pairs tie.
    """
    rows: list[dict[str, Any]] = []
    for dataset in study.datasets:
        of_dataset = rows_of(replicas, dataset)
        if of_dataset.empty:
            continue
        families = [
            [
                {"panel": key, "value": point.cell}
                for point in study.points[dataset]
                if point.panel == key and not point.is_default
            ]
            for key in study.panel_keys
        ]
        defaults = {point.panel: point.cell for point in study.points[dataset] if point.is_default}
        for row in contrast_rows(of_dataset, families, test=test, planned=len(study.seeds)):
            rows.append(row | {"dataset": dataset, "default_value": defaults[row["panel"]]})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def contrast_rows(
    of_dataset: pd.DataFrame, families: Sequence[Sequence[Place]], *, test: AskedTest, planned: int
) -> list[dict[str, Any]]:
    """Every point of one data set against its default: place and :data:`CONTRAST` of each, family by family.

    of_dataset: table of replicas, at least one; ``is_default`` marks those of the default.  planned: seeds asked for.
    """
    rows = [row for places in families for row in family_rows(of_dataset, places, test=test, planned=planned)]
    return judged(rows)


def family_rows(
    of_dataset: pd.DataFrame, places: Sequence[Place], *, test: AskedTest, planned: int
) -> list[dict[str, Any]]:
    """Points of one family against the rows that ``is_default`` marks, adjusted together; see :func:`contrast_rows`."""
    family = [_contrast(of_dataset, place, test, planned, len(places)) for place in places]
    _adjust(family, {"p": "p_holm", "p_tost": "p_tost_holm"})
    return family


def judged(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows of one data set, with what they are only together: adjusted over all, marks and verdicts."""
    _adjust(rows, {"p": "p_holm_figure"})
    return [row | {"figure_family": len(rows)} | _judge(row) for row in rows]


def _adjust(rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    for raw, adjusted in columns.items():
        for row, p in zip(rows, stats.holm(np.array([row[raw] for row in rows])), strict=True):
            row[adjusted] = float(p)


def _contrast(of_dataset: pd.DataFrame, place: Place, asked: AskedTest, planned: int, family: int) -> dict[str, Any]:
    """One row, before adjustment."""
    metric = get_metric(of_dataset["metric"].iloc[0])
    point, default = pairs_of(of_dataset, place)
    ratio = variance_ratio(of_dataset)
    margin = margin_of(metric, float(of_dataset["target_sd"].mean()))
    differences = stats.signed_differences(point, default, metric.sign)
    finished = ~np.isnan(point) & ~np.isnan(default)
    paired = differences[finished]
    inferable = of_dataset["seeds_vary"].iloc[0] != "probe"
    test, reason = _choose_test(of_dataset["seeds_vary"].iloc[0], asked, finished)

    low, high = stats.mean_interval(paired, variance_ratio=ratio) if inferable else _NAN_PAIR
    better = stats.probability_better(differences if inferable else differences[:0])
    row = {
        **place,
        "metric": metric.name,
        "role": of_dataset["role"].iloc[0],
        "test": test,
        "n": len(differences),
        "n_diverged": int((~finished).sum()),
        "n_zero": int((differences == 0).sum()),
        "difference": float(paired.mean()) if len(paired) else math.nan,
        "low": low,
        "high": high,
        "sd_difference": stats.standard_deviation(paired),
        "dz": stats.effect_size(paired if inferable else paired[:0]),
        "p_better": better.value,
        "p_better_low": better.low,
        "p_better_high": better.high,
        "correlation": stats.correlation(point[finished], default[finished]),
        "family": family,
        "margin": margin,
        **_tested(test, differences, ratio),
        # A t statistic over the finished pairs alone would praise a point for losing its worst runs.
        **_equivalence(paired if inferable and finished.all() else paired[:0], margin, ratio),
    }
    row["p_floor_holm"] = min(1.0, row["p_floor"] * family)
    reachable = row["p_floor_holm"] <= LEVEL
    row["detectable"] = math.nan
    if test != "none" and reachable and finished.all():
        row["detectable"] = stats.detectable_difference(
            row["sd_difference"], len(paired), LEVEL / family, variance_ratio=ratio
        )
    notes = {
        reason: bool(reason),
        f"{planned - len(differences)} of {planned} seeds missing": len(differences) < planned,
        f"{row['n_diverged']} of {len(differences)} pairs diverged: worst rank, no t, no equivalence": row["n_diverged"]
        > 0,
        f"nothing can be significant: least adjusted p is {row['p_floor_holm']:.3g}": test != "none" and not reachable,
        "no p: the differences are equal, nothing estimates the noise": test != "none" and math.isnan(row["p"]),
    }
    return row | {"note": "; ".join(note for note, holds in notes.items() if holds)}


def _choose_test(seeds_vary: str, asked: AskedTest, finished: npt.NDArray[np.bool_]) -> tuple[str, str]:
    """Name of the test of pairs with these outcomes [n], and why there is none."""
    if seeds_vary == "probe":
        return "none", PROBE_NOTE
    if len(finished) < 2:
        return "none", f"no test: needs at least 2 pairs, got {len(finished)}"
    if not finished.any():
        return "none", "no test: every pair has a diverged replica"
    test = "corrected_t" if seeds_vary == "split" else asked
    if test != "wilcoxon" and not finished.all():
        return "none", "no test: a t test cannot rank a diverged replica"
    return test, ""


def _tested(test: str, differences: Floats, ratio: float) -> dict[str, float]:
    if test == "none":
        return {"statistic": math.nan, "p": math.nan, "p_floor": math.nan}
    if test == "wilcoxon":
        rank = stats.signed_rank_test(differences)
        return {"statistic": rank.statistic, "p": rank.p, "p_floor": rank.floor}
    t = stats.paired_t_test(differences, ratio)
    return {"statistic": t.statistic, "p": t.p, "p_floor": 0.0}


def _equivalence(paired: Floats, margin: float, ratio: float) -> dict[str, float]:
    tost = stats.equivalence_test(paired, margin, ratio)
    return {"tost_low": tost.low, "tost_high": tost.high, "p_tost": tost.p, "margin_out_of_reach": tost.out_of_reach}


def _judge(row: dict[str, Any]) -> dict[str, Any]:
    """Mark and verdict of an adjusted row."""
    equivalent = bool(row["p_tost_holm"] <= LEVEL)
    if row["test"] == "none":
        mark, verdict, equivalent = "", "no test", False
    elif row["n_zero"] == row["n"] and row["n_diverged"] == 0:
        mark, verdict = stats.IDENTICAL_MARK, "identical"
    else:
        found = stats.stars(row["p_holm"])
        mark = found + (stats.EQUIVALENT_MARK if equivalent else "")
        words = [("better" if row["statistic"] > 0 else "worse") if found else "", "equivalent" if equivalent else ""]
        undecided = "margin out of reach" if row["margin_out_of_reach"] else "undecided"
        verdict = ", ".join(word for word in words if word) or undecided
    return {"mark": mark, "verdict": verdict, "equivalent": equivalent}
