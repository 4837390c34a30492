"""FWA: bins of one feature, grown from train quantiles.  Inner edges only; the outer ones are infinite."""

from __future__ import annotations

import numpy as np


def initial_edges(values: np.ndarray, t_init: int) -> np.ndarray:
    """Inner edges of a column's float32 train values -> ascending float64, at most t_init - 1 of them."""
    distinct = sorted({float(value) for value in values})
    if len(distinct) <= t_init:
        return np.array(distinct[1:])
    ordered = sorted(float(value) for value in values)
    edges: set[float] = set()
    for i in range(1, t_init):
        position = (len(ordered) - 1) * i / t_init
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        edges.add(ordered[below] + (ordered[above] - ordered[below]) * (position - below))
    return np.array(sorted(edges))


def assign(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Bin of each value -> int64.  A value on an edge belongs to the right-hand bin."""
    return np.array([sum(float(value) >= edge for edge in edges) for value in values], dtype=np.int64)


def refine(edges: np.ndarray, cuts: list[float], scores: list[float], t_max: int, cap: str = "best") -> np.ndarray:
    """Edges with the new cuts added: past t_max bins the best-scoring cuts ("best") or none of them ("none")."""
    room = t_max - (len(edges) + 1)
    if len(cuts) > room:
        by_score = sorted(range(len(cuts)), key=lambda i: -scores[i])
        cuts = [cuts[i] for i in by_score[:room]] if cap == "best" else []
    return np.array(sorted([*edges.tolist(), *cuts]))
