"""A sweep as a Ray job: submitted with one script as its working directory, stopped, and submitted again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import REPOSITORY, Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_a_job_stopped_and_submitted_again(tmp_path: Path) -> None:
    scripts, output = tmp_path / "scripts", tmp_path / "output"
    scripts.mkdir()
    shutil.copy(REPOSITORY / "sweeps" / "sensitivity.py", scripts)
    script = "sensitivity.py --dataset breast_cancer --panel tau --seeds 2 --epochs 400 --probe-epochs 2 --probes 1"
    command = [sys.executable, *script.split(), "--pack", "5", "--address", "auto", "--output", str(output)]
    with Cluster(head_with={"cpus": 1}, dashboard=True) as cluster:
        (url,) = set(re.findall(r"http://127\.0\.0\.1:\d+", cluster.head.log))

        def job(*words: str) -> subprocess.CompletedProcess[str]:
            ray = [sys.executable, "-m", "ray.scripts.scripts", "job", words[0], "--address", url, *words[1:]]
            return subprocess.run(ray, env=cluster.environment(), capture_output=True, text=True, timeout=120.0)

        def submit(name: str, *options: str, entry: list[str]) -> subprocess.CompletedProcess[str]:
            patience = json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}})
            where = ["--working-dir", str(scripts), "--runtime-env-json", patience, "--submission-id", name]
            return job("submit", *where, *options, "--", *entry)

        refused = submit("refused", entry=[*command, "--cpus-per-pack", "64"])
        assert refused.returncode == 1
        assert "exit code 2" in refused.stdout
        assert "a pack must fit on one machine, got 64 cores per pack" in refused.stdout

        assert submit("first", "--no-wait", entry=command).returncode == 0
        wait_until(lambda: list((output / "checkpoints").glob("*/pack.pt")), "a checkpoint")
        stopped = job("stop", "first")
        assert "was stopped" in stopped.stdout, stopped.stdout + stopped.stderr
        wait_until(lambda: not cluster.head.actors, "the end of all actors", 10.0)
        assert "the same command continues from there" in job("logs", "first").stdout
        assert "RUNNING" not in statuses(output)

        again = submit("again", entry=command)
        assert again.returncode == 0, again.stdout
    records = [json.loads(path.read_text()) for path in output.glob("results/*/*.json")]
    assert len(records) == 10
    assert any(record["runtime"]["resumed_epoch"] > 0 for record in records)
    assert statuses(output) == {"FINISHED"}


def statuses(output: Path) -> set[Any]:
    """Of all MLflow runs."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{output}/mlflow.db")
    found = {r.info.status for e in client.search_experiments() for r in client.search_runs([e.experiment_id])}
    assert found
    return found
