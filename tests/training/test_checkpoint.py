"""What is saved of a pack: any part of it goes on exactly, in any stacks, and what is not whole is not used."""

from __future__ import annotations

import gc
import io
import json
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch

from adaptbin.config import METHOD_VERSION, Budget, Protocol, Replica, SeedsVary
from adaptbin.data.encode import EncodedTable
from adaptbin.training import checkpoint as checkpoint_module
from adaptbin.training import resume
from adaptbin.training.checkpoint import FILE_NAME, FolderCheckpoint, save_state, saved_states
from adaptbin.training.pack import PackProgress, train_pack
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.resume import PackState, Stopwatch
from tests.paths import BOTH, usable_sets, using
from tests.training.tables import EAGER, SMALL_ENCODERS, small_replica, small_table

EPOCHS = 16
BUDGET = Budget(epochs=EPOCHS, probe_epochs=2, probes=2)


def make(seed: int, *, schedule: str = "cosine", seeds_vary: SeedsVary = "pretrain", **point: Any) -> Replica:
    protocol = Protocol.from_dict({"pretrain_schedule": schedule})
    return small_replica(seed, EAGER | point, budget=BUDGET, protocol=protocol, seeds_vary=seeds_vary)


DECAYS: dict[str, Any] = {"learning_rate": 1e-2, "weight_decay": 0.1}
"""Enough decay that head rows no feature has reached yet change at every step."""

PACK = [
    make(1, **DECAYS),
    make(2, t_max=6, patience=3),
    make(3, learning_rate=1e30),
    make(4, masking="random", mask_prob=0.3, patience=4, delta=0.3),
    make(5, t_init=40, t_max=60, **DECAYS),
    make(1, w_sord=1.0, t_init=20),
    make(6, min_bin=2, patience=2, **DECAYS),
]
"""Two stacks whose heads have other capacities; the third replica diverges at once."""


class PipeCheckpoint:
    """Keeps every state it was given; its streams for writing cannot seek."""

    def __init__(self, *states: bytes) -> None:
        self.states = list(states)

    def read(self) -> Iterator[BinaryIO]:
        """The newest first."""
        for state in reversed(self.states):
            yield io.BytesIO(state)

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        buffer = Pipe()
        write(buffer)
        self.states.append(buffer.getvalue())


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise io.UnsupportedOperation("seek")

    def tell(self) -> int:
        raise io.UnsupportedOperation("tell")


def without_runtime(records: Sequence[dict[str, Any]]) -> list[str]:
    return [json.dumps({k: v for k, v in record.items() if k != "runtime"}, allow_nan=False) for record in records]


def trained(replicas: Sequence[Replica], table: EncodedTable) -> tuple[dict[str, str], list[bytes]]:
    """An uninterrupted run: record by id, and the state after every epoch."""
    kept = PipeCheckpoint()
    records = train_pack(replicas, table, checkpoint=kept, checkpoint_seconds=0.0)
    assert len(kept.states) == EPOCHS
    return dict(zip([r.id for r in replicas], without_runtime(records), strict=True)), kept.states


def goes_on(replicas: Sequence[Replica], table: EncodedTable, *states: bytes) -> list[dict[str, Any]]:
    return train_pack(replicas, table, checkpoint=PipeCheckpoint(*states))


SLICES = [
    (1, PACK[:4]),
    (1, PACK[4:]),
    (3, PACK[:1]),
    (6, PACK[2:3]),  # diverged
    (6, PACK[6:]),
    (6, [PACK[6], PACK[2], PACK[0], PACK[4]]),
    (9, [*PACK[4:], *PACK[:4]]),
    (11, PACK[3:5]),
    (EPOCHS, PACK[1:6]),
]


@pytest.mark.parametrize("way", BOTH)
def test_any_part_of_a_pack_goes_on_exactly(way: str) -> None:
    table = small_table()
    with using(way):
        whole, states = trained(PACK, table)
        for epoch, part in SLICES:
            records = goes_on(part, table, states[epoch - 1])
            assert {record["runtime"]["resumed_epoch"] for record in records} == {epoch}
            assert without_runtime(records) == [whole[r.id] for r in part]
    statuses = {json.loads(record)["status"] for record in whole.values()}
    assert statuses == {"finished", "diverged"}


