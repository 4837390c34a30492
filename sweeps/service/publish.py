"""What is left in a folder of tables and figures, and whether it replaces that of another study.

Each kind of study fills its folder in a module of its own, as :mod:`sweeps.service.publish_sensitivity` does.
Everything in it is computed from result records, so it can be made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptbin.config import SeedsVary
from sweeps.service.points import Point, Study

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Published:
    """One folder of tables and figures."""

    folder: Path
    files: tuple[Path, ...]
    summaries: Mapping[tuple[str, SeedsVary], Mapping[Point, Mapping[str, Any]]]
    """Per data set and what its seeds vary the aggregate of every point, for MLflow: `n`, `diverged`, numbers, and
    texts, which become tags."""
    shown: tuple[RenderableType, ...]
    """What the console shows of it."""


def folder_of(output: Path, study: Study) -> Path:
    """``<output>/<study>/<data set>``; several data sets are joined by ``+``."""
    return output / study.name / "+".join(study.datasets)


def replaced_study(folder: Path, study: Study, manifest: Mapping[str, Any]) -> str | None:
    """What the folder's tables and figure show now, if they hold something that the new ones will not; else None.

    ``manifest``: of ``study``, whose tables and figure come next.
    """
    try:
        old = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        same = all(old[part] == manifest[part] for part in ("budget", "protocol", "defaults", "seeds_vary"))
        same = same and old.get("finetuning") == manifest.get("finetuning")
        # Tables of one's own may have the same name.
        prints = [{name: of["fingerprint"] for name, of in told["tables"].items()} for told in (old, manifest)]
        same = same and prints[0].items() <= prints[1].items()
        before, now = old[study.extent_name], manifest[study.extent_name]
        kept = all(set(values) <= set(now.get(name, ())) for name, values in before.items())
        if same and kept and set(old["seeds"]) <= set(manifest["seeds"]):
            return None
        return f"{len(old['seeds'])} seeds, {old['budget']['epochs']} epochs, {study.extent_name} {', '.join(before)}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
