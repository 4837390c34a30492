"""MLPEncoder against the authors' package of Gorishniy et al. 2021, one replica at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from rtdl_revisiting_models import MLP
from torch import Tensor

from adaptbin.encoders.base import Columns
from adaptbin.encoders.mlp import MLPConfig, MLPEncoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, masks, upstream
from tests.encoders.oracle import Kept, assert_same, copy_into, turned
from tests.paths import BOTH, using

ROWS = 7
NUMBERS = Columns(4)

CONFIGS = [
    (MIXED, MLPConfig(width=8, depth=2, dropout=0.25)),
    (NUMBERS, MLPConfig(width=6, depth=1, dropout=0.5)),
    (MIXED, MLPConfig(width=128, depth=3)),
]


def theirs(config: MLPConfig) -> Callable[[str], str]:
    """Our name of a parameter -> that of the package."""

    def translate(name: str) -> str:
        layer, what = name.split(".")
        return f"output.{what}" if int(layer) == config.depth else f"blocks.{layer}.linear.{what}"

    return translate


def published(columns: Columns, config: MLPConfig, kept: Sequence[Tensor] | None, r: int) -> MLP:
    """The package's model, whose output is the embedding; it drops what ``kept`` says, or nothing."""
    model = MLP(
        d_in=columns.inputs, d_out=config.width, n_blocks=config.depth, d_block=config.width, dropout=config.dropout
    )
    for i, block in enumerate(model.blocks):
        block.dropout = torch.nn.Identity() if kept is None else Kept(kept[i][r], config.dropout)
    return model


def check_step(columns: Columns, config: MLPConfig, *, dropped: bool, double: bool, tolerance: float) -> None:
    """Embedding, gradient of the input and of every parameter, and the embedding in evaluation."""
    encoder = MLPEncoder(columns, config)
    bank, x = bound(encoder, double=double), inputs(columns, ROWS, double=double)
    gradient, kept = upstream(encoder, x), masks(encoder, ROWS) if dropped else None
    models = [published(columns, config, kept, r).to(x.dtype) for r in range(REPLICAS)]
    parameters = [copy_into(model, encoder, bank, r, theirs(config)) for r, model in enumerate(models)]
    out = encoder.forward(x, kept).clone()
    below = encoder.backward(gradient, input_gradient=True)
    evaluated = encoder.evaluate(x)
    assert below is not None
    for r, model in enumerate(models):
        assert len(parameters[r]) == len(list(model.parameters()))
        leaf = x[r].clone().requires_grad_()
        expected = model.train()(leaf)
        expected.backward(gradient[r])
        assert_same(out[r], expected.detach(), tolerance)
        assert leaf.grad is not None
        assert_same(below[r], leaf.grad, tolerance)
        for name, parameter in parameters[r].items():
            assert parameter.grad is not None
            assert_same(turned(bank.gradient(name)[r]), parameter.grad, tolerance)
        for block in model.blocks:
            block.dropout = torch.nn.Dropout(config.dropout)
        assert_same(evaluated[r], model.eval()(x[r]).detach(), tolerance)


@pytest.mark.parametrize(("columns", "config"), CONFIGS, ids=["small", "numbers only", "wide"])
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("way", BOTH)
def test_a_training_step_is_the_published_models(columns: Columns, config: MLPConfig, dropped: bool, way: str) -> None:
    with using(way):
        check_step(columns, config, dropped=dropped, double=False, tolerance=1e-5)


@pytest.mark.parametrize(("columns", "config"), CONFIGS, ids=["small", "numbers only", "wide"])
@pytest.mark.parametrize("dropped", [True, False])
def test_so_it_is_in_float64(columns: Columns, config: MLPConfig, dropped: bool) -> None:
    """To rounding: the equations are the same."""
    check_step(columns, config, dropped=dropped, double=True, tolerance=1e-11)


def test_it_starts_as_the_published_model_does() -> None:
    """Bounds and spread of every tensor, from 512 numbers and more."""
    columns, config = Columns(3), MLPConfig(width=512, depth=2)
    encoder = MLPEncoder(columns, config)
    bank = ParameterBank(encoder.shapes(), 2)
    encoder.initialise(bank, [torch.Generator().manual_seed(r) for r in range(2)])
    torch.manual_seed(0)
    model = published(columns, config, None, 0)
    for name in encoder.shapes():
        ours, their = bank.view(name), model.get_parameter(theirs(config)(name.removeprefix("encoder."))).detach()
        assert float(ours.std()) == pytest.approx(float(their.std()), rel=0.15)
        assert float(ours.abs().max()) == pytest.approx(float(their.abs().max()), rel=0.05)
    assert not torch.equal(bank.values[0], bank.values[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be a whole number >= 1, got 0"),
        ({"depth": 1.5}, "depth must be a whole number >= 1, got 1.5"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MLPConfig(**({"width": 8, "depth": 2} | settings))  # type: ignore[arg-type]
