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
from adaptbin.metrics import get_metric, primary_metric
from adaptbin.replicas.layers import ReplicaMLP
from adaptbin.replicas.optim import ReplicaAdamW, schedule_factor
from adaptbin.replicas.parameters import ParameterBank
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.selection import batched_metric
from adaptbin.replicas.streams import row_order, stream
from adaptbin.training.readout import INIT_SD, Scores, Targets, loss_gradient, scores_of

LEARNING_RATE = 1e-2


def probe(embeddings: Tensor, replicas: Sequence[Replica], table: EncodedTable) -> list[Scores]:
    """Train ``budget.probes`` linear heads per replica and score each at its best validation epoch.

    embeddings [R, N, H] of all rows of the table.  The best epoch is the first with the best primary metric on
    validation; test is read once, after that choice.
    """
    trained = _train(embeddings, replicas, table)
    outputs = {
        part: _outputs(embeddings[:, rows.to(embeddings.device)], trained.weight, trained.bias, trained.targets).cpu()
        for part, rows in (("val", table.val), ("test", table.test))
    }
    return scores_of(outputs, trained.best_epoch.cpu().tolist(), replicas, table)


class _Trained(NamedTuple):
    weight: Tensor
    """[M, H, O + padding] at each probe's best epoch."""
    bias: Tensor
    """[M, O + padding] likewise."""
    best_epoch: Tensor
    """[M] int64, -1 where no epoch had a finite score."""
    targets: Targets


def _train(embeddings: Tensor, replicas: Sequence[Replica], table: EncodedTable) -> _Trained:
    first = replicas[0]
    budget, batch_size, device = first.budget, first.architecture.batch_size, embeddings.device
    levels = table.card.levels
    targets = Targets.of(table, device)
    train = embeddings[:, table.train.to(device)]
    n_rows, width = train.shape[1:]
    flat = train.reshape(-1, width)
    validation = embeddings[:, table.val.to(device)]
    expected = table.target[table.val].to(device)
    metric = get_metric(primary_metric(table.card.primary_metric, first.protocol))
    n_outputs = targets.n_outputs

    streams = [(replica.seeds.probe, p) for replica in replicas for p in range(budget.probes)]
    distinct = list(dict.fromkeys(streams))
    which = torch.tensor([distinct.index(key) for key in streams], device=device)
    owner = torch.arange(len(replicas), device=device).repeat_interleave(budget.probes) * n_rows
    heads = ReplicaMLP("probe", [width, targets.columns], 0.0)
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
            gradient = loss_gradient(outputs, targets.train[rows], targets.task)
            heads.backward(targets.padded(gradient), input_gradient=False)
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


def _outputs(embeddings: Tensor, weight: Tensor, bias: Tensor, targets: Targets) -> Tensor:
    """Logits, or values in target units.  embeddings [R, N, H], weight [M, H, .], bias [M, .] -> [M, N, O]."""
    probes = weight.shape[0] // embeddings.shape[0]
    repeated = embeddings.unsqueeze(1).expand(-1, probes, -1, -1).reshape(-1, *embeddings.shape[1:])
    return targets.in_units(torch.baddbmm(bias.unsqueeze(1), repeated, weight))
