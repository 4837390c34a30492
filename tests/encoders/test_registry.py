"""Encoders by name, and what their settings may be."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from adaptbin.config import Architecture, EncoderName
from adaptbin.encoders.base import Columns
from adaptbin.encoders.registry import ENCODERS, make_encoder, settings_of
from adaptbin.errors import ConfigError

ARCHITECTURE = Architecture(width=24, depth=3, batch_size=8, dropout=0.2)


def test_every_name_has_an_encoder() -> None:
    assert tuple(ENCODERS) == get_args(EncoderName)
    for name in ENCODERS:
        encoder = make_encoder(Columns(3, (2,)), replace(ARCHITECTURE, encoder=name))
        assert isinstance(encoder, ENCODERS[name][1]) and encoder.width > 0


def test_the_perceptron_has_the_settings_of_the_architecture() -> None:
    encoder = make_encoder(Columns(3), ARCHITECTURE)
    assert encoder.width == 24
    assert [(site.units, site.probability) for site in encoder.drop_sites] == [(24, 0.2)] * 3


def test_another_encoder_has_its_usual_settings_but_for_those_given() -> None:
    usual = settings_of(replace(ARCHITECTURE, encoder="ft_transformer"))
    given = settings_of(replace(ARCHITECTURE, encoder="ft_transformer", encoder_settings={"n_blocks": 1}))  # type: ignore[arg-type]
    assert usual == ENCODERS["ft_transformer"][0]() and given == replace(usual, n_blocks=1)


def test_settings_that_cannot_be() -> None:
    def with_settings(**settings: float) -> Architecture:
        return replace(ARCHITECTURE, encoder="tabnet", encoder_settings=settings)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=r"tabnet has no setting 'n_step'; did you mean 'n_steps'\? \(it has: n_d, "):
        make_encoder(Columns(3), with_settings(n_step=2))
    with pytest.raises(ConfigError, match="n_steps must be a whole number >= 1, got 0"):
        make_encoder(Columns(3), with_settings(n_steps=0))
