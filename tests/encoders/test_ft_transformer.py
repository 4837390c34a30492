"""FT-Transformer against the package of its authors, with copied weights, replica by replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from rtdl_revisiting_models import FTTransformer
from torch import Tensor, nn

from adaptbin.encoders.base import Columns
from adaptbin.encoders.ft_transformer import FTTransformerConfig, FTTransformerEncoder
from adaptbin.errors import ConfigError, ShapeError
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from tests.encoders.build import REPLICAS, bound, inputs, masks
from tests.encoders.mixtures import MIXTURES

SMALL = FTTransformerConfig(
    n_blocks=2, d_block=16, attention_n_heads=4, attention_dropout=0.3, ffn_dropout=0.2, residual_dropout=0.1
)
ROWS = 6
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Given(nn.Module):
    """Dropout with a given mask, whose units come in the order of the activations it is applied to.

    The package takes all tokens through the last feed-forward part, though its head reads the first: there a mask for
    that one serves all.
    """

    def __init__(self, kept: Tensor, probability: float) -> None:
        super().__init__()
        self.kept, self.probability = kept, probability

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept.reshape(len(x), -1, x.shape[-1])
        return x * (kept if kept.numel() < x.numel() else kept.view(x.shape)) / (1 - self.probability)


def oracle_of(columns: Columns, config: FTTransformerConfig, kind: torch.dtype) -> FTTransformer:
    """The package's model without what comes after the embedding."""
    model = FTTransformer(
        n_cont_features=columns.numerical,
        cat_cardinalities=list(columns.cardinalities),
        d_out=1,
        n_blocks=config.n_blocks,
        d_block=config.d_block,
        attention_n_heads=config.attention_n_heads,
        attention_dropout=config.attention_dropout,
        ffn_d_hidden=None,
        ffn_d_hidden_multiplier=config.ffn_d_hidden_multiplier,
        ffn_dropout=config.ffn_dropout,
        residual_dropout=config.residual_dropout,
    ).to(kind)
    model.backbone.output.linear = nn.Identity()
    return model


def ours_of(name: str, theirs: dict[str, Tensor], columns: Columns) -> Tensor:
    """Our parameter ``name`` from the package's, or its gradient from theirs."""
    place, what = name.removeprefix("encoder.").rsplit(".", 1)
    if place == "tokens":
        sources = {
            "readout": ["cls_embedding.weight"],
            "numerical": ["cont_embeddings.weight"],
            "categories": [f"cat_embeddings.embeddings.{c}.weight" for c in range(len(columns.cardinalities))],
            "bias": ["cont_embeddings.bias"] * (columns.numerical > 0)
            + ["cat_embeddings.bias"] * bool(columns.cardinalities),
        }[what]
        return torch.cat([theirs[source] for source in sources])
    if place == "norm":
        return theirs[f"backbone.output.normalization.{what}"]
    block, part = place.split(".", 1)
    sources = {
        "attention.query": ["attention.W_q"],
        "attention.key_value": ["attention.W_k", "attention.W_v"],
        "attention.out": ["attention.W_out"],
        "attention_norm": ["attention_normalization"],
        "hidden_norm": ["ffn_normalization"],
        "hidden": ["ffn.linear1"],
        "out": ["ffn.linear2"],
    }[part]
    found = torch.cat([theirs[f"backbone.blocks.{block}.{source}.{what}"] for source in sources])
    return found.T if found.ndim == 2 else found


def copied(encoder: FTTransformerEncoder, oracles: list[FTTransformer], kind: torch.dtype) -> ParameterBank:
    """A bank with the weights of one oracle per replica, bound to ``encoder``."""
    bank = ParameterBank(encoder.shapes(), len(oracles))
    for buffer in ("values", "gradients"):
        setattr(bank, buffer, getattr(bank, buffer).to(kind))
    for name in encoder.shapes():
        for r, oracle in enumerate(oracles):
            bank.view(name)[r] = ours_of(name, oracle.state_dict(), encoder.columns)
    encoder.bind(bank)
    return bank


def fix_masks(oracle: FTTransformer, kept: list[Tensor], config: FTTransformerConfig) -> None:
    units = iter(kept)
    for block in oracle.backbone.blocks:
        block["attention"].dropout = Given(next(units), config.attention_dropout)
        if config.residual_dropout > 0:
            block["attention_residual_dropout"] = Given(next(units), config.residual_dropout)
        block["ffn"].dropout = Given(next(units), config.ffn_dropout)
        if config.residual_dropout > 0:
            block["ffn_residual_dropout"] = Given(next(units), config.residual_dropout)


