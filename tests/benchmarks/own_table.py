"""How long a large table of one's own takes from its file to the tensors that are trained on, and how much memory.

``python -m tests.benchmarks.own_table --rows 1000000``: writes a CSV file of 50 columns (numbers, numbers with gaps,
words, codes of thousands of values, an identifier and a label), and reads, judges and encodes it in a process of its
own, as every script does before it trains.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv

from tests.benchmarks.measure import peak_resident
from tests.benchmarks.results import table

NUMBERS, GAPS, WORDS, CODES = 33, 5, 8, 2
"""Columns of each kind; an identifier and the label make 50."""


def write_table(path: Path, rows: int, seed: int = 0) -> None:
    """Write a CSV file of ``rows`` rows with a binary label called outcome."""
    draw = np.random.default_rng(seed)
    columns: dict[str, pyarrow.Array] = {}
    for j in range(NUMBERS):
        columns[f"lab_{j}"] = pyarrow.array(draw.normal(100, 15, rows).round(3))
    for j in range(GAPS):
        values = draw.normal(50, 9, rows).round(1)
        columns[f"gap_{j}"] = pyarrow.array(values, mask=draw.random(rows) < 0.1)
    levels = np.array(["low", "mid", "high", "unknown level"])
    for j in range(WORDS):
        columns[f"word_{j}"] = pyarrow.array(levels[draw.integers(0, len(levels), rows)])
    for j in range(CODES):
        columns[f"code_{j}"] = pyarrow.array(draw.integers(0, 5000, rows))
    columns["patient"] = pyarrow.array(np.arange(rows))
    columns["outcome"] = pyarrow.array(np.where(draw.random(rows) < 0.3, "died", "alive"))
    pyarrow.csv.write_csv(pyarrow.table(columns), path)


def prepare(path: Path) -> dict[str, float]:
    """Read and encode the table; wall and CPU seconds, features of the model's input, and peak MiB of this process."""
    from adaptbin.data.encode import encode
    from adaptbin.data.own import Asked, read_own_table

    wall, cpu = time.perf_counter(), time.process_time()
    own = read_own_table(path, Asked(target="outcome"))
    read = time.perf_counter() - wall
    encoded = encode(own.table)
    return {
        "read": read,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "features": encoded.inputs.shape[1],
        "peak": peak_resident(),
    }


def measure(rows: int, folder: Path) -> str:
    """Write a table there, prepare it in a new process, and say what that took."""
    path = folder / "table.csv"
    write_table(path, rows)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        told = pool.apply(prepare, (path,))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    header = ("rows", "MB of CSV", "read and judged, s", "and encoded, s", "CPU s", "features", "peak MiB", "load")
    size = path.stat().st_size / 1e6
    cells = (f"{rows:,}", f"{size:.0f}", f"{told['read']:.1f}", f"{told['wall']:.1f}", f"{told['cpu']:.1f}")
    cells += (f"{told['features']:.0f}", f"{told['peak']:.0f}", f"{load:.1f}")
    return "\n".join([f"{platform.machine()}, {os.cpu_count()} cores", "", table(header, [cells])])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line says, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.own_table", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        print(measure(chosen.rows, Path(folder)))


if __name__ == "__main__":
    main()
