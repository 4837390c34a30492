"""Fine-tuning: the twin, alone = in the crowd for every encoder, freezing that changes nothing, cut and resumed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, get_args

import numpy as np
import pytest
import torch

from adaptbin.config import (
    METHOD_VERSION,
    Budget,
    EncoderName,
    Finetuning,
    Hyperparameters,
    PretextName,
    Replica,
)
from adaptbin.data.encode import EncodedTable
from adaptbin.errors import ConfigError
from adaptbin.metrics import evaluate, metrics_of
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.selection import batched_metric
from adaptbin.replicas.streams import kept_units, row_order
from adaptbin.tasks import Task
from adaptbin.training import finetune, pretrain
from adaptbin.training.finetune import FineTuning
from adaptbin.training.pack import PackProgress, stacks_of, train_pack
from adaptbin.training.readout import Scores
from tests.paths import BOTH, using
from tests.reference import finetune as twin
from tests.reference.probe import best_epoch
from tests.training.tables import ARCHITECTURE, finetuned_replica, small_table

make = finetuned_replica


@pytest.fixture(params=BOTH)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs by compiled kernels, and by torch alone."""
    with using(request.param):
        yield


def without_runtime(record: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in record.items() if k != "runtime"}, allow_nan=False)


# --- the twin


def numpy_model(run: FineTuning, values: torch.Tensor, row: int) -> dict[str, np.ndarray]:
    """Parameters of one row as the twin has them: float64, [out, in], even numbers."""
    found = {}
    for i in range(run.architecture.depth + 1):
        found[f"encoder.{2 * i}.weight"] = run.bank.view(f"encoder.{i}.weight", values)[row].t()
        found[f"encoder.{2 * i}.bias"] = run.bank.view(f"encoder.{i}.bias", values)[row]
    n_outputs = run.targets.n_outputs
    found["head.0.weight"] = run.bank.view("head.0.weight", values)[row, :, :n_outputs].t()
    found["head.0.bias"] = run.bank.view("head.0.bias", values)[row, :n_outputs]
    return {name: value.double().numpy().copy() for name, value in found.items()}


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("task", list(Task))
def test_every_replica_is_the_twins(task: Task, schedule: str) -> None:
    """Three seeds in one stack; the last batch is smaller than the others."""
    table = small_table(250, task=task)
    chosen: Any = schedule
    settings = Finetuning(epochs=4, learning_rate=3e-3, weight_decay=0.1, schedule=chosen)
    replicas = [make(seed, finetuning=settings) for seed in (3, 8, 5)]
    run = FineTuning(replicas, table)
    starts = [numpy_model(run, run.bank.values, row) for row in range(3)]
    values = []
    while not run.ended:
        run.run_epoch()
        values.append(run.bank.values.clone())
    target = table.target[table.train].double().numpy()
    if task is Task.REGRESSION:
        target = (target - table.target_mean) / table.target_sd
    elif task is not Task.BINARY:
        target = target.astype(np.int64)
    parts = {part: table.inputs[getattr(table, part)].double().numpy() for part in ("train", "val", "test")}
    metric = run.metric
    for row, (replica, found) in enumerate(zip(replicas, run.scores(), strict=True)):
        seed, drop = replica.seed, ARCHITECTURE.dropout
        order_keys, dropout_keys = (stream_keys([(seed, "finetune", name)]) for name in ("order", "dropout"))
        epochs = [torch.tensor(epoch) for epoch in range(4)]
        n_rows = len(table.train)
        models, losses = twin.train(
            task,
            parts["train"],
            target,
            starts[row],
            np.stack([row_order(order_keys, epoch, n_rows)[0].numpy() for epoch in epochs]),
            np.stack([kept_units(dropout_keys, epoch, 2, n_rows, 16, drop)[0].numpy() for epoch in epochs]),
            ARCHITECTURE.batch_size,
            drop=drop,
            rate=3e-3,
            decay=0.1,
            schedule=schedule,
        )
        for epoch in range(4):
            ours = numpy_model(run, values[epoch], row)
            for name, expected in models[epoch].items():
                np.testing.assert_allclose(ours[name], expected, rtol=2e-3, atol=2e-5)
        np.testing.assert_allclose(run.history["loss"][row], losses, rtol=1e-4)

        def scores(part: str, epoch: int) -> dict[str, float]:
            outputs = twin.forward(models[epoch], parts[part])  # noqa: B023
            if task is Task.REGRESSION:
                outputs = outputs * table.target_sd + table.target_mean
            outputs = outputs if task in (Task.MULTICLASS, Task.ORDINAL) else outputs[:, 0]
            return evaluate(task, outputs, table.target[getattr(table, part)].numpy(), table.card.levels)

        validation = [scores("val", epoch)[metric.name] for epoch in range(4)]
        np.testing.assert_allclose(run.history["val"][row], validation, rtol=1e-3, atol=1e-6)
        best = best_epoch(validation, metric.sign > 0)
        (head,) = found.heads
        assert head["best_epoch"] == best
        for part in ("val", "test"):
            assert head[part] == pytest.approx(scores(part, best), rel=1e-3, abs=1e-6)
        assert set(found.bootstrap_se) == set(metrics_of(task))


