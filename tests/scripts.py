"""Whole runs of scripts in this process: a runner that writes down what it is asked for, and the results they leave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.config import Replica
from adaptbin.errors import ConfigError
from sweeps.service.estimate import Speed, work_of
from sweeps.service.kinds import Work
from sweeps.service.local import InProcessRunner
from sweeps.service.nodes import Node
from sweeps.service.plan import Plan, Resources
from sweeps.service.steering import Request, ask
from sweeps.service.work import Job, Listener
from tests.service.fakes import fake_record, fake_train, progress_at

if TYPE_CHECKING:
    from mlflow.entities import Run

SHORT = "--dataset breast_cancer --preset quick --epochs 2 --probe-epochs 2 --probes 2"


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


def at_twelve_seconds(plan: Plan, *_: Any, **__: Any) -> dict[Work, Speed]:
    """In place of ``speeds``: every replica takes twelve seconds."""
    return {work_of(pack): Speed(0.0, 12.0, "a test of") for pack in plan.packs}


class Asking:
    """Training that goes on while requests are made of the sweep from another thread, one after the other."""

    def __init__(self, output: Path, *requests: tuple[str, str, float]) -> None:
        self._output = output
        self._requests = requests
        self.answers: list[str] = []
        """One per request; what was refused begins so."""

    def train(self, replicas: Any, table: Any, *, progress: Any, **settings: Any) -> list[dict[str, Any]]:
        """Same signature as ``train_pack``; the first pack lasts until all is answered."""
        if not self.answers:
            thread = threading.Thread(target=self._ask)
            thread.start()
            while thread.is_alive():  # as training does, with a report now and then
                thread.join(0.6)
                progress(progress_at(1, 2, len(replicas)))
        return fake_train(replicas, table, progress=progress, **settings)

    def _ask(self) -> None:
        for request in self._requests:
            verb, name, value = request
            try:
                answer = ask(self._output, Request(verb, name, value))  # type: ignore[arg-type]
            except ConfigError as error:
                answer = f"refused: {error}"
            self.answers.append(answer)


def diverging(is_lost: Callable[[Replica], bool]) -> InProcessRunner:
    """A runner under which some replicas diverge."""

    def train(replicas: Any, *arguments: Any, **settings: Any) -> list[dict[str, Any]]:
        records = [fake_record(replica) for replica in replicas]
        for replica, record in zip(replicas, records, strict=True):
            if is_lost(replica):
                record |= {"status": "diverged", "diverged_at": 1, "test_bootstrap_se": {}}
                record["scores"] = {"val": {}, "test": {}}
        return records

    return InProcessRunner(train)


def run(script: Any, words: str, output: Path, runner: InProcessRunner | None = None) -> int:
    """Exit code of a script; nothing is trained in earnest unless ``runner`` does."""
    arguments = [*words.split(), "--output", str(output)]
    return script.main(arguments, runner=runner or InProcessRunner(fake_train))  # type: ignore[no-any-return]


def check_rebuild(script: Any, words: str, output: Path, folder: Path) -> None:
    """Tables and figures that were deleted are made again, the same, from the results alone."""

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}

    assert run(script, words, output) == 0
    before = files()
    for path in folder.iterdir():
        path.unlink()
    runner = CountingRunner()
    assert run(script, f"{words} --rebuild", output, runner) == 0
    assert (runner.jobs, files()) == ([], before)


def check_refused(script: Any, words: str, message: str, output: Path, capsys: Any) -> None:
    """One line that holds ``message``, and nothing trained or written."""
    runner = CountingRunner()
    assert run(script, words, output, runner) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: ") and message in shown.err and shown.err.count("\n") == 1
    assert (shown.out, runner.jobs, output.exists()) == ("", [], False)


def runs_in_mlflow(output: Path, dataset: str = "breast_cancer") -> dict[str, list[Run]]:
    """Kind ("study", "point", "replica") -> the runs of it that the output's store shows."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{output}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name(f"adaptbin/{dataset}").experiment_id])
    kinds = ("study", "point", "replica")
    assert {run.data.tags["adaptbin.kind"] for run in runs} == set(kinds)
    return {kind: [run for run in runs if run.data.tags["adaptbin.kind"] == kind] for kind in kinds}


def artifacts_in_mlflow(output: Path, run: Run) -> set[str]:
    """Names of a run's artifacts."""
    from mlflow import MlflowClient

    return {file.path for file in MlflowClient(f"sqlite:///{output}/mlflow.db").list_artifacts(run.info.run_id)}
