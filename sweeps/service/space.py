"""Room for Ray's files, asked for before anything is trained: what runs out later ends in riddles."""

from __future__ import annotations

import shutil
from pathlib import Path

from adaptbin.errors import ResourceError

SHARED = Path("/dev/shm")
"""Where Ray puts its shared memory if it fits there, else into the temporary folder."""

FILES = 200 * 2**20
"""Bytes for Ray's logs and the records of a run."""


def require_space(folder: Path, shared: int) -> None:
    """Raise ResourceError unless there is room for a run's files in ``folder`` and for ``shared`` bytes of memory."""
    needed = FILES
    what = "Ray's logs"
    if not SHARED.is_dir() or shutil.disk_usage(SHARED).free < shared:
        needed += shared
        what += f" and shared memory, for which {SHARED} has no room"
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"{folder} must have {needed / 2**20:.0f} MB free for {what}, got {free / 2**20:.0f} MB; "
            "remove something there"
        )
