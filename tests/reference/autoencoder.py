"""The whole pretraining of one replica: forward, backward, AdamW, plateau and splits.  Dropout 0, no masking.

Arrays are named as in the golden traces: `encoder.0.weight`, `encoder.2.weight`, ... (even numbers, every layer but the
last followed by ReLU), the same for `decoder`, then `cat_heads.j` and `num_heads.j`; weights are [out, in].
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.reference import hord
from tests.reference.discretizer import assign, initial_edges, refine
from tests.reference.optimizer import AdamW, Arrays, clip
from tests.reference.scorer import score_bins, unit_rows
from tests.reference.trigger import Plateau


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One point."""

    weights: tuple[float, float, float]
    patience: int
    tau: float
    batch_size: int
    rate: float
    decay: float = 1e-5
    clip: float = 100.0
    delta: float = 1e-4
    min_bin: int = 32
    t_init: int = 2
    t_max: int = 200
    mse_scale: str = "none"
    bin_cap: str = "best"
    refine_every: int = 0
    split_score: str = "product"
    numerical_loss: str = "hord"
    """Or "index": squared error of one output on the standardised index."""


@dataclass
class Trace:
    """What happened in every epoch."""

    loss: list[float] = field(default_factory=list)
    plateau: list[list[float]] = field(default_factory=list)
    triggered: list[list[bool]] = field(default_factory=list)
    bins: list[list[int]] = field(default_factory=list)
    edges: list[np.ndarray] = field(default_factory=list)
    embedding: np.ndarray | None = None


def stack_names(parameters: Arrays, part: str) -> list[str]:
    """Layers of "encoder" or "decoder" in order."""
    numbers = {int(name.split(".")[1]) for name in parameters if name.startswith(f"{part}.")}
    return [f"{part}.{number}" for number in sorted(numbers)]


