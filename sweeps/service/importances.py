"""How much each searched field matters for the score, told in two ways from the trials of a search.

fANOVA (Hutter, Hoos & Leyton-Brown 2014) is the share of a forest's variance over the whole space that a field has by
itself; PED-ANOVA (Watanabe, Bansal & Hutter 2023) is how much the best trials gather in some of its values.
"""

from __future__ import annotations

import warnings

import optuna
import pandas as pd
from optuna.importance import BaseImportanceEvaluator, FanovaImportanceEvaluator, PedAnovaImportanceEvaluator
from optuna.trial import TrialState

from adaptbin.metrics import get_metric
from sweeps.service.searches import SearchStudy
from sweeps.service.trials import Direction, distribution_of

FOREST_SEED = 0
"""Of the forest that fANOVA fits, so that equal trials have equal importances."""

LEAST_TRIALS = 10
"""Complete trials below which importances would be noise."""

COLUMNS = ["field", "fanova", "ped_anova"]


def importances_frame(study: SearchStudy) -> pd.DataFrame:
    """One row per field that every complete trial has, with its share by fANOVA and by PED-ANOVA, the largest first.

    Of no rows where fewer than :data:`LEAST_TRIALS` trials are complete, or all have one score or one value.
    """
    done = [trial for trial in study.trials if trial.state == "complete"]
    # p_m has no value without a masking, so it is no field of all trials, and one of the others would be left out.
    fields = [
        name
        for name in study.space.searched
        if all(name in trial.chosen for trial in done) and len({trial.chosen[name] for trial in done}) > 1
    ]
    if len(done) < LEAST_TRIALS or not fields or len({trial.values[0] for trial in done}) < 2:
        return pd.DataFrame(columns=COLUMNS)
    direction: Direction = "maximize" if get_metric(study.metric).higher_is_better else "minimize"
    told = optuna.create_study(direction=direction)
    for trial in done:
        told.add_trial(
            optuna.create_trial(
                state=TrialState.COMPLETE,
                params={name: trial.chosen[name] for name in fields},
                distributions={name: distribution_of(study.space.searched[name]) for name in fields},
                value=trial.values[0],
            )
        )
    evaluators: dict[str, BaseImportanceEvaluator] = {
        "fanova": FanovaImportanceEvaluator(seed=FOREST_SEED),
        "ped_anova": PedAnovaImportanceEvaluator(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials are told of in the caption
        shares = {
            name: optuna.importance.get_param_importances(told, evaluator=evaluator, params=fields)
            for name, evaluator in evaluators.items()
        }
    rows = [{"field": name, **{kind: share[name] for kind, share in shares.items()}} for name in fields]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.sort_values("fanova", ascending=False, kind="stable").reset_index(drop=True)
