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

from adaptbin.config import RECONSTRUCTED, Hyperparameters, Replica
from sweeps.service.points import pretraining_of

if TYPE_CHECKING:
    import torch

    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.pretrain import Pretraining

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
    models = list({pretraining_of(replica): replica for replica in replicas}.values())
    all_steps = -(-len(table.train) // batch)
    # A step or two tell how many can be afforded; a GPU computes many models about as fast as one.
    trial = _stacks(models[:1] if device.type == "cpu" else models, _cut(table, batch), BINS[0], device)
    _warm_up(trial, device)
    step = _clock(device, lambda: _epoch(trial)) / sum(len(stack.replicas) for stack in trial)
    affordable = seconds / (4 * len(BINS)) / max(step, 1e-9)  # steps times models of one timed epoch
    if device.type == "cpu" and len(models) * all_steps > affordable:
        models = models[:STACK_ON_CPU]
    steps = min(all_steps, max(2, int(affordable / len(models))))
    rows = _cut(table, steps * batch)

    costs = {}
    pretext = first.hyperparameters.pretext
    grows, refines = pretext == "adaptive_binning", "bins" in RECONSTRUCTED[pretext]
    for bins in BINS if grows else BINS[:1]:
        stacks = _stacks(models, rows, bins, device)
        cost = _epoch_seconds(stacks, device, seconds / (2 * len(BINS)))
        costs[_width(stacks, device)] = cost / len(models) * all_steps / steps
    probed = stacks[0].replicas if steps == all_steps else models[:1]
    width = mean_bins(epochs, first.hyperparameters, len(table.train)) * (1.0 if _is_compiled(device) else WIDEST)
    return Timing(
        per_model=_line(costs, width) * epochs * (REFINING if refines else 1.0),
        per_replica=_probe_seconds(probed, table, rows, device, all_steps / steps),
    )


def _epoch_seconds(stacks: Sequence[Pretraining], device: torch.device, seconds: float) -> float:
    """Median time of an epoch of all stacks."""
    _warm_up(stacks, device)
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 2 or (time.perf_counter() < end and len(found) < 50):
        found.append(_clock(device, lambda: _epoch(stacks)))
    return statistics.median(found)


def _warm_up(stacks: Sequence[Pretraining], device: torch.device) -> None:
    """Fill the caches, and on a GPU let the steps be recorded."""
    for _ in range(1 if device.type == "cpu" else 3):
        _epoch(stacks)


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

    first = replicas[0]
    # Their time does not depend on what the embeddings hold.
    shape = (len(replicas), len(table.inputs), first.architecture.width)
    embeddings = torch.randn(shape, generator=torch.Generator()).to(device)

    def probed(epochs: int) -> float:
        few = [replace(r, budget=replace(r.budget, probe_epochs=epochs)) for r in replicas]
        return _clock(device, lambda: probe(embeddings, few, rows))

    probed(1)  # what is done once in a process
    one, three = probed(1), probed(3)
    per_epoch = max(0.0, three - one) / 2
    return (max(0.0, one - per_epoch) + first.budget.probe_epochs * per_epoch * scale) / len(replicas)


def _stacks(models: Sequence[Replica], table: EncodedTable, bins: int, device: torch.device) -> list[Pretraining]:
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


def _line(costs: Mapping[float, float], width: float) -> float:
    """Cost at ``width``, from costs at two widths (or one); it does not fall with the width."""
    (low, cheap), (high, dear) = min(costs.items()), max(costs.items())
    return cheap + max(0.0, dear - cheap) * (width - low) / (high - low) if high > low else cheap
