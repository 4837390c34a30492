"""Hosts on one machine that share nothing but a network: each in name spaces of its own.

A host has its own network (one address of a private range, reachable from the other hosts of the test alone), its own
processes (all end with its first), its own name, and its own empty /tmp, /dev/shm and home.  Only the operating
system, the interpreter and this checkout are the same for all, read as they are.  Needs root and iproute2.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.cluster.harness import REPOSITORY, die_with_parent, wait_until

REQUIRED = "ADAPTBIN_REQUIRE_NAMESPACES"
"""Set to 1 where a machine that cannot make name spaces is a failure and no reason to skip."""

PRIVATE = ("/tmp", "/dev/shm", "/root", "/home", "/var/tmp", "/run")
"""What a host has for itself, empty at first."""


def require_namespaces() -> None:
    """Skip the test, or fail where ``REQUIRED`` is 1, unless this machine lets us make hosts."""
    reason = _why_not()
    if reason:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{REQUIRED} is 1, but {reason}")
        pytest.skip(reason)


def _why_not() -> str:
    missing = [program for program in ("ip", "unshare", "nsenter", "mount") if shutil.which(program) is None]
    if missing:
        return f"hosts need the programs {', '.join(missing)}"
    if os.geteuid() != 0:
        return "hosts in name spaces need root"
    name = f"abt{secrets.token_hex(3)}"
    tries = (["ip", "netns", "add", name], ["ip", "-n", name, "link", "add", "br0", "type", "bridge"])
    try:
        for words in tries:
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode:
                return f"'{' '.join(words)}' is refused: {done.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return ""


@dataclass
class Host:
    """One host; its processes are seen from outside, its files are not."""

    name: str
    address: str
    namespace: str
    first: subprocess.Popen[bytes] | None = None
    """Its first process: when that is killed, the kernel kills all others in the same moment."""
    mounted: list[str] = field(default_factory=list)

    @property
    def init(self) -> int:
        """Process id, as seen from outside, of the first process inside."""
        assert self.first is not None, f"host {self.name} is not running"
        inside = _only_child(self.first.pid)
        assert inside is not None, f"host {self.name} has ended"
        return inside

    def path(self, path: str) -> Path:
        """From outside, the file that is ``path`` (absolute) inside."""
        return Path(f"/proc/{self.init}/root{path}")

    def command(self, words: Sequence[str]) -> list[str]:
        """``words`` to be run inside."""
        return ["nsenter", f"--target={self.init}", "--net", "--mount", "--pid", "--uts", "--ipc", *words]

    def start(self, *words: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program inside; its output goes to ``log``, outside."""
        with log.open("wb") as file:
            return subprocess.Popen(
                self.command(words),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                preexec_fn=die_with_parent,
            )

    def run(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a program inside to its end; its standard output.  Raises AssertionError when it fails."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, env=environment, timeout=120.0)
        assert done.returncode == 0, f"{words} on {self.name}: {done.stderr}"
        return done.stdout


class Network:
    """Hosts on one private network, as a context manager.  The network itself is a name space too.

    So nothing of it appears among the machine's own links, and no route leads from one to the other.
    """

    def __init__(self, *names: str) -> None:
        self.key = secrets.token_hex(3)
        self.hosts = {
            name: Host(name, f"10.213.0.{number}", f"ab{self.key}{number}")
            for number, name in enumerate(names, start=1)
        }
        self._switch = f"ab{self.key}0"

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
            for host in self.hosts.values():
                self._connect(host)
                self._boot(host)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def kill(self, name: str) -> None:
        """A power cut: every process of the host ends at once, and nobody is told."""
        self.unplug(name)
        _stop(self.hosts[name])

    def unplug(self, name: str) -> None:
        """Pull the network cable: connections stay open, but nothing comes through."""
        _ip("-n", self._switch, "link", "set", self._plug(name), "down")

    def plug(self, name: str) -> None:
        """Put the cable back."""
        _ip("-n", self._switch, "link", "set", self._plug(name), "up")

    def _plug(self, name: str) -> str:
        return f"p{list(self.hosts).index(name)}"

    def _connect(self, host: Host) -> None:
        plug = self._plug(host.name)
        _ip("netns", "add", host.namespace)
        _ip("-n", self._switch, "link", "add", plug, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        _ip("-n", self._switch, "link", "set", plug, "master", "br0", "up")
        _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        _ip("-n", host.namespace, "link", "set", "eth0", "up")
        _ip("-n", host.namespace, "link", "set", "lo", "up")
        # Only so that a program asking which address leads outside is told this one; nobody answers there.
        _ip("-n", host.namespace, "route", "add", "default", "dev", "eth0")

    def _boot(self, host: Host) -> None:
        keep = " ".join(_below_private(Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), REPOSITORY))
        mounts = "\n".join(f"mount -t tmpfs -o mode=1777 tmpfs {folder}" for folder in PRIVATE if Path(folder).is_dir())
        names = "\\n".join(["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self.hosts.values())])
        script = f"""set -e
            hostname {host.name}
            mount --make-rprivate /
            mkdir -p /mnt
            mount -t tmpfs tmpfs /mnt
            for path in {keep}; do mkdir -p /mnt$path; mount --bind $path /mnt$path; done
            {mounts}
            for path in {keep}; do mkdir -p $path; mount --move /mnt$path $path; done
            umount /mnt
            mkdir -p /root/data /root/output /run/etc
            printf '{names}\\n' > /run/etc/hosts
            touch /run/etc/resolv.conf  # names are asked of nobody
            for name in hosts resolv.conf; do mount --bind /run/etc/$name /etc/$name; done
            touch /run/booted
            exec sleep infinity"""
        host.first = subprocess.Popen(
            [
                *("ip", "netns", "exec", host.namespace),
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"),
                *("bash", "-c", script),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )

        def booted() -> bool:
            assert host.first is not None and host.first.stderr is not None
            assert host.first.poll() is None, f"{host.name} did not start: {host.first.stderr.read().decode()}"
            inside = _only_child(host.first.pid)
            return inside is not None and Path(f"/proc/{inside}/root/run/booted").exists()

        wait_until(booted, f"host {host.name}", 20.0)

    def _end(self) -> None:
        for host in self.hosts.values():
            _stop(host)
        for host in self.hosts.values():
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True)
        subprocess.run(["ip", "netns", "del", self._switch], capture_output=True)


def _below_private(*paths: Path) -> list[str]:
    """Those of ``paths`` that would be hidden by a host's own empty folders, but for what lies in another of them."""
    hidden = {path for path in paths if any(path.is_relative_to(folder) for folder in PRIVATE)}
    return [str(path) for path in sorted(hidden) if not hidden.intersection(path.parents)]


def _stop(host: Host) -> None:
    if host.first is None:
        return
    inside = _only_child(host.first.pid)
    if inside is not None:
        os.kill(inside, signal.SIGKILL)
    host.first.kill()
    host.first.communicate()
    host.first = None


def _only_child(pid: int) -> int | None:
    """The one child of a process: of ``unshare --fork``, the first process of the host."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return None
    return int(words[0]) if words else None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
