"""A real Ray cluster of several nodes on one machine, and drivers that join it.

Every node is a ``ray start --block`` of its own, at a loopback address of its own (127.a.b.1, .2, ...), with its own
home and temporary folder and a mark in its environment that all its processes inherit.  So two clusters never meet,
``ray.init`` elsewhere does not see them, and a node can die as a machine does: all of its processes at once.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]

MARK = "ADAPTBIN_TEST_NODE"
"""Variable in the environment of every process of a node; its value is the node's own."""

START_SECONDS = 120.0
"""Longest wait for a node: a busy machine is no failure."""

START_AT_ONCE = 4
"""Each takes two seconds of a core."""

_PR_SET_PDEATHSIG = 1


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """First true value of ``condition()``.  Raises AssertionError when there is none within ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


def marked_processes(*marks: str) -> list[psutil.Process]:
    """Every live process that inherited one of ``marks``, and what those started.

    Ray's agents write their titles over their environment, so that they are known by their parents alone.
    """
    found: dict[int, psutil.Process] = {}
    others: list[tuple[int, psutil.Process]] = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARK) in marks:
                found[process.pid] = process
            else:
                others.append((process.ppid(), process))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    while children := [(parent, process) for parent, process in others if parent in found and process.pid not in found]:
        found.update({process.pid: process for _, process in children})
    return list(found.values())


def kill_marked(*marks: str) -> None:
    """Kill every process that inherited one of ``marks``: all stop before the first dies, so none acts on a death."""
    while processes := marked_processes(*marks):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
        psutil.wait_procs(processes, timeout=10.0)


def die_with_parent() -> None:
    """In a child before it becomes another program: end when the process that started it ends, however that does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Node:
    """One node, and everything that runs on it."""

    name: str
    ip: str
    folder: Path
    """Its "disk": home and temporary folder lie below."""
    environment: Mapping[str, str]
    started: subprocess.Popen[bytes]
    mark: str
    killed: bool = False

    @property
    def log(self) -> str:
        """What ``ray start`` printed."""
        return (self.folder / "start.log").read_text(errors="replace")

    @property
    def processes(self) -> list[psutil.Process]:
        """All live processes of the node."""
        return marked_processes(self.mark)

    @property
    def workers(self) -> dict[int, str]:
        """Process id -> title of its Ray workers: ``ray::NAME`` of what it runs, ``ray::IDLE`` when nothing."""
        titles = {}
        for process in self.processes:
            try:
                line = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            if line and line[0].startswith("ray::"):
                titles[process.pid] = line[0]
        return titles

    @property
    def actors(self) -> dict[int, str]:
        """The workers that hold an actor or run something."""
        others = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
        return {pid: title for pid, title in self.workers.items() if not title.startswith(others)}


@dataclass
class Driver:
    """A script that runs beside the head node, with its output in files."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text(errors="replace")

    def wait(self, seconds: float = 120.0) -> int:
        """Exit code.  Raises AssertionError, with the output so far, when it does not end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver did not end within {seconds:g} s:\n{self.out}\n{self.err}") from None


