"""Running packs: in this process, and on real Ray with workers that fail, die and run out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adaptbin.config import Budget, Replica
from adaptbin.data import EncodedTable, get_card
from adaptbin.errors import ResourceError
from sweeps.service import kernel_kills, nodes
from sweeps.service.calls import CallThread
from sweeps.service.checkpoints import FolderPlace
from sweeps.service.dispatch import PackQueue, pack_records, unpack_records
from sweeps.service.interrupt import Terminated, noting_signals
from sweeps.service.launch import RayRunner
from sweeps.service.launch import fit as fit_module
from sweeps.service.launch.fit import Fit
from sweeps.service.launch.trial import from_config, granted_device, to_config
from sweeps.service.local import InProcessRunner
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.plan import Halving, Pack, Resources, make_plan
from sweeps.service.work import Change, Failure, Job, first_line, is_out_of_memory, last_line, threads
from tests.service.fakes import Hearing, fake_record, fake_train

STUDY = SensitivityStudy(
    cards=(get_card("breast_cancer"),), panels=get_panels(["tau"]), seeds=tuple(range(4)), budget=Budget(epochs=3)
)
PACKS = make_plan(STUDY, ()).packs
LATER = make_plan(replace(STUDY, seeds=(4,)), ()).packs[0]
TABLE_KEY = PACKS[0].table_key


def job_of(table: EncodedTable, packs: tuple[Pack, ...] = PACKS, **settings: Any) -> Job:
    return Job(packs, {TABLE_KEY: table}, **settings)


def test_in_process(breast_cancer: EncodedTable, tmp_path: Path) -> None:
    heard = Hearing()
    assert InProcessRunner(fake_train).run(job_of(breast_cancer, checkpoints=FolderPlace(tmp_path)), heard) is None
    assert heard.finished_packs == list(PACKS)
    assert heard.records.keys() == {replica.id for replica in STUDY.all_replicas}
    assert heard.reports > 0
    assert list(tmp_path.iterdir()) == []
    runtime = heard.records[STUDY.all_replicas[0].id]["runtime"]
    assert {"git", "host", "versions", "finished_at", "pack_size"} <= runtime.keys()
    assert runtime["host"]["cores"] >= 1


def test_one_failing_pack_does_not_stop_the_others(breast_cancer: EncodedTable) -> None:
    def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
        if replicas[0].seed == 1:
            raise ValueError("no\nsecond line")
        return fake_train(replicas, *arguments, **settings)

    heard = Hearing()
    InProcessRunner(train).run(job_of(breast_cancer), heard)
    ((pack, failure),) = heard.failures
    assert pack == PACKS[1]
    assert failure.reason.startswith("ValueError: no (test_launch.py:")
    assert "raise ValueError" in failure.detail
    assert heard.finished_packs == [PACKS[0], PACKS[2], PACKS[3]]


def test_a_signal_ends_the_run_at_the_next_report(breast_cancer: EncodedTable, tmp_path: Path) -> None:
    def train(replicas: Any, *arguments: Any, **settings: Any) -> Any:
        if replicas[0].seed == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return fake_train(replicas, *arguments, **settings)

    before = signal.getsignal(signal.SIGTERM)
    heard = Hearing()
    assert InProcessRunner(train).run(job_of(breast_cancer, checkpoints=FolderPlace(tmp_path)), heard) == signal.SIGTERM
    assert heard.finished_packs == list(PACKS[:2])
    assert signal.getsignal(signal.SIGTERM) == before
    # The pack that was cut short can be planned again as it was.
    assert FolderPlace(tmp_path).begun() == {PACKS[2].key: tuple(r.id for r in PACKS[2].replicas)}


def at_once(runner: Any, resources: Resources) -> int:
    return sum(map(resources.fit, runner.nodes(resources)))


def test_what_this_machine_cannot_give_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "available_cores", lambda: 4)
    monkeypatch.setattr(nodes, "local_gpus", lambda: (0, None))
    runner = RayRunner()
    assert at_once(runner, Resources(1)) == 4
    with pytest.raises(ResourceError, match="must fit on one machine, got 5 cores per pack; there: 4 cores and 0 GPUs"):
        runner.nodes(Resources(5))
    with pytest.raises(ResourceError, match="got 1 core and 0.25 GPU per pack; there: 4 cores and 0 GPUs"):
        runner.nodes(Resources(1, 0.25))
    monkeypatch.setattr(nodes, "local_gpus", lambda: (2, 2**34))
    assert at_once(runner, Resources(1, 0.5)) == 4
    assert at_once(InProcessRunner(), Resources(1, 0.25)) == 1
    assert at_once(InProcessRunner(), Resources(1, 1)) == 1


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nonsense", "ray://127.0.0.1:10001"])
def test_a_cluster_that_does_not_answer_is_refused(address: str) -> None:
    with pytest.raises(ResourceError, match="address must be host:port of a running Ray cluster, or auto, got"):
        RayRunner(address).nodes(Resources())


def test_a_pack_must_fit_on_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    ray = SimpleNamespace(is_initialized=lambda: True, nodes=lambda: members)
    monkeypatch.setattr("sweeps.service.launch.runner.import_ray", lambda *, local: ray)
    runner = RayRunner("cluster:6379")
    assert at_once(runner, Resources(2)) == 3
    with pytest.raises(ResourceError, match="got 6 cores per pack; there: 4 cores and 0 GPUs, 2 cores and 1 GPUs"):
        runner.nodes(Resources(6))  # the sum of the nodes would do
    members.clear()
    with pytest.raises(ResourceError, match="there: no live machine"):
        runner.nodes(Resources(1))


class FakeCuda:
    """torch.cuda of a machine with a GPU."""

    def __init__(self) -> None:
        self.fractions: list[float] = []

    def is_available(self) -> bool:
        return True

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        self.fractions.append(fraction)


def test_the_device_is_the_one_that_was_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    monkeypatch.setattr("torch.cuda", cuda)
    assert granted_device("cpu", 0.0) == "cpu"
    assert granted_device("cuda", 1.0) == "cuda"
    assert cuda.fractions == []
    assert granted_device("cuda", 0.25) == "cuda"
    assert cuda.fractions == [0.25]  # packs that share a GPU keep to their part of its memory
    with pytest.raises(ResourceError, match="a pack on cuda must be granted a GPU, got none"):
        granted_device("cuda", 0.0)


def test_a_pack_travels_as_one_short_word() -> None:
    pack = Pack(PACKS[0].replicas, resumes=("a", "b"))
    config = to_config(pack)
    assert from_config(config) == pack
    assert len(config["pack"]) < 2000
    halved = Pack(pack.replicas, halving=Halving(rungs=(1, 3), keep=0.5))
    assert from_config(to_config(halved)) == halved


def test_kernel_kills_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, wrong, right = (tmp_path / name for name in ("absent", "wrong", "right"))
    wrong.write_text("low 0\noom_kill many\n")
    right.write_text("pgfault 1\noom_kill 3\n")
    monkeypatch.setattr(kernel_kills, "_COUNTERS", ((absent, "oom_kill"), (wrong, "oom_kill"), (right, "oom_kill")))
    assert kernel_kills.kernel_kills() == 3
    monkeypatch.setattr(kernel_kills, "_COUNTERS", ((absent, "oom_kill"),))
    assert kernel_kills.kernel_kills() == 0


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("shapes differ"), False),
        (OSError(28, "No space left on device"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, memory: bool) -> None:
    assert is_out_of_memory(error) is memory


def test_errors_in_one_line() -> None:
    assert last_line("Failure # 1\nTraceback\n  x\nValueError: no\n\n") == "ValueError: no"
    assert first_line("\n\n  a\nb") == "a"
    assert first_line(ValueError()) == "ValueError"
    assert Failure.of(ValueError("x")) == Failure("ValueError: x")
    assert [threads(cpus) for cpus in (0.5, 1, 3.9)] == [1, 1, 3]


def test_records_travel_whole() -> None:
    records = [fake_record(replica) for replica in STUDY.all_replicas]
    packed = pack_records(records)
    assert packed.dtype == np.uint8
    assert unpack_records(packed) == records


def test_a_listener_that_fails_stops_the_run() -> None:
    done = []

    def fail() -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), CallThread() as calls:
        calls.post(done.append, 1)
        calls.post(fail)
        calls.post(done.append, 2)
    assert done == [1]
    with pytest.raises(OSError, match="disk full"):
        calls.check()


@pytest.mark.slow
def test_ray_with_every_kind_of_trouble(breast_cancer: EncodedTable, tmp_path: Path) -> None:
    """One Ray session: a pack that loses a replica on the way, one whose training raises, one too large, one whose
    worker dies once, and one that comes later."""
    died = tmp_path / "died"
    unwanted = PACKS[0].replicas[0].id

    # Nested, so that it travels by value: workers cannot import the tests.
    def train(
        replicas: tuple[Replica, ...], table: Any, *, device: str, checkpoint: Any, progress: Any
    ) -> list[dict[str, Any]]:
        import time

        import torch

        from adaptbin.training.pack import PackProgress

        progress(PackProgress("pretrain", 1, 3, len(replicas), 0, 1.0, 2.0))
        while unwanted in [r.id for r in replicas]:
            time.sleep(0.6)
            progress(PackProgress("pretrain", 2, 3, len(replicas), 0, 1.0, 2.0))
        if replicas[0].seed == 1:
            raise ValueError("no such thing")
        if replicas[0].seed == 2 and len(replicas) > 3:
            raise MemoryError("too large")
        if replicas[0].seed == 3 and not died.exists():
            died.touch()
            os._exit(1)
        runtime = {"threads": torch.get_num_threads(), "rows": len(table.inputs), "pack_size": len(replicas)}
        return [{"id": r.id, "runtime": runtime} for r in replicas]

    class Person:
        """Once the first pack trains, wants one replica less and one pack more."""

        asked = False
        more = False

        def changes(self) -> list[Change]:
            if self.asked or not any(pack == PACKS[0] for pack, _ in heard.workers):
                return []
            self.asked = True
            return [Change(added=(LATER,)), Change(withdrawn=frozenset({unwanted}))]

    heard = Hearing()
    place = FolderPlace(tmp_path / "checkpoints")
    job = job_of(breast_cancer, checkpoints=place, steering=Person())
    assert RayRunner(train=train).run(job, heard) is None
    ((failed, failure),) = heard.failures
    assert failed == PACKS[1]
    assert failure.reason.startswith("ValueError: no such thing (test_launch.py:")
    assert "raise ValueError" in failure.detail
    wanted = [*STUDY.all_replicas, *LATER.replicas]
    assert heard.records.keys() == {r.id for r in wanted if r.seed != 1 and r.id != unwanted}
    assert {r["runtime"]["rows"] for r in heard.records.values()} == {569}
    assert {r["runtime"]["threads"] for r in heard.records.values()} == {1}
    assert [r["runtime"]["granted"] for r in heard.records.values()] == [{"cpus": 1.0, "gpus": 0.0}] * 19
    retried = {(pack.replicas[0].seed, len(pack.replicas)): reason for pack, reason in heard.retries}
    assert retried[3, 5].startswith("its worker died (")
    assert retried[3, 5].endswith("goes on from its checkpoint")
    assert "MemoryError: too large" in retried[2, 5]
    assert retried[0, 4] == "goes on without the replicas that were withdrawn"
    halves = [pack for pack in heard.finished_packs if pack.replicas[0].seed == 2]
    assert sorted(len(pack.replicas) for pack in halves) == [2, 3]
    assert {pack.resumes for pack in halves} == {(PACKS[2].key,)}
    # Of the failed pack only its membership is left; the finished ones left nothing.
    assert list(place.begun()) == [PACKS[1].key]
    assert {worker["host"] for _, worker in heard.workers} and len({worker["pid"] for _, worker in heard.workers}) <= 4


def test_sigterm_while_ray_starts_ends_as_ever(monkeypatch: pytest.MonkeyPatch, breast_cancer: EncodedTable) -> None:
    def start(*_: Any) -> None:
        raise SystemExit(int(signal.SIGTERM))  # what Ray's own handler does

    ray = SimpleNamespace(shutdown=lambda: None)
    monkeypatch.setattr("sweeps.service.launch.runner.import_ray", lambda *, local: ray)
    monkeypatch.setattr("sweeps.service.launch.runner.start", start)
    with pytest.raises(Terminated):
        RayRunner().run(job_of(breast_cancer), Hearing())


def broken(error: Exception, cause: Exception) -> RuntimeError:
    """As Tune hands on what it does not know."""
    try:
        try:
            raise cause
        except Exception as known:
            raise error from known
    except RuntimeError as told:
        return told


def test_what_ray_makes_of_a_loss_of_memory_or_of_an_object() -> None:
    from ray.exceptions import ObjectLostError, OutOfMemoryError

    heard = Hearing()
    with CallThread() as calls, noting_signals() as interruption:
        queue = PackQueue(PACKS[:2], heard, calls, lambda key: None)
        fit = Fit(queue, calls, None, interruption)
        for name, pid in (("a", 11), ("b", 12)):
            queue.take(name)
            queue.report(name, {"event": "began", "node": "n0de", "pid": pid, "kernel_kills": 0})
        text = "low on memory. (IP: 127.0.0.1, ID: n0de) Selected to kill: (Actor(x): pid=11, memory used=2GB)"
        fit._broke(broken(RuntimeError("Caught unexpected exception"), OutOfMemoryError(text)))
        assert sorted(len(pack.replicas) for pack in queue.waiting) == [2, 3, 5]

        lost = ObjectLostError("ab" * 28, None, "")
        for _ in range(3):
            assert queue.take("c") is not None
            fit._broke(broken(RuntimeError("Caught unexpected exception"), lost))
            assert queue.training("c") is None
        with pytest.raises(RuntimeError, match="Caught unexpected"):
            fit._broke(broken(RuntimeError("Caught unexpected exception"), lost))
        with pytest.raises(RuntimeError, match="something else"):
            fit._broke(broken(RuntimeError("something else"), ValueError("x")))
    assert "Ray's memory monitor killed its worker; goes on in two halves" in [reason for _, reason in heard.retries]


def test_a_worker_that_cannot_be_handed_the_next_pack(tmp_path: Path) -> None:
    heard = Hearing()
    error = tmp_path / "error.txt"
    error.write_text("Failure # 1 (occurred at 2026-01-01_00-00-00)\nTrainable runner reuse requires reset_config\n")
    with CallThread() as calls, noting_signals() as interruption:
        queue = PackQueue(PACKS[:2], heard, calls, lambda key: None)
        callback = fit_module._callback(Fit(queue, calls, None, interruption))
        queue.take("a"), queue.take("b")
        trials = [SimpleNamespace(trial_id="a", status="ERROR", error_file=str(error))]
        trials.append(SimpleNamespace(trial_id="b", status="RUNNING", error_file=""))
        for _ in range(2):  # the second time nothing is left to do
            callback.on_step_begin(1, trials)
        assert queue.training("a") is None
        assert queue.training("b") == PACKS[1]
        assert queue.waiting == [PACKS[0]]
    ((_, reason),) = heard.retries
    assert reason.startswith("its worker died (Trainable runner reuse requires reset_config)")


LEAVING = """
import gc, threading
gc.disable()
from sweeps.service.launch.cluster import import_ray, leave
ray = import_ray(local=True)
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
class Cycle: pass
for _ in range(10_000):  # as Tune leaves them
    cycle = Cycle()
    cycle.itself, cycle.reference = cycle, ray.put(1)
gc.enable()
threading.Thread(target=gc.collect).start()
leave(ray)
assert gc.isenabled()
"""


def test_ray_is_left_while_another_thread_collects_garbage() -> None:
    """References let go by another thread, just when Ray's core is gone, used to end the process."""
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_who_plans_or_asks_imports_no_torch() -> None:
    """It takes more than a second, and 200 MB in every process of a cluster."""
    modules = ["sweeps.sensitivity", "sweeps.service.control", "sweeps.service.launch.trial"]
    code = f"import sys, {', '.join(modules)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
