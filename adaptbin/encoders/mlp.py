"""The multilayer perceptron of the paper's linear evaluation, and its mirror, the decoder."""

from __future__ import annotations

from adaptbin.config import Architecture, Protocol
from adaptbin.replicas.layers import ReplicaMLP


def mlp_encoder(n_inputs: int, architecture: Architecture) -> ReplicaMLP:
    """``depth`` x (Linear -> ReLU -> Dropout), then Linear to the embedding z [R, B, H] (method, Sec. 1)."""
    sizes = [n_inputs, *[architecture.width] * (architecture.depth + 1)]
    return ReplicaMLP("encoder", sizes, architecture.dropout)


def decoder_blocks(architecture: Architecture, protocol: Protocol) -> int:
    """Hidden blocks of a decoder."""
    # DIFF[paper->released] paper: a decoder "symmetric" to the encoder.  Released code and default here: one hidden
    # block.  Switch: `decoder_depth`.
    return architecture.depth if protocol.decoder_depth == "encoder" else 1


def mlp_decoder(
    architecture: Architecture, protocol: Protocol, name: str = "decoder", outputs: int | None = None
) -> ReplicaMLP:
    """Its hidden blocks, then Linear to ``outputs`` (default: H units, and heads come after it) (method, Sec. 1, 2)."""
    width = architecture.width
    hidden = [width] * (decoder_blocks(architecture, protocol) + 1)
    return ReplicaMLP(name, [*hidden, width if outputs is None else outputs], architecture.dropout)
