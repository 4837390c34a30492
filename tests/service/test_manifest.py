"""The manifest: where a number comes from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from adaptbin.config import ENCODER_VERSIONS, Budget
from adaptbin.data import get_card
from sweeps.service import manifest as module
from sweeps.service.manifest import available_cores, git_state, hardware, manifest, training_seconds, versions
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.panels import SensitivityStudy, get_panels
from tests.service.fakes import fake_record

STUDY = SensitivityStudy(
    cards=(get_card("breast_cancer"),), panels=get_panels(["tau"]), seeds=(0, 1), budget=Budget(epochs=2)
)


def test_it_tells_where_its_numbers_come_from() -> None:
    records = [fake_record(replica) for replica in STUDY.all_replicas[:7]]
    records[0] = {**records[0], "status": "diverged"}
    records[1]["runtime"] |= {"host": {"cpu": "another"}}
    told = manifest(STUDY, records, options={"preset": "quick"}, run_seconds=12.34, trained=3)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["replicas"] == {"asked": 10, "found": 7, "diverged": 1, "trained_by_this_run": 3}
    assert (told["run_seconds"], told["core_seconds"]) == (12.3, 3.5)
    assert told["tables"] == {"breast_cancer": {**get_card("breast_cancer").summary(), "unseen_categories": {}}}
    assert told["panels"] == {"tau": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]}
    assert told["options"] == {"preset": "quick"}
    assert [machine["host"] for machine in told["trained_on"]] == [None, {"cpu": "another"}]
    assert told["versions"] == versions() and told["encoder_versions"] == {}
    tuned = FinetuneStudy(cards=STUDY.cards, seeds=(0,))
    told = manifest(tuned, [], options={}, run_seconds=0.0, trained=0)
    assert told["encoder_versions"] == ENCODER_VERSIONS, "all encoders are trained"


def test_training_seconds_is_the_time_in_which_something_was_trained() -> None:
    def packs(*times: tuple[str, str]) -> list[dict[str, dict[str, str]]]:
        return [
            {"runtime": {"started_at": f"2026-01-01T00:{a}Z", "finished_at": f"2026-01-01T00:{b}Z"}} for a, b in times
        ]

    assert (
        training_seconds(packs(("00:00", "01:00"), ("00:30", "02:00"), ("00:40", "00:50"), ("10:00", "10:05"))) == 125
    )
    assert training_seconds([]) == 0.0
    assert training_seconds([{"runtime": {}}]) == 0.0


def test_git_state_is_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "checkout" / "adaptbin"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setattr(module.adaptbin, "__file__", str(package / "__init__.py"))
    monkeypatch.delenv("ADAPTBIN_GIT_SHA", raising=False)
    assert git_state() == {"sha": None, "dirty": None}

    def git(*words: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        done = subprocess.run(["git", *identity, *words], cwd=package, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "empty")
    assert git_state() == {"sha": None, "dirty": None}  # some repository, but not one that holds this package
    git("add", ".")
    git("commit", "--quiet", "--message", "package")
    assert git_state() == {"sha": git("rev-parse", "HEAD"), "dirty": False}
    (package / "new.py").touch()
    assert git_state()["dirty"] is True
    monkeypatch.setenv("PATH", "")
    assert git_state() == {"sha": None, "dirty": None}


def test_git_state_of_an_installed_copy_is_what_its_image_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.adaptbin, "__file__", str(tmp_path / "__init__.py"))
    for built, state in (
        ("1f2e", {"sha": "1f2e", "dirty": False}),
        ("1f2e-dirty", {"sha": "1f2e", "dirty": True}),
        ("", {"sha": None, "dirty": None}),
    ):
        monkeypatch.setenv("ADAPTBIN_GIT_SHA", built)
        assert git_state() == state


def test_this_machine() -> None:
    assert available_cores() >= 1
    assert hardware() == {"cpu": hardware()["cpu"], "cores": available_cores(), "gpu": None}
    assert hardware()["cpu"]
    assert {"python", "torch", "numpy", "adaptbin"} <= versions().keys()
