"""One thread that works off a queue, so that whoever fills it waits for nothing and is stopped by no failure."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Task = Callable[[], None]


class BackgroundWriter:
    """Runs tasks one after the other in a thread of its own, inside a context entered and left in that thread.

    An exception ends its task, not the thread, and goes to ``on_failure`` (in that thread).  After ``give_up_after``
    failures in a row, or when the context cannot be entered, the rest is dropped: each may cost a time-out.
    """

    def __init__(
        self,
        context: AbstractContextManager[Any],
        on_failure: Callable[[Exception], None],
        *,
        name: str,
        give_up_after: int = 3,
    ) -> None:
        self._context = context
        self._on_failure = on_failure
        self._give_up_after = give_up_after
        self._done = 0
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        # A daemon: a server that hangs must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; tasks put before are done first."""
        self._thread.start()

    def put(self, task: Task) -> None:
        """Queue a task."""
        self._tasks.put(task)

    def close(self, seconds: float) -> bool:
        """Let the queue run empty, as long as a task gets done every ``seconds``; whether it did."""
        self._tasks.put(None)
        while self._thread.is_alive():
            before = self._done
            self._thread.join(seconds)
            if self._thread.is_alive() and self._done == before:
                return False
        return True

    def _run(self) -> None:
        failures = 0
        try:
            with self._context:
                while failures < self._give_up_after and (task := self._tasks.get()) is not None:
                    try:
                        task()
                        failures = 0
                    except Exception as error:
                        self._on_failure(error)
                        failures += 1
                    self._done += 1
        except Exception as error:
            self._on_failure(error)
