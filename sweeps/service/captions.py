"""What the sensitivity figure says in words: its caption, the key of its marks, the labels of its axes.

All of it is read from the tables, so words and marks cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from adaptbin.metrics import Metric, get_metric
from sweeps.service import stats
from sweeps.service.contrasts import LEVEL, SCORE_MARGIN, TARGET_SD_MARGIN
from sweeps.service.notes import protocol_notes, seeds_and_probes
from sweeps.service.panels import SensitivityStudy
from sweeps.service.point_fields import Value, value_text
from sweeps.service.points import Study
from sweeps.service.tables import finished_scores, rows_of

DOTS_UP_TO = 4
"""Data sets in one figure up to which single seeds are drawn; more would hide the means."""

TEST_NAMES = {
    "wilcoxon": "exact two-sided Wilcoxon signed-rank test",
    "t": "two-sided paired t test",
    "corrected_t": "two-sided corrected resampled t test (variance times 1/n + n_test/n_train)",
}


class Words(NamedTuple):
    """How a kind of study calls what its points are compared with, and what is adjusted together."""

    against: str
    of_it: str
    """The same after "of"."""
    family: str
    lost: str = "n diverged replicas"
    """What ``†n`` counts."""


SENSITIVITY = Words("default", "the default", "panel")


def figure_notes(study: Study, replicas: pd.DataFrame) -> tuple[str, ...]:
    """What must be seen on the figure itself: departures from the paper's protocol, and metrics chosen afterwards."""
    exploratory = replicas.loc[replicas["role"] == "exploratory", ["dataset", "metric"]].drop_duplicates()
    named = ", ".join(
        f"{get_metric(metric).label} of {dataset}"
        for dataset, metric in zip(exploratory["dataset"], exploratory["metric"], strict=True)
    )
    notes = (f"Exploratory, not the primary metric: {named}",) if named else ()
    return (*protocol_notes(study), *notes)


def reachable_stars(significance: pd.DataFrame) -> list[str]:
    """Star marks that at least one of these tests could earn, fewest stars first."""
    floor = significance.loc[significance["test"] != "none", "p_floor_holm"].min()
    return [mark for level, mark in reversed(stats.STARS) if floor <= level]


def mark_key(significance: pd.DataFrame, words: Words = SENSITIVITY) -> str:
    """One line that explains the marks of these contrasts; names only the stars that can be reached."""
    tested = significance[significance["test"] != "none"]
    levels = {mark: level for level, mark in stats.STARS}
    stars = reachable_stars(significance)
    parts = [f"{mark} p ≤ {levels[mark]:g}" for mark in stars]
    if stars:
        parts[-1] += f" (vs {words.against}, Holm within {words.family})"
    elif len(tested):
        parts.append(f"No difference can be significant (least adjusted p {tested['p_floor_holm'].min():.3g})")
    elif len(significance):
        parts.append(f"No marks: {_first_reason(significance)}")
    if tested["p_tost"].notna().any():
        parts.append(f"{stats.EQUIVALENT_MARK} equivalent within {margin_text(tested)}")
    if (tested["mark"] == stats.IDENTICAL_MARK).any():
        parts.append(f"{stats.IDENTICAL_MARK} identical scores")
    if (significance["n_diverged"] > 0).any():
        parts.append(f"†n: {words.lost}")
    return "; ".join(parts) + "." if parts else ""


def _first_reason(untested: pd.DataFrame) -> str:
    return str(untested["note"].iloc[0]).split(";")[0].removeprefix("no test: ")


def margin_text(significance: pd.DataFrame) -> str:
    """The equivalence margins of these contrasts, in words."""
    metrics = [get_metric(name) for name in significance["metric"].unique()]
    kinds = {metric.in_target_units for metric in metrics}
    return " or ".join(
        f"±{TARGET_SD_MARGIN:g} sd of the train target" if kind else f"±{SCORE_MARGIN:g}" for kind in sorted(kinds)
    )


def value_labels(values: Sequence[Value], defaults: Collection[Value]) -> list[str]:
    """Tick labels in mathtext: powers of ten where a panel goes below 0.01, defaults in bold."""
    powers = any(0 < value < 0.01 for value in values if not isinstance(value, str))
    labels = []
    for value in values:
        body = _power(value) if powers else None
        body = value_text(value) if body is None else body
        labels.append(rf"$\mathbf{{{body}}}$" if value in defaults else rf"$\mathrm{{{body}}}$")
    return labels


