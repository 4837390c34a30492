"""What the ablation figure says in words: its caption, the label of its axis, and what grey and markers are.

All of it is read from the tables, so words and marks cannot disagree.
"""

from __future__ import annotations

from adaptbin.metrics import get_metric
from sweeps.service.captions import DOTS_UP_TO, Words, dataset_line, figure_notes, testing_text
from sweeps.service.notes import seeds_and_probes
from sweeps.service.tables import rows_of
from sweeps.service.tables_ablation import AblationTables
from sweeps.service.variants import FULL, GROUPS, T_MAXS, AblationStudy

WORDS = Words(FULL, FULL, "group")


def axis_label(tables: AblationTables) -> str:
    """Label of the axis of differences: which way they are taken, so that right is better."""
    metrics = [get_metric(name) for name in tables.replicas["metric"].unique()]
    if len(tables.datasets) == 1:
        (metric,) = metrics
        taken = "variant − full" if metric.higher_is_better else "full − variant"
        return f"Test {metric.label}, {taken} of the same seed (right is better)"
    what = metrics[0].label if len(metrics) == 1 else "score"
    errors = "; errors in sd of the train target" if any(metric.in_target_units for metric in metrics) else ""
    return f"Test {what} against full of the same seed (right is better{errors})"


def caption_text(tables: AblationTables, study: AblationStudy) -> str:
    """The caption as plain text: the variants and how they were tested, then two lines per data set."""
    lines = [
        f"Ablation of adaptive binning on {', '.join(tables.datasets)}. Full is the default point; each variant "
        f"changes one thing of it: {_variants_text(tables)}. The groups are families of tests: {_groups_text(tables)}."
        f"{_left_out(study)}",
        _drawn(tables, study),
        *testing_text(tables.significance, study, WORDS),
    ]
    of_datasets = [
        line
        for name in tables.datasets
        for line in (
            dataset_line(name, name, tables.significance, tables.replicas, WORDS),
            _refinement_text(tables, name),
        )
    ]
    notes = [f"{note}." for note in figure_notes(study, tables.replicas)]
    return "\n".join([" ".join(filter(None, lines)), *of_datasets, *notes]) + "\n"


def _variants_text(tables: AblationTables) -> str:
    """``w/o FWA: t_max = 2; ...``; where data sets differ in a change, all that there are."""
    variants = tables.points[~tables.points["is_default"]]
    return "; ".join(
        f"{name}: {' or '.join(dict.fromkeys(rows['changes']))}"
        for name, rows in variants.groupby("variant", sort=False)
    )


def _left_out(study: AblationStudy) -> str:
    """Which of the usual bounds are not tried, and why."""
    fulls = {name: study.default_of(name) for name in study.datasets}
    told = [
        f"T_max {t_max} is left out, T_init of {', '.join(names)} being no lower"
        for t_max in T_MAXS
        if t_max not in study.bounds and (names := [name for name, full in fulls.items() if full.t_init >= t_max])
    ]
    return f" {'; '.join(told)}." if told else ""


def _groups_text(tables: AblationTables) -> str:
    variants = tables.points[~tables.points["is_default"]]
    named = {group: variants.loc[variants["group"] == group, "variant"].unique() for group in GROUPS}
    return ", ".join(f"{GROUPS[group]} {len(names)} ({', '.join(names)})" for group, names in named.items())


def _drawn(tables: AblationTables, study: AblationStudy) -> str:
    several, single = len(tables.datasets) > 1, len(study.seeds) == 1
    has_errors = any(get_metric(name).in_target_units for name in tables.replicas["metric"].unique())
    errors = ", errors in sd of the train target" if several and has_errors else ""
    corrected = ", corrected for shared rows between splits" if study.seeds_vary == "split" else ""
    if single or study.seeds_vary == "probe":
        bars = ""  # as in the table of contrasts
    else:
        bars = f"bars: 95 % t intervals of the mean paired difference, not adjusted{corrected}; "
    dots = "" if single or len(tables.datasets) > DOTS_UP_TO else "small dots: single seeds; "
    return (
        f"Markers: mean difference of the test score to full of the same seed, over {seeds_and_probes(study)}, signed "
        f"so that right is better{errors}; {bars}{dots}grey: the equivalence margin."
    )


def _refinement_text(tables: AblationTables, dataset: str) -> str:
    """Triggers, splits and bins of every variant: they tell whether its part was at work at all."""
    told = [
        f"{row['variant']} {row['triggers_mean']:.0f}, {row['splits_mean']:.0f}, {row['bins_mean']:.1f}"
        for row in rows_of(tables.points, dataset).to_dict("records")
        if row["n"] and not row["is_default"]
    ]
    return (
        f"{dataset}, triggers, splits and bins per replica of the variants: {'; '.join(told) or 'none finished'}."
        f"{''.join(f' {names} have the same scores in every seed.' for names in _alike(tables, dataset))}"
    )


def _alike(tables: AblationTables, dataset: str) -> list[str]:
    """``w/o DIGS and w/o Gain_var``: variants that differ from full but not from each other, which looks like a slip.

    It is none: either gain alone can let every split pass that min_bin allows.
    """
    names: dict[tuple[float, ...], list[str]] = {}
    of_dataset = rows_of(tables.replicas, dataset)
    for variant, rows in of_dataset.sort_values("seed").groupby("variant", sort=False):
        if rows["test"].notna().all():
            names.setdefault(tuple(rows["test"]), []).append(str(variant))
    return [" and ".join(alike) for alike in names.values() if len(alike) > 1 and FULL not in alike]
