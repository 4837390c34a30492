"""Which jobs a benchmark run consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.benchmarks.measure import Job

FULL = 1000
"""Epochs of the paper's pretraining; eol is measured over all of them, because its bins grow all along."""

FIXED: dict[str, Any] = {"patience": 10**6}
"""Bins that stay at ``t_init``."""

GROWING: dict[str, Any] = {"patience": 1, "delta": 1e9}
"""No loss ever improves by so much: every second epoch all features trigger."""

TYPICAL: dict[str, Any] = {"t_init": 10}
"""Bins as a full eol run has them on average, for jobs too short to grow theirs."""


@dataclass(frozen=True)
class Series:
    """Jobs of one shape with samples of the plain loop before, between and after them."""

    plain: Job
    jobs: tuple[Job, ...]
    every: int = 1
    """Jobs between two samples of the plain loop."""

    def order(self) -> list[Job]:
        """Everything in the order in which it is run."""
        jobs: list[Job] = []
        for i, job in enumerate(self.jobs):
            jobs += [self.plain, job] if i % self.every == 0 else [job]
        return [*jobs, self.plain]


@dataclass(frozen=True)
class Plan:
    """Everything one run measures."""

    series: tuple[Series, ...]
    short: Job
    """A shorter job: run alone, twice at once, and next to each of ``variants``."""
    variants: tuple[Job, ...]
    phases: Job
    is_full: bool = False
    """Whether the run is long enough to be judged."""


def standard_plan(epochs: int = FULL) -> Plan:
    """The run of ``make bench``, or one with at most ``epochs`` epochs per job."""
    short = Job("eol", 21, min(100, epochs))
    return Plan(
        series=(
            _series("eol", epochs, plain_epochs=min(20, epochs)),
            _series("hfc", min(20, epochs), plain_epochs=min(20, epochs), every=2),
            Series(Job("esr", 0, 1), tuple(_esr(epochs)), every=5),
        ),
        short=replace(short, name="R=21"),
        variants=(
            replace(short, changes={"t_max": 50}, name="R=21, T_max 50"),
            replace(short, repeat=2, name="R=21, rows twice"),
        ),
        phases=replace(short, changes=TYPICAL, phases=True, name="R=21, by phase"),
        is_full=epochs >= FULL,
    )


def _series(shape: str, epochs: int, plain_epochs: int, every: int = 1) -> Series:
    jobs = tuple(Job(shape, count, epochs) for count in (1, 10, 21, 42))
    return Series(Job(shape, 0, plain_epochs, warm_up=1), jobs, every)


def _esr(epochs: int) -> Sequence[Job]:
    """178 numerical columns: what does it cost to have 2, 16, 64 or all 200 bins, and to allow 50 or 200?"""
    jobs = []
    for bins, t_max in ((2, 200), (2, 50), (16, 200), (16, 50), (64, 200)):
        changes = FIXED | {"t_init": bins, "t_max": t_max}
        jobs.append(Job("esr", 1, 2, 1, changes, name=f"R=1, {bins} bins, T_max {t_max}"))
    for count, bins in ((10, 16), (21, 32), (10, 200)):
        jobs.append(Job("esr", count, 1, 0, FIXED | {"t_init": bins}, name=f"R={count}, {bins} bins, T_max 200"))
    for t_max in (200, 50):
        changes = GROWING | {"t_max": t_max}
        jobs.append(Job("esr", 1, min(20, epochs), 1, changes, name=f"R=1, growing, T_max {t_max}"))
    return jobs
