"""Every sweep with ``--preset quick`` on a data set of the paper and on an embedded one.

What would take minutes is narrowed, but not its protocol: two encoders of five, which all run in
``tests/test_finetune_script.py``, two widths of four, six trials of a search.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps import ablation, architecture, benchmark, finetune, masking, report, search, sensitivity, variance
from sweeps.service.local import InProcessRunner
from tests.scripts import results

REPLICAS: dict[Any, tuple[int, str]] = {
    sensitivity: (63, "points.csv"),
    masking: (42, "points.csv"),
    benchmark: (141, "table.csv"),
    ablation: (24, "points.csv"),
    variance: (9, "components.csv"),
    finetune: (24, "table.csv"),
    architecture: (30, "points.csv"),
    search: (30, "trials.csv"),
}
"""Script -> the replicas of its points (21, 14, 47, 8, 1 under 3 kinds of seeds, 8, 10, 6 trials and 4 confirmed), 3
seeds each; and a table.
"""
OPTIONS: dict[Any, list[str]] = {
    finetune: ["--encoder", "mlp,resnet"],
    architecture: ["--width", "128,256"],
    search: ["--trials", "6"],
}
"""Script -> what it is given besides."""


@pytest.mark.usefixtures("no_mlflow")
@pytest.mark.parametrize("dataset", ["eol", "breast_cancer"])
@pytest.mark.parametrize("script", REPLICAS, ids=lambda script: script.__name__)
def test_quick_preset(script: Any, dataset: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    words = ["--dataset", dataset, "--preset", "quick", "--output", str(tmp_path), *OPTIONS.get(script, [])]
    if dataset == "eol":
        words += ["--data-dir", str(request.getfixturevalue("data_dir"))]
    assert script.main(words, runner=InProcessRunner()) == 0
    replicas, table = REPLICAS[script]
    records = results(tmp_path, dataset).values()
    assert len(records) == replicas
    assert {record["status"] for record in records} == {"finished"}
    budgets = {tuple(sorted(record["identity"]["budget"].items())) for record in records}
    scored = "60 pretraining epochs (full: 1000), 30 probe epochs (full: 100)"
    if script is finetune:  # a quarter of it from scratch
        assert budgets == {(("epochs", 0),), (("epochs", 60),)}
        assert {record["identity"]["finetuning"]["epochs"] for record in records} == {10}
        scored = "60 pretraining epochs (full: 1000), 10 fine-tuning epochs (full: 100)"
    elif script is architecture:
        assert budgets == {(("epochs", 0),)}
        scored = "10 fine-tuning epochs (full: 100)"
    else:
        assert budgets == {(("epochs", 60), ("probe_epochs", 30), ("probes", 5))}
    study = script.__name__.rpartition(".")[2]
    folder = tmp_path / study / dataset
    assert len(pd.read_csv(folder / table)) > 3 and (folder / "figure.png").stat().st_size > 10_000
    note = f"Reduced protocol: 3 seeds (full: 10), {scored}"
    assert json.loads((folder / "manifest.json").read_text())["notes"][0] == note
    assert f"{note}." in (folder / "caption.txt").read_text().splitlines()
    # The page takes it in, under that protocol.
    assert report.main(["--dataset", dataset, "--results", str(tmp_path)]) == 0
    basis = pd.read_csv(tmp_path / "report.csv")
    assert list(basis.loc[basis["section"] == "rests on", "protocol"]) == [note]
    assert list(basis.loc[basis["section"] == "rests on", "study"]) == [study]
