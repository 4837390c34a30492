"""Fine-tuning of every encoder on a GPU: that it is what the CPU computes, that replayed graphs are, and how fast.

Sections of :mod:`tests.benchmarks.gpu`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import torch

from adaptbin.config import EncoderName, Finetuning, Replica
from adaptbin.training.finetune import FineTuning
from adaptbin.training.graphs import graphs_for
from tests.benchmarks.gpu_bench import SMALL, Bench, say
from tests.benchmarks.shapes import eol_like
from tests.training.tables import finetuned_replica, small_table

ENCODERS: tuple[EncoderName, ...] = get_args(EncoderName)


def _pack(encoder: EncoderName, epochs: int) -> list[Replica]:
    """Three small replicas from scratch."""
    settings = Finetuning(epochs=epochs, learning_rate=1e-3)
    return [finetuned_replica(seed, encoder=encoder, finetuning=settings) for seed in range(3)]


def check_encoder_numbers(bench: Bench) -> None:
    """Two epochs of a small pack on the CPU and on the device: losses agree to rounding."""
    table = small_table(n_rows=402)
    for encoder in ENCODERS:
        replicas = _pack(encoder, 2)
        here, there = FineTuning(replicas, table), FineTuning(replicas, table, bench.device)
        for _ in range(2):
            here.run_epoch()
            there.run_epoch()
        apart = float(((here.history["loss"] - there.history["loss"]).abs() / here.history["loss"].abs()).max())
        bench.check(f"2 epochs of {encoder} on the device are the CPU's", apart < 1e-3, f"losses differ by {apart:.1e}")


def check_encoder_replay(bench: Bench) -> None:
    """Replaying recorded graphs gives the bits of launching every kernel, with every encoder."""
    table = small_table(n_rows=402)
    for encoder in ENCODERS:
        replicas = _pack(encoder, 6)
        runs = [
            FineTuning(replicas, table, bench.device),
            FineTuning(replicas, table, bench.device, graphs=graphs_for(bench.device)),
        ]
        for run, _ in itertools.product(runs, range(6)):
            run.run_epoch()
        eager, replayed = (_outcome(run) for run in runs)
        equal = all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
        recorded = runs[1].captures > 0 or bench.device.type == "cpu"
        detail = f"{runs[1].captures} captures of steps"
        bench.check(f"6 epochs of {encoder} replayed are those launched, bit for bit", equal and recorded, detail)


def _outcome(run: FineTuning) -> Sequence[torch.Tensor]:
    # A curve is nan after a replica has left.
    return (run.best_values, run.best_epoch, *(held.nan_to_num() for held in run.history.values()))


def encoder_speed(bench: Bench) -> None:
    """The eol table: packs of every encoder with its usual settings, captured."""
    table = eol_like(300 if bench.scale is SMALL else 0)
    usual = table.card.architecture
    say(f"\nfine-tuning eol ({len(table.train)} rows, batches of {usual.batch_size})")
    say("encoder         replicas  ms/epoch  ms/replica-step  peak memory  100 epochs")

    def cell(encoder: EncoderName, n: int) -> None:
        architecture = replace(usual, encoder=encoder)
        if bench.scale is SMALL:
            small: Any = _pack(encoder, 1)[0].architecture.encoder_settings
            architecture = replace(architecture, encoder_settings=small)
        replicas = [
            replace(_pack(encoder, 100)[0], architecture=architecture, fingerprint=table.fingerprint, seed=seed)
            for seed in range(n)
        ]
        run = FineTuning(replicas, table, bench.device, graphs=graphs_for(bench.device))
        per_epoch, _ = bench.time_epochs(run, bench.scale.cell_seconds)
        per_step = per_epoch / n / run.steps_per_epoch
        say(f"{encoder:14s}  {n:8d}  {per_epoch:8.2f}  {per_step:15.5f}  {bench.peak():>11s}  {per_epoch / 10:8.1f} s")

    for encoder, n in itertools.product(ENCODERS, bench.scale.tuned_packs):
        if bench.left() < 4 * bench.scale.cell_seconds:
            say("(out of time)")
            return
        bench.clear()
        bench.attempt(f"{encoder}, {n} replicas", functools.partial(cell, encoder, n), may_run_out=True)
