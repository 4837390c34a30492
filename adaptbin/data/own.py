"""An own table: a file and a label to a card, the table it describes, and what a person should look at first.

Everything that a card fixes is taken from it; the rest is inferred, from the rows that train under the default split.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptbin.data.card_file import CardFile, architecture_of
from adaptbin.data.cells import MISSING_WORDS, Cells, read_cells
from adaptbin.data.extras import require
from adaptbin.data.files import read_sheet
from adaptbin.data.fixed_split import parts_from_file, parts_with_test_rows, refuse_both
from adaptbin.data.kinds import ColumnProfile, Judged, judge, require_no_faults
from adaptbin.data.labels import PRIMARY_METRIC, Label, ordered_levels, read_label
from adaptbin.data.own_names import listed, require_columns, require_key, same_in_both
from adaptbin.data.registry import Card, Column
from adaptbin.data.sheet import Sheet
from adaptbin.data.splits import Split, check_scored, split_rows, unlabelled_rows
from adaptbin.data.suspects import Leak, PartCounts, count_parts, find_leaks, repeated_rows
from adaptbin.data.table import Table, make_table
from adaptbin.errors import ConfigError, DataError
from adaptbin.metrics import get_metric, metrics_of
from adaptbin.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a person says of an own table; whatever is left out is inferred."""

    target: str | None = None
    """Header of the label; the card may have it instead."""
    card: CardFile = field(default_factory=CardFile)
    groups: str | None = None
    """Header of the column whose values must not be shared between parts."""
    drop: tuple[str, ...] = ()
    """Headers of columns to leave out."""
    ordinal: str | None = None
    """Levels from low to high, as ``"low<mid<high"``."""
    positive: str | None = None
    """The level of two that the label is about."""
    name: str | None = None
    """Key of the card; by default made of the file's name."""
    split_file: Path | None = None
    test_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What was found out about an own table, for a person to look at before anything is trained."""

    form: str
    """What the file is."""
    label: str
    """How the label was read."""
    columns: tuple[ColumnProfile, ...]
    """All but the label and the groups, in file order."""
    parts: tuple[PartCounts, ...]
    unlabelled: int
    """Rows without a label, which pretraining alone may see."""
    split: str
    """How rows come into parts."""
    repeated: int
    """Rows that repeat an earlier one."""
    twins: int
    """Rows of validation and test that are also in train."""
    groups: tuple[str, ...]
    """Columns by which rows may belong together; empty where groups are given."""
    leaks: tuple[Leak, ...]
    """Columns that predict the label alone."""


@dataclass(frozen=True, eq=False)
class OwnTable:
    """A table, its card inside, and its profile."""

    table: Table
    profile: Profile


def read_own_table(path: Path, asked: Asked) -> OwnTable:
    """Read the table in the file at ``path``.

    Raises what :func:`adaptbin.data.files.read_sheet` and :func:`adaptbin.data.labels.read_label` raise; DataError for
    columns of numbers and words, infinite numbers, splits that cannot be, and tables without a column to learn from;
    ConfigError for names that are not there and for a card that disagrees with the table.
    """
    refuse_both(asked.split_file, asked.test_file)
    told = asked.card
    key = require_key(asked.name or told.key, path)
    sheet = read_sheet(path)
    n_first, form = sheet.rows, sheet.form
    if asked.test_file is not None:
        sheet = _with_rows_of(sheet, read_sheet(asked.test_file), path.name, asked.test_file.name)
    names, n_rows = sheet.names, sheet.rows
    if told.rows is not None and told.rows != n_rows:
        raise ConfigError(
            f"{told.source} is of a table of {told.rows} rows, got {n_rows}; without its line 'rows' it fits any"
        )
    target = same_in_both("target", asked.target, told.target, told.source)
    if target is None:
        raise ConfigError(f"{path.name}: a table of your own needs --target, one of {listed(names)}")
    group = same_in_both("groups", asked.groups, told.group, told.source)
    require_columns(names, target, group, asked.drop, told, path.name)

    arrays: dict[str, Any] = dict(zip(names, sheet.columns, strict=True))
    words, commas = MISSING_WORDS if told.missing_words is None else told.missing_words, sheet.decimal_commas

    def column(name: str) -> Cells:
        # A label of numbers and "none" may well have a class of that name.
        return read_cells(
            name,
            arrays[name],
            missing_words=words,
            decimal_commas=commas,
            none_is_missing=name != target,
            # The usual words, given or not, have the usual meaning: a card that is written does not name them.
            minus_is_missing=told.missing_words not in (None, MISSING_WORDS),
        )

    label = _label(column(target), asked)
    groups = None if group is None else _groups(column(group), path.name)
    parts, how = None, "rows 64/16/20" if groups is None else f"by {group!r}, 64/16/20"
    if asked.split_file is not None:
        parts, how = (
            parts_from_file(asked.split_file, names, column, label.labelled),
            f"as {asked.split_file.name} says",
        )
    elif asked.test_file is not None:
        parts = parts_with_test_rows(n_first, label.labelled, groups, asked.test_file.name)
        how = f"test from {asked.test_file.name}, validation a fifth of the other rows"
    del sheet
    # The rows that train depend on labels, groups and parts alone, so they are known before the columns are.
    unread = Table(
        _card(key, path, names, label, told, group, (), n_rows, 1, words),
        pd.DataFrame(),
        label.values,
        groups,
        "",
        None,
        parts,
    )
    split = split_rows(unread)
    _check_classes(label, split, key)
    check_scored(label.values.to_numpy(), split, key)
    fitted = np.concatenate([split.train, unlabelled_rows(unread, split)])

    judged: list[Judged] = []
    for name in names:
        if name in (target, group):
            continue
        declared = "dropped" if name in asked.drop else told.columns.get(name)
        found = judge(column(name), fitted, declared)
        if name in asked.drop:
            found = replace(found, profile=replace(found.profile, reason="left out with --drop"))
        judged.append(found)
        del arrays[name]  # a wide table is not held twice
    require_no_faults(judged, path.name)
    kept = {found.profile.name: found.values for found in judged if found.values is not None}
    if not kept:
        reasons = "; ".join(f"{found.profile.name!r}: {found.profile.reason}" for found in judged[:3])
        raise DataError(
            f"{path.name}: a table must have a column to learn from beside its label, got none "
            f"({reasons or 'it has no other'})"
        )
    columns = tuple(_column(found, told) for found in judged if found.values is not None)
    card = _card(key, path, names, label, told, group, columns, n_rows, split.train.size, words)
    if split.train.size < card.architecture.batch_size:
        raise DataError(
            f"{key}: train must fill a batch of {card.architecture.batch_size} rows, got {split.train.size}; a card "
            "may ask for smaller ones (architecture: {batch_size: 16})"
        )
    table = make_table(card, pd.DataFrame(kept), label.values, groups, path, parts)
    table = _with_fingerprint(table)
    if told.fingerprint is not None and told.fingerprint != table.fingerprint:
        raise ConfigError(
            f"{told.source} is of a table with other values, or was changed since: its fingerprint must be "
            f"{table.fingerprint[:16]}..., got {told.fingerprint[:16]}...; without its line 'fingerprint' it fits any"
        )
    repeated, twins = repeated_rows(table, split)
    profile = Profile(
        form=form,
        label=label.reason,
        columns=tuple(found.profile for found in judged),
        parts=count_parts(label, split),
        unlabelled=int((~label.labelled).sum()),
        split=how,
        repeated=repeated,
        twins=twins,
        groups=tuple(found.profile.name for found in judged if found.may_group) if group is None else (),
        leaks=find_leaks(table, label, split.train),
    )
    return OwnTable(table, profile)


def _with_fingerprint(table: Table) -> Table:
    """The table with a fingerprint that tells what its label means, too.

    Order of classes, task and metric decide scores as values do, and of an own table a person may say them anew.
    """
    card = table.card
    meaning = json.dumps([str(card.task), card.levels, card.primary_metric])
    fingerprint = hashlib.sha256(f"{table.fingerprint} {meaning}".encode()).hexdigest()
    return replace(table, card=replace(card, fingerprint=fingerprint), fingerprint=fingerprint)


def _label(cells: Cells, asked: Asked) -> Label:
    told = asked.card
    levels, task = told.levels, told.task
    if asked.ordinal is not None:
        levels = ordered_levels(asked.ordinal)
        task = Task.ORDINAL if len(levels) > 2 else Task.BINARY
        if asked.positive is not None:
            raise ConfigError("at most one of --ordinal and --positive may be given, got both")
    label = read_label(cells, task=task, levels=levels, positive=asked.positive)
    metric = told.primary_metric
    if metric is not None and label.task not in get_metric(metric).tasks:
        raise ConfigError(
            f"{told.source}: primary_metric must be one that a {label.task} label has: "
            f"{', '.join(metrics_of(label.task))}, got {metric!r}"
        )
    return label


def _groups(cells: Cells, where: str) -> pd.Series:
    if cells.missing.any():
        row = int(np.flatnonzero(cells.missing)[0]) + 1
        raise DataError(
            f"{where}: every row must have a group, got none in {cells.name!r} of row {row} "
            f"({int(cells.missing.sum())} such rows)"
        )
    return pd.Series(cells.as_words(), name=cells.name, dtype="str")


def _check_classes(label: Label, split: Split, key: str) -> None:
    """Refuse a class that train lacks, and parts of a binary label with one class: they have no AUC."""
    if label.levels is None:
        return
    for part, rows in split._asdict().items():
        there = set(label.values.iloc[rows])
        absent = [level for level in label.levels if level not in there]
        if absent and (part == "train" or label.task is Task.BINARY):
            count = int((label.values == absent[0]).sum())
            raise DataError(
                f"{key}: every class must occur in {part}, got no row of {absent[0]!r} ({count} in all, {rows.size} "
                f"rows in {part}); join rare classes, or say with --split-file which rows are where"
            )


def _column(found: Judged, told: CardFile) -> Column:
    profile = found.profile
    is_number = profile.kind == "numerical"
    return Column(
        name=profile.name,
        kind="numerical" if is_number else "categorical",
        unit=told.units.get(profile.name, ""),
        text=not is_number,
        missing=is_number and profile.missing > 0,
    )


def _card(
    key: str,
    path: Path,
    names: tuple[str, ...],
    label: Label,
    told: CardFile,
    group: str | None,
    columns: tuple[Column, ...],
    rows: int,
    train_rows: int,
    missing_words: tuple[str, ...],
) -> Card:
    metric = PRIMARY_METRIC[label.task]
    if told.primary_metric is not None:
        metric = next(known for known in PRIMARY_METRIC.values() if known == told.primary_metric)
    return Card(
        key=key,
        title=told.title or key,
        task=label.task,
        target=str(label.values.name),
        target_unit=told.target_unit,
        columns=columns,
        levels=label.levels,
        primary_metric=metric,
        architecture=architecture_of(told.architecture, train_rows, told.source),
        fingerprint="",
        rows=rows,
        reader="file",
        header=names,
        files=(path.name,),
        licence=told.licence,
        group=group,
        notes=told.notes,
        missing_words=missing_words,
    )


def _with_rows_of(first: Sheet, test: Sheet, name: str, test_name: str) -> Sheet:
    """Both tables below each other, by the headers of the first."""
    arrow = require("pyarrow")
    if set(first.names) != set(test.names):
        lacking = [header for header in first.names if header not in test.names]
        extra = [header for header in test.names if header not in first.names]
        raise DataError(
            f"{test_name} must have the columns of {name}, got "
            + " and ".join([f"none of {listed(lacking)}"] * bool(lacking) + [f"{listed(extra)} too many"] * bool(extra))
        )
    columns = []
    for header, column in zip(first.names, first.columns, strict=True):
        other = test.columns[test.names.index(header)]
        if other.type != column.type:
            column, other = column.cast(arrow.string()), other.cast(arrow.string())
        columns.append(arrow.concat_arrays([column, other]))
    return Sheet(first.names, tuple(columns), first.form, first.decimal_commas or test.decimal_commas)
