"""What happens where a pack is trained: threads, device, checkpoint folder, and the stamp on each record.

The same code runs inside a Ray worker and inside the driver's own process.
"""

from __future__ import annotations

import json
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sweeps.service.files import write_text
from sweeps.service.manifest import hardware, versions
from sweeps.service.plan import Pack, Resources

if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.pack import PackProgress

MEMBERS = "replicas.json"
"""File in a checkpoint folder that lists the replica ids of its pack."""

PROGRESS_SECONDS = 0.5
"""Least time between two progress reports of one pack."""


@dataclass(frozen=True)
class Job:
    """Everything a runner needs to know."""

    packs: tuple[Pack, ...]
    tables: Mapping[tuple[str, int], EncodedTable]
    """(data set, split seed) -> the table that those packs train on."""
    resources: Resources = field(default_factory=Resources)
    device: str = "cpu"
    """Kind of device, "cpu" or "cuda"."""
    checkpoints: Path | None = None
    """Folder that holds one folder per unfinished pack; None trains without checkpoints."""


class Listener(Protocol):
    """Who hears of a run.  Runners call it from one thread."""

    def progress(self, pack: Pack, progress: PackProgress) -> None:
        """A pack got on."""

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        """A pack is done; one record per replica."""

    def failed(self, pack: Pack, reason: str) -> None:
        """A pack will not be finished in this run."""

    def retried(self, pack: Pack, reason: str) -> None:
        """A pack starts again, from its checkpoint where there is one."""


class Runner(Protocol):
    """Trains packs."""

    def at_once(self, resources: Resources) -> int:
        """How many packs of that size run at once.  Raises ResourceError when not even one does."""

    def run(self, job: Job, listener: Listener) -> int | None:
        """Train all packs, tell ``listener``, and return the number of the signal that ended it early, if one did."""


Train = Callable[..., list[dict[str, Any]]]
"""Signature of :func:`adaptbin.training.pack.train_pack`."""


def train_one(
    pack: Pack,
    table: EncodedTable,
    *,
    device: str,
    threads: int,
    checkpoints: Path | None,
    git: Mapping[str, Any],
    progress: Callable[[PackProgress], None],
    train: Train | None = None,
) -> list[dict[str, Any]]:
    """Train one pack and return its records, with time, versions, git state and hardware added to ``runtime``.

    A checkpoint that the same pack left in ``checkpoints`` is resumed, and removed once the records are returned to
    whoever stores them (:func:`forget`).  ``progress`` hears of it at most every ``PROGRESS_SECONDS`` and may raise.
    """
    import torch

    from adaptbin.training.checkpoint import FolderCheckpoint
    from adaptbin.training.pack import train_pack

    started = datetime.now(UTC)
    torch.set_num_threads(threads)
    state = None
    if checkpoints is not None:
        write_text(checkpoints / pack.key / MEMBERS, json.dumps([replica.id for replica in pack.replicas]))
        state = FolderCheckpoint(checkpoints / pack.key / "state")
    records = (train or train_pack)(
        pack.replicas, table, device=device, checkpoint=state, progress=_throttled(progress, PROGRESS_SECONDS)
    )
    stamp = {
        "started_at": started.isoformat(timespec="seconds"),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version for name, version in versions().items() if name in ("adaptbin", "torch", "numpy")},
        "git": dict(git),
        "host": hardware(device),
    }
    for record in records:
        record["runtime"] = {**record["runtime"], **stamp}
    return records


def forget(checkpoints: Path | None, key: str) -> None:
    """Remove the checkpoint folder of a pack."""
    if checkpoints is not None:
        shutil.rmtree(checkpoints / key, ignore_errors=True)


def begun_packs(checkpoints: Path) -> dict[str, tuple[str, ...]]:
    """Folder name -> replica ids of every pack that left a checkpoint; unreadable folders count as empty packs."""
    begun = {}
    for folder in sorted(checkpoints.glob("*/")):
        try:
            begun[folder.name] = tuple(json.loads((folder / MEMBERS).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            begun[folder.name] = ()
    return begun


def threads(resources: Resources) -> int:
    """Torch threads of a pack: its whole cores, at least one."""
    return max(1, int(resources.cpus))


def first_line(error: object) -> str:
    """First line of an error's text that says something, or its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def last_line(error: object) -> str:
    """Last line of an error's text that says something: of a traceback, the error itself."""
    return first_line("\n".join(reversed(str(error).splitlines())))


def describe(error: Exception) -> str:
    """An error in one line: type, text, and the place in the code it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"


def _throttled(progress: Callable[[PackProgress], None], seconds: float) -> Callable[[PackProgress], None]:
    last = float("-inf")

    def report(state: PackProgress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds or state.epoch == state.epochs:
            last = now
            progress(state)

    return report
