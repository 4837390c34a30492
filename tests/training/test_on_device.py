"""Training on a device that is not the CPU, without one: recorded bodies never leave it, whole runs come out equal.

The bodies run on a pretend GPU, where a host read or a CPU tensor is an error; whole runs, which read results and
branch on them, on a second device that computes and does not mix with the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_map

from adaptbin import native
from adaptbin.config import Budget, EncoderName, Finetuning, PretextName, Protocol, Replica
from adaptbin.replicas import optim
from adaptbin.tasks import Task
from adaptbin.training.finetune import FineTuning
from adaptbin.training.pack import train_pack
from adaptbin.training.pretexts import PRETEXTS
from adaptbin.training.pretexts.adaptive_binning import AdaptiveBinning
from adaptbin.training.pretrain import Pretraining
from adaptbin.training.probe import _train
from tests.training.fake_device import CUDA, HostTouched, pretend_gpu
from tests.training.second_device import ELSEWHERE, MixedDevices, SecondDevice
from tests.training.tables import ARCHITECTURE, finetuned_replica, small_replica, small_table, with_missing
from tests.training.test_graphs import FakeGraph, crowd
from tests.training.test_graphs import make as make_crowd

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


@pytest.fixture(autouse=True)
def no_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the CPU's alone; what is compared here is what other devices run."""
    monkeypatch.setattr(native, "load", lambda: None)


def make(seed: int, *, depth: int = 2, dropout: float = 0.1, schedule: str = "constant", **point: Any) -> Replica:
    return small_replica(
        seed,
        point,
        architecture=replace(ARCHITECTURE, depth=depth, dropout=dropout),
        budget=Budget(epochs=3, probe_epochs=1, probes=1),
        protocol=Protocol.from_dict({"pretrain_schedule": schedule}),
    )


def on_device(run: Pretraining) -> Tensor:
    """One epoch's draws and steps of ``run`` on the pretend GPU; -> its losses there."""
    with pretend_gpu(run):
        draws = run.draws.at(1)
        n_rows = len(run.rows.inputs)
        factors = None if run.factors is None else run.factors.narrow(0, 0, run.steps_per_epoch)
        run._steps(factors, *draws.stretch(0, n_rows), run._firsts[0])
    return run.loss


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("table", TABLES)
def test_an_epoch_stays_on_the_device(table: str, masks: str, schedule: str) -> None:
    depth = 5 if table == "hfc" else 2
    replicas = [make(seed, depth=depth, schedule=schedule, **point) for seed, point in enumerate(MASKS[masks])]
    assert on_device(AdaptiveBinning(replicas, small_table(**TABLES[table]))).device == CUDA


@pytest.mark.parametrize(("seeds", "dropout"), [((0, 0), 0.1), ((0, 1), 0.0)])
def test_also_with_one_seed_or_without_dropout(seeds: tuple[int, int], dropout: float) -> None:
    replicas = [make(seed, dropout=dropout, w_sord=1.0 + r) for r, seed in enumerate(seeds)]
    assert on_device(AdaptiveBinning(replicas, small_table())).device == CUDA


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("pretext", PRETEXTS)
@pytest.mark.parametrize(("n_numerical", "cardinalities"), [(4, (2, 5)), (8, ()), (0, (3, 4))])
def test_so_does_every_pretext(
    pretext: PretextName, n_numerical: int, cardinalities: tuple[int, ...], schedule: str
) -> None:
    points = MASKS["masks"]
    replicas = [make(seed, schedule=schedule, pretext=pretext, **point) for seed, point in enumerate(points)]
    table = small_table(n_numerical=n_numerical, cardinalities=cardinalities)
    assert on_device(PRETEXTS[pretext](replicas, table)).device == CUDA
    if n_numerical:
        lacking = with_missing(table, {0: 0.3})
        assert on_device(PRETEXTS[pretext](replicas, lacking)).device == CUDA


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
    monkeypatch.setattr(optim, "clip_per_replica_", lambda gradients, limit: SINS[sin](gradients))
    with pytest.raises((HostTouched, DataDependentOutputException, DynamicOutputShapeException)):
        on_device(AdaptiveBinning([make(0), make(1)], small_table()))


# --- whole runs on a second device, where results are read and branched on


