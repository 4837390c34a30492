"""The flat buffer: views, the live prefix, widening, and initial values."""

from __future__ import annotations

import math

import pytest
import torch

from adaptbin.errors import ShapeError
from adaptbin.replicas.parameters import ParameterBank, uniform_
from adaptbin.replicas.streams import stream
from tests.replicas.banks import fill_

SHAPES: dict[str, tuple[int, ...]] = {"a": (3, 5), "b": (7,), "tail": (6, 4)}
WIDE: dict[str, tuple[int, ...]] = {"a": (3, 5), "b": (90,), "tail": (40, 4)}


def test_views_are_windows_that_do_not_overlap() -> None:
    bank = ParameterBank(SHAPES, 2)
    for number, name in enumerate(SHAPES, 1):
        bank.view(name).fill_(number)
        bank.gradient(name).fill_(-number)
    for number, name in enumerate(SHAPES, 1):
        assert bank.view(name).shape == (2, *SHAPES[name])
        assert (bank.view(name) == number).all() and (bank.gradient(name) == -number).all()
    written = sum(number * math.prod(shape) for number, shape in enumerate(SHAPES.values(), 1))
    assert bank.values.sum() == 2 * written == -bank.gradients.sum()  # padding stays 0
    assert (bank.first_moments == 0).all() and (bank.second_moments == 0).all()


@pytest.mark.parametrize("shapes", [SHAPES, WIDE])
def test_every_view_starts_on_a_vector_boundary(shapes: dict[str, tuple[int, ...]]) -> None:
    bank = ParameterBank(shapes, 3)
    for name in shapes:
        assert bank.view(name).storage_offset() % 64 == 0
    assert bank.values.shape[1] % 64 == 0


def test_the_live_part_is_a_prefix_that_ends_behind_the_rows_in_use() -> None:
    bank = ParameterBank(WIDE, 1)
    start = bank.view("tail").storage_offset()
    for rows in (0, 1, 16, 17, 40):
        length = bank.live_length(rows)
        assert length % 64 == 0 and start + 4 * rows <= length < start + 4 * rows + 64
    assert bank.live_length(40) <= bank.values.shape[1]


def test_widening_keeps_every_entry_and_fills_with_zeros() -> None:
    bank = fill_(ParameterBank(SHAPES, 2), 0)
    for offset, buffer in enumerate(bank.buffers()):
        buffer.add_(offset)
    wide = bank.widened(WIDE)
    assert wide.tail == "tail" and bank.shapes == SHAPES
    for old, new in zip(bank.buffers(), wide.buffers(), strict=True):
        for name, shape in SHAPES.items():
            kept = wide.view(name, new)[(slice(None), *(slice(0, size) for size in shape))]
            assert torch.equal(kept, bank.view(name, old))
    assert (wide.view("b")[:, 7:] == 0).all() and (wide.view("tail")[:, 6:] == 0).all()


@pytest.mark.parametrize("tail", [(5, 4), (6, 3), (6, 4, 1)])
def test_a_parameter_cannot_shrink_or_change_its_axes(tail: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"tail can only widen from \(6, 4\), got "):
        ParameterBank(SHAPES, 2).widened(SHAPES | {"tail": tail})


def test_initial_values_are_uniform_within_one_over_root_fan_in() -> None:
    target = torch.empty(2, 300, 200)
    uniform_(target, 16, [stream(0, "init"), stream(1, "init")])
    for values in target:
        assert values.abs().max() <= 0.25 and values.min() < -0.249 and values.max() > 0.249
        assert abs(float(values.mean())) < 0.003
        assert float(values.var()) == pytest.approx(0.25**2 / 3, rel=0.02)
    assert not torch.equal(target[0], target[1])


def test_replicas_that_share_a_generator_share_its_numbers() -> None:
    shared, other = stream(0, "init"), stream(1, "init")
    target, again = torch.empty(3, 5), torch.empty(1, 5)
    uniform_(target, 4, [shared, other, shared])
    assert torch.equal(target[0], target[2]) and not torch.equal(target[0], target[1])
    uniform_(again, 4, [stream(1, "init")])
    assert torch.equal(again[0], target[1])  # neighbours do not matter
