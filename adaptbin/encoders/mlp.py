"""The multilayer perceptron of the paper's linear evaluation, and its mirror, the decoder."""

from __future__ import annotations

from adaptbin.config import Architecture, Protocol
from adaptbin.replicas.layers import ReplicaMLP


def mlp_encoder(n_inputs: int, architecture: Architecture) -> ReplicaMLP:
    """``depth`` x (Linear -> ReLU -> Dropout), then Linear to the embedding z [R, B, H] (method, Sec. 1)."""
    sizes = [n_inputs, *[architecture.width] * (architecture.depth + 1)]
    return ReplicaMLP("encoder", sizes, architecture.dropout)


def mlp_decoder(architecture: Architecture, protocol: Protocol) -> ReplicaMLP:
    """One hidden block (or as many as the encoder has), then Linear; the heads come after it (method, Sec. 1)."""
    # DIFF[paper->released] paper: a decoder "symmetric" to the encoder.  Released code and default here: one hidden
    # block.  Switch: `decoder_depth`.
    blocks = architecture.depth if protocol.decoder_depth == "encoder" else 1
    return ReplicaMLP("decoder", [architecture.width] * (blocks + 2), architecture.dropout)
