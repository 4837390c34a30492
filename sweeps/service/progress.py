"""What a person sees while packs train: replicas done, epochs per second, time left.

A live view on a terminal; elsewhere plain lines, at most one every ``LINE_SECONDS`` besides those that tell news.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeps.service.plan import Pack, Plan
from sweeps.service.work import Failure

if TYPE_CHECKING:
    from adaptbin.config import Replica
    from adaptbin.training.pack import PackProgress

LINE_SECONDS = 15.0
WINDOW_SECONDS = 60.0
"""Speed is measured over this last while, so that it follows changes of pace."""
SHOWN_PACKS = 8
SHOWN_FAILURES = 5
DETAIL_LINES = 3
"""Lines of a failure's traceback that are shown below its reason."""


def epochs_of(replica: Replica) -> int:
    """Epochs of a replica's pretraining and fine-tuning."""
    return replica.budget.epochs + (0 if replica.finetuning is None else replica.finetuning.epochs)


class Meter:
    """Counts replica-epochs of pretraining and fine-tuning (a pack of R replicas that is e epochs on counts R e)."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.asked = len(plan.done) + len(plan.to_do)
        self.finished = len(plan.done)
        self._usual = epochs_of((plan.done + plan.to_do)[0])
        self._total = float(sum(map(epochs_of, plan.to_do)))
        self._counts: dict[str, float] = {}
        self._resumed = 0.0
        self._marks = deque([(clock(), 0.0)])

    def advance(self, pack: Pack, epoch: int) -> None:
        """A pack has done so many epochs, of pretraining and fine-tuning together."""
        count = float(len(pack.replicas) * epoch)
        if epoch > 1 and pack.key not in self._counts:
            self._resumed += count  # a checkpoint's epochs are done, but nothing took the time since
        self._counts[pack.key] = count
        now = self._clock()
        self._marks.append((now, self.trained - self._resumed))
        while len(self._marks) > 2 and self._marks[1][0] < now - WINDOW_SECONDS:
            self._marks.popleft()

    def finish(self, pack: Pack) -> None:
        """A pack's replicas are done."""
        self.advance(pack, epochs_of(pack.replicas[0]))
        self.finished += len(pack.replicas)

    def drop(self, pack: Pack) -> None:
        """A pack's training so far is lost, and it may come back in other packs."""
        self._counts.pop(pack.key, None)
        self._marks = deque([(self._clock(), self.trained - self._resumed)])

    def give_up(self, pack: Pack) -> None:
        """A pack will not be trained any more."""
        self.drop(pack)
        self._total -= len(pack.replicas) * epochs_of(pack.replicas[0])

    def ask(self, replicas: int) -> None:
        """So many replicas more are asked for; a negative number: fewer."""
        self.asked += replicas
        self._total = max(0.0, self._total + replicas * self._usual)

    @property
    def trained(self) -> float:
        """Replica-epochs of this run so far."""
        return sum(self._counts.copy().values())  # a copy, because the view is drawn in another thread

    @property
    def share(self) -> float:
        """How much of this run's training is done, 0 to 1."""
        return self.trained / self._total if self._total else 1.0

    @property
    def speed(self) -> float | None:
        """Replica-epochs per second of late; None while nothing is known."""
        (start, before), (end, after) = self._marks[0], self._marks[-1]
        return (after - before) / (end - start) if end > start and after > before else None

    @property
    def seconds_left(self) -> float | None:
        """At that speed; None while nothing is known."""
        return (self._total - self.trained) / self.speed if self.speed else None

    def __str__(self) -> str:
        speed = "" if self.speed is None else f", {self.speed:,.0f} replica-epochs/s"
        left = f", {duration(self.seconds_left)} left" if self.seconds_left else ""
        return f"{self.finished}/{self.asked} replicas{speed}{left}"


