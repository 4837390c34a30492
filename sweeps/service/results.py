"""Finished replicas as files: ``<output>/results/<dataset>/<replica id>.json``.

A file appears whole or not at all: it is written under a temporary name, flushed to disk, and renamed.  Whatever is
read is checked against its own identity, so a truncated, edited or foreign file counts as absent and is trained again.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from adaptbin.config import RECORD_SCHEMA, Replica, encoder_of, id_of, method_version_of
from adaptbin.data.registry import CARDS
from adaptbin.errors import ResourceError
from adaptbin.metrics import metrics_of
from sweeps.service.files import remove_unfinished, write_text

_PARTS: dict[str, type | tuple[type, ...]] = {
    "identity": dict,
    "scores": dict,
    "probes": list,
    "test_bootstrap_se": dict,
    "n_rows": dict,
    "target_sd": (int, float),
    "bins": dict,
    "curves": dict,
    "unseen": dict,
    "runtime": dict,
}


_KEYS = {
    "scores": {"val", "test"},
    "n_rows": {"train", "val", "test"},
    "bins": {"features", "final", "triggers", "splits"},
    "curves": {"epoch", "loss", "mean_bins", "max_bins", "splits"},
    "runtime": {"seconds", "core_seconds"},
}
"""What tables, figure and MLflow read from the parts."""


@dataclass(frozen=True)
class Reading:
    """What the results folder holds of a set of replicas."""

    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Replica id -> record, in the order the replicas were asked for."""
    rejected: dict[Path, str] = field(default_factory=dict)
    """File -> why it does not count."""


LOCK_SECONDS = 0.5

_ID_FILE = ".output-id"


class ResultsStore:
    """The results of one output folder."""

    def __init__(self, output: Path) -> None:
        self.output = Path(output).absolute()
        self._new_id = uuid.uuid4().hex

    @property
    def id(self) -> str:
        """The output folder's own name for what it shares with others: runs in MLflow, checkpoints in a storage.

        It lies in a file, so that a moved folder keeps it; see :meth:`keep_id`.
        """
        try:
            return (self.output / _ID_FILE).read_text(encoding="utf-8").strip() or self._new_id
        except (FileNotFoundError, NotADirectoryError):
            return self._new_id

    def keep_id(self) -> str:
        """Write the id to its file where that is not there, and return it; the caller holds the lock."""
        if self.id == self._new_id:
            write_text(self.output / _ID_FILE, self._new_id + "\n")
        return self.id

    def path(self, dataset: str, replica_id: str) -> Path:
        """Where the record of a replica lies."""
        return self.output / "results" / dataset / f"{replica_id}.json"

    def write(self, record: Mapping[str, Any]) -> Path:
        """Check a record and put it in place.  Raises ValueError when it is not a whole record of its replica."""
        path = self.path(record["identity"]["dataset"], record["id"])
        check_record(record, record["id"])
        write_text(path, json.dumps(record, allow_nan=False))
        return path

    def read(self, replicas: Iterable[Replica]) -> Reading:
        """Records of those replicas that are there; files that do not hold one are named in ``rejected``.

        They come without their curves, which are nearly all of a record: only MLflow shows them, and it reads the file.
        """
        reading = Reading()
        for replica in replicas:
            path = self.path(replica.dataset, replica.id)
            try:
                text = path.read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnicodeDecodeError) as error:
                reading.rejected[path] = f"unreadable: {error}"
                continue
            try:
                record = json.loads(text, parse_constant=_refuse_constant)
                check_record(record, replica.id)
            except ValueError as error:
                reading.rejected[path] = str(error)
            else:
                del record["curves"]
                reading.records[replica.id] = record
        return reading

    def sample(self, dataset: str, limit: int = 40) -> list[dict[str, Any]]:
        """Some of the newest records of a data set, of whatever study; those with the most epochs only."""
        files = sorted((self.output / "results" / dataset).glob("*.json"), key=os.path.getmtime, reverse=True)
        records = []
        for path in files[:limit]:
            try:
                record = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
                check_record(record, path.stem)
            except (OSError, ValueError):
                continue
            records.append(record)
        longest = max((record["identity"]["budget"]["epochs"] for record in records), default=0)
        return [record for record in records if record["identity"]["budget"]["epochs"] == longest]

    def require_writable(self, *folders: str) -> None:
        """Make the output folder and ``folders`` in it.  Raises ResourceError unless files can be written in each."""
        for folder in (self.output, *(self.output / name for name in folders)):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):  # without a name, so that nothing is left of it
                    pass
            except OSError as error:
                raise ResourceError(f"the output folder must be writable, got {folder}: {error.strerror}") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the output folder for this process; it is free again when the process ends, however it ends.

        Files that a killed process had not finished writing are removed.

        Raises ResourceError, naming the holder, when another run holds it.
        """
        with open(self.output / ".lock", "a+", encoding="utf-8") as file:
            try:
                _lock_patiently(file)
            except OSError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise ResourceError(
                    f"one run at a time may write to an output folder, got {self.output}, held by {holder}; "
                    "wait for it, or choose another --output"
                ) from error
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%SZ}")
            file.flush()
            remove_unfinished(self.output)
            self.keep_id()
            yield


def _lock_patiently(file: IO[str]) -> None:
    """Lock a file for this process alone.  Who only looks whether it is locked holds it for a moment, too."""
    import fcntl  # POSIX only; imported here so that reading results works anywhere

    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)


def check_record(record: Any, replica_id: str) -> None:
    """Raise ValueError unless ``record`` is a whole record of the replica with that id."""
    if not isinstance(record, dict):
        raise ValueError(f"a record must be a JSON object, got {type(record).__name__}")
    if record.get("schema") != RECORD_SCHEMA:
        raise ValueError(f"schema must be {RECORD_SCHEMA}, got {record.get('schema')!r}")
    for name, kind in _PARTS.items():
        if not isinstance(record.get(name), kind):
            raise ValueError(f"part {name!r} is missing or of the wrong kind")
    if record.get("status") not in ("finished", "diverged"):
        raise ValueError(f"status must be finished or diverged, got {record.get('status')!r}")
    for part, keys in _KEYS.items():
        if part == "curves" and not record[part] and record["identity"].get("budget") == {"epochs": 0}:
            continue  # curves are of pretraining, and there was none
        if not keys <= record[part].keys():
            raise ValueError(f"part {part!r} must hold {_words(keys)}, got {_words(record[part])}")
    if record["status"] == "finished":
        dataset = record["identity"].get("dataset")
        wanted = set(metrics_of(CARDS[dataset].task)) if dataset in CARDS else set()
        for part in ("val", "test"):
            if not record["scores"][part] or not wanted <= record["scores"][part].keys():
                raise ValueError(f"all {part} scores must be there, got {_words(record['scores'][part])}")
    identity = record["identity"]
    current = method_version_of(encoder_of(identity))
    if record.get("id") == replica_id == id_of(identity) and identity.get("method_version") == current:
        return  # the very settings that the id was made from; to build them anew would take ten times as long
    try:
        identity_id = Replica.from_identity(identity).id
    except (ValueError, TypeError) as error:
        raise ValueError(f"identity does not describe a replica: {error}") from error
    if not identity_id == record.get("id") == replica_id:
        raise ValueError(f"id must be {replica_id}, got {record.get('id')!r} with the identity of {identity_id}")


def _words(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"numbers must be finite, got {name}")
