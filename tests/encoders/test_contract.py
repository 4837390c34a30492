"""What every encoder promises (adaptbin/encoders/base.py).  A new one is a line of ``ENCODERS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from adaptbin.encoders.base import Columns, ReplicaEncoder
from adaptbin.encoders.ft_transformer import FTTransformerConfig, FTTransformerEncoder
from adaptbin.encoders.mlp import MLPConfig, MLPEncoder
from adaptbin.encoders.registry import ENCODERS as REGISTERED
from adaptbin.encoders.resnet import ResNetConfig, ResNetEncoder
from adaptbin.encoders.t2g_former import T2GFormerConfig, T2GFormerEncoder
from adaptbin.encoders.tabnet import TabNetConfig, TabNetEncoder
from adaptbin.errors import ShapeError
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from tests.encoders.build import MIXED, REPLICAS, bound, inputs, masks, upstream
from tests.paths import BOTH, using
from tests.replicas.banks import only

Build = Callable[[Columns], ReplicaEncoder]

TRANSFORMER: dict[str, Any] = dict(
    n_blocks=2, d_block=16, attention_n_heads=2, ffn_d_hidden_multiplier=1.5, ffn_dropout=0.2, residual_dropout=0.1
)

# Small, with every kind of dropout, and ghost batches of at least ROWS.  Widths are multiples of 8, but for the hidden
# units of T2G-Former: by default, too, they are an odd number.
ENCODERS: dict[str, Build] = {
    "mlp": lambda columns: MLPEncoder(columns, MLPConfig(width=8, depth=2, dropout=0.25)),
    "mlp without dropout": lambda columns: MLPEncoder(columns, MLPConfig(width=8, depth=1, dropout=0)),
    "resnet": lambda columns: ResNetEncoder(columns, ResNetConfig(d_block=8, dropout1=0.25, dropout2=0.1)),
    "tabnet": lambda columns: TabNetEncoder(columns, TabNetConfig(n_d=4, n_a=4, virtual_batch_size=8)),
    "ft-transformer": lambda columns: FTTransformerEncoder(columns, FTTransformerConfig(**TRANSFORMER)),
    "t2g-former": lambda columns: T2GFormerEncoder(
        columns,
        T2GFormerConfig(**(TRANSFORMER | {"ffn_d_hidden_multiplier": T2GFormerConfig().ffn_d_hidden_multiplier})),
    ),
}

ROWS = 7
"""Rows of a batch; a last one may have more, or one alone."""

STRAIGHT_THROUGH = ("attention.head", "attention.tail", "attention.edge_bias")
"""Endings of parameters whose gradient passes a threshold as if there were none, which differences cannot tell.

tests/encoders/test_t2g_former.py judges them.
"""

EVERY = pytest.mark.parametrize("build", ENCODERS.values(), ids=ENCODERS)


@pytest.fixture(autouse=True, params=BOTH)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All of it by compiled kernels, and by torch alone."""
    with using(request.param):
        yield


def whole_loss(encoder: ReplicaEncoder, x: Tensor, kept: list[Tensor] | None, gradient: Tensor) -> float:
    """The loss whose gradient :meth:`ReplicaEncoder.backward` tells, over all replicas."""
    loss = (encoder.forward(x, kept) * gradient).sum()
    penalty = getattr(encoder, "_penalty", lambda: None)()
    return float(loss if penalty is None else loss + penalty.detach())


def test_every_encoder_there_is_must_keep_the_contract() -> None:
    assert {type(build(MIXED)) for build in ENCODERS.values()} == {kind for _, kind in REGISTERED.values()}


@EVERY
@pytest.mark.parametrize("rows", [1, 2, ROWS, 2 * ROWS])
def test_shapes(build: Build, rows: int) -> None:
    encoder = build(MIXED)
    bank = bound(encoder)
    assert all(name.startswith(f"{encoder.name}.") for name in encoder.shapes())
    assert all(held.shape[0] == REPLICAS for held in encoder.statistics.values())
    assert all(0 < site.probability < 1 for site in encoder.drop_sites)
    x = inputs(MIXED, rows)
    out = encoder.forward(x, masks(encoder, rows))
    assert out.shape == (REPLICAS, rows, encoder.width) and not out.requires_grad
    below = encoder.backward(upstream(encoder, x), input_gradient=True)
    assert below is not None and below.shape == x.shape
    assert out.isfinite().all() and below.isfinite().all() and bank.gradients.isfinite().all()
    assert encoder.evaluate(x).shape == encoder.evaluate(x[:1]).shape == out.shape
    torch.testing.assert_close(encoder.evaluate(x[:1]), encoder.evaluate(x[:1].expand(REPLICAS, -1, -1)))


