"""What became of each pack of one run: finished, failed, broken, or not yet begun.  Knows reports, not Ray."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps.service.calls import CallThread
from sweeps.service.plan import Pack
from sweeps.service.work import Listener, forget


class Attempt:
    """Turns the reports of trials into calls of a listener, made in the thread ``calls``.

    A report is a dictionary with an ``event``: "progress" (with ``progress``), "finished" (with ``records``, see
    :func:`pack_records`), "failed" and "memory" (with ``reason``); any other event says nothing.
    """

    def __init__(
        self, packs: Sequence[Pack], listener: Listener, calls: CallThread, checkpoints: Path | None = None
    ) -> None:
        self.packs = tuple(packs)
        self._listener = listener
        self._calls = calls
        self._checkpoints = checkpoints
        self._open = dict(enumerate(self.packs))
        self._begun: set[int] = set()
        self._broken: dict[int, str] = {}

    @property
    def broken(self) -> list[tuple[Pack, str]]:
        """Packs whose workers died or ran out of memory, with the reason."""
        return [(self.packs[index], reason) for index, reason in self._broken.items()]

    @property
    def waiting(self) -> list[Pack]:
        """Packs that did not end, because the run broke before their turn."""
        return list(self._open.values())

    def report(self, index: int, report: Mapping[str, Any]) -> None:
        """Take one report of the trial of pack number ``index``."""
        pack = self.packs[index]
        match report.get("event"):
            case "progress":
                self._begun.add(index)
                self._calls.post(self._listener.progress, pack, report["progress"])
            case "finished" if self._open.pop(index, None):
                self._calls.post(self._store, pack, report["records"])
            case "failed" if self._open.pop(index, None):
                self._calls.post(self._listener.failed, pack, report["reason"])
            case "memory":
                self._begun.add(index)
                self.broke(index, report["reason"])

    def recovered(self, index: int) -> None:
        """A worker died and its trial was queued again."""
        self._calls.post(self._listener.retried, self.packs[index], "its worker died; goes on from its checkpoint")

    def broke(self, index: int, reason: str) -> None:
        """A pack cannot be finished as it is.  One that never got to training would not get there in halves either."""
        if self._open.pop(index, None) is None:
            return
        if index in self._begun:
            self._broken[index] = reason
        else:
            self._calls.post(self._listener.failed, self.packs[index], reason)

    def all_broke(self, reason: str) -> bool:
        """The run itself broke: the packs that were being trained are the suspects.  Whether there were any."""
        for index in self._begun & self._open.keys():
            self.broke(index, reason)
        return bool(self._broken)

    def _store(self, pack: Pack, records: npt.NDArray[np.uint8]) -> None:
        self._listener.finished(pack, unpack_records(records))
        forget(self._checkpoints, pack.key)  # only now: the records are on disk


def pack_records(records: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.uint8]:
    """Records as bytes: these travel ten times faster through Ray than nested dictionaries."""
    return np.frombuffer(zlib.compress(json.dumps(records, allow_nan=False).encode(), 1), dtype=np.uint8)


def unpack_records(packed: npt.NDArray[np.uint8]) -> list[dict[str, Any]]:
    """Inverse of :func:`pack_records`."""
    records: list[dict[str, Any]] = json.loads(zlib.decompress(packed.tobytes()))
    return records
