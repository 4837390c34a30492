"""How long a plan will take: from replicas trained before where there are some, else from the size of the models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from adaptbin import native
from adaptbin.config import Architecture
from sweeps.service.plan import Pack, Plan
from sweeps.service.progress import duration

START_SECONDS = 12.0
"""Ray and the workers' first import of torch."""

FLOPS_PER_SECOND: dict[str | None, float] = {"avx512": 1.9e11, "avx2": 1.0e11, None: 9.0e10}
"""Arithmetic of one core in small float32 products, by kernels (None: torch); on an AMD EPYC virtual machine."""

SECONDS_PER_STEP = 5.0e-5
"""What one replica adds to a step besides: calls, and its rows of the batch; measured on the same machine."""

SECONDS_PER_WEIGHT = 9.0e-10
"""What each weight adds to a step besides: AdamW reads and writes seven numbers for it; measured there as well."""

HEAD_COLUMNS = 8
"""Output columns per feature, on average over a run."""


@dataclass(frozen=True)
class Sizes:
    """What the guess needs to know of a data set."""

    train_rows: int
    features: int


@dataclass(frozen=True)
class Estimate:
    """Seconds until the last worker is done, and what that rests on."""

    seconds: float
    basis: str


def measured_speeds(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Data set -> seconds per replica and pretraining epoch, the median over ``records`` (probes included)."""
    seconds: dict[str, list[float]] = {}
    for record in records:
        identity = record["identity"]
        per_epoch = record["runtime"]["seconds"] / identity["budget"]["epochs"]
        seconds.setdefault(identity["dataset"], []).append(per_epoch)
    return {dataset: median(values) for dataset, values in seconds.items()}


def guessed_speed(architecture: Architecture, sizes: Sizes) -> float:
    """Seconds per replica and pretraining epoch, from multiplications and weights alone."""
    width = architecture.width
    hidden = (
        (architecture.depth + 2) * width * width
    )  # encoder's embedding, decoder's block and its last layer included
    weights = sizes.features * width + hidden + sizes.features * HEAD_COLUMNS * width
    steps = -(-sizes.train_rows // architecture.batch_size)
    # Forward, and two products backward: 3 multiply-adds per weight and row.
    rate = FLOPS_PER_SECOND.get(native.instruction_set(), FLOPS_PER_SECOND[None])
    return 6.0 * weights * sizes.train_rows / rate + steps * (SECONDS_PER_STEP + weights * SECONDS_PER_WEIGHT)


def estimate(plan: Plan, sizes: Mapping[str, Sizes], measured: Mapping[str, float]) -> Estimate:
    """Give each pack of ``plan`` to the first free worker and see when the last is done."""
    guessed = {
        card.key: guessed_speed(card.architecture, sizes[card.key])
        for card in plan.study.cards
        if card.key not in measured
    }
    speeds = {**guessed, **measured}
    busy = [0.0] * max(1, min(plan.workers, len(plan.packs)))
    for pack in plan.packs:
        first_free = busy.index(min(busy))
        busy[first_free] += _pretrainings(pack) * plan.study.budget.epochs * speeds[pack.dataset]
    datasets = {pack.dataset for pack in plan.packs}
    known, unknown = sorted(datasets & measured.keys()), sorted(datasets - measured.keys())
    basis = [f"measured on finished replicas of {', '.join(known)}"] if known else []
    basis += [f"guessed from model sizes for {', '.join(unknown)}"] if unknown else []
    return Estimate(max(busy) + START_SECONDS if plan.packs else 0.0, "; ".join(basis))


def _pretrainings(pack: Pack) -> int:
    return len({(replica.hyperparameters, replica.seeds.pretrain) for replica in pack.replicas})


def describe(plan: Plan, sizes: Mapping[str, Sizes], records: Iterable[Mapping[str, Any]]) -> str:
    """A plan in words: points x seeds, done and to do, packs, what each is given, and how long it takes.

    ``records`` of earlier replicas, of any study, make the time a measured one.
    """
    study = plan.study
    points, seeds, datasets = len(study.unique_points), len(study.seeds), len(study.datasets)
    times = f" x {datasets} data sets" if datasets > 1 else ""
    lines = [
        f"{study.name} of {', '.join(study.datasets)}: {points} points x {seeds} seeds{times} = "
        f"{points * seeds * datasets} replicas, {len(plan.done)} done, {len(plan.to_do)} to do"
    ]
    if plan.packs:
        packed = sorted({len(pack.replicas) for pack in plan.packs})
        size = f"{packed[0]}" if len(packed) == 1 else f"{packed[0]} to {packed[-1]}"
        guess = estimate(plan, sizes, measured_speeds(records))
        lines += [
            f"packs: {len(plan.packs)}, of {size} replicas; {plan.resources} each, "
            f"{min(plan.workers, len(plan.packs))} at once",
            f"time: about {duration(guess.seconds)} ({guess.basis})",
        ]
        if not plan.resources.gpus and native.instruction_set() is None:
            lines.append("no compiled kernels here, so it takes about three times as long: install with a C compiler")
    return "\n".join(lines)
