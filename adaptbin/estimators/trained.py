"""A trained encoder by itself: what embeds rows after training, and what is saved of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from adaptbin.config import Architecture
from adaptbin.encoders.base import Columns, ReplicaEncoder
from adaptbin.encoders.registry import make_encoder
from adaptbin.errors import DataError
from adaptbin.replicas.parameters import ParameterBank

BLOCK_ROWS = 128
"""Rows embedded together, always as many: products of another shape round differently, so that an embedding would
depend on how many other rows are asked for."""


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """One encoder with its parameters and batch statistics."""

    columns: Columns
    architecture: Architecture
    tensors: Mapping[str, Tensor]
    """Parameters as the encoder names them, and ``statistics.<name>``; float32, CPU, without a replica axis."""

    @classmethod
    def of(cls, encoder: ReplicaEncoder, bank: ParameterBank, columns: Columns, architecture: Architecture) -> Self:
        """Copy the one replica of ``encoder`` out of ``bank``."""
        held = _tensors(encoder, bank)
        return cls(columns, architecture, {name: t.detach().cpu().clone() for name, t in held.items()})

    def embed(self, inputs: Tensor, device: torch.device) -> Tensor:
        """inputs [N, F] -> [N, H] float32, on the CPU; a row's embedding does not depend on the other rows.

        Raises DataError where the tensors are not those of the encoder.
        """
        encoder = self._encoder(device)
        padded = torch.zeros(-(-len(inputs) // BLOCK_ROWS) * BLOCK_ROWS, inputs.shape[1])
        padded[: len(inputs)] = inputs
        blocks = [encoder.evaluate(block.unsqueeze(0)) for block in torch.split(padded.to(device), BLOCK_ROWS)]
        return torch.cat([block[0] for block in blocks])[: len(inputs)].cpu()

    @property
    def width(self) -> int:
        """H."""
        return make_encoder(self.columns, self.architecture).width

    def check(self) -> None:
        """Raises DataError where the tensors are not those that the encoder has on these columns."""
        self._encoder(torch.device("cpu"))

    def _encoder(self, device: torch.device) -> ReplicaEncoder:
        encoder = make_encoder(self.columns, self.architecture)
        bank = ParameterBank(encoder.shapes(), 1, device)
        # For the batch statistics, which only come to be here; what is drawn is overwritten.
        encoder.initialise(bank, [torch.Generator()])
        encoder.bind(bank)
        own = _tensors(encoder, bank)
        shapes, got = ({name: tuple(t.shape) for name, t in held.items()} for held in (own, self.tensors))
        for name in sorted(shapes.keys() | got.keys()):
            if shapes.get(name) != got.get(name):
                raise DataError(
                    f"the tensors of this {self.architecture.encoder} must be those of its settings and columns: "
                    f"{name} should {'not be there' if name not in shapes else f'have shape {shapes[name]}'}, "
                    f"got {'none' if name not in got else f'shape {got[name]}'}"
                )
            own[name].copy_(self.tensors[name])
        return encoder


def _tensors(encoder: ReplicaEncoder, bank: ParameterBank) -> dict[str, Tensor]:
    """Parameters and batch statistics of a stack's first replica, where they are."""
    found = {name: bank.view(name)[0] for name in encoder.shapes()}
    return found | {f"statistics.{name}": values[0] for name, values in encoder.statistics.items()}


@dataclass(frozen=True, eq=False)
class TrainedHead:
    """The linear head above a :class:`TrainedEncoder`."""

    weight: Tensor
    """[H, O] float32, CPU."""
    bias: Tensor
    """[O] likewise."""
    scale: float
    """Outputs are multiplied by this, and then the next is added: target units of a regression, else 1 and 0."""
    shift: float

    def check(self, width: int, outputs: int) -> None:
        """Raises DataError where the tensors are not those of a head with so many outputs on embeddings so wide."""
        for name, held, shape in (("weight", self.weight, (width, outputs)), ("bias", self.bias, (outputs,))):
            if tuple(held.shape) != shape:
                raise DataError(f"the head's {name} should have shape {shape}, got shape {tuple(held.shape)}")

    def __call__(self, embedding: Tensor) -> Tensor:
        """[N, H] -> logits, or values in target units, [N, O] float64."""
        outputs = embedding.to(torch.float64) @ self.weight.to(torch.float64) + self.bias.to(torch.float64)
        return outputs * self.scale + self.shift
