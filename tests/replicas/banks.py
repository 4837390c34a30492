"""Parameter banks for tests: in float64, which holds a hand-written gradient to 1e-10, and cut down to one replica."""

from __future__ import annotations

import torch

from adaptbin.replicas.parameters import ParameterBank

BUFFERS = ("values", "gradients", "first_moments", "second_moments")


def in_double(bank: ParameterBank) -> ParameterBank:
    """The same bank, its four buffers in float64."""
    for name in BUFFERS:
        setattr(bank, name, getattr(bank, name).double())
    return bank


def fill_(bank: ParameterBank, seed: int) -> ParameterBank:
    """Standard normal values in every parameter, a third of that size; padding stays 0."""
    generator = torch.Generator().manual_seed(seed)
    for name in bank.shapes:
        view = bank.view(name)
        view.copy_(torch.randn(view.shape, generator=generator, dtype=torch.float64) / 3)
    return bank


def only(bank: ParameterBank, r: int) -> ParameterBank:
    """A bank of its own that holds replica ``r`` alone."""
    alone = ParameterBank(bank.shapes, 1)
    for name in BUFFERS:
        setattr(alone, name, getattr(bank, name)[r : r + 1].clone())
    return alone
