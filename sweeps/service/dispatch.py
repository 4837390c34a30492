"""Which pack is trained next, and what becomes of one that fails.  Knows packs and reports, not Ray.

Packs wait in a queue; runners take them from it one by one and tell it what they hear.  So a pack that ran out of
memory comes back as two halves, one whose worker died comes back from its checkpoint, and packs may be added or
withdrawn while others train.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps.service.calls import CallThread
from sweeps.service.plan import Pack
from sweeps.service.work import Failure, Listener

MAX_DEATHS = 3
"""How often in a row the worker of one pack may die without getting further before the pack is cut in half."""

Forget = Callable[[str], object]
"""Removes the checkpoint of the pack of that key."""


@dataclass
class _Training:
    """A pack in the hands of a worker."""

    pack: Pack
    began: Mapping[str, Any] = field(default_factory=dict)
    """What the worker told of itself when it began: node, pid, count of the kernel's out-of-memory kills."""
    epoch: int = 0
    stops: bool = False
    """Whether it is to be stopped, because some of its replicas are not wanted any more."""


class PackQueue:
    """The packs of one run: waiting, in training, or done with.

    Reports are dictionaries with an ``event``: "began", "progress" (with ``progress``), "finished" (with ``records``,
    see :func:`pack_records`), "failed" and "memory" (with ``failure``); any other event says nothing.  The listener is
    called in the thread ``calls``.
    """

    def __init__(
        self,
        packs: Sequence[Pack],
        listener: Listener,
        calls: CallThread,
        forget: Forget,
        more: Callable[[], bool] = lambda: False,
    ) -> None:
        """``more``: whether further packs will be added, so that the queue is not over when it is empty."""
        self._more = more
        self._waiting = deque(packs)
        self._listener = listener
        self._calls = calls
        self._forget = forget
        self._training: dict[str, _Training] = {}
        self._deaths: dict[str, tuple[int, int]] = {}
        """Pack key -> deaths in a row, and the epoch the last of them came at."""
        self._withdrawn: set[str] = set()

    def take(self, name: str) -> Pack | None:
        """The next pack to train, from now on known as ``name``; None when none waits."""
        if not self._waiting:
            return None
        pack = self._waiting.popleft()
        self._training[name] = _Training(pack)
        return pack

    @property
    def is_over(self) -> bool:
        """Whether nothing waits, nothing is in training, and nothing more is to come."""
        return not self._waiting and not self._training and not self._more()

    @property
    def waiting(self) -> list[Pack]:
        """Packs that no worker has."""
        return list(self._waiting)

    def training(self, name: str) -> Pack | None:
        """The pack in training under that name."""
        found = self._training.get(name)
        return found.pack if found else None

    def began(self, name: str) -> Mapping[str, Any]:
        """What the worker of a pack told of itself; empty before it did."""
        found = self._training.get(name)
        return found.began if found else {}

    def find(self, matches: Callable[[Mapping[str, Any]], bool]) -> list[str]:
        """Names of packs in training whose workers told of themselves what ``matches``."""
        return [name for name, training in self._training.items() if training.began and matches(training.began)]

    def stops(self, name: str) -> bool:
        """Whether the pack should be stopped: :meth:`stopped` then goes on with what is left of it."""
        found = self._training.get(name)
        return found is not None and found.stops

    # ------------------------------------------------------------------------------------------------- what workers say

    def report(self, name: str, report: Mapping[str, Any]) -> None:
        """Take one report of the pack in training under ``name``."""
        training = self._training.get(name)
        if training is None:
            return
        match report.get("event"):
            case "began":
                training.began = dict(report)
                self._calls.post(self._listener.began, training.pack, training.began)
            case "progress":
                training.epoch = report["progress"].epoch
                self._calls.post(self._listener.progress, training.pack, report["progress"])
            case "finished":
                self._finished(name, report["records"])
            case "failed":
                self._failed(name, Failure.from_dict(report["failure"]))
            case "memory":
                self.ran_out_of_memory(name, Failure.from_dict(report["failure"]))

    def died(self, name: str, failure: Failure) -> None:
        """The worker died: again from the checkpoint, or in halves after ``MAX_DEATHS`` in a row without progress."""
        training = self._training.pop(name, None)
        if training is None:
            return
        pack = self._wanted(training.pack)
        count, epoch = self._deaths.get(training.pack.key, (0, 0))
        count = count + 1 if training.epoch <= epoch else 1
        if pack is None:
            return
        if count < MAX_DEATHS:
            self._deaths[pack.key] = (count, max(epoch, training.epoch))
            self._again([pack], pack, f"{failure.reason}; goes on from its checkpoint")
        elif training.began:
            self._halve(pack, failure)
        else:  # one that never got to training would not get there in halves either
            self._calls.post(self._listener.failed, pack, failure)

    def ran_out_of_memory(self, name: str, failure: Failure) -> None:
        """The pack is too large for where it was trained: it goes on in halves.

        One replica alone is tried ``MAX_DEATHS`` times: it may have been others who took the memory.
        """
        training = self._training.get(name)
        if training is None:
            return
        if len(training.pack.replicas) == 1:
            self.died(name, failure)
        elif (pack := self._wanted(self._training.pop(name).pack)) is not None:
            self._halve(pack, failure)

    def stopped(self, name: str, reason: str = "") -> None:
        """The pack ended without a result and through no fault of its own: what is still wanted of it waits again."""
        training = self._training.pop(name, None)
        if training is not None and (pack := self._wanted(training.pack)) is not None:
            self._again([pack], pack, reason or "goes on without the replicas that were withdrawn")

    def all_stopped(self, reason: str) -> None:
        """The run broke while these packs were in training: all wait again."""
        for name in list(self._training):
            self.stopped(name, reason)

    # ----------------------------------------------------------------------------------------------- what the user says

    def add(self, packs: Iterable[Pack]) -> None:
        """Let more packs wait."""
        packs = list(packs)
        self._withdrawn.difference_update(replica.id for pack in packs for replica in pack.replicas)
        # What was withdrawn and is wanted again may still be in training.
        held = {replica.id for training in self._training.values() for replica in training.pack.replicas}
        for pack in packs:
            left = tuple(replica for replica in pack.replicas if replica.id not in held)
            if left:
                whole = len(left) == len(pack.replicas)
                self._waiting.append(pack if whole else replace(pack, replicas=left, resumes=_states_of(pack)))
        for training in self._training.values():
            training.stops = self._wanted(training.pack) != training.pack

    def withdraw(self, ids: Iterable[str]) -> None:
        """Take replicas out of all packs; packs in training that hold one are to be stopped."""
        self._withdrawn.update(ids)
        self._waiting = deque(pack for old in self._waiting if (pack := self._wanted(old)) is not None)
        for training in self._training.values():
            training.stops = self._wanted(training.pack) != training.pack

    # ---------------------------------------------------------------------------------------------------------- inside

    def _finished(self, name: str, records: npt.NDArray[np.uint8]) -> None:
        pack = self._training.pop(name).pack
        self._deaths.pop(pack.key, None)
        self._calls.post(self._store, pack, records, self._spent(pack))

    def _failed(self, name: str, failure: Failure) -> None:
        self._calls.post(self._listener.failed, self._training.pop(name).pack, failure)

    def _halve(self, pack: Pack, failure: Failure) -> None:
        if len(pack.replicas) < 2:
            self._calls.post(self._listener.failed, pack, failure)
            return
        halves = [replace(half, resumes=_states_of(pack)) for half in pack.halves()]
        self._again(halves, pack, f"{failure.reason}; goes on in two halves")

    def _again(self, packs: Sequence[Pack], old: Pack, reason: str) -> None:
        # First in the queue: what was begun should be done before anything new is begun.
        self._waiting.extendleft(reversed(packs))
        self._calls.post(self._listener.retried, old, reason)

    def _wanted(self, pack: Pack) -> Pack | None:
        """What is left of a pack without the replicas withdrawn; it resumes from the whole pack's checkpoint."""
        left = tuple(replica for replica in pack.replicas if replica.id not in self._withdrawn)
        if len(left) == len(pack.replicas):
            return pack
        return replace(pack, replicas=left, resumes=_states_of(pack)) if left else None

    def _spent(self, pack: Pack) -> list[str]:
        """Checkpoints that nobody needs once ``pack`` is stored: its own, and those all of whose parts are done."""
        others = [*self._waiting, *(training.pack for training in self._training.values())]
        needed = {key for other in others for key in (other.key, *other.resumes)}
        return [key for key in (pack.key, *pack.resumes) if key not in needed]

    def _store(self, pack: Pack, records: npt.NDArray[np.uint8], spent: Sequence[str]) -> None:
        self._listener.finished(pack, unpack_records(records))
        for key in spent:  # only now: the records are on disk
            self._forget(key)


def _states_of(pack: Pack) -> tuple[str, ...]:
    """What a part of the pack goes on from."""
    return (pack.key, *pack.resumes)


def pack_records(records: Sequence[Mapping[str, Any]]) -> npt.NDArray[np.uint8]:
    """Records as bytes: these travel ten times faster through Ray than nested dictionaries."""
    return np.frombuffer(zlib.compress(json.dumps(records, allow_nan=False).encode(), 1), dtype=np.uint8)


def unpack_records(packed: npt.NDArray[np.uint8]) -> list[dict[str, Any]]:
    """Inverse of :func:`pack_records`."""
    records: list[dict[str, Any]] = json.loads(zlib.decompress(packed.tobytes()))
    return records
