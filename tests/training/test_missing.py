"""Missing numbers and rows without labels: equal to the twins, left out of the losses, and nothing else changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from adaptbin.config import RECONSTRUCTED, Budget, PretextName, Replica
from adaptbin.data import EncodedTable, encode, load_table
from adaptbin.data.table import make_table
from adaptbin.tasks import Task
from adaptbin.training.pack import stacks_of, train_pack
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretexts.adaptive_bin_recon import AdaptiveBinRecon
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.pretexts.baselines import Reconstruction
from adaptbin.training.rows import TrainRows, entry_weights
from sweeps.service.results import check_record
from tests.paths import BOTH, using
from tests.reference import autoencoder as twin
from tests.reference import baselines as baselines_twin
from tests.training import test_ablations, test_baselines
from tests.training.tables import (
    ARCHITECTURE,
    EAGER,
    finetuned_replica,
    small_replica,
    small_table,
    with_missing,
    with_unlabelled,
)

QUIET = replace(ARCHITECTURE, dropout=0.0)
BUDGET = Budget(epochs=12, probe_epochs=3, probes=2)
SHARES = {0: 0.3, 2: 0.6}
EVERY: list[PretextName] = list(PRETEXTS)


@pytest.fixture(params=BOTH)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs on both paths."""
    with using(request.param):
        yield request.param


def make(pretext: PretextName, seed: int = 0, **point: Any) -> Replica:
    masked = {"masking": "random", "mask_prob": 0.2} if "mask" in RECONSTRUCTED[pretext] else {}
    eager = EAGER if "bins" in RECONSTRUCTED[pretext] else {"learning_rate": 3e-3}
    return small_replica(seed, {"delta": 0.2} | eager | masked | point | {"pretext": pretext}, budget=BUDGET)


def without_runtime(record: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in record.items() if key != "runtime"}, sort_keys=True)


# --- weights


def test_every_number_that_is_there_counts_as_much_as_any_other_of_its_column() -> None:
    observed = torch.tensor([[True, True], [True, False], [True, False], [True, True], [True, True], [True, False]])
    weights = entry_weights(observed, 1)
    assert weights.dtype == torch.float32
    assert weights.tolist() == [[1.0] * 6, [2.0, 0.0, 0.0, 2.0, 2.0, 0.0], [1.0] * 6]
    np.testing.assert_array_equal(weights[:2].t(), twin.entry_weights(observed.numpy()))


def test_only_rows_of_pretraining_decide() -> None:
    """What is missing in validation and test alone is filled, and changes no weight."""
    table = with_missing(small_table(), SHARES)
    assert table.observed is not None
    observed = table.observed.clone()
    observed[table.train] = True
    rows = TrainRows.of(replace(table, observed=observed), torch.device("cpu"))
    assert rows.observed is None and rows.weights is None
    assert TrainRows.of(table, torch.device("cpu")).weights is not None


# --- twins


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", ["adaptive_binning", "adaptive_bin_recon"])
@pytest.mark.parametrize("cardinalities", [(2, 5), ()])
def test_adaptive_bins_are_the_twins(pretext: PretextName, cardinalities: tuple[int, ...]) -> None:
    table = with_missing(small_table(400, 3, cardinalities), SHARES)
    replica = test_ablations.make(4, pretext)
    run = PRETEXTS[pretext]([test_ablations.make(9, pretext), replica], table)
    assert isinstance(run, AdaptiveBinning) and table.observed is not None
    start = test_ablations.numpy_parameters(run, 1)
    orders, bins, triggers = [], [], []
    for epoch in range(run.epochs):
        orders.append(run.draws.at(epoch).order[1].numpy().copy())
        run.run_epoch()
        bins.append(run.bins.n_bins[1].tolist())
        triggers.append(int(run.history["triggers"][1, epoch]))
    chosen = replica.hyperparameters
    expected = twin.pretrain(
        start,
        table.inputs[table.train].numpy(),
        table.n_numerical,
        np.stack(orders),
        twin.Settings(
            weights=(chosen.w_sord, chosen.w_mse, chosen.w_var),
            patience=chosen.patience,
            tau=chosen.tau,
            batch_size=QUIET.batch_size,
            rate=chosen.learning_rate,
            delta=chosen.delta,
            min_bin=chosen.min_bin,
            numerical_loss="index" if pretext == "adaptive_bin_recon" else "hord",
        ),
        table.observed[table.train].numpy(),
    )
    np.testing.assert_allclose(run.history["loss"][1], expected.loss, rtol=1e-3)
    assert bins == expected.bins and max(bins[-1]) > 4
    assert triggers == [sum(fired) for fired in expected.triggered]
    for d, edges in enumerate(expected.edges):
        np.testing.assert_array_equal(run.bins.edges[1, d, 1 : 1 + len(edges)], edges)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", ["value_recon", "mask_xent", "mask_xent_value_recon", "bin_recon"])
