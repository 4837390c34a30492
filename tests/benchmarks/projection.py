"""How long MLflow takes for a large study, and how long its interface then takes to show it.

``python -m tests.benchmarks.projection --replicas 10000``: projects made-up records into a new SQLite store, projects
the same again, and asks a real server on loopback for the first page.  ``--screenshot page.png`` also shows that page.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sweeps.service.stores import Store, resolve_store
from sweeps.service.tracker import Tracker
from tests.benchmarks.results import table
from tests.service.records import DEFAULT, make_record

POINTS = (DEFAULT, *(replace(DEFAULT, tau=i * 1e-4) for i in range(30, 50)))
EPOCHS = 1000
AHEAD = 100
"""Records that may wait for the writer: those of a running sweep come no faster than they are trained."""

CALLS = ("create_run", "log_batch", "set_terminated", "update_run", "delete_run", "search_runs")


def study_records(replicas: int) -> Iterator[dict[str, Any]]:
    """``replicas`` records over 21 points, with curves as eol has them; they share what would only take memory."""
    curves = _curves()
    for i in range(replicas):
        record = make_record(POINTS[i % len(POINTS)], i // len(POINTS), epochs=EPOCHS)
        record["runtime"]["finished_at"] = f"2026-03-01T10:{i // 60 % 60:02d}:{i % 60:02d}Z"
        yield record | {"curves": curves}


def _curves() -> dict[str, list[float]]:
    """200 epochs of 1000.  Splits come in bursts that thin out: bins double early and hardly grow later."""
    splits = [(4 if i < 64 else 1) if i % 4 == 3 and (i < 60 or i % 28 == 3) else 0 for i in range(200)]
    mean_bins = [2.0 + sum(splits[: i + 1]) / 8 for i in range(200)]
    return {
        "epoch": [5 * i + 4 for i in range(200)],
        "loss": [20.0 * 0.98**i + (i * 7 % 5) / 100 for i in range(200)],
        "mean_bins": mean_bins,
        "max_bins": [float(round(1.5 * bins)) for bins in mean_bins],
        "splits": [float(count) for count in splits],
    }


def project(store: Store, replicas: int, calls: Counter[str], ahead: int) -> tuple[str, dict[str, float]]:
    """Address of the study's page, and what it took of this process to project its records.

    At most some ``ahead`` records wait for the writer.
    """
    cpu, wall = time.process_time(), time.perf_counter()
    with Tracker(store, on_problem=_fail, patience_seconds=120.0) as tracker:
        study = None
        for i, record in enumerate(study_records(replicas)):
            if study is None:
                study = tracker.study(
                    "sensitivity",
                    record["identity"],
                    DEFAULT.to_dict(),
                    points=[point.to_dict() for point in POINTS],
                    note="Made-up records.",
                )
            tracker.replica(study, partial(dict, record))
            while i - calls["set_terminated"] > ahead:
                time.sleep(0.01)
        assert study is not None
        for point in POINTS:
            tracker.point(study, point.to_dict(), {"metric": "qwk", "test_mean": 0.9, "n": replicas // len(POINTS)})
        tracker.finish(study, ())
        while (page := tracker.page(study)) is None:
            time.sleep(0.01)
    spent = {"wall s": time.perf_counter() - wall, "CPU s": time.process_time() - cpu, "MiB after": _resident_mib()}
    return page, spent


def _fail(problem: str) -> None:
    raise RuntimeError(problem)


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How often each of MLflow's client's methods is called meanwhile."""
    from mlflow import MlflowClient

    calls: Counter[str] = Counter()
    originals = {name: getattr(MlflowClient, name) for name in CALLS}

    def counting(name: str) -> Any:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            calls[name] += 1
            return originals[name](self, *args, **options)

        return call

    try:
        for name in CALLS:
            setattr(MlflowClient, name, counting(name))
        yield calls
    finally:
        for name, method in originals.items():
            setattr(MlflowClient, name, method)