@EVERY
def test_without_the_inputs_gradient_the_parameters_get_the_same(build: Build) -> None:
    encoder = build(MIXED)
    bank, x = bound(encoder), inputs(MIXED, ROWS)
    encoder.forward(x, None)
    assert encoder.backward(upstream(encoder, x), input_gradient=False) is None
    without = bank.gradients.clone()
    encoder.forward(x, None)
    encoder.backward(upstream(encoder, x), input_gradient=True)
    assert torch.equal(without, bank.gradients)


@EVERY
@pytest.mark.parametrize("columns", [Columns(4), Columns(0, (3, 5)), Columns(1), Columns(0, (3,))], ids=str)
def test_one_kind_of_columns_or_one_column(build: Build, columns: Columns) -> None:
    encoder = build(columns)
    bank, x = bound(encoder), inputs(columns, ROWS)
    assert encoder.forward(x, masks(encoder, ROWS)).isfinite().all()
    encoder.backward(upstream(encoder, x), input_gradient=True)
    assert bank.gradients.isfinite().all() and bank.gradients.any()
    assert encoder.evaluate(x).shape == (REPLICAS, ROWS, encoder.width)


@EVERY
def test_a_row_is_evaluated_by_itself(build: Build) -> None:
    """Up to rounding: products of one row may be summed in another order."""
    encoder = build(MIXED)
    bound(encoder)
    x = inputs(MIXED, ROWS)
    together = encoder.evaluate(x)
    for i in range(ROWS):
        torch.testing.assert_close(encoder.evaluate(x[:, i : i + 1]), together[:, i : i + 1], rtol=1e-5, atol=1e-6)


@EVERY
@pytest.mark.parametrize("columns", [MIXED, Columns(1)], ids=str)
@pytest.mark.parametrize("rows", [1, ROWS, 33])
def test_a_replica_alone_equals_its_slice_bit_for_bit(build: Build, columns: Columns, rows: int) -> None:
    encoder = build(columns)
    bank, x, kept = bound(encoder), inputs(columns, rows), masks(encoder, rows)
    gradient = upstream(encoder, x)
    before = {name: held.clone() for name, held in encoder.statistics.items()}
    out = encoder.forward(x, kept).clone()
    below = encoder.backward(gradient, input_gradient=True)
    evaluated = encoder.evaluate(x)
    assert below is not None
    for r in range(REPLICAS):
        mine, single, alone = slice(r, r + 1), build(columns), only(bank, r)
        single.bind(alone)
        for name, held in single.statistics.items():
            held.copy_(before[name][mine])
        assert torch.equal(single.forward(x[mine].clone(), [mask[mine] for mask in kept])[0], out[r])
        mine_below = single.backward(gradient[mine].clone(), input_gradient=True)
        assert mine_below is not None and torch.equal(mine_below[0], below[r])
        assert torch.equal(alone.gradients[0], bank.gradients[r])
        assert all(torch.equal(held[0], encoder.statistics[name][r]) for name, held in single.statistics.items())
        assert torch.equal(single.evaluate(x[mine].clone())[0], evaluated[r])


@EVERY
def test_a_replica_that_diverged_leaves_the_others_alone(build: Build) -> None:
    encoder = build(MIXED)
    bank, x, kept = bound(encoder), inputs(MIXED, ROWS), masks(encoder, ROWS)
    results = []
    for broken in (False, True):
        if broken:
            bank.values[1] = float("nan")
        out = encoder.forward(x, kept).clone()
        encoder.backward(upstream(encoder, x), input_gradient=False)
        results.append((out[::2], bank.gradients[::2].clone()))
    assert out[1].isnan().all()
    assert all(torch.equal(sound, beside) for sound, beside in zip(*results, strict=True))


@EVERY
def test_every_parameter_of_every_replica_gets_a_gradient(build: Build) -> None:
    """In float64, above its rounding.

    A shift that batch normalisation takes away again, as of a bias right before it, has none in a batch.  It has one
    where running statistics normalise: in a batch of one row.
    """
    encoder = build(MIXED)
    bank, found = bound(encoder, double=True), []
    for rows in (1, 2 * ROWS):
        x = inputs(MIXED, rows, double=True)
        encoder.forward(x, None)
        encoder.backward(upstream(encoder, x), input_gradient=False)
        found.append({name: bank.gradient(name).flatten(1).abs().amax(1) for name in encoder.shapes()})
    for name in encoder.shapes():
        assert (torch.maximum(found[0][name], found[1][name]) > 1e-10).all(), name


