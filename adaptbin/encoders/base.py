"""What every encoder of R stacked replicas offers, so that whoever uses embeddings need not know which it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptbin import native
from adaptbin.encoders.products import Parameters
from adaptbin.errors import ShapeError
from adaptbin.replicas.parameters import ParameterBank


@dataclass(frozen=True)
class Columns:
    """The columns of a table's inputs [.., F]: numerical ones first, then categorical ones as codes."""

    numerical: int
    cardinalities: tuple[int, ...] = ()
    """Categories of each categorical column; its codes are 0 to that minus 1."""

    def __post_init__(self) -> None:
        if self.numerical < 0 or any(levels < 1 for levels in self.cardinalities) or not self.inputs:
            raise ShapeError(
                "columns must be at least one, each categorical one with a category, got "
                f"{self.numerical} numerical and categories {self.cardinalities}"
            )

    @property
    def inputs(self) -> int:
        """F."""
        return self.numerical + len(self.cardinalities)


@dataclass(frozen=True)
class DropSite:
    """One place where dropout acts in training."""

    units: int
    """Units per row that are dropped independently."""
    probability: float
    """Of dropping a unit; those kept are multiplied by 1 / (1 - probability)."""


class ReplicaEncoder(ABC):
    """R encoders: inputs [R, B, F] -> embeddings [R, B, H].

    Parameters ``<name>.*`` live in a :class:`ParameterBank` whose shapes include :meth:`shapes`; batch statistics,
    which are never trained, in :attr:`statistics`.  A replica's embedding and gradients do not depend on the others.
    """

    name = "encoder"

    @property
    @abstractmethod
    def width(self) -> int:
        """H."""

    @property
    @abstractmethod
    def drop_sites(self) -> tuple[DropSite, ...]:
        """Where dropout acts, in the order of ``kept`` of :meth:`forward`; sites that drop nothing are left out."""

    @property
    @abstractmethod
    def products(self) -> int:
        """Multiplications of one row by weights, or by other numbers of the row, in one replica's forward pass."""

    @abstractmethod
    def kept_numbers(self, rows: int) -> int:
        """Numbers of four bytes that one replica keeps between :meth:`forward` and :meth:`backward` of so many rows.

        Parameters are not among them, masks of dropout are.  Right to within a factor of two; nothing is computed.
        """

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Per-replica parameter shapes by name."""

    @abstractmethod
    def initialise(self, bank: ParameterBank, generators: Sequence[torch.Generator]) -> None:
        """Draw all parameters, replica r from ``generators[r]``, and reset the batch statistics."""

    @abstractmethod
    def bind(self, bank: ParameterBank) -> None:
        """Look up the views once; call again after the bank was widened."""

    @abstractmethod
    def forward(self, x: Tensor, kept: Sequence[Tensor] | None) -> Tensor:
        """Training pass; updates the batch statistics.

        x [R, B, F]; kept: per site of :attr:`drop_sites` [R or 1, B, units] bool, or None: no dropout; -> [R, B, H].
        """

    @abstractmethod
    def backward(self, gradient: Tensor, *, input_gradient: bool) -> Tensor | None:
        """Gradients of all parameters into the bank, from ``gradient`` [R, B, H]; -> [R, B, F] of the input if asked.

        Follows a :meth:`forward`, once.  What an encoder adds to the loss itself is part of it.
        """

    @abstractmethod
    def evaluate(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Pass without dropout, with the batch statistics as they are; every row by itself.

        x [R or 1, N, F] -> [R, N, H]; for the replicas ``members`` [M] x [M or 1, N, F] -> [M, N, H].
        """

    @property
    def statistics(self) -> Mapping[str, Tensor]:
        """Batch statistics by name, [R, ...] each, to be kept in checkpoints and written in place; {} without any."""
        return {}


class AutogradEncoder(ReplicaEncoder):
    """An encoder that says how it embeds, and leaves gradients to autograd.

    A subclass gives :meth:`_embed`, which is told all parameters and computes all replicas at once.
    """

    def bind(self, bank: ParameterBank) -> None:
        """See :class:`ReplicaEncoder`."""
        names = self.shapes()
        leaves = {name: bank.view(name).detach().requires_grad_() for name in names}
        self._leaves = Parameters(leaves, {name: bank.gradient(name) for name in names})

    @abstractmethod
    def _embed(
        self, x: Tensor, parameters: Parameters, kept: Sequence[Tensor] | None, members: Tensor | None
    ) -> Tensor:
        """x [R, B, F], parameters [R, ...] each, kept as in :meth:`forward` -> [R, B, H].

        In training ``members`` is None and ``torch.is_grad_enabled()``; in evaluation M replicas are embedded, and
        ``members`` [M] says which, so that their statistics can be looked up.
        """

    def forward(self, x: Tensor, kept: Sequence[Tensor] | None) -> Tensor:
        """See :class:`ReplicaEncoder`."""
        with torch.enable_grad():
            self._input = x.detach().requires_grad_()
            self._embedding = self._embed(self._input, self._leaves, kept, None)
        return self._embedding.detach()

    def _penalty(self) -> Tensor | None:
        """What the last :meth:`forward` adds to the sum of the replicas' losses, a scalar in the graph, or None."""
        return None

    def backward(self, gradient: Tensor, *, input_gradient: bool) -> Tensor | None:
        """See :class:`ReplicaEncoder`."""
        outputs, given = [self._embedding], [gradient]
        penalty = self._penalty()
        if penalty is not None:
            outputs, given = [*outputs, penalty], [*given, torch.ones_like(penalty)]
        sources = [*self._leaves.values(), *([self._input] if input_gradient else [])]
        # An input of codes only is in no graph: codes are looked up, and their gradient is 0.
        found = torch.autograd.grad(outputs, sources, given, materialize_grads=True)
        for held, new in zip(self._leaves.gradients.values(), found, strict=False):
            # Compiled kernels have written theirs in place.
            if not native.serves(held) or new.data_ptr() != held.data_ptr():
                held.copy_(new)
        del self._embedding, self._input
        return found[-1] if input_gradient else None

    @torch.no_grad()
    def evaluate(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """See :class:`ReplicaEncoder`."""
        everyone = torch.arange(len(next(iter(self._leaves.values()))), device=x.device)
        chosen = everyone if members is None else members
        parameters = Parameters(
            {
                name: leaf.detach() if members is None else leaf.detach().index_select(0, members)
                for name, leaf in self._leaves.items()
            }
        )
        return self._embed(x.expand(len(chosen), -1, -1) if len(x) == 1 else x, parameters, None, chosen)
