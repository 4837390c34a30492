"""Ranks of methods over data sets, and how far apart average ranks must be (Demsar 2006, J. Mach. Learn. Res. 7).

Ranks are descriptive here: with few data sets and many methods hardly any difference of ranks can be told from chance.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import stats as scipy_stats

from sweeps.service.methods import METHOD, Method
from sweeps.service.stats import Floats, signed_differences

LEVEL = 0.05
"""Of the Nemenyi test that the critical distance belongs to."""


def rank_scores(scores: Floats, sign: int) -> Floats:
    """Ranks [k] of scores [k]: 1 is the best, ties share the mean of their ranks.

    sign: -1 for an error.  nan stands for a method that cannot be scored since its replicas diverged: the worst rank.
    Scores that are equal but for rounding noise tie, see :func:`sweeps.service.stats.signed_differences`.
    """
    gains = signed_differences(scores, np.zeros(len(scores)), sign)
    return np.asarray(scipy_stats.rankdata(-gains), dtype=np.float64)


def critical_distance(n_methods: int, n_datasets: int) -> float:
    """Least difference of two average ranks that the two-sided Nemenyi test at :data:`LEVEL` finds (Nemenyi 1963).

    q sqrt(k (k + 1) / 6 N) for k methods and N data sets; q is the studentised range over sqrt(2).
    """
    studentised = float(scipy_stats.studentized_range.ppf(1 - LEVEL, n_methods, math.inf))
    return studentised / math.sqrt(2) * math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))


def missing_cells(table: pd.DataFrame) -> list[str]:
    """``eol none/none/VR`` for every data set and method of the table without a choice for want of results."""
    missing = table[table["status"] == "missing"]
    return [f"{row['dataset']} {Method.of_row(row).name}" for row in missing.to_dict("records")]


def ranks_frame(table: pd.DataFrame) -> pd.DataFrame | None:
    """One row per method, in the table's order: its rank on each data set, and `average`, the mean of these.

    None while a cell is missing: an average over other data sets than its neighbours' would say nothing.
    """
    if missing_cells(table):
        return None
    wide = table.pivot(index=list(METHOD), columns="dataset", values="rank")
    methods = table[list(METHOD)].drop_duplicates()
    ranks = wide.loc[pd.MultiIndex.from_frame(methods), list(table["dataset"].unique())]
    return ranks.assign(average=ranks.mean(axis=1)).reset_index().rename_axis(columns=None)
