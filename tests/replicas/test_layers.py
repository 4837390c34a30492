"""ReplicaMLP against torch.nn and autograd, and each replica against itself alone."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from adaptbin.config import Architecture, Protocol
from adaptbin.encoders.base import Columns
from adaptbin.encoders.mlp import MLPEncoder, mlp_decoder
from adaptbin.encoders.registry import make_encoder
from adaptbin.errors import ShapeError
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.streams import stream
from tests.paths import BOTH, usable_sets, using
from tests.replicas.banks import fill_, in_double, only
from tests.strategies import seeds

DROP = 0.25


class Kept(nn.Module):
    """Dropout with a given mask."""

    def __init__(self, kept: Tensor | None) -> None:
        super().__init__()
        self.factor = 1.0 if kept is None else kept.double() / (1 - DROP)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def sequential(bank: ParameterBank, mlp: ReplicaMLP, r: int, kept: list[Tensor] | None) -> nn.Sequential:
    """Replica ``r`` as torch would write it, with copied weights and the same dropped units."""
    parts: list[nn.Module] = []
    for i, (d_in, d_out) in enumerate(zip(mlp.sizes[:-1], mlp.sizes[1:], strict=True)):
        linear = nn.Linear(d_in, d_out, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(bank.view(f"{mlp.name}.{i}.weight")[r].t())
            linear.bias.copy_(bank.view(f"{mlp.name}.{i}.bias")[r])
        parts.append(linear)
        if i < mlp.hidden:
            mask = None if kept is None else kept[i][min(r, len(kept[i]) - 1)]
            parts += [nn.ReLU(), Kept(mask)]
    return nn.Sequential(*parts)


class Case(NamedTuple):
    mlp: ReplicaMLP
    bank: ParameterBank
    x: Tensor
    upstream: Tensor
    kept: list[Tensor] | None


@st.composite
def cases(draw: st.DrawFn, *, largest: int, double: bool = True, unit: int = 1) -> Case:
    """One to three replicas; dropped units drawn per replica, shared by all, or none.  Widths in multiples of unit."""
    size = st.integers(1, largest)
    sizes = [draw(size), *(unit * w for w in draw(st.lists(st.integers(1, largest // unit), min_size=1, max_size=4)))]
    replicas, batch, seed = draw(st.integers(1, 3)), draw(size), draw(seeds)
    generator = torch.Generator().manual_seed(seed)
    mlp = ReplicaMLP("net", sizes, DROP)
    bank = ParameterBank(mlp.shapes(), replicas)
    fill_(in_double(bank) if double else bank, seed)
    mlp.bind(bank)
    kind = torch.float64 if double else torch.float32
    x = torch.randn(replicas, batch, sizes[0], generator=generator, dtype=kind)
    upstream = torch.randn(replicas, batch, sizes[-1], generator=generator, dtype=kind)
    masks = draw(st.sampled_from(["each", "shared", "none"]))
    kept = [
        torch.rand(replicas if masks == "each" else 1, batch, width, generator=generator) >= DROP
        for width in sizes[1:-1]
    ]
    return Case(mlp, bank, x, upstream, None if masks == "none" else kept)


@settings(deadline=None)
@given(case=cases(largest=7))
def test_forward_and_gradients_are_autograds(case: Case) -> None:
    mlp, bank, x, upstream, kept = case
    out = mlp.forward(x, kept).clone()
    below = mlp.backward(upstream, input_gradient=True)
    assert below is not None
    close = {"rtol": 1e-10, "atol": 1e-10}
    for r in range(len(x)):
        net, leaf = sequential(bank, mlp, r, kept), x[r].clone().requires_grad_()
        expected = net(leaf)
        expected.backward(upstream[r])
        torch.testing.assert_close(out[r], expected.detach(), **close)
        torch.testing.assert_close(below[r], leaf.grad, **close)
        for i, linear in enumerate(part for part in net if isinstance(part, nn.Linear)):
            torch.testing.assert_close(bank.gradient(f"net.{i}.weight")[r], linear.weight.grad.t(), **close)
            torch.testing.assert_close(bank.gradient(f"net.{i}.bias")[r], linear.bias.grad, **close)


@settings(deadline=None)
@given(case=cases(largest=7), seed=seeds)
def test_evaluation_drops_nothing_and_can_ask_a_few_replicas(case: Case, seed: int) -> None:
    mlp, bank, x = case.mlp, case.bank, case.x
    out = mlp.evaluate(x)
    members = torch.randint(len(x), (2,), generator=torch.Generator().manual_seed(seed))
    shared = mlp.evaluate(x[:1], members)
    for r in range(len(x)):
        torch.testing.assert_close(out[r], sequential(bank, mlp, r, None)(x[r]).detach(), rtol=1e-10, atol=1e-10)
    for row, r in zip(shared, members.tolist(), strict=True):
        torch.testing.assert_close(row, sequential(bank, mlp, r, None)(x[0]).detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("path", BOTH)
@settings(deadline=None)
@given(case=cases(largest=40, double=False))
def test_in_float32_as_in_float64(path: str, case: Case) -> None:
    mlp, bank, x, upstream, kept = case
    exact, double = ReplicaMLP("net", mlp.sizes, DROP), in_double(ParameterBank(bank.shapes, bank.replicas))
    double.values.copy_(bank.values)
    exact.bind(double)
    with using(path):
        mlp.bind(bank)
        out, below = mlp.forward(x, kept), mlp.backward(upstream, input_gradient=True)
    expected = exact.forward(x.double(), kept)
    expected_below = exact.backward(upstream.double(), input_gradient=True)
    for a, b in zip(mlp._activations[1:], exact._activations[1:], strict=True):
        # A unit whose sum is as good as 0 may open in one kind and stay shut in the other.
        assume(not ((a > 0) != (b > 0)).logical_and(a + b < 1e-5).any())
    assert below is not None and expected_below is not None
    for found, right in ((out, expected), (below, expected_below), (bank.gradients, double.gradients)):
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-5 * float(right.abs().max()))


@pytest.mark.parametrize("path", BOTH)
def test_without_dropped_units_training_and_evaluation_agree(path: str) -> None:
    mlp = ReplicaMLP("net", [4, 8, 3], DROP)
    bank = fill_(ParameterBank(mlp.shapes(), 2), 0)
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    with using(path):
        mlp.bind(bank)
        assert torch.equal(mlp.forward(x, None), mlp.evaluate(x))


@pytest.mark.parametrize("path", BOTH)
def test_an_input_in_whatever_order_is_read_right(path: str) -> None:
    mlp = ReplicaMLP("net", [4, 8, 3], DROP)
    bank = fill_(ParameterBank(mlp.shapes(), 2), 0)
    turned = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)).transpose(1, 2)
    upstream = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).transpose(1, 2)
    with using(path):
        mlp.bind(bank)
        results = []
        for x, above in ((turned, upstream), (turned.contiguous(), upstream.contiguous())):
            out = mlp.forward(x, None).clone()
            mlp.backward(above, input_gradient=False)
            results.append((out, mlp.evaluate(x), bank.gradients.clone()))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")
def test_an_input_of_another_width_or_kind_is_refused() -> None:
    """Kernels see addresses only: torch's own checks are not there to help."""
    mlp = ReplicaMLP("net", [4, 8, 3], DROP)
    bank = fill_(ParameterBank(mlp.shapes(), 2), 0)
    with using("compiled"):
        mlp.bind(bank)
        for x in (torch.zeros(2, 5, 3), torch.zeros(2, 5, 4, dtype=torch.float64)):
            for call in (lambda x=x: mlp.forward(x, None), lambda x=x: mlp.evaluate(x)):
                with pytest.raises(ShapeError, match=r"net takes \[R, B, 4\] float32, got \(2, 5, [34]\) torch.float"):
                    call()


