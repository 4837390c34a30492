"""The multilayer perceptron of the paper's linear evaluation, and its mirror, the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from adaptbin.config import Architecture, Protocol
from adaptbin.encoders.base import Columns, DropSite, ReplicaEncoder
from adaptbin.encoders.checks import check_input, check_kept, check_probability, check_whole
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.parameters import ParameterBank


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """Settings of the perceptron; the paper chooses width and depth per data set (its Sec. 3)."""

    width: int
    """H, units of every hidden layer and of the embedding."""
    depth: int
    """Hidden blocks."""
    dropout: float = 0.1
    """Probability of dropping a hidden unit."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "width", "depth")
        check_probability(self, "dropout")


class MLPEncoder(ReplicaMLP, ReplicaEncoder):
    """R perceptrons: ``depth`` x (Linear -> ReLU -> Dropout), then Linear to the embedding z (method, Sec. 1).

    Its gradients are written by hand.  Codes of categorical columns are read as numbers.
    """

    def __init__(self, columns: Columns, config: MLPConfig) -> None:
        super().__init__(ReplicaEncoder.name, [columns.inputs, *[config.width] * (config.depth + 1)], config.dropout)
        self.columns, self.config = columns, config

    @property
    def width(self) -> int:
        """H."""
        return self.config.width

    @property
    def drop_sites(self) -> tuple[DropSite, ...]:
        """One per hidden block."""
        config = self.config
        return (DropSite(config.width, config.dropout),) * config.depth if config.dropout else ()

    @property
    def products(self) -> int:
        """See :class:`ReplicaEncoder`."""
        return self.config.width * (self.columns.inputs + self.config.depth * self.config.width)

    def kept_numbers(self, rows: int) -> int:
        """See :class:`ReplicaEncoder`.  The input, and what every layer puts out."""
        return rows * (self.columns.inputs + (self.config.depth + 1) * self.config.width)

    def bind(self, bank: ParameterBank) -> None:
        """See :class:`ReplicaEncoder`."""
        super().bind(bank)
        self._replicas = bank.replicas

    def forward(self, x: Tensor, kept: Sequence[Tensor] | None) -> Tensor:
        """See :class:`ReplicaEncoder`."""
        check_input(x, self.columns, self._replicas)
        check_kept(kept, self.drop_sites, x)
        return super().forward(x, kept or None)

    def evaluate(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """See :class:`ReplicaEncoder`."""
        replicas = self._replicas if members is None else len(members)
        check_input(x.expand(replicas, -1, -1) if len(x) == 1 else x, self.columns, replicas)
        return super().evaluate(x, members)


def decoder_blocks(architecture: Architecture, protocol: Protocol) -> int:
    """Hidden blocks of a decoder."""
    # DIFF[paper->released] paper: a decoder "symmetric" to the encoder.  Released code and default here: one hidden
    # block.  Switch: `decoder_depth`.
    return architecture.depth if protocol.decoder_depth == "encoder" else 1


def mlp_decoder(
    architecture: Architecture, protocol: Protocol, name: str = "decoder", *, inputs: int, outputs: int
) -> ReplicaMLP:
    """From embeddings of ``inputs`` numbers through its hidden blocks, then Linear to ``outputs`` (method, Sec. 1, 2).

    Its blocks have the architecture's width whatever the encoder is.
    """
    hidden = [architecture.width] * decoder_blocks(architecture, protocol)
    return ReplicaMLP(name, [inputs, *hidden, outputs], architecture.dropout)
