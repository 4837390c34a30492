"""Stacked batch normalisation against its slow twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adaptbin.encoders.normalisation import ghost_sizes, normalise, normalise_batch
from adaptbin.encoders.resnet import ResNetConfig, ResNetEncoder
from adaptbin.replicas.parameters import ParameterBank
from tests.encoders.build import MIXED, bound
from tests.reference import normalisation as twin
from tests.strategies import seeds

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@given(rows=st.integers(1, 600), ghost=st.none() | st.integers(1, 200))
def test_ghost_batches_are_the_twins(rows: int, ghost: int | None) -> None:
    size, rest = ghost_sizes(rows, ghost)
    expected = [len(batch) for batch in twin.ghost_batches(rows, ghost)]
    assert [size] * (rows // size) + [rest] * (rest > 0) == expected
    assert ghost is None or max(expected) <= ghost


@given(
    replicas=st.integers(1, 3),
    rows=st.integers(1, 9),
    units=st.integers(1, 4),
    ghost=st.none() | st.integers(2, 9),
    momentum=st.sampled_from([0.02, 0.1, 1.0]),
    seed=seeds,
)
def test_training_and_evaluation_are_the_twins(
    replicas: int, rows: int, units: int, ghost: int | None, momentum: float, seed: int
) -> None:
    """Several batches on end, so that running statistics are moved and used."""
    rng = np.random.default_rng(seed)
    weight, bias, mean = rng.normal(size=(3, replicas, units))
    variance = rng.uniform(0.5, 2, size=(replicas, units))
    w, b, m, v = (torch.tensor(values) for values in (weight, bias, mean, variance))
    for batch in rng.normal(3, 2, size=(3, replicas, rows, units)):
        out = normalise_batch(torch.tensor(batch), m, v, w, b, momentum=momentum, ghost=ghost)
        evaluated = normalise(torch.tensor(batch), *(values.unsqueeze(1) for values in (m, v, w, b)))
        for r in range(replicas):
            expected, mean[r], variance[r] = twin.train(
                batch[r], mean[r], variance[r], weight[r], bias[r], momentum, ghost
            )
            np.testing.assert_allclose(out[r], expected, **CLOSE)
            np.testing.assert_allclose(m[r], mean[r], **CLOSE)
            np.testing.assert_allclose(v[r], variance[r], **CLOSE)
            expected = twin.evaluate(batch[r], mean[r], variance[r], weight[r], bias[r])
            np.testing.assert_allclose(evaluated[r], expected, **CLOSE)


@pytest.mark.parametrize(("rows", "ghost"), [(5, None), (7, 3), (1, None), (3, 2)])
def test_gradients_are_those_of_finite_differences(rows: int, ghost: int | None) -> None:
    """(7, 3) and (3, 2) leave one row over, which is normalised by statistics that other rows do not decide."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mean, variance = draw(2, 3), draw(2, 3).square() + 0.5

    def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return normalise_batch(x, mean.clone(), variance.clone(), weight, bias, momentum=0.1, ghost=ghost)

    leaves = [draw(*shape).requires_grad_() for shape in ((2, rows, 3), (2, 3), (2, 3))]
    assert torch.autograd.gradcheck(normalised, leaves)


def test_statistics_are_kept_when_the_bank_is_widened_and_start_anew_for_other_replicas() -> None:
    encoder = ResNetEncoder(MIXED, ResNetConfig(d_block=8))
    bank = bound(encoder)
    before = {name: held.clone() for name, held in encoder.statistics.items()}
    encoder.bind(bank.widened(bank.shapes))
    assert all(torch.equal(held, before[name]) for name, held in encoder.statistics.items())
    encoder.bind(ParameterBank(encoder.shapes(), 2))
    for name, held in encoder.statistics.items():
        assert torch.equal(held, torch.full((2, 8), float(name.endswith(".variance"))))


def test_initialising_forgets_what_batches_taught() -> None:
    encoder = ResNetEncoder(MIXED, ResNetConfig(d_block=8))
    bank = bound(encoder)
    encoder.initialise(bank, [torch.Generator()] * 3)
    for name, held in encoder.statistics.items():
        assert torch.equal(held, torch.full((3, 8), float(name.endswith(".variance"))))