def apply(oracle: FTTransformer, x: Tensor, columns: Columns) -> Tensor:
    numbers, codes = x[:, : columns.numerical], x[:, columns.numerical :].long()
    return oracle(numbers if columns.numerical else None, codes if columns.cardinalities else None)


@pytest.mark.parametrize(
    ("mixture", "config"),
    [
        *((mixture, SMALL) for mixture in MIXTURES),
        ("both kinds", replace(SMALL, n_blocks=1)),
        ("both kinds", FTTransformerConfig()),
    ],
    ids=[*MIXTURES, "one block", "default"],
)
@pytest.mark.parametrize("mode", ["eval", "train without dropout", "train"])
# Float64 on both sides says that the equations are the same; float32, by how much rounding moves them.
@pytest.mark.parametrize(("kind", "close"), [(torch.float64, CLOSE), (torch.float32, {"rtol": 1e-5, "atol": 1e-5})])
def test_embedding_and_gradients_are_the_packages(
    mixture: str, config: FTTransformerConfig, mode: str, kind: torch.dtype, close: dict[str, float]
) -> None:
    torch.manual_seed(7)
    columns = MIXTURES[mixture]
    encoder = FTTransformerEncoder(columns, config)
    oracles = [oracle_of(columns, config, kind) for _ in range(REPLICAS)]
    bank = copied(encoder, oracles, kind)
    x = inputs(columns, ROWS, double=True).to(kind)
    upstream = torch.randn(REPLICAS, ROWS, config.d_block, generator=torch.Generator().manual_seed(2)).to(kind)
    kept = masks(encoder, ROWS) if mode == "train" else None

    embedding = encoder.forward(x, kept)
    below = encoder.backward(upstream, input_gradient=True)
    evaluated = encoder.evaluate(x)
    assert below is not None
    for r, oracle in enumerate(oracles):
        oracle.train(mode == "train")
        if kept is not None:
            fix_masks(oracle, [mask[r] for mask in kept], config)
        leaf = x[r].clone().requires_grad_()
        expected = apply(oracle, leaf, columns)
        expected.backward(upstream[r])
        torch.testing.assert_close(embedding[r], expected.detach(), **close)
        if mode != "train":
            torch.testing.assert_close(evaluated[r], expected.detach(), **close)
        given = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(below[r], given, **close)
        theirs = {name: parameter.grad for name, parameter in oracle.named_parameters()}
        for name in encoder.shapes():
            right = ours_of(name, theirs, columns)
            # Sums over rows and tokens round in proportion to their largest terms.
            scale = max(1.0, float(right.abs().max()))
            torch.testing.assert_close(bank.gradient(name)[r] / scale, right / scale, **close)


def test_defaults_are_the_packages_for_three_blocks() -> None:
    given = FTTransformer.get_default_kwargs(3)
    config = FTTransformerConfig()
    assert given.pop("ffn_d_hidden") is None
    assert {name: getattr(config, name) for name in given if not name.startswith("_")} == {
        name: value for name, value in given.items() if not name.startswith("_")
    }
    columns = Columns(3, (4, 2))
    oracle = oracle_of(columns, config, torch.float32)
    encoder = FTTransformerEncoder(columns, config)
    for name, shape in encoder.shapes().items():
        assert shape == ours_of(name, oracle.state_dict(), columns).shape, name
    assert [(site.units, site.probability) for site in encoder.drop_sites] == [
        (8 * 6 * 6, 0.2), (6 * 256, 0.1), (8 * 6 * 6, 0.2), (6 * 256, 0.1), (8 * 6, 0.2), (256, 0.1)
    ]  # fmt: skip


def test_first_values_are_spread_as_the_packages() -> None:
    """Same zeros, ones and bounds; a uniform draw of so many values comes within 5 % of its bound."""
    torch.manual_seed(0)
    columns, config = Columns(3, (4, 2)), FTTransformerConfig(n_blocks=2)
    oracle = oracle_of(columns, config, torch.float32)
    encoder = FTTransformerEncoder(columns, config)
    bank = ParameterBank(encoder.shapes(), 2)
    bank.values.fill_(9.0)
    encoder.initialise(bank, [stream(0, "init"), stream(1, "init")])
    for name in encoder.shapes():
        right, (first, second) = ours_of(name, oracle.state_dict(), columns), bank.view(name)
        if right.min() == right.max():
            assert torch.equal(first, right) and torch.equal(second, right), name
        else:
            assert not torch.equal(first, second)
            for drawn in (first, second):
                assert float(drawn.abs().max()) == pytest.approx(float(right.abs().max()), rel=0.05), name
                assert float(drawn.std()) == pytest.approx(float(right.std()), rel=0.15), name


