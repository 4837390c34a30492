"""A sweep of thousands of replicas over many nodes, simulated: packs sleep for their predicted time, shortened.

``python -m tests.benchmarks.simulate --nodes 64 --replicas 10000`` starts that many Ray nodes on this machine, one
worker each, and runs the real planner, runner, records and checkpoint keeper over them.  A node takes about 130 MiB of
memory and a worker, which has no use for torch, 120; where 64 of each do not fit, fewer nodes get more workers each, or
there are fewer workers, and the first line says so.  Prints what the driver added to the packs' own time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from adaptbin.config import Budget
from adaptbin.data import get_card
from sweeps.service.checkpoints import FolderPlace
from sweeps.service.estimate import estimate, speeds
from sweeps.service.launch import RayRunner
from sweeps.service.memory import Sizes
from sweeps.service.panels import PANELS, SensitivityStudy, get_panels
from sweeps.service.parameters import PAPERS
from sweeps.service.plan import Pack, Plan, Resources, make_plan
from sweeps.service.results import ResultsStore
from sweeps.service.work import Failure, Job
from tests.cluster.harness import Cluster, wait_until

NODE_BYTES, WORKER_BYTES = 140 * 2**20, 130 * 2**20
"""Memory of a node with its agents, and of a worker (measured, with a tenth to spare)."""

MEMORY_SHARE = 0.85
"""Of the available memory, so much may be taken."""


class Listener:
    """Writes every record to its file, as a sweep does, and notes when workers came and packs ended."""

    def __init__(self, output: Path) -> None:
        self._store = ResultsStore(output)
        self.workers: dict[tuple[str, int], float] = {}
        self.last_began = 0.0
        self.slept: list[tuple[float, float]] = []
        self.reports = 0
        self.replicas = 0
        self.troubles: list[str] = []

    def began(self, pack: Pack, worker: Mapping[str, Any]) -> None:
        self.last_began = time.time()
        self.workers.setdefault((str(worker["node"]), int(worker["pid"])), self.last_began)

    def progress(self, pack: Pack, progress: Any) -> None:
        self.reports += 1

    def finished(self, pack: Pack, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            self._store.write(record)
        self.replicas += len(records)
        self.slept.append(tuple(records[0]["runtime"]["slept"]))

    def failed(self, pack: Pack, failure: Failure) -> None:
        self.troubles.append(failure.reason)

    def retried(self, pack: Pack, reason: str) -> None:
        self.troubles.append(reason)


def sleeping(seconds: Mapping[str, float]) -> Any:
    """A train function that sleeps; ``seconds`` by the id of a pack's first replica."""

    def train(replicas: Any, table: Any, *, device: str, checkpoint: Any, progress: Any) -> list[dict[str, Any]]:
        import time
        from types import SimpleNamespace

        from tests.service.fakes import fake_record

        began = time.time()
        end = began + seconds[replicas[0].id]
        epochs = replicas[0].budget.epochs
        while (left := end - time.time()) > 0:
            time.sleep(min(left, 1.0))
            share = (time.time() - began) / (end - began)
            progress(SimpleNamespace(epoch=max(1, min(epochs - 1, int(share * epochs))), epochs=epochs))
        records = [fake_record(replica) for replica in replicas]
        for record in records:
            record["runtime"]["slept"] = (began, end)
        return records

    return train


