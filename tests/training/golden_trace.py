"""The released code's 60-epoch traces, set up as replicas of ours: given weights, given batch orders, no dropout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica
from adaptbin.data.encode import EncodedRows
from adaptbin.encoders.mlp import decoder_blocks
from adaptbin.training.draws import Draws, EpochDraws
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning

GOLDEN = Path(__file__).parents[1] / "golden"
SETTINGS: dict[str, dict[str, Any]] = {
    "eol": dict(batch_size=128, depth=2, patience=2, tau=1e-4, w_sord=10.0, w_mse=0.1, w_var=0.001),
    "hfc": dict(batch_size=64, depth=5, patience=2, tau=1e-5, w_sord=1.0, w_mse=0.5, w_var=0.1),
}
TRACE_SLOTS = 64


@dataclass
class Trace:
    name: str
    arrays: dict[str, np.ndarray]
    table: EncodedRows

    def replica(self, seed: int, **changes: Any) -> Replica:
        """The trace's own settings, or a pack mate that differs from it."""
        settings = dict(SETTINGS[self.name])
        architecture = Architecture(
            width=32, depth=settings.pop("depth"), batch_size=settings.pop("batch_size"), dropout=0.0
        )
        point = Hyperparameters(**({**settings, "learning_rate": 1e-3, "t_init": 2, "t_max": 64} | changes))
        return Replica(
            dataset=self.name,
            fingerprint="trace",
            architecture=architecture,
            hyperparameters=point,
            seed=seed,
            protocol=Protocol.named("released"),
            budget=Budget(epochs=60, probe_epochs=1, probes=1),
        )


def load_trace(name: str) -> Trace:
    with np.load(GOLDEN / f"trace_{name}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    n_numerical = len(arrays["numerical"])
    inputs = torch.from_numpy(arrays["x_train"])
    cards = [int(c) for c in arrays["x_train"][:, n_numerical:].max(0) + 1]
    for j in range(len(cards)):
        assert arrays[f"init.cat_heads.{j}.weight"].shape[0] == cards[j]
    table = EncodedRows(
        inputs=inputs,
        numerical_names=tuple(f"x{d}" for d in range(n_numerical)),
        categorical_names=tuple(f"c{j}" for j in range(len(cards))),
        cardinalities=tuple(cards),
        train=torch.arange(len(inputs)),
    )
    return Trace(name, arrays, table)


class TraceDraws(EpochDraws):
    """Batch orders of the trace for one seed, our own streams for the others."""

    def __init__(self, replicas: list[Replica], trace: Trace, seed: int) -> None:
        first = replicas[0]
        super().__init__(
            [r.seeds.pretrain for r in replicas],
            trace.table,
            first.architecture,
            torch.device("cpu"),
            decoder_blocks=decoder_blocks(first.architecture, first.protocol),
            is_masked=any(r.hyperparameters.mask_prob > 0 for r in replicas),
        )
        self._trace, self._seed = trace, seed

    def at(self, epoch: int) -> Draws:
        drawn = super().at(epoch)
        given = self._trace.arrays["batch_order"][epoch].astype(np.int64)
        drawn.order[self.seeds.index(self._seed)] = torch.from_numpy(given)
        return drawn


def set_weights(run: AdaptiveBinning, r: int, trace: Trace) -> None:
    """Copy the trace's initial weights into replica ``r``; the heads have room for all 64 columns."""
    given = {key[5:]: torch.from_numpy(value) for key, value in trace.arrays.items() if key.startswith("init.")}
    model = run.model
    model.reserve(TRACE_SLOTS)
    bank = model.bank
    for part in (model.encoder, model.decoder):
        for i in range(len(part.sizes) - 1):
            bank.view(f"{part.name}.{i}.weight")[r] = given[f"{part.name}.{2 * i}.weight"].t()
            bank.view(f"{part.name}.{i}.bias")[r] = given[f"{part.name}.{2 * i}.bias"]
    heads = model.heads
    weight, bias = bank.view("heads.weight")[r], bank.view("heads.bias")[r]
    for j, levels in enumerate(trace.table.cardinalities):
        rows = torch.arange(levels) * model.n_categorical + j
        weight[rows], bias[rows] = given[f"cat_heads.{j}.weight"], given[f"cat_heads.{j}.bias"]
    for d in range(model.n_numerical):
        rows = heads.fixed + torch.arange(TRACE_SLOTS) * model.n_numerical + d
        weight[rows], bias[rows] = given[f"num_heads.{d}.weight"], given[f"num_heads.{d}.bias"]
    run._fit_heads()


def run_trace(
    trace: Trace, replicas: list[Replica], seed: int, position: int, epochs: int = 60
) -> tuple[AdaptiveBinning, np.ndarray]:
    """Train a pack in which replica ``position`` is the trace's; -> the run and its bins after every epoch [E, D]."""
    run = AdaptiveBinning(replicas, trace.table, draws=TraceDraws(replicas, trace, seed))
    set_weights(run, position, trace)
    bins = []
    for _ in range(epochs):
        run.run_epoch()
        bins.append(run.bins.n_bins[position].numpy().copy())
    return run, np.stack(bins)