def test_baselines_are_the_twins(pretext: PretextName) -> None:
    table = with_missing(small_table(150, 3, (5,)), SHARES)
    quiet = {"architecture": replace(QUIET, batch_size=40)}
    replicas = [test_baselines.make(pretext, 1, quiet, t_init=4), test_baselines.make(pretext, 2, quiet, t_init=7)]
    run = PRETEXTS[pretext](replicas, table)
    assert isinstance(run, Reconstruction) and table.observed is not None
    x = table.inputs[table.train].numpy()
    observed = np.concatenate([table.observed[table.train].numpy(), np.ones((len(x), 3), dtype=bool)], 1)
    columns, epochs = x.shape[1], 4
    starts = [test_baselines.numpy_parameters(run, r, columns) for r in range(2)]
    drawn = []
    for _ in range(epochs):
        draws = run.draws.at(run.epoch)
        drawn.append([part.clone() for part in (draws.order, draws.uniform, draws.source) if part is not None])
        run.run_epoch()
    for r, replica in enumerate(replicas):
        point = replica.hyperparameters
        what = {
            "value": x,
            "mask": None,
            "index": baselines_twin.bin_targets(x, 3, point.t_init, observed=observed),
        }
        parameters, losses = baselines_twin.pretrain(
            starts[r],
            x.astype(np.float64),
            {f"decoder_{part}": what[part] for part in RECONSTRUCTED[pretext]},
            [(epoch[0][r].numpy(), epoch[1][r].numpy(), epoch[2][r].numpy()) for epoch in drawn],
            masking=(point.masking, point.mask_prob),
            batch_size=40,
            rate=point.learning_rate,
            decay=point.weight_decay,
            entries=twin.entry_weights(observed),
        )
        np.testing.assert_allclose(run.history["loss"][r, :epochs], losses, rtol=1e-4)
        for name, found in test_baselines.numpy_parameters(run, r, columns).items():
            np.testing.assert_allclose(found, parameters[name], rtol=2e-3, atol=2e-4, err_msg=name)


# --- what may change no bit


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", EVERY)
def test_alone_as_in_a_crowd(pretext: PretextName) -> None:
    table = with_missing(with_unlabelled(small_table(402), 90), SHARES)
    crowd = [make(pretext, 3), make(pretext, 3, t_init=10), make(pretext, 11, learning_rate=1e-2), make(pretext, 5)]
    together = train_pack(crowd, table)
    for replica, record in zip(crowd, together, strict=True):
        (alone,) = train_pack([replica], table)
        assert without_runtime(alone) == without_runtime(record)
    if "bins" in RECONSTRUCTED[pretext]:
        assert together[0]["bins"]["splits"] > 0


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", EVERY)
def test_a_table_that_lacks_nothing_trains_as_ever(pretext: PretextName) -> None:
    """Also where missing numbers are allowed, and there are none."""
    table = small_table()
    allowed = replace(table, observed=torch.ones(len(table.inputs), table.n_numerical, dtype=torch.bool))
    (one,), (other,) = (train_pack([make(pretext)], each) for each in (table, allowed))
    assert without_runtime(one) == without_runtime(other)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("pretext", EVERY)
def test_what_stands_for_a_missing_target_changes_nothing(pretext: PretextName) -> None:
    table = with_missing(small_table(), SHARES)
    plain, moved = (PRETEXTS[pretext]([make(pretext), make(pretext, 1)], table) for _ in range(2))
    there = plain.rows.observed
    assert there is not None
    if isinstance(moved, AdaptiveBinning):
        assert not isinstance(moved, AdaptiveBinRecon) or moved.targets.unique().numel() > 2
        moved.targets.masked_fill_(~there.t(), 1.0)
    else:
        moving = moved._targets

        def targets(rows: torch.Tensor, *others: Any) -> tuple[torch.Tensor, ...]:
            found = moving(rows, *others)
            missing = found[-1] == 0
            return (*(target.masked_fill(missing, 1.0) for target in found[:-1]), found[-1])

        moved._targets = targets  # type: ignore[method-assign]
    for run in (plain, moved):
        run.run_epoch()
    assert torch.equal(plain.model.bank.values, moved.model.bank.values)
    assert torch.equal(plain.history["loss"], moved.history["loss"])


