"""The linear probe: how much of the label a linear head reads from frozen embeddings (method, Sec. 3).

All probes of all replicas of a stack train at once, as M = R * P stacked heads on cached embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from adaptbin.config import Replica
from adaptbin.data.encode import EncodedTable
from adaptbin.metrics import evaluate_many, get_metric, metrics_of, primary_metric
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.selection import batched_metric, bootstrap_se
from adaptbin.replicas.streams import row_order, stream
from adaptbin.tasks import Task

LEARNING_RATE = 1e-2
INIT_SD = 0.01
COLUMN_MULTIPLE = 8
"""A head's columns are padded to eights: narrower products round differently in another pack or at another address."""
BOOTSTRAP_RESAMPLES = 200


class ProbeScores(NamedTuple):
    """What the probes of one replica found; ``probes`` is empty when they gave no finite score."""

    probes: list[dict[str, object]]
    """Per probe: best_epoch, and every metric on val and test at that epoch."""
    bootstrap_se: dict[str, float]
    """Metric -> sd, over resampled test rows, of the mean score of the probes."""


class _Targets(NamedTuple):
    """Train targets as the loss wants them, and how to turn head outputs into scores."""

    train: Tensor
    """[N] int64 class codes, float32 0/1 (binary) or float32 standardised values (regression)."""
    scale: float
    shift: float
    n_outputs: int
    """O; further columns of the head are padding that stays 0."""


def probe(embeddings: Tensor, replicas: Sequence[Replica], table: EncodedTable) -> list[ProbeScores]:
    """Train ``budget.probes`` linear heads per replica and score each at its best validation epoch.

    embeddings [R, N, H] of all rows of the table.  The best epoch is the first with the best primary metric on
    validation; test is read once, after that choice.
    """
    trained = _train(embeddings, replicas, table)
    budget = replicas[0].budget
    outputs = {
        part: _outputs(embeddings[:, rows.to(embeddings.device)], trained.weight, trained.bias, trained.targets).cpu()
        for part, rows in (("val", table.val), ("test", table.test))
    }
    best_epochs = trained.best_epoch.cpu().tolist()
    levels = table.card.levels
    finite = torch.isfinite(outputs["test"]).flatten(1).all(1).tolist()
    usable = [all(best_epochs[m] >= 0 and finite[m] for m in _of(r, budget.probes)) for r in range(len(replicas))]
    errors = _bootstrap(outputs["test"], replicas, table, usable)
    found: list[ProbeScores] = []
    for r in range(len(replicas)):
        members = _of(r, budget.probes)
        probes: list[dict[str, object]] = []
        if usable[r]:
            val, test = (
                evaluate_many(table.card.task, outputs[part][members.start : members.stop], table.target[rows], levels)
                for part, rows in (("val", table.val), ("test", table.test))
            )
            probes = [
                {"best_epoch": best_epochs[m], "val": of_val, "test": of_test}
                for m, of_val, of_test in zip(members, val, test, strict=True)
            ]
        found.append(ProbeScores(probes, errors[r]))
    return found


def _of(replica: int, probes: int) -> range:
    return range(replica * probes, (replica + 1) * probes)


class _Trained(NamedTuple):
    weight: Tensor
    """[M, H, O + padding] at each probe's best epoch."""
    bias: Tensor
    """[M, O + padding] likewise."""
    best_epoch: Tensor
    """[M] int64, -1 where no epoch had a finite score."""
    targets: _Targets


