"""FPT: the rule with memory as tables of series, against the twin, and replica by replica."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

from adaptbin.binning.trigger import Plateau, plateau_step
from tests.reference import trigger as twin
from tests.strategies import PlateauCase, plateau_cases

NAN = math.nan


def run(case: PlateauCase, replicas: slice = slice(None)) -> tuple[Plateau, torch.Tensor]:
    """Final state and everything that fired [E, R, D]."""
    losses, growable = torch.tensor(case.losses[:, replicas]), torch.tensor(case.growable[:, replicas])
    patience, delta = torch.tensor(case.patience[replicas]), torch.tensor(case.delta[replicas])
    state, fired = Plateau.start(*losses.shape[1:]), []
    for epoch in range(len(losses)):
        state, now = plateau_step(state, losses[epoch], patience=patience, delta=delta, growable=growable[epoch])
        fired.append(now)
    return state, torch.stack(fired)


@pytest.mark.parametrize(
    ("patience", "delta", "series", "fires_at"),
    [
        (1, 0.0, [3, 2, 1, 0], []),
        (1, 0.0, [3, 3, 3, 3, 3], [1, 3]),  # the epoch after a reset always improves
        (2, 0.0, [3, 2, 2, 2, 2, 2, 2], [3, 6]),
        (3, 0.0, [5, 6, 7, 4, 4, 4, 4], [6]),  # an improvement resets the count
        (2, 0.5, [3.0, 2.75, 2.5, 1.0], [2]),  # a decrease of exactly delta is none
        (2, 0.5, [3.0, 2.75, 2.25, 2.0], []),
        (2, 0.5, [3.0, 2.75, 2.5, 9.0, 8.75, 8.6], [2, 5]),  # after firing the old best is forgotten
        (2, 0.0, [1, 1, NAN, 1], [2]),
        (2, 0.0, [NAN, NAN, 1, 1, 1], [1, 4]),
        (2, 0.0, [1, NAN, 0.5, 0.5, NAN], [4]),
        (2, 0.0, [math.inf, math.inf, 1], [1]),
    ],
)
def test_series(patience: int, delta: float, series: list[float], fires_at: list[int]) -> None:
    state, found = Plateau.start(1, 1), []
    for epoch, loss in enumerate(series):
        state, fired = plateau_step(
            state,
            torch.tensor([[loss]], dtype=torch.float64),
            patience=torch.tensor([patience]),
            delta=torch.tensor([delta], dtype=torch.float64),
            growable=torch.tensor([[True]]),
        )
        found += [epoch] * int(fired)
        if fired:
            assert state.best.item() == math.inf and state.stale.item() == 0
    assert found == fires_at


def test_a_full_feature_never_fires_and_does_so_at_once_when_it_may_grow() -> None:
    state = Plateau.start(1, 1)
    rule = {"patience": torch.tensor([2]), "delta": torch.tensor([0.0], dtype=torch.float64)}
    for epoch in range(6):
        state, fired = plateau_step(
            state, torch.ones(1, 1, dtype=torch.float64), **rule, growable=torch.tensor([[epoch == 5]])
        )
        assert bool(fired) == (epoch == 5)


@settings(deadline=None)
@given(case=plateau_cases())
def test_the_rule_is_the_twins(case: PlateauCase) -> None:
    state, fired = run(case)
    n_epochs, n_replicas, n_columns = case.losses.shape
    for r in range(n_replicas):
        for d in range(n_columns):
            rule = twin.Plateau()
            for epoch in range(n_epochs):
                expected = rule.step(
                    float(case.losses[epoch, r, d]),
                    patience=int(case.patience[r]),
                    delta=float(case.delta[r]),
                    growable=bool(case.growable[epoch, r, d]),
                )
                assert bool(fired[epoch, r, d]) == expected
            assert (state.best[r, d].item(), state.stale[r, d].item()) == (rule.best, rule.stale)


@settings(deadline=None)
@given(case=plateau_cases())
def test_a_replica_alone_equals_its_slice(case: PlateauCase) -> None:
    state, fired = run(case)
    for r in range(case.losses.shape[1]):
        alone, alone_fired = run(case, slice(r, r + 1))
        assert torch.equal(alone_fired[:, 0], fired[:, r])
        assert torch.equal(alone.best[0], state.best[r]) and torch.equal(alone.stale[0], state.stale[r])


def test_the_state_passed_in_is_left_as_it_was() -> None:
    before = Plateau(torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.int64))
    after, _ = plateau_step(
        before,
        torch.tensor([[0.5, 2.0]], dtype=torch.float64),
        patience=torch.tensor([1]),
        delta=torch.tensor([0.0], dtype=torch.float64),
        growable=torch.ones(1, 2, dtype=torch.bool),
    )
    assert before.best.tolist() == [[1.0, 1.0]] and before.stale.tolist() == [[0, 0]]
    assert after.best.tolist() == [[0.5, math.inf]]
