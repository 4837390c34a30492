"""A thread that makes calls in order, so that Ray's event loop, which posts them, never waits for a disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Self


class CallThread:
    """Calls functions in its own thread, in the order they were posted; leaving the block waits for all of them.

    What a call raises is raised again by :meth:`check` and at the end of the block, and nothing is called after it: a
    result that could not be stored must stop the run.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="calls", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._calls.put(None)
        self._thread.join()
        if exception[0] is None:
            self.check()

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call ``function(*arguments)`` after all earlier ones."""
        self._calls.put((function, arguments))

    def check(self) -> None:
        """Raise what a call raised."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._error is None:
                function, arguments = call
                try:
                    function(*arguments)
                except BaseException as error:  # handed over by check()
                    self._error = error
