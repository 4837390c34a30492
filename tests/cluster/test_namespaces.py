"""Sweeps on hosts that share no file system: what a worker has, it has through Ray."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sweeps import sensitivity
from sweeps.service.local import InProcessRunner
from sweeps.service.sweep import Sweep
from tests.cluster.harness import REPOSITORY, wait_until
from tests.cluster.namespaces import Host, Network, require_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = str(REPOSITORY / "sweeps" / "sensitivity.py")
DRIVE = str(REPOSITORY / "tests" / "cluster" / "drive.py")
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/root",
    "PYTHONPATH": str(REPOSITORY),
    "OMP_NUM_THREADS": "1",
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A host that nobody hears of is given up after 3 (3 + 2) seconds; by default 5 (10 + 3).
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_period_ms": "2000",
}
"""As on a machine that somebody set up: the token lies in Ray's own place, and ports are Ray's own."""
OUTPUT = "/root/output"


@dataclass
class Hosts:
    """Ray on a network of hosts: the head, without cores, beside the driver; one core on each other host."""

    network: Network
    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def driver(self) -> Host:
        return self.network["driver"]

    @property
    def workers(self) -> list[Host]:
        return [host for host in self.network.hosts.values() if host is not self.driver and host.first is not None]

    @property
    def address(self) -> str:
        return f"{self.driver.address}:6379"

    def ray(self, host: Host, token: str) -> None:
        """Start Ray on a host, by the commands of its documentation."""
        place = host.path("/root/.ray/auth_token")
        place.parent.mkdir()
        place.touch(mode=0o600)
        place.write_text(token)
        where = ["--head", "--num-cpus=0"] if host is self.driver else [f"--address={self.address}", "--num-cpus=1"]
        words = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *where]
        words += ["--include-dashboard=false"] if host is self.driver else []
        log = self.folder / f"{host.name}.log"
        self.running[host.name] = started = host.start(
            *words, "--object-store-memory=134217728", environment=ENVIRONMENT, log=log
        )

        def up() -> bool:
            assert started.poll() is None, log.read_text()
            return "Ray runtime started." in log.read_text()

        if host is self.driver:
            wait_until(up, f"Ray on {host.name}")

    def drive(self, *words: str) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a script on the driver's host."""
        log = self.folder / f"{secrets.token_hex(3)}.log"
        name = f"run-{len(self.running)}"
        self.running[name] = process = self.driver.start(sys.executable, *words, environment=ENVIRONMENT, log=log)
        return process, log


@contextmanager
def hosts_with_ray(folder: Path) -> Iterator[Hosts]:
    require_namespaces()
    with Network("driver", "beta", "gamma") as network:
        hosts = Hosts(network, folder)
        try:
            token = secrets.token_hex(32)
            for host in network.hosts.values():
                hosts.ray(host, token)
            yield hosts
        finally:
            for process in hosts.running.values():
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with hosts_with_ray(tmp_path_factory.mktemp("hosts")) as hosts:
        wait_until(lambda: nodes_of(hosts) == 3, "three nodes")
        yield hosts


def nodes_of(hosts: Hosts) -> int:
    """How many nodes Ray holds for alive."""
    code = "import ray; ray.init('auto', log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"
    return int(hosts.driver.run(sys.executable, "-c", code, environment=ENVIRONMENT).split()[-1])


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("results/*/*.json")}


def comparable(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Everything but when, where and how fast."""
    return {name: {k: v for k, v in record.items() if k != "runtime"} for name, record in records.items()}


def in_this_process(output: Path, *words: str) -> dict[str, dict[str, Any]]:
    with mock.patch.object(Sweep, "_tracking", lambda self, reading: nullcontext(mock.Mock(pages={}))):
        assert sensitivity.main([*words, "--output", str(output)], runner=InProcessRunner()) == 0
    return results(output)


def written(host: Host) -> list[str]:
    """Files on a host's own disk besides Ray's."""
    folders = ("/root", "/tmp", "/home", "/var/tmp")
    found = host.run("find", *folders, "-path", "/tmp/ray", "-prune", "-o", "-xdev", "-type", "f", "-print").split()
    return [path for path in found if path != "/root/.ray/auth_token"]


def test_data_only_the_driver_has_and_results_only_it_keeps(hosts: Hosts, tmp_path: Path, data_dir: Path) -> None:
    """A table from a file of the driver's host, and the script itself, MLflow included."""
    words = "--dataset hfc --panel tau --seeds 2 --epochs 3 --probe-epochs 2 --probes 1 --pack 5".split()
    shutil.copytree(data_dir, hosts.driver.path("/root/data"), dirs_exist_ok=True)
    process, log = hosts.drive(
        SCRIPT, *words, "--data-dir=/root/data", "--address", hosts.address, f"--output={OUTPUT}/whole"
    )
    assert process.wait(120.0) == 0, log.read_text()
    records = results(hosts.driver.path(f"{OUTPUT}/whole"))
    alone = in_this_process(tmp_path, *words, f"--data-dir={data_dir}")
    assert comparable(records) == comparable(alone)
    for host in hosts.workers:
        assert written(host) == []


def test_a_host_without_power_costs_no_more_than_its_last_interval(hosts: Hosts, tmp_path: Path) -> None:
    """Its connections stay open: Ray itself must find out that nobody answers."""
    words = "--dataset breast_cancer --panel tau --seeds 2 --epochs 60 --probe-epochs 2 --probes 1 --pack 5".split()
    output = f"{OUTPUT}/power"
    process, log = hosts.drive(DRIVE, "slowly", "/tmp", hosts.address, *words, f"--output={output}")
    checkpoints = hosts.driver.path(f"{output}/checkpoints")
    wait_until(lambda: len(list(checkpoints.glob("*/replicas.json"))) == 2, "two packs")
    for host in hosts.workers:
        host.path("/tmp/go").touch()
    wait_until(lambda: len(list(checkpoints.glob("*/pack.pt"))) == 2, "two checkpoints")
    hosts.network.kill("gamma")
    assert process.wait(180.0) == 0, log.read_text()
    assert "goes on from its checkpoint" in log.read_text()
    records = results(hosts.driver.path(output))
    assert comparable(records) == comparable(in_this_process(tmp_path, *words))
    assert sorted(record["runtime"]["resumed_epoch"] > 0 for record in records.values()) == [False] * 5 + [True] * 5
