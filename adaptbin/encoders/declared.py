"""Parameters as an encoder declares them: shape and first values of each, said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from adaptbin.replicas.parameters import ParameterBank, normal_, uniform_


@dataclass(frozen=True)
class Declared:
    """One parameter of each replica."""

    shape: tuple[int, ...]
    fan_in: int | None = None
    """First values are drawn from U(+-1/sqrt(fan_in)) if it is given,"""
    deviation: float | None = None
    """else from N(0, deviation^2) if this is,"""
    constant: float = 0.0
    """else all are this."""


def linear_parameters(name: str, inputs: int, outputs: int, *, zero_bias: bool = False) -> dict[str, Declared]:
    """``<name>.weight`` [in, out] and ``<name>.bias`` [out], started as torch.nn.Linear does, or with biases 0."""
    return {
        f"{name}.weight": Declared((inputs, outputs), fan_in=inputs),
        f"{name}.bias": Declared((outputs,), fan_in=None if zero_bias else inputs),
    }


def norm_parameters(name: str, width: int) -> dict[str, Declared]:
    """``<name>.weight`` and ``<name>.bias`` [W] of a normalisation, 1 and 0."""
    return {f"{name}.weight": Declared((width,), constant=1.0), f"{name}.bias": Declared((width,))}


def initialise(bank: ParameterBank, declared: Mapping[str, Declared], generators: Sequence[torch.Generator]) -> None:
    """Fill all declared parameters in their order, replica r from ``generators[r]``."""
    for name, parameter in declared.items():
        if parameter.fan_in is not None:
            uniform_(bank.view(name), parameter.fan_in, generators)
        elif parameter.deviation is not None:
            normal_(bank.view(name), parameter.deviation, generators)
        else:
            bank.view(name).fill_(parameter.constant)
