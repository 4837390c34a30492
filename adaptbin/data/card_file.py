"""A card as a YAML file: what a person says of an own table, and what was inferred of it, in the same words.

Whatever a file leaves out is inferred, so it may hold one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from adaptbin.config import Architecture
from adaptbin.data.cells import MISSING_WORDS, spell
from adaptbin.data.extras import require
from adaptbin.data.kinds import ColumnProfile, Kind
from adaptbin.data.labels import PRIMARY_METRIC
from adaptbin.data.registry import Card
from adaptbin.errors import ConfigError, ResourceError, nearest
from adaptbin.tasks import Task

_HEAD = (
    "# Card of an own table.  Every line may be changed or left out; what is left out is inferred from the table.\n"
    "# kind: numerical, categorical or dropped.  reason, missing and distinct are for reading.\n"
)


@dataclass(frozen=True, kw_only=True)
class CardFile:
    """What a card file says; None and empty where it says nothing."""

    source: str = "the card"
    """Its name, for messages."""
    key: str | None = None
    title: str | None = None
    task: Task | None = None
    target: str | None = None
    target_unit: str = ""
    levels: tuple[str, ...] | None = None
    columns: Mapping[str, Kind] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    primary_metric: str | None = None
    missing_words: tuple[str, ...] | None = None
    architecture: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    fingerprint: str | None = None
    licence: str = ""
    notes: str = ""


_TEXTS = ("key", "title", "target", "target_unit", "group", "primary_metric", "fingerprint", "licence", "notes")
_KNOWN = (*_TEXTS, "task", "levels", "columns", "missing_words", "architecture", "rows")
_OF_COLUMN = ("kind", "unit", "reason", "missing", "distinct")


def read_card_file(path: Path) -> CardFile:
    """The card in a file.

    Raises ResourceError when it cannot be read, ConfigError when it is no YAML, has unknown keys or values of a wrong
    kind.
    """
    yaml = require("yaml")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ResourceError(f"card {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"card {path.name} must be text in UTF-8: {error.reason}") from error
    try:
        told = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"card {path.name} must be YAML: {' '.join(str(error).split())}") from error
    if not isinstance(told, dict):
        raise ConfigError(f"card {path.name} must be lines of 'key: value', got {type(told).__name__}")
    return _card_file(told, f"card {path.name}")


def _card_file(told: Mapping[Any, Any], where: str) -> CardFile:
    _refuse_unknown(told, _KNOWN, where)
    values: dict[str, Any] = {"source": where}
    for name in _TEXTS:
        if told.get(name) is not None:
            values[name] = _word(told[name], f"{where}: {name}")
    if told.get("task") is not None:
        tasks = [str(task) for task in Task]
        if told["task"] not in tasks:
            raise ConfigError(
                f"{where}: task must be one of {', '.join(tasks)}, got {told['task']!r}"
                f"{nearest(str(told['task']), tasks)}"
            )
        values["task"] = Task(told["task"])
    metrics = tuple(PRIMARY_METRIC.values())
    if values.get("primary_metric", metrics[0]) not in metrics:
        raise ConfigError(
            f"{where}: primary_metric must be one of {', '.join(metrics)}, got {values['primary_metric']!r}"
        )
    for name in ("levels", "missing_words"):
        if told.get(name) is not None:
            values[name] = _words(told[name], f"{where}: {name}")
    if told.get("rows") is not None:
        if type(told["rows"]) is not int:
            raise ConfigError(f"{where}: rows must be a whole number, got {told['rows']!r}")
        values["rows"] = told["rows"]
    if told.get("architecture") is not None:
        if not isinstance(told["architecture"], dict):
            raise ConfigError(f"{where}: architecture must be lines such as 'width: 128', got {told['architecture']!r}")
        values["architecture"] = dict(told["architecture"])
    if told.get("columns") is not None:
        values["columns"], values["units"] = _columns(told["columns"], where)
    return CardFile(**values)


def _columns(told: Any, where: str) -> tuple[dict[str, Kind], dict[str, str]]:
    if not isinstance(told, dict):
        raise ConfigError(f"{where}: columns must be lines of 'name: {{kind: numerical}}', got {type(told).__name__}")
    kinds: dict[str, Kind] = {}
    units = {}
    for key, rule in told.items():
        name = _word(key, f"{where}: a column's name")
        rule = {"kind": rule} if isinstance(rule, str) else rule
        if not isinstance(rule, dict):
            raise ConfigError(f"{where}: column {name!r} must have a kind, got {rule!r}")
        _refuse_unknown(rule, _OF_COLUMN, f"{where}: column {name!r}")
        if (kind := rule.get("kind")) is not None:
            if kind not in get_args(Kind):
                raise ConfigError(
                    f"{where}: kind of {name!r} must be one of {', '.join(get_args(Kind))}, got {kind!r}"
                    f"{nearest(str(kind), get_args(Kind))}"
                )
            kinds[name] = kind
        if rule.get("unit"):
            units[name] = _word(rule["unit"], f"{where}: unit of {name!r}")
    return kinds, units


def _refuse_unknown(told: Mapping[Any, Any], known: Sequence[str], where: str) -> None:
    for key in told:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{nearest(str(key), known)} (known: {', '.join(known)})")


def _words(told: Any, where: str) -> tuple[str, ...]:
    if not isinstance(told, list):
        raise ConfigError(f"{where} must be a list, got {told!r}")
    words = tuple(_word(word, where) for word in told)
    if len(set(words)) < len(words):
        raise ConfigError(f"{where} must differ, got {', '.join(map(repr, words))}")
    return words


def _word(told: Any, where: str) -> str:
    """A text; YAML reads no, yes and null as something else unless they are quoted."""
    if isinstance(told, bool) or told is None:
        raise ConfigError(f"{where} must be text: write yes, no, true, false and null in quotes, got {told!r}")
    if isinstance(told, int | float):
        return spell(told)
    if not isinstance(told, str):
        raise ConfigError(f"{where} must be text, got {told!r}")
    return told


def card_text(card: Card, columns: Sequence[ColumnProfile], *, fingerprint: bool) -> str:
    """A card as YAML.

    ``fingerprint``: whether it is fixed to the very table it is of; a card to be edited is not.
    """
    units = {column.name: column.unit for column in card.columns if column.unit}
    told: dict[str, Any] = {
        "key": card.key,
        "title": card.title,
        "task": str(card.task),
        "target": card.target,
        "target_unit": card.target_unit or None,
        "levels": None if card.levels is None else list(card.levels),
        "primary_metric": card.primary_metric,
        "group": card.group,
        "rows": card.rows,
        "fingerprint": card.fingerprint if fingerprint else None,
        "missing_words": None if card.missing_words == MISSING_WORDS else list(card.missing_words),
        "architecture": card.architecture.to_dict(),
        "licence": card.licence or None,
        "notes": card.notes or None,
    }
    told = {name: value for name, value in told.items() if value is not None}
    told["columns"] = {
        column.name: {
            "kind": column.kind,
            **({"unit": units[column.name]} if column.name in units else {}),
            "reason": column.reason,
            "missing": column.missing,
            "distinct": column.distinct,
        }
        for column in columns
    }
    yaml = require("yaml")
    return _HEAD + str(yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=120))


def architecture_of(told: Mapping[str, Any], train_rows: int, where: str) -> Architecture:
    """Width 128, depth 2, dropout .1 and batches of 64 rows, 128 above 1000 train rows, but for what a card says."""
    usual = {"width": 128, "depth": 2, "batch_size": 128 if train_rows > 1000 else 64, "dropout": 0.1}
    try:
        return Architecture.from_dict({**usual, **told})
    except ConfigError as error:
        raise ConfigError(f"{where}: architecture: {error}") from error
