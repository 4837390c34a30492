"""Chosen architectures beside the paper's on the report page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from adaptbin.config import Protocol
from sweeps.service.report_architectures import architectures_frame
from sweeps.service.report_page import page
from sweeps.service.report_sources import find_sources
from sweeps.service.report_tables import Report
from tests.service.report_folders import REDUCED, metric_of, write_study


def tables(dataset: str, **changed: Any) -> dict[str, pd.DataFrame]:
    """Tables of a study that chose depth 3, width 512, where the paper has 2 and 128."""
    same = {"dataset": dataset, "metric": metric_of(dataset), "n": 10}
    row = {
        **same,
        **{"chosen_depth": 3, "chosen_width": 512, "chosen_val_mean": 0.91, "chosen_test_mean": 0.89},
        **{"paper_depth": 2, "paper_width": 128, "paper_val_mean": 0.9, "paper_test_mean": 0.895},
        **{"difference": 0.01, "low": 0.004, "high": 0.016, "standard_error": 0.002},
        **{"within_one_standard_error": False, "reproduced": False, **changed},
    }
    points = [
        {**same, "n_diverged": 0, "depth": depth, "width": width, "val_mean": 0.9, "chosen": depth == 3}
        | {"paper": depth == 2}
        for depth, width in ((2, 128), (3, 512))
    ]
    return {"points": pd.DataFrame(points), "comparison": pd.DataFrame([row])}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "not reproduced"),
        ({"within_one_standard_error": True}, "within one standard error"),
        ({"within_one_standard_error": True, "reproduced": True}, "reproduced"),
    ],
)
def test_the_papers_choice_is_judged(tmp_path: Path, changed: dict[str, Any], verdict: str) -> None:
    write_study(tmp_path, "architecture", "eol", tables("eol", **changed))
    report = Report.of(find_sources([tmp_path], ["eol"], Protocol()))
    (row,) = report.architectures.to_dict("records")
    assert row["verdict"] == verdict
    # In percent, as the paper prints kappa.
    assert [row[name] for name in ("val_chosen", "val_paper", "difference")] == pytest.approx([91, 90, 1])
    shown = page(report, tmp_path)
    cells = f"| 3 × 512 | 2 × 128 | 91.00 | 90.00 | +1.00 (0.40 to 1.60) | 0.20 | 89.00 | 89.50 | 10 | {verdict} |"
    assert cells in shown and "## Depth and width of the MLP" in shown
    assert set(report.table.loc[report.table["section"] == "architectures", "verdict"]) == {verdict}


def test_errors_and_single_seeds(tmp_path: Path) -> None:
    one = {"n": 1, "low": math.nan, "high": math.nan, "standard_error": math.nan}
    write_study(tmp_path, "architecture", "pt", tables("pt", **one), notes=[REDUCED])
    report = Report.of(find_sources([tmp_path], ["pt"], Protocol()))
    (row,) = report.architectures.to_dict("records")
    assert (row["val_chosen"], row["protocol"]) == (0.91, REDUCED)  # in the target's unit
    assert f"| 0.91 | 0.90 | +0.01 | – | 0.89 | 0.90 | 1 | not reproduced ({REDUCED}) |" in page(report, tmp_path)


def test_nothing_chosen_or_not_run(tmp_path: Path) -> None:
    undecided = tables("eol")
    undecided["comparison"] = undecided["comparison"].iloc[:0]
    write_study(tmp_path, "architecture", "eol", undecided)
    sources = find_sources([tmp_path], ["eol", "hfc"], Protocol())
    assert architectures_frame(sources).empty
    assert "## Depth and width of the MLP\n\nNot run." in page(Report.of(sources), tmp_path)
