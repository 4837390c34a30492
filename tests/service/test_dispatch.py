"""What becomes of packs: finished, failed, died, too large, added, withdrawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from adaptbin.config import Budget
from adaptbin.data import get_card
from sweeps.service.calls import CallThread
from sweeps.service.dispatch import MAX_DEATHS, PackQueue, pack_records, unpack_records
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.plan import Halving, Pack, make_plan
from sweeps.service.work import Failure
from tests.service.fakes import Hearing, fake_record, progress_at

STUDY = SensitivityStudy(
    cards=(get_card("breast_cancer"),), panels=get_panels(["tau"]), seeds=tuple(range(3)), budget=Budget(epochs=9)
)
PACKS = make_plan(STUDY, ()).packs
GONE = Failure("its worker died")


@dataclass
class Scene:
    """A queue, and all that comes of what it is told; complete once the block is left."""

    queue: PackQueue
    heard: Hearing
    forgotten: list[str] = field(default_factory=list)

    def train(self, name: str, epoch: int = 1) -> Pack:
        pack = self.queue.take(name)
        assert pack is not None
        self.queue.report(name, {"event": "began", "node": "n", "pid": 7, "kernel_kills": 0})
        self.queue.report(name, {"event": "progress", "progress": progress_at(epoch, 9)})
        return pack

    def finish(self, name: str) -> None:
        pack = self.queue.training(name)
        assert pack is not None
        self.queue.report(name, {"event": "finished", "records": pack_records([fake_record(r) for r in pack.replicas])})


@contextmanager
def scene(packs: tuple[Pack, ...] = PACKS) -> Iterator[Scene]:
    heard = Hearing()
    forgotten: list[str] = []
    with CallThread() as calls:
        yield Scene(PackQueue(packs, heard, calls, forgotten.append), heard, forgotten)


def test_records_travel_whole() -> None:
    records = [fake_record(replica) for replica in STUDY.all_replicas]
    assert unpack_records(pack_records(records)) == records


def test_packs_are_taken_in_order_and_end_in_any() -> None:
    with scene() as it:
        assert [it.train(name) for name in "abc"] == list(PACKS)
        assert it.queue.take("d") is None
        assert not it.queue.is_over
        it.finish("b")
        it.queue.report("b", {"event": "over"})
        it.queue.stopped("b")  # Tune's own word that the trial ended
        it.queue.report("a", {"event": "failed", "failure": Failure("no", "why").to_dict()})
        it.finish("c")
        assert it.queue.is_over
    assert it.heard.finished_packs == [PACKS[1], PACKS[2]]
    assert it.heard.failures == [(PACKS[0], Failure("no", "why"))]
    assert it.forgotten == [PACKS[1].key, PACKS[2].key]
    assert [worker["pid"] for _, worker in it.heard.workers] == [7, 7, 7]


def test_a_pack_whose_worker_died_comes_back_first_and_whole() -> None:
    with scene() as it:
        it.train("a")
        it.queue.died("a", GONE)
        assert it.queue.take("b") == PACKS[0]
    assert it.heard.retries == [(PACKS[0], "its worker died; goes on from its checkpoint")]


def test_deaths_that_come_no_further_end_in_halves_and_then_in_failure() -> None:
    with scene(PACKS[:1]) as it:
        for _ in range(MAX_DEATHS):
            assert it.train("x", epoch=4) == PACKS[0]
            it.queue.died("x", GONE)
        halves = it.queue.waiting
        assert [len(half.replicas) for half in halves] == [2, 3]
        assert all(half.resumes == (PACKS[0].key,) for half in halves)
        single = Pack(halves[0].replicas[:1])
        it.queue.withdraw(r.id for r in STUDY.all_replicas if r != single.replicas[0])
        for _ in range(MAX_DEATHS):
            assert it.train("x", epoch=1).replicas == single.replicas
            it.queue.died("x", GONE)
        assert it.queue.is_over
    assert [(pack.replicas, failure) for pack, failure in it.heard.failures] == [(single.replicas, GONE)]


def test_deaths_count_only_without_progress() -> None:
    with scene(PACKS[:1]) as it:
        for epoch in range(2, 9):
            assert it.train("x", epoch) == PACKS[0]
            it.queue.died("x", GONE)
        assert it.queue.waiting == [PACKS[0]]


def test_a_pack_that_never_began_does_not_get_there_in_halves() -> None:
    with scene(PACKS[:1]) as it:
        for _ in range(MAX_DEATHS):
            assert it.queue.take("x") == PACKS[0]
            it.queue.died("x", GONE)
    assert it.heard.failures == [(PACKS[0], GONE)]


@pytest.mark.parametrize("through", ["report", "death"])
def test_out_of_memory_goes_on_in_halves_down_to_one(through: str) -> None:
    with scene(PACKS[:1]) as it:
        rounds = 0
        while it.queue.take("x") is not None:
            rounds += 1
            it.queue.report("x", {"event": "began"})
            failure = Failure("out of memory")
            if through == "report":
                it.queue.report("x", {"event": "memory", "failure": failure.to_dict()})
            else:
                it.queue.ran_out_of_memory("x", failure)
        assert it.queue.is_over
    assert rounds == 5 * MAX_DEATHS + 4  # a binary tree with five leaves, where others may have taken the memory
    assert sorted(len(pack.replicas) for pack, _ in it.heard.failures) == [1] * 5
    assert it.forgotten == []


def test_the_whole_packs_checkpoint_goes_when_the_last_part_is_done() -> None:
    with scene(PACKS[:1]) as it:
        it.train("x")
        it.queue.ran_out_of_memory("x", Failure("out of memory"))
        first, second = it.queue.waiting
        it.train("a")
        it.train("b")
        it.finish("a")
        it.finish("b")
    assert it.forgotten == [first.key, second.key, PACKS[0].key]


def test_withdrawn_replicas_leave_waiting_packs_and_stop_packs_in_training() -> None:
    with scene() as it:
        it.train("a")
        gone = {r.id for r in STUDY.all_replicas if r.hyperparameters.tau == 0.1}
        it.queue.withdraw(gone)
        assert it.queue.stops("a")
        assert [len(pack.replicas) for pack in it.queue.waiting] == [4, 4]
        assert it.queue.waiting[0].resumes == (PACKS[1].key,)
        it.queue.stopped("a")
        rest = it.queue.take("a")
        assert rest is not None and not it.queue.stops("a")
        assert not gone & {r.id for r in rest.replicas}
        assert rest.resumes == (PACKS[0].key,)
    assert it.heard.retries[0][0] == rest


def test_a_pack_withdrawn_whole_is_over() -> None:
    with scene(PACKS[:1]) as it:
        it.train("a")
        it.queue.withdraw(r.id for r in PACKS[0].replicas)
        assert it.queue.stops("a")
        it.queue.died("a", GONE)
        assert it.queue.is_over
    assert (it.heard.failures, it.heard.retries) == ([], [])


def test_packs_can_be_added_also_what_was_withdrawn_before() -> None:
    with scene(PACKS[:1]) as it:
        it.queue.withdraw(r.id for r in PACKS[0].replicas)
        assert it.queue.is_over
        it.queue.add(PACKS[:2])
        assert it.queue.waiting == list(PACKS[:2])
        assert not it.queue.is_over


def test_what_is_wanted_again_before_it_stopped_is_trained_once() -> None:
    with scene(PACKS[:1]) as it:
        it.train("a")
        gone = PACKS[0].replicas[0]
        it.queue.withdraw([gone.id])
        assert it.queue.stops("a")
        it.queue.add([Pack((gone,)), PACKS[1]])
        assert not it.queue.stops("a")
        assert it.queue.waiting == [PACKS[1]]


def test_a_run_that_broke_hands_back_all_packs() -> None:
    with scene() as it:
        names = {"a": it.train("a"), "b": it.train("b")}
        assert it.queue.find(lambda began: began["pid"] == 8) == []
        assert it.queue.find(lambda began: began["pid"] == 7) == ["a", "b"]
        it.queue.all_stopped("again")
        assert set(it.queue.waiting) == set(PACKS)
    assert {pack for pack, _ in it.heard.retries} == set(names.values())


def test_reports_of_unknown_packs_say_nothing() -> None:
    with scene() as it:
        report: dict[str, Any] = {"event": "progress", "progress": progress_at(1, 9)}
        it.queue.report("nobody", report)
        it.queue.died("nobody", GONE)
        it.queue.ran_out_of_memory("nobody", GONE)
        assert it.queue.began("nobody") == {} and it.queue.training("nobody") is None
    assert it.heard.reports == 0


def test_a_queue_to_which_more_is_to_come_is_not_over() -> None:
    coming = True
    with CallThread() as calls:
        queue = PackQueue([], Hearing(), calls, lambda key: None, more=lambda: coming)
        assert queue.take("a") is None and not queue.is_over
        coming = False
        assert queue.is_over


def test_a_part_of_a_pack_is_halved_as_the_whole_is() -> None:
    halving = Halving(rungs=(1, 3), keep=0.5)
    whole = Pack(PACKS[0].replicas[:4], halving=halving)
    assert whole.key != Pack(whole.replicas).key
    with CallThread() as calls:
        queue = PackQueue([whole], Hearing(), calls, lambda key: None)
        assert queue.take("a") == whole
        queue.ran_out_of_memory("a", Failure("too large"))
        halves = [queue.take(name) for name in "bc"]
        assert [(half.halving, half.resumes) for half in halves if half] == [(halving, (whole.key,))] * 2
        queue.withdraw([whole.replicas[0].id])
        queue.stopped("b")
        left = queue.take("d")
        assert left is not None and left.halving == halving and len(left.replicas) == 1
