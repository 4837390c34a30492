"""The central promises of a pack: alone = in the crowd, cut and resumed = not cut, one bad replica is one replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adaptbin.config import Budget, Protocol, Replica, SeedsVary
from adaptbin.errors import ConfigError
from adaptbin.tasks import Task
from adaptbin.training.checkpoint import FolderCheckpoint
from adaptbin.training.pack import PackProgress, stack_size, stacks_of, train_pack
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.paths import BOTH, switched, usable_sets, using
from tests.training.tables import ARCHITECTURE, EAGER, small_replica, small_table

BUDGET = Budget(epochs=40, probe_epochs=6, probes=3)
CALM: dict[str, Any] = {"patience": 50}
"""Bins stay as they are, so that losses of different epochs can be compared."""


def make(
    seed: int,
    *,
    protocol: Protocol | None = None,
    seeds_vary: SeedsVary = "pretrain",
    budget: Budget = BUDGET,
    **point: Any,
) -> Replica:
    settings = {"protocol": protocol or Protocol(), "seeds_vary": seeds_vary, "budget": budget}
    return small_replica(seed, EAGER | point, **settings)


def without_runtime(record: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in record.items() if k != "runtime"}, allow_nan=False)


CROWD = [
    make(3),
    make(3, w_sord=1.0, w_mse=1.0, w_var=1.0, t_init=10),
    make(11, patience=4, tau=1e-3),
    make(3, masking="random", mask_prob=0.3),
    make(42, masking="constant", mask_prob=0.2, learning_rate=1e-2, weight_decay=0.1),
    make(11, t_max=5),
    make(5, min_bin=2, delta=0.1, t_max=40),
    make(42, learning_rate=1e-5),
    make(6, w_var=0.0),
]


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs on both paths."""
    with using(request.param):
        yield request.param


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("protocol", "n_rows", "n_numerical"),
    [("paper", 400, 4), ("released", 400, 4), ("paper", 402, 7), ("paper", 414, 5)],
)
def test_a_replica_alone_equals_the_same_replica_in_a_crowd(protocol: str, n_rows: int, n_numerical: int) -> None:
    """Also where the last batch is one row (402) or no multiple of a vector (414)."""
    table = small_table(n_rows=n_rows, n_numerical=n_numerical)
    replicas = [replace(r, protocol=Protocol.named(protocol)) for r in CROWD]
    crowd = train_pack(replicas, table)
    widths = {max(record["bins"]["final"]) for record in crowd}
    assert len(widths) > 3 and max(widths) > 16, "the crowd must differ in how far its heads grew"
    for replica, record in zip(replicas, crowd, strict=True):
        (alone,) = train_pack([replica], table)
        assert without_runtime(alone) == without_runtime(record)  # bit for bit


@pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")
@pytest.mark.parametrize(("width", "batch_size"), [(13, 37), (1, 64), (30, 7)])
def test_on_the_compiled_path_that_holds_at_any_width_and_batch(width: int, batch_size: int) -> None:
    table = small_table(n_rows=150)
    budget = Budget(epochs=12, probe_epochs=1, probes=1)
    architecture = replace(ARCHITECTURE, width=width, batch_size=batch_size)
    replicas = [replace(r, architecture=architecture, budget=budget) for r in (*CROWD[:4], *CROWD[5:7])]
    with using("compiled"):
        crowd = AdaptiveBinning(replicas, table)
        alone = [AdaptiveBinning([r], table) for r in replicas]
        for run in (crowd, *alone):
            for _ in range(run.epochs):
                run.run_epoch()
        embeddings = crowd.embed(table.inputs)
        assert len(set(crowd.bins.n_bins.amax(1).tolist())) > 1
        for r, run in enumerate(alone):
            assert torch.equal(run.history["loss"][0], crowd.history["loss"][r])
            assert torch.equal(run.bins.n_bins[0], crowd.bins.n_bins[r])
            assert torch.equal(run.embed(table.inputs)[0], embeddings[r])


def test_every_instruction_set_gives_the_same_record() -> None:
    table, records = small_table(n_rows=150), []
    for name in usable_sets():
        with switched(name):
            records.append([without_runtime(record) for record in train_pack(CROWD[:3], table)])
    assert all(other == records[0] for other in records)


@pytest.mark.usefixtures("path")
def test_order_of_a_pack_does_not_matter() -> None:
    table = small_table()
    forward, backward = train_pack(CROWD, table), train_pack(CROWD[::-1], table)[::-1]
    assert [without_runtime(r) for r in forward] == [without_runtime(r) for r in backward]


class Cut(Exception):
    pass


@pytest.mark.parametrize(("cut_at", "way"), [(1, "compiled"), (17, "compiled"), (39, "compiled"), (17, "plain")])
def test_cut_and_resumed_equals_not_cut(tmp_path: Path, cut_at: int, way: str) -> None:
    with using(way):
        cut_and_resumed_equals_not_cut(tmp_path, cut_at)


def cut_and_resumed_equals_not_cut(tmp_path: Path, cut_at: int) -> None:
    table = small_table()
    whole = train_pack(CROWD, table)

    def cut(progress: PackProgress) -> None:
        if progress.epoch == cut_at:
            raise Cut

    with pytest.raises(Cut):
        train_pack(CROWD, table, checkpoint=FolderCheckpoint(tmp_path), progress=cut)
    epochs: list[int] = []
    checkpoint = FolderCheckpoint(tmp_path)
    resumed = train_pack(CROWD, table, checkpoint=checkpoint, progress=lambda p: epochs.append(p.epoch))
    assert epochs[0] == cut_at + 1
    assert [without_runtime(r) for r in resumed] == [without_runtime(r) for r in whole]


