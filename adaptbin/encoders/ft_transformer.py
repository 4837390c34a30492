"""FT-Transformer (Gorishniy et al. 2021, "Revisiting Deep Learning Models for Tabular Data", Sec. 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from adaptbin.encoders.attention import attend, linear_tokens
from adaptbin.encoders.base import Columns
from adaptbin.encoders.declared import Declared, linear_parameters
from adaptbin.encoders.products import Parameters
from adaptbin.encoders.transformer import Mixing, TokenTransformer, TransformerConfig


@dataclass(frozen=True, kw_only=True)
class FTTransformerConfig(TransformerConfig):
    """Settings of FT-Transformer.

    Defaults: those of the authors' package rtdl_revisiting_models 0.0.2 for 3 blocks.
    """


class SelfAttention(Mixing):
    """Multi-head attention of all tokens to all (Vaswani et al. 2017), with biases; keys and values come together."""

    def __init__(self, config: FTTransformerConfig) -> None:
        self._config = config

    def declared(self, tokens: int) -> dict[str, Declared]:
        """See :class:`Mixing`."""
        width = self._config.d_block
        return (
            linear_parameters("query", width, width, zero_bias=True)
            | linear_parameters("key_value", width, 2 * width, zero_bias=True)
            | linear_parameters("out", width, width, zero_bias=True)
        )

    def products(self, tokens: int, queries: int) -> int:
        """See :class:`Mixing`."""
        width = self._config.d_block
        return 2 * width * width * (tokens + queries) + 2 * width * tokens * queries

    def kept_numbers(self, tokens: int, queries: int) -> int:
        """See :class:`Mixing`.  Queries and what they read, keys and values; twice the attention's weights."""
        config = self._config
        return 2 * config.d_block * (tokens + queries) + 2 * config.attention_n_heads * tokens * queries

    def __call__(self, x: Tensor, queries: int, parameters: Parameters, kept: Tensor | None) -> Tensor:
        """See :class:`Mixing`."""
        config = self._config
        query = linear_tokens("query", x[:, :, :queries], parameters)
        key, value = linear_tokens("key_value", x, parameters).chunk(2, dim=-1)
        read = attend(
            query, key, value, heads=config.attention_n_heads, kept=kept, probability=config.attention_dropout
        )
        return linear_tokens("out", read, parameters)


class FTTransformerEncoder(TokenTransformer):
    """R FT-Transformers without their heads: inputs [R, B, F] -> embeddings [R, B, W]."""

    # DIFF[released->ours] the package's default optimizer trains tokens, normalisations in blocks and biases without
    # weight decay, and the rest with 1e-5.  Ours trains the parameters of all encoders alike; there is no switch.

    def __init__(self, columns: Columns, config: FTTransformerConfig) -> None:
        super().__init__(columns, config, SelfAttention(config))