@pytest.mark.parametrize(("path", "unit"), [("compiled", 1), ("plain", 8)])
@settings(deadline=None)
@given(data=st.data())
def test_a_replica_alone_equals_its_slice_bit_for_bit(path: str, unit: int, data: st.DataObject) -> None:
    """At any width on the compiled path.  In torch where widths are multiples of 8, whatever the inputs and the batch:
    narrower products are not stable."""
    with using(path):
        alone_equals_slice(data.draw(cases(largest=70, double=False, unit=unit)), unit)


def alone_equals_slice(case: Case, unit: int) -> None:
    mlp, bank, x, upstream, kept = case
    wide_input = x.shape[2] % unit == 0  # as in the decoder; the encoder needs no gradient of its input
    out = mlp.forward(x, kept).clone()
    below = mlp.backward(upstream, input_gradient=wide_input)
    evaluated = mlp.evaluate(x[:1])
    for r in range(len(x)):
        alone, single = only(bank, r), ReplicaMLP("net", mlp.sizes, DROP)
        single.bind(alone)
        mine = None if kept is None else [mask if len(mask) == 1 else mask[r : r + 1] for mask in kept]
        assert torch.equal(single.forward(x[r : r + 1].clone(), mine)[0], out[r])
        gradient = single.backward(upstream[r : r + 1].clone(), input_gradient=wide_input)
        assert (gradient is None) == (below is None) == (not wide_input)
        if below is not None and gradient is not None:
            assert torch.equal(gradient[0], below[r])
        assert torch.equal(alone.gradients[0], bank.gradients[r])
        assert torch.equal(single.evaluate(x[:1].clone())[0], evaluated[r])
        assert torch.equal(mlp.evaluate(x[:1], torch.tensor([r]))[0], evaluated[r])


def test_initial_values_depend_on_the_seed_alone() -> None:
    architecture = Architecture(width=12, depth=2, batch_size=8)
    together = ParameterBank(make_encoder(Columns(5), architecture).shapes(), 3)
    make_encoder(Columns(5), architecture).initialise(together, [stream(seed, "init", "encoder") for seed in (4, 9, 4)])
    alone = ParameterBank(make_encoder(Columns(5), architecture).shapes(), 1)
    make_encoder(Columns(5), architecture).initialise(alone, [stream(9, "init", "encoder")])
    assert torch.equal(together.values[1], alone.values[0])
    assert torch.equal(together.values[0], together.values[2]) and not torch.equal(together.values[0], alone.values[0])
    for i, fan_in in enumerate((5, 12, 12)):
        for kind in ("weight", "bias"):
            values = together.view(f"encoder.{i}.{kind}")
            assert 0.5 / fan_in**0.5 < values.abs().max() <= 1 / fan_in**0.5


@pytest.mark.parametrize(("decoder_depth", "blocks"), [("one", 1), ("encoder", 3)])
def test_sizes_of_encoder_and_decoder(decoder_depth: str, blocks: int) -> None:
    architecture = Architecture(width=12, depth=3, batch_size=8, dropout=0.2)
    encoder = make_encoder(Columns(5), architecture)
    protocol = Protocol.from_dict({"decoder_depth": decoder_depth})
    decoder = mlp_decoder(architecture, protocol, inputs=12, outputs=12)
    assert isinstance(encoder, MLPEncoder) and encoder.sizes == (5, 12, 12, 12, 12) and encoder.hidden == 3
    assert decoder.sizes == (12,) * (blocks + 2) and decoder.hidden == blocks
    assert encoder.scale == decoder.scale == pytest.approx(1.25)
