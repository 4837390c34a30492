"""What happens where a pack is trained: threads, checkpoint, progress, and the stamp on each record.

The same code runs inside a Ray worker and inside the driver's own process.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from sweeps.service.checkpoints import CheckpointPlace
from sweeps.service.manifest import hardware, versions
from sweeps.service.nodes import Node
from sweeps.service.plan import Pack, Resources

if TYPE_CHECKING:
    from adaptbin.data.encode import EncodedTable
    from adaptbin.training.checkpoint import Checkpoint
    from adaptbin.training.pack import PackProgress
    from sweeps.service.timing import Timing

PROGRESS_SECONDS = 0.5
"""Least time between two progress reports of one pack."""

DETAIL_LINES = 8
"""Lines of a traceback that are kept, from its end."""


@dataclass(frozen=True)
class Job:
    """Everything a runner needs to know."""

    packs: tuple[Pack, ...]
    tables: Mapping[tuple[str, int], EncodedTable]
    """(data set, split seed) -> the table that those packs train on."""
    resources: Resources = field(default_factory=Resources)
    device: str = "cpu"
    """Kind of device, "cpu" or "cuda"."""
    checkpoints: CheckpointPlace | None = None
    """Where states of unfinished packs are kept; None trains without."""
    steering: Steering | None = None
    """Who may add or withdraw replicas meanwhile."""

    def more(self) -> bool:
        """Whether further packs will be added."""
        return self.steering is not None and self.steering.more

    def forget(self, key: str) -> None:
        """Remove the checkpoint of the pack of that key."""
        if self.checkpoints is not None:
            self.checkpoints.forget(key)


@dataclass(frozen=True)
class Failure:
    """Why a pack will not be finished, or not as it is."""

    reason: str
    """One line."""
    detail: str = ""
    """The end of the traceback, where there is one."""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """An error: type, text and the place in the code it came from."""
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        lines = "".join(traceback.format_exception(error)).rstrip().splitlines()
        detail = "\n".join(lines[-DETAIL_LINES:]) if frames else ""
        return cls(f"{type(error).__name__}: {first_line(error)}{where}", detail)

    @classmethod
    def from_dict(cls, parts: Mapping[str, str]) -> Self:
        """Inverse of :meth:`to_dict`."""
        return cls(**parts)

    def to_dict(self) -> dict[str, str]:
        """As plain values."""
        return asdict(self)


class Listener(Protocol):
    """Who hears of a run.  Runners call it from one thread."""

    def began(self, pack: Pack, worker: Mapping[str, Any]) -> None:
        """A worker took a pack; ``worker``: what it was granted, see :func:`sweeps.service.launch.trial`."""

    def progress(self, pack: Pack, progress: PackProgress) -> None:
        """A pack got on."""

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        """A pack is done; one record per replica."""

    def failed(self, pack: Pack, failure: Failure) -> None:
        """A pack will not be finished in this run."""

    def retried(self, pack: Pack, reason: str) -> None:
        """A pack starts again, whole or in parts, from its checkpoint where there is one."""


@dataclass(frozen=True)
class Change:
    """What a person asks of a run under way."""

    added: tuple[Pack, ...] = ()
    withdrawn: frozenset[str] = frozenset()
    """Ids of replicas."""


class Steering(Protocol):
    """Asked by the runner about once a second, in its main thread."""

    @property
    def more(self) -> bool:
        """Whether packs will be added whatever is asked for: the run waits for them."""

    def changes(self) -> Sequence[Change]:
        """What was asked for since the last call."""


class Runner(Protocol):
    """Trains packs."""

    def nodes(self, resources: Resources) -> list[Node]:
        """The machines to train on.  Raises ResourceError when no pack of that size fits on any of them."""

    def timed(
        self, pack: Pack, table: EncodedTable, resources: Resources, *, device: str, seconds: float
    ) -> Timing | None:
        """See :func:`sweeps.service.timing.time_pack`, where packs are trained; None when it cannot be told now."""

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
    checkpoint: Checkpoint | None,
    git: Mapping[str, Any],
    progress: Callable[[PackProgress], None],
    progress_seconds: float = PROGRESS_SECONDS,
    train: Train | None = None,
) -> list[dict[str, Any]]:
    """Train one pack and return its records, with time, versions, git state and hardware added to ``runtime``.

    Under halving these are the records of every rung that a replica reached.

    ``progress`` hears of it at most every ``progress_seconds`` and may raise.  ``train`` stands in for
    :func:`adaptbin.training.pack.train_pack` and :func:`adaptbin.training.halving.train_pack_halving`.
    """
    started = datetime.now(UTC)
    if train is None:
        train = _train_pack(pack)
    elif pack.halving is not None:
        train = partial(train, **asdict(pack.halving))
    if torch := sys.modules.get("torch"):  # what stands in for training may do without
        torch.set_num_threads(threads)
    records = train(
        pack.replicas, table, device=device, checkpoint=checkpoint, progress=_throttled(progress, progress_seconds)
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


def _train_pack(pack: Pack) -> Train:
    """What trains the pack."""
    if pack.halving is not None:
        from adaptbin.training.halving import train_pack_halving

        return partial(train_pack_halving, **asdict(pack.halving))
    from adaptbin.training.pack import train_pack

    return train_pack


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the C library's, or a GPU's."""
    return isinstance(error, MemoryError) or "out of memory" in str(error).lower() or "can't allocate" in str(error)


def threads(cpus: float) -> int:
    """Torch threads of a pack that was granted so many cores: the whole ones, at least one."""
    return max(1, int(cpus))


def first_line(error: object) -> str:
    """First line of an error's text that says something, or its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def last_line(error: object) -> str:
    """Last line of an error's text that says something: of a traceback, the error itself."""
    return first_line("\n".join(reversed(str(error).splitlines())))


def _throttled(progress: Callable[[PackProgress], None], seconds: float) -> Callable[[PackProgress], None]:
    last = float("-inf")

    def report(state: PackProgress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= seconds or state.epoch == state.epochs:
            last = now
            progress(state)

    return report