def plan_of(replicas: int, workers: int) -> tuple[Plan, float]:
    """The paper's sensitivity study of its eight tables with as many seeds as give ``replicas``; seconds to plan it."""
    cards = [get_card(name) for name in PAPERS]
    one_seed = len(SensitivityStudy(cards=tuple(cards), panels=get_panels(PANELS), seeds=(0,)).all_replicas)
    study = SensitivityStudy(
        cards=tuple(cards),
        panels=get_panels(PANELS),
        seeds=tuple(range(-(-replicas // one_seed))),
        budget=Budget(epochs=1000),
    )
    began = time.perf_counter()
    plan = make_plan(study, (), workers=workers)
    return plan, time.perf_counter() - began


def pack_seconds(plan: Plan, minutes: float) -> dict[str, float]:
    """First replica's id -> seconds, in proportion to what packs are predicted to take, ``minutes`` in all."""
    cards = [get_card(name) for name in PAPERS]
    sizes = {card.key: Sizes(round(0.64 * card.rows), len(card.columns)) for card in cards}
    found = speeds(plan, sizes, ())
    hours = {pack.replicas[0].id: estimate(replace(plan, packs=(pack,)), found).core_hours for pack in plan.packs}
    scale = 60.0 * minutes * plan.workers / sum(hours.values())
    return {name: hour * scale for name, hour in hours.items()}


def drive(address: str, replicas: int, workers: int, minutes: float) -> dict[str, Any]:
    """Run the simulated sweep and return its figures."""
    plan, planning = plan_of(replicas, workers)
    seconds = pack_seconds(plan, minutes)
    longest_first = tuple(sorted(plan.packs, key=lambda pack: -seconds[pack.replicas[0].id]))  # as a sweep does
    tables: dict[Any, Any] = dict.fromkeys(pack.table_key for pack in plan.packs)  # nothing in a pack looks at them
    process, samples, over = psutil.Process(), [], threading.Event()

    def sample() -> None:
        while not over.wait(1.0):
            samples.append(round(process.memory_info().rss / 2**20))

    watcher = threading.Thread(target=sample, daemon=True)
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(Path(folder))
        job = Job(longest_first, tables, Resources(), checkpoints=FolderPlace(Path(folder) / "checkpoints"))
        runner = RayRunner(address, train=sleeping(seconds))
        runner.nodes(Resources())
        watcher.start()
        began, cpu = time.time(), sum(process.cpu_times()[:2])
        runner.run(job, listener)
        ended, cpu = time.time(), sum(process.cpu_times()[:2]) - cpu
        over.set()
    up = max(sorted(listener.workers.values())[:workers])

    def idle(until: float) -> float:
        """Share of the workers' time from when all were up that no pack slept in."""
        busy = sum(max(0.0, min(end, until) - max(start, up)) for start, end in listener.slept)
        return 1.0 - busy / (workers * (until - up))

    return {
        "packs": len(plan.packs),
        "replicas": listener.replicas,
        "workers": len(listener.workers),
        "seconds to plan": round(planning, 2),
        "seconds until all workers were up": round(up - began, 1),
        "seconds in all": round(ended - began, 1),
        "longest pack, seconds": round(max(seconds.values()), 1),
        "mean pack, seconds": round(sum(seconds.values()) / len(seconds), 2),
        "overhead while packs waited": round(idle(listener.last_began), 4),
        "overhead to the end, last packs included": round(idle(ended), 4),
        "progress reports": listener.reports,
        "driver cpu share": round(cpu / (ended - began), 3),
        "driver MB": [samples[round(k * (len(samples) - 1) / 4)] for k in range(5)],
        "driver MB at most": max(samples),
        "troubles": listener.troubles[:5],
    }


def shape(nodes: int) -> tuple[int, int]:
    """Nodes and workers on each that this machine has the memory for; as many workers as nodes were asked for."""
    memory = int(psutil.virtual_memory().available * MEMORY_SHARE)
    if nodes * (NODE_BYTES + WORKER_BYTES) <= memory:
        return nodes, 1
    each = 4
    return max(1, min(nodes // each, memory // (NODE_BYTES + each * WORKER_BYTES))), each


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=4.0, help="what the packs would take without any overhead")
    parser.add_argument("--address", help="of a cluster that is there")
    parser.add_argument("--workers", type=int, help="that the cluster at --address has")
    asked = parser.parse_args()
    if asked.address:
        print(json.dumps(drive(asked.address, asked.replicas, asked.workers, asked.minutes)), flush=True)
        return 0
    nodes, each = shape(asked.nodes)
    print(f"{nodes} nodes with {each} workers each; {asked.nodes} nodes were asked for", flush=True)
    began = time.monotonic()
    with Cluster([{"cpus": each}] * nodes, head_with={"cpus": 0}, block=False) as cluster:
        wait_until(lambda: sum(node["alive"] for node in cluster.ask("nodes")) == nodes + 1, "all nodes", 300.0)
        print(f"nodes up after {time.monotonic() - began:.0f} s", flush=True)
        words = ["--replicas", asked.replicas, "--minutes", asked.minutes, "--workers", nodes * each]
        driver = cluster.drive("-m", "tests.benchmarks.simulate", "--address", cluster.address, *map(str, words))
        code = driver.wait(asked.minutes * 60.0 * 4 + 600.0)
        print(driver.err[-3000:] if code else json.dumps(json.loads(driver.out), indent=2))
    return code


if __name__ == "__main__":
    sys.exit(main())
