"""Stand-ins for training: records in no time, and a listener that writes down what it hears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adaptbin.config import Replica
from adaptbin.data import CARDS
from adaptbin.metrics import metrics_of
from adaptbin.tasks import Task
from sweeps.service.plan import Pack
from sweeps.service.work import Failure

if TYPE_CHECKING:
    from adaptbin.training.pack import PackProgress


def fake_record(replica: Replica) -> dict[str, Any]:
    """A whole record whose scores depend on the replica's id alone."""
    score = 0.5 + int(replica.id[:4], 16) / 2**18
    task = CARDS[replica.dataset].task if replica.dataset in CARDS else Task.BINARY  # that of own tables in tests
    scores = dict.fromkeys(metrics_of(task), score)
    return {
        "schema": 1,
        "id": replica.id,
        "identity": replica.identity(),
        "status": "finished",
        "diverged_at": None,
        "scores": {"val": scores, "test": scores},
        "probes": [{"best_epoch": 1, "val": scores, "test": scores}],
        "test_bootstrap_se": dict.fromkeys(scores, 0.01),
        "n_rows": {"train": 364, "val": 91, "test": 114},
        "target_sd": 1.0,
        "bins": {"features": ["a"], "final": [4], "triggers": 3, "splits": 2},
        "curves": {"epoch": [0], "loss": [1.0], "mean_bins": [2.0], "max_bins": [2], "splits": [0]},
        "unseen": {},
        "runtime": {"seconds": 0.5, "core_seconds": 0.5, "device": "cpu", "threads": 1, "pack_size": 1},
    }


def progress_at(epoch: int, epochs: int, replicas: int = 1) -> PackProgress:
    """A report of the pretraining."""
    from adaptbin.training.pack import PackProgress  # torch: the simulation's workers do without

    return PackProgress("pretrain", epoch, epochs, replicas, 0, 1.0, 2.0)


def fake_train(
    replicas: Sequence[Replica], table: Any, *, device: str, checkpoint: Any, progress: Any
) -> list[dict[str, Any]]:
    """Same signature as ``train_pack``."""
    for epoch in range(replicas[0].budget.epochs):
        progress(progress_at(epoch + 1, replicas[0].budget.epochs, len(replicas)))
    return [fake_record(replica) for replica in replicas]


@dataclass
class Hearing:
    """A listener that keeps everything."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    finished_packs: list[Pack] = field(default_factory=list)
    failures: list[tuple[Pack, Failure]] = field(default_factory=list)
    workers: list[tuple[Pack, Mapping[str, Any]]] = field(default_factory=list)
    retries: list[tuple[Pack, str]] = field(default_factory=list)
    reports: int = 0

    def progress(self, pack: Pack, progress: PackProgress) -> None:
        self.reports += 1

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        self.finished_packs.append(pack)
        self.records.update({record["id"]: record for record in records})

    def began(self, pack: Pack, worker: Mapping[str, Any]) -> None:
        self.workers.append((pack, worker))

    def failed(self, pack: Pack, failure: Failure) -> None:
        self.failures.append((pack, failure))

    def retried(self, pack: Pack, reason: str) -> None:
        self.retries.append((pack, reason))
