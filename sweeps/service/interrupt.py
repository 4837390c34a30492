"""Ctrl-C and SIGTERM as a request to stop: noted once, acted on at a safe place."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """Raised at a safe place after a request to stop."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised where it arrives, as Ctrl-C is."""


class Interruption:
    """Whether, and by which signal, this process was asked to stop."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self.error: Exception | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def arm(self) -> None:
        """Install the handlers; again, after a library replaced them."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may install handlers, and only it would be interrupted
        for number in SIGNALS:
            current = signal.signal(number, self._note)
            self._previous.setdefault(number, current)

    def disarm(self) -> None:
        """Put back the handlers that were there before :meth:`arm`."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def fail(self, error: Exception) -> None:
        """Ask to stop, from any thread, with an error that :meth:`check` raises."""
        self.error = error

    def check(self) -> None:
        """Raise :class:`Interrupted` when asked to stop by a signal, or the error that stopped the run."""
        if self.error is not None:
            raise self.error
        if self.signum is not None:
            raise Interrupted(signal.Signals(self.signum).name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signum = number
        self.disarm()  # a second signal acts at once, as it always does


@contextmanager
def noting_signals() -> Iterator[Interruption]:
    """Note the first SIGINT or SIGTERM instead of dying from it."""
    interruption = Interruption()
    interruption.arm()
    try:
        yield interruption
    finally:
        interruption.disarm()


@contextmanager
def raising_sigterm() -> Iterator[None]:
    """Have SIGTERM raise :class:`Terminated`, so that what is open is closed; its default ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
