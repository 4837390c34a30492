"""T2G-Former against a slow twin of its equations, replica by replica, and its graph against what the paper says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from adaptbin.encoders.base import Columns
from adaptbin.encoders.t2g_former import T2GFormerConfig, T2GFormerEncoder
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from tests.encoders.build import REPLICAS, bound, inputs, masks
from tests.encoders.mixtures import MIXTURES
from tests.reference import t2g_former as twin
from tests.replicas.banks import in_double

GOLDEN = Path(__file__).parents[1] / "golden" / "t2g_former.npz"

SMALL = T2GFormerConfig(
    n_blocks=2, d_block=8, attention_n_heads=2, attention_dropout=0.3, ffn_dropout=0.2, residual_dropout=0.1
)
ROWS = 3
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
BIASES = {"some edges": 0.0, "no edges": -2.0, "all edges": 2.0}
TOPOLOGY = ("attention.head", "attention.tail", "attention.edge_bias")


def model_of(encoder: T2GFormerEncoder, read: Callable[[str], np.ndarray]) -> twin.Model:
    """One replica as the twin takes it; ``read`` gives our parameters by name, without "encoder."."""
    columns, config = encoder.columns, encoder.config
    names = {name.removeprefix("encoder.") for name in encoder.shapes()}

    def affine(name: str, half: int | None = None) -> twin.Affine:
        weight, bias = read(f"{name}.weight").T, read(f"{name}.bias")
        if half is None:
            return twin.Affine(weight, bias)
        return twin.Affine(np.split(weight, 2)[half], np.split(bias, 2)[half])

    def norm(name: str) -> twin.Norm:
        return twin.Norm(read(f"{name}.weight"), read(f"{name}.bias"))

    def block(i: int) -> twin.Block:
        return twin.Block(
            estimator=twin.Estimator(
                node=affine(f"{i}.attention.node_value", 0),
                relation=read(f"{i}.attention.relation").reshape(config.attention_n_heads, -1),
                head=read(f"{i}.attention.head"),
                tail=read(f"{i}.attention.tail"),
                bias=float(read(f"{i}.attention.edge_bias")[0]),
            ),
            value=affine(f"{i}.attention.node_value", 1),
            out=affine(f"{i}.attention.out"),
            first_norm=norm(f"{i}.attention_norm") if i else None,
            second_norm=norm(f"{i}.hidden_norm"),
            hidden=affine(f"{i}.hidden"),
            last=affine(f"{i}.out"),
        )

    nothing = np.zeros((0, config.d_block))
    categories = read("tokens.categories") if columns.cardinalities else nothing
    return twin.Model(
        tokens=twin.Tokens(
            readout=read("tokens.readout"),
            numerical=read("tokens.numerical") if "tokens.numerical" in names else nothing,
            categories=np.split(categories, np.cumsum(columns.cardinalities)[:-1]) if columns.cardinalities else [],
            bias=read("tokens.bias"),
        ),
        blocks=[block(i) for i in range(config.n_blocks)],
        norm=norm("norm"),
    )


def replica(encoder: T2GFormerEncoder, bank: ParameterBank, r: int) -> dict[str, np.ndarray]:
    return {name.removeprefix("encoder."): bank.view(name)[r].double().numpy().copy() for name in encoder.shapes()}


def embedded(
    model: twin.Model, x: Tensor, kept: list[Tensor] | None, then: list[twin.Topology] | None = None
) -> np.ndarray:
    """x [B, F], masks [B, units] -> [B, W]."""
    rates = (SMALL.attention_dropout, SMALL.ffn_dropout, SMALL.residual_dropout)
    rows = []
    for b, row in enumerate(x.double().numpy()):
        own = None if kept is None else iter([mask[b].numpy() for mask in kept])
        rows.append(twin.embed(row, model, twin.Keep(own, *rates), then))
    return np.array(rows)


def prepared(mixture: str, bias: str) -> tuple[T2GFormerEncoder, ParameterBank]:
    """With every probability away from the threshold, where rounding decides."""
    encoder = T2GFormerEncoder(MIXTURES[mixture], SMALL)
    bank = bound(encoder, double=True)
    for i in range(SMALL.n_blocks):
        bank.view(f"encoder.{i}.attention.edge_bias").fill_(BIASES[bias])
    for r in range(REPLICAS):
        for block in model_of(encoder, replica(encoder, bank, r).__getitem__).blocks:
            found = twin.topology(block.estimator)
            assert np.abs(found.probability - twin.THRESHOLD).min() > 1e-6
            rows = found.edge.any(axis=2)
            assert {"some edges": True, "no edges": not rows.any(), "all edges": rows[:, 0].all()}[bias]
    return encoder, bank


def released_name(name: str) -> list[str]:
    """What the authors' code calls our parameter, or the parts that ours is made of."""
    place, what = name.rsplit(".", 1)
    if place == "tokens":
        known = {"numerical": "weight", "readout": "weight", "bias": "bias", "categories": "category_embeddings.weight"}
        return [f"tokenizer.{known[what]}"]
    if place == "norm":
        return [f"last_normalization.{what}"]
    block, part = name.split(".", 1)
    known = {
        "attention.node_value": ["attention.W_head", "attention.W_v"],
        "attention.out": ["attention.W_out"],
        "attention_norm": ["norm0"],
        "hidden_norm": ["norm1"],
        "hidden": ["linear0"],
        "out": ["linear1"],
    }
    single = {"relation": "rel_emb", "head": "col_head", "tail": "col_tail", "edge_bias": "bias"}
    layer, _, last = part.rpartition(".")
    found = [f"attention.{single[last]}"] if last in single else [f"{theirs}.{what}" for theirs in known[layer]]
    return [f"layers.{block}.{theirs}" for theirs in found]


