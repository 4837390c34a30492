"""What the masking figure says in words: its caption, and what was chosen.

All of it is read from the tables, so words and marks cannot disagree.
"""

from __future__ import annotations

import math

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.grid import MaskingStudy, point_words
from sweeps.service.notes import protocol_notes, seeds_and_probes
from sweeps.service.tables_masking import MaskingTables

RULE = (
    "chosen is the point with the best mean validation score over all seeds; a point with a diverged seed cannot be "
    "chosen, and ties go to the simplest point (less masking, lower p_m, lower T_init)"
)


def choice_text(tables: MaskingTables, study: MaskingStudy) -> str:
    """One sentence: what is chosen, with its scores and how close the next best came; or why nothing is."""
    decision = tables.decision
    if decision.chosen is None:
        return f"Nothing is chosen: {decision.reason}."
    row = tables.points[tables.points["chosen"]].iloc[0]
    return (
        f"Chosen: {point_words(decision.chosen)}; validation {_mean_and_sd(row['val_mean'], row['val_sd'])}, "
        f"test {_mean_and_sd(row['test_mean'], row['test_sd'])} ({_over(len(study.seeds))}); {runner_up_text(tables)}."
    )


def runner_up_text(tables: MaskingTables) -> str:
    """How close the best of the other points came."""
    runner_up = tables.decision.runner_up
    if runner_up is None:
        return "no other point could be chosen"
    between = "" if math.isnan(runner_up.low) else f" (95 % t interval {runner_up.low:.2g} to {runner_up.high:.2g})"
    behind = f"behind by {runner_up.difference:.2g}" if tables.decision.tied == 1 else "with the same mean"
    return f"runner-up: {point_words(runner_up.hyperparameters)}, {behind} on validation, paired by seed{between}"


def caption_text(tables: MaskingTables, study: MaskingStudy, *, show_test: bool = False) -> str:
    """The caption as plain text: the figure, the choice, what the seeds did, and departures from the protocol."""
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    sides = {name: ", ".join(map(str, values)) for name, values in study.extent.items()}
    lines = [
        f"Masking and first bins of {dataset}: mean validation {axis_metric(metric)} of {len(points)} points (masking "
        f"{sides['masking']}; p_m {sides['mask_prob']}; T_init {sides['t_init']}; everything else at the default) over "
        f"{seeds_and_probes(study)}. All cell values are validation scores{_rows(tables, 'n_val')}"
        f"{', with test scores in brackets below' if show_test else ''}; bold and framed: the choice."
        f"{mark_key(tables)}",
        f"The rule: {RULE}.",
        f"{choice_text(tables, study)}{_about_the_choice(tables, study)}",
        _test_note(tables, show_test),
        _replicas_text(tables),
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(filter(None, lines)) + "\n"


def mark_key(tables: MaskingTables) -> str:
    """What the counts in the cells mean, after a space; nothing where there are none."""
    marks = {"†n: n diverged seeds, so not to be chosen": "n_diverged", "n/m: n of m seeds have a result": "n_missing"}
    told = [text for text, column in marks.items() if (tables.points[column] > 0).any()]
    return f" {'; '.join(told)}." if told else ""


def _rows(tables: MaskingTables, column: str) -> str:
    sizes = sorted(tables.replicas[column].unique())
    return f" (n_{column[2:]} = {' to '.join(str(size) for size in dict.fromkeys((sizes[0], sizes[-1])))})"


def _about_the_choice(tables: MaskingTables, study: MaskingStudy) -> str:
    decision = tables.decision
    if decision.chosen is None:
        return ""
    chosen = tables.replicas[tables.replicas["chosen"]]
    error = chosen["bootstrap_se"].mean()
    parts = [
        f"Its validation score, the best of {decision.n_points - decision.n_diverged}, flatters it; its test score"
        f"{_rows(tables, 'n_test')} does not",
        "the difference to the runner-up is descriptive: no test was planned",
    ]
    if not math.isnan(error):
        parts.append(f"bootstrap SE of the test score over test rows {error:.3f}, in no interval here")
    if study.seeds_vary == "probe":
        parts.append("no interval: one pretraining says nothing about another")
    if study.seeds_vary == "split":
        parts.append("intervals are corrected for shared rows between splits")
    return f" {'; '.join(parts)}."


def _test_note(tables: MaskingTables, show_test: bool) -> str:
    if show_test:
        return "Test scores of all points are shown because they were asked for; they took no part in the choice."
    return "" if tables.decision.chosen is None else "Test scores of the other points are not shown."


def _replicas_text(tables: MaskingTables) -> str:
    points, replicas = tables.points, tables.replicas
    finished = points[points["n"] > 0]
    diverged = int((replicas["status"] == "diverged").sum())
    told = f"{diverged} of {len(replicas)} replicas diverged" if diverged else "No replica diverged"
    if finished.empty:
        return f"{told}."
    per_start = [
        f"T_init {t_init}: {rows['triggers_mean'].mean():.0f} triggers, {rows['splits_mean'].mean():.0f} splits, "
        f"{rows['bins_mean'].mean():.1f} bins per feature at the end"
        for t_init, rows in finished.groupby("t_init")
    ]
    return f"Per replica, mean over points: {'; '.join(per_start)}. {told}."


def _mean_and_sd(mean: float, sd: float) -> str:
    return f"{mean:.4f}" if math.isnan(sd) else f"{mean:.4f} ± {sd:.4f}"


def _over(n_seeds: int) -> str:
    return f"mean ± sd over {n_seeds} seeds" if n_seeds > 1 else "1 seed"
