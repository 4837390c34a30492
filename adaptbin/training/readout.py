"""How labels are read from embeddings by linear heads: their targets, their loss, and the scores of their outputs.

M counts heads.  The linear probe trains them on frozen embeddings, fine-tuning together with the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.metrics import evaluate_many, metrics_of
from adaptbin.replicas.selection import bootstrap_se
from adaptbin.replicas.streams import stream
from adaptbin.tasks import Task

INIT_SD = 0.01
"""Of a head's first weights; its biases start at 0 (method, Sec. 3)."""

COLUMN_MULTIPLE = 8
"""A head's columns are padded to eights: narrower products round differently in another pack or at another address."""

BOOTSTRAP_RESAMPLES = 200


class Scores(NamedTuple):
    """What the heads of one replica found; ``heads`` is empty when they gave no finite score."""

    heads: list[dict[str, object]]
    """Per head: best_epoch, and every metric on val and test at that epoch."""
    bootstrap_se: dict[str, float]
    """Metric -> sd, over resampled test rows, of the mean score of the heads."""


class Targets(NamedTuple):
    """Train targets as the loss wants them, and how to turn head outputs into scores."""

    task: Task
    train: Tensor
    """[N] int64 class codes, float32 0/1 (binary) or float32 standardised values (regression)."""
    scale: float
    shift: float
    n_outputs: int
    """O; further columns of a head are padding that stays 0."""

    @classmethod
    def of(cls, table: EncodedTable, device: torch.device) -> Targets:
        """Those of the train rows, on ``device``."""
        values = table.target[table.train].to(device)
        task = table.card.task
        n_outputs = task.n_outputs(table.n_classes)
        if task is Task.REGRESSION:
            standardised = (values - table.target_mean) / table.target_sd
            return cls(task, standardised.to(torch.float32), table.target_sd, table.target_mean, n_outputs)
        return cls(task, values.to(torch.float32) if task is Task.BINARY else values, 1.0, 0.0, n_outputs)

    @property
    def columns(self) -> int:
        """Columns of a head."""
        return -(-self.n_outputs // COLUMN_MULTIPLE) * COLUMN_MULTIPLE

    def padded(self, gradient: Tensor) -> Tensor:
        """[M, B, O] -> [M, B, columns]: padding has no gradient."""
        return torch.nn.functional.pad(gradient, (0, self.columns - self.n_outputs))

    def in_units(self, outputs: Tensor) -> Tensor:
        """Logits, or values in target units, of a head's outputs [M, N, columns] -> [M, N, O]."""
        return outputs[..., : self.n_outputs] * self.scale + self.shift


def loss(outputs: Tensor, target: Tensor, task: Task) -> Tensor:
    """Mean loss over the batch.  outputs [M, B, O], target [M, B] -> [M].

    Binary: BCE with logits; multiclass and ordinal: cross entropy; regression: squared error (method, Sec. 3).
    """
    if task is Task.REGRESSION:
        return (outputs[..., 0] - target).square().mean(1)
    if task is Task.BINARY:
        logits = outputs[..., 0]
        return (torch.nn.functional.softplus(logits) - logits * target).mean(1)
    found = outputs.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return -found.mean(1)


def loss_gradient(outputs: Tensor, target: Tensor, task: Task) -> Tensor:
    """Gradient of :func:`loss`.  outputs [M, B, O], target [M, B] -> [M, B, O]."""
    share = 1.0 / outputs.shape[1]
    if task is Task.BINARY:
        return (torch.sigmoid(outputs) - target.unsqueeze(-1)) * share
    if task is Task.REGRESSION:
        return (outputs - target.unsqueeze(-1)) * (2.0 * share)
    # Classes first: torch is slow over a short last axis.
    soft = torch.softmax(outputs.transpose(1, 2).contiguous(), 1)
    index = target.unsqueeze(1)
    return soft.scatter_add_(1, index, soft.new_full((), -1.0).expand_as(index)).transpose(1, 2) * share


def scores_of(
    outputs: Mapping[str, Tensor], best_epochs: Sequence[int], replicas: Sequence[Replica], table: EncodedTable
) -> list[Scores]:
    """Scores of each replica's heads at their best epochs, on validation and test.

    outputs: "val" and "test" -> [R * P, rows, O] of P heads a replica, on the CPU; best_epochs [R * P], -1 where no
    epoch had a finite score.
    """
    heads = len(best_epochs) // len(replicas)
    members = [range(r * heads, (r + 1) * heads) for r in range(len(replicas))]
    finite = torch.isfinite(outputs["test"]).flatten(1).all(1).tolist()
    usable = [all(best_epochs[m] >= 0 and finite[m] for m in of_replica) for of_replica in members]
    errors = _bootstrap(outputs["test"], replicas, table, usable)
    found = []
    for of_replica, ok, error in zip(members, usable, errors, strict=True):
        told: list[dict[str, object]] = []
        if ok:
            val, test = (
                evaluate_many(
                    table.card.task,
                    outputs[part][of_replica.start : of_replica.stop],
                    table.target[rows],
                    table.card.levels,
                )
                for part, rows in (("val", table.val), ("test", table.test))
            )
            told = [
                {"best_epoch": best_epochs[m], "val": of_val, "test": of_test}
                for m, of_val, of_test in zip(of_replica, val, test, strict=True)
            ]
        found.append(Scores(told, error))
    return found


def _bootstrap(
    outputs: Tensor, replicas: Sequence[Replica], table: EncodedTable, usable: Sequence[bool]
) -> list[dict[str, float]]:
    """Standard error over test rows of each usable replica's mean score; resamples are the table's, not the seed's."""
    names = metrics_of(table.card.task)
    per_replica = outputs.view(len(replicas), -1, *outputs.shape[1:])
    errors: list[dict[str, float]] = []
    for r, ok in enumerate(usable):
        if not ok:
            errors.append({})
            continue
        # One replica a call, each on the same resamples: a result must not depend on pack mates even in its last bit.
        drawn = bootstrap_se(
            names,
            per_replica[r : r + 1],
            table.target[table.test],
            table.card.levels,
            generator=stream(table.split_seed, "bootstrap"),
            resamples=BOOTSTRAP_RESAMPLES,
        )
        errors.append({name: drawn.se[name][0] for name in names if math.isfinite(drawn.se[name][0])})
    return errors
