"""T2G-Former, one row and one token at a time, from the equations of arXiv 2211.16887 in their order.

Where the authors' code differs from the paper, the twin does as the code and says so; ``released=False`` in
:func:`relation_graph` is the paper's Eq. 6.  Symbols are the paper's; products are ``W x + b`` with W [out, in].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

THRESHOLD = 0.5
ABSENT = 1e4


class Affine(NamedTuple):
    weight: np.ndarray  # [out, in]
    bias: np.ndarray  # [out]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.weight @ x + self.bias


class Norm(NamedTuple):
    weight: np.ndarray  # [W]
    bias: np.ndarray  # [W]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        deviation = math.sqrt(((x - x.mean()) ** 2).mean() + 1e-5)
        return (x - x.mean()) / deviation * self.weight + self.bias


class Tokens(NamedTuple):
    readout: np.ndarray  # [W], z^0
    numerical: np.ndarray  # [D, W]
    categories: list[np.ndarray]  # C of [levels, W]
    bias: np.ndarray  # [D + C, W]


class Estimator(NamedTuple):
    """Graph Estimator of one block; W^h = W^t, while E^h and E^t differ."""

    node: Affine
    """W^h (Eq. 3)"""
    relation: np.ndarray  # [heads, W / heads]
    """r (Eq. 2)"""
    head: np.ndarray  # [heads, T, d]
    """E^h (Eq. 4); its first row is e of Eq. 9"""
    tail: np.ndarray  # [heads, T, d]
    """E^t (Eq. 4)"""
    bias: float
    """b (Eq. 5)"""


class Block(NamedTuple):
    estimator: Estimator
    value: Affine
    """W_v (Eq. 7)"""
    out: Affine
    """After the heads, in the code only"""
    first_norm: Norm | None
    second_norm: Norm
    hidden: Affine
    last: Affine


class Model(NamedTuple):
    tokens: Tokens
    blocks: list[Block]
    norm: Norm


class Topology(NamedTuple):
    edge: np.ndarray  # [heads, T, T] 0 or 1
    probability: np.ndarray  # [heads, T, T], 0 where no edge may be


def tokens(row: np.ndarray, parts: Tokens) -> list[np.ndarray]:
    """X^0 (Sec. 4.1), and before it z^0 (Sec. 4.2)."""
    found = [parts.readout]
    for n, weight in enumerate(parts.numerical):
        found.append(row[n] * weight + parts.bias[n])
    for c, table in enumerate(parts.categories):
        n = len(parts.numerical) + c
        found.append(table[int(row[n])] + parts.bias[n])
    return found


def edge_weights(x: Sequence[np.ndarray], estimator: Estimator) -> np.ndarray:
    """G_w [heads, T, T] (Eq. 2, 3), divided by the root of a head's width as in the code."""
    heads, width = estimator.relation.shape
    nodes = [estimator.node(token).reshape(heads, width) for token in x]
    weights = np.zeros((heads, len(x), len(x)))
    for h in range(heads):
        for i, head in enumerate(nodes):
            for j, tail in enumerate(nodes):
                weights[h, i, j] = head[h] @ np.diag(estimator.relation[h]) @ tail[h] / math.sqrt(width)
    return weights


def topology(estimator: Estimator) -> Topology:
    """A (Eq. 4, 5) after f_nsi (Eq. 6), and without edges from the readout to others (it only collects, Sec. 4.2)."""
    heads, count, _ = estimator.head.shape
    edge, probability = np.zeros((heads, count, count)), np.zeros((heads, count, count))
    for h in range(heads):
        for i in range(count):
            for j in range(1, count):
                if i == j:
                    continue
                e_head, e_tail = estimator.head[h, i], estimator.tail[h, j]
                score = e_head @ e_tail / (np.linalg.norm(e_head) * np.linalg.norm(e_tail))
                probability[h, i, j] = 1 / (1 + math.exp(-(score + estimator.bias)))
                edge[h, i, j] = probability[h, i, j] > THRESHOLD
    return Topology(edge, probability)


def straight_through(now: Topology, then: Topology) -> np.ndarray:
    """Adjacency near the point ``then``, whose derivative there is what the straight-through trick takes for A's."""
    return then.edge + now.probability - then.probability


def relation_graph(weights: np.ndarray, adjacency: np.ndarray, *, released: bool = True) -> np.ndarray:
    """G (Eq. 6), softmax over the nodes that each node reads."""
    scores = weights - ABSENT * (1 - adjacency) if released else adjacency * weights
    graph = np.zeros_like(scores)
    for h, i in np.ndindex(*scores.shape[:2]):
        powers = [math.exp(score - scores[h, i].max()) for score in scores[h, i]]
        graph[h, i] = [power / sum(powers) for power in powers]
    return graph


def interact(x: Sequence[np.ndarray], block: Block, queries: int, adjacency: np.ndarray, keep: Keep) -> np.ndarray:
    """G V of the first ``queries`` nodes (Eq. 7, 8; of the readout Eq. 9, 10), then the code's W_o -> [queries, W]."""
    heads, width = block.estimator.relation.shape
    graph = keep.attention(relation_graph(edge_weights(x, block.estimator), adjacency)[:, :queries])
    values = [block.value(token).reshape(heads, width) for token in x]
    found = []
    for i in range(queries):
        collected = np.zeros((heads, width))
        for h in range(heads):
            for j, value in enumerate(values):
                collected[h] += graph[h, i, j] * value[h]
        found.append(block.out(collected.reshape(-1)))
    return np.array(found)


class Keep:
    """Dropout of one row with given masks, site by site; without any, nothing is dropped."""

    def __init__(self, masks: Iterator[np.ndarray] | None, attention: float, hidden: float, residual: float) -> None:
        self._masks, self._rates = masks, {"attention": attention, "hidden": hidden, "residual": residual}

    def _apply(self, x: np.ndarray, rate: float) -> np.ndarray:
        return x if self._masks is None or rate == 0 else x * next(self._masks).reshape(x.shape) / (1 - rate)

    def attention(self, x: np.ndarray) -> np.ndarray:
        return self._apply(x, self._rates["attention"])

    def hidden(self, x: np.ndarray) -> np.ndarray:
        return self._apply(x, self._rates["hidden"])

    def residual(self, x: np.ndarray) -> np.ndarray:
        return self._apply(x, self._rates["residual"])


def embed(row: np.ndarray, model: Model, keep: Keep, then: Sequence[Topology] | None = None) -> np.ndarray:
    """What FC of the overall architecture (Sec. 4.3) reads: ReLU(LN(z^L)) [W].

    ``then``: topologies of the blocks at the point near which derivatives are wanted (None: this one).
    """
    x = tokens(row, model.tokens)
    for i, block in enumerate(model.blocks):
        now = topology(block.estimator)
        adjacency = straight_through(now, now if then is None else then[i])
        queries = 1 if i == len(model.blocks) - 1 else len(x)
        source = x if block.first_norm is None else [block.first_norm(token) for token in x]
        added = keep.residual(interact(source, block, queries, adjacency, keep))
        x = [token + more for token, more in zip(x, added, strict=False)]
        units = []
        for token in x:
            a, b = np.split(block.hidden(block.second_norm(token)), 2)
            units.append(a * np.maximum(b, 0))
        dropped = keep.hidden(np.array(units))
        added = keep.residual(np.array([block.last(unit) for unit in dropped]))
        x = [token + more for token, more in zip(x, added, strict=True)]
    return np.maximum(model.norm(x[0]), 0)