def released(golden: Mapping[str, np.ndarray], kind: str, name: str) -> np.ndarray:
    """Our parameter ``name``, or its gradient, from theirs."""
    found = np.concatenate([golden[f"{kind}.{theirs}"] for theirs in released_name(name)])
    if name.startswith("tokens."):
        # Their first weight is that of the readout, as if it were a column of ones.
        return {"tokens.readout": found[0], "tokens.numerical": found[1:]}.get(name, found)
    return found.reshape(-1) if name.endswith("relation") else found.T if found.ndim == 2 else found


def test_numbers_are_those_of_the_authors_code() -> None:
    """Of the library, and of the twin that judges it elsewhere."""
    with np.load(GOLDEN) as arrays:
        golden = dict(arrays)
    config = replace(SMALL, n_blocks=3)
    encoder = T2GFormerEncoder(Columns(3, (3, 2)), config)
    bank = in_double(ParameterBank(encoder.shapes(), 1))
    names = [name.removeprefix("encoder.") for name in encoder.shapes()]
    for name in names:
        bank.view(f"encoder.{name}")[0] = torch.from_numpy(released(golden, "parameter", name))
    encoder.bind(bank)
    x, upstream = torch.from_numpy(golden["x"]), torch.from_numpy(golden["upstream"])
    model = model_of(encoder, replica(encoder, bank, 0).__getitem__)
    assert not all(twin.topology(block.estimator).edge.any(axis=2).all() for block in model.blocks)
    np.testing.assert_allclose(embedded(model, x, None), golden["embedding"], **CLOSE)
    np.testing.assert_allclose(encoder.forward(x[None], None)[0].numpy(), golden["embedding"], **CLOSE)
    below = encoder.backward(upstream[None], input_gradient=True)
    assert below is not None
    np.testing.assert_allclose(below[0, :, :3].numpy(), golden["input_gradient"], **CLOSE)
    for name in names:
        found, right = bank.gradient(f"encoder.{name}")[0].numpy(), released(golden, "gradient", name)
        # Where their scores lie near -10^4 a few digits are lost, which the factor of the topology's gradient enlarges.
        np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-7 * np.abs(right).max(), err_msg=name)


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dropout", [False, True])
def test_embeddings_are_the_twins(mixture: str, bias: str, dropout: bool) -> None:
    encoder, bank = prepared(mixture, bias)
    x = inputs(encoder.columns, ROWS, double=True)
    kept = masks(encoder, ROWS) if dropout else None
    found, evaluated = encoder.forward(x, kept), encoder.evaluate(x)
    for r in range(REPLICAS):
        model = model_of(encoder, replica(encoder, bank, r).__getitem__)
        mine = None if kept is None else [mask[r] for mask in kept]
        np.testing.assert_allclose(found[r].numpy(), embedded(model, x[r], mine), **CLOSE)
        np.testing.assert_allclose(evaluated[r].numpy(), embedded(model, x[r], None), **CLOSE)


@pytest.mark.parametrize("mixture", ["both kinds", "categories only"])
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("dropout", [False, True])
def test_gradients_are_the_twins_differences(mixture: str, bias: str, dropout: bool) -> None:
    """Along random directions of each parameter, with the threshold passing gradients straight through."""
    encoder, bank = prepared(mixture, bias)
    x = inputs(encoder.columns, ROWS, double=True)
    kept = masks(encoder, ROWS) if dropout else None
    rng = np.random.default_rng(3)
    upstream = rng.normal(size=(REPLICAS, ROWS, SMALL.d_block))
    encoder.forward(x, kept)
    below = encoder.backward(torch.from_numpy(upstream), input_gradient=True)
    assert below is not None
    for r in range(REPLICAS):
        values = replica(encoder, bank, r)
        mine = None if kept is None else [mask[r] for mask in kept]
        then = [twin.topology(block.estimator) for block in model_of(encoder, values.__getitem__).blocks]

        def loss(
            r: int, changed: dict[str, np.ndarray], rows: Tensor, kept: list[Tensor] | None, then: list[twin.Topology]
        ) -> float:
            model = model_of(encoder, changed.__getitem__)
            return float((embedded(model, rows, kept, then) * upstream[r]).sum())

        for name, value in values.items():
            direction = rng.normal(size=value.shape)
            # A probability counts ten thousandfold in a score: a small step is a large one.
            step = 1e-7 if name.endswith(TOPOLOGY) else 1e-5
            ahead, behind = (
                loss(r, {**values, name: value + sign * step * direction}, x[r], mine, then) for sign in (1, -1)
            )
            gradient = float((bank.gradient(f"encoder.{name}")[r].numpy() * direction).sum())
            assert gradient == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-6), name
        direction = torch.zeros_like(x[r])
        numerical = encoder.columns.numerical
        direction[:, :numerical] = torch.from_numpy(rng.normal(size=(ROWS, numerical)))
        ahead, behind = (loss(r, values, x[r] + sign * 1e-5 * direction, mine, then) for sign in (1, -1))
        assert float((below[r] * direction).sum()) == pytest.approx((ahead - behind) / 2e-5, rel=1e-5, abs=1e-6)
        assert not below[r][:, numerical:].any()


