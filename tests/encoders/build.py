"""Encoders ready for tests: bound to a bank of parameters that are all different, with inputs and masks to match."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptbin.encoders.base import Columns, ReplicaEncoder
from adaptbin.replicas.parameters import ParameterBank
from tests.replicas.banks import fill_, in_double

REPLICAS = 3
MIXED = Columns(3, (4, 3))


def bound(encoder: ReplicaEncoder, *, replicas: int = REPLICAS, double: bool = False, seed: int = 0) -> ParameterBank:
    """A bank whose parameters are drawn one by one, normalisations too; running statistics likewise."""
    bank = ParameterBank(encoder.shapes(), replicas)
    fill_(in_double(bank) if double else bank, seed)
    encoder.bind(bank)
    generator = torch.Generator().manual_seed(seed)
    for held in encoder.statistics.values():
        held.copy_(torch.rand(held.shape, generator=generator) + 0.5)
    return bank


def inputs(columns: Columns, rows: int, *, replicas: int = REPLICAS, double: bool = False, seed: int = 0) -> Tensor:
    """[R, rows, F]: standard normal numbers, then codes."""
    generator = torch.Generator().manual_seed(seed)
    numerical = torch.randn(replicas, rows, columns.numerical, generator=generator)
    codes = [torch.randint(levels, (replicas, rows, 1), generator=generator) for levels in columns.cardinalities]
    return torch.cat([numerical, *codes], dim=2).to(torch.float64 if double else torch.float32)


def upstream(encoder: ReplicaEncoder, x: Tensor, seed: int = 1) -> Tensor:
    """A gradient of the embedding of x [R, B, F]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*x.shape[:2], encoder.width, generator=generator).to(x.dtype)


def masks(encoder: ReplicaEncoder, rows: int, *, replicas: int = REPLICAS, seed: int = 2) -> list[Tensor]:
    """[R, rows, units] of every site where the encoder drops units, at its probability."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.rand(replicas, rows, site.units, generator=generator) >= site.probability for site in encoder.drop_sites
    ]
