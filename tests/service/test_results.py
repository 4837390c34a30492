"""Result files: whole or absent, checked against their own identity, and one writer at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Budget
from adaptbin.data import get_card
from adaptbin.errors import ResourceError
from sweeps.service.panels import SensitivityStudy, get_panels
from sweeps.service.results import ResultsStore, check_record
from tests.service.fakes import fake_record

STUDY = SensitivityStudy(
    cards=(get_card("breast_cancer"),), panels=get_panels(["tau"]), seeds=(0, 1), budget=Budget(epochs=2)
)
REPLICAS = STUDY.all_replicas


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    filled = ResultsStore(tmp_path / "out")
    for replica in REPLICAS:
        filled.write(fake_record(replica))
    return filled


def without_curves(record: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in record.items() if name != "curves"}


def test_what_is_written_is_read(store: ResultsStore) -> None:
    reading = store.read(REPLICAS)
    assert list(reading.records) == [replica.id for replica in REPLICAS]
    assert reading.records[REPLICAS[0].id] == without_curves(fake_record(REPLICAS[0]))
    written = store.path("breast_cancer", REPLICAS[0].id).read_text()
    assert json.loads(written) == fake_record(REPLICAS[0])
    assert not reading.rejected
    folder = store.output / "results" / "breast_cancer"
    assert sorted(os.listdir(folder)) == sorted(f"{replica.id}.json" for replica in REPLICAS)


def test_absent_is_not_rejected(tmp_path: Path) -> None:
    reading = ResultsStore(tmp_path / "nothing").read(REPLICAS)
    assert (reading.records, reading.rejected) == ({}, {})
    (tmp_path / "file").touch()
    assert not ResultsStore(tmp_path / "file").read(REPLICAS).rejected


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_text(path.read_text()[:-40]), "Expecting|Unterminated|delimiter"),
        (lambda path: path.write_text(""), "Expecting value"),
        (lambda path: path.write_text("[]"), "must be a JSON object, got list"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "unreadable"),
        (lambda path: rewrite(path, schema=2), "schema must be 1, got 2"),
        (lambda path: rewrite(path, scores=None), "part 'scores' is missing or of the wrong kind"),
        (lambda path: rewrite(path, scores={"val": {}, "test": {}}), "all val scores must be there, got none"),
        (lambda path: rewrite(path, scores={"val": {"auc": 1.0}, "test": {}}), "all val scores must be there, got auc"),
        (lambda path: rewrite(path, bins={"final": [2]}), "part 'bins' must hold features, final, splits, triggers"),
        (lambda path: rewrite(path, status="running"), "status must be finished or diverged, got 'running'"),
        (lambda path: rewrite(path, id="0" * 24), "id must be"),
        (lambda path: rewrite(path, identity={**REPLICAS[1].identity(), "sede": 1}), "unknown key 'sede'"),
        (lambda path: rewrite(path, identity=REPLICAS[1].identity()), "with the identity of"),
        (lambda path: rewrite(path, identity={**REPLICAS[0].identity(), "method_version": 0}), "method_version"),
        (lambda path: rewrite(path, target_sd=float("nan")), "numbers must be finite, got NaN"),
    ],
)
def test_a_spoilt_file_is_named_and_counts_as_absent(store: ResultsStore, spoil: Any, reason: str) -> None:
    path = store.path("breast_cancer", REPLICAS[0].id)
    spoil(path)
    reading = store.read(REPLICAS)
    assert list(reading.records) == [replica.id for replica in REPLICAS[1:]]
    assert list(reading.rejected) == [path]
    assert re.search(reason, reading.rejected[path])


def test_what_a_power_cut_leaves_is_never_a_result(store: ResultsStore) -> None:
    """Cut anywhere, or as long as before but zeros from some place on, as file systems leave what was not synced."""
    path = store.path("breast_cancer", REPLICAS[0].id)
    whole = path.read_bytes()
    lengths = range(0, len(whole), 7)
    for spoilt in (*(whole[:n] for n in lengths), *(whole[:n] + bytes(len(whole) - n) for n in lengths)):
        path.write_bytes(spoilt)
        reading = store.read(REPLICAS[:1])
        assert list(reading.rejected) == [path]
        assert not reading.records


def test_unfinished_files_are_no_results_and_go_with_the_next_run(store: ResultsStore) -> None:
    path = store.path("breast_cancer", REPLICAS[0].id)
    whole = path.read_bytes()
    path.unlink()
    unfinished = path.with_name(f".{path.name}-x1y2z3_0.part")
    state = store.output / "checkpoints" / "0123" / "state" / ".pack.pt-77.part"
    foreign = store.output / ".notes.part.txt"
    state.parent.mkdir(parents=True)
    for file in (unfinished, state, foreign):
        file.write_bytes(whole)
    reading = store.read(REPLICAS)
    assert list(reading.records) == [replica.id for replica in REPLICAS[1:]]
    assert len(store.sample("breast_cancer")) == len(REPLICAS) - 1
    with store.lock():
        assert [file.exists() for file in (unfinished, state, foreign)] == [False, False, True]


WRITE = """
import json, sys
from pathlib import Path
from sweeps.service.results import ResultsStore
record = json.loads(sys.stdin.read())
store = ResultsStore(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    store.write(record)
"""


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path) -> None:
    """Killed at any moment of writing the same file over and over."""
    store = ResultsStore(tmp_path)
    record = fake_record(REPLICAS[0])
    for step in range(3):
        command = [sys.executable, "-c", WRITE, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdin is not None and writer.stdout is not None
            writer.stdin.write(json.dumps(record))
            writer.stdin.close()
            assert writer.stdout.readline() == "ready\n"
            while not store.path("breast_cancer", record["id"]).exists():
                time.sleep(0.001)
            time.sleep(0.0137 * step)
            writer.kill()
        assert store.read(REPLICAS).records == {record["id"]: without_curves(record)}
    with store.lock():
        assert not list(tmp_path.rglob("*.part"))


def test_only_whole_records_are_written(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    with pytest.raises(ValueError, match="part 'bins'"):
        store.write({**fake_record(REPLICAS[0]), "bins": None})
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write({**fake_record(REPLICAS[0]), "target_sd": float("inf")})
    assert not list(tmp_path.rglob("*.json*"))


def test_a_diverged_replica_needs_no_scores() -> None:
    record = {**fake_record(REPLICAS[0]), "status": "diverged", "scores": {"val": {}, "test": {}}}
    check_record(record, REPLICAS[0].id)


def test_a_write_that_fails_leaves_nothing_behind(store: ResultsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    path = store.path("breast_cancer", REPLICAS[0].id)
    before = path.read_text()
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        store.write(fake_record(REPLICAS[0]))
    assert path.read_text() == before
    assert len(os.listdir(path.parent)) == len(REPLICAS)


def test_sample_prefers_the_longest_runs(store: ResultsStore) -> None:
    longer = SensitivityStudy(cards=STUDY.cards, panels=STUDY.panels, seeds=(0,), budget=Budget(epochs=7)).all_replicas[
        0
    ]
    assert len(store.sample("breast_cancer")) == len(REPLICAS)
    store.write(fake_record(longer))
    store.path("breast_cancer", REPLICAS[0].id).write_text("{")
    assert [record["id"] for record in store.sample("breast_cancer")] == [longer.id]
    assert store.sample("eol") == []


HOLD = """
import sys, time
from pathlib import Path
from sweeps.service.results import ResultsStore
with ResultsStore(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_writer_at_a_time_and_none_after_its_death(tmp_path: Path) -> None:
    store = ResultsStore(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ResourceError, match=f"held by process {holder.pid} on .* since 20"), store.lock():
            pass
        holder.send_signal(signal.SIGKILL)
    with store.lock():  # what the dead process left in the file holds nobody up
        assert f"process {os.getpid()} " in (tmp_path / ".lock").read_text()
    with store.lock():
        pass


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="output folder must be writable, got .*file/out"):
        ResultsStore(tmp_path / "file" / "out").require_writable()
    ResultsStore(tmp_path / "new" / "out").require_writable()
    assert list((tmp_path / "new" / "out").iterdir()) == []
