"""Embed the rows of a file with a saved model, and write a table of their embeddings.

MODEL is a folder that --export or an estimator's save has written; ROWS is a CSV or TSV file, gzipped or not, with the
columns that the model was trained on; of a model of an own table it is any file that such a table may be. Cells are
read as the model's columns say. Columns that it does not know are left alone, and named; missing numbers, and rows with
a category that it has never seen, are counted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from adaptbin.errors import ConfigError
from sweeps.service.command_line import run_words
from sweeps.service.embedding import embed_file
from sweeps.service.parameters import embed_options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script, see :func:`sweeps.service.command_line.run_words`; what is refused leaves nothing written."""
    return run_words(argv, prog="embed.py", about=__doc__ or "", options=embed_options(), work=_embed)


def _embed(given: Mapping[str, Any]) -> None:
    output = given["output"].expanduser()
    if output.exists() and not given["overwrite"]:
        raise ConfigError(f"output must be a new file, got one that is there, {output}; --overwrite replaces it")
    from adaptbin import load  # torch takes seconds

    model = load(given["model"].expanduser())
    told = embed_file(model, given["rows"].expanduser(), output, identifier=given["id"])
    if told.unread:
        print(f"columns that the model does not read: {', '.join(told.unread)}")
    for name, count in (+told.missing).items():
        print(f"{name}: {count} of {told.rows} rows lack a number, for which the median of training stands")
    for name, count in (+told.unknown).items():
        print(f"{name}: {count} of {told.rows} rows have a category that the model has never seen")
    print(f"{told.rows} rows as {model.model_.width} numbers each: {output}")


if __name__ == "__main__":
    sys.exit(main())
