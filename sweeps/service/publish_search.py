"""What a search leaves: tables, pictures, caption and manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from adaptbin.metrics import get_metric
from sweeps.service.captions_search import caption_text, changes_text, found_text, warnings_of
from sweeps.service.figures_search import search_figure
from sweeps.service.figures_search_space import front_figure, parallel_figure, rank_figure, slices_figure
from sweeps.service.figures_style import save_figure
from sweeps.service.files import write_text
from sweeps.service.notes import protocol_notes
from sweeps.service.points import AskedTest, Point
from sweeps.service.publish import Published
from sweeps.service.searches import SearchStudy
from sweeps.service.tables import console_table, number_text, write_manifest, write_tables
from sweeps.service.tables_confirmation import numbers_of, validation_of
from sweeps.service.tables_search import SearchTables, search_tables

TOP, TOP_ON_CONSOLE = 10, 5
"""Trials that the Markdown table and the console show."""


def publish(
    study: SearchStudy,
    records: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    manifest: Mapping[str, Any],
    test: AskedTest,
) -> Published:
    """Write ``trials.csv``, ``replicas.csv``, ``confirmation.csv``, ``significance.csv``, ``importances.csv``,
    ``table.md``, pictures, ``caption.txt`` and ``manifest.json``.

    Pictures: ``figure`` (history and importances), ``slices``, ``parallel`` and ``rank``, with two objectives also
    ``front``; all but the first need two complete trials.  ``study`` is of one data set.
    """
    tables = search_tables(records, study, test)
    files = write_tables(
        folder,
        trials=tables.trials,
        replicas=tables.replicas,
        confirmation=tables.confirmation,
        significance=tables.significance,
        importances=tables.importances,
    )
    files += save_figure(search_figure(tables, study), folder)
    if len(study.ranked) > 1:
        files += save_figure(slices_figure(tables, study), folder, "slices")
        files += save_figure(parallel_figure(tables, study), folder, "parallel")
        files += save_figure(rank_figure(tables, study), folder, "rank")
        if len(study.objectives) > 1:
            files += save_figure(front_figure(tables, study), folder, "front")
    caption = caption_text(tables, study)
    files.append(write_text(folder / "caption.txt", caption))
    files.append(write_text(folder / "table.md", markdown_text(tables, study)))
    winner = None if tables.winner is None else {"trial": tables.winner.number, **tables.winner.notes["settings"]}
    told = {
        **manifest,
        "notes": list(protocol_notes(study)),
        "metrics": {study.datasets[0]: study.metric},
        "search": {
            "study": study.key,
            "space": study.space.to_json(),
            "objectives": list(study.objectives),
            "trials": len(study.trials),
            "confirm_seeds": list(study.confirm_seeds),
            "halving": None if study.halving is None else list(study.halving.rungs),
            "winner": winner,
        },
    }
    files.append(write_manifest(folder / "manifest.json", told))
    return Published(
        folder,
        tuple(files),
        summaries={(study.datasets[0], study.seeds_vary): _summaries(tables, study)},
        shown=tuple(_shown(tables, study)),
    )


def _shown(tables: SearchTables, study: SearchStudy) -> Iterable[Any]:
    metric = get_metric(study.metric)
    direction = "higher" if metric.higher_is_better else "lower"
    title = f"{study.datasets[0]}: validation {metric.label} ({direction} is better)"
    yield _console(f"{title}, the best trials", *_top_rows(tables, study, TOP_ON_CONSOLE))
    if len(tables.confirmation):
        yield _console(f"{title} with fresh seeds, and test of two", *_confirmation_rows(tables))
    yield Text(found_text(tables, study))
    for warning in warnings_of(study):
        yield Text(f"warning: {warning}")


def _top_rows(tables: SearchTables, study: SearchStudy, most: int) -> tuple[list[str], list[list[str]]]:
    by_number = {trial.number: trial for trial in study.trials}
    top = tables.trials[tables.trials["rank"] <= most]
    rows = [
        [
            f"{row['rank']:.0f}",
            str(row["trial"]),
            number_text(row["val_mean"], ".4f"),
            number_text(row["val_sd"], ".4f"),
            number_text(row["core_seconds"], ".3g"),
            "default" if row["is_default"] else changes_text(by_number[row["trial"]], study),
        ]
        for row in top.to_dict("records")
    ]
    return ["rank", "trial", "mean", "sd", "core-seconds", "changes of the default"], rows


def _confirmation_rows(tables: SearchTables) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            f"{row['place']}{' *' if row['winner'] else ''}",
            "" if row["is_default"] else str(row["trial"]),
            number_text(row["search_mean"], ".4f"),
            f"{row['n']}" + (f" (†{row['n_diverged']})" if row["n_diverged"] else ""),
            number_text(row["val_mean"], ".4f"),
            number_text(row["val_sd"], ".4f"),
            number_text(row["difference"], "+.4f"),
            number_text(row["test_mean"], ".4f"),
            number_text(row["test_sd"], ".4f"),
        ]
        for row in tables.confirmation.to_dict("records")
    ]
    names = ["place", "trial", "in the search", "n", "fresh mean", "sd", "vs default", "test mean", "test sd"]
    return names, rows


def _console(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = console_table(title, names, left=("changes of the default", "place"))
    for row in rows:
        table.add_row(*row)
    return table


def markdown_text(tables: SearchTables, study: SearchStudy) -> str:
    """The best trials, the confirmation and what they say, in Markdown."""
    parts = [f"# Search of {study.datasets[0]}", found_text(tables, study), *warnings_of(study)]
    if len(tables.confirmation):
        parts += ["## With fresh seeds", _markdown(*_confirmation_rows(tables)), "\\* the winner"]
    parts += ["## The best trials", _markdown(*_top_rows(tables, study, TOP))]
    return "\n\n".join(parts) + "\n"


def _markdown(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(cell.replace("*", "\\*") for cell in row) + " |" for row in cells)


def _summaries(tables: SearchTables, study: SearchStudy) -> dict[Point, dict[str, Any]]:
    """Aggregates of every point, for MLflow; of test scores those that the tables show."""
    replicas, numbers = tables.replicas, numbers_of(study)
    found = {}
    for point in study.points_of(study.datasets[0]):
        rows = replicas[(replicas["trial"] == numbers[point]) & (replicas["epochs"] == point.budget.epochs)]
        whole: pd.DataFrame = tables.confirmation[tables.confirmation["trial"] == numbers[point]]
        fresh: Any = whole.iloc[0] if len(whole) and point.budget == study.budget else {}
        found[point] = {
            **{name: value for name, value in validation_of(rows[rows["stage"] == "search"]).items() if name[0] == "v"},
            "fresh_val_mean": fresh.get("val_mean"),
            "test_mean": fresh.get("test_mean"),
            "test_sd": fresh.get("test_sd"),
            "n": int((rows["status"] == "finished").sum()),
            "diverged": int((rows["status"] != "finished").sum()),
            "metric": study.metric,
            "trial": str(numbers[point]),
            "chosen": "yes" if tables.winner is not None and numbers[point] == tables.winner.number else "no",
        }
    return found
