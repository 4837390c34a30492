"""The GPU benchmark is itself tested small on a CPU; its numbers are not."""

from __future__ import annotations

import pytest
import torch

from tests.benchmarks import gpu
from tests.benchmarks.gpu_encoders import ENCODERS


def test_it_runs_small_on_a_cpu_and_its_checks_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "cpu", "--seconds", "120"]) == 0
    out = capsys.readouterr().out
    assert "FAILED" not in out and "out of time" not in out and out.rstrip().endswith("all checks hold")
    assert out.count("captured") == out.count("eager") == len(gpu.SMALL.packs)
    assert f"{gpu.SMALL.job_epochs} epochs in" in out
    assert out.count("replayed are those launched, bit for bit") == 6
    assert [line.split()[0] for line in out.split("100 epochs\n")[1].splitlines()[:5]] == list(ENCODERS)


def test_a_limit_that_is_over_skips_what_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "cpu", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert out.count("out of time") == 4 and "job" not in out


def test_a_failed_check_is_said_and_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(bench: gpu.Bench) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(gpu, "SECTIONS", (broken, lambda bench: bench.check("sums", False, "2 + 2 = 5")))
    assert gpu.main(["--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert "operation not permitted" in out
    assert out.splitlines()[-3:] == ["FAILED sums: 2 + 2 = 5", "", "FAILED: broken; sums"]


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "needs a CUDA device" in capsys.readouterr().err


def test_only_a_cell_of_the_table_may_run_out_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    def run_out() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    bench = gpu.Bench(torch.device("cpu"), 1.0, gpu.SMALL)
    bench.attempt("cell", run_out, may_run_out=True)
    assert bench.failed == [] and "cell: CUDA out of memory" in capsys.readouterr().out
    bench.attempt("check", run_out)
    assert bench.failed == ["check"]