class ProgressView:
    """Shows a run on ``stream``.  A context manager; its methods may be called from any thread."""

    def __init__(self, plan: Plan, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._meter = Meter(plan, clock)
        self._names = "+".join(plan.study.datasets)
        self._clock = clock
        self._running: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._failures: list[tuple[str, Failure]] = []
        self._last_line = clock()
        self._lock = threading.RLock()
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, message: str) -> None:
        """Print one line, above the live view where there is one."""
        self._console.print(Text(message))

    def ask(self, replicas: int) -> None:
        """So many replicas more are asked for; a negative number: fewer."""
        with self._lock:
            self._meter.ask(replicas)

    @property
    def status(self) -> dict[str, Any]:
        """What the view shows, as plain words: ``progress``, ``training``, ``failures``."""
        with self._lock:
            failures = [f"{what}: {failure.reason}" for what, failure in self._failures]
            return {
                "progress": str(self._meter),
                "training": list(self._running.values()),
                "failures": failures,
            }

    def began(self, pack: Pack, worker: Mapping[str, Any]) -> None:
        """A worker took a pack."""
        with self._lock:
            self._hosts[pack.key] = f" on {worker['host']}" if worker.get("host") else ""
            self._running[pack.key] = f"{_what(pack)}{self._hosts[pack.key]}: starting"

    def progress(self, pack: Pack, state: PackProgress) -> None:
        """A pack got on."""
        with self._lock:
            if state.phase != "probe":
                before = pack.replicas[0].budget.epochs if state.phase == "finetune" else 0
                self._meter.advance(pack, before + state.epoch)
            bins = f", {state.mean_bins:.1f} bins" if state.mean_bins else ""
            diverged = f", {state.diverged} diverged" if state.diverged else ""
            self._running[pack.key] = (
                f"{_what(pack)}{self._hosts.get(pack.key, '')}: {state.phase} {state.epoch}/{state.epochs}, "
                f"loss {state.loss:.4g}{bins}{diverged}"
            )
            if not self._live.is_started and self._clock() - self._last_line >= LINE_SECONDS:
                self._line()

    def finished(self, pack: Pack) -> None:
        """A pack is done."""
        with self._lock:
            self._running.pop(pack.key, None)
            self._meter.finish(pack)
            if not self._live.is_started:
                self._line()

    def failed(self, pack: Pack, failure: Failure) -> None:
        """A pack will not be finished: told at once, and kept in sight."""
        with self._lock:
            self._running.pop(pack.key, None)
            self._meter.give_up(pack)
            self._failures.append((_what(pack), failure))
            if not self._live.is_started:
                for line in _failure_lines(_what(pack), failure):
                    self.say(line)

    def retried(self, pack: Pack, reason: str) -> None:
        """A pack starts again."""
        with self._lock:
            self._running.pop(pack.key, None)
            self._meter.drop(pack)
            self.say(f"again: {_what(pack)}: {reason}")

    def _line(self) -> None:
        self._last_line = self._clock()
        self.say(f"{self._names}: {self._meter}")

    def _render(self) -> Group:
        with self._lock:
            running, failures = list(self._running.values()), list(self._failures)
            share, words = self._meter.share, str(self._meter)
        head = Table.grid(padding=(0, 1))
        head.add_row(Text(self._names, style="bold"), ProgressBar(1.0, share, width=30), Text(words))
        rows = [Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in running[:SHOWN_PACKS]]
        if len(running) > SHOWN_PACKS:
            rows.append(Text(f"  and {len(running) - SHOWN_PACKS} more packs", style="dim"))
        for what, failure in failures[-SHOWN_FAILURES:]:
            rows += [
                Text(line, style="red", no_wrap=True, overflow="ellipsis") for line in _failure_lines(what, failure)
            ]
        if len(failures) > SHOWN_FAILURES:
            rows.append(Text(f"and {len(failures) - SHOWN_FAILURES} earlier failures", style="red"))
        return Group(head, *rows)


def _what(pack: Pack) -> str:
    return f"{pack.dataset}, {len(pack.replicas)} replicas"


def _failure_lines(what: str, failure: Failure) -> Sequence[str]:
    """The reason and the first lines of what led to it."""
    detail = [line for line in failure.detail.splitlines() if line.strip()][-DETAIL_LINES - 1 : -1]
    return [f"failed: {what}: {failure.reason}", *(f"    {line.strip()}" for line in detail)]


def duration(seconds: float) -> str:
    """``95`` as ``1 min 35 s``; two units at most."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