@pytest.mark.parametrize("way", BOTH)
def test_head_rows_that_a_replica_did_not_have_have_decayed(way: str) -> None:
    """Saved with room for its own bins, it goes on beside wider heads, and grows into rows drawn only then."""
    table, alone, wide = small_table(), make(1, t_init=12, min_bin=2, delta=0.1, **DECAYS), PACK[4]
    with using(way):
        crowd = [*[make(seed, t_max=5) for seed in (7, 8)], alone, *[make(seed) for seed in (9, 10, 11)], wide]
        whole, states = trained(crowd, table)
        (state,) = saved_states(PipeCheckpoint(states[3]))
        capacities = [stack["capacity"] for stack in state["phases"]["pretrain"]]
        assert capacities[0] < capacities[1], "the heads must differ in width"
        assert max(json.loads(whole[alone.id])["bins"]["final"]) > capacities[0]
        assert without_runtime(goes_on([wide, alone], table, states[3])) == [whole[wide.id], whole[alone.id]]


@pytest.mark.parametrize("way", BOTH)
def test_replicas_that_share_a_pretraining_go_on_without_its_first(way: str) -> None:
    replicas = [make(seed, seeds_vary="probe", w_sord=w) for seed in range(3) for w in (10.0, 1.0)]
    table = small_table()
    with using(way):
        whole, states = trained(replicas, table)
        for part in (replicas[3:], [replicas[5], replicas[2]], replicas[4:5]):
            records = goes_on(part, table, states[7])
            assert records[0]["runtime"]["resumed_epoch"] == 8
            assert without_runtime(records) == [whole[r.id] for r in part]


def test_parts_of_parts_go_on_and_share_the_time_spent() -> None:
    """As when memory runs out again: each half takes half of the seconds spent before."""
    table, four = small_table(), PACK[3:]
    whole, states = trained(four, table)
    (state,) = saved_states(PipeCheckpoint(states[4]))
    kept = PipeCheckpoint()
    save_state(kept, {**{k: v for k, v in state.items() if k != "schema"}, "seconds": 4e6, "core_seconds": 8e6})

    def cut(progress: PackProgress) -> None:
        if progress.epoch == 9:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        train_pack(four[1:3], table, checkpoint=kept, progress=cut)
    (record,) = goes_on(four[2:3], table, *kept.states)
    assert record["runtime"]["resumed_epoch"] == 9
    assert record["runtime"]["seconds"] == pytest.approx(1e6, rel=1e-3)
    assert record["runtime"]["core_seconds"] == pytest.approx(2e6, rel=1e-3)
    assert without_runtime([record]) == [whole[four[2].id]]


# --- what is not used

CPU = torch.device("cpu")


def begins(replicas: Sequence[Replica], table: EncodedTable, *states: bytes) -> int:
    """The epoch that the states are good for."""
    stacks = [AdaptiveBinning(replicas, table)]
    return PackState(len(replicas), CPU, Stopwatch(), PipeCheckpoint(*states), 60.0).begin("pretrain", stacks)


@pytest.fixture(scope="module")
def table() -> EncodedTable:
    return small_table()


@pytest.fixture(scope="module")
def states(table: EncodedTable) -> list[bytes]:
    return trained(PACK[:2], table)[1]


def test_states_of_others_are_not_used(table: EncodedTable, states: list[bytes]) -> None:
    assert begins(PACK[:2], table, states[2]) == 3
    assert begins(PACK[1:2], table, states[2], states[4]) == 5
    assert begins(PACK[:3], table, states[2]) == 0  # more than it holds
    assert begins([make(1, schedule="constant", **DECAYS)], table, states[2]) == 0
    other = trained([PACK[3]], table)[1][0]
    assert begins(PACK[:2], table, states[2], other) == 3  # passed over