@EVERY
def test_gradients_are_those_of_finite_differences(build: Build) -> None:
    """The entry of each tensor with the largest gradient; in float64, where a step of 1e-6 is read to 9 digits."""
    encoder, step = build(MIXED), 1e-6
    bank, x = bound(encoder, double=True), inputs(MIXED, ROWS, double=True)
    gradient, kept = upstream(encoder, x), masks(encoder, ROWS)
    encoder.forward(x, kept)
    below = encoder.backward(gradient, input_gradient=True)
    assert below is not None
    names = [name for name in encoder.shapes() if not name.endswith(STRAIGHT_THROUGH)]
    pairs = [(bank.view(name), bank.gradient(name).clone()) for name in names]
    # Codes may be looked up and not multiplied: numbers alone can be moved.
    pairs.append((x[..., : MIXED.numerical], below[..., : MIXED.numerical]))
    for values, expected in pairs:
        place = torch.unravel_index(expected.abs().argmax(), expected.shape)
        kept_value = values[place].clone()
        losses = []
        for sign in (1, -1):
            values[place] = kept_value + sign * step
            losses.append(whole_loss(encoder, x, kept, gradient))
        values[place] = kept_value
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(float(expected[place]), rel=1e-5, abs=1e-7)


@EVERY
def test_a_checkpoint_gives_the_same_answers(build: Build) -> None:
    encoder = build(MIXED)
    bank, x = bound(encoder), inputs(MIXED, ROWS)
    encoder.forward(x, masks(encoder, ROWS))
    saved = {name: held.clone() for name, held in encoder.statistics.items()}
    fresh, again = ParameterBank(encoder.shapes(), REPLICAS), build(MIXED)
    fresh.values.copy_(bank.values)
    again.bind(fresh)
    assert saved.keys() == again.statistics.keys()
    for name, held in again.statistics.items():
        held.copy_(saved[name])
    assert torch.equal(again.evaluate(x), encoder.evaluate(x))
    assert torch.equal(again.forward(x, None), encoder.forward(x, None))
    again.bind(fresh)
    assert torch.equal(again.evaluate(x), encoder.evaluate(x))


def set_to_batch_(encoder: ReplicaEncoder, x: Tensor) -> None:
    """Set the running statistics to those by which a training batch x is normalised.

    A step moves a statistic s to s + m (batch - s), so from 0 it comes to m batch and from 1 to 1 + m (batch - 1).
    """
    reached = []
    for start in (0.0, 1.0):
        for held in encoder.statistics.values():
            held.fill_(start)
        encoder.forward(x, None)
        reached.append({name: held.clone() for name, held in encoder.statistics.items()})
    rows = x.shape[1]
    for name, held in encoder.statistics.items():
        momentum = 1 - (reached[1][name] - reached[0][name])
        # The running variance has the denominator B - 1, that of the batch itself B.
        held.copy_(reached[0][name] / momentum * ((rows - 1) / rows if name.endswith(".variance") else 1))


@EVERY
def test_where_nothing_is_dropped_training_and_evaluation_agree(build: Build) -> None:
    encoder = build(MIXED)
    bound(encoder, double=True)
    x = inputs(MIXED, ROWS, double=True)
    set_to_batch_(encoder, x)
    torch.testing.assert_close(encoder.evaluate(x), encoder.forward(x, None), rtol=1e-7, atol=1e-9)


@EVERY
def test_members_are_those_rows_of_the_whole(build: Build) -> None:
    encoder = build(MIXED)
    bound(encoder)
    x, members = inputs(MIXED, ROWS), torch.tensor([2, 0])
    assert torch.equal(encoder.evaluate(x[members], members), encoder.evaluate(x)[members])
    assert torch.equal(encoder.evaluate(x[:1], members), encoder.evaluate(x[:1])[members])


@EVERY
def test_evaluation_changes_no_statistics(build: Build) -> None:
    encoder = build(MIXED)
    bound(encoder)
    before = {name: held.clone() for name, held in encoder.statistics.items()}
    encoder.evaluate(inputs(MIXED, ROWS))
    assert all(torch.equal(held, before[name]) for name, held in encoder.statistics.items())


@EVERY
def test_masks_may_be_shared_by_all_replicas(build: Build) -> None:
    encoder = build(MIXED)
    bound(encoder)
    x, kept = inputs(MIXED, ROWS), masks(encoder, ROWS, replicas=1)
    shared = encoder.forward(x, kept).clone()
    assert torch.equal(encoder.forward(x, [mask.expand(REPLICAS, -1, -1) for mask in kept]), shared)
    if encoder.drop_sites:
        assert not torch.equal(encoder.forward(x, None), shared)


