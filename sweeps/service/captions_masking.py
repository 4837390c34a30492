"""What the masking figure says in words: its caption, and what was chosen.

All of it is read from the tables, so words and marks cannot disagree.
"""

from __future__ import annotations

import math

from adaptbin.metrics import get_metric
from sweeps.service.captions import axis_metric
from sweeps.service.captions_choosing import (
    diverged_text,
    mark_key,
    over_seeds,
    rows_text,
    rule_text,
    runner_up_text,
    scores_text,
)
from sweeps.service.grid import MaskingStudy, point_words
from sweeps.service.notes import protocol_notes, seeds_and_probes
from sweeps.service.tables_masking import MaskingTables

RULE = rule_text("less masking, lower p_m, lower T_init")


def choice_text(tables: MaskingTables, study: MaskingStudy) -> str:
    """One sentence: what is chosen, with its scores and how close the next best came; or why nothing is."""
    decision = tables.decision
    if decision.chosen is None:
        return f"Nothing is chosen: {decision.reason}."
    return (
        f"Chosen: {point_words(decision.chosen)}; {scores_text(tables.points, 'chosen')} "
        f"({over_seeds(len(study.seeds))}); {runner_up_text(decision, study)}."
    )


def caption_text(tables: MaskingTables, study: MaskingStudy, *, show_test: bool = False) -> str:
    """The caption as plain text: the figure, the choice, what the seeds did, and departures from the protocol."""
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    sides = {name: ", ".join(map(str, values)) for name, values in study.extent.items()}
    lines = [
        f"Masking and first bins of {dataset}: mean validation {axis_metric(metric)} of {len(points)} points (masking "
        f"{sides['masking']}; p_m {sides['mask_prob']}; T_init {sides['t_init']}; everything else at the default) over "
        f"{seeds_and_probes(study)}. All cell values are validation scores{rows_text(tables.replicas, 'n_val')}"
        f"{', with test scores in brackets below' if show_test else ''}; bold and framed: the choice."
        f"{mark_key(points)}",
        f"The rule: {RULE}.",
        f"{choice_text(tables, study)}{_about_the_choice(tables, study)}",
        _test_note(tables, show_test),
        _replicas_text(tables),
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(filter(None, lines)) + "\n"


def _about_the_choice(tables: MaskingTables, study: MaskingStudy) -> str:
    decision = tables.decision
    if decision.chosen is None:
        return ""
    chosen = tables.replicas[tables.replicas["chosen"]]
    error = chosen["bootstrap_se"].mean()
    parts = [
        f"Its validation score, the best of {decision.n_points - decision.n_diverged}, flatters it; its test score"
        f"{rows_text(tables.replicas, 'n_test')} does not",
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
    told = diverged_text(replicas)
    if finished.empty:
        return f"{told}."
    per_start = [
        f"T_init {t_init}: {rows['triggers_mean'].mean():.0f} triggers, {rows['splits_mean'].mean():.0f} splits, "
        f"{rows['bins_mean'].mean():.1f} bins per feature at the end"
        for t_init, rows in finished.groupby("t_init")
    ]
    return f"Per replica, mean over points: {'; '.join(per_start)}. {told}."
