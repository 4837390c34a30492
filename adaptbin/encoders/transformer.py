"""Blocks of attention over the tokens of a row, which FT-Transformer and T2G-Former share but for how tokens mix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adaptbin.encoders.attention import drop, linear_tokens, normalise, reglu
from adaptbin.encoders.base import AutogradEncoder, Columns, DropSite
from adaptbin.encoders.checks import check_input, check_kept, check_number, check_probability, check_whole
from adaptbin.encoders.declared import Declared, initialise, linear_parameters, norm_parameters
from adaptbin.encoders.products import Parameters
from adaptbin.encoders.tokens import Tokeniser
from adaptbin.errors import ConfigError
from adaptbin.replicas.parameters import ParameterBank

_NUMBERS_AT_ONCE = 2**22
"""Evaluation takes as many rows at once as keep the largest activation of a replica below so many numbers (16 MB)."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Settings of a transformer over tokens, under the names of rtdl_revisiting_models 0.0.2.

    Raises ConfigError on one that is out of range.
    """

    n_blocks: int = 3
    """Attention followed by a feed-forward part, so many times."""
    d_block: int = 192
    """W, numbers of a token, and H of the embedding."""
    attention_n_heads: int = 8
    """Attention heads, each of W / heads numbers."""
    attention_dropout: float = 0.2
    """Probability of dropping an attention weight."""
    ffn_d_hidden_multiplier: float = 4 / 3
    """Units of a feed-forward part after its gate, as a multiple of ``d_block``, rounded down."""
    ffn_dropout: float = 0.1
    """Probability of dropping a unit of a feed-forward part."""
    residual_dropout: float = 0.0
    """Probability of dropping a number of what attention or a feed-forward part adds to a token."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "n_blocks", "d_block", "attention_n_heads")
        check_probability(self, "attention_dropout", "ffn_dropout", "residual_dropout")
        check_number(self, 0, "ffn_d_hidden_multiplier", above=True)
        if self.d_block % self.attention_n_heads:
            raise ConfigError(
                f"d_block must be a multiple of attention_n_heads ({self.attention_n_heads}), got {self.d_block}"
            )
        if self.d_hidden < 1:
            raise ConfigError(
                "d_block times ffn_d_hidden_multiplier must be at least 1, "
                f"got {self.d_block} x {self.ffn_d_hidden_multiplier}"
            )

    @property
    def d_hidden(self) -> int:
        """Units of a feed-forward part after its gate."""
        return int(self.d_block * self.ffn_d_hidden_multiplier)


class Mixing(ABC):
    """How the tokens of a row read each other."""

    @abstractmethod
    def declared(self, tokens: int) -> dict[str, Declared]:
        """Its parameters in one block, of rows of T tokens."""

    @abstractmethod
    def products(self, tokens: int, queries: int) -> int:
        """Multiplications per row; see :class:`adaptbin.encoders.base.ReplicaEncoder`."""

    @abstractmethod
    def kept_numbers(self, tokens: int, queries: int) -> int:
        """Numbers kept per row, without its input; see :class:`adaptbin.encoders.base.ReplicaEncoder`."""

    @abstractmethod
    def __call__(self, x: Tensor, queries: int, parameters: Parameters, kept: Tensor | None) -> Tensor:
        """What the first ``queries`` tokens read of all.

        x [R, B, T, W], kept [R or 1, B, heads * queries * T] or None -> [R, B, queries, W].
        """


# DIFF[released->ours] with one head, both published models leave out the product after the heads; ours has it always;
# there is no switch.


