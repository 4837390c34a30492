"""A thread that makes calls in order, so that whoever posts them never waits for a disk."""

from __future__ import annotations

import queue
import threading
from typing import Any


class Writer:
    """Makes calls in its own thread, in the order they were posted; leaving the block waits for all of them."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._calls.put(None)
        self._thread.join()
        if exception[0] is None:
            self.check()

    def post(self, function: Any, *arguments: Any) -> None:
        """Call ``function(*arguments)`` after all earlier ones."""
        self._calls.put((function, arguments))

    def check(self) -> None:
        """Raise what a call raised; nothing is called after that."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._error is None:
                try:
                    call[0](*call[1])
                except BaseException as error:  # handed to the main thread by check()
                    self._error = error