@pytest.mark.usefixtures("path")
def test_a_diverging_replica_leaves_its_neighbours_untouched() -> None:
    table = small_table()
    bad = make(3, learning_rate=1e30)
    records = train_pack([CROWD[0], bad, CROWD[2]], table)
    assert [r["status"] for r in records] == ["finished", "diverged", "finished"]
    assert records[1]["diverged_at"] < BUDGET.epochs and records[1]["scores"] == {"val": {}, "test": {}}
    assert json.dumps(records[1], allow_nan=False)
    for record, replica in ((records[0], CROWD[0]), (records[2], CROWD[2])):
        assert without_runtime(train_pack([replica], table)[0]) == without_runtime(record)


def test_probe_seeds_share_one_pretraining() -> None:
    table = small_table()
    replicas = [make(k, seeds_vary="probe", w_sord=w) for k in range(3) for w in (10.0, 1.0)]
    records = train_pack(replicas, table)
    assert records[0]["curves"] == records[2]["curves"] == records[4]["curves"] != records[1]["curves"]
    assert len({json.dumps(r["scores"]) for r in records}) == 6


def test_different_seeds_give_different_models_and_one_seed_the_same() -> None:
    table = small_table()
    a, b, c = train_pack([make(0), make(1), make(0, w_sord=10.0)], table)
    assert a["curves"]["loss"][0] != b["curves"]["loss"][0]
    assert without_runtime(a) == without_runtime(c)


@pytest.mark.parametrize("task", list(Task))
def test_every_task_learns_something(task: Task) -> None:
    table = small_table(task=task)
    (record,) = train_pack([make(0, **CALM, budget=Budget(epochs=30, probe_epochs=60, probes=2))], table)
    test = record["scores"]["test"]
    better = {"binary": ("auc", 0.8), "multiclass": ("accuracy", 0.55), "ordinal": ("qwk", 0.6)}
    if task is Task.REGRESSION:
        assert test["rmse"] < 0.7 * table.target_sd and test["r2"] > 0.5
    else:
        name, least = better[task]
        assert test[name] > least
    assert all(0 < se < 5 for se in record["test_bootstrap_se"].values())


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(("n_numerical", "cardinalities"), [(0, (2, 5)), (3, ()), (1, (3,)), (30, (2,))])
def test_tables_with_one_kind_or_one_column(n_numerical: int, cardinalities: tuple[int, ...]) -> None:
    table = small_table(n_numerical=n_numerical, cardinalities=cardinalities)
    (record,) = train_pack([make(0, **CALM)], table)
    assert record["status"] == "finished" and len(record["bins"]["final"]) == n_numerical
    losses = record["curves"]["loss"]
    assert losses[-1] < losses[0]


def test_runs_with_the_switches(tmp_path: Path) -> None:
    table = small_table()
    plain = train_pack([make(0)], table)[0]
    for changes in (
        {"pretrain_schedule": "cosine"},
        {"decoder_depth": "encoder"},
        {"plateau_scale": "weights"},
        {"probe_schedule": "cosine"},
    ):
        record = train_pack([make(0, protocol=Protocol(**changes))], table)[0]
        assert record["status"] == "finished"
        assert without_runtime(record) != without_runtime(plain)


def test_replicas_that_do_not_belong_together_are_refused() -> None:
    table = small_table()
    with pytest.raises(ConfigError, match="at least one replica"):
        train_pack([], table)
    with pytest.raises(ConfigError, match="got 2 kinds"):
        train_pack([make(0), make(0, budget=Budget(epochs=2))], table)
    with pytest.raises(ConfigError, match="needs its own table"):
        train_pack([make(0)], small_table(seed=1))


def test_curves_are_thinned_and_keep_every_split() -> None:
    table = small_table()
    (record,) = train_pack([make(0, budget=Budget(epochs=451, probe_epochs=1, probes=1), t_max=60)], table)
    curves = record["curves"]
    assert len(curves["epoch"]) <= 200 and curves["epoch"][-1] == 450
    assert sum(curves["splits"]) == record["bins"]["splits"]
    assert record["bins"]["splits"] == sum(record["bins"]["final"]) - 2 * 4


def test_results_do_not_read_the_global_generator() -> None:
    table = small_table()
    torch.manual_seed(1)
    first = train_pack([make(0)], table)[0]
    torch.manual_seed(2)
    assert without_runtime(first) == without_runtime(train_pack([make(0)], table)[0])


@pytest.mark.parametrize(
    ("weights", "expected"), [(0, 5), (1_000, 5), (131_072, 5), (131_073, 4), (327_681, 1), (10**7, 1)]
)
def test_large_models_are_computed_in_smaller_stacks(weights: int, expected: int) -> None:
    assert stack_size(10, torch.device("cpu"), weights) == expected
    assert stack_size(10, torch.device("meta"), weights) == 10  # as any other device


def test_stacks_of_wide_perceptrons_hold_one_replica_and_of_other_encoders_several() -> None:
    table = small_table()
    wide = [replace(r, architecture=replace(ARCHITECTURE, width=1024)) for r in CROWD[:3]]
    assert [len(stack.replicas) for stack in stacks_of(wide, table)] == [1, 1, 1]
    resnet = [replace(r, architecture=replace(ARCHITECTURE, width=1024, encoder="resnet")) for r in CROWD[:3]]
    assert [len(stack.replicas) for stack in stacks_of(resnet, table)] == [3]
