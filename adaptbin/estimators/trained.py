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
        tensors = {name: bank.view(name)[0] for name in encoder.shapes()}
        tensors |= {f"statistics.{name}": values[0] for name, values in encoder.statistics.items()}
        return cls(columns, architecture, {name: t.detach().cpu().clone() for name, t in tensors.items()})

    def embed(self, inputs: Tensor, device: str = "cpu") -> Tensor:
        """inputs [N, F] -> [N, H] float32, on the CPU; a row's embedding does not depend on the other rows.

        Raises DataError where the tensors are not those of the encoder.
        """
        encoder = self._encoder(torch.device(device))
        padded = torch.zeros(-(-len(inputs) // BLOCK_ROWS) * BLOCK_ROWS, inputs.shape[1])
        padded[: len(inputs)] = inputs
        blocks = [encoder.evaluate(block.unsqueeze(0)) for block in padded.to(device).split(BLOCK_ROWS)]
        return torch.cat([block[0] for block in blocks])[: len(inputs)].cpu()

    @property
    def width(self) -> int:
        """H."""
        return make_encoder(self.columns, self.architecture).width

    def _encoder(self, device: torch.device) -> ReplicaEncoder:
        encoder = make_encoder(self.columns, self.architecture)
        bank = ParameterBank(encoder.shapes(), 1, device)
        # For the batch statistics, which only come to be here; what is drawn is overwritten.
        encoder.initialise(bank, [torch.Generator()])
        encoder.bind(bank)
        expected = {name: bank.view(name)[0] for name in encoder.shapes()}
        expected |= {f"statistics.{name}": values[0] for name, values in encoder.statistics.items()}
        shapes = {name: tuple(t.shape) for name, t in expected.items()}
        got = {name: tuple(t.shape) for name, t in self.tensors.items()}
        if shapes != got:
            name = next(name for name in (*shapes, *got) if shapes.get(name) != got.get(name))
            raise DataError(
                f"the tensors of {self.architecture.encoder} must have the shapes of its settings and columns: "
                f"{name} should have {shapes.get(name, 'no place')}, got {got.get(name, 'none')}"
            )
        for name, own in expected.items():
            own.copy_(self.tensors[name])
        return encoder
