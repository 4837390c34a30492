"""Small cases for encoders over tokens: columns of every mixture, inputs, replicas with weights of their own."""

from __future__ import annotations

import torch
from torch import Tensor

from adaptbin.encoders.base import Columns
from adaptbin.encoders.transformer import TokenTransformer
from adaptbin.replicas.parameters import ParameterBank
from tests.replicas.banks import fill_, in_double

REPLICAS, ROWS = 3, 6

MIXTURES = {
    "both kinds": Columns(3, (4, 2)),
    "numbers only": Columns(4),
    "categories only": Columns(0, (3, 2, 5)),
    "one number": Columns(1),
    "one category": Columns(0, (3,)),
}


def inputs(columns: Columns, seed: int, *, replicas: int = REPLICAS, rows: int = ROWS) -> Tensor:
    """[R, B, F] float64: standard normal numbers, then codes that training has seen."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(replicas, rows, columns.numerical, generator=generator, dtype=torch.float64)
    shape = (replicas, rows)
    codes = [torch.randint(levels, shape, generator=generator).double() for levels in columns.cardinalities]
    return torch.cat([numbers, *(code.unsqueeze(2) for code in codes)], dim=2)


def kept_units(encoder: TokenTransformer, seed: int, *, replicas: int = REPLICAS, rows: int = ROWS) -> list[Tensor]:
    """A mask for every drop site."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.rand(replicas, rows, site.units, generator=generator) >= site.probability for site in encoder.drop_sites
    ]


def filled(encoder: TokenTransformer, seed: int, *, replicas: int = REPLICAS) -> ParameterBank:
    """A bank in float64 whose every parameter is random, so that none is left where it started, bound to ``encoder``."""
    bank = fill_(in_double(ParameterBank(encoder.shapes(), replicas)), seed)
    encoder.bind(bank)
    return bank
