"""What the architecture figure says in words: its caption, what was chosen, and whether the paper chose the same.

All of it is read from the tables, so words and marks cannot disagree.
"""

from __future__ import annotations

import math

from adaptbin.metrics import get_metric
from sweeps.service.architectures import ArchitectureStudy, chooser_of
from sweeps.service.captions import axis_metric
from sweeps.service.captions_choosing import (
    behind_text,
    diverged_text,
    mark_key,
    over_seeds,
    rows_text,
    rule_text,
    runner_up_text,
    scores_text,
)
from sweeps.service.notes import protocol_notes, seeds_and_probes
from sweeps.service.tables_architecture import ArchitectureTables, Comparison

RULE = rule_text("lower depth, then lower width")


def choice_text(tables: ArchitectureTables, study: ArchitectureStudy) -> str:
    """What is chosen, and whether that is what the paper (or the card) chose; or why nothing is."""
    decision, points = tables.decision, tables.points
    if decision.chosen is None:
        return f"Nothing is chosen: {decision.reason}."
    chosen = f"{study.words_of(decision.chosen)}; {scores_text(points, 'chosen')} ({over_seeds(len(study.seeds))})"
    paper = study.words_of(study.default_point_of(study.datasets[0]))
    whose = f"{chooser_of(study.datasets[0])}'s"
    found = tables.comparison
    if found is None:
        return f"Chosen: {chosen}. The {whose} choice ({paper}) has a diverged seed and cannot be compared."
    if found.is_reproduced:
        return f"The {whose} choice is reproduced: {chosen}; {runner_up_text(decision, study)}."
    if found.paper.difference == 0:
        return f"The {whose} choice ({paper}) ties with a simpler one, which is chosen: {chosen}."
    return (
        f"The {whose} choice is not reproduced. Chosen: {chosen}. The {whose}: {paper}; "
        f"{scores_text(points, 'paper')}; {behind_text(found.paper)}, {_within_text(found)}."
    )


def _within_text(found: Comparison) -> str:
    if math.isnan(found.standard_error):
        return "and one seed has no standard error"
    within = "within" if found.is_within else "not within"
    return f"{within} one standard error of the best ({found.standard_error:.2g})"


def frame_key(tables: ArchitectureTables) -> str:
    """What frames and counts mean."""
    chosen = "" if tables.decision.chosen is None else "Bold, in an orange frame: the choice; "
    whose = f"{chooser_of(tables.points['dataset'].iloc[0])}'s"
    return f"{chosen}{'d' if chosen else 'D'}ashed frame: the {whose}.{mark_key(tables.points)}"


def caption_text(tables: ArchitectureTables, study: ArchitectureStudy) -> str:
    """The caption as plain text: the figure, the choice, what the seeds did, and departures from the protocol."""
    (dataset,), points = study.datasets, tables.points
    metric = get_metric(points["metric"].iloc[0])
    sides = {name: ", ".join(map(str, values)) for name, values in study.extent.items()}
    lines = [
        f"Depth and width of the MLP on {dataset}: mean validation {axis_metric(metric)} of {len(points)} "
        f"architectures (depth {sides['depth']}; width {sides['width']}) over {seeds_and_probes(study)}. All are "
        f"trained on labels alone, from scratch, {study.finetuning.epochs} epochs of which validation chooses one. "
        f"All cell values are validation scores{rows_text(tables.replicas, 'n_val')}, with test scores of the choice "
        f"and of the {chooser_of(dataset)}'s in brackets below. {frame_key(tables)}",
        f"The rule: {RULE}.",
        f"{choice_text(tables, study)}{_about_the_choice(tables)}",
        "Test scores of the other architectures are not shown.",
        f"{diverged_text(tables.replicas)}.",
        *(f"{note}." for note in protocol_notes(study)),
    ]
    return "\n".join(lines) + "\n"


def _about_the_choice(tables: ArchitectureTables) -> str:
    decision = tables.decision
    if decision.chosen is None:
        return ""
    error = tables.replicas.loc[tables.replicas["chosen"], "bootstrap_se"].mean()
    parts = [
        f"Its validation score, the best of {decision.n_points - decision.n_diverged}, flatters it, and with it "
        "the difference; its test score does not",
        "differences are descriptive: no test was planned",
    ]
    if not math.isnan(error):
        parts.append(f"bootstrap SE of the test score over test rows {error:.3f}, in no interval here")
    return f" {'; '.join(parts)}."
