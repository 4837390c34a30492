"""What is trained in a benchmark: tables of three shapes, their cards' architectures, and the replicas of a pack."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from adaptbin.config import Architecture, Budget, Hyperparameters, Replica
from adaptbin.data.encode import EncodedRows, EncodedTable
from adaptbin.data.registry import CARDS
from sweeps.service.panels import SensitivityStudy
from tests.training.golden_trace import load_trace
from tests.training.tables import ARCHITECTURE, small_table

TABLE_SEED = 20
"""Of the synthetic table; its columns look like neighbouring samples of a signal."""


@dataclass(frozen=True)
class Shape:
    """A table to train on and the architecture it is trained with."""

    table: EncodedRows
    architecture: Architecture

    @property
    def n_rows(self) -> int:
        return len(self.table.train)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_rows // self.architecture.batch_size)

    def flops_per_epoch(self, live_rows: float) -> float:
        """Operations of one replica-epoch that no implementation of the model can leave out: its matrix products.

        Forward, and backward to weights and inputs, of every layer; the first layer needs no gradient of its input.
        ``live_rows``: head columns in use, categorical levels and live bins together.
        """
        width, inputs = self.architecture.width, self.table.inputs.shape[1]
        first = inputs * width
        body = (self.architecture.depth + 2) * width * width
        return 2.0 * self.n_rows * (2 * first + 3 * (body + live_rows * width))


def signal_table(n_rows: int, n_columns: int, seed: int = TABLE_SEED) -> EncodedRows:
    """Numerical columns that are samples of a wave each: correlated, so that refined bins pay and do grow."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0.0, 1.0, n_columns)
    values = 0.3 * rng.normal(size=(n_rows, n_columns))
    for frequency in (1.0, 2.0, 4.0, 7.0):
        amplitude, phase = rng.gamma(2.0, 1.0 / frequency, (n_rows, 1)), rng.uniform(0, 2 * np.pi, (n_rows, 1))
        values += amplitude * np.sin(2 * np.pi * frequency * time + phase)
    values = (values - values.mean(0)) / values.std(0)
    return numerical_rows(values.astype(np.float32))


def numerical_rows(values: np.ndarray) -> EncodedRows:
    """Rows to pretrain on, of standardised values [N, D] float32."""
    return EncodedRows(
        inputs=torch.from_numpy(values),
        numerical_names=tuple(f"x{d}" for d in range(values.shape[1])),
        categorical_names=(),
        cardinalities=(),
        train=torch.arange(len(values)),
    )


@functools.cache
def shape(name: str, repeat: int = 1) -> Shape:
    """The shape called ``name``, its rows repeated ``repeat`` times."""
    if name == "tiny":
        return Shape(small_table(n_rows=200), ARCHITECTURE)
    card = CARDS[name]
    table: EncodedRows
    if name == "esr":
        table = signal_table(round(0.64 * card.rows), len(card.numerical))
    else:
        table = load_trace(name).table
    if repeat > 1:
        inputs = table.inputs.repeat(repeat, 1)
        table = replace(table, inputs=inputs, train=torch.arange(len(inputs)))
    return Shape(table, card.architecture)


def replicas(name: str, count: int, epochs: int, changes: Mapping[str, Any]) -> list[Replica]:
    """A pack of ``count`` replicas as the sensitivity study plans it; ``changes`` overrides fields of every point.

    The study has 21 points and gives a pack all of them under one seed.  Fewer replicas are points spread evenly over
    its list, the default first; more continue with the next seed.
    """
    study = SensitivityStudy(cards=(CARDS["eol"],))
    points = list(dict.fromkeys(point.hyperparameters for point in study.points["eol"]))
    points.sort(key=lambda point: point != Hyperparameters())
    if count < len(points):
        points = [points[i * len(points) // count] for i in range(count)]
    return [
        Replica(
            dataset=name,
            fingerprint="benchmark",
            architecture=shape(name).architecture,
            hyperparameters=replace(points[i % len(points)], **changes),
            seed=i // len(points),
            budget=Budget(epochs=epochs),
        )
        for i in range(count)
    ]


@functools.cache
def eol_like(n_rows: int = 0) -> EncodedTable:
    """A labelled table with eol's columns and, unless said otherwise, its rows."""
    shaped = load_trace("eol").table
    rows = n_rows or round(len(shaped.train) / 0.64)
    table = small_table(rows, shaped.n_numerical, tuple(shaped.cardinalities))
    return replace(table, card=replace(table.card, architecture=CARDS["eol"].architecture))
