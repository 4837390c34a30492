"""Asking a sweep under way for its status, for more points, for less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptbin.errors import ConfigError, ResourceError
from sweeps.service import control, steering
from sweeps.service.results import ResultsStore
from sweeps.service.steering import Request, Steering, ask, read_status
from tests.service.steered import STATUS, Sweeping, answer


def test_requests_are_answered_one_by_one(tmp_path: Path) -> None:
    with Sweeping(tmp_path) as sweep:
        assert ask(tmp_path, Request("add", "tau", 0.003)) == "done: add tau=0.003"
        assert ask(tmp_path, Request("cancel", "tau", 0.1)) == "done: cancel tau=0.1"
        with pytest.raises(ConfigError, match="no: tau=-1"):
            ask(tmp_path, Request("add", "tau", -1.0))
        status = read_status(tmp_path)
        assert status is not None and status["progress"] == "1/2" and status["age_seconds"] < 60
    assert [change.withdrawn for change in sweep.changes] == [{"tau=0.003"}, {"tau=0.1"}]
    assert read_status(tmp_path) is None
    with pytest.raises(ResourceError, match="a sweep must be running there, got"):
        ask(tmp_path, Request("add", "tau", 0.003))
    assert (
        list((tmp_path / "control" / "requests").iterdir()) == list((tmp_path / "control" / "answers").iterdir()) == []
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"verb": "erase"}', '{"verb": "add", "panel": "tau"}', '{"verb": "add"}'])
def test_nonsense_is_answered_and_changes_nothing(tmp_path: Path, text: str) -> None:
    with Steering(tmp_path, answer, lambda: STATUS) as told:
        (tmp_path / "control" / "requests" / "1.json").write_text(text)
        assert told.changes() == []
    assert json.loads((tmp_path / "control" / "answers" / "1.json").read_text())["done"] is False


def test_requests_to_an_earlier_sweep_are_forgotten(tmp_path: Path) -> None:
    requests = tmp_path / "control" / "requests"
    requests.mkdir(parents=True)
    (requests / "1.json").write_text(json.dumps({"verb": "add", "panel": "tau", "value": 1}))
    with Steering(tmp_path, answer, lambda: STATUS) as told:
        assert told.changes() == []


def test_a_sweep_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "ANSWER_SECONDS", 0.2)
    store = ResultsStore(tmp_path)
    store.require_writable("control")
    with store.lock():
        with Steering(tmp_path, answer, lambda: STATUS) as told:
            told.changes()
            with pytest.raises(ResourceError, match=r"must answer within 0.2 s, got nothing"):
                ask(tmp_path, Request("add", "tau", 1.0))
            assert told.changes() == []


def test_a_request_may_be_of_a_word() -> None:
    assert Request.parse("add", "masking = random") == Request("add", "masking", "random")
    assert str(Request.parse("cancel", "masking=none")) == "masking=none"
    assert Request.parse("add", "tau=3e-3").value == 3e-3


class TestCommand:
    def test_status_add_cancel(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with Sweeping(tmp_path):
            assert control.main(["status", "--output", str(tmp_path)]) == 0
            shown = capsys.readouterr().out
            assert shown.splitlines()[0] == "sensitivity eol: 1/2"
            assert "  a" in shown and "  failed: b" in shown
            assert control.main(["add", "tau=0.003", "tau=0.004", "--output", str(tmp_path)]) == 0
            assert capsys.readouterr().out.splitlines() == ["done: add tau=0.003", "done: add tau=0.004"]
        assert control.main(["status", "--output", str(tmp_path)]) == 0
        assert "no sweep is training into" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["stop"], "unknown command 'stop'"),
            (["statu"], "did you mean 'status'?"),
            (["add"], "add and cancel need points, such as tau=0.003, and status none, got add"),
            (["status", "tau=1"], "status none"),
            (["add", "tau"], "a point must be given as panel=value, such as tau=0.003, got 'tau'"),
            (["add", "tau=x"], "got 'tau=x'"),
            (["add", "tau=1"], "a sweep must be running there"),
            (["add", "--nothing"], "No such option"),
        ],
    )
    def test_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[Any], message: str) -> None:
        assert control.main([*words, "--output", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err

    def test_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert control.main(["--help"]) == 0
        assert "cancel tau=0.003" in capsys.readouterr().out
