"""Chosen architectures beside the paper's on the report page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from adaptbin.config import Protocol
from sweeps.service.report_architectures import architectures_frame
from sweeps.service.report_page import page
from sweeps.service.report_sources import find_sources
from sweeps.service.report_tables import Report
from tests.service.report_folders import REDUCED, architecture_tables, write_study


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "not reproduced"),
        ({"within_one_standard_error": True}, "within one standard error"),
        ({"within_one_standard_error": True, "reproduced": True}, "reproduced"),
    ],
)
def test_the_papers_choice_is_judged(tmp_path: Path, changed: dict[str, Any], verdict: str) -> None:
    write_study(tmp_path, "architecture", "eol", architecture_tables("eol", **changed))
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
    write_study(tmp_path, "architecture", "pt", architecture_tables("pt", **one), notes=[REDUCED])
    report = Report.of(find_sources([tmp_path], ["pt"], Protocol()))
    (row,) = report.architectures.to_dict("records")
    assert (row["val_chosen"], row["protocol"]) == (0.91, REDUCED)  # in the target's unit
    assert f"| 0.91 | 0.90 | +0.01 | – | 0.89 | 0.90 | 1 | not reproduced ({REDUCED}) |" in page(report, tmp_path)


def test_nothing_chosen_or_not_run(tmp_path: Path) -> None:
    undecided = architecture_tables("eol")
    undecided["comparison"] = undecided["comparison"].iloc[:0]
    write_study(tmp_path, "architecture", "eol", undecided)
    sources = find_sources([tmp_path], ["eol", "hfc"], Protocol())
    assert architectures_frame(sources).empty
    assert "## Depth and width of the MLP\n\nNot run, or nothing was chosen." in page(Report.of(sources), tmp_path)
