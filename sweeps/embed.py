"""Embed the rows of a file with a saved model, and write a table of their embeddings.

MODEL is a folder that --export or an estimator's save has written; ROWS is a CSV or TSV file, gzipped or not, with the
columns that the model was trained on. Cells are read as the model's columns say. Columns that it does not know are left
alone, and named; rows with a category that it has never seen are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adaptbin.errors import AdaptBinError, ConfigError
from sweeps.service.embedding import embed_file
from sweeps.service.options import parse_words
from sweeps.service.parameters import embed_options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script.  ``argv``: words of the command line, by default those typed.

    Exit code 0: done.  1: a file could not be written.  2: the request was refused, and nothing was written.
    """
    try:
        given = parse_words(argv, prog="embed.py", about=__doc__ or "", options=embed_options())
        if given is None:
            return 0
        output = given["output"].expanduser()
        if output.exists() and not given["overwrite"]:
            raise ConfigError(f"output must be a new file, got one that is there, {output}; --overwrite replaces it")
        from adaptbin import load  # torch takes seconds

        model = load(given["model"].expanduser())
        told = embed_file(model, given["rows"].expanduser(), output, identifier=given["id"])
    except AdaptBinError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if told.unread:
        print(f"columns that the model does not read: {', '.join(told.unread)}")
    for name, count in (+told.unknown).items():
        print(f"{name}: {count} of {told.rows} rows have a category that the model has never seen")
    print(f"{told.rows} rows as {model.model_.width} numbers each: {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