@pytest.mark.usefixtures("path")
def test_bins_are_those_of_the_numbers_that_are_there() -> None:
    """Initial and refined ones: a column's are those of the same rows without the others' numbers."""
    table = with_missing(small_table(600), SHARES)
    (stack,) = stacks_of([make("adaptive_binning", delta=5.0)], table)
    assert isinstance(stack, AdaptiveBinning) and table.observed is not None
    for d in SHARES:
        values = table.inputs[table.train, d].double()[table.observed[table.train, d]]
        assert stack.bins.edges[0, d, :3].tolist() == [-np.inf, np.median(values), np.inf]
    while not stack.ended:
        stack.run_epoch()
    least = stack.replicas[0].hyperparameters.min_bin
    for d in SHARES:
        values = table.inputs[table.train, d].double()[table.observed[table.train, d]]
        edges = stack.bins.edges[0, d, 1 : int(stack.bins.n_bins[0, d])].contiguous()
        assert len(edges) > 3
        assert torch.bincount(torch.bucketize(values, edges, right=True)).min() >= least


# --- rows without a label


def moved_rows(table: EncodedTable) -> EncodedTable:
    """``table`` with other numbers in the rows that have no label."""
    assert table.unlabelled is not None
    inputs = table.inputs.clone()
    inputs[table.unlabelled, : table.n_numerical] += 1.0
    return replace(table, inputs=inputs)


@pytest.mark.parametrize("task", [Task.ORDINAL, Task.REGRESSION])
def test_rows_without_a_label_are_pretrained_on_and_nothing_else(task: Task) -> None:
    table = with_unlabelled(small_table(task=task), 100)
    (stack,) = stacks_of([make("adaptive_binning")], table)
    assert len(stack.rows.inputs) == len(table.train) + 100 and stack.steps_per_epoch == 6
    for replica in (make("adaptive_binning"), finetuned_replica(0, "adaptive_binning")):
        (one,), (other,) = (train_pack([replica], each) for each in (table, moved_rows(table)))
        assert one["scores"] != other["scores"]
        assert one["n_rows"] == {"train": 256, "val": 64, "test": 80, "unlabelled": 100}
    scratch = finetuned_replica(0, "none")
    (one,), (other,) = (train_pack([scratch], each) for each in (table, moved_rows(table)))
    (without,) = train_pack([scratch], small_table(task=task))
    assert one["scores"] == other["scores"] == without["scores"]
    assert one["probes"] == other["probes"]


def test_a_run_with_missing_numbers_goes_on_from_its_state() -> None:
    table = with_missing(with_unlabelled(small_table(), 60), SHARES)
    replicas = [make("adaptive_bin_recon", seed) for seed in (0, 1)]
    whole, cut = (PRETEXTS["adaptive_bin_recon"](replicas, table) for _ in range(2))
    for _ in range(7):
        whole.run_epoch()
        cut.run_epoch()
    resumed = PRETEXTS["adaptive_bin_recon"](replicas, table)
    resumed.load_states([cut.state()])
    while not whole.ended:
        whole.run_epoch()
        resumed.run_epoch()
    assert torch.equal(whole.model.bank.values, resumed.model.bank.values)


def test_from_a_table_with_gaps_to_records() -> None:
    """The whole way, also where a category is missing and a part of the labels; every pretext has finite scores."""
    source = load_table("diabetes")
    columns = tuple(replace(column, missing=column.kind == "numerical") for column in source.card.columns)
    features, target = source.features.copy(), source.target.copy()
    for column, name in enumerate(source.card.numerical):
        features.loc[np.random.default_rng(column).random(len(features)) < 0.1 * column, name] = np.nan
    target.iloc[::3] = np.nan
    table = encode(make_table(replace(source.card, columns=columns), features, target))
    assert table.n_categorical == 1 + sum(name.endswith(" is missing") for name in table.categorical_names)
    for pretext in EVERY:
        replica = replace(make(pretext), dataset="diabetes", fingerprint=table.fingerprint)
        (record,) = train_pack([replica], table)
        assert record["status"] == "finished" and record["scores"]["test"]["rmse"] < 200
        assert record["n_rows"]["unlabelled"] == 148
        check_record(json.loads(json.dumps(record)), replica.id)
