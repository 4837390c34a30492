"""Fine-tuning: a perceptron and a linear head trained on labels together.  One model, arrays by name."""

from __future__ import annotations

import numpy as np

from adaptbin.tasks import Task
from tests.reference.autoencoder import backward_linear, stack_names
from tests.reference.optimizer import AdamW, Arrays, scheduled
from tests.reference.probe import loss_and_gradient


def forward(parameters: Arrays, x: np.ndarray) -> np.ndarray:
    """Outputs of the head without dropout."""
    names = stack_names(parameters, "encoder")
    for name in names:
        x = x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        x = x if name == names[-1] else np.maximum(x, 0)
    return x @ parameters["head.0.weight"].T + parameters["head.0.bias"]


def gradients_of(
    parameters: Arrays, x: np.ndarray, target: np.ndarray, kept: list[np.ndarray], drop: float, task: Task
) -> tuple[float, Arrays]:
    """Mean loss of a batch and all gradients.  kept: per hidden block [B, H] of 0 and 1."""
    names, inputs, masks = stack_names(parameters, "encoder"), [], []
    for i, name in enumerate(names):
        inputs.append(x)
        x = x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        if i < len(kept):
            masks.append((x > 0) * kept[i] / (1 - drop))
            x = x * masks[i]
    outputs = x @ parameters["head.0.weight"].T + parameters["head.0.bias"]
    value, upstream = loss_and_gradient(task, outputs, target)
    gradients: Arrays = {}
    upstream = backward_linear(parameters, gradients, "head.0", x, upstream)
    for i in reversed(range(len(names))):
        upstream = backward_linear(
            parameters, gradients, names[i], inputs[i], upstream * masks[i] if i < len(masks) else upstream
        )
    return value, gradients


def train(
    task: Task,
    x: np.ndarray,
    target: np.ndarray,
    parameters: Arrays,
    batch_order: np.ndarray,
    kept: np.ndarray,
    batch_size: int,
    *,
    drop: float,
    rate: float,
    decay: float,
    schedule: str,
) -> tuple[list[Arrays], list[float]]:
    """Parameters after every epoch, and its mean loss over the steps.

    batch_order [epochs, N]; kept [epochs, blocks, N, H], in the order of the epoch.
    """
    optimizer = AdamW(rate=rate, decay=decay)
    steps = -(-len(x) // batch_size)
    models, losses = [], []
    for order, masks in zip(batch_order, kept, strict=True):
        found = []
        for start in range(0, len(order), batch_size):
            rows, some = order[start : start + batch_size], masks[:, start : start + batch_size].astype(np.float64)
            value, gradients = gradients_of(parameters, x[rows], target[rows], list(some), drop, task)
            now = scheduled(rate, optimizer.steps, steps * len(batch_order), schedule)
            parameters = optimizer.step(parameters, gradients, now)
            found.append(value)
        models.append(parameters)
        losses.append(float(np.mean(found)))
    return models, losses
