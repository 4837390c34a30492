"""How long a plan will take: from replicas trained before, else from a few timed steps, else from the models' sizes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Any

from adaptbin import native
from adaptbin.config import RECONSTRUCTED, Architecture, EncoderName, PretextName, pretext_of
from sweeps.service.kinds import Work, pretraining_of
from sweeps.service.memory import Sizes, in_words
from sweeps.service.models import encoder_size
from sweeps.service.plan import Pack, Plan
from sweeps.service.progress import duration

if TYPE_CHECKING:
    from sweeps.service.timing import Timing

START_SECONDS = 12.0
"""Ray and the workers' first import of torch."""

SIDE_BY_SIDE = 1.07
"""How much longer a pack takes on its core while other cores are busy: they share caches and memory (measured)."""

WORTH_TIMING = 60.0
"""A plan guessed to be shorter, in seconds, is not worth the seconds that timed steps take."""

FLOPS_PER_SECOND: dict[str | None, float] = {"avx512": 1.9e11, "avx2": 1.0e11, None: 9.0e10}
"""Arithmetic of one core in small float32 products, by kernels (None: torch); on an AMD EPYC virtual machine."""

SECONDS_PER_STEP: dict[EncoderName, float] = {
    "mlp": 5.0e-5,
    "resnet": 2.0e-4,
    "tabnet": 1.5e-3,
    "ft_transformer": 4.0e-4,
    "t2g_former": 6.0e-4,
}
"""What one replica adds to a step besides: calls, and its rows of the batch.  The perceptron's is measured on the same
machine; the others' follow from how many tensor operations a step of five replicas makes, at 5 microseconds each."""

SECONDS_PER_NUMBER = 2.0e-9
"""What each number that autograd keeps adds to a step: it is written and read some five times (0: the perceptron's
kernels keep theirs in the cache)."""

SECONDS_PER_WEIGHT = 9.0e-10
"""What each weight adds to a step besides: AdamW reads and writes seven numbers for it; measured there as well."""

HEAD_COLUMNS = 8
"""Output columns per feature, on average over a run."""


@dataclass(frozen=True)
class Speed:
    """Seconds that packs of one kind of work take on the cores of one pack: per model pretrained and per replica."""

    per_model: float
    per_replica: float
    basis: str
    """In words, to be followed by the names of data sets."""


MEASURED, TIMED, GUESSED = "finished replicas of", "timed steps of", "a guess from model sizes for"


@dataclass(frozen=True)
class Estimate:
    """What a plan takes, and what that rests on."""

    seconds: float
    """Until the last worker is done."""
    core_hours: float
    gpu_hours: float
    basis: str


def speeds(
    plan: Plan,
    sizes: Mapping[str, Sizes],
    records: Iterable[Mapping[str, Any]],
    *,
    device: str = "cpu",
    time_it: Callable[[Pack], Timing | None] | None = None,
) -> dict[Work, Speed]:
    """Speed of the packs of each kind of work in ``plan``, on the best basis there is.

    ``records``: of earlier replicas, of any study.  ``time_it`` times some steps of a pack; None where it cannot.
    """
    records = list(records)
    packs: dict[Work, Pack] = {}
    for pack in plan.packs:
        held = packs.setdefault(work_of(pack), pack)
        packs[work_of(pack)] = pack if len(pack.replicas) > len(held.replicas) else held
    found = {
        work: measured_speed(pack, records, device) or _guessed(plan, pack, sizes[pack.dataset])
        for work, pack in packs.items()
    }
    if time_it is None or estimate(plan, found).seconds < WORTH_TIMING:
        return found
    for work, pack in packs.items():
        if found[work].basis == GUESSED and (timing := time_it(pack)) is not None:
            more = _company(plan)
            found[work] = Speed(timing.per_model * more, timing.per_replica * more, TIMED)
    return found


