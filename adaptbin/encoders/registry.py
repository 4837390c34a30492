"""Encoders by name: the settings of each, and how one is made for a table."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from adaptbin.config import Architecture, EncoderName
from adaptbin.encoders.base import Columns, ReplicaEncoder
from adaptbin.encoders.ft_transformer import FTTransformerConfig, FTTransformerEncoder
from adaptbin.encoders.mlp import MLPConfig, MLPEncoder
from adaptbin.encoders.resnet import ResNetConfig, ResNetEncoder
from adaptbin.encoders.t2g_former import T2GFormerConfig, T2GFormerEncoder
from adaptbin.encoders.tabnet import TabNetConfig, TabNetEncoder
from adaptbin.errors import ConfigError, nearest

ENCODERS: dict[EncoderName, tuple[type[Any], type[ReplicaEncoder]]] = {
    "mlp": (MLPConfig, MLPEncoder),
    "resnet": (ResNetConfig, ResNetEncoder),
    "tabnet": (TabNetConfig, TabNetEncoder),
    "ft_transformer": (FTTransformerConfig, FTTransformerEncoder),
    "t2g_former": (T2GFormerConfig, T2GFormerEncoder),
}
"""Name, as in :class:`adaptbin.config.Architecture` -> its settings, and the encoder that has them."""


def settings_of(architecture: Architecture) -> Any:
    """All settings of an architecture's encoder, as its own frozen config.

    The perceptron's are the architecture's; another encoder's are its usual ones, but for ``encoder_settings``.
    Raises ConfigError for a setting that the encoder has not, naming the nearest it has, or that is out of range.
    """
    config, _ = ENCODERS[architecture.encoder]
    if architecture.encoder == "mlp":
        return config(width=architecture.width, depth=architecture.depth, dropout=architecture.dropout)
    known = [f.name for f in fields(config)]
    for name, _ in architecture.encoder_settings:
        if name not in known:
            raise ConfigError(
                f"{architecture.encoder} has no setting {name!r}{nearest(name, known)} (it has: {', '.join(known)})"
            )
    return config(**dict(architecture.encoder_settings))


def make_encoder(columns: Columns, architecture: Architecture) -> ReplicaEncoder:
    """The encoder of an architecture, for rows with these columns.  Raises ConfigError as :func:`settings_of` does."""
    return ENCODERS[architecture.encoder][1](columns, settings_of(architecture))  # type: ignore[call-arg]