def _power(value: Value) -> str | None:
    """A power of ten below 1 in mathtext; None for any other value."""
    if isinstance(value, str) or not 0 < value < 1:
        return None
    exponent = round(math.log10(value))
    return f"10^{{{exponent}}}" if math.isclose(value, 10.0**exponent) else None


def axis_label(replicas: pd.DataFrame) -> str:
    """Label of the y axis: the score and its direction, or the difference to the default when data sets are several.

    Breaks before the direction when one line would be higher than a panel.
    """
    metrics = {name: get_metric(name) for name in replicas["metric"].unique()}
    only = next(iter(metrics.values()))
    if replicas["dataset"].nunique() == 1:
        label = f"Test {axis_metric(only)}"
    else:
        label = f"Test {only.label if len(metrics) == 1 else 'score'} − default (up is better)"
    what, direction = label.rsplit(" (", 1)
    return label if len(label) < 30 else f"{what}\n({direction}"


def axis_metric(metric: Metric) -> str:
    """Name and direction of a metric, as axis label."""
    return f"{metric.label} ({'higher' if metric.higher_is_better else 'lower'} is better)"


def caption_text(
    significance: pd.DataFrame,
    replicas: pd.DataFrame,
    study: SensitivityStudy,
    titles: Mapping[str, str] | None = None,
) -> str:
    """The caption as plain text, one paragraph on the figure and one line per data set.

    titles: how to name the data sets, by key.
    """
    titles = titles or {}
    datasets = [dataset for dataset in study.datasets if dataset in set(replicas["dataset"])]
    named = ", ".join(titles.get(dataset, dataset) for dataset in datasets)
    defaults = ", ".join(
        f"{panel.key} {' or '.join(map(value_text, study.default_values(panel)))}" for panel in study.panels
    )
    several = len(study.panels) > 1
    text = [
        f"Sensitivity of {named} to {', '.join(panel.key for panel in study.panels)}.",
        f"{'Each panel moves one of them' if several else 'One hyperparameter moves'}; everything else stays at the "
        f"default ({defaults}; bold tick).",
        drawn_text(replicas, study),
        *testing_text(significance, study),
    ]
    lines = [dataset_line(dataset, titles.get(dataset, dataset), significance, replicas) for dataset in datasets]
    notes = [f"{note}." for note in figure_notes(study, replicas)]
    return "\n".join([" ".join(text), *lines, *notes]) + "\n"


def drawn_text(replicas: pd.DataFrame, study: Study) -> str:
    """What markers, bars, dots and grey in panels of one field are."""
    n_datasets = replicas["dataset"].nunique()
    unit = seeds_and_probes(study)
    corrected = ", corrected for shared rows between splits" if study.seeds_vary == "split" else ""
    single = len(study.seeds) == 1
    if n_datasets == 1:
        bars = (
            "" if single else f"bars: 95 % t intervals over seeds, not adjusted{corrected}; small dots: single seeds; "
        )
        band = "dashed line: the default" if single else "grey band: the interval of the default"
        return f"Markers: mean test score over {unit}; {bars}{band}."
    bars = "" if single else f"bars: 95 % t intervals of the mean paired difference, not adjusted{corrected}; "
    dots = "" if single or n_datasets > DOTS_UP_TO else "small dots: single seeds; "
    has_errors = any(get_metric(name).in_target_units for name in replicas["metric"].unique())
    errors = ", errors in sd of the train target" if has_errors else ""
    return (
        f"Markers: mean difference of the test score to the default of the same seed, over {unit}, signed so that up "
        f"is better{errors}; {bars}{dots}grey: the equivalence margin."
    )