class TokenTransformer(AutogradEncoder):
    """Tokens, then blocks with normalisation first: x + mix(norm(x)), then x + feed forward(norm(x)).

    The first attention reads tokens as they are, without normalisation; in the last block only the readout token asks.
    The embedding is the readout token after a last normalisation and ReLU, which the published models' heads read.
    """

    def __init__(self, columns: Columns, config: TransformerConfig, mixing: Mixing) -> None:
        self.columns = columns
        self.config = config
        self._mixing = mixing
        self._tokeniser = Tokeniser(columns, config.d_block)
        tokens = self._tokeniser.count
        self._queries = [tokens] * (config.n_blocks - 1) + [1]
        widest = tokens * max(2 * config.d_hidden, 2 * config.d_block, config.attention_n_heads * tokens)
        self._rows_at_once = max(1, _NUMBERS_AT_ONCE // widest)

    @property
    def width(self) -> int:
        """H."""
        return self.config.d_block

    @property
    def drop_sites(self) -> tuple[DropSite, ...]:
        """Of every block: attention weights, what they add, hidden units, what they add."""
        config, sites = self.config, []
        for queries in self._queries:
            residual = DropSite(queries * config.d_block, config.residual_dropout)
            sites += [
                DropSite(config.attention_n_heads * queries * self._tokeniser.count, config.attention_dropout),
                residual,
                DropSite(queries * config.d_hidden, config.ffn_dropout),
                residual,
            ]
        return tuple(site for site in sites if site.probability > 0)

    @property
    def products(self) -> int:
        """See :class:`adaptbin.encoders.base.ReplicaEncoder`."""
        tokens, config = self._tokeniser.count, self.config
        mixed = sum(self._mixing.products(tokens, queries) for queries in self._queries)
        return tokens * config.d_block + mixed + sum(self._queries) * 3 * config.d_block * config.d_hidden

    def kept_numbers(self, rows: int) -> int:
        """See :class:`adaptbin.encoders.base.ReplicaEncoder`.

        Tokens before, inside and after each of two normalisations of a block; of its feed-forward part the two halves,
        the gates, and what is left of their product; compiled kernels keep less.
        """
        tokens, config = self._tokeniser.count, self.config
        mixed = sum(self._mixing.kept_numbers(tokens, queries) for queries in self._queries)
        around = 3 * tokens * len(self._queries) * config.d_block
        asking = sum(self._queries) * (3 * config.d_block + 4 * config.d_hidden)
        return rows * (around + mixed + asking)

    def _declared(self) -> dict[str, Declared]:
        config = self.config
        declared = _below(f"{self.name}.tokens", self._tokeniser.declared())
        for block in range(config.n_blocks):
            parts = _below("attention", self._mixing.declared(self._tokeniser.count))
            if block > 0:
                parts |= norm_parameters("attention_norm", config.d_block)
            parts |= norm_parameters("hidden_norm", config.d_block)
            parts |= linear_parameters("hidden", config.d_block, 2 * config.d_hidden)
            parts |= linear_parameters("out", config.d_hidden, config.d_block)
            declared |= _below(f"{self.name}.{block}", parts)
        return declared | norm_parameters(f"{self.name}.norm", config.d_block)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See :class:`ReplicaEncoder`."""
        return {name: parameter.shape for name, parameter in self._declared().items()}

    def initialise(self, bank: ParameterBank, generators: Sequence[torch.Generator]) -> None:
        """See :class:`ReplicaEncoder`."""
        initialise(bank, self._declared(), generators)

    def bind(self, bank: ParameterBank) -> None:
        """See :class:`ReplicaEncoder`."""
        super().bind(bank)
        self._tokeniser.bind(bank.device)

    def evaluate(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """See :class:`ReplicaEncoder`.  Goes through the rows in pieces whose size depends on nothing but the shapes of
        one replica: all tokens of a large table at once would not fit memory."""
        pieces = torch.split(x, self._rows_at_once, dim=1)
        return torch.cat([super(TokenTransformer, self).evaluate(piece, members) for piece in pieces], dim=1)

    def _embed(
        self, x: Tensor, parameters: Parameters, kept: Sequence[Tensor] | None, members: Tensor | None
    ) -> Tensor:
        check_input(x, self.columns, len(next(iter(parameters.values()))))
        check_kept(kept, self.drop_sites, x)
        config = self.config
        masks = None if kept is None else iter(kept)
        tokens = self._tokeniser(x, parameters.within(f"{self.name}.tokens"))
        for block, queries in enumerate(self._queries):
            own = parameters.within(f"{self.name}.{block}")
            source = tokens if block == 0 else normalise("attention_norm", tokens, own)
            read = self._mixing(source, queries, own.within("attention"), _next(masks, config.attention_dropout))
            read = drop(read, _next(masks, config.residual_dropout), config.residual_dropout)
            tokens = tokens[:, :, :queries] + read
            hidden = linear_tokens("hidden", normalise("hidden_norm", tokens, own), own)
            units = reglu(hidden, _next(masks, config.ffn_dropout), config.ffn_dropout)
            added = drop(
                linear_tokens("out", units, own), _next(masks, config.residual_dropout), config.residual_dropout
            )
            tokens = tokens + added
        return normalise("norm", tokens, parameters.within(self.name)).squeeze(2).relu()


def _next(masks: Iterator[Tensor] | None, probability: float) -> Tensor | None:
    """The mask of the next drop site; None where nothing is dropped."""
    return next(masks) if masks is not None and probability > 0 else None


def _below(prefix: str, declared: Mapping[str, Declared]) -> dict[str, Declared]:
    return {f"{prefix}.{name}": parameter for name, parameter in declared.items()}