def measured_speed(pack: Pack, records: Iterable[Mapping[str, Any]], device: str) -> Speed | None:
    """Speed of finished replicas that did the same work on the same kind of device, or None without any.

    Of those, the ones from packs of about the same size count: a replica costs more in a small pack.
    """
    wanted = pack.replicas[0].identity()
    kernels = (native.instruction_set() if device == "cpu" else None) or "torch"
    seconds: dict[int, list[float]] = {}
    for record in records:
        runtime, ratio = record["runtime"], _times_as_long(wanted, record["identity"])
        if (
            ratio is not None
            and runtime["device"].split(":")[0] == device
            and runtime.get("kernels", kernels) == kernels
        ):
            seconds.setdefault(runtime["pack_size"], []).append(runtime["seconds"] * ratio)
    if not seconds:
        return None
    nearest = min(seconds, key=lambda size: abs(size - len(pack.replicas)))
    return Speed(0.0, fmean(seconds[nearest]), MEASURED)


def _times_as_long(wanted: Mapping[str, Any], done: Mapping[str, Any]) -> float | None:
    """How many times the epochs of one identity are those of another; None where the two are not the same work."""
    same = all(wanted[name] == done[name] for name in ("dataset", "architecture", "protocol", "seeds_vary"))
    if not same or pretext_of(wanted) != pretext_of(done) or ("finetuning" in wanted) != ("finetuning" in done):
        return None
    epochs = [
        (identity["budget"]["epochs"], identity.get("finetuning", {}).get("epochs")) for identity in (wanted, done)
    ]
    (pretrained, finetuned), (then, finetuned_then) = epochs
    if not pretrained:
        ratio = finetuned / finetuned_then
    elif finetuned == finetuned_then:
        ratio = pretrained / then
    else:  # nobody knows how much of the time was which
        return None
    # Bins grow in a run, so that a short one tells little of a long one.
    return float(ratio) if 0.5 <= ratio <= 2 else None


def _guessed(plan: Plan, pack: Pack, sizes: Sizes) -> Speed:
    work, more = pack.work, _company(plan)
    pretraining = guessed_speed(work.architecture, sizes, work.pretext) * work.budget.epochs
    # From scratch is what it takes without decoder and heads.
    finetuning = guessed_speed(work.architecture, sizes, "none") * work.finetuning.epochs if work.finetuning else 0.0
    return Speed(pretraining * more, finetuning * more, GUESSED)


def _company(plan: Plan) -> float:
    """How much longer a pack takes in the run than by itself on a whole core or GPU."""
    resources, at_once = plan.resources, min(plan.workers, len(plan.packs))
    if resources.gpus:
        # Packs that share a GPU take turns.
        return float(min(at_once, int(1 / resources.gpus + 1e-9))) if resources.gpus < 1 else 1.0
    return (SIDE_BY_SIDE if at_once > 1 else 1.0) / min(1.0, resources.cpus)


