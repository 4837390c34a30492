"""Jobs in fresh processes, alone or side by side: one thread each, and memory that is nobody else's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from tests.benchmarks.machine import ROOT
from tests.benchmarks.measure import Job, Measurement

Measure = Callable[[Sequence[Job]], list[Measurement]]
"""Runs jobs at the same time; -> their measurements in order."""


def in_children(jobs: Sequence[Job]) -> list[Measurement]:
    """Each job in a process of its own; all begin training when the last is set up.

    Raises RuntimeError as :func:`answers` does.
    """
    return [Measurement(**found) for found in answers("tests.benchmarks.measure", jobs)]


def answers(module: str, jobs: Sequence[Any]) -> list[dict[str, Any]]:
    """What ``python -m module '<job as JSON>'`` prints of each job, in a process of its own; all begin together.

    Raises RuntimeError when a process fails; what it wrote is on our standard error.
    """
    children = [_start(module, job) for job in jobs]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise RuntimeError("a benchmark process ended before it was set up")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        texts = [child.communicate()[0] for child in children]
        if any(child.returncode for child in children):
            raise RuntimeError("a benchmark process failed")
        return [json.loads(text.splitlines()[-1]) for text in texts]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()


def _start(module: str, job: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(asdict(job))],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
