"""The report: find tables, hold them against the paper, write one page and the table of its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adaptbin.config import Protocol
from sweeps.service.files import write_text
from sweeps.service.report_page import TABLE, counts_lines, page
from sweeps.service.report_sources import find_sources
from sweeps.service.report_tables import Report
from sweeps.service.tables import write_frame

PAGE = "report.md"


def write_report(datasets: Sequence[str], results: Sequence[Path], output: Path, protocol: Protocol) -> list[str]:
    """Write ``report.md`` and ``report.csv`` to ``output``; returns the counts in words, for the console.

    results: output folders of the other scripts.  Raises ConfigError or DataError when they do not hold tables that may
    stand on one page (see :func:`sweeps.service.report_sources.find_sources`); nothing is then written.
    """
    report = Report.of(find_sources(results, datasets, protocol))
    text = page(report, output)
    write_frame(output / TABLE, report.table)
    write_text(output / PAGE, text)
    return counts_lines(report)
