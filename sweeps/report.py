"""Hold what the other scripts left against the paper: one page, report.md, and report.csv with every number in it.

It reads the tables in their output folders and trains nothing: scores beside the paper's Tables 1, 3 and 4, how many of
its orderings hold, where the variance is, and models that need no pretraining. What was not run is named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.config import Protocol
from adaptbin.errors import AdaptBinError
from sweeps.service.options import flat_names, parse_words
from sweeps.service.parameters import report_options
from sweeps.service.report import PAGE, write_report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.

    Exit code 0: done.  1: a file could not be written.  2: the request was refused, and nothing was written.
    """
    try:
        given = parse_words(argv, prog="report.py", about=__doc__ or "", options=report_options())
        if given is None:
            return 0
        results = [folder.expanduser().resolve() for folder in given["results"]]
        output = results[0] if given["output"] is None else given["output"].expanduser().resolve()
        protocol = Protocol.named(given["protocol"])
        for line in write_report(flat_names(given["dataset"]), results, output, protocol):
            print(line)
        print(f"report: {output / PAGE}")
    except AdaptBinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
