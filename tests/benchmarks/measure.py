"""Time and memory of one job: so many replicas of one shape, trained for so many epochs, in a process of its own.

``python -m tests.benchmarks.measure '<job as JSON>'`` sets the job up, prints ``ready``, waits for a line on its input
so that several can start together, trains, and prints the measurement as JSON.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from adaptbin.training.pack import stacks_of
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from tests.benchmarks.phases import PhaseTimers
from tests.benchmarks.plain_loop import PlainLoop
from tests.benchmarks.shapes import replicas, shape


@dataclass(frozen=True)
class Job:
    """What is trained, and for how long."""

    shape: str
    replicas: int
    """0 is the plain loop, which trains one model."""
    epochs: int
    warm_up: int = 0
    """Epochs before the clock starts."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of every replica's hyperparameters."""
    repeat: int = 1
    """How often the table's rows are repeated."""
    name: str = ""
    """How tables call it; empty: by its number of replicas."""
    phases: bool = False
    """Whether to split the time by phase, which slows everything else down a little."""

    @property
    def is_plain(self) -> bool:
        return self.replicas == 0

    @property
    def label(self) -> str:
        """``name`` or what says most."""
        return self.name or ("plain loop" if self.is_plain else f"R={self.replicas}")


@dataclass(frozen=True)
class Measurement:
    """What a job took.  Times are per replica and step, averages over all epochs; memory is in MiB."""

    cpu_ms: float
    wall_ms: float
    wall_seconds: float
    mflop: float
    """Operations in matrix products nobody can leave out, per replica and step."""
    mean_bins: float
    """Live bins per feature, over all epochs and replicas."""
    final_bins: float
    """The same at the end."""
    memory_imports: float
    """Resident after imports, before any data."""
    memory_peak: float
    memory_third: float
    """Resident after a third of the epochs."""
    memory_end: float
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds by phase."""


class Stacked:
    """A pack, walked in its stacks as ``train_pack`` does it."""

    def __init__(self, job: Job) -> None:
        pack = replicas(job.shape, job.replicas, job.warm_up + job.epochs, job.changes)
        self.stacks: list[AdaptiveBinning] = stacks_of(pack, shape(job.shape, job.repeat).table)

    def run_epoch(self) -> None:
        for stack in self.stacks:
            stack.run_epoch()

    def bins(self) -> torch.Tensor:
        """[R, D] live bins."""
        return torch.cat([stack.bins.n_bins for stack in self.stacks]).to(torch.float64)


class Plain:
    """The plain loop."""

    stacks: Sequence[AdaptiveBinning] = ()

    def __init__(self, job: Job) -> None:
        (replica,) = replicas(job.shape, 1, job.epochs, job.changes)
        self.loop = PlainLoop(shape(job.shape, job.repeat).table, replica.architecture, replica.hyperparameters)
        self.run_epoch = self.loop.run_epoch

    def bins(self) -> torch.Tensor:
        return torch.tensor([self.loop.n_bins], dtype=torch.float64)


def run_job(job: Job, ready: Callable[[], None] = lambda: None) -> Measurement:
    """Set ``job`` up, call ``ready``, train; one thread."""
    torch.set_num_threads(1)
    imports = resident()
    what = shape(job.shape, job.repeat)
    subject = Plain(job) if job.is_plain else Stacked(job)
    ready()
    for _ in range(job.warm_up):
        subject.run_epoch()
    levels = sum(what.table.cardinalities)
    cpu = wall = flops = mean_bins = third = 0.0
    with PhaseTimers(subject.stacks) if job.phases else nullcontext() as timers:
        for epoch in range(job.epochs):
            bins = subject.bins()
            flops += what.flops_per_epoch(levels + float(bins.sum(1).mean())) / job.epochs
            mean_bins += float(bins.mean()) / job.epochs
            busy, started = time.process_time(), time.perf_counter()
            subject.run_epoch()
            wall += time.perf_counter() - started
            cpu += time.process_time() - busy
            if epoch + 1 == -(-job.epochs // 3):
                third = resident()
            if (epoch + 1) % 200 == 0:
                print(f"    {job.shape} {job.label}: {epoch + 1} of {job.epochs} epochs", file=sys.stderr, flush=True)
    steps = max(1, job.replicas) * job.epochs * what.steps_per_epoch
    return Measurement(
        cpu_ms=1e3 * cpu / steps,
        wall_ms=1e3 * wall / steps,
        wall_seconds=wall,
        mflop=flops / what.steps_per_epoch / 1e6,
        mean_bins=mean_bins,
        final_bins=float(subject.bins().mean()),
        memory_imports=imports,
        memory_peak=peak_resident(),
        memory_third=third,
        memory_end=resident(),
        phases=timers.seconds(wall) if timers else {},
    )


def resident() -> float:
    """MiB this process holds now."""
    return float(psutil.Process().memory_info().rss) / 2**20


def peak_resident() -> float:
    """Most MiB this process ever held.

    Linux lets ``ru_maxrss`` of a child begin at its parent's; VmHWM, the same counter of one program, does not.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    if found:
        return int(found[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _announce() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main(argv: Sequence[str] | None = None) -> int:
    """One job, as its parent asks for it."""
    (text,) = sys.argv[1:] if argv is None else argv
    print(json.dumps(asdict(run_job(Job(**json.loads(text)), _announce))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
