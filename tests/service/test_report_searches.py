"""What searches found, on the report page."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from adaptbin.config import Protocol
from sweeps.service.report_page import page
from sweeps.service.report_sources import find_sources
from sweeps.service.report_tables import Report
from tests.service.report_folders import REDUCED, search_tables, write_study


def report_of(folder: Path, *datasets: str) -> Report:
    return Report.of(find_sources([folder], datasets, Protocol()))


def test_the_winner_stands_beside_the_default(tmp_path: Path) -> None:
    halving = {"halving": [11, 33, 100]}
    write_study(tmp_path, "search", "eol", search_tables("eol"), search=halving, notes=[REDUCED])
    report = report_of(tmp_path, "eol")
    (row,) = report.searches.to_dict("records")
    # In percent, as the paper prints kappa.
    assert [row[name] for name in ("val_search", "val_fresh", "test_default", "difference")] == pytest.approx(
        [97, 96, 93, 2]
    )
    cells = (
        "| eol | QWK | 4 (2 complete) | 11, 33 | 97.00 | 96.00 | 94.00 | 95.00 | 93.00 | +2.00 (1.00 to 3.00), p 0.004"
    )
    assert f"{cells} | 10 | better ({REDUCED}) |" in page(report, tmp_path)
    assert set(report.table.loc[report.table["section"] == "searches", "verdict"]) == {"better"}


def test_errors_and_lost_seeds_are_shown_in_the_targets_unit(tmp_path: Path) -> None:
    lost = {"n_diverged": 1, "low": math.nan, "high": math.nan}
    write_study(tmp_path, "search", "pt", search_tables("pt", **lost), search={"halving": None})
    report = report_of(tmp_path, "pt")
    shown = "| pt | RMSE | 4 (2 complete) | – | 0.97 | 0.96 | 0.94 | 0.95 | 0.93 | +0.02, p 0.004 | 10 †1 | better |"
    assert shown in page(report, tmp_path)


def test_a_search_without_a_winner_says_so(tmp_path: Path) -> None:
    none = search_tables("eol")
    none |= {name: none[name].iloc[:0] for name in ("confirmation", "significance")}
    write_study(tmp_path, "search", "eol", none)
    report = report_of(tmp_path, "eol")
    assert "| 4 (2 complete) | – | – | – | – | – | – | – | – | no winner |" in page(report, tmp_path)


def test_not_run(tmp_path: Path) -> None:
    write_study(tmp_path, "search", "eol", search_tables("eol"))
    report = report_of(tmp_path, "eol", "hfc")
    assert "search (hfc)" in page(report, tmp_path)
    (tmp_path / "search" / "eol" / "trials.csv").rename(tmp_path / "trials.csv")
    write_study(tmp_path, "search", "hfc", search_tables("hfc"))
    assert list(report_of(tmp_path, "eol", "hfc").searches["dataset"]) == ["hfc"]
