"""HORD: loss of one numerical column over its live bins, and the total over columns, with gradients in closed form."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np


class Terms(NamedTuple):
    """Means over the batch of the three terms, unweighted."""

    sord: float
    mse: float
    var: float


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in the logits' own type."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@functools.cache
def soft_target(target: int, n_bins: int) -> np.ndarray:
    """q_t proportional to exp(-(t - y)^2) over the live bins."""
    weight = np.array([math.exp(-((t - target) ** 2)) for t in range(n_bins)])
    return weight / weight.sum()


def square_factor(n_bins: int, mse_scale: str) -> float:
    """What the squared distance is divided by: 1, or the variance of a uniform index ("released")."""
    return (n_bins**2 - 1) / 12 if mse_scale == "released" else 1.0


def terms(
    logits: np.ndarray, target: np.ndarray, n_bins: int, mse_scale: str = "none", entries: np.ndarray | None = None
) -> Terms:
    """Terms of one column.  logits [B, K], of which the first n_bins count; target and entries (weights) [B]."""
    entries = np.ones(len(target)) if entries is None else entries
    live = logits[:, :n_bins].astype(np.float64)
    sord, mse, var = [], [], []
    for row, y in zip(live, target, strict=True):
        p, log_p, q = softmax(row), log_softmax(row), soft_target(int(y), n_bins)
        t = np.arange(n_bins)
        mean, square = (p * t).sum(), (p * t * t).sum()
        sord.append(-(q * log_p).sum())
        mse.append((mean - y) ** 2 / square_factor(n_bins, mse_scale))
        var.append(max(0.0, square - mean**2))
    return Terms(*(float(np.mean(np.array(term) * entries)) for term in (sord, mse, var)))


def numerical_loss(parts: Terms, weights: tuple[float, float, float]) -> float:
    """L_num of one column."""
    return weights[0] * parts.sord + weights[1] * parts.mse + weights[2] * parts.var


def numerical_gradient(
    logits: np.ndarray,
    target: np.ndarray,
    n_bins: int,
    weights: tuple[float, float, float],
    mse_scale: str = "none",
    entries: np.ndarray | None = None,
) -> np.ndarray:
    """Gradient of L_num (a mean over the batch) to the logits -> [B, K], exactly 0 past n_bins, in the logits' type.

    With p = softmax(l), dp_t/dl_s = p_t (1[t = s] - p_s): the three terms give p - q, 2 (mu - y) p (t - mu) / factor
    and p ((t - mu)^2 - sigma^2).
    """
    kind = logits.dtype
    gradient = np.zeros_like(logits)
    p = softmax(logits[:, :n_bins])
    q = np.array([soft_target(int(y), n_bins) for y in target]).astype(kind)
    t = np.arange(n_bins, dtype=kind)
    mean = (p * t).sum(axis=1, keepdims=True)
    var = (p * t * t).sum(axis=1, keepdims=True) - mean**2
    w_sord, w_mse, w_var = (kind.type(w) for w in weights)
    factor = kind.type(square_factor(n_bins, mse_scale))
    pull = w_mse * 2 * (mean - target[:, None].astype(kind)) / factor
    spread = w_var * (var >= 0)
    rows = w_sord * (p - q) + pull * p * (t - mean) + spread * p * ((t - mean) ** 2 - var)
    if entries is not None:
        rows = rows * entries[:, None].astype(kind)
    gradient[:, :n_bins] = rows / kind.type(len(target))
    return gradient


def cross_entropy(logits: np.ndarray, target: np.ndarray) -> float:
    """Mean over the batch.  logits [B, levels], target [B]."""
    log_p = log_softmax(logits.astype(np.float64))
    return float(-np.mean([row[int(y)] for row, y in zip(log_p, target, strict=True)]))


def cross_entropy_gradient(logits: np.ndarray, target: np.ndarray) -> np.ndarray:
    gradient = softmax(logits)
    for b, y in enumerate(target):
        gradient[b, int(y)] -= 1
    return gradient / logits.dtype.type(len(target))


def shares(n_categorical: int, n_numerical: int) -> tuple[float, float]:
    """Factors of one categorical and of one numerical column's loss in the total.

    C/(C+D) mean_c + D/(C+D) mean_n: with columns of one kind only, the other factor belongs to nothing.
    """
    both = n_categorical + n_numerical
    categorical = n_categorical / both / n_categorical if n_categorical else 0.0
    numerical = n_numerical / both / n_numerical if n_numerical else 0.0
    return categorical, numerical


def total(categorical: list[float], numerical: list[float]) -> float:
    """Loss of a batch from the losses of its columns."""
    per_categorical, per_numerical = shares(len(categorical), len(numerical))
    return per_categorical * sum(categorical) + per_numerical * sum(numerical)