def test_a_code_that_training_has_not_seen_is_the_bias_alone() -> None:
    encoder = FTTransformerEncoder(Columns(1, (4, 2)), SMALL)
    bank = bound(encoder, double=True)
    x = inputs(encoder.columns, ROWS, double=True)
    x[:, 0, 1], x[:, 1, 2] = 4, 2
    encoder.forward(x, None)
    encoder.backward(torch.ones(REPLICAS, ROWS, 16, dtype=torch.float64), input_gradient=False)
    unseen = encoder.evaluate(x)
    gradient = bank.gradient("encoder.tokens.categories").clone()

    for row, column, first in ((0, 1, 0), (1, 2, 4)):
        # The same row with a seen code whose embedding is 0 now.
        seen = x.clone()
        seen[:, row, column] = 1
        saved = bank.view("encoder.tokens.categories")[:, first + 1].clone()
        bank.view("encoder.tokens.categories")[:, first + 1] = 0
        torch.testing.assert_close(encoder.evaluate(seen)[:, row], unseen[:, row], **CLOSE)
        bank.view("encoder.tokens.categories")[:, first + 1] = saved
    for column, levels, first in ((1, 4, 0), (2, 2, 4)):
        present = {int(code) for code in x[0, :, column].unique()} & set(range(levels))
        for code in range(levels):
            assert (gradient[0, first + code].abs().max() > 0) == (code in present)


def test_rows_are_evaluated_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = MIXTURES["both kinds"]
    encoder = FTTransformerEncoder(columns, SMALL)
    bank = bound(encoder, double=True)
    x = inputs(columns, 11, double=True)
    whole = encoder.evaluate(x)
    monkeypatch.setattr("adaptbin.encoders.transformer._NUMBERS_AT_ONCE", 4 * 6 * 42)
    in_fours = FTTransformerEncoder(columns, SMALL)
    in_fours.bind(bank)
    assert in_fours._rows_at_once == 4
    torch.testing.assert_close(in_fours.evaluate(x), whole, **CLOSE)
    members = torch.tensor([2, 0])
    torch.testing.assert_close(in_fours.evaluate(x[:1], members), encoder.evaluate(x[:1], members), **CLOSE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_blocks": 0}, "n_blocks must be a whole number >= 1, got 0"),
        ({"d_block": 16.0}, r"d_block must be a whole number >= 1, got 16\.0"),
        ({"attention_n_heads": 5}, r"d_block must be a multiple of attention_n_heads \(5\), got 192"),
        ({"attention_dropout": 1.0}, r"attention_dropout must be in \[0, 1\), got 1\.0"),
        ({"ffn_dropout": -0.1}, r"ffn_dropout must be in \[0, 1\), got -0\.1"),
        ({"residual_dropout": "no"}, r"residual_dropout must be in \[0, 1\), got 'no'"),
        ({"ffn_d_hidden_multiplier": 0.0}, r"ffn_d_hidden_multiplier must be a finite number > 0, got 0\.0"),
        ({"ffn_d_hidden_multiplier": 0.005}, r"ffn_d_hidden_multiplier must be at least 1, got 192 x 0\.005"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FTTransformerConfig(**settings)


def test_wrong_inputs_are_refused() -> None:
    encoder = FTTransformerEncoder(Columns(3, (2,)), SMALL)
    bound(encoder, double=True)
    x = inputs(encoder.columns, ROWS, double=True)
    for wrong in (x[..., :3], x[0], x[:2]):
        with pytest.raises(ShapeError, match=r"inputs must be \[R, B, F\] with R = 3, B >= 1 and F = 4, got"):
            encoder.forward(wrong, None)
    kept = masks(encoder, ROWS)
    with pytest.raises(ShapeError, match="one mask of kept units for each of 8 sites, got 7"):
        encoder.forward(x, kept[1:])
    with pytest.raises(ShapeError, match=r"site 0 must be \[R or 1, B, units\] with R = 3, B = 6 and units = 100"):
        encoder.forward(x, [kept[1], *kept[1:]])
