"""Products of the compiled kernels: right to the bound of their own rounding, and the same bits whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from adaptbin import native
from tests.paths import switched, usable_sets, using
from tests.strategies import seeds

HALF_ULP = 2.0**-24
SENTINEL = -7.25
SIZES = st.one_of(st.integers(1, 70), st.sampled_from([16, 32, 48, 64, 95, 96, 97, 128, 131, 193, 251, 400]))
"""Around every tile there is: 16 and 32 columns, 6 and 12 rows, transposed blocks of 8 and 16; around chunks of 192 and
blocks of 240; and what fits none."""

pytestmark = pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    """Whatever the switch says."""
    with using("compiled"):
        yield


class Layer(NamedTuple):
    """One layer of R replicas: parameters are views of wider rows, as in a bank; the input is part of a wider one."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    scale: float
    hidden: bool
    kept: Tensor | None
    upstream: Tensor

    def part(self, replicas: slice, rows: slice = slice(None)) -> Layer:
        """Some replicas and rows of it."""
        kept = self.kept
        if kept is not None:
            kept = kept[replicas if len(kept) > 1 else slice(None), rows].clone()
        x, upstream = self.x[replicas, rows], self.upstream[replicas, rows].contiguous()
        return Layer(x, self.weight[replicas], self.bias[replicas], self.scale, self.hidden, kept, upstream)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    replicas, rows, inputs, outputs = draw(st.integers(1, 3)), draw(SIZES), draw(SIZES), draw(SIZES)
    generator = torch.Generator().manual_seed(draw(seeds))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    shared, wider = draw(st.booleans()), draw(st.integers(0, 5))
    x = normal(1 if shared else replicas, rows + 1, inputs + wider)[:, 1:, :inputs].expand(replicas, -1, -1)
    bank = normal(replicas, 3 + inputs * outputs + outputs)
    weight = bank[:, 3 : 3 + inputs * outputs].view(replicas, inputs, outputs)
    masks = draw(st.sampled_from([None, 1, replicas]))
    kept = None if masks is None else torch.rand(masks, 2, rows, outputs, generator=generator)[:, 1] < 0.8
    scale, hidden = draw(st.sampled_from([1.0, 1.0 / 0.9, 0.5])), draw(st.booleans())
    upstream = normal(replicas, rows, outputs)
    return Layer(x, weight, bank[:, -outputs:].unsqueeze(1), scale, hidden, kept if hidden else None, upstream)


def forward(layer: Layer) -> Tensor:
    out = torch.full((*layer.x.shape[:2], layer.weight.shape[2]), torch.nan)
    x, weight, bias, scale, hidden, kept, _ = layer
    native.linear_forward(x, weight, bias, scale, hidden=hidden, kept=kept, out=out)
    return out


class Gradients(NamedTuple):
    weight: Tensor
    bias: Tensor
    below: Tensor | None


def backward(layer: Layer, *, gated: bool, wanted: bool = True) -> Gradients:
    """Gradients into views of a bank of sentinels, which must all be there afterwards."""
    replicas, rows, inputs = layer.x.shape
    outputs = layer.weight.shape[2]
    bank = torch.full((replicas, 5 + outputs + layer.weight.stride(0)), SENTINEL)
    place = slice(5, 5 + inputs * outputs)
    around = torch.ones_like(bank, dtype=torch.bool)
    around[:, place] = around[:, -outputs:] = False
    weight_gradient, bias_gradient = bank[:, place].view(replicas, inputs, outputs), bank[:, -outputs:]
    # As in a bank, weights lie like their gradients.
    weight = torch.empty_like(bank)[:, place].view(replicas, inputs, outputs).copy_(layer.weight)
    below = torch.full((replicas, rows, inputs), torch.nan) if wanted else None
    native.linear_backward(
        layer.x.contiguous() if gated else layer.x,
        layer.upstream,
        weight,
        layer.scale,
        weight_gradient=weight_gradient,
        bias_gradient=bias_gradient,
        gated=gated,
        below=below,
    )
    assert (bank[around] == SENTINEL).all()
    return Gradients(weight_gradient, bias_gradient, below)


def assert_near(found: Tensor, expected: Tensor, magnitude: Tensor, roundings: int) -> None:
    """As far from the exact value as that many roundings of a sum of terms of that magnitude can lead."""
    assert found.isfinite().all()
    off = (found.double() - expected).abs()
    assert (off <= roundings * HALF_ULP * 1.01 * magnitude).all()


@settings(max_examples=100)
@given(layer=layers())
def test_forward_is_torchs_in_float64(layer: Layer) -> None:
    x, weight, bias = layer.x.double(), layer.weight.double(), layer.bias.double()
    expected = layer.scale * x @ weight + bias
    if layer.hidden:
        expected = expected.clamp(min=0)
    if layer.kept is not None:
        expected = expected * layer.kept
    magnitude = abs(layer.scale) * x.abs() @ weight.abs() + bias.abs()
    # One rounding per product; then the scale, its own and the multiplication's, and the bias.
    assert_near(forward(layer), expected, magnitude, x.shape[2] + 3)
    if layer.kept is not None:
        assert (forward(layer)[~layer.kept.expand(expected.shape)] == 0).all()


