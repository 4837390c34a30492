"""A real sweep, killed in different ways at random moments and continued by the same command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import Kill, Run, lock_is_free, plan_kills, results, survive

WORDS = "--dataset breast_cancer --epochs 60 --probes 1 --probe-epochs 2 --panel tau --seeds 3".split()

COUNT = "ADAPTBIN_KILLS"
"""Environment variable: number of kills at random moments; by default the few below."""

FEW = [
    Kill("gcs_server", "training", 0.1),
    Kill("actor", "training", 0.1),
    Kill("group", "writing", 0.0),
]


# MLflow 3.17 uses a loader strategy that SQLAlchemy 2.1 deprecates.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
@pytest.mark.slow
def test_kills_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get(COUNT, "0"))
    rows: list[str] = []
    survive(WORDS, tmp_path, plan_kills(count, 0) if count else FEW, rows.append)
    with capsys.disabled():
        print("", *rows, sep="\n")
    assert len(rows) == 1 + (count or len(FEW))


@pytest.mark.slow
def test_long_names_and_other_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets have short names wherever output and temporary files lie, and no cluster is joined unless asked."""
    deep = tmp_path.joinpath(*["a folder with a rather long name, as people have them"] * 3)
    temporary = deep / "temporary"
    temporary.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("RAY_ADDRESS", "203.0.113.1:6379")
    words = "--dataset breast_cancer --epochs 2 --probes 1 --probe-epochs 2 --panel tau --seeds 1".split()
    run = Run(words, deep / "out")
    assert run.process.wait(timeout=120) == 0, run.said
    assert len(results(deep / "out")) == 5
    assert run.left() == []
    assert lock_is_free(deep / "out")
