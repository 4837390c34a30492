"""The twins of what encoders are made of, against torch and pytorch_tabnet."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pytorch_tabnet.sparsemax import sparsemax
from pytorch_tabnet.tab_network import GBN
from torch import nn

from tests.reference import normalisation
from tests.reference import sparsemax as sparse


@pytest.mark.parametrize(("rows", "ghost"), [(7, None), (7, 7), (8, 4), (7, 4), (10, 4), (2, 128)])
def test_normalisation_is_torchs_and_ghost_batches_are_pytorch_tabnets(rows: int, ghost: int | None) -> None:
    rng = np.random.default_rng(0)
    x, weight, bias, mean = rng.normal(size=(rows, 3)), *rng.normal(size=(3, 3))
    variance = rng.uniform(0.5, 2, size=3)
    module = nn.BatchNorm1d(3, momentum=0.2) if ghost is None else GBN(3, ghost, momentum=0.2)
    norm = module if isinstance(module, nn.BatchNorm1d) else module.bn
    with torch.no_grad():
        for tensor, values in (
            (norm.double().weight, weight),
            (norm.bias, bias),
            (norm.running_mean, mean),
            (norm.running_var, variance),
        ):
            tensor.copy_(torch.tensor(values))
        evaluated = normalisation.evaluate(x, mean, variance, weight, bias)
        np.testing.assert_allclose(evaluated, module.eval()(torch.tensor(x)), rtol=1e-12, atol=1e-12)
        out, mean, variance = normalisation.train(x, mean, variance, weight, bias, 0.2, ghost)
        np.testing.assert_allclose(out, module.train()(torch.tensor(x)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mean, norm.running_mean, rtol=1e-12)
    np.testing.assert_allclose(variance, norm.running_var, rtol=1e-12)


@pytest.mark.parametrize("columns", [1, 2, 5, 40])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_is_pytorch_tabnets(columns: int, spread: float) -> None:
    rng = np.random.default_rng(columns)
    for z, upstream in rng.normal(size=(20, 2, columns)) * [[spread], [1.0]]:
        leaf = torch.tensor(z, requires_grad=True)
        expected = sparsemax(leaf, -1)
        expected.backward(torch.tensor(upstream))
        np.testing.assert_allclose(sparse.sparsemax(z), expected.detach(), atol=1e-12)
        np.testing.assert_allclose(sparse.gradient(z, upstream), leaf.grad, atol=1e-12)