@dataclass
class Cluster:
    """Head and nodes, as a context manager: all of it is gone at the end.

    ``head`` and ``nodes`` hold the resources of each: ``cpus``, ``gpus``.  ``extra`` are variables for all of them.
    """

    nodes_with: Sequence[Mapping[str, float]] = ()
    head_with: Mapping[str, float] = field(default_factory=lambda: {"cpus": 1})
    extra: Mapping[str, str] = field(default_factory=dict)
    dashboard: bool = False
    object_store: int = 128 * 2**20
    block: bool = True
    """Whether each ``ray start`` stays, so that its node ends with this process however that ends: 110 MB a node."""
    nodes: list[Node] = field(default_factory=list, init=False)
    drivers: list[Driver] = field(default_factory=list, init=False)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="abc-", dir="/tmp"))  # short, because sockets lie below it
        self._network = f"127.{random.SystemRandom().randint(1, 254)}.{random.SystemRandom().randint(1, 254)}"
        self._observer: subprocess.Popen[str] | None = None
        self.token = self.folder / "token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32))
        try:
            head = self._begin(self.head_with, head=True)
            self._finish(head)
            # Ray says that it has started before it writes where.
            known = head.folder / "ray" / "ray_current_cluster"
            self.address = str(wait_until(lambda: known.is_file() and known.read_text().strip(), "the head's address"))
            for first in range(0, len(self.nodes_with), START_AT_ONCE):
                begun = [self._begin(resources) for resources in self.nodes_with[first : first + START_AT_ONCE]]
                for node in begun:
                    self._finish(node)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def live(self) -> list[Node]:
        """Nodes that were not killed, head first."""
        return [node for node in self.nodes if not node.killed]

    def add_node(self, **resources: float) -> Node:
        """Start one more node and wait until it has joined."""
        node = self._begin(resources)
        self._finish(node)
        return node

    def kill_node(self, node: Node) -> None:
        """End a node as a power cut would.  Raises ValueError for the head, which nothing survives."""
        if node is self.head:
            raise ValueError("a node other than the head must be named, got the head")
        node.killed = True
        kill_marked(node.mark)
        node.started.wait()

    def environment(self, node: Node | None = None) -> dict[str, str]:
        """Variables of a driver that runs where ``node`` (by default the head) runs, but is no part of it."""
        environment = dict((node or self.head).environment)
        del environment[MARK]
        return environment

    def drive(self, *words: str, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> Driver:
        """Start ``python WORDS`` in a folder of its own."""
        folder = folder or Path(tempfile.mkdtemp(prefix="d-", dir=self.folder))
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                env={**self.environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=die_with_parent,
            )
        driver = Driver(process, folder)
        self.drivers.append(driver)
        return driver

    def ask(self, question: str) -> Any:
        """Answer of :mod:`tests.cluster.observer`."""
        if self._observer is None:
            self._observer = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.observer", self.address],
                env=self.environment(),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                preexec_fn=die_with_parent,
            )
            assert self._line() == "ready"
        assert self._observer.stdin is not None
        self._observer.stdin.write(question + "\n")
        self._observer.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        assert self._observer is not None and self._observer.stdout is not None
        line = self._observer.stdout.readline()
        assert line, f"the observer ended with {self._observer.wait()}"
        return json.loads(line)

    def _begin(self, resources: Mapping[str, float], *, head: bool = False) -> Node:
        number = len(self.nodes)
        name = "head" if head else f"node{number}"
        folder = self.folder / str(number)
        for below in ("ray", "home", "tmp"):
            (folder / below).mkdir(parents=True)
        ip = f"{self._network}.{number + 1}"
        mark = f"{self.folder.name}/{name}"
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "ADAPTBIN_", "PYTEST"))}
        environment = {
            **clean,
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": str(REPOSITORY),
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_START_HOOK": "tests.cluster.start.without_client_server",
            "RAY_USAGE_STATS_ENABLED": "0",
            **self.extra,
            MARK: mark,
        }
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={ip}"]
        words += ["--block"] if self.block else []
        if head:
            words += ["--head", "--port=0", "--no-monitor", f"--include-dashboard={str(self.dashboard).lower()}"]
            words += ["--dashboard-host=127.0.0.1", "--dashboard-port=0"] if self.dashboard else []
        else:
            words += [f"--address={self.address}"]
        words += [
            f"--node-name={name}",
            f"--temp-dir={folder / 'ray'}",
            f"--num-cpus={resources.get('cpus', 1):g}",
            f"--num-gpus={resources.get('gpus', 0):g}",
            f"--object-store-memory={self.object_store}",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--dashboard-agent-listen-port=0",
            "--disable-usage-stats",
            f"--include-log-monitor={str(head and self.dashboard).lower()}",  # it costs half a second per node
        ]
        with (folder / "start.log").open("wb") as log:
            started = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
        node = Node(name, ip, folder, environment, started, mark)
        self.nodes.append(node)
        return node

    def _finish(self, node: Node) -> None:
        def up() -> bool:
            fine = (None,) if self.block else (None, 0)
            assert node.started.poll() in fine, f"{node.name} did not start:\n{node.log}"
            return "Ray runtime started." in node.log

        wait_until(up, f"{node.name}", START_SECONDS)

    def _end(self) -> None:
        for driver in self.drivers:
            driver.process.kill()
            driver.process.wait()
        if self._observer is not None:
            self._observer.kill()
            self._observer.communicate()
        kill_marked(*(node.mark for node in self.nodes))
        for node in self.nodes:
            node.started.wait()
        end = time.monotonic() + 10.0
        while self.folder.exists() and time.monotonic() < end:
            # An agent whose node was gone before it was seen writes until it notices that.
            shutil.rmtree(self.folder, ignore_errors=True)
            time.sleep(0.1)