def guessed_speed(architecture: Architecture, sizes: Sizes, pretext: PretextName = "adaptive_binning") -> float:
    """Seconds per replica and epoch, of pretraining or, for "none", of fine-tuning; from the sizes of models alone."""
    size, width = encoder_size(architecture, sizes.features), architecture.width
    # A decoder's block and its last layer.
    decoder = (size.width + width) * width
    predicted = RECONSTRUCTED[pretext]
    columns = HEAD_COLUMNS if predicted in (("bins",), ("index",)) else 1
    above = len(predicted) * (decoder + sizes.features * columns * width)
    steps = -(-sizes.train_rows // architecture.batch_size)
    # Forward, and two products backward: 3 multiply-adds per weight and row.  TabNet has torch's small products.
    plain = FLOPS_PER_SECOND[None]
    rate = FLOPS_PER_SECOND.get(native.instruction_set(), plain)
    arithmetic = above / rate + size.products / (plain if architecture.encoder == "tabnet" else rate)
    kept = 0.0 if architecture.encoder == "mlp" else size.kept * sizes.train_rows * SECONDS_PER_NUMBER
    per_step = SECONDS_PER_STEP[architecture.encoder] + (size.weights + above) * SECONDS_PER_WEIGHT
    return 6.0 * arithmetic * sizes.train_rows + kept + steps * per_step


def work_of(pack: Pack) -> Work:
    """What kind of work a pack is."""
    return pack.work


def pack_seconds(pack: Pack, speeds: Mapping[Work, Speed]) -> float:
    """Seconds of one pack."""
    speed = speeds[work_of(pack)]
    return _pretrainings(pack) * speed.per_model + len(pack.replicas) * speed.per_replica


def longest_first(packs: Sequence[Pack], speeds: Mapping[Work, Speed]) -> tuple[Pack, ...]:
    """Packs in the order to train them in: none that takes long is left for the end, where it would hold up all."""
    return tuple(sorted(packs, key=lambda pack: -pack_seconds(pack, speeds)))


def estimate(plan: Plan, speeds: Mapping[Work, Speed]) -> Estimate:
    """Give each pack of ``plan`` to the first free worker and see when the last is done."""
    busy = [0.0] * max(1, min(plan.workers, len(plan.packs)))
    total = 0.0
    for pack in longest_first(plan.packs, speeds):
        seconds = pack_seconds(pack, speeds)
        total += seconds
        heapq.heapreplace(busy, busy[0] + seconds)
    names: dict[str, dict[str, None]] = {}
    for pack in plan.packs:
        names.setdefault(speeds[work_of(pack)].basis, {})[pack.dataset] = None
    return Estimate(
        seconds=max(busy) + START_SECONDS if plan.packs else 0.0,
        core_hours=total * plan.resources.cpus / 3600,
        gpu_hours=total * plan.resources.gpus / 3600,
        basis="; ".join(f"{basis} {', '.join(names[basis])}" for basis in (MEASURED, TIMED, GUESSED) if basis in names),
    )


def _pretrainings(pack: Pack) -> int:
    return len({pretraining_of(replica) for replica in pack.replicas})


def describe(plan: Plan, guess: Estimate, now: datetime | None = None) -> str:
    """A plan in words: points x seeds, done, failed and to do, packs, what each is given, and how long it takes."""
    study = plan.study
    points, kinds = len(study.points_of(study.datasets[0])), study.all_seeds_vary
    times = f" x {len(study.datasets)} data sets" if len(study.datasets) > 1 else ""
    times += f" x {len(kinds)} kinds of seeds ({', '.join(kinds)})" if len(kinds) > 1 else ""
    failed = f", {len(plan.failed)} failed before and left out" if plan.failed else ""
    lines = [
        f"{study.name} of {', '.join(study.datasets)}: {points} point{'' if points == 1 else 's'} x {len(study.seeds)} "
        f"seeds{times} = {len(study.all_replicas)} replicas, {len(plan.done)} done{failed}, {len(plan.to_do)} to do"
    ]
    if plan.packs:
        packed = sorted({len(pack.replicas) for pack in plan.packs})
        size = f"{packed[0]}" if len(packed) == 1 else f"{packed[0]} to {packed[-1]}"
        resumed = f"; {plan.resumed} go on from checkpoints" if plan.resumed else ""
        lines += [
            f"packs: {len(plan.packs)}, of {size} replicas; {plan.resources} each, "
            f"{min(plan.workers, len(plan.packs))} at once{resumed}",
            *_memory_lines(plan),
            f"time: about {duration(guess.seconds)}, done about {_clock_time(guess.seconds, now or datetime.now())}; "
            f"about {_hours(guess, plan)} (from {guess.basis})",
        ]
        if not plan.resources.gpus and native.instruction_set() is None:
            lines.append("no compiled kernels here, so it takes about three times as long: install with a C compiler")
    return "\n".join(lines)


def _memory_lines(plan: Plan) -> list[str]:
    if not plan.memory:
        return []
    given = "" if plan.memory_limit is None else f" of {in_words(plan.memory_limit)} that each is given"
    lines = [f"memory: up to {in_words(plan.memory)} per pack{given}"]
    if plan.cut_to is not None:
        lines.append(f"memory allows packs of {plan.cut_to} models at most, so larger ones were cut")
    return lines


def _hours(guess: Estimate, plan: Plan) -> str:
    hours, unit = (guess.gpu_hours, "GPU") if plan.resources.gpus else (guess.core_hours, "core")
    return f"{hours:.2g} {unit}-hours" if hours < 10 else f"{hours:,.0f} {unit}-hours"


def _clock_time(seconds: float, now: datetime) -> str:
    end = now + timedelta(seconds=seconds)
    return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%H:%M on %a %d %b}"
