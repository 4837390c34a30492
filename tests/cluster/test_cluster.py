"""Sweeps on a real Ray cluster of several nodes, some of which die, join late, or hold nothing that was asked for."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from sweeps import sensitivity
from sweeps.service.local import InProcessRunner
from sweeps.service.sweep import Sweep
from tests.cluster.harness import REPOSITORY, Cluster, Driver, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SCRIPT = str(REPOSITORY / "sweeps" / "sensitivity.py")
DRIVE = str(REPOSITORY / "tests" / "cluster" / "drive.py")
WORDS = "--dataset breast_cancer --panel tau --probe-epochs 2 --probes 1".split()
GONE_SECONDS = 10.0
"""So long after the driver's end nothing of it is left."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head without cores and two nodes with one each; a test that kills one starts another."""
    with Cluster([{"cpus": 1}, {"cpus": 1}], head_with={"cpus": 0}) as cluster:
        yield cluster


def drive(cluster: Cluster, kind: str, output: Path, *words: str) -> Driver:
    output.mkdir(exist_ok=True)
    return cluster.drive(DRIVE, kind, str(output), cluster.address, *WORDS, *words, "--output", str(output))


def wait_for_packs(output: Path, count: int) -> None:
    """Wait until workers have begun with so many packs, and let them train."""
    wait_until(lambda: len(list((output / "checkpoints").glob("*/replicas.json"))) >= count, f"{count} packs")
    (output / "go").touch()


def results(output: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (output / "results" / "breast_cancer").glob("*.json")}


