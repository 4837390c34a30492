"""A small process that ends whatever a run started on this machine, however the run itself ended.

Ray's processes outlive a driver that is killed: actors by seconds, agents by a minute, its folder for ever.  So before
Ray starts, :func:`watched` starts this file as a process in a session of its own, where neither Ctrl-C nor a signal to
the driver's process group reaches it.  It waits until the driver says that it is done, or is gone.  Then it ends every
process that carries the run's mark, an environment variable with the name of the run's folder, and removes the folder.

Run as a script it imports the standard library only, and so costs a few megabytes.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MARK = "ADAPTBIN_RUN"
"""Environment variable that every process of a run inherits; its value is the run's folder."""

PREFIX = "ab-"
"""What the names of folders of runs begin with."""

_ALIVE = ".alive"
"""File in the folder, locked by driver and watchdog: who can lock it knows that both are gone."""

_DONE = b"done"
"""What a driver says that ended its block itself."""

_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Has a process that gives itself a title, as Ray's do, write it over its arguments only, not over the mark too."""

_TERMINATE_SECONDS = 2.0
_KILL_SECONDS = 10.0
"""How long processes may take after SIGTERM, and after SIGKILL, which only the kernel can delay."""


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Have all processes that are started in the block ended, and ``folder`` removed, at the block's or driver's end.

    ``folder`` is there already and belongs to this run alone.  Processes are known by their environment, which they
    inherit from this process; it is as before after the block.  Without ``/proc`` only the folder is removed.
    """
    alive = _hold(folder)
    reading, writing = os.pipe()  # neither end is inherited by other children
    marks = {MARK: str(folder), _KEEP_ENVIRONMENT: "1"}
    before = {name: os.environ.get(name) for name in marks}
    try:
        watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder), str(os.getpid())],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            pass_fds=[alive],
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(reading)
    os.environ.update(marks)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        with suppress(BrokenPipeError):  # somebody killed the watchdog
            os.write(writing, _DONE)
        os.close(writing)
        watchdog.wait()
        os.close(alive)
        shutil.rmtree(folder, ignore_errors=True)


def make_folder() -> Path:
    """A new, empty folder for a run, with a short name, because Ray's sockets lie below it; stale ones are removed."""
    parent = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    remove_stale(parent)
    return Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))


def remove_stale(parent: Path) -> list[Path]:
    """Remove folders in ``parent`` that runs of this user left behind with nobody to remove them, as in a power cut.

    Returns what was removed.  Folders without the file that :func:`watched` leaves in them are not touched.
    """
    removed = []
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            with open(folder / _ALIVE, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed


def members(folder: Path) -> list[int]:
    """Numbers of the living processes of this user that belong to the run of ``folder``, but for this process."""
    mark = os.fsencode(f"{MARK}={folder}")
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = Path("/proc", entry, "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if mark in environment.split(b"\0"):  # a process that has ended and waits for its parent has none
            found.append(int(entry))
    return found


def end_all(folder: Path) -> int:
    """End the processes of a run, gently and then not; returns how many there were.

    The mark is read anew right before each signal, so that a number that went to another process meanwhile is safe.
    """
    began = time.monotonic()
    asked: set[int] = set()
    while (elapsed := time.monotonic() - began) < _TERMINATE_SECONDS + _KILL_SECONDS and (found := members(folder)):
        for number in found:
            with suppress(ProcessLookupError, PermissionError):
                if elapsed >= _TERMINATE_SECONDS:
                    os.kill(number, signal.SIGKILL)
                elif number not in asked:
                    os.kill(number, signal.SIGTERM)
            asked.add(number)
        time.sleep(0.1)
    return len(asked)


def _hold(folder: Path) -> int:
    """Descriptor of the locked file that says that the folder is in use; it gets its name only once it is locked."""
    unnamed = folder / f"{_ALIVE}-new"
    descriptor = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    unnamed.rename(folder / _ALIVE)
    return descriptor


def _watch(folder: Path, driver: int) -> None:
    """Wait for the driver's word or its end, and clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by itself, after its work
    waiting = select.poll()
    waiting.register(sys.stdin.fileno(), select.POLLIN)
    # The end of the pipe says it at once; a child forked without exec would hold it open, so the parent is asked too.
    while not waiting.poll(1000) and os.getppid() == driver:
        pass
    said = os.read(sys.stdin.fileno(), len(_DONE)) if waiting.poll(0) else b""
    ended = end_all(folder)
    shutil.rmtree(folder, ignore_errors=True)
    if said != _DONE:
        with suppress(OSError):
            print(
                "the run ended without cleaning up (it was killed, or Ray's own processes were); "
                f"{ended} processes that it left behind were ended, and the same command continues from what is saved",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    _watch(Path(sys.argv[1]), int(sys.argv[2]))
