"""Every command in the README runs, and every option and file that it names is there."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from adaptbin import load
from adaptbin.data import load_table
from sweeps import (
    ablation,
    alternatives,
    architecture,
    benchmark,
    embed,
    finetune,
    masking,
    report,
    sensitivity,
    variance,
)
from sweeps.service import control
from sweeps.service.local import InProcessRunner
from sweeps.service.options import parse_options
from tests.benchmarks import gpu, released_scores
from tests.service.report_folders import alternatives_table, write_study
from tests.service.steered import Sweeping

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OPTIONS = [
    cell for row in re.findall(r"^\|[^|]+\| (.+) \|$", README, re.MULTILINE) for cell in re.findall(r"`(--[^`]+)`", row)
]
TINY = ["--seeds", "2", "--epochs", "2", "--probe-epochs", "2", "--probes", "2"]
TINY_OF = {
    finetune: ["--seeds", "2", "--epochs", "2", "--finetune-epochs", "2"],
    architecture: ["--seeds", "2", "--finetune-epochs", "2", "--depth", "1", "--width", "128"],
}
"""Script that has no probes -> what it has in place of ``TINY``."""


def test_the_readme_has_commands() -> None:
    assert "make sensitivity" in COMMANDS and "make test" in COMMANDS
    for script in SCRIPTS:
        assert any(command.startswith(f"python {script}") for command in COMMANDS)
    assert len(OPTIONS) >= 9
    assert "@@" not in README, "a placeholder was left"


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_command(command: str) -> None:
    """make would do what the README says; the steps themselves are what CI and the tests below run."""
    words = shlex.split(command)
    done = subprocess.run([words[0], "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
    known = ("sweeps/sensitivity.py --dataset breast_cancer --preset quick", "-m pytest", "-m tests.benchmarks.bench")
    assert any(step in done.stdout for step in known)


def test_the_environment_that_is_activated_is_the_one_make_makes() -> None:
    (command,) = (c for c in COMMANDS if c.startswith(". "))
    done = subprocess.run(["make", "-n", "-B", "sensitivity"], cwd=ROOT, capture_output=True, text=True, check=True)
    folder = command.removeprefix(". ").removesuffix("/bin/activate")
    assert f"-m venv {folder}\n" in done.stdout


def test_every_command_is_of_a_kind_that_is_run_here() -> None:
    kinds = (
        "make ",
        ". ",
        "python sweeps/",
        "python -m tests.benchmarks.gpu",
        "python -m tests.benchmarks.released",
        "python -m sweeps.service.control",
    )
    assert [command for command in COMMANDS if not command.startswith(kinds)] == []


SCRIPTS = {
    "sweeps/sensitivity.py": (sensitivity, 42),
    "sweeps/masking.py": (masking, 28),
    "sweeps/ablation.py": (ablation, 16),
    "sweeps/benchmark.py": (benchmark, 94),
    "sweeps/finetune.py": (finetune, 16),
    "sweeps/architecture.py": (architecture, 4),
    "sweeps/variance.py": (variance, 6),
}
"""Script -> its module, and the replicas that it trains on one data set with two seeds."""
FILES = ("figure.png", "figure.pdf", "figure.svg", "caption.txt", "replicas.csv", "manifest.json")
POINTS = {"benchmark": "candidates.csv", "finetune": "table.csv"}
"""Study -> its table of points, where that has another name than ``points.csv``."""


SWEEPS = tuple(f"python {script} " for script in SCRIPTS)


def test_every_script_in_the_readme_is_run_here() -> None:
    others = ("python sweeps/alternatives.py ", "python sweeps/report.py ", "python sweeps/embed.py ")
    commands = [command for command in COMMANDS if command.startswith("python sweeps/")]
    assert [command for command in commands if not command.startswith((*SWEEPS, *others))] == []
    assert all(any(command.startswith(other) for command in commands) for other in others)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(SWEEPS) and "--export" not in c])
def test_sweep_command(
    command: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    assert (ROOT / words[1]).is_file()
    script, replicas = SCRIPTS[words[1]]
    common = [*TINY_OF.get(script, TINY), "--data-dir", str(data_dir), "--output", "mlruns"]
    if "--choice-from" in words:  # the command before it in the README
        assert masking.main(["--dataset", "eol", *common], runner=InProcessRunner()) == 0
    before = len(list((tmp_path / "mlruns" / "results" / "eol").glob("*.json")))
    assert script.main([*words[2:], *common], runner=InProcessRunner()) == 0
    study = Path(words[1]).stem
    for name in (*FILES, POINTS.get(study, "points.csv")):
        assert (tmp_path / "mlruns" / study / "eol" / name).stat().st_size > 0, name
    after = len(list((tmp_path / "mlruns" / "results" / "eol").glob("*.json")))
    # The chosen point is the default of the other study, and was trained before.
    assert after - before == (replicas - 2 if before else replicas)
    assert "mlflow ui" in capsys.readouterr().out


def test_export_and_embed_commands(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other: the second reads what the first has written."""
    monkeypatch.chdir(tmp_path)
    commands = [c for c in COMMANDS if "--export" in c or c.startswith("python sweeps/embed.py ")]
    export, embedding = (shlex.split(command) for command in commands)
    table = load_table("eol", data_dir=data_dir, download=False)
    table.features.assign(patient=range(len(table.target))).to_csv("new_patients.csv", index=False)
    script, _ = SCRIPTS[export[1]]
    assert script.main([*export[2:], *TINY, "--data-dir", str(data_dir), "--output", "mlruns"]) == 0
    assert embed.main(embedding[2:]) == 0
    embeddings = pd.read_parquet("embeddings.parquet").set_index("patient")
    np.testing.assert_array_equal(embeddings, load("model").embed(table.features))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python sweeps/alternatives.py")])
