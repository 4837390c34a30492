"""Packs on a GPU: first that it computes the right thing, then how fast and in how much memory.

    python -m tests.benchmarks.gpu [--device cuda] [--seconds 220]

Needs torch, numpy, pandas and scikit-learn, and no data file: the eol rows come from tests/golden.  Every section is
printed when it is done, so a run that is cut off has still said something; the real job of 210 replicas comes last and
takes the time that is left.  ``--device cpu --seconds 20`` runs the same code small.  Exit code 1 when a check fails,
2 without the device.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import platform
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica
from adaptbin.data.registry import get_card
from adaptbin.replicas.philox import stream_keys
from adaptbin.replicas.streams import kept_units, mask_draws, row_order
from adaptbin.training.graphs import graphs_for
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.probe import probe
from tests.benchmarks.gpu_bench import SMALL, Bench, Scale, say
from tests.benchmarks.gpu_encoders import check_encoder_numbers, check_encoder_replay, encoder_speed
from tests.benchmarks.shapes import numerical_rows
from tests.training.golden_trace import load_trace
from tests.training.tables import small_table

LATE_BINS = 20
"""Bins per feature when speed is measured: about what eol has late in training, where most epochs are spent."""


def replicas_of(dataset: str, n: int, architecture: Architecture, *, epochs: int = 1000, **point: Any) -> list[Replica]:
    """The first ``n`` of 21 points x 10 seeds."""
    points: list[dict[str, Any]] = [{"tau": 1e-4 * 1.25**i} for i in range(21)]
    return [
        Replica(
            dataset=dataset,
            fingerprint="benchmark",
            architecture=architecture,
            hyperparameters=Hyperparameters(**(changes | point)),
            seed=seed,
            protocol=Protocol(),
            budget=Budget(epochs=epochs, probe_epochs=10, probes=5),
        )
        for changes, seed in itertools.islice(itertools.product(points, range(10)), n)
    ]


def about(bench: Bench) -> None:
    """What this runs on."""
    say(f"torch {torch.__version__}, numpy {np.__version__}, python {platform.python_version()}")
    if bench.device.type == "cuda":
        found = torch.cuda.get_device_properties(bench.device)
        say(f"{found.name}, {found.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}")
    else:
        say(f"{bench.device} on {platform.machine()}: a test of this script, its times mean nothing")


def check_draws(bench: Bench) -> None:
    """The device's draws are the CPU's, word for word."""
    keys, epoch = stream_keys([(seed, "x") for seed in range(3)]), torch.tensor(17)
    at = (keys.to(bench.device), epoch.to(bench.device))
    for name, here, there in (
        ("row order", row_order(keys, epoch, 5001), row_order(*at, 5001)),
        ("dropout", kept_units(keys, epoch, 3, 1351, 127, 0.1), kept_units(*at, 3, 1351, 127, 0.1)),
        ("masking", *(torch.cat([d.uniform, d.source.float()], 2) for d in _masks(keys, epoch, *at))),
    ):
        bench.check(f"draws of the device are the CPU's, {name}", torch.equal(here, there.cpu()))


def _masks(*at: torch.Tensor) -> list[Any]:
    keys, epoch, device_keys, device_epoch = at
    return [mask_draws(k, e, 1351, 14, 128) for k, e in ((keys, epoch), (device_keys, device_epoch))]


def _mixed_pack(epochs: int) -> tuple[list[Replica], Any]:
    """Four replicas that split, mask and differ in step size, and their table."""
    table = small_table(n_rows=402, n_numerical=6)
    quick = {"patience": 2, "delta": 0.01, "tau": 1e-6, "min_bin": 8}
    points: list[dict[str, Any]] = [
        {},
        {"masking": "random", "mask_prob": 0.3},
        {"masking": "constant", "mask_prob": 0.2, "learning_rate": 1e-3},
        {"t_init": 10, "weight_decay": 0.1},
    ]
    architecture = Architecture(width=32, depth=2, batch_size=64)
    return [replicas_of("eol", 1, architecture, epochs=epochs, **(quick | point))[0] for point in points], table


def check_numbers(bench: Bench) -> None:
    """A small pack on the CPU and on the device: losses agree to rounding, bins in at least half of the replicas."""
    replicas, table = _mixed_pack(8)
    here, there = AdaptiveBinning(replicas, table), AdaptiveBinning(replicas, table, bench.device)
    for _ in range(8):
        here.run_epoch()
        there.run_epoch()
    # A split is a threshold: where rounding moved one, the losses that follow say nothing.
    same = (here.count == there.count).all(1)
    ours, theirs = here.history["loss"][same], there.history["loss"][same]
    apart = float(((ours - theirs).abs() / ours.abs()).max()) if bool(same.any()) else float("inf")
    bench.check(
        "8 epochs of the device are the CPU's",
        apart < 1e-3 and 2 * int(same.sum()) >= len(same),
        f"{int(same.sum())} of {len(same)} replicas have the same bins, their losses differ by {apart:.1e} at most",
    )


def check_replay(bench: Bench) -> None:
    """Replaying recorded graphs gives the bits of launching every kernel."""
    replicas, table = _mixed_pack(24)
    eager = AdaptiveBinning(replicas, table, bench.device)
    replayed = AdaptiveBinning(replicas, table, bench.device, graphs=graphs_for(bench.device))
    for _ in range(24):
        eager.run_epoch()
        replayed.run_epoch()
    pairs = [
        *zip(eager.model.bank.buffers(), replayed.model.bank.buffers(), strict=True),
        (eager.bins.edges, replayed.bins.edges),
        (eager.history["loss"], replayed.history["loss"]),
    ]
    equal = all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)
    bench.check("24 epochs replayed are those launched, bit for bit", equal, f"{replayed.captures} captures of steps")


def speed(bench: Bench) -> None:
    """The eol table: packs of several sizes, eager against captured."""
    table, architecture = load_trace("eol").table, get_card("eol").architecture
    if bench.scale is SMALL:
        architecture = Architecture(width=16, depth=2, batch_size=128)
    say(f"\neol ({len(table.train)} rows, {architecture}), {LATE_BINS} bins from the start")
    say("replicas  mode      ms/epoch  ms/replica-step  captures  peak memory  1000 epochs")

    def cell(n: int, captured: bool) -> None:
        graphs = graphs_for(bench.device) if captured else None
        replicas = replicas_of("eol", n, architecture, t_init=LATE_BINS)
        run = AdaptiveBinning(replicas, table, bench.device, graphs=graphs)
        per_epoch, _ = bench.time_epochs(run, bench.scale.cell_seconds)
        say(
            f"{n:8d}  {'captured' if captured else 'eager':8s}  {per_epoch:8.2f}"
            f"  {per_epoch / n / run.steps_per_epoch:15.5f}  {run.captures:8d}  {bench.peak():>11s}  {per_epoch:8.1f} s"
        )

    for n, captured in itertools.product(bench.scale.packs, (False, True)):
        if bench.left() < 4 * bench.scale.cell_seconds:
            say("(out of time)")
            return
        bench.clear()
        bench.attempt(f"speed of {n} replicas", functools.partial(cell, n, captured), may_run_out=True)


def wide(bench: Bench) -> None:
    """An esr-like shape: many columns, wide layers."""
    scale = bench.scale
    architecture = Architecture(width=scale.esr_width, depth=get_card("esr").architecture.depth, batch_size=128)
    values = np.random.default_rng(0).normal(size=(scale.esr_rows, scale.esr_columns)).astype(np.float32)
    table = numerical_rows(values)
    say(f"\nesr-like ({scale.esr_rows} rows, {scale.esr_columns} columns, {architecture})")

    def cell(n: int) -> None:
        replicas = replicas_of("esr", n, architecture, epochs=20)
        run = AdaptiveBinning(replicas, table, bench.device, graphs=graphs_for(bench.device))
        per_epoch, epochs = bench.time_epochs(run, bench.scale.cell_seconds)
        say(
            f"{n:8d} replicas: {per_epoch:.1f} ms/epoch over {epochs} epochs, "
            f"{per_epoch / n / run.steps_per_epoch:.5f} ms/replica-step, {run.captures} captures, peak {bench.peak()}"
        )

    for n in scale.esr_packs:
        if bench.left() < 10 * scale.cell_seconds:
            say("(out of time)")
            return
        bench.clear()
        bench.attempt(f"esr-like, {n} replicas", functools.partial(cell, n), may_run_out=True)


def probes(bench: Bench) -> None:
    """Five probes of ten epochs for every replica of an eol-sized pack."""
    bench.clear()
    table = small_table(n_rows=2111, n_numerical=14)
    replicas = replicas_of("eol", bench.scale.probed, Architecture(width=128, depth=2, batch_size=128))
    embeddings = torch.randn(len(replicas), len(table.inputs), 128, generator=torch.Generator().manual_seed(0)).to(
        bench.device
    )
    bench.wait()
    started = time.perf_counter()
    probe(embeddings, replicas, table)
    say(
        f"\nprobes: {len(replicas)} replicas x 5 probes x 10 epochs with scores and bootstrap "
        f"in {time.perf_counter() - started:.2f} s, peak {bench.peak()}"
    )


def job(bench: Bench) -> None:
    """The real thing from two bins on, as far as the time goes."""
    if bench.left() < 5 * bench.scale.cell_seconds:
        say("(out of time)")
        return
    bench.clear()
    table, architecture = load_trace("eol").table, get_card("eol").architecture
    if bench.scale is SMALL:
        architecture = Architecture(width=16, depth=2, batch_size=128)
    started = time.perf_counter()
    replicas = replicas_of("eol", bench.scale.job, architecture, epochs=bench.scale.job_epochs)
    run = AdaptiveBinning(replicas, table, bench.device, graphs=graphs_for(bench.device))
    say(f"\njob: {len(replicas)} replicas of eol x {run.epochs} epochs, {bench.left():.0f} s left")
    told = started
    while run.epoch < run.epochs and bench.left() > 2:
        run.run_epoch()
        if time.perf_counter() - told > 15:
            told = time.perf_counter()
            say(f"  epoch {run.epoch}: {told - started:.1f} s, heads of {run.model.heads.slots} slots")
    spent = time.perf_counter() - started
    done = "done" if run.epoch == run.epochs else f"cut; at this pace {spent * run.epochs / max(run.epoch, 1):.0f} s"
    history = {name: values[:, : run.epoch] for name, values in run.history.items()}
    say(
        f"{run.epoch} epochs in {spent:.1f} s ({done}), {1000 * spent / max(run.epoch, 1):.2f} ms/epoch, "
        f"{run.captures} captures, {int((history['triggers'].sum(0) > 0).sum())} epochs with triggers, "
        f"{int((history['splits'].sum(0) > 0).sum())} with splits, bins {float(run.count.double().mean()):.1f} on "
        f"average and {int(run.count.max())} at most, loss {float(history['loss'][:, -1].mean()):.4f}, "
        f"diverged {sum(at is not None for at in run.diverged_at)}, peak {bench.peak()}"
    )


SECTIONS: tuple[Callable[[Bench], None], ...] = (
    about, check_draws, check_numbers, check_replay, check_encoder_numbers, check_encoder_replay, speed, wide, probes,
    encoder_speed, job
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run all sections within the time given."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda (default), cuda:1, or cpu to test the script")
    parser.add_argument("--seconds", type=float, default=220.0, help="time limit (default 220)")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("this benchmark needs a CUDA device and torch finds none; --device cpu runs it small", file=sys.stderr)
        return 2
    bench = Bench(device, options.seconds, SMALL if device.type == "cpu" else Scale())
    for section in SECTIONS:
        bench.attempt(section.__name__, functools.partial(section, bench))
    say(f"\n{'all checks hold' if not bench.failed else 'FAILED: ' + '; '.join(bench.failed)}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
