"""What a search says in words: how it was run, what was found, what fresh seeds make of it, and what to beware of."""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd

from adaptbin.metrics import get_metric
from sweeps.service.captions import TEST_NAMES, axis_metric
from sweeps.service.captions_choosing import diverged_text, mean_and_sd, over_seeds, rows_text
from sweeps.service.importances import LEAST_TRIALS
from sweeps.service.notes import named_seeds, protocol_notes, seeds_and_probes
from sweeps.service.search_ranges import value_text
from sweeps.service.search_space import FIELDS, settings_of
from sweeps.service.searches import SearchStudy, Trial
from sweeps.service.tables_search import SearchTables

WINNERS_CURSE = (
    "The best of many scores is partly the luckiest (the winner's curse): the score that a point won the search with "
    "flatters it, so compare the fresh seeds alone."
)

HALVED = (
    "Most points were ranked before they had all epochs, so no claim of significance rests on the search itself; the "
    "confirmation is of whole trainings."
)


def changes_text(trial: Trial, study: SearchStudy) -> str:
    """``tau = 0.001, width = 64``: what a trial's point changes of the default; "nothing" where it is the default."""
    default, settings = settings_of(study.default_point), settings_of(study.point_of(trial))
    changed = [f"{name} = {_short(settings[name])}" for name in FIELDS if settings[name] != default[name]]
    return ", ".join(changed) or "nothing"


def found_text(tables: SearchTables, study: SearchStudy) -> str:
    """What was found, with fresh seeds, and the one test; or why there is nothing to say."""
    if not study.ranked:
        return "No trial is complete, so nothing was found."
    if tables.confirmation.empty:
        best = study.ranked[0]
        if study.confirms:
            return (
                f"No point but the default is complete: validation {best.values[0]:.4f}. There is nothing to confirm."
            )
        return f"Best so far: trial {best.number}, validation {best.values[0]:.4f}; not confirmed with fresh seeds yet."
    if tables.winner is None:
        return "None of the best trials has a result for every fresh seed, so there is no winner."
    frame, metric = tables.confirmation, get_metric(study.metric)
    row = frame[frame["winner"]].iloc[0]
    default = frame[frame["is_default"]].iloc[0]
    seeds = over_seeds(len(study.confirm_seeds))
    against = "behind" if row["difference"] < 0 else "ahead of"
    first = (
        f"Winner: trial {tables.winner.number} ({changes_text(tables.winner, study)}). Validation {metric.label} "
        f"{row['search_mean']:.4f} in the search, {mean_and_sd(row['val_mean'], row['val_sd'])} with fresh seeds "
        f"({seeds}), {abs(row['difference']):.2g} {against} the default"
        f"{_between(row['low'], row['high'])}."
    )
    test = (
        f"Test, read of these two alone: winner {mean_and_sd(row['test_mean'], row['test_sd'])}, default "
        f"{mean_and_sd(default['test_mean'], default['test_sd'])}"
    )
    return f"{first} {test}; {contrast_text(tables.significance)}."


def contrast_text(significance: pd.DataFrame) -> str:
    """Difference on test, its interval, p and verdict."""
    row = significance.iloc[0]
    told = f"difference {row['difference']:+.2g}{_between(row['low'], row['high'])}"
    if row["test"] == "none":
        return f"{told}; {row['note']}"
    note = f"; {row['note']}" if row["note"] else ""
    return f"{told}, p = {row['p']:.2g} ({TEST_NAMES[row['test']]}): {row['verdict']}{note}"


def caption_text(tables: SearchTables, study: SearchStudy) -> str:
    """The caption of the pictures and tables, as plain text."""
    counts = Counter(trial.state for trial in study.trials)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    seeded = sum(trial.is_seeded for trial in study.trials)
    taken = f", {seeded} of them taken over from searches of other spaces" if seeded else ""
    metric = get_metric(study.metric)
    lines = [
        f"Search of {study.datasets[0]}: {len(study.trials)} trials ({states}){taken}. The score of a trial is its "
        f"mean validation {axis_metric(metric)} over {seeds_and_probes(study)}{rows_text(tables.replicas, 'n_val')}; "
        f"{diverged_text(tables.replicas).lower()}, and a trial with a diverged seed has failed.",
        f"Space: {'; '.join(f'{name} {domain}' for name, domain in study.space.searched.items())}.",
        found_text(tables, study),
    ]
    if len(tables.confirmation):
        lines.append(
            f"The best {len(study.best)} and the default were trained again with {named_seeds(study.confirm_seeds)}, "
            f"which no trial had{rows_text(tables.replicas, 'n_test')}. The winner is the best of them on validation. "
            "One test is made, fixed before the run. Everything is conditional on the split."
        )
    lines.append(WINNERS_CURSE)
    if study.halving is not None:
        lines.append(HALVED)
    lines.append(importances_text(tables))
    lines += [f"{note}." for note in protocol_notes(study)]
    return "\n".join(lines) + "\n"


def importances_text(tables: SearchTables) -> str:
    """What the importances are; or why there are none."""
    if tables.importances.empty:
        return f"Importances need {LEAST_TRIALS} complete trials of different scores."
    return (
        "Importances: shares of the variance of a forest over the whole space (fANOVA), and of how the best trials "
        "gather (PED-ANOVA). They tell of the trials that were made, which a sampler chose; p_m is left out where some "
        "trials mask nothing."
    )


def _between(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" (95 % t interval {low:+.2g} to {high:+.2g})"


def _short(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)