def assert_close_runs(here: AdaptiveBinning, there: AdaptiveBinning) -> None:
    """Equal up to the order of a sum: a GPU's heads are one product."""
    assert torch.equal(here.count, there.count)
    for name, values in here.history.items():
        torch.testing.assert_close(there.history[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lacking", [{}, {0: 0.3, 2: 0.5}])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_run_on_another_device_is_the_cpus_and_waits_once_per_epoch(schedule: str, lacking: dict[int, float]) -> None:
    replicas, table = crowd(schedule=schedule), with_missing(small_table(), lacking)
    here = AdaptiveBinning(replicas, table)
    with SecondDevice() as device:
        there = AdaptiveBinning(replicas, table, ELSEWHERE, graphs=FakeGraph)
        for epoch in range(24):
            capacity, waits = there.model.heads.capacity, device.waits
            here.run_epoch()
            there.run_epoch()
            waits = device.waits - waits
            fired = bool(here.history["triggers"][:, epoch].any())
            # New head rows are drawn on the CPU and sent once.
            assert waits == 1 or (fired and (waits <= 9 or there.model.heads.capacity > capacity))
    assert there.captures >= 3
    assert_close_runs(here, there)


BASELINES: list[PretextName] = ["value_recon", "mask_xent", "mask_xent_value_recon", "bin_recon"]


@pytest.mark.parametrize("lacking", [{}, {0: 0.3, 2: 0.5}])
@pytest.mark.parametrize("pretext", BASELINES)
def test_baselines_too(pretext: PretextName, lacking: dict[int, float]) -> None:
    replicas = [make_crowd(seed, pretext=pretext, **point) for seed, point in enumerate(MASKS["masks"])]
    table = with_missing(small_table(), lacking)
    here = PRETEXTS[pretext](replicas, table)
    with SecondDevice() as device:
        there = PRETEXTS[pretext](replicas, table, ELSEWHERE, graphs=FakeGraph)
        for _ in range(6):
            waits = device.waits
            here.run_epoch()
            there.run_epoch()
            assert device.waits == waits + 1
    for name, values in here.history.items():
        torch.testing.assert_close(there.history[name], values, rtol=1e-5, atol=1e-6)


def test_diverging_and_resuming_work_there_too() -> None:
    replicas, table = [*crowd(), make_crowd(3, learning_rate=1e30)], small_table()
    here = AdaptiveBinning(replicas, table)
    with SecondDevice():
        first, there = (AdaptiveBinning(replicas, table, ELSEWHERE, graphs=FakeGraph) for _ in range(2))
        for _ in range(9):
            here.run_epoch()
            first.run_epoch()
        # As a checkpoint does: saved from one device, loaded as CPU tensors.
        there.load_states([tree_map(lambda v: v.cpu() if isinstance(v, Tensor) else v, first.state())])
        for _ in range(6):
            here.run_epoch()
            there.run_epoch()
        embedded = there.embed(table.inputs).cpu()
    assert here.diverged_at == there.diverged_at and here.diverged_at[-1] is not None
    torch.testing.assert_close(embedded[:-1], here.embed(table.inputs)[:-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("task", list(Task))
def test_a_pack_from_start_to_scores_on_another_device(task: Task) -> None:
    table = small_table(task=task)
    budget = Budget(epochs=6, probe_epochs=5, probes=2)
    replicas = [replace(r, budget=budget) for r in crowd(patience=50)]
    here = train_pack(replicas, table)
    with SecondDevice():
        there = train_pack(replicas, table, device="meta")
    for ours, theirs in zip(here, there, strict=True):
        assert theirs["status"] == "finished" and theirs["bins"] == ours["bins"]
        for part in ("val", "test"):
            assert theirs["scores"][part] == pytest.approx(ours["scores"][part], rel=1e-3)


@pytest.mark.parametrize("encoder", get_args(EncoderName))
def test_every_encoder_is_pretrained_there(encoder: EncoderName) -> None:
    """Not on the pretend GPU: autograd asks for a real one as soon as a tensor says it is there."""
    table = small_table()
    replicas = [finetuned_replica(seed, "value_recon", encoder=encoder) for seed in (0, 1, 1)]
    here = PRETEXTS["value_recon"](replicas, table)
    with SecondDevice() as device:
        there = PRETEXTS["value_recon"](replicas, table, ELSEWHERE, graphs=FakeGraph)
        for _ in range(4):
            waits = device.waits
            here.run_epoch()
            there.run_epoch()
            assert device.waits == waits + 1
    for name, values in here.history.items():
        torch.testing.assert_close(there.history[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoder", get_args(EncoderName))
def test_fine_tuning_waits_once_per_epoch(encoder: EncoderName) -> None:
    table = small_table()
    settings = Finetuning(epochs=6, learning_rate=1e-2)
    replicas = [finetuned_replica(seed, encoder=encoder, finetuning=settings) for seed in range(3)]
    here = FineTuning(replicas, table)
    with SecondDevice() as device:
        there = FineTuning(replicas, table, ELSEWHERE, graphs=FakeGraph)
        for epoch in range(6):
            waits = device.waits
            here.run_epoch()
            there.run_epoch()
            # Rows that got better are read with the epoch's one report, and sent back as an index.
            assert device.waits - waits <= 2 or epoch == 0
        assert there._steps.captures == 1
        scores = there.scores()
    for name, values in here.history.items():
        torch.testing.assert_close(there.history[name], values, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(here.scores(), scores, strict=True):
        assert theirs.heads[0]["test"] == pytest.approx(ours.heads[0]["test"], rel=1e-2)


def test_training_a_probe_waits_for_nothing() -> None:
    """More epochs and steps, no more waits; the first run also fills caches of constants."""
    table = small_table()
    embeddings = torch.randn(2, len(table.inputs), 16, generator=torch.Generator().manual_seed(0))
    waits = []
    with SecondDevice() as device:
        for epochs in (1, 2, 6):
            replicas = [replace(r, budget=Budget(epochs=1, probe_epochs=epochs, probes=2)) for r in crowd()[:2]]
            before = device.waits
            _train(embeddings.to(ELSEWHERE), replicas, table)
            waits.append(device.waits - before)
    assert waits[1] == waits[2]


def test_mixing_devices_is_noticed() -> None:
    with SecondDevice() as device:
        there = torch.arange(6.0, device=ELSEWHERE)
        assert float((there * 2 + torch.tensor(1.0))[1]) == 3.0 and device.waits == 1
        for sin in (lambda: there + torch.ones(6), lambda: there[torch.tensor([1])], lambda: torch.ones(6).add_(there)):
            with pytest.raises(MixedDevices):
                sin()
