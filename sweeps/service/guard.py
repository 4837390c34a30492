"""Ray's own processes on this machine, missed when they end before their time.

Without its raylet or its GCS a driver hangs, for 12 seconds or for 60, and then Ray's C++ core ends the process with no
word to us.  So a thread looks after both: it asks the run to stop, and where the run hangs in Ray, it ends the process;
the watchdog (:mod:`sweeps.service.watchdog`) does the rest.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeps.service.interrupt import Interruption

SERVERS = ("gcs_server", "raylet")
"""Names of the processes that no run can go on without."""

PATIENCE_SECONDS = 8.0
"""How long a run may take to stop by itself; Ray gives up its calls to a dead GCS after a minute."""

_LOOK_SECONDS = 0.2


class Guard:
    """Looks after Ray's processes until :meth:`rest`."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._resting = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="guard", daemon=True)

    def rest(self) -> None:
        """From here on they may end: Ray is about to be shut down."""
        self._resting.set()

    def _look(self) -> None:
        known: dict[int, str] = {}
        while not self._resting.wait(_LOOK_SECONDS):
            if len(known) < len(SERVERS):
                known |= _servers_of(os.getpid())
            gone = [name for number, name in known.items() if _name_and_parent(number) != (name, os.getpid())]
            if gone:
                self._end(gone[0])
                return

    def _end(self, name: str) -> None:
        message = (
            f"Ray's own process {name} ended before its time (killed, or out of memory?); what is finished and the "
            "checkpoints are kept, and the same command continues"
        )
        self._interruption.fail(ChildProcessError(message))
        if not self._over.wait(PATIENCE_SECONDS):
            print(f"error: {message}", file=sys.stderr, flush=True)
            os._exit(1)  # the main thread waits in Ray's core, where no exception reaches it


@contextmanager
def guarded(interruption: Interruption) -> Iterator[Guard]:
    """Let ``interruption`` raise ChildProcessError when a process of Ray, started in the block, ends before its time.

    The process exits with code 1 when the block is not left within ``PATIENCE_SECONDS`` after that.
    """
    guard = Guard(interruption)
    guard._thread.start()
    try:
        yield guard
    except Exception as error:
        # What Ray makes of it is many things, none of which says what happened.
        if interruption.error is not None and error is not interruption.error:
            raise interruption.error from error
        raise
    finally:
        guard._resting.set()
        guard._over.set()
        guard._thread.join()


def _servers_of(parent: int) -> dict[int, str]:
    """Number and name of the living servers that are children of a process; none where there is no /proc."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        match _name_and_parent(int(path.name)):
            case (name, number) if name in SERVERS and number == parent:
                found[int(path.name)] = name
    return found


def _name_and_parent(number: int) -> tuple[str, int] | None:
    """Name and parent of a process, None if it ended."""
    try:
        name, _, rest = Path("/proc", str(number), "stat").read_text().rpartition(")")
    except OSError:
        return None
    state, parent = rest.split()[:2]
    return None if state in "ZX" else (name.partition("(")[2], int(parent))
