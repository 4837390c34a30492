"""The linear probe against the twin: weights, the chosen epoch, and a test set that decides nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica, SeedsVary
from adaptbin.data import EncodedTable
from adaptbin.metrics import evaluate, get_metric, metrics_of, primary_metric
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import row_order, stream
from adaptbin.tasks import Task
from adaptbin.training.probe import LEARNING_RATE, _train, probe
from adaptbin.training.readout import INIT_SD, Scores
from tests.reference import probe as twin
from tests.training.tables import small_table

WIDTH = 16


def make(
    seed: int = 0,
    *,
    probes: int = 2,
    probe_epochs: int = 8,
    batch_size: int = 64,
    protocol: Protocol | None = None,
    seeds_vary: SeedsVary = "pretrain",
    **point: Any,
) -> Replica:
    return Replica(
        dataset="eol",
        fingerprint="small-0",
        architecture=Architecture(width=WIDTH, depth=1, batch_size=batch_size),
        hyperparameters=Hyperparameters(**point),
        seed=seed,
        seeds_vary=seeds_vary,
        protocol=protocol or Protocol(),
        budget=Budget(epochs=1, probe_epochs=probe_epochs, probes=probes),
    )


def embed(table: EncodedTable, replicas: int = 1, noise: float = 0.7, seed: int = 0) -> Tensor:
    """[R, N, H] random features whose first one follows the target."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(replicas, len(table.target), WIDTH, generator=generator)
    target = table.target.to(torch.float32)
    z[:, :, 0] = (target - target.mean()) / target.std() + noise * z[:, :, 0]
    return z


def expected_probe(z: Tensor, replica: Replica, table: EncodedTable, p: int) -> tuple[int, dict[str, dict[str, float]]]:
    """Best epoch and scores of probe ``p`` by the twin, in float64, from the library's named streams."""
    task, seed, train = table.card.task, replica.seeds.probe, table.train
    n_outputs, n_rows, epochs = task.n_outputs(table.n_classes), len(train), replica.budget.probe_epochs
    start = torch.randn(WIDTH, n_outputs, generator=stream(seed, "probe", p, "init")) * INIT_SD
    head = {"weight": start.t().double().numpy(), "bias": np.zeros(n_outputs)}
    keys = stream_keys([(seed, "probe", p, "order")])
    orders = [row_order(keys, torch.tensor(epoch), n_rows)[0] for epoch in range(epochs)]
    target = table.target[train].numpy()
    if task is Task.REGRESSION:
        target = (target - table.target_mean) / table.target_sd
    rows = {part: z.double().numpy()[getattr(table, part)] for part in ("train", "val", "test")}
    heads = twin.train(
        task,
        rows["train"],
        target,
        head,
        torch.stack(orders).numpy(),
        replica.architecture.batch_size,
        rate=LEARNING_RATE,
        schedule=replica.protocol.probe_schedule,
    )

    def scores(part: str, epoch: int) -> dict[str, float]:
        outputs = rows[part] @ heads[epoch]["weight"].T + heads[epoch]["bias"]
        if task is Task.REGRESSION:
            outputs = outputs * table.target_sd + table.target_mean
        outputs = outputs if task in (Task.MULTICLASS, Task.ORDINAL) else outputs[:, 0]
        return evaluate(task, outputs, table.target[getattr(table, part)].numpy(), table.card.levels)

    metric = get_metric(primary_metric(table.card.primary_metric, replica.protocol))
    validation = [scores("val", epoch)[metric.name] for epoch in range(epochs)]
    best = twin.best_epoch(validation, metric.sign > 0)
    return best, {"val": scores("val", best), "test": scores("test", best)}


def check(found: Scores, z: Tensor, replica: Replica, table: EncodedTable) -> None:
    assert len(found.heads) == replica.budget.probes
    for p, got in enumerate(found.heads):
        best, scores = expected_probe(z, replica, table, p)
        assert got["best_epoch"] == best
        for part in ("val", "test"):
            assert got[part] == pytest.approx(scores[part], rel=1e-4, abs=1e-6)
            assert set(scores[part]) == set(metrics_of(table.card.task))


# --- the twin


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("task", list(Task))
def test_every_probe_is_the_twins(task: Task, schedule: str) -> None:
    """Two replicas with two probes each; the last batch is smaller than the others."""
    table = small_table(task=task, n_rows=330)
    protocol = Protocol.from_dict({"probe_schedule": schedule})
    replicas = [make(seed, protocol=protocol) for seed in (0, 4)]
    z = embed(table, 2)
    for r, found in enumerate(probe(z, replicas, table)):
        check(found, z[r], replicas[r], table)


def test_the_first_of_equal_epochs_is_kept() -> None:
    """A validation set that every epoch reads perfectly: all epochs tie, the first wins."""
    table = small_table(task=Task.BINARY)
    z = embed(table, noise=0.0)
    z[:, :, 1:] = 0.0
    replica = make(probe_epochs=6)
    (found,) = probe(z, [replica], table)
    assert [one["best_epoch"] for one in found.heads] == [0, 0]
    assert [one["val"]["auc"] for one in found.heads] == [1.0, 1.0]  # type: ignore[index]
    check(found, z[0], replica, table)


