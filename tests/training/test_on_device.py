"""The recorded bodies never leave the device: run on a pretend GPU, where a host read or a CPU tensor is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from adaptbin.config import Architecture, Budget, Hyperparameters, Protocol, Replica
from adaptbin.training import pretrain
from adaptbin.training.pretrain import Pretraining
from tests.training.fake_device import CUDA, HostTouched, pretend_gpu
from tests.training.tables import small_table

TABLES: dict[str, dict[str, Any]] = {
    "eol": dict(n_rows=500, n_numerical=14, cardinalities=(3, 2)),
    "hfc": dict(n_rows=299, n_numerical=7, cardinalities=(2, 2, 2, 2, 2)),
    "numbers only": dict(n_rows=130, n_numerical=3, cardinalities=()),
    "categories only": dict(n_rows=130, n_numerical=0, cardinalities=(2, 5)),
}
MASKS: dict[str, list[dict[str, Any]]] = {
    "no masks": [{}, {}],
    "masks": [{"masking": "random", "mask_prob": 0.3}, {"masking": "constant", "mask_prob": 0.1}],
}


def make(seed: int, *, depth: int = 2, dropout: float = 0.1, schedule: str = "constant", **point: Any) -> Replica:
    return Replica(
        dataset="eol",
        fingerprint="small-0",
        architecture=Architecture(width=16, depth=depth, batch_size=64, dropout=dropout),
        hyperparameters=Hyperparameters(**point),
        seed=seed,
        budget=Budget(epochs=3, probe_epochs=1, probes=1),
        protocol=Protocol.from_dict({"pretrain_schedule": schedule}),
    )


def on_device(run: Pretraining) -> Tensor:
    """One epoch's draws and steps of ``run`` on the pretend GPU; -> its losses there."""
    with pretend_gpu(run):
        draws = run.draws.at(1)
        n_rows = run.inputs.shape[0]
        factors = None if run.factors is None else run.factors.narrow(0, 0, run.steps_per_epoch)
        run._steps(factors, *draws.stretch(0, n_rows))
    return run.loss


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("table", TABLES)
def test_an_epoch_stays_on_the_device(table: str, masks: str, schedule: str) -> None:
    depth = 5 if table == "hfc" else 2
    replicas = [make(seed, depth=depth, schedule=schedule, **point) for seed, point in enumerate(MASKS[masks])]
    assert on_device(Pretraining(replicas, small_table(**TABLES[table]))).device == CUDA


@pytest.mark.parametrize(("seeds", "dropout"), [((0, 0), 0.1), ((0, 1), 0.0)])
def test_also_with_one_seed_or_without_dropout(seeds: tuple[int, int], dropout: float) -> None:
    replicas = [make(seed, dropout=dropout, w_sord=1.0 + r) for r, seed in enumerate(seeds)]
    assert on_device(Pretraining(replicas, small_table())).device == CUDA


SINS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: bool((x > 0).any()),
    "list": lambda x: x[0].tolist(),
    "nonzero": lambda x: torch.ops.aten.nonzero.default(x),
    "mask as index": lambda x: x[x > 0],
    "read": lambda x: x.cpu(),
    "number from the host": lambda x: x + torch.tensor(1.0),
    "tensor from the host": lambda x: x + torch.zeros(x.shape),
    "new tensor with contents": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "unknown length": lambda x: x[0].to(torch.int64).repeat_interleave(x[0].to(torch.int64)),
}


@pytest.mark.parametrize("sin", SINS)
def test_a_step_that_leaves_the_device_is_noticed(sin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "clip_per_replica_", lambda gradients, limit: SINS[sin](gradients))
    with pytest.raises((HostTouched, DataDependentOutputException, DynamicOutputShapeException)):
        on_device(Pretraining([make(0), make(1)], small_table()))
