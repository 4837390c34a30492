"""Hypothesis strategies shared by the tests: random cases of the shapes this library works on.

Each draws a seed and small sizes, and fills arrays with a numpy generator: examples stay quick to make, and hypothesis
still shrinks the sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from adaptbin.tasks import Task

seeds = st.integers(0, 2**32 - 1)

LEVELS = ("low", "mid", "high", "extreme", "beyond")


class ScoredCase(NamedTuple):
    """Outputs of M models for N rows, and the truth."""

    task: Task
    outputs: np.ndarray  # [M, N, n_outputs] float32
    target: np.ndarray  # [N] int64 codes, or float64
    levels: tuple[str, ...] | None


@st.composite
def scored_cases(draw: st.DrawFn, task: Task | None = None) -> ScoredCase:
    """Predictions with at least two different targets; half of the cases are coarse, so that scores tie."""
    task = draw(st.sampled_from(list(Task))) if task is None else task
    n_models, n_rows = draw(st.integers(1, 4)), draw(st.integers(2, 30))
    n_levels = 2 if task is Task.BINARY else draw(st.integers(3, 5))
    coarse = draw(st.booleans())
    rng = np.random.default_rng(draw(seeds))
    outputs = rng.normal(size=(n_models, n_rows, task.n_outputs(n_levels)))
    outputs = (np.round(outputs) if coarse else outputs).astype(np.float32)
    if task is Task.REGRESSION:
        return ScoredCase(task, outputs, rng.normal(50, 5, size=n_rows), None)
    target = rng.integers(0, n_levels, size=n_rows)
    target[:2] = rng.choice(n_levels, size=2, replace=False)
    return ScoredCase(task, outputs, target, LEVELS[:n_levels])


class RaggedCase(NamedTuple):
    """Logits of R replicas whose D columns each have their own number of bins."""

    logits: np.ndarray  # [R, B, D, K] float64
    target: np.ndarray  # [R, B, D] int64, below n_bins
    n_bins: np.ndarray  # [R, D] int64 in 1..K


@st.composite
def ragged_cases(draw: st.DrawFn, least_bins: int = 1) -> RaggedCase:
    """Some column reaches K, so that the widest row is full; slots past n_bins hold finite numbers of any size."""
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    n_slots = draw(st.integers(max(least_bins, 1), 9))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0]))
    rng = np.random.default_rng(draw(seeds))
    n_bins = rng.integers(least_bins, n_slots + 1, size=(shape[0], shape[2]))
    n_bins[0, 0] = n_slots
    target = (rng.random(shape) * n_bins[:, None]).astype(np.int64)
    return RaggedCase(rng.normal(0, scale, size=(*shape, n_slots)), target, n_bins)


class BinnedCase(NamedTuple):
    """Train values and embeddings, and the inner edges each column has been cut at."""

    values: np.ndarray  # [N, D] float32
    embeddings: np.ndarray  # [N, H] float32
    edges: list[np.ndarray]  # D ascending float64 arrays


@st.composite
def binned_cases(draw: st.DrawFn) -> BinnedCase:
    """Columns that are smooth, tied or two-valued; embeddings follow the first column, so that some splits qualify."""
    n_rows, n_columns = draw(st.integers(4, 80)), draw(st.integers(1, 3))
    width = draw(st.integers(1, 4))
    kinds = draw(st.lists(st.sampled_from(["smooth", "tied", "two"]), min_size=n_columns, max_size=n_columns))
    rng = np.random.default_rng(draw(seeds))
    values = rng.normal(size=(n_rows, n_columns))
    for column, kind in enumerate(kinds):
        if kind == "tied":
            values[:, column] = np.round(2 * values[:, column]) / 2
        elif kind == "two":
            values[:, column] = (values[:, column] > 0).astype(float)
    values = values.astype(np.float32)
    embeddings = rng.normal(size=(n_rows, width)) * 0.3 + values[:, :1]
    edges = []
    for column in range(n_columns):
        distinct = np.unique(values[:, column])
        cuts = rng.choice(distinct, size=min(len(distinct), int(rng.integers(1, 4))), replace=False)
        edges.append(np.sort(cuts).astype(np.float64))
    return BinnedCase(values, embeddings.astype(np.float32), edges)


class PlateauCase(NamedTuple):
    """Losses over epochs of R replicas' columns, with each replica's own rule."""

    losses: np.ndarray  # [E, R, D] float64
    patience: np.ndarray  # [R] int64
    delta: np.ndarray  # [R] float64
    growable: np.ndarray  # [E, R, D] bool


@st.composite
def plateau_cases(draw: st.DrawFn) -> PlateauCase:
    """Descending and flat stretches in steps of 1/8, so that a decrease of exactly delta occurs."""
    n_epochs, n_replicas, n_columns = draw(st.integers(1, 25)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(seeds))
    steps = rng.integers(-2, 3, size=(n_epochs, n_replicas, n_columns))
    return PlateauCase(
        losses=10 + steps.cumsum(0) / 8,
        patience=rng.integers(1, 5, size=n_replicas),
        delta=rng.integers(0, 3, size=n_replicas) / 8,
        growable=rng.random(steps.shape) < 0.9,
    )
