"""Recording and replaying the steps: the same numbers as calling them, and recorded again only when it must be."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adaptbin.config import RECONSTRUCTED, Budget, Protocol, Replica
from adaptbin.training import pretrain
from adaptbin.training.graphs import CudaGraph, Replayed, graphs_for
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.training.tables import EAGER, small_replica, small_table

EPOCHS = 30


class FakeGraph:
    """Replays by calling the body again on the tensors of its recording; notes what it was asked."""

    log: list[str] = []

    def __init__(self) -> None:
        self._body: Callable[[], None] | None = None

    def warm_up(self, body: Callable[[], None]) -> None:
        self.log.append("warm-up")
        body()

    def record(self, body: Callable[[], None]) -> None:
        assert self._body is None, "a graph is recorded once"
        self.log.append("record")
        self._body = body

    def replay(self) -> None:
        assert self._body is not None, "only what is recorded can be replayed"
        self._body()

    def release(self) -> None:
        self.log.append("release")
        self._body = None


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    entries: list[str] = []
    monkeypatch.setattr(FakeGraph, "log", entries)
    return entries


def make(seed: int, *, schedule: str = "constant", **point: Any) -> Replica:
    return small_replica(
        seed,
        EAGER | point,
        budget=Budget(epochs=EPOCHS, probe_epochs=1, probes=1),
        protocol=Protocol.from_dict({"pretrain_schedule": schedule}),
    )


CROWD = [
    {},
    {"t_max": 5},
    {"masking": "random", "mask_prob": 0.3},
    {"masking": "constant", "mask_prob": 0.2, "learning_rate": 1e-2, "weight_decay": 0.1},
]


def crowd(**changes: Any) -> list[Replica]:
    return [make(seed, **(point | changes)) for seed, point in enumerate(CROWD)]


def assert_equal_runs(a: AdaptiveBinning, b: AdaptiveBinning) -> None:
    for ours, theirs in zip(a.model.bank.buffers(), b.model.bank.buffers(), strict=True):
        assert torch.equal(ours.nan_to_num(-1.0), theirs.nan_to_num(-1.0))
    assert torch.equal(a.bins.edges, b.bins.edges) and torch.equal(a.plateau.best, b.plateau.best)
    assert a.diverged_at == b.diverged_at and a.optimizer.step_count == b.optimizer.step_count
    for name, values in a.history.items():
        assert torch.equal(values.nan_to_num(-1.0), b.history[name].nan_to_num(-1.0)), name


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_replaying_equals_calling_and_records_only_when_heads_grow(log: list[str], schedule: str) -> None:
    """Bit for bit; bins that split within the slots in use are updated in place."""
    replicas, table = crowd(schedule=schedule), small_table()
    plain, replayed = AdaptiveBinning(replicas, table), AdaptiveBinning(replicas, table, graphs=FakeGraph)
    age, grown, in_place = 0, 0, 0  # epochs since the steps' tensors last moved
    for epoch in range(EPOCHS):
        slots, count = replayed.model.heads.slots, replayed.count.clone()
        log.clear()
        plain.run_epoch()
        replayed.run_epoch()
        expected = [["warm-up"], ["record"], []][min(epoch, 2)]  # the draws
        expected = expected + [["warm-up"], ["record"], []][min(age, 2)]
        moved = replayed.model.heads.slots != slots
        assert log == expected + ["release"] * moved
        age = 0 if moved else age + 1
        grown += moved
        in_place += not moved and not torch.equal(count, replayed.count)
    assert in_place > 3 and grown > 3
    assert_equal_runs(plain, replayed)


def test_a_diverged_replica_is_left_out_of_the_next_recording(log: list[str]) -> None:
    table = small_table()
    replicas = [make(3, patience=EPOCHS), make(3, learning_rate=1e30), make(5, patience=EPOCHS)]
    plain, replayed = AdaptiveBinning(replicas, table), AdaptiveBinning(replicas, table, graphs=FakeGraph)
    for _ in range(6):
        plain.run_epoch()
        replayed.run_epoch()
    at = replayed.diverged_at[1]
    assert replayed.diverged_at == [None, at, None] and at is not None and at < 4
    assert log.count("release") == 1 and replayed.captures == 1 + (at > 0)
    assert_equal_runs(plain, replayed)


MASKED = [
    {"masking": "random", "mask_prob": 0.3, "t_init": 5},
    {"masking": "constant", "mask_prob": 0.2, "learning_rate": 1e30},
    {"masking": "random", "mask_prob": 0.1},
]


@pytest.mark.parametrize("pretext", PRETEXTS)
def test_every_pretext_replays_exactly(log: list[str], pretext: str) -> None:
    """With a replica that diverges, and resumed in another run that had recorded its steps already."""
    table, kind = small_table(), PRETEXTS[pretext]
    refined = {"refine_every": 2} if "bins" in RECONSTRUCTED[pretext] else {}
    points = [*MASKED[:2], {**MASKED[2], **refined}]
    replicas = [make(seed, pretext=pretext, **point) for seed, point in enumerate(points)]
    plain, replayed, resumed = kind(replicas, table), *(kind(replicas, table, graphs=FakeGraph) for _ in range(2))
    for run in (plain, replayed, resumed, resumed):
        for _ in range(4):
            run.run_epoch()
    resumed.load_states([copy.deepcopy(replayed.state())])
    for run in (plain, replayed, resumed):
        for _ in range(4):
            run.run_epoch()
    assert replayed.captures >= 1 and replayed.diverged_at[1] is not None
    for other in (replayed, resumed):
        for ours, theirs in zip(plain.model.bank.buffers(), other.model.bank.buffers(), strict=True):
            assert torch.equal(ours.nan_to_num(-1.0), theirs.nan_to_num(-1.0))
        assert plain.diverged_at == other.diverged_at
        for name, values in plain.history.items():
            assert torch.equal(values.nan_to_num(-1.0), other.history[name].nan_to_num(-1.0)), name


@pytest.mark.parametrize("n_rows", [400, 402])
def test_long_epochs_are_recorded_in_stretches(log: list[str], n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of three of the four or five steps: two lengths, so two recordings, and the same numbers."""
    table, replicas = small_table(n_rows=n_rows), crowd(patience=EPOCHS)
    plain = AdaptiveBinning(replicas, table)
    monkeypatch.setattr(pretrain, "STRETCH_STEPS", 3)
    stretched, replayed = AdaptiveBinning(replicas, table), AdaptiveBinning(replicas, table, graphs=FakeGraph)
    for _ in range(4):
        monkeypatch.setattr(pretrain, "STRETCH_STEPS", 64)
        plain.run_epoch()
        monkeypatch.setattr(pretrain, "STRETCH_STEPS", 3)
        stretched.run_epoch()
        replayed.run_epoch()
    assert replayed.captures == 2 and stretched.captures == 0
    assert_equal_runs(plain, stretched)
    assert_equal_runs(plain, replayed)