def _train(embeddings: Tensor, replicas: Sequence[Replica], table: EncodedTable) -> _Trained:
    first = replicas[0]
    budget, batch_size, device = first.budget, first.architecture.batch_size, embeddings.device
    task, levels = table.card.task, table.card.levels
    targets = _targets(table, device)
    train = embeddings[:, table.train.to(device)]
    n_rows, width = train.shape[1:]
    flat = train.reshape(-1, width)
    validation = embeddings[:, table.val.to(device)]
    expected = table.target[table.val].to(device)
    metric = get_metric(primary_metric(table.card.primary_metric, first.protocol))
    n_outputs = targets.n_outputs
    columns = -(-n_outputs // COLUMN_MULTIPLE) * COLUMN_MULTIPLE

    streams = [(replica.seeds.probe, p) for replica in replicas for p in range(budget.probes)]
    distinct = list(dict.fromkeys(streams))
    which = torch.tensor([distinct.index(key) for key in streams], device=device)
    owner = torch.arange(len(replicas), device=device).repeat_interleave(budget.probes) * n_rows
    heads = ReplicaMLP("probe", [width, columns], 0.0)
    bank = ParameterBank(heads.shapes(), len(streams), device)
    heads.bind(bank)
    weight, bias = bank.view("probe.0.weight"), bank.view("probe.0.bias")
    weight[..., :n_outputs].copy_(
        torch.stack(
            [torch.randn(width, n_outputs, generator=stream(seed, "probe", p, "init")) for seed, p in distinct]
        ).to(device)[which]
        * INIT_SD
    )
    optimizer = ReplicaAdamW(bank, [LEARNING_RATE] * len(streams), [0.0] * len(streams))
    steps = math.ceil(n_rows / batch_size)
    best = torch.full((len(streams),), -torch.inf, dtype=torch.float64, device=device)
    best_epoch = torch.full((len(streams),), -1, dtype=torch.int64, device=device)
    best_weight, best_bias = weight.clone(), bias.clone()
    order_keys = stream_keys([(seed, "probe", p, "order") for seed, p in distinct], device)
    for epoch in range(budget.probe_epochs):
        # A filled tensor, unlike a copied one, does not wait for the device; nor does anything else in this loop.
        order = row_order(order_keys, torch.full((), epoch, device=device), n_rows).index_select(0, which)
        for start in range(0, n_rows, batch_size):
            rows = order[:, start : start + batch_size]
            z = flat.index_select(0, (rows + owner[:, None]).flatten()).view(*rows.shape, width)
            outputs = heads.forward(z, None)[..., :n_outputs]
            gradient = _loss_gradient(outputs, targets.train[rows], task)
            heads.backward(torch.nn.functional.pad(gradient, (0, columns - n_outputs)), input_gradient=False)
            optimizer.step(
                schedule_factor(first.protocol.probe_schedule, optimizer.step_count, budget.probe_epochs * steps)
            )
        outputs = _outputs(validation, weight, bias, targets)
        score = batched_metric(metric.name, outputs, expected, levels) * metric.sign
        better = score > best
        best = torch.where(better, score, best)
        best_epoch = torch.where(better, epoch, best_epoch)
        best_weight = torch.where(better[:, None, None], weight, best_weight)
        best_bias = torch.where(better[:, None], bias, best_bias)
    return _Trained(best_weight, best_bias, best_epoch, targets)


def _targets(table: EncodedTable, device: torch.device) -> _Targets:
    values = table.target[table.train].to(device)
    n_outputs = table.card.task.n_outputs(table.n_classes)
    if table.card.task is Task.REGRESSION:
        standardised = (values - table.target_mean) / table.target_sd
        return _Targets(standardised.to(torch.float32), table.target_sd, table.target_mean, n_outputs)
    if table.card.task is Task.BINARY:
        return _Targets(values.to(torch.float32), 1.0, 0.0, n_outputs)
    return _Targets(values, 1.0, 0.0, n_outputs)


def _loss_gradient(outputs: Tensor, target: Tensor, task: Task) -> Tensor:
    """Gradient of the mean loss over the batch.  outputs [M, B, O], target [M, B] -> [M, B, O].

    Binary: BCE with logits; multiclass and ordinal: cross entropy; regression: squared error (method, Sec. 3).
    """
    share = 1.0 / outputs.shape[1]
    if task is Task.BINARY:
        return (torch.sigmoid(outputs) - target.unsqueeze(-1)) * share
    if task is Task.REGRESSION:
        return (outputs - target.unsqueeze(-1)) * (2.0 * share)
    # Classes first: torch is slow over a short last axis.
    soft = torch.softmax(outputs.transpose(1, 2).contiguous(), 1)
    index = target.unsqueeze(1)
    return soft.scatter_add_(1, index, soft.new_full((), -1.0).expand_as(index)).transpose(1, 2) * share


def _outputs(embeddings: Tensor, weight: Tensor, bias: Tensor, targets: _Targets) -> Tensor:
    """Logits, or values in target units.  embeddings [R, N, H], weight [M, H, .], bias [M, .] -> [M, N, O]."""
    probes = weight.shape[0] // embeddings.shape[0]
    repeated = embeddings.unsqueeze(1).expand(-1, probes, -1, -1).reshape(-1, *embeddings.shape[1:])
    outputs = torch.baddbmm(bias.unsqueeze(1), repeated, weight)[..., : targets.n_outputs]
    return outputs * targets.scale + targets.shift


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
