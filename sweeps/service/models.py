"""How large a data set's encoder is: what memory and time of a replica follow from where no record tells them."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from adaptbin.config import Architecture


class EncoderSize(NamedTuple):
    """Size of one replica's encoder; see :class:`adaptbin.encoders.base.ReplicaEncoder`."""

    weights: int
    """Parameters."""
    width: int
    """H, numbers of an embedding."""
    products: int
    """Multiplications of a row's forward pass."""
    kept: int
    """Numbers that a training step keeps per row."""


@cache
def encoder_size(architecture: Architecture, features: int) -> EncoderSize:
    """Size of the encoder for rows of so many columns, all taken as numerical."""
    if architecture.encoder == "mlp":
        # What the encoder says of itself (a test compares), without torch, whose import takes longer than a plan.
        width, depth = architecture.width, architecture.depth
        products = width * (features + depth * width)
        return EncoderSize(products + (depth + 1) * width, width, products, features + (depth + 1) * width)
    from adaptbin.encoders.base import Columns
    from adaptbin.encoders.registry import make_encoder

    encoder = make_encoder(Columns(features), architecture)
    weights = sum(prod(shape) for shape in encoder.shapes().values())
    return EncoderSize(weights, encoder.width, encoder.products, encoder.kept_numbers(1))
