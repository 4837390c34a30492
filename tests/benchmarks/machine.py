"""The machine a benchmark ran on: what it is, and how fast it multiplies matrices at best."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adaptbin import native

ROOT = Path(__file__).parents[2]

SIDE = 128
BATCHES = (1, 4, 7, 16)
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "neon", "asimd")


def products() -> dict[str, Callable[[Tensor, Tensor, Tensor], object]]:
    """Ways to compute out [P, M, N] = a [P, M, K] @ b [P, K, N] that the rate is the best of."""
    found: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
        "torch.bmm": lambda a, b, out: torch.bmm(a, b, out=out)
    }
    if native.instruction_set() is not None:
        bias = torch.zeros(max(BATCHES), 1, SIDE)
        found["compiled kernel"] = lambda a, b, out: native.linear_forward(
            a, b, bias[: len(a)], 1.0, hidden=False, kept=None, out=out
        )
    return found


def product_rate(windows: int = 8, seconds: float = 0.05) -> dict[str, float]:
    """GFLOP/s of one thread in batches of 128 x 128 x 128 float32 products, by way: the best window of all batches."""
    torch.set_num_threads(1)
    rates = {}
    for name, multiply in products().items():
        best = 0.0
        for batch in BATCHES:
            a, b, out = (torch.randn(batch, SIDE, SIDE, generator=torch.Generator().manual_seed(i)) for i in range(3))
            for _ in range(windows):
                done, started = 0, time.perf_counter()
                while (spent := time.perf_counter() - started) < seconds:
                    for _ in range(8):
                        multiply(a, b, out)
                    done += 8 * batch
                best = max(best, 2e-9 * done * SIDE**3 / spent)
        rates[name] = best
    return rates


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def description() -> dict[str, str]:
    """Everything a reader needs to know to read a timing, by name."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", text)
    flags = re.search(r"(?:flags|Features)\s*:\s*(.+)", text)
    have = set(flags[1].split()) if flags else set()
    return {
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
        "commit": _commit(),
        "CPU": (model[1] if model else platform.processor() or platform.machine())
        + f", {cores()} cores, {' '.join(flag for flag in FLAGS if flag in have) or 'flags unknown'}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}, "
        f"{platform.system()}",
        "threads": "one per process (OMP_NUM_THREADS=1)",
        "compiled kernels": native.instruction_set() or "none",
    }


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + (" + local changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
