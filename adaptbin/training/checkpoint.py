"""Where a pack's state is kept, and how it is written: tensors and JSON's kinds of values, loaded without executing.

A state is what ``torch.save`` makes of it, followed by the SHA-256 of those bytes: its own reader takes a changed byte
of a tensor as it comes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import torch

FILE_NAME = "pack.pt"

SCHEMA = 4
"""Layout of the saved state; raised when it changes, so that an old state is not resumed but trained anew."""

_CHUNK_BYTES = 1 << 20


class Checkpoint(Protocol):
    """Where one pack's state is kept."""

    def read(self) -> Iterator[BinaryIO]:
        """States to try, the best first (its own, then that of a pack it was cut from); may be empty.

        The streams must allow seeking.  Each is used before the next is asked for.
        """

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        """Replace the state in one step: a reader sees the old one or the new one.  ``write`` fills a binary stream.

        The stream need not allow seeking.  An error out of ``write`` leaves the old state.
        """


class FolderCheckpoint:
    """A file ``pack.pt`` in a folder of this machine; ``sources`` are folders of packs that it was cut from."""

    def __init__(self, folder: Path, *sources: Path) -> None:
        self.folder = folder
        self.sources = sources

    def read(self) -> Iterator[BinaryIO]:
        """The file in its own folder, then those in the sources; a folder without one is passed over."""
        for folder in (self.folder, *self.sources):
            try:
                file = (folder / FILE_NAME).open("rb")
            except OSError:
                continue
            with file:
                yield file

    def write(self, write: Callable[[BinaryIO], None]) -> None:
        """Write under a temporary name, sync, and rename.  Raises OSError, and leaves the old state, if that fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{FILE_NAME}-{os.getpid()}.part"
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.folder / FILE_NAME)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def save_state(checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
    """Replace the state kept in ``checkpoint``: nested dictionaries and lists of tensors and plain values."""

    def write(stream: BinaryIO) -> None:
        digesting = _Digesting(stream)
        torch.save({"schema": SCHEMA, **state}, cast(BinaryIO, digesting))
        stream.write(digesting.digest.digest())

    checkpoint.write(write)


def saved_states(checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    """The states in ``checkpoint`` that are whole and of this schema, tensors on the CPU.

    One that is not costs time, never a result, so it is treated as absent.
    """
    for stream in checkpoint.read():
        state = _load(stream)
        if state is not None:
            yield state


def _load(stream: BinaryIO) -> dict[str, Any] | None:
    try:
        if not _is_whole(stream):
            return None
        stream.seek(0)
        state = torch.load(stream, map_location="cpu", weights_only=True)
    except (
        OSError,
        RuntimeError,
        EOFError,
        KeyError,
        ValueError,
        AttributeError,
        pickle.UnpicklingError,
        zipfile.BadZipFile,
    ):
        return None
    return state if isinstance(state, dict) and state.pop("schema", None) == SCHEMA else None


def _is_whole(stream: BinaryIO) -> bool:
    """Whether the stream ends with the digest of all that stands before it."""
    digest = hashlib.sha256()
    left = stream.seek(0, os.SEEK_END) - digest.digest_size
    stream.seek(0)
    while left > 0:
        chunk = stream.read(min(left, _CHUNK_BYTES))
        if not chunk:
            return False
        digest.update(chunk)
        left -= len(chunk)
    return stream.read() == digest.digest()


class _Digesting:
    """A stream for writing that passes all on, and digests it on the way: no second copy of the state is made."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """As of a file."""
        self.digest.update(data)
        return self._stream.write(data)

    def flush(self) -> None:
        """As of a file."""
        self._stream.flush()
