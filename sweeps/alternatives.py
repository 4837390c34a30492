"""Score models that need no pretraining on the same split: gradient boosting, a linear model, and XGBoost if installed.

Each is fitted to the train rows with its defaults, to numbers and declared categories as they are; validation and test
are scored once. The report sets these scores beside those of pretraining.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.config import Protocol
from adaptbin.data.sources import load_table
from adaptbin.errors import AdaptBinError
from sweeps.service.options import flat_names, output_folder, parse_words
from sweeps.service.parameters import alternatives_options
from sweeps.service.publish_alternatives import publish


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.

    Exit code 0: done.  1: a file could not be written.  2: the request was refused, before anything was fitted.
    """
    try:
        given = parse_words(argv, prog="alternatives.py", about=__doc__ or "", options=alternatives_options())
        if given is None:
            return 0
        protocol, output = Protocol.named(given["protocol"]), output_folder(given["output"])
        tables = [load_table(name, data_dir=given["data_dir"]) for name in flat_names(given["dataset"])]
        for table in tables:
            print(publish(table, output, seeds=given["seeds"], protocol=protocol))
    except AdaptBinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
