"""The options that tell of own tables, the same in every script that reads data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from adaptbin.data.registry import CARDS
from sweeps.service.own_tables import split_names

_FILE: Any = click.Path(path_type=Path)


def dataset_option(papers: Sequence[str]) -> click.Option:
    """Data sets by name, and own tables by their files; "all" is ``papers``."""
    text = (
        f"One or several of: {', '.join(CARDS)}; all means the paper's eight, {', '.join(papers)}; or the file of a "
        "table of your own (CSV, TSV, Parquet, Excel, Feather), with --target."
    )
    return click.Option(["--dataset"], type=_DataSets(papers), help=text, required=True, multiple=True)


def own_table_options() -> list[click.Parameter]:
    """What a person says of an own table; what is left out is inferred, and shown before anything is trained."""
    return [
        _option("--target", str, "Header of the label, in a table of your own."),
        _option("--card", _FILE, "Card (YAML) that fixes what else would be inferred of that table."),
        _option("--write-card", _FILE, "Write the card of that table there, to be changed and given with --card."),
        _option("--groups", str, "Column whose values must not be shared between train, validation and test."),
        _option(
            "--split-file", _FILE, "Table that says which row, or which value of a column, is in train, val or test."
        ),
        _option("--test-file", _FILE, "Table of the test rows; --dataset then holds those of train and validation."),
        _option("--drop", str, "Columns to leave out, parted by commas; may be repeated.", multiple=True),
        _option("--ordinal", str, "Levels of the label from low to high, as 'low<mid<high'."),
        _option("--positive", str, "The one of two values that the label is about."),
        _option("--name", str, "Name of that table in results; by default made of its file's name."),
    ]


def _option(name: str, kind: Any, text: str, **extra: Any) -> click.Option:
    return click.Option([name], type=kind, help=text, **extra)


class _DataSets(click.ParamType[tuple[str, ...]]):
    """Keys of registered data sets and paths of own tables."""

    name = "names or files"

    def __init__(self, everything: Sequence[str]) -> None:
        self._everything = tuple(everything)

    def convert(self, value: Any, parameter: Any, context: Any) -> tuple[str, ...]:
        return split_names(value, self._everything)
