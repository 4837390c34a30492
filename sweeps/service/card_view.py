"""The card of an own table on the console, so that a person sees what would be trained on before it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from adaptbin.data.labels import Metric
from adaptbin.data.own import Profile
from adaptbin.data.registry import Card
from adaptbin.tasks import Task

if TYPE_CHECKING:
    from rich.console import RenderableType

TABLE_WIDTH = 110
"""Columns of what is shown where there is no terminal to ask."""
MOST_ROWS = 60
"""Columns of a table that are listed; of wider ones the first, and what is dropped or lacks values."""
_TOLD_LEVELS = 12

_METRICS: dict[Metric, str] = {"auc": "AUC", "accuracy": "accuracy", "qwk": "QWK", "rmse": "RMSE"}


def show_cards(cards: Mapping[str, Card], profiles: Mapping[str, Profile]) -> None:
    """Print the cards of all own tables."""
    if not profiles:
        return
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else TABLE_WIDTH)
    for key, profile in profiles.items():
        for shown in card_view(cards[key], profile):
            console.print(shown)


def card_view(card: Card, profile: Profile) -> tuple[RenderableType, ...]:
    """A table of columns with their kinds and reasons, one of rows per part, and what to look at."""
    from rich.table import Table as Grid
    from rich.text import Text

    counts = {
        kind: sum(column.kind == kind for column in profile.columns) for kind in ("numerical", "categorical", "dropped")
    }
    title = f"{card.key}: {card.rows} rows, " + ", ".join(f"{count} {kind}" for kind, count in counts.items())
    columns = Grid()
    for header in ("column", "kind", "why", "missing"):
        columns.add_column(header, justify="right" if header == "missing" else "left", overflow="fold")
    shown = list(profile.columns)
    if len(shown) > MOST_ROWS:
        told = [column for column in shown if column.kind == "dropped" or column.missing]
        shown = [*told[:MOST_ROWS], *(c for c in shown if c.kind != "dropped" and not c.missing)][:MOST_ROWS]
    for column in shown:
        columns.add_row(column.name, column.kind, column.reason, str(column.missing or ""))
    parts = Grid()
    levels = card.levels or ()
    parts.add_column(f"part ({profile.split})")
    parts.add_column("rows", justify="right")
    for level in levels[:_TOLD_LEVELS] if levels else ("mean",):
        parts.add_column(level, justify="right")
    for part in profile.parts:
        values = part.per_level[:_TOLD_LEVELS] if levels else (f"{part.mean:.4g}",)
        parts.add_row(part.part, str(part.rows), *map(str, values))
    if profile.unlabelled:
        parts.add_row("without a label", str(profile.unlabelled))
    left_out = len(profile.columns) - len(shown)
    notes = [
        f"read as {profile.form}",
        *([f"{left_out} more columns are not listed"] if left_out else []),
        *_notes(profile),
    ]
    architecture = card.architecture
    notes.append(
        f"model: width {architecture.width}, depth {architecture.depth}, batch {architecture.batch_size}, dropout "
        f"{architecture.dropout:g}; --write-card writes all this to change it, and --card takes it back"
    )
    label = f"label {card.target!r}: {_task(card, profile)}"
    return Text(title), columns, Text(label), parts, Text("\n".join(f"- {note}" for note in notes))


def _task(card: Card, profile: Profile) -> str:
    order = ""
    if card.task is Task.BINARY and card.levels is not None:
        order = f"; positive: {card.levels[1]!r}"
    elif card.task is Task.ORDINAL and card.levels is not None:
        order = f"; {' < '.join(card.levels)}"
    return f"{card.task} ({profile.label}{order}), scored by {_METRICS[card.primary_metric]}"


def _notes(profile: Profile) -> Iterable[str]:
    for leak in profile.leaks[:10]:
        yield (
            f"does {leak.column!r} tell the label? Alone it reaches {leak.measure} {leak.score:.3f} on train rows; "
            "--drop leaves it out"
        )
    if profile.groups:
        yield (
            f"do rows belong together by {', '.join(map(repr, profile.groups[:5]))}? Then --groups keeps them in one "
            "part, and scores do not tell of patients that were trained on"
        )
    if profile.repeated:
        yield (
            f"{profile.repeated} rows repeat an earlier one, label included; {profile.twins} rows of validation and "
            "test are also in train"
        )
    small = [part for part in profile.parts if part.per_level and 0 < min(part.per_level) < 10]
    if small:
        yield f"a class has {min(small[0].per_level)} rows in {small[0].part}: its scores are rough"
    if any(0 in part.per_level for part in profile.parts):
        yield "a class has no row in a part, so nothing is known of it there"