def test_in_float32_as_in_float64() -> None:
    """Also for nodes without edges, whose scores all lie near -10^4 in the published code."""
    for bias in BIASES:
        encoder, double = prepared("both kinds", bias)
        x = inputs(encoder.columns, ROWS, double=True)
        expected = encoder.evaluate(x)
        single = ParameterBank(encoder.shapes(), REPLICAS)
        single.values.copy_(double.values)
        encoder.bind(single)
        torch.testing.assert_close(encoder.evaluate(x.float()).double(), expected, rtol=1e-5, atol=1e-5)


def test_graph_has_no_loops_and_nobody_reads_the_readout() -> None:
    """The twin's graph, by which ours is judged: what the paper says of it, and where its Eq. 6 is not what is run."""
    encoder, bank = prepared("both kinds", "some edges")
    rng = np.random.default_rng(0)
    isolated = 0
    for r in range(REPLICAS):
        for block in model_of(encoder, replica(encoder, bank, r).__getitem__).blocks:
            x = list(rng.normal(size=(encoder.columns.inputs + 1, SMALL.d_block)))
            weights, found = twin.edge_weights(x, block.estimator), twin.topology(block.estimator)
            np.testing.assert_allclose(weights, weights.transpose(0, 2, 1))  # symmetric
            graph = twin.relation_graph(weights, found.edge)
            np.testing.assert_allclose(graph.sum(axis=2), 1)
            for h, i in np.ndindex(*graph.shape[:2]):
                if found.edge[h, i].any():
                    assert not graph[h, i][found.edge[h, i] == 0].any()
                else:
                    isolated += 1
                    assert graph[h, i].all()
            of_paper = twin.relation_graph(weights, found.edge, released=False)
            assert of_paper.all() and not np.allclose(graph, of_paper)
            complete = np.ones_like(weights)
            np.testing.assert_allclose(
                twin.relation_graph(weights, complete), twin.relation_graph(weights, complete, released=False)
            )
    assert isolated


def test_defaults_are_the_authors() -> None:
    """configs/default/T2GFormer/cfg.json, whose d_ffn_factor is a little below 4/3."""
    config = T2GFormerConfig()
    assert (config.n_blocks, config.d_block, config.attention_n_heads, config.d_hidden) == (3, 192, 8, 255)
    assert (config.attention_dropout, config.ffn_dropout, config.residual_dropout) == (0.2, 0.1, 0.0)
    assert T2GFormerConfig(ffn_d_hidden_multiplier=4 / 3).d_hidden == 256
    with pytest.raises(ConfigError, match=r"d_block must be a multiple of attention_n_heads \(7\), got 192"):
        T2GFormerConfig(attention_n_heads=7)


@pytest.mark.parametrize(("columns", "numbers"), [(1, 2), (3, 4), (4, 5), (16, 9)])
def test_first_values_are_the_authors(columns: int, numbers: int) -> None:
    """Embeddings of columns have ceil(2 log2(N + 1)) numbers; relations start at 1, thresholds and biases at 0."""
    encoder = T2GFormerEncoder(Columns(columns), T2GFormerConfig(n_blocks=2))
    bank = ParameterBank(encoder.shapes(), 2)
    bank.values.fill_(9.0)
    encoder.initialise(bank, [stream(0, "init"), stream(1, "init")])
    for block in range(2):
        start = f"encoder.{block}.attention"
        for name in ("head", "tail"):
            embeddings = bank.view(f"{start}.{name}")
            assert embeddings.shape[1:] == (8, columns + 1, numbers)
            bound = 1 / math.sqrt((columns + 1) * numbers)
            assert 0.8 * bound < float(embeddings.abs().max()) <= bound
        assert not torch.equal(bank.view(f"{start}.head"), bank.view(f"{start}.tail"))
        assert (bank.view(f"{start}.relation") == 1).all()
        for name in ("edge_bias", "node_value.bias", "out.bias"):
            assert not bank.view(f"{start}.{name}").any()
        for name in ("node_value.weight", "out.weight"):
            drawn = bank.view(f"{start}.{name}")
            assert 0.98 / math.sqrt(192) < float(drawn.abs().max()) <= 1 / math.sqrt(192)
            assert not torch.equal(drawn[0], drawn[1])
