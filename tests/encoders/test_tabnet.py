"""TabNetEncoder against pytorch_tabnet, one replica at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from pytorch_tabnet.tab_network import TabNetNoEmbeddings
from torch import nn

from adaptbin.encoders.base import Columns
from adaptbin.encoders.tabnet import TabNetConfig, TabNetEncoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, upstream
from tests.encoders.oracle import assert_same, copy_into, statistics_of, turned
from tests.paths import BOTH, using

SMALL = TabNetConfig(n_d=3, n_a=2, n_steps=2, virtual_batch_size=4, lambda_sparse=0.1)

ALL_KINDS_OF_LAYERS = pytest.mark.parametrize(
    "config",
    [
        SMALL,
        TabNetConfig(),
        dataclasses.replace(SMALL, n_shared=0),
        dataclasses.replace(SMALL, n_shared=1, n_independent=1, gamma=1.0),
    ],
    ids=["small", "default", "nothing shared", "one of each"],
)


def theirs(config: TabNetConfig) -> Callable[[str], str]:
    """Our name of a parameter -> that of pytorch_tabnet, which counts shared and own layers apart."""

    def translate(name: str) -> str:
        kind, *rest = name.split(".")
        if kind == "input":
            return f"encoder.initial_bn.{rest[-1]}"
        if kind == "shared":
            return f"encoder.initial_splitter.shared.shared_layers.{rest[0]}.weight"
        step, last = int(rest[0]), f"bn.bn.{rest[-1]}" if "normalisation" in rest else "fc.weight"
        if kind == "attention":
            return f"encoder.att_transformers.{step - 1}.{last}"
        transformer = f"feat_transformers.{step - 1}" if step else "initial_splitter"
        layer = int(rest[1])
        part = f"shared.glu_layers.{layer}" if layer < config.n_shared else None
        return f"encoder.{transformer}.{part or f'specifics.glu_layers.{layer - config.n_shared}'}.{last}"

    return translate


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytorch_tabnet take its factor, the root of one half, in float64 as well: it asks for float32 by name."""
    monkeypatch.setattr(torch, "FloatTensor", torch.DoubleTensor)


def published(config: TabNetConfig) -> TabNetNoEmbeddings:
    """pytorch_tabnet up to its last linear layer, in float64: the matrix that groups columns is no parameter."""
    settings = dataclasses.asdict(config)
    del settings["lambda_sparse"]
    model = TabNetNoEmbeddings(MIXED.inputs, 1, **settings)
    model.final_mapping = nn.Identity()
    model.encoder.group_attention_matrix = model.encoder.group_attention_matrix.double()
    return model.double()


def check_step(config: TabNetConfig, rows: int, *, double: bool, tolerance: float) -> None:
    """Embedding, gradients of input and parameters, and statistics, against the published model in float64."""
    encoder, translate = TabNetEncoder(MIXED, config), theirs(config)
    bank, x = bound(encoder, double=double), inputs(MIXED, rows, double=double)
    gradient = upstream(encoder, x)
    models = [published(config) for _ in range(REPLICAS)]
    parameters = [copy_into(model, encoder, bank, r, translate) for r, model in enumerate(models)]
    out = encoder.forward(x, None)
    below = encoder.backward(gradient, input_gradient=True)
    assert below is not None
    for r, model in enumerate(models):
        leaf = x[r].double().requires_grad_()
        expected, sparsity = model.train()(leaf)
        # Its sparsity is the negative entropy.
        ((expected * gradient[r].double()).sum() - config.lambda_sparse * sparsity).backward()
        assert leaf.grad is not None
        assert_same(out[r].double(), expected.detach(), tolerance)
        assert_same(below[r].double(), leaf.grad, tolerance)
        for name, parameter in parameters[r].items():
            assert parameter.grad is not None
            assert_same(turned(bank.gradient(name)[r]).double(), parameter.grad, tolerance)
        for name, held in statistics_of(model, encoder, translate).items():
            assert_same(encoder.statistics[name][r].double(), held, tolerance)


@ALL_KINDS_OF_LAYERS
@pytest.mark.parametrize("rows", [4, 6, 11])
@pytest.mark.usefixtures("in_float64")
def test_a_training_step_is_the_published_models(config: TabNetConfig, rows: int) -> None:
    """In float64: the equations are the same."""
    check_step(config, rows, double=True, tolerance=1e-9)