def test_among_later_ties_the_earliest_wins() -> None:
    """Accuracy over few rows repeats itself: the best value is reached, left and reached again."""
    table = small_table(task=Task.MULTICLASS)
    table = replace(table, val=table.val[:12])
    z = embed(table, noise=1.5)
    replica = make(probes=5, probe_epochs=25)
    (found,) = probe(z, [replica], table)
    check(found, z[0], replica, table)
    best = [int(one["best_epoch"]) for one in found.heads]  # type: ignore[call-overload]
    assert any(0 < epoch < 20 for epoch in best)


def test_errors_are_minimised() -> None:
    table = small_table(task=Task.REGRESSION)
    (found,) = probe(embed(table), [make(probe_epochs=20)], table)
    assert table.card.primary_metric == "rmse"
    assert all(int(one["best_epoch"]) > 5 for one in found.heads)  # type: ignore[call-overload]


def test_the_label_order_of_the_protocol_picks_the_epoch() -> None:
    levels = ("low", "mid", "high")  # alphabetically high, low, mid
    table = small_table(task=Task.ORDINAL)
    assert table.card.levels == levels
    z = embed(table, noise=1.5)
    for order in ("clinical", "alphabetical"):
        replica = make(probes=4, probe_epochs=15, protocol=Protocol.from_dict({"label_order": order}))
        (found,) = probe(z, [replica], table)
        check(found, z[0], replica, table)


# --- test decides nothing


@pytest.mark.parametrize("task", list(Task))
def test_test_rows_do_not_affect_the_choice(task: Task) -> None:
    table = small_table(task=task)
    z, replica = embed(table), make(probes=3)
    (before,) = probe(z, [replica], table)
    generator = torch.Generator().manual_seed(1)
    other_rows = z.clone()
    other_rows[:, table.test] = torch.randn(1, len(table.test), WIDTH, generator=generator)
    target = table.target.clone()
    target[table.test] = target[table.test][torch.randperm(len(table.test), generator=generator)]
    for rows, changed in ((other_rows, table), (z, replace(table, target=target))):
        (after,) = probe(rows, [replica], changed)
        for old, new in zip(before.heads, after.heads, strict=True):
            assert new["best_epoch"] == old["best_epoch"] and new["val"] == old["val"]
            assert new["test"] != old["test"]
        assert after.bootstrap_se != before.bootstrap_se


def test_validation_rows_do_affect_the_choice_but_not_the_training() -> None:
    table = small_table(task=Task.REGRESSION)
    z = embed(table)
    z[:, table.val] = torch.randn(1, len(table.val), WIDTH, generator=torch.Generator().manual_seed(1))
    replica = make()
    check(probe(z, [replica], table)[0], z[0], replica, table)


# --- packs and streams


@pytest.mark.parametrize(("n_rows", "probes"), [(402, 1), (391, 3)])
@pytest.mark.parametrize("task", list(Task))
def test_a_replica_alone_equals_itself_in_a_crowd(task: Task, n_rows: int, probes: int) -> None:
    """Bit for bit, also when the last batch has one row or fills no vector."""
    table = small_table(task=task, n_rows=n_rows)
    replicas = [make(seed, probes=probes, probe_epochs=4, w_sord=w) for seed in (0, 1) for w in (1.0, 2.0, 3.0)]
    z = embed(table, len(replicas))
    crowd, trained = probe(z, replicas, table), _train(z, replicas, table)
    for r, replica in enumerate(replicas):
        rows = z[r : r + 1].clone()
        assert probe(rows, [replica], table) == [crowd[r]]
        alone, mine = _train(rows, [replica], table), slice(r * probes, (r + 1) * probes)
        assert torch.equal(alone.weight, trained.weight[mine]) and torch.equal(alone.bias, trained.bias[mine])


def test_an_embedding_that_is_not_finite_scores_nothing_and_harms_nobody() -> None:
    table = small_table()
    replicas = [make(seed) for seed in range(3)]
    z = embed(table, 3)
    clean = probe(z, replicas, table)
    for row in (table.train[0], table.val[0], table.test[0]):
        broken = z.clone()
        broken[1, row] = torch.nan
        found = probe(broken, replicas, table)
        assert found[1] == Scores([], {})
        assert found[0] == clean[0] and found[2] == clean[2]


def test_a_probe_draws_from_the_streams_of_its_own_seed_and_number() -> None:
    table = small_table()
    z = embed(table).expand(3, -1, -1)
    a, b, c = probe(z, [make(0, probes=4), make(0, probes=4, w_sord=1.0), make(1, probes=4)], table)
    assert a == b  # one seed: the same heads and orders, whatever the point
    assert a.heads != c.heads and len({str(one) for one in a.heads}) == 4
    (fewer,) = probe(z[:1], [make(0, probes=2)], table)
    assert fewer.heads == a.heads[:2]
    (varied,) = probe(z[:1], [make(1, probes=4, seeds_vary="probe")], table)
    assert varied == c


def test_nothing_reads_the_global_generator() -> None:
    table = small_table()
    z = embed(table)
    torch.manual_seed(1)
    first = probe(z, [make()], table)
    torch.manual_seed(2)
    assert probe(z, [make()], table) == first
