"""Ctrl-C and SIGTERM as a request to stop: noted once, acted on at a safe place."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)

AGAIN_SECONDS = 0.05
"""After so long a signal that came in the middle of an import comes again."""


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
def raising_signals() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt and SIGTERM :class:`Terminated`, so that what is open is closed.

    But not in the middle of an import, where the signal comes again a moment later: one that is cut short may leave its
    lock held, and a thread that needs the same module then waits for good.  A SIGINT that is ignored (by a shell, for
    what it runs in the background) stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()

    def stop(number: int, frame: FrameType | None) -> None:
        if _is_in_import(frame):
            os.write(write, bytes([number]))  # takes no lock, which may be held just here
            return
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def send_again() -> None:
        while number := os.read(read, 1):
            time.sleep(AGAIN_SECONDS)
            os.kill(os.getpid(), number[0])
        os.close(read)

    threading.Thread(target=send_again, name="signals", daemon=True).start()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if number != signal.SIGINT or handler != signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(write)


def _is_in_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