@ALL_KINDS_OF_LAYERS
@pytest.mark.parametrize("rows", [6, 40])
@pytest.mark.parametrize("way", BOTH)
@pytest.mark.usefixtures("in_float64")
def test_so_it_is_in_float32_up_to_rounding(config: TabNetConfig, rows: int, way: str) -> None:
    """A dozen normalisations of few rows, one after the other, magnify the rounding of float32 to 1e-3."""
    with using(way):
        check_step(config, rows, double=False, tolerance=1e-3)


@ALL_KINDS_OF_LAYERS
@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("double", "tolerance"), [(False, 1e-5), (True, 1e-9)])
def test_evaluation_is_the_published_models(config: TabNetConfig, double: bool, tolerance: float) -> None:
    encoder = TabNetEncoder(MIXED, config)
    bank, x = bound(encoder, double=double), inputs(MIXED, 5, double=double)
    out = encoder.evaluate(x)
    for r in range(REPLICAS):
        model = published(config)
        copy_into(model, encoder, bank, r, theirs(config))
        expected = model.eval()(x[r].double())[0].detach()
        torch.testing.assert_close(out[r].double(), expected, rtol=tolerance, atol=tolerance)


def test_each_replica_has_its_own_sparsity_term() -> None:
    """Twice the weight, twice the pull, whoever else is in the stack."""
    pulls = []
    for weight in (0.0, 0.1, 0.2):
        encoder = TabNetEncoder(MIXED, dataclasses.replace(SMALL, lambda_sparse=weight))
        bank, x = bound(encoder, double=True), inputs(MIXED, 7, double=True)
        encoder.forward(x, None)
        encoder.backward(upstream(encoder, x), input_gradient=False)
        pulls.append(bank.gradients.clone())
    torch.testing.assert_close(pulls[2] - pulls[0], 2 * (pulls[1] - pulls[0]))
    assert (pulls[1] - pulls[0]).flatten(1).any(dim=1).all()


def test_a_batch_of_one_row_is_normalised_as_in_evaluation_and_teaches_nothing() -> None:
    encoder = TabNetEncoder(MIXED, SMALL)
    bound(encoder)
    x, before = inputs(MIXED, 1), {name: held.clone() for name, held in encoder.statistics.items()}
    torch.testing.assert_close(encoder.forward(x, None), encoder.evaluate(x))
    assert all(torch.equal(held, before[name]) for name, held in encoder.statistics.items())


def test_it_starts_as_the_published_model_does() -> None:
    """Spread of every tensor of 2000 numbers and more; normalisations alike."""
    columns, config = Columns(400), TabNetConfig(n_d=32, n_a=32)
    encoder = TabNetEncoder(columns, config)
    bank = ParameterBank(encoder.shapes(), 2)
    encoder.initialise(bank, [torch.Generator().manual_seed(r) for r in range(2)])
    model = TabNetNoEmbeddings(400, 1, n_d=32, n_a=32)
    for name in encoder.shapes():
        ours, their = bank.view(name), model.get_parameter(theirs(config)(name.removeprefix("encoder."))).detach()
        assert float(ours.std()) == pytest.approx(float(their.std()), rel=0.05)
        assert float(ours.mean()) == pytest.approx(float(their.mean()), abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_d": 0}, "n_d must be a whole number >= 1, got 0"),
        ({"n_shared": -1}, "n_shared must be a whole number >= 0, got -1"),
        ({"n_shared": 0, "n_independent": 0}, "n_shared \\+ n_independent must be at least 1, got 0"),
        ({"virtual_batch_size": 1}, "virtual_batch_size must be a whole number >= 2, got 1"),
        ({"gamma": 0.9}, "gamma must be a finite number >= 1, got 0.9"),
        ({"momentum": 0.0}, "momentum must be a finite number > 0, got 0.0"),
        ({"momentum": 1.5}, "momentum must be at most 1, got 1.5"),
        ({"lambda_sparse": float("nan")}, "lambda_sparse must be a finite number >= 0, got nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TabNetConfig(**settings)
