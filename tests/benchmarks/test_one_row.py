"""The part of an error that one test row makes."""

from __future__ import annotations

import numpy as np
import pytest

from adaptbin.config import Budget
from adaptbin.data.encode import EncodedTable
from adaptbin.tasks import Task
from tests.benchmarks.one_row import chosen_replicas, errors_frame
from tests.training.tables import small_replica, small_table


def far_off(row: int) -> EncodedTable:
    """A table of a number to predict, which is absurd in one row."""
    table = small_table(250, task=Task.REGRESSION)
    table.target[row] = 500.0
    return table


def test_the_row_is_told_from_the_others() -> None:
    row = int(small_table(250, task=Task.REGRESSION).test[3])
    budget = Budget(epochs=2, probe_epochs=2, probes=2)
    replicas = {"any": [small_replica(seed, {}, budget=budget) for seed in range(2)]}
    errors = errors_frame(replicas, far_off(row), row)
    assert list(errors["seed"]) == [0, 1] and errors["error_on_row"].between(450, 550).all()
    assert (errors["rmse_without_row"] < errors["rmse"] / 5).all()
    n = len(far_off(row).test)
    together = np.sqrt((errors["error_on_row"] ** 2 + (n - 1) * errors["rmse_without_row"] ** 2) / n)
    np.testing.assert_allclose(together, errors["rmse"], rtol=1e-3)
    with pytest.raises(ValueError, match="row must be one of test, got -1"):
        errors_frame(replicas, far_off(row), -1)


def test_replicas_are_of_what_validation_chose() -> None:
    (replicas,) = chosen_replicas(["adaptive/random/Ours"], range(2)).values()
    points = {(r.hyperparameters.masking, r.hyperparameters.mask_prob, r.hyperparameters.t_init) for r in replicas}
    assert points == {("random", 0.2, 2)} and [r.seed for r in replicas] == [0, 1]
