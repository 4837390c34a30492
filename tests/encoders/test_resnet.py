"""ResNetEncoder against the authors' package, one replica at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from rtdl_revisiting_models import ResNet
from torch import Tensor, nn

from adaptbin.encoders.base import Columns, DropSite
from adaptbin.encoders.resnet import ResNetConfig, ResNetEncoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, masks, upstream
from tests.encoders.oracle import Kept, assert_same, copy_into, statistics_of, turned

SMALL = ResNetConfig(n_blocks=2, d_block=6, d_hidden_multiplier=1.5, dropout1=0.25, dropout2=0.1)
ROWS = 7
NUMBERS = Columns(4)


def theirs(name: str) -> str:
    return name.replace("input.", "input_projection.").replace("normalisation", "normalization")


def published(columns: Columns, config: ResNetConfig, kept: Sequence[Tensor] | None, r: int) -> ResNet:
    """The authors' model up to its last linear layer, which drops what ``kept`` says, or nothing."""
    model = ResNet(
        d_in=columns.inputs,
        d_out=1,
        n_blocks=config.n_blocks,
        d_block=config.d_block,
        d_hidden_multiplier=config.d_hidden_multiplier,
        dropout1=0.0,
        dropout2=0.0,
    )
    model.output.linear = nn.Identity()
    given = iter([] if kept is None else kept)
    for block in model.blocks:
        for name, rate in (("dropout1", config.dropout1), ("dropout2", config.dropout2)):
            if kept is not None and rate > 0:
                setattr(block, name, Kept(next(given)[r], rate))
    return model


MODELS = pytest.mark.parametrize(
    ("columns", "config"),
    [(MIXED, SMALL), (NUMBERS, SMALL), (MIXED, ResNetConfig())],
    ids=["both kinds", "numbers only", "default"],
)


@MODELS
@pytest.mark.parametrize("dropped", [True, False])
# Float64 says that the equations are the same; float32, by how much rounding moves them.
@pytest.mark.parametrize(("double", "tolerance"), [(True, 1e-11), (False, 1e-4)])
def test_a_training_step_is_the_published_models(
    columns: Columns, config: ResNetConfig, dropped: bool, double: bool, tolerance: float
) -> None:
    encoder = ResNetEncoder(columns, config)
    bank, x = bound(encoder, double=double), inputs(columns, ROWS, double=double)
    gradient = upstream(encoder, x)
    kept = masks(encoder, ROWS) if dropped else None
    models = [published(columns, config, kept, r).to(x.dtype) for r in range(REPLICAS)]
    parameters = [copy_into(model, encoder, bank, r, theirs) for r, model in enumerate(models)]
    out = encoder.forward(x, kept)
    below = encoder.backward(gradient, input_gradient=True)
    assert below is not None
    for r, model in enumerate(models):
        leaf = x[r].clone().requires_grad_()
        expected = model.train()(leaf)
        expected.backward(gradient[r])
        assert leaf.grad is not None
        assert_same(out[r], expected.detach(), tolerance)
        assert_same(below[r], leaf.grad, tolerance)
        for name, parameter in parameters[r].items():
            assert parameter.grad is not None
            assert_same(turned(bank.gradient(name)[r]), parameter.grad, tolerance)
        for name, held in statistics_of(model, encoder, theirs).items():
            assert_same(encoder.statistics[name][r], held, tolerance)


@MODELS
def test_evaluation_is_the_published_models(columns: Columns, config: ResNetConfig) -> None:
    encoder = ResNetEncoder(columns, config)
    bank, x = bound(encoder), inputs(columns, ROWS)
    out = encoder.evaluate(x)
    for r in range(REPLICAS):
        model = published(columns, config, None, r)
        copy_into(model, encoder, bank, r, theirs)
        assert_same(out[r], model.eval()(x[r]).detach(), 1e-5)


def test_a_batch_of_one_row_is_normalised_as_in_evaluation_and_teaches_nothing() -> None:
    encoder = ResNetEncoder(MIXED, SMALL)
    bound(encoder)
    x, before = inputs(MIXED, 1), {name: held.clone() for name, held in encoder.statistics.items()}
    torch.testing.assert_close(encoder.forward(x, None), encoder.evaluate(x))
    assert all(torch.equal(held, before[name]) for name, held in encoder.statistics.items())


def test_it_starts_as_the_published_model_does() -> None:
    """Bounds and spread of every tensor, from 1200 numbers and more."""
    encoder, config = ResNetEncoder(MIXED, ResNetConfig()), ResNetConfig()
    bank = ParameterBank(encoder.shapes(), 2)
    encoder.initialise(bank, [torch.Generator().manual_seed(r) for r in range(2)])
    model = published(MIXED, config, None, 0)
    for name in encoder.shapes():
        ours, their = bank.view(name), model.get_parameter(theirs(name.removeprefix("encoder."))).detach()
        assert float(ours.std()) == pytest.approx(float(their.std()), rel=0.15)
        assert float(ours.abs().max()) == pytest.approx(float(their.abs().max()), rel=0.05)
    assert not torch.equal(bank.values[0], bank.values[1])


def test_sites_where_nothing_is_dropped_are_left_out() -> None:
    assert ResNetEncoder(MIXED, ResNetConfig()).drop_sites == (DropSite(384, 0.15),) * 2
    assert ResNetEncoder(MIXED, SMALL).drop_sites == (DropSite(9, 0.25), DropSite(6, 0.1)) * 2
    assert ResNetEncoder(MIXED, ResNetConfig(dropout1=0.0)).drop_sites == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_blocks": 0}, "n_blocks must be a whole number >= 1, got 0"),
        ({"d_block": 2.5}, "d_block must be a whole number >= 1, got 2.5"),
        ({"d_hidden_multiplier": 0}, "d_hidden_multiplier must be a finite number > 0, got 0"),
        ({"d_hidden_multiplier": 0.001}, "d_block times d_hidden_multiplier must be at least 1, got 192 x 0.001"),
        ({"dropout1": 1.0}, r"dropout1 must be in \[0, 1\), got 1.0"),
        ({"dropout2": True}, r"dropout2 must be in \[0, 1\), got True"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ResNetConfig(**settings)