def test_a_resumed_run_records_anew_and_goes_on_exactly(log: list[str]) -> None:
    table, replicas = small_table(), crowd(schedule="cosine")
    whole = AdaptiveBinning(replicas, table, graphs=FakeGraph)
    for _ in range(7):
        whole.run_epoch()
    state = copy.deepcopy(whole.state())
    resumed = AdaptiveBinning(replicas, table, graphs=FakeGraph)
    resumed.run_epoch()
    resumed.load_states([state])
    for _ in range(5):
        whole.run_epoch()
        resumed.run_epoch()
    assert_equal_runs(whole, resumed)


def test_arguments_of_a_replay_are_those_of_the_call(log: list[str]) -> None:
    """Each call passes new tensors of one shape; another shape is a recording of its own."""
    total = torch.zeros(2)
    body = Replayed(lambda x, nothing: total.add_(x.sum()), FakeGraph)
    for value, n in [(1.0, 2), (2.0, 2), (3.0, 2), (4.0, 3), (5.0, 3), (6.0, 2)]:
        body(torch.full((n,), value), None)
    assert total.tolist() == [2 + 4 + 6 + 12 + 15 + 12] * 2
    assert log == ["warm-up", "record", "warm-up", "record"] and body.captures == 2
    body.invalidate()
    body(torch.ones(2), None)
    assert log[4:] == ["release", "release", "warm-up"]


def test_the_order_of_calls_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch asks for: warmed up on a side stream, joined on both sides, captured there, freed before the next."""
    calls: list[str] = []

    def stream(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, device="cuda:0", wait_stream=lambda other: calls.append(f"{name} waits for {other.name}")
        )

    @contextlib.contextmanager
    def within(what: str) -> Iterator[None]:
        calls.append(what)
        yield
        calls.append("end")

    def capture(graph: object, stream: Any, capture_error_mode: str) -> contextlib.AbstractContextManager[None]:
        return within(f"capture on {stream.name}, {capture_error_mode}")

    graph = SimpleNamespace(replay=lambda: calls.append("replay"), reset=lambda: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream("side"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", lambda side: within(f"on {side.name}"))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", capture)
    make = graphs_for(torch.device("cuda"))
    assert make is not None and isinstance(make(), CudaGraph) and graphs_for(torch.device("cpu")) is None
    body = Replayed(lambda: calls.append("body"), make)
    body()
    assert calls == ["side waits for main", "on side", "body", "end", "main waits for side"]
    calls.clear()
    body()
    body()
    body.invalidate()
    assert calls == ["capture on side, thread_local", "body", "end", "replay", "replay", "reset"]
