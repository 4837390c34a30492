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
from sweeps.service.point_fields import value_text
from sweeps.service.search_space import FIELDS, settings_of
from sweeps.service.searches import SearchStudy, Trial
from sweeps.service.tables_search import SearchTables

WINNERS_CURSE = (
    "The best of many scores is partly the luckiest (the winner's curse): the score that a point won the search with "
    "flatters it, so compare the fresh seeds alone. The winner is the best of those that were confirmed, so its lead "
    "there flatters it a little, too: the test decides."
)

_HALVED = (
    "Points were ranked before they had all epochs, and {} of {} left then, so no claim of significance rests on the "
    "search itself; the confirmation is of whole trainings."
)

_SHARED_SECONDS = (
    "The core-seconds of a trial are its share of its packs', which is less in large packs; what the process needed to "
    "start counts in its first one. Small differences between trials of one shape say nothing."
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
    compared = f"{abs(row['difference']):.2g} {against} the default{_between(row['low'], row['high'])}"
    if math.isnan(row["difference"]):
        compared = "with nothing of the default to compare with"
    first = (
        f"Winner: trial {tables.winner.number} ({changes_text(tables.winner, study)}). Validation {metric.label} "
        f"{row['search_mean']:.4f} in the search, {mean_and_sd(row['val_mean'], row['val_sd'])} with fresh seeds "
        f"({seeds}), {compared}."
    )
    if math.isnan(default["test_mean"]):
        return f"{first} Test, read of it alone: {mean_and_sd(row['test_mean'], row['test_sd'])}; the default diverged."
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
            "One test is made of the search as it stands, fixed before the run; a search that goes on may test another "
            "winner on the same rows. Everything is conditional on the split."
        )
    lines += warnings_of(study)
    lines.append(importances_text(tables))
    lines += [f"{note}." for note in protocol_notes(study)]
    return "\n".join(lines) + "\n"


def warnings_of(study: SearchStudy) -> list[str]:
    """What to beware of in the scores of a search."""
    found, left = [WINNERS_CURSE], sum(trial.state == "pruned" for trial in study.trials)
    if left:
        found.append(_HALVED.format(left, len(study.trials)))
    if "seconds" in study.objectives:
        found.append(_SHARED_SECONDS)
    return found


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
