"""A few timed steps of a pack, on the machine and the device that will train it, scaled to a whole run.

The cost of an epoch grows with the bins of the features, and those grow as training goes on.  So epochs are timed at
two numbers of bins, and the time at the mean number over a run is read off the line through both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from adaptbin.config import RECONSTRUCTED, Finetuning, Hyperparameters, Replica
from sweeps.service.kinds import pretraining_of
from sweeps.service.models import encoder_size

if TYPE_CHECKING:
    import torch

    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.finetune import FineTuning
    from adaptbin.training.pretrain import Pretraining

    Stacks = Sequence[Pretraining] | Sequence[FineTuning]
    Make = Callable[[Sequence[Replica], EncodedTable, torch.device], Stacks]

BINS = (2, 16)
"""Quantile bins per feature at which epochs are timed."""

QUIET_EPOCHS = 30
"""Epochs before the first features stop improving and are refined; like the next, measured on eol and breast_cancer."""

BINS_PER_EPOCH = 0.05
"""Growth of a feature per epoch after that, on average over features and points."""

ROWS_PER_BIN = 3.0
"""Where growth ends: train rows per bin, in units of the least rows of a split."""

WIDEST = 1.9
"""Bins of the widest feature over those of the mean one: torch computes all features as wide as the widest."""

MOST_TIMED = 50
"""Epochs timed at most."""

SLOW = 1.0
"""A model's step that takes so many seconds, and more than there are for an epoch, is not taken again."""

REFINING = 1.04
"""What splitting bins adds to the time of the epochs: timed ones are too few for features to be refined in them."""


class Timing(NamedTuple):
    """Seconds of a pack on one core, or on its device."""

    per_model: float
    """Pretraining of one model, all epochs, in a pack of that size."""
    per_replica: float
    """Probes of one replica, or its fine-tuning."""


def mean_bins(epochs: int, default: Hyperparameters, train_rows: int) -> float:
    """Bins per feature, averaged over a run of so many epochs and over the points of a study."""
    start = float(default.t_init)
    end = max(start, min(float(default.t_max), train_rows / (ROWS_PER_BIN * default.min_bin)))
    growing = (end - start) / BINS_PER_EPOCH
    grown = min(max(0.0, epochs - QUIET_EPOCHS), growing)
    after = max(0.0, epochs - QUIET_EPOCHS - growing)
    return start + (grown * grown * BINS_PER_EPOCH / 2 + after * (end - start)) / epochs


def time_pack(
    replicas: Sequence[Replica],
    table: EncodedTable,
    *,
    device: str = "cpu",
    threads: int = 1,
    seconds: float = 2.0,
) -> Timing:
    """Time a few epochs of a pack's pretraining, and of its probes or its fine-tuning.

    It takes about ``seconds``, longer for the largest models.

    The pack is cut into stacks as in the run.  Where one of its epochs would take too long, one stack, and then a part
    of the rows, stand for the whole.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _timed(replicas, table, torch.device(device), seconds)
    finally:
        torch.set_num_threads(before)


def _timed(replicas: Sequence[Replica], table: EncodedTable, device: torch.device, seconds: float) -> Timing:
    from adaptbin.training.pack import STACK_ON_CPU

    finetuning = replicas[0].finetuning
    after = None if finetuning is None else _finetuning_seconds(replicas, finetuning, table, device, seconds)
    if after is not None and not replicas[0].budget.epochs:
        return Timing(0.0, after)
    models = list({pretraining_of(replica): replica for replica in replicas}.values())
    models, rows, scale, slow = _affordable(models, table, device, seconds / (4 * len(BINS)), _pretrainings)
    epochs, point = models[0].budget.epochs, models[0].hyperparameters
    costs = {} if slow is None else {0.0: slow}
    grows, refines = point.pretext == "adaptive_binning", "bins" in RECONSTRUCTED[point.pretext]
    for bins in () if slow is not None else BINS if grows else BINS[:1]:
        stacks = _pretrainings(models, rows, device, bins)
        cost = _epoch_seconds(stacks, device, seconds / (2 * len(BINS)))
        costs[_width(stacks, device)] = cost / len(models) * scale
    width = mean_bins(epochs, point, len(table.pretraining)) * (1.0 if _is_compiled(device) else WIDEST)
    if after is None:
        some = STACK_ON_CPU if device.type == "cpu" else len(models)
        after = _probe_seconds(models[:some] if scale == 1 else models[:1], table, rows, device, scale)
    return Timing(_line(costs, width) * epochs * (REFINING if refines else 1.0), after)


def _finetuning_seconds(
    replicas: Sequence[Replica], finetuning: Finetuning, table: EncodedTable, device: torch.device, seconds: float
) -> float:
    """Seconds of one replica's fine-tuning, as if none left before its last epoch."""
    # However many epochs fit in the time, no stack comes to its last.
    longer = [replace(r, finetuning=replace(finetuning, epochs=MOST_TIMED + 10)) for r in replicas]
    members, rows, scale, slow = _affordable(longer, table, device, seconds / 8, _finetunings)
    if slow is not None:
        return slow * finetuning.epochs
    stacks = _finetunings(members, rows, device)
    found: list[float] = []
    end, idle = time.perf_counter() + seconds / 4, _warm_ups(device)
    while len(found) < idle + 2 or (time.perf_counter() < end and len(found) < MOST_TIMED):
        active = sum(len(stack.active) for stack in stacks)
        if not active:
            break
        found.append(_clock(device, lambda: _epoch(stacks)) / active)
    return statistics.median(found[idle:] or found) * scale * finetuning.epochs