@contextmanager
def served(store: Store) -> Iterator[str]:
    """Address of an MLflow server on the store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["server", "--backend-store-uri", store.tracking_uri, "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words, "--workers", "1"],
        cwd=Path(str(store.database)).parent,
        env=os.environ
        | {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            # It starts its web server by name.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300.0
    try:
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def page_seconds(address: str, experiment: str, wanted: str, repeats: int = 5) -> tuple[float, float, int]:
    """Seconds of the very first request for the runs' first page and the median of later ones; runs on the page."""
    body = {
        "experiment_ids": [experiment],
        "filter": wanted,
        "order_by": ["attributes.start_time DESC"],
        "run_view_type": "ACTIVE_ONLY",
        "max_results": 100,
    }
    headers = {"Content-Type": "application/json"}
    seconds, runs = [], 0
    for _ in range(1 + repeats):
        request = urllib.request.Request(
            f"{address}/ajax-api/2.0/mlflow/runs/search", json.dumps(body).encode(), headers
        )
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as answer:
            runs = len(json.load(answer)["runs"])
        seconds.append(time.perf_counter() - began)
    return seconds[0], statistics.median(seconds[1:]), runs


def take_screenshot(address: str, picture: Path) -> None:
    """What a browser shows at the address.  Raises FileNotFoundError without a Chromium."""
    browser = shutil.which("chromium")
    if browser is None:
        raise FileNotFoundError("a screenshot needs chromium, and none was found on the PATH")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,1000", "--virtual-time-budget=30000"]
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *words, f"--user-data-dir={profile}", f"--screenshot={picture.resolve()}", address]
        subprocess.run(command, check=True, timeout=180, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(replicas: int, folder: Path, picture: Path | None) -> str:
    """Everything, as two markdown tables."""
    store = resolve_store(folder, folder)
    with Tracker(store, on_problem=_fail):
        pass  # MLflow takes seconds to be imported and to make its tables; nothing of that depends on the study
    before = _resident_mib()
    rows, page = [], ""
    # The second time no run is ended, so nothing tells how far the writer is, and all records are held at once.
    for title, ahead in (("into an empty store", AHEAD), ("again, nothing to do", replicas)):
        with counted() as calls:
            page, spent = project(store, replicas, calls, ahead)
        print(f"{title}: {spent} {dict(calls)}", file=sys.stderr)
        rows.append(_row(title, replicas, before, spent, calls))
    size = sum(path.stat().st_size for path in Path(str(store.database)).parent.glob("mlflow.db*")) / 2**20
    header = ["", "wall s", "CPU s", "CPU ms per replica", "client calls per replica", "MiB before", "MiB after"]
    first = table(header, rows) + f"\n\n{replicas} replicas of {len(POINTS)} points; the database has {size:.0f} MiB.\n"
    location = urlsplit(urlsplit(page).fragment)
    (wanted,) = parse_qs(location.query)["searchFilter"]
    experiment = location.path.split("/")[2]
    pages = []
    with served(store) as address:
        for title, condition in (("the page that is printed: study and points", wanted), ("all runs", "")):
            cold, warm, runs = page_seconds(address, experiment, condition)
            pages.append([title, f"{cold:.2f}", f"{warm:.2f}", str(runs)])
        if picture is not None:
            take_screenshot(f"{address}{page}", picture)
    return first + "\n" + table(["first page", "first request, s", "later ones, s", "runs"], pages)


def _row(title: str, replicas: int, before: float, spent: Mapping[str, float], calls: Counter[str]) -> Sequence[str]:
    return [
        title,
        f"{spent['wall s']:.1f}",
        f"{spent['CPU s']:.1f}",
        f"{1000 * spent['CPU s'] / replicas:.1f}",
        f"{calls.total() / replicas:.2f}",
        f"{before:.0f}",
        f"{spent['MiB after']:.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.projection", description=__doc__)
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--screenshot", type=Path, help="take a picture of the first page, with Chromium")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print(measure(chosen.replicas, Path(folder), chosen.screenshot))


if __name__ == "__main__":
    main()
