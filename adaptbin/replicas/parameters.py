"""One flat buffer for the parameters of R replicas, so that clipping and AdamW are a few passes over one tensor.

Layout per replica: the body's weights and biases in the order of their declaration, then the tail.  The tail holds
the heads; it may be widened, and only its first rows may be in use, so its live part is always a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from adaptbin.errors import ShapeError

_PAD = 64
"""Live lengths are rounded up to whole vectors: the last elements then never take a differently rounded scalar path."""


class ParameterBank:
    """Parameters, gradients and AdamW moments of R replicas, each one [R, P] tensor with named views.

    ``shapes`` maps names to per-replica shapes, in layout order; the last entry is the tail.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], replicas: int, device: torch.device | str = "cpu"
    ) -> None:
        self.shapes = dict(shapes)
        self.replicas = replicas
        self.device = torch.device(device)
        self.tail = list(self.shapes)[-1]
        self._offsets: dict[str, int] = {}
        offset = 0
        for name, shape in self.shapes.items():
            # Every view starts on a vector boundary, whatever the widths are.
            self._offsets[name] = offset
            offset += -(-math.prod(shape) // _PAD) * _PAD
        self.values, self.gradients, self.first_moments, self.second_moments = (
            torch.zeros(replicas, offset, device=self.device) for _ in range(4)
        )

    def view(self, name: str, buffer: Tensor | None = None) -> Tensor:
        """[R, *shape] view of parameter ``name`` in ``buffer`` (default: the values)."""
        shape = self.shapes[name]
        start = self._offsets[name]
        flat = (self.values if buffer is None else buffer)[:, start : start + math.prod(shape)]
        return flat.view(self.replicas, *shape)

    def gradient(self, name: str) -> Tensor:
        """[R, *shape] view of the gradient of parameter ``name``."""
        return self.view(name, self.gradients)

    def live_length(self, tail_rows: int) -> int:
        """Length of the prefix that holds the body and the first ``tail_rows`` rows of the tail."""
        row = math.prod(self.shapes[self.tail][1:])
        return self._offsets[self.tail] + -(-tail_rows * row // _PAD) * _PAD

    def widened(self, shapes: Mapping[str, tuple[int, ...]]) -> ParameterBank:
        """Copy with larger shapes: every old entry keeps its place from index 0 on; what is new is zero."""
        wide = ParameterBank(shapes, self.replicas, self.device)
        for name, old in self.shapes.items():
            new = wide.shapes[name]
            if len(new) != len(old) or any(n < o for n, o in zip(new, old, strict=True)):
                raise ShapeError(f"{name} can only widen from {old}, got {new}")
            index = (slice(None), *(slice(0, size) for size in old))
            for target, source in zip(wide.buffers(), self.buffers(), strict=True):
                wide.view(name, target)[index] = self.view(name, source)
        return wide

    def buffers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Values, gradients, first and second moments, each [R, P]."""
        return self.values, self.gradients, self.first_moments, self.second_moments


def uniform_(target: Tensor, fan_in: int, generators: Sequence[torch.Generator]) -> None:
    """Fill ``target`` [R, ...] with U(+-1/sqrt(fan_in)), replica r from ``generators[r]`` (method, Sec. 1).

    One generator object given for several replicas is drawn from once, and its numbers are shared by them.
    """
    bound = 1.0 / math.sqrt(fan_in)

    def draw(generator: torch.Generator) -> Tensor:
        values = torch.rand(target.shape[1:], generator=generator, device=generator.device)
        return values * (2 * bound) - bound

    _draw_(target, generators, draw)


def normal_(target: Tensor, deviation: float, generators: Sequence[torch.Generator]) -> None:
    """Fill ``target`` [R, ...] with N(0, deviation^2); generators as in :func:`uniform_`."""

    def draw(generator: torch.Generator) -> Tensor:
        return torch.randn(target.shape[1:], generator=generator, device=generator.device) * deviation

    _draw_(target, generators, draw)


def _draw_(target: Tensor, generators: Sequence[torch.Generator], draw: Callable[[torch.Generator], Tensor]) -> None:
    drawn: dict[int, Tensor] = {}
    for r, generator in enumerate(generators):
        if id(generator) not in drawn:
            drawn[id(generator)] = draw(generator).to(target.device)
        target[r] = drawn[id(generator)]
