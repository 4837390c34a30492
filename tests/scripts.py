"""Whole runs of scripts in this process: a runner that writes down what it is asked for, and the results they leave."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.service.local import InProcessRunner
from sweeps.service.nodes import Node
from sweeps.service.plan import Resources
from sweeps.service.work import Job, Listener
from tests.service.fakes import fake_train


class CountingRunner(InProcessRunner):
    """Keeps what it was asked to train."""

    def __init__(self, train: Any = fake_train, workers: int = 1) -> None:
        super().__init__(train)
        self.jobs: list[Job] = []
        self._workers = workers

    def nodes(self, resources: Resources) -> list[Node]:
        return [replace(node, cores=self._workers * resources.cpus) for node in super().nodes(resources)]

    def run(self, job: Job, listener: Listener) -> int | None:
        self.jobs.append(job)
        return super().run(job, listener)

    @property
    def seeds(self) -> list[list[int]]:
        """Per job the seeds of its replicas."""
        return [sorted({replica.seed for pack in job.packs for replica in pack.replicas}) for job in self.jobs]


def results(output: Path, dataset: str = "breast_cancer") -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (output / "results" / dataset).glob("*.json")}


def comparable(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Everything but when, where and how fast."""
    return {name: {k: v for k, v in record.items() if k != "runtime"} for name, record in records.items()}
