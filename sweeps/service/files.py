"""Files that are seen whole or not at all, also after a power cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

_SUFFIX = ".part"
"""Ends the name of a file that is being written; a process that is killed leaves it behind."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Call ``write`` with a temporary file beside ``path``, flush it to disk, and rename it.

    Readers see the old file or the new one.  Raises OSError when the folder cannot be written, leaving nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=_SUFFIX)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; results are for everybody the umask lets in.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_text(path: Path, text: str) -> Path:
    """:func:`write_atomically` for UTF-8 text."""
    return write_atomically(path, lambda file: file.write(text.encode()))


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes were writing in ``folder`` and below; nobody else may be writing there."""
    for path in folder.rglob(f".*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