def forward_stack(parameters: Arrays, part: str, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Output of a stack and the input of each of its layers."""
    inputs = []
    names = stack_names(parameters, part)
    for name in names:
        inputs.append(x)
        x = x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        if name != names[-1]:
            x = np.maximum(x, 0)
    return x, inputs


def backward_linear(
    parameters: Arrays, gradients: Arrays, name: str, x: np.ndarray, upstream: np.ndarray
) -> np.ndarray:
    """Adds the layer's gradients -> gradient to its input."""
    gradients[f"{name}.weight"] = upstream.T @ x
    gradients[f"{name}.bias"] = upstream.sum(axis=0)
    return upstream @ parameters[f"{name}.weight"]


def backward_stack(
    parameters: Arrays, gradients: Arrays, part: str, inputs: list[np.ndarray], upstream: np.ndarray
) -> np.ndarray:
    names = stack_names(parameters, part)
    for position in range(len(names) - 1, -1, -1):
        upstream = backward_linear(parameters, gradients, names[position], inputs[position], upstream)
        if position > 0:
            # The input of a layer is the ReLU of the one before: nothing passes where it is 0.
            upstream = upstream * (inputs[position] > 0)
    return upstream


def entry_weights(observed: np.ndarray) -> np.ndarray:
    """Weight of each entry [N, D]: none where it is missing, and all others of a column alike, N together."""
    weights = np.zeros(observed.shape)
    for j in range(observed.shape[1]):
        there = [i for i in range(len(observed)) if observed[i, j]]
        weights[there, j] = len(observed) / len(there)
    return weights


def squared_error(
    output: np.ndarray, target: np.ndarray, entries: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Weighted mean over batch and columns, and its gradient.  [B, F] each."""
    total, gradient = 0.0, np.zeros(output.shape)
    for b in range(output.shape[0]):
        for j in range(output.shape[1]):
            difference = float(output[b, j]) - float(target[b, j])
            weight = 1.0 if entries is None else entries[b, j]
            total += weight * difference**2
            gradient[b, j] = weight * 2 * difference / output.size
    return total / output.size, gradient


def step_losses(
    parameters: Arrays,
    x: np.ndarray,
    bins: np.ndarray,
    codes: np.ndarray,
    n_bins: list[int],
    settings: Settings,
    weights: np.ndarray | None = None,
) -> tuple[float, list[float], Arrays]:
    """Total loss, loss of each numerical column, and all gradients.

    x [B, D + C], bins and their weights in the loss [B, D], codes [B, C].
    """
    kind = x.dtype
    weights = np.ones(bins.shape) if weights is None else weights
    z, encoder_inputs = forward_stack(parameters, "encoder", x)
    h, decoder_inputs = forward_stack(parameters, "decoder", z)
    gradients: Arrays = {}
    upstream = np.zeros_like(h)
    per_categorical, per_numerical = hord.shares(codes.shape[1], bins.shape[1])
    categorical, numerical = [], []
    for j in range(codes.shape[1]):
        name = f"cat_heads.{j}"
        logits = h @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        categorical.append(hord.cross_entropy(logits, codes[:, j]))
        gradient = hord.cross_entropy_gradient(logits, codes[:, j]) * kind.type(per_categorical)
        upstream = upstream + backward_linear(parameters, gradients, name, h, gradient)
    for j in range(bins.shape[1]):
        name = f"num_heads.{j}"
        logits = h @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]
        if settings.numerical_loss == "index":
            error, gradient = squared_error(logits, bins[:, [j]], weights[:, [j]])
            numerical.append(error)
            upstream = upstream + backward_linear(parameters, gradients, name, h, gradient * per_numerical)
            continue
        parts = hord.terms(logits, bins[:, j], n_bins[j], settings.mse_scale, weights[:, j])
        numerical.append(hord.numerical_loss(parts, settings.weights))
        gradient = hord.numerical_gradient(
            logits, bins[:, j], n_bins[j], settings.weights, settings.mse_scale, weights[:, j]
        )
        upstream = upstream + backward_linear(parameters, gradients, name, h, gradient * kind.type(per_numerical))
    upstream = backward_stack(parameters, gradients, "decoder", decoder_inputs, upstream)
    backward_stack(parameters, gradients, "encoder", encoder_inputs, upstream)
    return hord.total(categorical, numerical), numerical, gradients


def standardised(bins: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Columns of bin indices [N, D] at mean 0 and sd 1 (ddof 0) of those that are there, 0 for the others; a column
    with one index is 0."""
    result = np.zeros(bins.shape)
    for j in range(bins.shape[1]):
        there = observed[:, j]
        found = bins[there, j]
        sd = np.sqrt(np.mean((found - np.mean(found)) ** 2))
        if sd > 0:
            result[there, j] = (found - np.mean(found)) / sd
    return result


def pretrain(
    parameters: Arrays,
    x: np.ndarray,
    n_numerical: int,
    batch_order: np.ndarray,
    settings: Settings,
    observed: np.ndarray | None = None,
) -> Trace:
    """Train from given weights through given batch orders [epochs, N].  x [N, D + C] float32, observed [N, D] bool
    (None: nothing is missing); returns every epoch.

    The parameters' type is the type everything is computed in.
    """
    kind = next(iter(parameters.values())).dtype
    values = x[:, :n_numerical].astype(np.float32)
    codes = x[:, n_numerical:].astype(np.int64)
    inputs = x.astype(kind)
    there = np.ones(values.shape, dtype=bool) if observed is None else observed
    weights = entry_weights(there)
    edges = [initial_edges(values[there[:, j], j], settings.t_init) for j in range(n_numerical)]
    bins = np.stack([assign(values[:, j], edges[j]) for j in range(n_numerical)], axis=1)
    plateaus = [Plateau() for _ in range(n_numerical)]
    optimizer = AdamW(rate=settings.rate, decay=settings.decay)
    trace = Trace()
    for epoch, order in enumerate(batch_order):
        targets = standardised(bins, there) if settings.numerical_loss == "index" else bins
        losses, column_losses = [], []
        for start in range(0, len(order), settings.batch_size):
            rows = order[start : start + settings.batch_size]
            n_bins = [len(e) + 1 for e in edges]
            loss, columns, gradients = step_losses(
                parameters, inputs[rows], targets[rows], codes[rows], n_bins, settings, weights[rows]
            )
            parameters = optimizer.step(parameters, clip(gradients, settings.clip))
            losses.append(loss)
            column_losses.append(columns)
        metric = np.mean(column_losses, axis=0)
        fired = [
            plateaus[j].step(
                float(metric[j]),
                patience=settings.patience,
                delta=settings.delta,
                growable=len(edges[j]) + 1 < settings.t_max > settings.t_init,
            )
            for j in range(n_numerical)
        ]
        if settings.refine_every:
            due = (epoch + 1) % settings.refine_every == 0
            fired = [due and len(edges[j]) + 1 < settings.t_max for j in range(n_numerical)]
        if any(fired):
            unit = unit_rows(forward_stack(parameters, "encoder", inputs)[0])
        for j in range(n_numerical):
            if fired[j]:
                here = there[:, j]
                found = [c for c in score_bins(values[here, j], unit[here], edges[j], settings.min_bin)]
                found = [c for c in found if c.qualifies(settings.tau, settings.split_score)]
                cuts, scores = [c.median for c in found], [c.ranked_by(settings.split_score) for c in found]
                edges[j] = refine(edges[j], cuts, scores, settings.t_max, settings.bin_cap)
                bins[:, j] = assign(values[:, j], edges[j])
        trace.loss.append(float(np.mean(losses)))
        trace.plateau.append(metric.tolist())
        trace.triggered.append(fired)
        trace.bins.append([len(e) + 1 for e in edges])
    trace.edges = edges
    trace.embedding = forward_stack(parameters, "encoder", inputs)[0]
    return trace
