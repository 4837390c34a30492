"""A few timed steps of a pack, on the machine and the device that will train it, scaled to a whole run.

The cost of an epoch grows with the bins of the features, and those grow as training goes on.  So epochs are timed at a
few numbers of bins, and read off at the mean number over a run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from adaptbin.config import Hyperparameters, Replica

if TYPE_CHECKING:
    import torch

    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.pretrain import Pretraining

BINS = (2, 8, 16)
"""Quantile bins per feature at which epochs are timed."""

QUIET_EPOCHS = 30
"""Epochs before the first features stop improving and are refined; like the next, measured on eol and breast_cancer."""

BINS_PER_EPOCH = 0.05
"""Growth of a feature per epoch after that, on average over features and points."""

ROWS_PER_BIN = 3.0
"""Where growth ends: train rows per bin, in units of the least rows of a split."""

WIDEST = 1.9
"""Bins of the widest feature over those of the mean one: torch computes all features as wide as the widest."""

REFINING = 1.04
"""What splitting bins adds to the time of the epochs: timed ones are too few for features to be refined in them."""


class Timing(NamedTuple):
    """Seconds of a pack on one core, or on its device."""

    per_model: float
    """Pretraining of one model, all epochs, in a pack of that size."""
    per_replica: float
    """Probes of one replica."""


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
    """Time a few epochs and probe epochs of a pack; takes about ``seconds``, longer for the largest models.

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

    first = replicas[0]
    batch, epochs = first.architecture.batch_size, first.budget.epochs
    models = list({(r.hyperparameters, r.seeds.pretrain): r for r in replicas}.values())
    # A step or two tell how many can be afforded.
    trial = _stacks(models[:STACK_ON_CPU] if device.type == "cpu" else models, _cut(table, batch), BINS[0], device)
    step = _clock(device, lambda: _epoch(trial)) / sum(len(s.replicas) for s in trial)
    affordable = seconds / (4 * len(BINS)) / max(step, 1e-9)  # steps of one model in one timed epoch
    all_steps = -(-len(table.train) // batch)
    timed = models
    if device.type == "cpu" and len(models) * all_steps > affordable:
        timed = models[:STACK_ON_CPU]
    steps = min(all_steps, max(2, int(affordable / len(timed))))
    rows = _cut(table, steps * batch)

    points = [_at(bins, timed, rows, device, seconds / (2 * len(BINS))) for bins in BINS]
    widths, costs = [width for width, _ in points], [cost for _, cost in points]
    width = mean_bins(epochs, first.hyperparameters, len(table.train)) * (1.0 if _is_compiled(device) else WIDEST)
    per_epoch = _line(widths, costs, width) / len(timed) * all_steps / steps
    return Timing(
        per_model=per_epoch * epochs * REFINING,
        per_replica=_probes(timed, table, rows, all_steps / steps, device),
    )


def _at(
    bins: int, models: Sequence[Replica], table: EncodedTable, device: torch.device, seconds: float
) -> tuple[float, float]:
    """Width of the heads when features start with ``bins`` bins, and seconds of an epoch of all stacks."""
    stacks = _stacks(models, table, bins, device)
    for _ in range(1 if device.type == "cpu" else 3):  # caches, and on a GPU the recording of the steps
        _epoch(stacks)
    if _is_compiled(device):
        width = statistics.fmean(float(stack.bins.n_bins.double().mean()) for stack in stacks)
    else:
        width = float(max(stack.model.heads.slots for stack in stacks))
    costs: list[float] = []
    end = time.perf_counter() + seconds
    while len(costs) < 2 or (time.perf_counter() < end and len(costs) < 50):
        costs.append(_clock(device, lambda: _epoch(stacks)))
    return width, statistics.median(costs)


def _probes(
    models: Sequence[Replica], table: EncodedTable, rows: EncodedTable, scale: float, device: torch.device
) -> float:
    """Seconds of one replica's probes: what one and what three probe epochs take, scaled to all."""
    from adaptbin.training.pack import STACK_ON_CPU
    from adaptbin.training.probe import probe

    few = models[:STACK_ON_CPU] if device.type == "cpu" else models
    (stack,) = _stacks(few, rows, BINS[0], device)
    embeddings = stack.embed(table.inputs)

    def probed(epochs: int) -> float:
        budget = replace(few[0].budget, probe_epochs=epochs)
        return _clock(device, lambda: probe(embeddings, [replace(r, budget=budget) for r in few], rows))

    probed(1)
    one, three = probed(1), probed(3)
    per_epoch = max(0.0, three - one) / 2
    once = max(0.0, one - per_epoch)
    return (once + few[0].budget.probe_epochs * per_epoch * scale) / len(few)


def _stacks(
    models: Sequence[Replica], table: EncodedTable, bins: int, device: torch.device
) -> list[Pretraining]:
    from adaptbin.training.pack import stacks_of

    return stacks_of([_starting_with(bins, model) for model in models], table, device)


def _starting_with(bins: int, replica: Replica) -> Replica:
    point = replica.hyperparameters
    return replace(replica, hyperparameters=replace(point, t_init=bins, t_max=max(bins, point.t_max)))


def _cut(table: EncodedTable, rows: int) -> EncodedTable:
    return replace(table, train=table.train[:rows])


def _epoch(stacks: Sequence[Pretraining]) -> None:
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


def _line(widths: Sequence[float], costs: Sequence[float], width: float) -> float:
    """Cost at ``width`` on the line of least squares through the points, which does not fall."""
    mean_width, mean_cost = statistics.fmean(widths), statistics.fmean(costs)
    spread = sum((w - mean_width) ** 2 for w in widths)
    rise = sum((w - mean_width) * (c - mean_cost) for w, c in zip(widths, costs, strict=True))
    slope = max(0.0, rise / spread) if spread else 0.0
    return mean_cost + slope * (width - mean_width)
