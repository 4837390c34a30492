"""What an earlier run, or a move of the folder, left wrong in a store: found and put right before anything is logged.

Every run of MLflow carries the id of its output folder as a tag: so a moved folder is still known, and another one that
logs to the same server is left alone.  Knows MLflow's client by its methods only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

OUTPUT_TAG = "adaptbin.output"
EXPERIMENT_PREFIX = "adaptbin/"
_PER_PAGE = 1000


def kill_left_running(client: Any, output: str, *, is_own: bool) -> int:
    """Set as killed whatever is shown running of this output folder; returns how many runs that were.

    The caller holds the folder's lock and has opened no study yet, so nobody writes to these runs any more.  In the
    folder's own store runs without any folder's id count, too: they were written before there were ids.
    """
    experiments = [
        experiment.experiment_id
        for experiment in _pages(client.search_experiments, filter_string=f"name LIKE '{EXPERIMENT_PREFIX}%'")
    ]
    if not experiments:
        return 0
    wanted = "attributes.status = 'RUNNING'" + ("" if is_own else f" and tags.`{OUTPUT_TAG}` = '{output}'")
    # All pages first: a run that is no longer running would move the later pages.
    left = [
        run.info.run_id
        for run in _pages(client.search_runs, experiment_ids=experiments, filter_string=wanted)
        if "adaptbin.key" in run.data.tags and run.data.tags.get(OUTPUT_TAG, output) == output
    ]
    for run in left:
        client.set_terminated(run, "KILLED")
    return len(left)


def move_artifacts(database: sqlite3.Connection, root: str) -> list[tuple[str, str]]:
    """Point the experiments of an output folder's own database at ``root``, where their artifacts lie since it moved.

    MLflow keeps absolute paths, and has no call to change them.  Returns name and old place of each experiment changed.
    """
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"experiments", "runs"} <= tables:
        return []
    found = database.execute(
        "SELECT experiment_id, name, artifact_location FROM experiments WHERE substr(name, 1, ?) = ?",
        (len(EXPERIMENT_PREFIX), EXPERIMENT_PREFIX),
    ).fetchall()
    moved = []
    with database:
        for experiment, name, old in found:
            new = f"{root}/{name.removeprefix(EXPERIMENT_PREFIX)}"
            if old != new:
                database.execute(
                    "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?", (new, experiment)
                )
                database.execute(
                    "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?)"
                    " WHERE experiment_id = ? AND substr(artifact_uri, 1, ?) = ?",
                    (new, len(old) + 1, experiment, len(old) + 1, f"{old}/"),
                )
                moved.append((name, old))
    return moved


def _pages(search: Any, **query: Any) -> Iterator[Any]:
    token = None
    while True:
        page = search(**query, max_results=_PER_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
