"""The metrics of `adaptbin.metrics` for many models at once, on any device, without waiting for it.

M counts models: the probes of all replicas of a pack.  S counts resamples of the rows.
Probes are chosen by these scores every epoch, so nothing here reads a value back to the host; an undefined score is
NaN, which wins no comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.errors import ConfigError, DataError, ShapeError
from adaptbin.metrics import alphabetical_ranks, get_metric

_CHUNK_ELEMENTS = 4_000_000
"""Most elements of one [S, M, N] intermediate of the bootstrap: 32 MB."""


def batched_metric(name: str, outputs: Tensor, target: Tensor, levels: Sequence[str] | None = None) -> Tensor:
    """Metric `name` of M models -> [M] float64, in the metric's own direction (see ``Metric.sign``).

    outputs: [M, N, n_outputs], logits (one for binary, one per level otherwise) or, for regression, values in target
    units.  target: [N], or [M, N] where models have different rows; class codes in the order of `levels`, or values.
    levels: the label levels; None for regression.
    NaN where a model's outputs are not all finite, or where its targets are all equal.
    Raises ShapeError when the shapes do not fit and ConfigError for a metric the outputs cannot have.
    """
    _check(name, outputs, target, levels)
    target = target.expand(outputs.shape[:2])
    if name in _FROM_ERRORS:
        scores = _from_errors(name, outputs[..., 0].double(), target.double(), None)
    elif name == "auc":
        scores = _auc(outputs[..., 0], target, None)
    else:
        assert levels is not None
        truth = _one_hot(target, len(levels))
        scores = _from_confusion(name, truth.mT @ _one_hot(_predicted(outputs), len(levels)), tuple(levels))
    defined = outputs.isfinite().flatten(1).all(1) & (target != target[:, :1]).any(1)
    return scores.masked_fill(~defined, torch.nan)


class Bootstrap(NamedTuple):
    """Standard errors over resampled rows, and how many resamples they rest on."""

    se: dict[str, list[float]]
    """Metric -> one standard deviation per replica; NaN for a replica whose outputs are not all finite."""
    used: int
    """Resamples behind each standard deviation."""
    undefined: int
    """Resamples left out because all their targets were equal, so that no score exists."""


def bootstrap_se(
    names: Sequence[str],
    outputs: Tensor,
    target: Tensor,
    levels: Sequence[str] | None = None,
    *,
    generator: torch.Generator,
    resamples: int = 200,
) -> Bootstrap:
    """Standard deviation, over resampled rows, of each replica's score, which is the mean over its P probes.

    outputs: [R, P, N, n_outputs] as in :func:`batched_metric`, target: [N].  All replicas and metrics see the same
    resamples, drawn with replacement from `generator` (on the CPU), so that a replica's result does not depend on
    its neighbours.  ddof 1.
    Raises DataError when fewer than two resamples have targets that differ; otherwise as :func:`batched_metric`.
    """
    if outputs.ndim != 4 or target.ndim != 1:
        raise ShapeError(
            f"outputs should be [R, P, N, n_outputs] and target [N], got {tuple(outputs.shape)}, {tuple(target.shape)}"
        )
    n_replicas, n_probes, n_rows, _ = outputs.shape
    flat = outputs.flatten(0, 1)
    for name in names:
        _check(name, flat, target, levels)
    rows = torch.randint(n_rows, (resamples, n_rows), generator=generator).to(outputs.device)
    drawn = target[rows]
    rows = rows[(drawn != drawn[:, :1]).any(1)]
    if len(rows) < 2:
        raise DataError(f"a bootstrap needs at least 2 resamples with differing targets, got {len(rows)}/{resamples}")
    # How often each row was drawn: a resample is then a weighting of the rows, and one sort serves all of them.
    weights = torch.zeros(len(rows), n_rows, dtype=torch.float64, device=outputs.device)
    weights.scatter_add_(1, rows, torch.ones_like(weights))
    finite = outputs.isfinite().flatten(1).all(1)
    se = {}
    for name, scores in _weighted_scores(names, flat, target, levels, weights).items():  # [S, M]
        spread = scores.reshape(-1, n_replicas, n_probes).mean(2).std(0, correction=1)
        se[name] = spread.masked_fill(~finite, torch.nan).tolist()
    return Bootstrap(se=se, used=len(rows), undefined=resamples - len(rows))


def _weighted_scores(
    names: Sequence[str], outputs: Tensor, target: Tensor, levels: Sequence[str] | None, weights: Tensor
) -> dict[str, Tensor]:
    """Scores under each row of weights [S, N] -> metric -> [S, M]."""
    n_models, n_rows, _ = outputs.shape
    size = max(1, _CHUNK_ELEMENTS // max(1, n_models * n_rows))
    scores: dict[str, Tensor] = {}
    confusion: Tensor | None = None
    every = target.expand(n_models, n_rows)
    for name in names:
        if name in _FROM_ERRORS:
            chunks = [
                _from_errors(name, outputs[..., 0].double(), every.double(), w) for w in torch.split(weights, size)
            ]
            scores[name] = torch.cat(chunks)
        elif name == "auc":
            scores[name] = torch.cat([_auc(outputs[..., 0], every, w) for w in torch.split(weights, size)])
        else:
            assert levels is not None
            if confusion is None:
                cell = _one_hot(target * len(levels) + _predicted(outputs), len(levels) ** 2)  # [M, N, levels²]
                confusion = (weights @ cell).transpose(0, 1).reshape(-1, n_models, len(levels), len(levels))
            scores[name] = _from_confusion(name, confusion, tuple(levels))
    return scores


def _check(name: str, outputs: Tensor, target: Tensor, levels: Sequence[str] | None) -> None:
    metric = get_metric(name)
    if outputs.ndim != 3 or target.shape not in (outputs.shape[:2], outputs.shape[1:2]):
        raise ShapeError(
            f"outputs should be [M, N, n_outputs] and target [N] or [M, N], "
            f"got {tuple(outputs.shape)}, {tuple(target.shape)}"
        )
    if any(task.is_classification for task in metric.tasks) != (levels is not None):
        raise ConfigError(f"{name} {'needs' if levels is None else 'has no'} label levels, got {levels!r}")
    n_outputs = 1 if levels is None or len(levels) == 2 and outputs.shape[2] == 1 else len(levels)
    if outputs.shape[2] != n_outputs or (name == "auc" and n_outputs != 1):
        raise ShapeError(f"outputs for {name} with {len(levels or ())} levels cannot have shape {tuple(outputs.shape)}")


def _predicted(outputs: Tensor) -> Tensor:
    """Class codes [M, N]: logit above 0 for binary, else the first of the largest logits."""
    return (outputs[..., 0] > 0).long() if outputs.shape[2] == 1 else outputs.argmax(2)


def _one_hot(codes: Tensor, n_codes: int) -> Tensor:
    """[...] -> [..., n_codes] float64.  Comparing instead of torch's one_hot, which reads the largest code back."""
    return (codes[..., None] == torch.arange(n_codes, device=codes.device)).double()