def _affordable(
    models: Sequence[Replica], table: EncodedTable, device: torch.device, seconds: float, make: Make
) -> tuple[list[Replica], EncodedTable, float, float | None]:
    """Models and rows whose epoch takes about so long, and how many times their steps a whole epoch's are.

    Where even a step of one model takes far longer, it stands for all: last come the seconds of a model's epoch by it.
    """
    from adaptbin.training.pack import STACK_ON_CPU

    batch, chosen = models[0].architecture.batch_size, list(models)
    all_steps = -(-len(table.train if make is _finetunings else table.pretraining) // batch)
    # A step or two tell how many can be afforded; a GPU computes many models about as fast as one.
    trial = make(chosen[:1] if device.type == "cpu" else chosen, _cut(table, batch), device)
    count = sum(len(stack.replicas) for stack in trial)
    step = _clock(device, lambda: _epoch(trial)) / count
    if device.type == "cpu" and step > max(SLOW, seconds):
        return chosen, _cut(table, 2 * batch), all_steps / min(2, all_steps), step * all_steps
    _warm_up(trial, device)
    step = _clock(device, lambda: _epoch(trial)) / count
    affordable = seconds / max(step, 1e-9)  # steps times models
    if device.type == "cpu" and len(chosen) * all_steps > affordable:
        chosen = chosen[:STACK_ON_CPU]
    steps = min(all_steps, max(2, int(affordable / len(chosen))))
    return chosen, _cut(table, steps * batch), all_steps / steps, None


def _epoch_seconds(stacks: Stacks, device: torch.device, seconds: float) -> float:
    """Median time of an epoch of all stacks."""
    _warm_up(stacks, device)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 2 or (time.perf_counter() < end and len(found) < MOST_TIMED):
        found.append(_clock(device, lambda: _epoch(stacks)))
    return statistics.median(found)


def _warm_up(stacks: Stacks, device: torch.device) -> None:
    for _ in range(_warm_ups(device)):
        _epoch(stacks)


def _warm_ups(device: torch.device) -> int:
    """Epochs that fill the caches, and on a GPU let the steps be recorded."""
    return 1 if device.type == "cpu" else 3


def _width(stacks: Sequence[Pretraining], device: torch.device) -> float:
    """What the time of a step grows with: compiled kernels compute live bins, torch all slots."""
    from adaptbin.pretext.hord import SLOT_MULTIPLE

    if not stacks[0].n_bins.numel():
        return 0.0
    if _is_compiled(device):
        return statistics.fmean(float(stack.n_bins.double().mean()) for stack in stacks)
    return float(max(-(-int(stack.n_bins.max()) // SLOT_MULTIPLE) * SLOT_MULTIPLE for stack in stacks))


def _probe_seconds(
    replicas: Sequence[Replica], table: EncodedTable, rows: EncodedTable, device: torch.device, scale: float
) -> float:
    """Seconds of one replica's probes: what one and what three probe epochs take, scaled to all."""
    import torch

    from adaptbin.training.probe import probe

    first, rows = replicas[0], replace(rows, val=table.val)  # a few rows of one class have no score
    # Their time does not depend on what the embeddings hold.
    shape = (len(replicas), len(table.inputs), encoder_size(first.architecture, table.inputs.shape[1]).width)
    embeddings = torch.randn(shape, generator=torch.Generator()).to(device)

    def probed(epochs: int) -> float:
        few = [replace(r, budget=replace(r.budget, probe_epochs=epochs)) for r in replicas]
        return _clock(device, lambda: probe(embeddings, few, rows))

    probed(1)  # what is done once in a process
    one, three = probed(1), probed(3)
    per_epoch = max(0.0, three - one) / 2
    return (max(0.0, one - per_epoch) + first.budget.probe_epochs * per_epoch * scale) / len(replicas)


def _pretrainings(
    models: Sequence[Replica], table: EncodedTable, device: torch.device, bins: int = BINS[0]
) -> list[Pretraining]:
    from adaptbin.training.pack import stacks_of

    return stacks_of([_starting_with(bins, model) for model in models], table, device)


def _finetunings(replicas: Sequence[Replica], table: EncodedTable, device: torch.device) -> list[FineTuning]:
    from adaptbin.training.pack import finetunings_of

    return finetunings_of(replicas, table, device)


def _starting_with(bins: int, replica: Replica) -> Replica:
    point = replica.hyperparameters
    return replace(replica, hyperparameters=replace(point, t_init=bins, t_max=max(bins, point.t_max)))


def _cut(table: EncodedTable, rows: int) -> EncodedTable:
    """So many train rows, and as large a part of the rows of validation, which fine-tuning looks at in every epoch.

    Rows without a label take the place of train rows that are not there.
    """
    kept = -(-len(table.val) * min(rows, len(table.train)) // len(table.train))
    unlabelled = None if table.unlabelled is None else table.unlabelled[: max(0, rows - len(table.train))]
    return replace(table, train=table.train[:rows], val=table.val[:kept], unlabelled=unlabelled)


def _epoch(stacks: Stacks) -> None:
    for stack in stacks:
        stack.run_epoch()


def _is_compiled(device: torch.device) -> bool:
    from adaptbin import native

    return device.type == "cpu" and native.instruction_set() is not None


def _clock(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of ``work``.  On a CPU without the time that other programs took of the core."""
    import torch

    wall, busy = time.perf_counter(), time.process_time()
    work()
    if device.type != "cpu":
        torch.cuda.synchronize(device)
        return time.perf_counter() - wall
    return min(time.perf_counter() - wall, time.process_time() - busy)


def _line(costs: Mapping[float, float], width: float) -> float:
    """Cost at ``width``, from costs at two widths (or one); it does not fall with the width."""
    (low, cheap), (high, dear) = min(costs.items()), max(costs.items())
    return cheap + max(0.0, dear - cheap) * (width - low) / (high - low) if high > low else cheap
