"""Hold what the other scripts left against the paper: one page, report.md, and report.csv with every number in it.

It reads the tables in their output folders and trains nothing: scores beside the paper's Tables 1, 3 and 4, how many of
its orderings hold, where the variance is, and models that need no pretraining. What was not run is named.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.service.command_line import flat_names, run_words
from sweeps.service.parameters import report_options
from sweeps.service.report import PAGE, write_report
from sweeps.service.switches import protocol_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script, see :func:`sweeps.service.command_line.run_words`; what is refused leaves nothing written."""
    return run_words(argv, prog="report.py", about=__doc__ or "", options=report_options(), work=_report)


def _report(given: Mapping[str, Any]) -> None:
    results = [folder.expanduser().resolve() for folder in given["results"]]
    output = results[0] if given["output"] is None else given["output"].expanduser().resolve()
    for line in write_report(flat_names(given["dataset"]), results, output, protocol_of(given)):
        print(line)
    print(f"report: {output / PAGE}")


if __name__ == "__main__":
    sys.exit(main())