def testing_text(significance: pd.DataFrame, study: Study, words: Words = SENSITIVITY) -> list[str]:
    """How points were tested and what marks mean; why there are none, where no test was run."""
    tested = significance[significance["test"] != "none"]
    if tested.empty:
        return [f"No test was run and no mark is drawn: {_first_reason(significance)}."] if len(significance) else []
    tests = " / ".join(TEST_NAMES[name] for name in tested["test"].unique())
    sizes = " or ".join(str(size) for size in sorted(tested["family"].unique()))
    article = "an" if words.family[0] in "aeiou" else "a"
    wholes = " or ".join(str(size) for size in sorted(tested["figure_family"].unique()))
    return [
        f"Marks: {tests} of point against {words.against}, paired by seed, Holm over the {sizes} contrasts of "
        f"{article} {words.family} of one data set (over all {wholes} contrasts of a data set: column p_holm_figure of "
        "significance.csv).",
        mark_key(significance, words),
        f"Equivalence: two one-sided paired t tests (90 % interval inside the margin), Holm within {words.family}. No "
        "mark means undecided, not robust.",
        "Each seed has its own split."
        if study.seeds_vary == "split"
        else "Everything is conditional on the split: the test rows are the same for all seeds, and their own sampling "
        "error, given below, is in no bar and no p.",
    ]


def dataset_line(
    dataset: str, title: str, significance: pd.DataFrame, replicas: pd.DataFrame, words: Words = SENSITIVITY
) -> str:
    """What the tests of one data set rest on: rows, noise, floors, margin, and what the default's replicas did."""
    of_dataset = rows_of(replicas, dataset)
    contrasts = rows_of(significance, dataset)
    tested = contrasts[contrasts["test"] != "none"]
    metric = get_metric(of_dataset["metric"].iloc[0])
    default = of_dataset[of_dataset["is_default"]].drop_duplicates("seed")
    sizes = sorted(of_dataset["n_test"].unique())
    parts = [
        axis_metric(metric)
        + (", exploratory: not the primary metric" if (of_dataset["role"] == "exploratory").any() else ""),
        f"n_test = {sizes[0]}" if len(sizes) == 1 else f"n_test = {sizes[0]} to {sizes[-1]}",
    ]
    scores, errors = finished_scores(default), default["bootstrap_se"].dropna()
    if len(scores):
        parts.append(f"{words.against} {scores.mean():.4f}")
    if len(errors):
        parts.append(f"its bootstrap SE over test rows {errors.mean():.3f}")
    if len(tested):
        pairs = sorted(tested["n"].unique())
        parts.append(f"n = {pairs[0]} pairs" if len(pairs) == 1 else f"n = {pairs[0]} to {pairs[-1]} pairs")
        parts.append(floor_text(tested))
        parts.append(f"margin ±{tested['margin'].iloc[0]:.3g}")
        out = int(tested["margin_out_of_reach"].sum())
        if out:
            parts.append(f"margin out of reach in {out} of {len(tested)} contrasts")
        detectable = tested["detectable"].median()
        if not math.isnan(detectable):
            parts.append(f"detectable at 80 % power {detectable:.3g} (median of contrasts)")
    untested = contrasts[contrasts["test"] == "none"]
    if len(tested) and len(untested):
        parts.append(f"{len(untested)} contrasts without a test ({_first_reason(untested)})")
    if len(default):
        parts.append(refinement_text(default, words))
    diverged = of_dataset[of_dataset["status"] == "diverged"]["id"].nunique()
    parts.append(f"{diverged} of {of_dataset['id'].nunique()} replicas diverged" if diverged else "none diverged")
    return f"{title}: {'; '.join(parts)}."


def refinement_text(default: pd.DataFrame, words: Words = SENSITIVITY) -> str:
    """Whether adaptive bins were at work in the default's replicas."""
    refined = default[["triggers", "splits", "bins_mean"]].mean()
    return (
        f"per replica of {words.of_it} {refined['triggers']:.0f} triggers, {refined['splits']:.0f} splits, "
        f"{refined['bins_mean']:.1f} bins per feature at the end"
    )


def floor_text(tested: pd.DataFrame) -> str:
    """The least p that these tests can give, and how many stars that can be."""
    raw, adjusted = tested["p_floor"].min(), tested["p_floor_holm"].min()
    if raw == 0:
        return "no floor on p"
    stars = reachable_stars(tested)
    most = f"at most {stars[-1]}" if adjusted <= LEVEL else "no star can be reached"
    return f"least possible p {raw:.3g}, adjusted {adjusted:.3g}: {most}"