def test_states_of_another_table_encoder_or_method_version_are_not_used(
    table: EncodedTable, states: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all tensors would fit, as those of another table and method version do."""
    ours = PACK[:2]
    assert begins(ours, table, states[2]) == 3
    assert begins([replace(each, fingerprint="small-1") for each in ours], small_table(seed=1), states[2]) == 0
    settings: Any = SMALL_ENCODERS["resnet"]
    resnet = replace(ours[0].architecture, encoder="resnet", encoder_settings=settings)
    assert begins([replace(each, architecture=resnet) for each in ours], table, states[2]) == 0
    monkeypatch.setattr("adaptbin.config.METHOD_VERSION", METHOD_VERSION + 1)
    assert begins(ours, table, states[2]) == 0


def test_stacks_of_different_epochs_are_not_one_state(table: EncodedTable) -> None:
    both = [PACK[0], PACK[3]]
    kept, (one, other) = PipeCheckpoint(), (AdaptiveBinning([replica], table) for replica in both)
    for epoch, state in ((1, one), (1, other), (2, one)):
        state.run_epoch()
        assert state.epoch == epoch
    parts = {"arithmetic": resume.arithmetic(one.device), "replicas": 2, "seconds": 0.0, "core_seconds": 0.0}
    save_state(kept, parts | {"phases": {"pretrain": [one.state(), other.state()]}})
    assert [begins(part, table, *kept.states) for part in (both, both[:1], both[1:])] == [0, 2, 1]


def test_another_layout_is_not_used(table: EncodedTable, states: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "SCHEMA", checkpoint_module.SCHEMA - 1)
        assert begins(PACK[:2], table, states[2]) == 0
    older = io.BytesIO()
    torch.save({"schema": checkpoint_module.SCHEMA - 1, "replicas": "[]", "phases": {}}, older)
    assert begins(PACK[:2], table, states[2], older.getvalue(), b"", b"no state at all" * 9) == 3


@pytest.mark.skipif(not usable_sets(), reason="no compiled kernels for this processor")
def test_a_state_of_the_other_path_is_not_used(table: EncodedTable) -> None:
    """Half of a run on each path would be exact on neither, and its record would name one."""
    with using("plain"):
        _, states = trained(PACK[:2], table)
    for way, epoch in (("compiled", 0), ("plain", 3)):
        with using(way):
            (record, _) = goes_on(PACK[:2], table, states[2])
        assert record["runtime"]["resumed_epoch"] == epoch
        assert (record["runtime"]["kernels"] == "torch") == (way == "plain")


def test_a_state_that_is_cut_short_or_changed_is_not_used(table: EncodedTable, states: list[bytes]) -> None:
    whole, random = states[2], np.random.default_rng(0)
    lengths = [0, 1, 31, 32, 33, len(whole) - 33, len(whole) - 32, len(whole) - 1]
    broken = [whole[:length] for length in [*lengths, *random.integers(len(whole), size=15).tolist()]]
    for place in [0, len(whole) - 1, *random.integers(len(whole), size=40).tolist()]:
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        broken.append(bytes(changed))
    broken.append(whole + b"\0")
    assert not list(saved_states(PipeCheckpoint(*broken)))
    assert begins(PACK[:2], table, states[1], *broken) == 2


# --- in folders


def test_its_own_folder_comes_first_then_those_it_was_cut_from(
    tmp_path: Path, table: EncodedTable, states: list[bytes]
) -> None:
    def begun() -> int:
        stacks = [AdaptiveBinning(PACK[:1], table)]
        kept = FolderCheckpoint(tmp_path / "own", tmp_path / "none", tmp_path / "parent")
        return PackState(1, CPU, Stopwatch(), kept, 60.0).begin("pretrain", stacks)

    assert begun() == 0
    FolderCheckpoint(tmp_path / "parent").write(lambda stream: stream.write(states[6]) and None)
    assert begun() == 7
    FolderCheckpoint(tmp_path / "own").write(lambda stream: stream.write(states[3]) and None)
    assert begun() == 4
    (tmp_path / "own" / FILE_NAME).write_bytes(states[3][:-5])
    assert begun() == 7
    (tmp_path / "own" / FILE_NAME).unlink()
    (tmp_path / "own" / FILE_NAME).mkdir()
    assert begun() == 7


def test_a_write_that_fails_leaves_the_old_state_and_nothing_else(tmp_path: Path) -> None:
    kept = FolderCheckpoint(tmp_path)
    kept.write(lambda stream: stream.write(b"old") and None)

    def fail(stream: BinaryIO) -> None:
        stream.write(b"new")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        kept.write(fail)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(FILE_NAME, b"old")]


# --- when it is saved


@dataclass
class SlowStore:
    """Keeps nothing and takes ``cost`` seconds of a clock that stands still otherwise."""

    cost: float
    now: float = 0.0
    saved_at: list[int] = field(default_factory=list)

    def read(self) -> Iterator[BinaryIO]:
        return iter(())

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        write(io.BytesIO())
        self.now += self.cost


@pytest.mark.parametrize(
    ("epoch_seconds", "cost", "seconds", "expected"),
    [
        (1.0, 0.001, 60.0, [*range(2, 41, 2)]),  # every twentieth
        (0.01, 0.001, 60.0, []),  # over too soon
        (1.0, 0.1875, 60.0, [2, 12, 22, 32]),  # a fiftieth of the time, at the end of a part
        (45.0, 50.0, 60.0, [*range(2, 41, 2)]),  # slow to save, but what is lost counts more
        (100.0, 50.0, 60.0, [*range(1, 41)]),
        (1.0, 9.0, 0.0, [*range(1, 41)]),
        (1.0, 0.375, 60.0, [2, 22]),
        (2.0, 0.375, 60.0, [2, 12, 22, 32]),
    ],
)
def test_when_a_state_is_saved(
    epoch_seconds: float, cost: float, seconds: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SlowStore(cost)
    monkeypatch.setattr(resume.time, "perf_counter", lambda: store.now)
    stack = AdaptiveBinning([small_replica(0, {}, budget=Budget(epochs=40, probe_epochs=1, probes=1))], small_table(50))
    state = PackState(1, CPU, Stopwatch(), store, seconds)
    assert state.begin("pretrain", [stack]) == 0
    saved = []
    for epoch in range(1, 41):
        store.now += epoch_seconds
        stack.epoch, before = epoch, store.now
        state.save_if_due()
        if store.now > before:
            saved.append(epoch)
    assert saved == expected


def test_a_report_that_raises_saves_first_also_before_the_probes() -> None:
    for phase, epoch in (("pretrain", 2), ("probe", EPOCHS)):
        kept = PipeCheckpoint()

        def stop(progress: PackProgress, phase: str = phase, epoch: int = epoch) -> None:
            if (progress.phase, progress.epoch) == (phase, epoch):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_pack(PACK[:1], small_table(60), checkpoint=kept, progress=stop)
        (state,) = list(saved_states(PipeCheckpoint(kept.states[-1])))
        assert state["phases"]["pretrain"][0]["epoch"] == epoch


# --- memory


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize("where", ["run_epoch", "embed", "state", "_fit_heads"])
def test_memory_that_runs_out_comes_out_and_leaves_nothing_behind(
    error: type[Exception], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither tensors, though nobody collects cycles, nor a broken state: halves go on from the last one."""
    table, kept, held = small_table(), PipeCheckpoint(), []
    whole = without_runtime(train_pack(PACK[:2], table))
    original = getattr(AdaptiveBinning, where)

    def fails(self: AdaptiveBinning, *arguments: Any, **named: Any) -> Any:
        if not held:
            held.extend([weakref.ref(self.rows.values), weakref.ref(self)])
        if where == "_fit_heads" or self.epoch >= 5:
            raise error("too large")
        return original(self, *arguments, **named)

    gc.collect()
    gc.disable()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(AdaptiveBinning, where, fails)
            try:
                train_pack(PACK[:2], table, checkpoint=kept, checkpoint_seconds=0.0)
            except error as raised:
                assert type(raised) is error
            else:
                pytest.fail("memory did not run out")
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()
    parts = [goes_on([replica], table, *kept.states)[0] for replica in PACK[:2]]
    assert without_runtime(parts) == whole
    epoch = {"run_epoch": 5, "embed": EPOCHS, "state": 4, "_fit_heads": 0}[where]
    assert [part["runtime"]["resumed_epoch"] for part in parts] == [epoch, epoch]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of a part of a process's life")
def test_the_peak_is_that_of_this_pack() -> None:
    size = 128 * 2**20

    def hungry(progress: PackProgress) -> None:
        if progress.epoch == 3:
            assert torch.ones(size // 4).sum() > 0

    table = small_table(60)
    large = train_pack(PACK[:1], table, progress=hungry)[0]["runtime"]["peak_bytes"]
    small = train_pack(PACK[:1], table)[0]["runtime"]["peak_bytes"]
    assert size < large and small < large - size // 2