@settings(max_examples=100)
@given(layer=layers(), gated=st.booleans(), wanted=st.booleans())
def test_gradients_are_torchs_in_float64(layer: Layer, gated: bool, wanted: bool) -> None:
    found = backward(layer, gated=gated, wanted=wanted)
    x, weight, upstream = layer.x.double(), layer.weight.double(), layer.upstream.double()
    rows, outputs = upstream.shape[1:]
    turned = x.transpose(1, 2)
    magnitude = layer.scale * turned.abs() @ upstream.abs()
    assert_near(found.weight, layer.scale * turned @ upstream, magnitude, rows + 2)
    assert_near(found.bias, upstream.sum(1), upstream.abs().sum(1), rows)
    assert (found.below is not None) == wanted
    if found.below is not None:
        gate = (x > 0).double() if gated else torch.ones_like(x)
        turned = weight.transpose(1, 2)
        magnitude = layer.scale * (upstream.abs() @ turned.abs()) * gate
        assert_near(found.below, layer.scale * (upstream @ turned) * gate, magnitude, outputs + 2)


@settings(max_examples=100)
@given(layer=layers(), gated=st.booleans())
def test_every_instruction_set_gives_the_same_bits(layer: Layer, gated: bool) -> None:
    results = []
    for name in usable_sets():
        with switched(name):
            assert native.instruction_set() == name
            gradients = backward(layer, gated=gated)
            assert gradients.below is not None
            results.append((forward(layer), *gradients[:2], gradients.below))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@settings(max_examples=100)
@given(layer=layers(), gated=st.booleans())
def test_a_replica_alone_equals_its_slice_at_any_width_and_batch(layer: Layer, gated: bool) -> None:
    out, gradients = forward(layer), backward(layer, gated=gated)
    for r in range(len(layer.x)):
        alone = layer.part(slice(r, r + 1))
        assert torch.equal(forward(alone)[0], out[r])
        for mine, theirs in zip(backward(alone, gated=gated), gradients, strict=True):
            assert mine is not None and theirs is not None and torch.equal(mine[0], theirs[r])


@settings(max_examples=100)
@given(layer=layers(), gated=st.booleans(), data=st.data())
def test_a_row_does_not_depend_on_the_rows_around_it(layer: Layer, gated: bool, data: st.DataObject) -> None:
    rows = layer.x.shape[1]
    begin = data.draw(st.integers(0, rows - 1))
    some = slice(begin, data.draw(st.integers(begin + 1, rows)))
    part = layer.part(slice(None), some)
    assert torch.equal(forward(part), forward(layer)[:, some])
    mine, theirs = backward(part, gated=gated).below, backward(layer, gated=gated).below
    assert mine is not None and theirs is not None and torch.equal(mine, theirs[:, some])


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [
        *((64, 512, 512), (13, 1024, 96), (5, 512, 1024), (128, 48, 2048)),
        # More than is ever copied; and weights that stay in the second cache, or not.
        *((530, 1024, 64), (17, 512, 256), (17, 512, 288)),
    ],
)
def test_rows_that_lie_a_power_of_two_apart_give_the_same_bits_as_others(rows: int, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, upstream = (torch.randn(2, rows, size, generator=generator) for size in (inputs + 3, outputs))
    weight, bias = (torch.randn(2, size, outputs, generator=generator) for size in (inputs, 1))
    apart = Layer(x[..., :inputs], weight, bias, 1.0, False, None, upstream)
    packed = apart._replace(x=apart.x.contiguous())
    out, gradients = forward(packed), backward(packed, gated=False)
    assert torch.equal(out, forward(apart))
    for mine, theirs in zip(gradients, backward(apart, gated=False), strict=True):
        assert mine is not None and theirs is not None and torch.equal(mine, theirs)
    exact = packed.x.double() @ weight.double() + bias.double()
    assert_near(out, exact, packed.x.double().abs() @ weight.double().abs() + bias.double().abs(), inputs + 3)
    turned = upstream.double() @ weight.double().transpose(1, 2)
    assert gradients.below is not None
    magnitude = upstream.double().abs() @ weight.double().abs().transpose(1, 2)
    assert_near(gradients.below, turned, magnitude, outputs + 2)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_with_its_replica_and_row(value: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 21, 19, generator=generator), torch.randn(2, 19, 37, generator=generator)
    layer = Layer(x, weight, torch.zeros(2, 1, 37), 1.0, True, None, torch.randn(2, 21, 37, generator=generator))
    clean, clean_gradients = forward(layer), backward(layer, gated=False)
    x[1, 20, 3] = value
    out, gradients = forward(layer), backward(layer, gated=False)
    bad = out[1, 20]
    assert bad.isnan().all() if value != value else (bad == torch.where(value * weight[1, 3] > 0, torch.inf, 0)).all()
    assert torch.equal(out[0], clean[0]) and torch.equal(out[1, :20], clean[1, :20])
    assert torch.equal(gradients.weight[0], clean_gradients.weight[0])
    assert not gradients.weight[1, 3].isfinite().any()


def test_kernels_serve_float32_on_the_cpu() -> None:
    with using("compiled"):
        assert native.serves(torch.zeros(1))
        assert not native.serves(torch.zeros(1, dtype=torch.float64))
        assert not native.serves(torch.zeros(1, device="meta"))
    with using("plain"):
        assert not native.serves(torch.zeros(1))