def comparable(records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Everything but when, where and how fast."""
    return {name: {k: v for k, v in record.items() if k != "runtime"} for name, record in records.items()}


def in_this_process(output: Path, *words: str) -> dict[str, dict[str, Any]]:
    with mock.patch.object(Sweep, "_tracking", lambda self, reading: nullcontext(mock.Mock(pages={}))):
        assert sensitivity.main([*WORDS, *words, "--output", str(output)], runner=InProcessRunner()) == 0
    return results(output)


def seen_by_nobody(cluster: Cluster) -> bool:
    """Whether no node holds an actor, or a worker that runs anything."""
    return not any(node.actors for node in cluster.live)


def node_ids(cluster: Cluster) -> dict[str, str]:
    """Name -> id of the nodes that Ray holds for alive."""
    return {node["name"]: node["id"] for node in cluster.ask("nodes") if node["alive"]}


def test_every_replica_comes_back_through_ray(cluster: Cluster, tmp_path: Path) -> None:
    """The script itself, MLflow included, against the same sweep in one process."""
    words = "--seeds 2 --epochs 3 --pack 5".split()
    output = tmp_path / "cluster"
    driver = cluster.drive(SCRIPT, *WORDS, *words, "--address", cluster.address, "--output", str(output))
    assert driver.wait() == 0, driver.err
    assert "10/10 replicas" in driver.err
    assert "(raylet)" not in driver.out
    assert comparable(results(output)) == comparable(in_this_process(tmp_path / "alone", *words))
    assert not list((output / "checkpoints").iterdir())
    # Nothing of the driver's was written where only workers are.
    for node in cluster.live[1:]:
        assert not list((node.folder / "home").rglob("*.json"))
    wait_until(lambda: seen_by_nobody(cluster), "the end of all actors", GONE_SECONDS)


def test_a_node_that_dies_costs_no_more_than_what_it_had_not_saved(cluster: Cluster, tmp_path: Path) -> None:
    words = "--seeds 2 --epochs 60 --pack 5".split()
    output = tmp_path / "cluster"
    victim = cluster.live[-1]
    lost = node_ids(cluster)[victim.name]
    driver = drive(cluster, "slowly", output, *words)
    wait_for_packs(output, 2)
    wait_until(lambda: len(list((output / "checkpoints").glob("*/pack.pt"))) == 2, "two checkpoints")
    cluster.kill_node(victim)
    assert driver.wait() == 0, driver.err
    assert "its worker died" in driver.err
    assert "goes on from its checkpoint" in driver.err
    records = results(output)
    assert comparable(records) == comparable(in_this_process(tmp_path / "alone", *words))
    assert lost not in {record["runtime"]["node"] for record in records.values()}
    # One pack of five went on elsewhere, from what its node had sent; the other was left alone.
    assert sorted(record["runtime"]["resumed_epoch"] > 0 for record in records.values()) == [False] * 5 + [True] * 5
    cluster.add_node(cpus=1)


def test_a_node_that_joins_late_gets_work(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "cluster"
    driver = drive(cluster, "slowly", output, "--seeds", "2", "--epochs", "10", "--pack", "1")
    wait_until(lambda: list((output / "checkpoints").glob("*/replicas.json")), "a first pack")
    late = cluster.add_node(cpus=1)
    here = node_ids(cluster)[late.name]
    wait_for_packs(output, 3)
    assert driver.wait() == 0, driver.err
    records = results(output)
    assert len(records) == 10
    assert here in {record["runtime"]["node"] for record in records.values()}
    assert not any(record["runtime"]["resumed_epoch"] for record in records.values())
    cluster.kill_node(late)  # the other tests count on two
    wait_until(lambda: late.name not in node_ids(cluster), "the end of the node")


def test_a_driver_killed_leaves_nothing_and_is_continued(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "cluster"
    words = "--seeds 3 --epochs 30 --pack 5".split()
    driver = drive(cluster, "slowly", output, *words)
    wait_for_packs(output, 2)
    wait_until(lambda: results(output), "a first result")
    wait_until(lambda: list((output / "checkpoints").glob("*/pack.pt")), "a checkpoint of the next pack")
    finished = results(output)
    driver.process.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL
    wait_until(lambda: seen_by_nobody(cluster), "the end of all actors", GONE_SECONDS)

    again = drive(cluster, "slowly", output, *words)
    assert again.wait() == 0, again.err
    records = results(output)
    assert len(records) == 15
    assert {name: records[name] for name in finished} == finished
    assert any(record["runtime"]["resumed_epoch"] > 0 for record in records.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gpus-per-pack 0.25", "a pack must fit"),
        ("--cpus-per-pack 64", "a pack must fit"),
    ],
)
def test_more_than_any_node_has_is_refused(cluster: Cluster, tmp_path: Path, words: str, message: str) -> None:
    output = tmp_path / "cluster"
    asked = [*WORDS, *words.split(), "--address", cluster.address, "--output", str(output)]
    driver = cluster.drive(SCRIPT, *asked)
    assert driver.wait(60.0) == 2, driver.err
    assert message in driver.err
    assert "1 core" in driver.err
    assert not output.exists()


@pytest.mark.parametrize("token", ["another token, of the same length or not", None])
def test_a_cluster_with_another_token_is_refused(cluster: Cluster, tmp_path: Path, token: str | None) -> None:
    path = tmp_path / "token"
    if token is not None:
        path.touch(mode=0o600)
        path.write_text(token)
    output = tmp_path / "cluster"
    asked = [*WORDS, "--address", cluster.address, "--output", str(output)]
    driver = cluster.drive(SCRIPT, *asked, environment={"RAY_AUTH_TOKEN_PATH": str(path)})
    assert driver.wait(60.0) == 2, driver.err
    assert len(driver.err.splitlines()) == 1, driver.err
    assert "RAY_AUTH_TOKEN_PATH" in driver.err
    assert not output.exists()


def test_a_cluster_of_another_version_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    code = "import sys, ray; ray.__version__ = '2.1'; from sweeps import sensitivity; sys.exit(sensitivity.main())"
    driver = cluster.drive("-c", code, *WORDS, "--address", cluster.address, "--output", str(tmp_path / "cluster"))
    assert driver.wait(60.0) == 2, driver.err
    assert "Version mismatch" in driver.err
    assert "Ray: 2.1 " in driver.err


def test_rays_memory_monitor_costs_a_pack_its_size(tmp_path: Path) -> None:
    memory = psutil.virtual_memory()
    if memory.available < 9 * 2**30:
        pytest.skip(f"needs 9 GiB of free memory, got {memory.available / 2**30:.1f} GiB")
    threshold = (memory.total - memory.available + 5 * 2**30) / memory.total
    monitor = {"RAY_memory_usage_threshold": f"{threshold:.3f}", "RAY_memory_monitor_refresh_ms": "100"}
    with Cluster(head_with={"cpus": 2}, extra=monitor) as cluster:
        output = tmp_path / "cluster"
        driver = drive(cluster, "greedy", output, "--seeds", "2", "--pack", "5")
        code, told = driver.wait(180.0), driver.err
    assert code == 0, told
    assert len(results(output)) == 10
    assert "5 replicas: Ray's memory monitor killed its worker" in told
    assert "goes on in two halves" in told


def test_shares_of_gpus_give_exactly_as_many_packs_at_once(tmp_path: Path) -> None:
    with Cluster([{"cpus": 12, "gpus": 2}], head_with={"cpus": 0}) as cluster:
        words = "--seeds 3 --pack 1 --cpus-per-pack 1 --gpus-per-pack 0.25".split()
        driver = drive(cluster, "together", tmp_path / "cluster", *words)
        assert driver.wait(180.0) == 0, driver.err
        records = results(tmp_path / "cluster")
        assert len(records) == 15
        assert max(record["runtime"]["most"] for record in records.values()) == 8
