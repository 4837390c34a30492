"""The baseline pretexts: what they predict, their losses, and the whole pretraining of one replica.  Dropout 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.reference.autoencoder import backward_stack, forward_stack, squared_error
from tests.reference.corruption import corrupt
from tests.reference.discretizer import assign, initial_edges
from tests.reference.optimizer import AdamW, Arrays, clip


def mask_cross_entropy(
    logits: np.ndarray, mask: np.ndarray, entries: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Weighted mean over batch and columns of -log of the probability of what was drawn, and its gradient.  [B, F]
    each."""
    total, gradient = 0.0, np.zeros(logits.shape)
    for b in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            logit = float(logits[b, j])
            probability = 1 / (1 + math.exp(-logit))
            weight = 1.0 if entries is None else entries[b, j]
            total -= weight * math.log(probability if mask[b, j] else 1 - probability)
            gradient[b, j] = weight * (probability - float(mask[b, j])) / logits.size
    return total / logits.size, gradient


def bin_targets(
    x: np.ndarray,
    n_numerical: int,
    bins: int,
    *,
    one_less: bool = False,
    bin_categories: bool = False,
    observed: np.ndarray | None = None,
) -> np.ndarray:
    """Standardised bin indices of train rows, 0 where missing.  x [N, D + C] float32, observed bool -> [N, D + C]."""
    asked = bins - one_less
    result = np.zeros(x.shape)
    if observed is not None:
        for j in range(x.shape[1]):
            there = observed[:, j]
            alone = x[there][:, [j]]
            result[there, j] = bin_targets(
                alone, int(j < n_numerical), bins, one_less=one_less, bin_categories=bin_categories
            )[:, 0]
        return result
    for j in range(x.shape[1]):
        index = x[:, j].astype(np.int64)
        if j < n_numerical or (bin_categories and len(set(x[:, j])) >= bins):
            index = assign(x[:, j], initial_edges(x[:, j], asked))
        mean = sum(index) / len(index)
        sd = math.sqrt(sum((i - mean) ** 2 for i in index) / len(index))
        if sd > 0:
            result[:, j] = [(i - mean) / sd for i in index]
    return result


def pretrain(
    parameters: Arrays,
    x: np.ndarray,
    targets: dict[str, np.ndarray | None],
    epochs: Sequence[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]],
    *,
    masking: tuple[str, float],
    batch_size: int,
    rate: float,
    decay: float,
    most: float = 100.0,
    entries: np.ndarray | None = None,
) -> tuple[Arrays, list[float]]:
    """Train through given orders and masks -> parameters, and the loss of every epoch.

    targets: decoder -> what it predicts [N, F], None for the mask.  epochs: order [N], uniform and source [N, F].
    entries: weight of each entry in the losses [N, F].
    """
    kind, probability = masking
    optimizer = AdamW(rate=rate, decay=decay)
    losses = []
    for order, uniform, source in epochs:
        of_epoch = []
        for start in range(0, len(order), batch_size):
            part = slice(start, start + batch_size)
            rows = order[part]
            mask = np.zeros((len(rows), x.shape[1]), dtype=bool) if uniform is None else uniform[part] < probability
            batch = corrupt(x[rows], mask, kind, None if source is None else source[part] - start)
            embedding, below = forward_stack(parameters, "encoder", batch)
            gradients: Arrays = {}
            total, upstream = 0.0, np.zeros_like(embedding)
            for decoder, target in targets.items():
                output, inputs = forward_stack(parameters, decoder, embedding)
                weights = None if entries is None else entries[rows]
                if target is None:
                    loss, gradient = mask_cross_entropy(output, mask, weights)
                else:
                    loss, gradient = squared_error(output, target[rows], weights)
                total += loss
                upstream = upstream + backward_stack(parameters, gradients, decoder, inputs, gradient)
            backward_stack(parameters, gradients, "encoder", below, upstream)
            parameters = optimizer.step(parameters, clip(gradients, most))
            of_epoch.append(total)
        losses.append(float(np.mean(of_epoch)))
    return parameters, losses
