"""Small tables made from a seed, and replicas for them; they look like encoded data sets and need no file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from adaptbin.config import (
    RECONSTRUCTED,
    SPLIT_SEED,
    Architecture,
    Budget,
    EncoderName,
    Finetuning,
    Hyperparameters,
    PretextName,
    Protocol,
    Replica,
    SeedsVary,
)
from adaptbin.data.encode import EncodedTable
from adaptbin.data.registry import CARDS
from adaptbin.tasks import Task

ARCHITECTURE = Architecture(width=16, depth=2, batch_size=64, dropout=0.1)

EAGER: dict[str, Any] = {"patience": 1, "delta": 0.01, "tau": 1e-6, "min_bin": 8, "learning_rate": 3e-3}
"""Hyperparameters with which bins grow within a few epochs."""


def small_replica(seed: int, point: dict[str, Any], **settings: Any) -> Replica:
    """A replica for :func:`small_table` with the hyperparameters ``point`` and any other field of ``Replica``."""
    defaults = {"architecture": ARCHITECTURE, "protocol": Protocol()}
    return Replica(
        dataset="eol",
        fingerprint="small-0",
        hyperparameters=Hyperparameters(**point),
        seed=seed,
        **(defaults | settings),
    )


SMALL_ENCODERS: dict[EncoderName, dict[str, float]] = {
    "mlp": {},
    "resnet": {"d_block": 16, "n_blocks": 1},
    "tabnet": {"n_steps": 2},
    "ft_transformer": {"d_block": 16, "n_blocks": 2, "attention_n_heads": 2},
    "t2g_former": {"d_block": 16, "n_blocks": 2, "attention_n_heads": 2},
}
"""Settings with which every encoder is quick."""


def finetuned_replica(
    seed: int,
    pretext: PretextName = "none",
    *,
    encoder: EncoderName = "mlp",
    epochs: int = 6,
    finetuning: Finetuning | None = None,
    seeds_vary: SeedsVary = "pretrain",
    protocol: Protocol | None = None,
) -> Replica:
    """A replica for :func:`small_table` that is fine-tuned after ``epochs`` of a pretext, or from scratch."""
    point: dict[str, Any] = {"pretext": pretext}
    if "mask" in RECONSTRUCTED[pretext]:
        point |= {"masking": "constant", "mask_prob": 0.2}
    if pretext == "adaptive_binning":
        point |= EAGER
    settings: Any = SMALL_ENCODERS[encoder]
    return small_replica(
        seed,
        point,
        architecture=replace(ARCHITECTURE, encoder=encoder, encoder_settings=settings),
        budget=Budget(epochs=0 if pretext == "none" else epochs),
        finetuning=finetuning or Finetuning(epochs=5, learning_rate=1e-2),
        seeds_vary=seeds_vary,
        protocol=protocol or Protocol(),
    )


def small_table(
    n_rows: int = 400,
    n_numerical: int = 4,
    cardinalities: tuple[int, ...] = (2, 5),
    task: Task = Task.ORDINAL,
    seed: int = 0,
) -> EncodedTable:
    """A table with [n_rows] rows whose target follows its first column; 64/16/20 split in row order."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n_rows, n_numerical)).astype(np.float32)
    if n_numerical > 1:
        values[:, 1] = np.round(np.exp(values[:, 1]), 1)  # skewed, with ties
    codes = np.stack([rng.integers(0, c, n_rows) for c in cardinalities], 1) if cardinalities else np.zeros((n_rows, 0))
    signal = values[:, 0] if n_numerical else codes[:, 0].astype(np.float64)
    signal = signal + 0.3 * rng.normal(size=n_rows)
    base = CARDS[
        "eol" if task in (Task.ORDINAL, Task.MULTICLASS) else "breast_cancer" if task is Task.BINARY else "diabetes"
    ]
    card = replace(
        base,
        task=task,
        levels=None if task is Task.REGRESSION else ("low", "mid", "high")[: 2 if task is Task.BINARY else 3],
        primary_metric={"ordinal": "qwk", "multiclass": "accuracy", "binary": "auc", "regression": "rmse"}[task],
        architecture=ARCHITECTURE,
    )
    cuts = np.quantile(signal, [0.5] if task is Task.BINARY else [1 / 3, 2 / 3])
    target = torch.from_numpy(signal * 7 + 20 if task is Task.REGRESSION else np.searchsorted(cuts, signal))
    a, b = int(0.64 * n_rows), int(0.8 * n_rows)
    mean, sd = (
        (float(target[:a].mean()), float(target[:a].std(correction=0))) if task is Task.REGRESSION else (0.0, 1.0)
    )
    return EncodedTable(
        card=card,
        fingerprint=f"small-{seed}",
        split_seed=SPLIT_SEED,
        inputs=torch.from_numpy(np.concatenate([values, codes], 1).astype(np.float32)),
        numerical_names=tuple(f"x{i}" for i in range(n_numerical)),
        categorical_names=tuple(f"c{i}" for i in range(len(cardinalities))),
        cardinalities=cardinalities,
        target=target if task is Task.REGRESSION else target.to(torch.int64),
        target_mean=mean,
        target_sd=sd,
        train=torch.arange(0, a),
        val=torch.arange(a, b),
        test=torch.arange(b, n_rows),
        unseen={},
    )


def with_missing(table: EncodedTable, shares: dict[int, float], seed: int = 0) -> EncodedTable:
    """``table`` with a share of the numbers of some columns (by position) missing, filled and indicated.

    In the first such column numbers of one half of the rows are missing more often, so that bins of what is there are
    not those of all.
    """
    rng = np.random.default_rng(seed)
    inputs, n_numerical = table.inputs.clone(), table.n_numerical
    observed = torch.ones(len(inputs), n_numerical, dtype=torch.bool)
    for at, (column, share) in enumerate(shares.items()):
        chance = np.full(len(inputs), share)
        if not at:
            chance = chance * np.where(inputs[:, column].numpy() > 0, 1.5, 0.5)
        there = torch.from_numpy(rng.random(len(inputs)) >= chance)
        rows = table.pretraining[there[table.pretraining]]
        inputs[~there, column] = torch.from_numpy(np.median(inputs[rows, column].numpy(), keepdims=True))
        observed[:, column] = there
    indicators = [(~observed[:, [column]]).float() for column in shares]
    return replace(
        table,
        inputs=torch.cat([inputs, *indicators], 1),
        categorical_names=(*table.categorical_names, *(f"{table.numerical_names[c]} is missing" for c in shares)),
        cardinalities=(*table.cardinalities, *(2 for _ in shares)),
        observed=observed,
    )


def with_unlabelled(table: EncodedTable, n_rows: int, seed: int = 1) -> EncodedTable:
    """``table`` with so many more rows, at its end, that have no label."""
    more = small_table(n_rows, table.n_numerical, table.cardinalities, table.card.task, seed)
    blank = torch.full((n_rows,), torch.nan) if table.target.is_floating_point() else torch.zeros(n_rows)
    first = len(table.inputs)
    return replace(
        table,
        inputs=torch.cat([table.inputs, more.inputs]),
        target=torch.cat([table.target, blank.to(table.target.dtype)]),
        unlabelled=torch.arange(first, first + n_rows),
    )