def test_alternatives_command(command: str, data_dir: Path, tmp_path: Path) -> None:
    words = [*shlex.split(command)[2:], "--data-dir", str(data_dir), "--output", str(tmp_path)]
    assert alternatives.main(words) == 0
    scores = pd.read_csv(tmp_path / "alternatives" / "eol" / "scores.csv")
    assert {"HistGradientBoosting", "logistic regression"} <= set(scores["model"])


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python sweeps/report.py")])
def test_report_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path / "mlruns", "alternatives", "eol", alternatives_table("eol"))
    assert report.main(shlex.split(command)[2:]) == 0
    assert "## Without pretraining" in (tmp_path / "mlruns" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python -m sweeps.service.control")])
def test_control_command(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[3:]
    with Sweeping(tmp_path):
        assert control.main([*words, "--output", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(
        "sensitivity eol" if words == ["status"] else f"done: {words[0]} tau=0.003"
    )


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python -m tests.benchmarks.gpu")])
def test_gpu_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same script, small and on the CPU."""
    assert gpu.main([*shlex.split(command)[3:], "--device", "cpu", "--seconds", "2"]) == 0
    assert "all checks hold" in capsys.readouterr().out


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python -m tests.benchmarks.released")])
def test_released_scores_command(
    command: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two epochs cannot agree with the released code, so the benchmark must say so."""
    argv = [*shlex.split(command)[3:], *TINY, "--data-dir", str(data_dir), "--output", str(tmp_path)]
    argv[argv.index("--dataset") + 1] = "eol"
    assert released_scores.main([*argv, "--plan"], runner=InProcessRunner()) == 0
    assert not (tmp_path / "released").exists()
    assert released_scores.main(argv, runner=InProcessRunner()) == 1
    assert (tmp_path / "released" / "scores.md").read_text() in capsys.readouterr().out


def test_python_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks, one after another as a reader would run them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {}
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), names)
    np.testing.assert_array_equal(names["again"], names["embeddings"])
    assert names["embeddings"].shape == (569, 128) and len(names["encoder"].bin_edges_["mean radius"]) >= 1
    for found in names["accuracy"].values():
        assert (found > 0.6).all() and found[:, 2].mean() > 0.9
    assert (tmp_path / "few_labels.png").stat().st_size > 0


@pytest.mark.parametrize("option", OPTIONS)
def test_option_named_in_the_readme(option: str) -> None:
    options = parse_options(
        ["--dataset", "eol", *shlex.split(option)], prog="sensitivity.py", about="", own_options=sensitivity.OPTIONS
    )
    assert options is not None


def test_every_file_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    for link in links:
        assert (ROOT / link).is_file(), link
