"""A pack's checkpoint: tensors and JSON in one file, replaced in one step, loaded without executing anything."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

FILE_NAME = "pack.pt"

SCHEMA = 2
"""Layout of the saved state; raised when it changes, so that an old checkpoint is not resumed but trained anew."""


def save_checkpoint(folder: Path, replica_ids: Sequence[str], parts: Mapping[str, Any]) -> None:
    """Write ``parts`` (nested dictionaries and lists of tensors and plain values) for the pack of ``replica_ids``.

    The file is written under a temporary name, synced, and renamed: a reader sees the old state or the new one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{FILE_NAME}-{os.getpid()}.part"
    with temporary.open("wb") as file:
        torch.save({"schema": SCHEMA, "replicas": json.dumps(list(replica_ids)), **parts}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / FILE_NAME)


def load_checkpoint(folder: Path, replica_ids: Sequence[str]) -> dict[str, Any] | None:
    """The parts saved for exactly these replicas in this order, or None: no file, another pack's, or not readable.

    An unreadable checkpoint costs time, never a result, so it is treated as absent.
    """
    try:
        parts = torch.load(folder / FILE_NAME, map_location="cpu", weights_only=True)
        same = parts.pop("schema") == SCHEMA and json.loads(parts.pop("replicas")) == list(replica_ids)
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
    return parts if same else None
