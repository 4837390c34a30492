"""ResNetEncoder against the authors' package, one replica at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from rtdl_revisiting_models import ResNet
from torch import Tensor, nn

from adaptbin.encoders.base import DropSite
from adaptbin.encoders.resnet import ResNetConfig, ResNetEncoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, masks, upstream
from tests.encoders.oracle import Kept, copy_into, statistics_of

SMALL = ResNetConfig(n_blocks=2, d_block=6, d_hidden_multiplier=1.5, dropout1=0.25, dropout2=0.1)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def theirs(name: str) -> str:
    return name.replace("input.", "input_projection.").replace("normalisation", "normalization")


def published(config: ResNetConfig, kept: Sequence[Tensor] | None, r: int) -> ResNet:
    """The authors' model up to its last linear layer, which drops what ``kept`` says, or nothing."""
    model = ResNet(
        d_in=MIXED.inputs,
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


@pytest.mark.parametrize("dropped", [True, False])
def test_a_training_step_is_the_published_models(dropped: bool) -> None:
    encoder = ResNetEncoder(MIXED, SMALL)
    bank, rows = bound(encoder), 7
    x, gradient = inputs(MIXED, rows), upstream(encoder, inputs(MIXED, rows))
    kept = masks(encoder, rows) if dropped else None
    models = [published(SMALL, kept, r) for r in range(REPLICAS)]
    parameters = [copy_into(model, encoder, bank, r, theirs) for r, model in enumerate(models)]
    out = encoder.forward(x, kept)
    below = encoder.backward(gradient, input_gradient=True)
    assert below is not None
    for r, model in enumerate(models):
        leaf = x[r].clone().requires_grad_()
        expected = model.train()(leaf)
        expected.backward(gradient[r])
        torch.testing.assert_close(out[r], expected.detach(), **CLOSE)
        torch.testing.assert_close(below[r], leaf.grad, **CLOSE)
        for name, parameter in parameters[r].items():
            assert parameter.grad is not None
            found = bank.gradient(name)[r]
            torch.testing.assert_close(found.t() if found.ndim == 2 else found, parameter.grad, **CLOSE)
        for name, held in statistics_of(model, encoder, theirs).items():
            torch.testing.assert_close(encoder.statistics[name][r], held, **CLOSE)


def test_evaluation_is_the_published_models() -> None:
    encoder = ResNetEncoder(MIXED, SMALL)
    bank, x = bound(encoder), inputs(MIXED, 5)
    out = encoder.evaluate(x)
    for r in range(REPLICAS):
        model = published(SMALL, None, r)
        copy_into(model, encoder, bank, r, theirs)
        torch.testing.assert_close(out[r], model.eval()(x[r]).detach(), **CLOSE)


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
    model = published(config, None, 0)
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
