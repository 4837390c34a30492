"""Names that a person gives of an own table, its columns and itself, held against those that are there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from adaptbin.data.card_file import CardFile
from adaptbin.data.registry import CARDS
from adaptbin.errors import ConfigError, nearest


def key_of(path: Path) -> str:
    """Key that a file's name makes: ``My Clinic.csv.gz`` is ``my_clinic``."""
    stem = path.name.split(".")[0] if path.name.split(".")[0] else path.stem
    return re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_") or "table"


def require_key(name: str | None, path: Path) -> str:
    """The key of a table: the name given, else its file's.  Raises ConfigError where it cannot be one, or is taken."""
    key = name if name is not None else key_of(path)
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", key):
        raise ConfigError(f"name must be small letters, digits, '_', '-' and '.', got {key!r}")
    if key in CARDS or key == "all":
        raise ConfigError(
            f"{path.name}: the name {key!r} is that of a known data set; give the table another with --name"
        )
    return key


def same_in_both(what: str, asked: str | None, told: str | None, source: str) -> str | None:
    """What an option or the card ``source`` says.  Raises ConfigError where they do not agree."""
    if asked is not None and told is not None and asked != told:
        raise ConfigError(f"{what} must be the same for option and card, got {asked!r} and, in {source}, {told!r}")
    return told if asked is None else asked


def require_columns(
    names: Sequence[str], target: str, group: str | None, drop: Sequence[str], told: CardFile, where: str
) -> None:
    """Raise ConfigError for a name that is no header of the file ``where``, or that is used twice."""
    for what, name in [("target", target), ("groups", group), *(("drop", name) for name in drop)]:
        if name is not None and name not in names:
            raise ConfigError(
                f"{where}: {what} must be a column, got {name!r}{nearest_name(name, names)} (known: {listed(names)})"
            )
    if target == group or target in drop or (group is not None and group in drop):
        raise ConfigError(
            f"{where}: target, groups and drop must be different columns, got {target!r}, {group!r}, {listed(drop)}"
        )
    for name in told.columns:
        if name not in names:
            raise ConfigError(f"{told.source} has a column {name!r}, which {where} has not{nearest_name(name, names)}")
        if name == target and told.columns[name] != "dropped":
            raise ConfigError(f"{told.source}: the target {name!r} is no column to learn from")


def nearest_name(name: str, names: Sequence[str]) -> str:
    """As :func:`adaptbin.errors.nearest`, with the header as it is written."""
    by_lower = {other.lower(): other for other in names}
    near = nearest(name, by_lower)
    return next((near.replace(low, other) for low, other in by_lower.items() if f"'{low}'" in near), near)


def listed(names: Sequence[str]) -> str:
    """The first twenty names in quotes, and how many more there are."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(repr, names[:20])) + more
