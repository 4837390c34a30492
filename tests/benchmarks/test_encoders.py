"""The benchmark of encoders on a few rows; what it times is nobody's business here."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from adaptbin.config import EncoderName
from tests.benchmarks import encoders
from tests.benchmarks.children import answers
from tests.benchmarks.encoders import ENCODERS, HEADER, Job, PlainLoop, Stacked, eol_like, run_job, section

ROWS = 260


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "t2g_former"])
def test_a_plain_loop_trains_every_parameter(encoder: EncoderName) -> None:
    table = eol_like(ROWS)
    loop = PlainLoop(encoder, table, table.card.architecture)
    before = {name: value.detach().clone() for name, value in loop._model.named_parameters()}
    loop.run_epoch()
    assert len(before) > 3
    assert sum(not torch.equal(value, before[name]) for name, value in loop._model.named_parameters()) > 0.9 * len(
        before
    )


def test_both_sides_have_as_many_parameters() -> None:
    """But for what their authors' models have that ours say they leave out."""
    table = eol_like(ROWS)
    architecture = table.card.architecture
    for encoder in ("mlp", "resnet"):
        name: Any = encoder
        plain = sum(value.numel() for value in PlainLoop(name, table, architecture)._model.parameters())
        (stack,) = Stacked(name, table, architecture, 1).stacks
        padding = (stack.targets.columns - stack.targets.n_outputs) * (stack.encoder.width + 1)
        ours = sum(stack.bank.view(part)[0].numel() for part in stack.bank.shapes) - padding
        assert ours == plain


def test_the_section(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "ENCODERS", ("mlp", "tabnet"))
    text = section(lambda job: run_job(job, n_rows=ROWS), epochs=1, samples=1)
    assert text.startswith("### Fine-tuning") and all(name in text for name in (*HEADER, "mlp", "tabnet"))
    assert "fine-tuning mlp: plain" in capsys.readouterr().out
    times = iter([3.0, 2.0, 1.0, 2.9, 2.0, 1.0] * 2)
    assert section(lambda job: next(times), samples=1).endswith("3x: reached.")
    times = iter([2.9, 2.0, 1.0] * 2)
    assert section(lambda job: next(times), samples=1).endswith("3x: MISSED by mlp.")


def test_the_section_says_whose_plain_loop_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "\\* Nobody publishes it as a package: its plain loop is our own model, a pack of one."
    text = section(lambda job: 1.0, samples=1)
    (row,) = [line for line in text.splitlines() if "t2g_former" in line]
    assert row.startswith("| t2g_former * ") and text.count("*") == 2
    assert f"\n\n{note}\n\nGoal for" in text
    monkeypatch.setattr(encoders, "ENCODERS", ("mlp", "tabnet"))
    assert "*" not in section(lambda job: 1.0, samples=1)


def test_a_job_in_a_process_of_its_own() -> None:
    (answer,) = answers("tests.benchmarks.encoders", [Job("mlp", 2, 1)])
    assert answer["cpu_ms"] > 0 and json.dumps(answer)
