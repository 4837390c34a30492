"""One thread that works off a queue, so that whoever fills it waits for nothing and is stopped by no failure."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

Task = Callable[[], None]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds between attempts; each pause is twice as long as the one before."""

LAST_ATTEMPTS = 3
"""Attempts in a row, once the writer is being closed."""


class Watcher(Protocol):
    """Is told how a writer fares, in the writer's thread."""

    def is_poisoned(self, error: Exception) -> bool:
        """Whether a task failed for its own sake, so that trying it again and again would only block the others."""

    def failing(self, error: Exception) -> None:
        """The first of several failures in a row; the writer will try again."""

    def recovered(self) -> None:
        """A task was done after failures."""

    def skipped(self, error: Exception) -> None:
        """A poisoned task was dropped."""


class BackgroundWriter:
    """Runs tasks in order in a thread of its own, inside a context entered and left in that thread.

    A task that fails stays first in the queue.  The context is left, and after a pause that grows from failure to
    failure it is entered anew and the task tried again, with whatever the context makes new; likewise where the context
    cannot be entered.  A poisoned task is tried twice and dropped.
    """

    def __init__(self, connect: Callable[[], AbstractContextManager[Any]], watcher: Watcher, *, name: str) -> None:
        self._connect = connect
        self._watcher = watcher
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._done = 0
        self.error: Exception | None = None
        """The failure that tasks are waiting for, or were left for; None when all goes well."""
        # A daemon: a server that hangs must not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; tasks put before are done first."""
        self._thread.start()

    def put(self, task: Task) -> None:
        """Queue a task."""
        with self._changed:
            self._tasks.append(task)
            self._changed.notify()

    def close(self, seconds: float) -> bool:
        """Let the queue run empty, as long as a task gets done every ``seconds``; whether it did.

        What fails now is tried ``LAST_ATTEMPTS`` times.
        """
        with self._changed:
            self._closing.set()
            self._changed.notify()
        while self._thread.is_alive():
            before = self._done
            self._thread.join(seconds)
            if self._thread.is_alive() and self._done == before:
                return False
        return not self._tasks

    def _run(self) -> None:
        failures = last_attempts = 0
        suspect: Task | None = None
        while True:
            task, before = None, self._done
            try:
                with self._connect():
                    while (task := self._next()) is not None:
                        task()
                        self._tasks.popleft()
                        self._done += 1
                        if self.error is not None:
                            self.error = None
                            self._watcher.recovered()
                return
            except Exception as error:
                if self._done > before:
                    failures = last_attempts = 0
                if task is not None and self._watcher.is_poisoned(error):
                    if task is suspect:
                        self._tasks.popleft()
                        self._done += 1
                        self._watcher.skipped(error)
                    suspect = task
                    continue
                is_first, self.error = self.error is None, error
                if self._closing.is_set():
                    last_attempts += 1
                    if last_attempts == LAST_ATTEMPTS:
                        return
                    time.sleep(FIRST_PAUSE)
                else:
                    if is_first:
                        self._watcher.failing(error)
                    self._closing.wait(min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE))
                    failures += 1

    def _next(self) -> Task | None:
        """The first task, once there is one; None when the writer is being closed and has done everything."""
        with self._changed:
            self._changed.wait_for(lambda: self._tasks or self._closing.is_set())
            return self._tasks[0] if self._tasks else None
