"""Linear probe: one head on fixed embeddings, the epoch with the best validation score kept.  One probe."""

from __future__ import annotations

import numpy as np

from adaptbin.tasks import Task
from tests.reference.hord import cross_entropy, cross_entropy_gradient
from tests.reference.optimizer import AdamW, Arrays, scheduled


def loss_and_gradient(task: Task, outputs: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean loss of a batch and its gradient.  outputs [B, n_outputs]; target [B], standardised for regression."""
    n = len(target)
    if task in (Task.MULTICLASS, Task.ORDINAL):
        return cross_entropy(outputs, target), cross_entropy_gradient(outputs, target)
    losses, gradient = [], np.zeros_like(outputs)
    for b in range(n):
        out, y = outputs[b, 0], target[b]
        if task is Task.REGRESSION:
            losses.append((out - y) ** 2)
            gradient[b, 0] = 2 * (out - y) / n
        else:
            # -y log s(out) - (1 - y) log(1 - s(out)), s the logistic function.
            losses.append(np.logaddexp(0, out) - y * out)
            gradient[b, 0] = (1 / (1 + np.exp(-out)) - y) / n
    return float(np.mean(losses)), gradient


def train(
    task: Task,
    embeddings: np.ndarray,
    target: np.ndarray,
    head: Arrays,
    batch_order: np.ndarray,
    batch_size: int,
    rate: float = 1e-2,
    schedule: str = "constant",
) -> list[Arrays]:
    """Heads after every epoch.  head: weight [n_outputs, H] and bias [n_outputs]; batch_order [epochs, N]."""
    optimizer = AdamW(rate=rate, decay=0.0)
    steps_per_epoch = -(-len(embeddings) // batch_size)
    heads = []
    for order in batch_order:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            outputs = embeddings[rows] @ head["weight"].T + head["bias"]
            _, gradient = loss_and_gradient(task, outputs, target[rows])
            gradients = {"weight": gradient.T @ embeddings[rows], "bias": gradient.sum(axis=0)}
            now = scheduled(rate, optimizer.steps, steps_per_epoch * len(batch_order), schedule)
            head = optimizer.step(head, gradients, now)
        heads.append(head)
    return heads


def best_epoch(scores: list[float], higher_is_better: bool) -> int:
    """Position of the best score; the first of equals.  A NaN is never the best."""
    best = None
    for epoch, score in enumerate(scores):
        if np.isnan(score):
            continue
        if best is None or (score > scores[best] if higher_is_better else score < scores[best]):
            best = epoch
    if best is None:
        raise ValueError("no epoch has a score")
    return best
