"""Choices of the protocol, given one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Protocol
from sweeps import ablation, architecture, benchmark, finetune, masking, report, search, sensitivity, variance
from sweeps.service import planner
from sweeps.service.switches import protocol_of
from tests.scripts import at_twelve_seconds
from tests.scripts import run as run_script

SCRIPTS: dict[Any, set[str]] = {
    sensitivity: {"br_bins", "br_categorical"},
    masking: {"br_bins", "br_categorical"},
    ablation: {"br_bins", "br_categorical"},
    variance: {"br_bins", "br_categorical"},
    search: {"br_bins", "br_categorical"},
    benchmark: set(),
    finetune: {"probe_schedule"},
    architecture: set(Protocol.choices()) - {"label_order", "unseen_category"},
}
"""Script -> choices that nothing in it reads."""


UNREAD = [(script, switch) for script, switches in SCRIPTS.items() for switch in sorted(switches)]


@pytest.fixture(autouse=True)
def no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "speeds", at_twelve_seconds)


def plan(script: Any, words: str, output: Path) -> int:
    return run_script(script, f"--dataset breast_cancer --preset quick --seeds 2 {words} --plan", output)


@pytest.mark.parametrize(("script", "switch"), UNREAD, ids=lambda of: getattr(of, "__name__", of))
def test_what_nothing_reads_is_refused(
    script: Any, switch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = Protocol.choices()[switch][-1]
    assert plan(script, f"--switch {switch}={value}", tmp_path / "out") == 2
    assert f" reads {switch}, got {switch}={value}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_what_something_reads_is_taken(script: Any, tmp_path: Path) -> None:
    read = sorted(set(Protocol.choices()) - SCRIPTS[script] - {"br_bins", "pretrain_schedule"})
    words = " ".join(f"--switch {switch}={Protocol.choices()[switch][-1]}" for switch in read)
    assert len(read) >= 2 and plan(script, words, tmp_path / "out") == 0


def test_the_report_takes_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"protocol": "released", "switch": (("decoder_depth", "encoder"), ("bin_cap", "best"))}
    assert protocol_of(given).decoder_depth == "encoder" and protocol_of(given).bin_cap == "best"
    assert report.main(["--dataset", "eol", "--results", str(tmp_path), "--switch", "decoder_depth=two"]) == 2
    assert "decoder_depth must be one of one, encoder, got 'two'" in capsys.readouterr().err
