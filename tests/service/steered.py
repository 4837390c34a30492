"""A sweep that does nothing but hear requests."""

from __future__ import annotations

import threading
from pathlib import Path

from adaptbin.errors import ConfigError
from sweeps.service.results import ResultsStore
from sweeps.service.steering import Request, Steering
from sweeps.service.work import Change


def answer(request: Request) -> tuple[Change, str]:
    if request.value < 0:
        raise ConfigError(f"no: {request}")
    return Change(withdrawn=frozenset({str(request)})), f"done: {request.verb} {request}"


STATUS = {"study": "sensitivity eol", "pid": 1, "host": "h", "progress": "1/2", "training": ["a"], "failures": ["b"]}


class Sweeping:
    """A sweep that hears requests in a thread until the block is left."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.changes: list[Change] = []
        self._over = threading.Event()

    def __enter__(self) -> Sweeping:
        self._thread = threading.Thread(target=self._run)
        started = threading.Event()
        self._started = started
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        store = ResultsStore(self.output)
        store.require_writable("control")
        with store.lock(), Steering(self.output, answer, lambda: STATUS) as told:
            while not self._over.wait(0.02):
                self.changes += told.changes()
                self._started.set()
