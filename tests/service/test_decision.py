"""The choice on validation: the best mean wins; ties, diverged and missing seeds; errors count the other way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from adaptbin.config import Hyperparameters
from sweeps.service.grid import MaskingStudy
from sweeps.service.tables_masking import masking_tables
from tests.service.synthetic import METRIC_OF, FakeCard, make_grid_records, peaked, seeds

BEST = Hyperparameters(masking="constant", mask_prob=0.3, t_init=10)
OTHER = Hyperparameters(masking="random", mask_prob=0.1, t_init=2)


def decided(scorer=None, dataset="eol", n=4, drop=(), **options):
    """The decision on synthetic records; ``drop`` holds (point, seed) without a result."""
    study = MaskingStudy(cards=(FakeCard(dataset),), seeds=seeds(n), **options)
    lost = {study.replica(study.cards[0], point, seed).id for point, seed in drop}
    records = [record for record in make_grid_records(study, scorer or peaked(BEST)) if record["id"] not in lost]
    return masking_tables(records, study, METRIC_OF[dataset]).decision


def constant(values, otherwise=0.8):
    """The same validation score for every seed of a point, and a test score that would choose another."""
    return lambda point, seed: (values.get(point, otherwise), 1 - values.get(point, otherwise))


def test_the_best_mean_on_validation_wins_whatever_test_says():
    decision = decided()
    assert (decision.chosen, decision.reason, decision.tied) == (BEST, "", 1)
    assert (decision.n_points, decision.n_diverged) == (14, 0)
    assert decided(constant({BEST: 0.9, OTHER: 0.85})).chosen == BEST


def test_an_error_is_best_where_it_is_lowest():
    assert decided(constant({BEST: 0.7, OTHER: 0.9}), dataset="pt").chosen == BEST
    runner_up = decided(constant({BEST: 0.5, OTHER: 0.7}), dataset="pt").runner_up
    assert runner_up.point == OTHER
    assert runner_up.difference == pytest.approx(0.2)  # positive: the choice is better


def test_the_mean_over_seeds_counts_not_the_best_seed():
    def scorer(point, seed):
        if point == OTHER:
            return (0.99 if seed == 0 else 0.5), 0.5
        return (0.9 if point == BEST else 0.8), 0.5

    assert decided(scorer).chosen == BEST


def test_a_tie_goes_to_the_first_of_the_grid():
    first = replace(BEST, mask_prob=0.1, t_init=10)
    decision = decided(constant({BEST: 0.9, first: 0.9, OTHER: 0.9}))
    assert (decision.chosen, decision.tied) == (first, 3)
    assert (decision.runner_up.point, decision.runner_up.difference) == (BEST, 0.0)
    everything = decided(constant({}))
    assert (everything.chosen, everything.tied) == (Hyperparameters(), 14)
    # The order of a sum is no difference, a real one is.
    assert decided(constant({BEST: 0.9, OTHER: 0.9 + 1e-15})).chosen == BEST
    assert decided(constant({BEST: 0.9, OTHER: 0.9 + 1e-9})).chosen == OTHER


def test_a_point_with_a_diverged_seed_cannot_be_chosen():
    good = constant({BEST: 0.95, OTHER: 0.9})
    decision = decided(lambda point, seed: None if (point, seed) == (BEST, 2) else good(point, seed))
    assert (decision.chosen, decision.n_points, decision.n_diverged) == (OTHER, 14, 1)
    assert decision.runner_up.point == Hyperparameters()
    alone = decided(lambda point, seed: good(point, seed) if point == OTHER else None)
    assert (alone.chosen, alone.runner_up, alone.n_diverged) == (OTHER, None, 13)
    nothing = decided(lambda point, seed: None if seed == 3 else good(point, seed))
    assert (nothing.chosen, nothing.reason) == (None, "every point has a diverged seed")


def test_nothing_is_chosen_while_seeds_are_missing():
    decision = decided(drop=[(OTHER, 1)])
    assert decision.chosen is None and decision.runner_up is None
    assert decision.reason == "1 of 14 points lack results: random, p_m 0.1, T_init 2 (seed 1)"
    every = [(point, seed) for point in MaskingStudy(cards=(FakeCard("eol"),)).points for seed in (1, 2, 3)]
    assert decided(drop=every).reason == (
        "14 of 14 points lack results, such as none, T_init 2 (seeds 1 to 3); none, T_init 10 (seeds 1 to 3); "
        "constant, p_m 0.1, T_init 2 (seeds 1 to 3)"
    )


def test_the_runner_up_is_compared_seed_by_seed():
    scorer = peaked(BEST)
    runner_up = decided(scorer, n=6).runner_up
    pairs = np.array([[scorer(point, seed)[0] for point in (BEST, runner_up.point)] for seed in range(6)])
    differences = pairs[:, 0] - pairs[:, 1]
    interval = scipy_stats.ttest_1samp(differences, 0).confidence_interval()
    np.testing.assert_allclose([runner_up.difference, runner_up.low, runner_up.high], [differences.mean(), *interval])
    assert runner_up.high - runner_up.low < 0.01 < pairs.std()  # what the seeds share is gone

    split = decided(scorer, n=6, seeds_vary="split").runner_up  # 338 validation and 1350 train rows
    factor = math.sqrt(1 + 6 * 338 / 1350)
    assert split.high - split.low == pytest.approx(factor * (runner_up.high - runner_up.low))
    probe = decided(scorer, n=6, seeds_vary="probe").runner_up
    assert probe.difference == runner_up.difference and math.isnan(probe.low) and math.isnan(probe.high)
    assert math.isnan(decided(scorer, n=1).runner_up.low)