# --- alone = in the crowd, for every encoder and every pretext


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("encoder", get_args(EncoderName))
@pytest.mark.parametrize("pretext", ["none", "adaptive_binning", "mask_xent_value_recon"])
def test_a_replica_alone_equals_the_same_replica_in_a_crowd(encoder: EncoderName, pretext: PretextName) -> None:
    """Two stacks of three; the last batch has one row."""
    table = small_table(302)
    assert len(table.train) % ARCHITECTURE.batch_size == 1
    replicas = [make(seed, pretext, encoder=encoder) for seed in range(6)]
    crowd = train_pack(replicas, table)
    assert len({without_runtime(record) for record in crowd}) == 6
    for at in (0, 4):
        (alone,) = train_pack(replicas[at : at + 1], table)
        assert without_runtime(alone) == without_runtime(crowd[at])  # bit for bit
    assert all(record["status"] == "finished" for record in crowd)


@pytest.mark.parametrize("encoder", ["mlp", "ft_transformer"])
def test_so_do_several_of_one_seed_and_several_stretches(encoder: EncoderName, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed twice in a stack, a stack of one seed, and recordings that are shorter than an epoch."""
    table = small_table(302)
    settings = [Finetuning(epochs=3, learning_rate=1e-2) for _ in range(7)]
    replicas = [
        replace(make(seed, "bin_recon", encoder=encoder, finetuning=each), hyperparameters=point)
        for seed, each, point in zip(
            (4, 4, 9, 9, 7, 7, 7),
            settings,
            [Hyperparameters(pretext="bin_recon", t_init=t) for t in (2, 3, 2, 5, 2, 4, 6)],
            strict=True,
        )
    ]
    crowd = [without_runtime(record) for record in train_pack(replicas, table)]
    assert len(set(crowd)) == 7
    for module in (finetune, pretrain):
        monkeypatch.setattr(module, "STRETCH_STEPS", 2)
    for at in (0, 1, 3, 5):
        assert [without_runtime(record) for record in train_pack(replicas[at : at + 1], table)] == crowd[at : at + 1]
    assert [without_runtime(record) for record in train_pack(replicas[4:], table)] == crowd[4:]


@pytest.mark.parametrize("encoder", ["resnet", "ft_transformer"])
def test_an_encoder_is_pretrained_and_probed_alike(encoder: EncoderName) -> None:
    """Linear probes read any encoder, and bins grow on its embeddings."""
    table = small_table(302)

    def probed(seed: int, pretext: PretextName) -> Replica:
        budget = Budget(epochs=15, probe_epochs=4, probes=2)
        return replace(make(seed, pretext, encoder=encoder), finetuning=None, budget=budget)

    replicas = [probed(seed, "adaptive_binning") for seed in range(3)]
    crowd = train_pack(replicas, table)
    (alone,) = train_pack(replicas[1:2], table)
    assert without_runtime(alone) == without_runtime(crowd[1])
    assert max(crowd[0]["bins"]["final"]) > 2
    (values,) = train_pack([probed(0, "value_recon")], small_table(300))  # whole batches: their mean is the rows'
    assert values["curves"]["loss"][-1] < values["curves"]["loss"][0]


# --- where it starts, and what it shares


def test_from_scratch_starts_where_the_pretraining_of_its_seed_starts() -> None:
    table = small_table(120)
    (before,) = stacks_of([replace(make(4, "value_recon"), finetuning=None)], table)
    (scratch,) = [FineTuning([make(4)], table)]
    for name in scratch.encoder.shapes():
        assert torch.equal(scratch.bank.view(name), before.model.bank.view(name))


@pytest.mark.parametrize("encoder", ["mlp", "resnet"])
def test_a_pretrained_model_starts_from_its_pretraining(encoder: EncoderName) -> None:
    table = small_table(120)
    replicas = [make(seed, "value_recon", encoder=encoder) for seed in (4, 9)]
    (before,) = stacks_of(replicas, table)
    for _ in range(3):
        before.run_epoch()
    tuned = FineTuning([replicas[1], replicas[0]], table, starts=[(before, 1), (before, 0)])
    expected = before.embed(table.inputs).flip(0)
    assert torch.equal(tuned.encoder.evaluate(table.inputs.unsqueeze(0)), expected)
    assert tuned.bank.view("head.0.bias").eq(0).all()
    assert not tuned.bank.view("head.0.weight")[..., tuned.targets.n_outputs :].any()


def test_seeds_that_vary_the_evaluation_share_one_pretraining() -> None:
    table = small_table(120)
    replicas = [make(seed, "value_recon", seeds_vary="probe") for seed in range(3)]
    seen: list[PackProgress] = []
    records = train_pack(replicas, table, progress=seen.append)
    assert {phase: {p.replicas for p in seen if p.phase == phase} for phase in ("pretrain", "finetune")} == {
        "pretrain": {1}, "finetune": {3},
    }  # fmt: skip
    assert len({json.dumps(record["curves"]) for record in records}) == 1
    assert len({json.dumps(record["finetuning"]) for record in records}) == 3


def test_the_record() -> None:
    table = small_table(120)
    scratch, tuned = (train_pack([make(0, pretext)], table)[0] for pretext in ("none", "adaptive_binning"))
    for record in (scratch, tuned):
        (head,) = record["probes"]
        assert record["scores"]["test"] == head["test"] and record["scores"]["val"] == head["val"]
        told = record["finetuning"]
        assert told["epochs"] == 5 and told["metric"] == "qwk" and len(told["curves"]["loss"]) == 5
        assert told["ended"] == "all epochs"
        assert told["curves"]["val"][head["best_epoch"]] == pytest.approx(head["val"]["qwk"])
        assert head["best_epoch"] == int(np.argmax(told["curves"]["val"]))
    assert scratch["bins"] == {"features": [], "final": [], "triggers": 0, "splits": 0} and scratch["curves"] == {}
    assert len(tuned["curves"]["epoch"]) == 6 and len(tuned["bins"]["final"]) == 4


# --- test decides nothing


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("pretext", ["none", "adaptive_binning"])
def test_test_rows_do_not_affect_the_training(task: Task, pretext: PretextName) -> None:
    """Neither their inputs nor their labels, bit for bit: curves, best epochs, validation scores, bins."""
    table = small_table(150, task=task)
    replicas = [make(seed, pretext) for seed in range(2)]
    generator = torch.Generator().manual_seed(1)
    inputs, target, n_numerical = table.inputs.clone(), table.target.clone(), table.n_numerical
    inputs[table.test, :n_numerical] = 3 * torch.randn(len(table.test), n_numerical, generator=generator)
    target[table.test] = target[table.test][torch.randperm(len(table.test), generator=generator)]
    before = train_pack(replicas, table)
    for changed in (replace(table, inputs=inputs), replace(table, target=target)):
        for old, new in zip(before, train_pack(replicas, changed), strict=True):
            for part in ("finetuning", "curves", "bins", "status"):
                assert new[part] == old[part]
            assert new["scores"]["val"] == old["scores"]["val"] and new["scores"]["test"] != old["scores"]["test"]
            (was,), (now,) = old["probes"], new["probes"]
            assert {**now, "test": None} == {**was, "test": None}


# --- replicas that leave


def easy_table() -> EncodedTable:
    """Binary labels that the first column tells: validation is soon at its best."""
    table = small_table(250, task=Task.BINARY)
    return replace(table, target=(table.inputs[:, 0] > 0).to(torch.int64))


@pytest.mark.usefixtures("way")
def test_freezing_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replicas cannot get better after a few epochs, and one of them would break later; one is slow, one breaks."""
    table = easy_table()
    settings = Finetuning(epochs=25, learning_rate=1e-2)
    replicas = [make(seed, encoder="resnet", finetuning=settings) for seed in range(4)]

    def run() -> FineTuning:
        stack = FineTuning(replicas, table)
        stack.bank.view("encoder.input.weight")[1] *= 1e-3  # slow
        while not stack.ended:
            stack.run_epoch()
            if stack.epoch == 2 and len(stack.active) == 4:
                stack.bank.values[2] = torch.nan
            if stack.epoch == 24 and len(stack.active) == 4:
                stack.bank.values[perfect] = torch.nan
        return stack

    perfect = 0
    frozen = run()
    ends = [at or 25 for at in frozen.stopped_at]
    assert ends[2] == 3 and len(set(ends)) > 2 and min(ends[0], ends[3]) < 24
    perfect = min((0, 3), key=ends.__getitem__)
    monkeypatch.setattr(FineTuning, "_keep", lambda self, members: None)
    whole = run()
    assert whole.stopped_at == [None] * 4
    assert torch.equal(frozen.best_epoch, whole.best_epoch) and torch.equal(frozen.best_values, whole.best_values)
    assert frozen.scores() == whole.scores()
    for at, end in enumerate(ends):
        assert torch.equal(frozen.history["val"][at, : end - 1], whole.history["val"][at, : end - 1])


def test_a_model_that_breaks_has_diverged_and_its_neighbours_have_not() -> None:
    table = small_table(250)
    replicas = [make(seed) for seed in range(3)]
    calm = train_pack(replicas, table)
    run = FineTuning(replicas, table)
    for _ in range(2):
        run.run_epoch()
    run.bank.values[1] = torch.inf
    while not run.ended:
        run.run_epoch()
    assert run.stopped_at == [None, 3, None]
    assert run.told_of(1)["ended"] == "broke" and run.told_of(0)["ended"] == "all epochs"
    assert run.told_of(1)["epochs"] == 3 and run.told_of(1)["curves"]["val"][2] is None
    scores = run.scores()
    assert int(run.best_epoch[1]) in (0, 1) and scores[1] == Scores([], {})
    for at in (0, 2):
        assert scores[at].heads == calm[at]["probes"]


def test_a_model_without_a_finite_score_has_diverged() -> None:
    table = small_table(250)
    settings = Finetuning(epochs=3, learning_rate=1e30)
    seen: list[PackProgress] = []
    replicas = [make(seed, "value_recon", finetuning=settings) for seed in range(2)]
    record, _ = train_pack(replicas, table, progress=seen.append)
    assert record["status"] == "diverged" and record["probes"] == []
    assert record["diverged_at"] == record["finetuning"]["epochs"] == 1 and record["finetuning"]["ended"] == "broke"
    assert [p.diverged for p in seen if p.phase == "finetune"] == [2]
    assert record["scores"] == {"val": {}, "test": {}}
    without_runtime(record)  # every number in it is finite


def test_what_diverged_in_pretraining_is_not_fine_tuned() -> None:
    table = small_table(250)
    bad = make(1, "value_recon")
    bad = replace(bad, hyperparameters=replace(bad.hyperparameters, learning_rate=1e30))
    first, second = train_pack([make(0, "value_recon"), bad], table)
    assert (first["status"], second["status"]) == ("finished", "diverged")
    assert "finetuning" not in second and second["diverged_at"] < 6


# --- cut and resumed


class Pipe:
    """Keeps every state that was written."""

    def __init__(self, *states: bytes) -> None:
        self.states = list(states)

    def read(self) -> Iterator[BinaryIO]:
        for state in self.states:
            yield io.BytesIO(state)

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        stream = io.BytesIO()
        write(stream)
        self.states.append(stream.getvalue())


def states_of(replicas: Sequence[Replica], table: EncodedTable) -> tuple[list[dict[str, Any]], list[bytes]]:
    kept = Pipe()
    return train_pack(replicas, table, checkpoint=kept, checkpoint_seconds=0.0), kept.states


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("encoder", get_args(EncoderName))
def test_a_pack_cut_anywhere_goes_on_exactly(encoder: EncoderName) -> None:
    """In pretraining, at its end, and in fine-tuning; also a half of it."""
    table = small_table(200)
    replicas = [make(seed, "adaptive_binning", encoder=encoder, epochs=4) for seed in range(6)]
    whole, states = states_of(replicas, table)
    assert len(states) == 4 + 5
    for at in (1, 3, 4, 6, 8):
        some = replicas if at == 6 else replicas[2:5]
        again = train_pack(some, table, checkpoint=Pipe(states[at]))
        assert [r["runtime"]["resumed_epoch"] for r in again] == [at + 1] * len(some)
        expected = {record["id"]: without_runtime(record) for record in whole}
        assert [without_runtime(r) for r in again] == [expected[r.id] for r in some]


def test_a_resumed_pack_trains_what_is_left_and_no_more() -> None:
    table = small_table(200)
    replicas = [make(seed, "value_recon", epochs=4) for seed in range(2)]
    _, states = states_of(replicas, table)
    seen: list[PackProgress] = []
    train_pack(replicas, table, checkpoint=Pipe(states[6]), progress=seen.append)
    assert [(p.phase, p.epoch) for p in seen] == [("finetune", 4), ("finetune", 5)]


def test_one_from_scratch_goes_on_too_and_so_do_those_that_have_left() -> None:
    table = easy_table()
    settings = Finetuning(epochs=25, learning_rate=1e-2)
    replicas = [make(seed, encoder="resnet", finetuning=settings) for seed in range(4)]
    whole, states = states_of(replicas, table)
    ends = [record["finetuning"]["epochs"] for record in whole]
    assert min(ends) < max(ends), "some must leave before others"
    assert {record["finetuning"]["ended"] for record in whole} >= {"perfect"}
    for at in (1, min(ends), max(ends) - 2):
        seen: list[PackProgress] = []
        again = train_pack(replicas[::-1], table, checkpoint=Pipe(states[at]), progress=seen.append)
        assert (seen[0].phase, seen[0].epoch) == ("finetune", at + 2)
        assert again[0]["runtime"]["resumed_epoch"] == at + 1
        assert [without_runtime(r) for r in again] == [without_runtime(r) for r in whole[::-1]]


# --- refusals


def test_replicas_of_a_stack_share_their_settings() -> None:
    table = small_table(120)
    with pytest.raises(ConfigError, match="fine-tuned replicas of a stack must share their settings, got 2 kinds"):
        FineTuning([make(0), make(1, finetuning=Finetuning(epochs=9))], table)
    with pytest.raises(ConfigError, match="replicas of a pack must share pretext, .*, got 2 kinds"):
        train_pack([make(0), make(1, finetuning=Finetuning(epochs=9))], table)


@pytest.mark.parametrize("other", ["seed", "encoder", "table", "method version"])
def test_a_model_starts_from_its_own_pretraining_or_not_at_all(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, replicas = small_table(120), [make(seed, "value_recon") for seed in range(2)]
    (before,) = stacks_of(replicas, table)
    starts = [(before, 0), (before, 1)]
    FineTuning(replicas, table, starts=starts)
    if other == "seed":
        starts.reverse()
    elif other == "encoder":
        replicas = [make(seed, "value_recon", encoder="resnet") for seed in range(2)]
    elif other == "table":
        replicas, table = [replace(each, fingerprint="small-1") for each in replicas], small_table(120, seed=1)
    else:
        monkeypatch.setattr("adaptbin.config.METHOD_VERSION", METHOD_VERSION + 1)
    with pytest.raises(ConfigError, match="a model must start from its own pretraining, got another one's for Replica"):
        FineTuning(replicas, table, starts=starts)


def test_how_a_model_is_fine_tuned_must_be_said() -> None:
    with pytest.raises(ConfigError, match="fine-tuned replicas must say how, got finetuning None"):
        FineTuning([replace(make(0, "value_recon"), finetuning=None)], small_table(120))


@pytest.mark.parametrize(("task", "highest"), [(Task.BINARY, 1.0), (Task.ORDINAL, 1.0), (Task.REGRESSION, 0.0)])
def test_the_highest_score_can_be_reached(task: Task, highest: float) -> None:
    """By outputs that are right everywhere; freezing takes it for the end."""
    table = small_table(120, task=task)
    run = FineTuning([make(0)], table)
    assert run._highest_score == highest
    expected = table.target[table.val]
    right = expected.float()[None, :, None] - (0.5 if task is Task.BINARY else 0.0)
    if task is Task.ORDINAL:
        right = torch.nn.functional.one_hot(expected, 3).float()[None]
    elif task is Task.REGRESSION:
        right = expected[None, :, None]
    score = batched_metric(run.metric.name, right, expected, table.card.levels) * run.metric.sign
    assert float(score) == highest