@EVERY
def test_initial_values_depend_on_the_generator_alone(build: Build) -> None:
    encoder = build(MIXED)
    bank = bound(encoder)
    nine = stream(9)
    encoder.initialise(bank, [nine, stream(4), nine])
    alone, single = ParameterBank(encoder.shapes(), 1), build(MIXED)
    single.initialise(alone, [stream(9)])
    assert torch.equal(bank.values[0], bank.values[2]) and torch.equal(bank.values[0], alone.values[0])
    assert not torch.equal(bank.values[0], bank.values[1])
    single.bind(alone)
    encoder.bind(bank)
    assert all(torch.equal(held[0], encoder.statistics[name][1]) for name, held in single.statistics.items())
    x = inputs(MIXED, ROWS)
    assert torch.equal(single.evaluate(x[:1])[0], encoder.evaluate(x[:1])[2])


class Elsewhere(TorchDispatchMode):
    """Every operation, also of autograd, may touch tensors of the device "meta" only, which have no numbers to read."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, out)):
            assert not isinstance(leaf, Tensor) or leaf.device.type == "meta", f"{func} touches {leaf.device}"
        return out


@EVERY
@pytest.mark.parametrize("columns", [MIXED, Columns(4), Columns(0, (3, 5))], ids=str)
def test_a_step_reads_no_value_and_touches_no_tensor_on_the_host(build: Build, columns: Columns) -> None:
    """So that it can be recorded as a CUDA graph.  (The pretend GPU of the training's tests knows no autograd.)"""
    encoder = build(columns)
    encoder.bind(ParameterBank(encoder.shapes(), REPLICAS, "meta"))
    x = inputs(columns, 2 * ROWS).to("meta")
    kept = [mask.to("meta") for mask in masks(encoder, 2 * ROWS)]
    with Elsewhere():
        out = encoder.forward(x, kept)
        below = encoder.backward(torch.empty_like(out), input_gradient=True)
        evaluated = encoder.evaluate(x)
    assert below is not None and below.shape == x.shape and evaluated.shape == out.shape


@EVERY
def test_inputs_and_masks_of_another_shape_are_refused(build: Build) -> None:
    encoder = build(MIXED)
    bound(encoder)
    x, kept = inputs(MIXED, ROWS), masks(encoder, ROWS)
    for wrong in (x[..., :4], x[:2], x[:, :0]):
        with pytest.raises(ShapeError, match=r"inputs must be \[R, B, F\] with R = 3.*got"):
            encoder.forward(wrong, None)
    for wrong in (x[..., :4], x[:2]):
        with pytest.raises(ShapeError, match=f"R = 3, B >= 1 and F = 5, got .{', '.join(map(str, wrong.shape))}"):
            encoder.evaluate(wrong)
    with pytest.raises(ShapeError, match=f"one mask .* for each of {len(kept)} sites, got {len(kept) + 1}"):
        encoder.forward(x, [*kept, torch.ones(REPLICAS, ROWS, 1, dtype=torch.bool)])
    if kept:
        with pytest.raises(ShapeError, match="site 0 must be .R or 1, B, units. with R = 3, B = 7 and units = "):
            encoder.forward(x, [kept[0][..., 1:], *kept[1:]])


@pytest.mark.parametrize(("numerical", "cardinalities"), [(-1, (2,)), (0, ()), (1, (3, 0))])
def test_columns_must_be_there(numerical: int, cardinalities: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=f"columns must be at least one, .* got {numerical} numerical"):
        Columns(numerical, cardinalities)


def kept_between(encoder: ReplicaEncoder, x: Tensor, kept: list[Tensor] | None, bank: ParameterBank) -> int:
    """Bytes of what a forward pass leaves for the backward one: what autograd saves, or an encoder holds by itself."""
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() != bank.values.untyped_storage().data_ptr():
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        embedding = encoder.forward(x, kept)
    for tensor in [x, embedding, *tree_leaves(getattr(encoder, "_activations", []))]:
        note(tensor)
    encoder.backward(torch.ones_like(embedding), input_gradient=False)
    return sum(saved.values())


@EVERY
@pytest.mark.parametrize("columns", [MIXED, Columns(40)], ids=["few columns", "many columns"])
def test_what_a_step_keeps_is_what_it_says(build: Build, columns: Columns) -> None:
    encoder = build(columns)
    bank = bound(encoder)
    rows = 3 * ROWS
    found = kept_between(encoder, inputs(columns, rows), masks(encoder, rows) or None, bank)
    told = 4 * REPLICAS * encoder.kept_numbers(rows)
    assert told / 2 < found < 2 * told
    assert encoder.kept_numbers(2 * rows) == 2 * encoder.kept_numbers(rows)


@EVERY
def test_products_are_those_of_the_matrices(build: Build) -> None:
    encoder, columns = build(Columns(40)), Columns(40)
    with FlopCounterMode(display=False) as counter, using("plain"):
        bound(encoder)
        encoder.forward(inputs(columns, 4 * ROWS), None)
    # A multiplication and an addition each.
    told = 2 * REPLICAS * 4 * ROWS * encoder.products
    assert told / 1.5 < counter.get_total_flops() < 1.5 * told