@functools.lru_cache(maxsize=64)
def _disagreement(levels: tuple[str, ...], alphabetical: bool, device: torch.device) -> Tensor:
    """Squared distance of two labels in their order -> [levels, levels].  Kept, so that it is copied over once."""
    ranks = alphabetical_ranks(levels) if alphabetical else range(len(levels))
    rank = torch.tensor(list(ranks), dtype=torch.float64, device=device)
    return (rank[:, None] - rank).square()


def _from_confusion(name: str, confusion: Tensor, levels: tuple[str, ...]) -> Tensor:
    """Classification metric from counts [..., true level, predicted level] -> [...]."""
    hits = confusion.diagonal(dim1=-2, dim2=-1)
    true, guessed = confusion.sum(-1), confusion.sum(-2)
    total = true.sum(-1)
    if name == "accuracy":
        return hits.sum(-1) / total
    if name == "balanced_accuracy":
        present = true > 0
        return torch.where(present, hits / true.clamp(min=1), 0.0).sum(-1) / present.sum(-1)
    if name == "macro_f1":
        seen = true + guessed > 0
        return torch.where(seen, 2 * hits / (true + guessed).clamp(min=1), 0.0).sum(-1) / seen.sum(-1)
    cost = _disagreement(levels, name == "qwk_alphabetical", confusion.device)
    expected = true[..., :, None] * guessed[..., None, :] / total[..., None, None]
    return 1 - (cost * confusion).sum((-2, -1)) / (cost * expected).sum((-2, -1))


def _auc(scores: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """Area under the ROC curve, ties counting half.  scores, target [M, N]; weights [S, N] -> [S, M], None -> [M]."""
    ordered, order = scores.sort(1)
    ordered = ordered.contiguous()
    first = torch.searchsorted(ordered, ordered, right=False)
    past_last = torch.searchsorted(ordered, ordered, right=True)
    positive = target.gather(1, order).double()
    weight = torch.ones_like(positive) if weights is None else weights[:, order]  # [M, N] or [S, M, N]
    negative = torch.nn.functional.pad((weight * (1 - positive)).cumsum(-1), (1, 0))
    # Negatives strictly below plus half of those in the same run of ties: midranks without the ranks.
    beaten = negative.gather(-1, first.expand_as(weight)) + negative.gather(-1, past_last.expand_as(weight))
    wins = (weight * positive * beaten).sum(-1) / 2
    return wins / ((weight * positive).sum(-1) * negative[..., -1])


_FROM_ERRORS = ("rmse", "mae", "r2")


def _from_errors(name: str, predicted: Tensor, target: Tensor, weights: Tensor | None) -> Tensor:
    """Regression metric.  predicted, target [M, N] float64; weights [S, N] -> [S, M], None -> [M]."""
    weight = torch.ones_like(target) if weights is None else weights[:, None]
    total = weight.sum(-1)
    if name == "mae":
        return (weight * (predicted - target).abs()).sum(-1) / total
    squared = (weight * (predicted - target).square()).sum(-1)
    if name == "rmse":
        return (squared / total).sqrt()
    mean = (weight * target).sum(-1, keepdim=True) / total[..., None]
    return 1 - squared / (weight * (target - mean).square()).sum(-1)
