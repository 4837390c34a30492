"""T2G-Former (Yan et al., AAAI 2023, arXiv 2211.16887): attention that a graph of related columns guides.

Where the paper and its authors' code (github.com/jyansir/t2g-former) differ, ours follows the code, which the paper's
scores were made with.  There is no switch:

- DIFF[paper->released] Eq. 6 is the softmax of the product of A and G_w, in which an edge that is not there scores 0
  and so keeps weight.  Code: its score is lowered by 10^4.
- DIFF[paper->released] A node without edges is isolated (Sec. 3.1).  Code: as all its scores are lowered alike, it
  reads all nodes, itself and the readout included.
- DIFF[paper->released] Eq. 2 and 8 know no 1 / sqrt(width of a head) and no product W_o after the heads.  Code: as in
  FT-Transformer.
- DIFF[paper->released] Embeddings of N columns have 2 ceil(log2 N) numbers (Sec. 4.3).  Code: ceil(2 log2(N + 1)),
  since the readout is a node, too.
- DIFF[paper->released] Eq. 8 drops numbers of the shortcut, Eq. 10 and 11 none of the readout's.  Code: numbers of what
  is added to it, for all nodes alike; by default with probability 0, which is the same.
- DIFF[paper->released] The topology is frozen once training has converged (Sec. 4.3).  Code: only if it is asked to,
  which by default it is not.

What ours does otherwise than both:

- DIFF[released->ours] The code trains embeddings of columns with a learning rate of their own (.01 by default; Table 9:
  .005 to .05), and tokens, normalisations and biases without weight decay.  Ours trains the parameters of all encoders
  alike; there is no switch.

The threshold's gradient comes with the factor 10^4: it outweighs all others by orders of magnitude wherever a norm over
all parameters is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from adaptbin.encoders.attention import attend, linear_tokens
from adaptbin.encoders.base import Columns
from adaptbin.encoders.declared import Declared, linear_parameters
from adaptbin.encoders.products import Parameters
from adaptbin.encoders.transformer import Mixing, TokenTransformer, TransformerConfig

_THRESHOLD = 0.5
"""T of Eq. 5: two columns are related where the probability is above it."""

_ABSENT = 1e4
"""Subtracted from the score of an edge that is not there."""

_VECTOR = 16
"""Numbers that the widest processors take at once."""


@dataclass(frozen=True, kw_only=True)
class T2GFormerConfig(TransformerConfig):
    """Settings of T2G-Former, under the names of FT-Transformer's.

    Defaults: the authors' default configuration (``configs/default`` in their repository, where they are called
    n_layers, d_token, n_heads, attention_dropout, d_ffn_factor, ffn_dropout and residual_dropout).
    """

    ffn_d_hidden_multiplier: float = 1.333333333333333
    """Units of a feed-forward part after its gate, as a multiple of ``d_block``, rounded down: 255 of 192."""


class GraphEstimator(Mixing):
    """A graph of relations between tokens, and what a token reads along its edges (Sec. 3 and 4).

    Tokens are nodes: the readout node and one per column.  Weights of edges are symmetric and come from the row;
    whether there is an edge is asymmetric and the same for all rows (the authors' defaults).  With f_i = W_h x_i::

        G_w[i, j] = f_i' diag(r) f_j / sqrt(W / heads)                      (2, 3) weight of the edge from j to i
        G_t[i, j] = cos(e_i^h, e_j^t)                                       (4)    e: embeddings of columns
        A[i, j]   = 1[sigmoid(G_t[i, j] + b) > 1/2]                         (5)    0 on the diagonal and for the readout
        G         = softmax over j of G_w where A is 1                      (6)
        out       = W_o (G W_v x)                                           (7, 8)
    """

    def __init__(self, config: T2GFormerConfig) -> None:
        self._config = config

    def declared(self, tokens: int) -> dict[str, Declared]:
        """See :class:`Mixing`.  ``relation`` is r, ``head`` and ``tail`` are e^h and e^t, ``edge_bias`` is b."""
        width, heads = self._config.d_block, self._config.attention_n_heads
        numbers = math.ceil(2 * math.log2(tokens))
        embeddings = Declared((heads, tokens, numbers), fan_in=tokens * numbers)
        return {
            **linear_parameters("node_value", width, 2 * width, zero_bias=True),
            "relation": Declared((width,), constant=1.0),
            "head": embeddings,
            "tail": embeddings,
            "edge_bias": Declared((1,)),
            **linear_parameters("out", width, width, zero_bias=True),
        }

    def products(self, tokens: int, queries: int) -> int:
        """See :class:`Mixing`."""
        width = self._config.d_block
        return width * width * (2 * tokens + queries) + 2 * width * tokens * queries

    def kept_numbers(self, tokens: int, queries: int) -> int:
        """See :class:`Mixing`.  Nodes, also as keys, and values; who asks, and what is read; twice the weights."""
        config = self._config
        return config.d_block * (4 * tokens + 2 * queries) + 2 * config.attention_n_heads * tokens * queries

    def __call__(self, x: Tensor, queries: int, parameters: Parameters, kept: Tensor | None) -> Tensor:
        """See :class:`Mixing`."""
        config = self._config
        node, value = linear_tokens("node_value", x, parameters).chunk(2, dim=-1)
        read = attend(
            node[:, :, :queries] * parameters["relation"][:, None, None],  # Eq. 2, 3
            node,
            value,
            heads=config.attention_n_heads,
            offset=_topology(queries, parameters),
            kept=kept,
            probability=config.attention_dropout,
        )
        return linear_tokens("out", read, parameters)


def _topology(queries: int, parameters: Parameters) -> Tensor:
    """What the graph adds to the scores: 0 for an edge, -10^4 for none (Eq. 4 to 6) -> [R, heads, queries, T].

    The threshold passes its gradient straight through to the probability (Bengio et al. 2013), as if an edge were added
    by it little by little.
    """
    tokens, numbers = parameters["head"].shape[2:]
    # Whole vectors of every replica: the last numbers of a tensor may be rounded otherwise, and which they are would
    # depend on how many replicas there are.
    more = (0, -numbers % _VECTOR, 0, -tokens % _VECTOR)
    head, tail = (functional.pad(functional.normalize(parameters[name], dim=-1), more) for name in ("head", "tail"))
    score = head @ tail.transpose(-2, -1) + parameters["edge_bias"][:, :, None, None]  # Eq. 4
    probability = torch.sigmoid(score)[:, :, :queries, :tokens]
    node = torch.arange(tokens, device=score.device)
    allowed = (node[:queries, None] != node) & (node > 0)
    edge = (probability > _THRESHOLD) & allowed  # Eq. 5
    # A row of scores that are all lowered alike is left as it is: softmax is the same, and float32 rounds scores near
    # 10^4 to a thousandth.
    absent = edge.any(dim=-1, keepdim=True) & ~edge
    straight_through = (probability - probability.detach()) * allowed
    return _ABSENT * (straight_through - absent.to(probability.dtype))


class T2GFormerEncoder(TokenTransformer):
    """R T2G-Formers without their heads: inputs [R, B, F] -> embeddings [R, B, W].

    The readout token is the cross-level readout (Sec. 4.2): it asks in every block, and no token with edges reads it.
    """

    def __init__(self, columns: Columns, config: T2GFormerConfig) -> None:
        super().__init__(columns, config, GraphEstimator(config))
