"""Where numbers come from: code version, packages, machine, tables, protocol and options, in one JSON file."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import adaptbin
from adaptbin.config import ENCODER_VERSIONS, METHOD_VERSION
from sweeps.service.points import DatasetCard, Study

PACKAGES = (
    *("adaptbin", "torch", "numpy", "pandas", "scikit-learn", "scipy", "ray", "mlflow", "matplotlib"),
    *("xgboost", "xgboost-cpu"),
)

GIT_SHA = "ADAPTBIN_GIT_SHA"
"""Environment variable that names the commit of an installed copy."""

TRAINED_ON = ("device", "kernels", "host", "versions", "git")
"""What of a record's runtime can change a number's last bits."""


def git_state() -> dict[str, Any]:
    """``{"sha": ..., "dirty": ...}`` of the checkout this package lies in.

    Outside of one it is what ``$ADAPTBIN_GIT_SHA`` says, which the image sets (``<sha>`` or ``<sha>-dirty``); else both
    are None.
    """
    folder = Path(adaptbin.__file__).resolve().parent
    sha = _git(folder, "rev-parse", "HEAD")
    # An installed copy below some other repository (a virtual environment in it) is no checkout of this code.
    if sha is None or not _git(folder, "ls-files", "--", "__init__.py"):
        built = os.environ.get(GIT_SHA)
        if not built:
            return {"sha": None, "dirty": None}
        return {"sha": built.removesuffix("-dirty"), "dirty": built.endswith("-dirty")}
    return {"sha": sha, "dirty": bool(_git(folder, "status", "--porcelain"))}


def versions() -> dict[str, str]:
    """Installed version of each package that can change a number or a file."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def hardware(device: str = "cpu") -> dict[str, Any]:
    """CPU model, cores this process may use, and the GPU it trains on (None on a CPU, and where there is none)."""
    gpu = None
    if device != "cpu":
        import torch

        # The driver of a cluster may have no GPU itself.
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cpu": _cpu_model(), "cores": available_cores(), "gpu": gpu}


def available_cores() -> int:
    """Cores this process may use: its affinity mask, cut to its container's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def manifest(
    study: Study,
    records: Iterable[Mapping[str, Any]],
    *,
    options: Mapping[str, Any],
    run_seconds: float,
    trained: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """What a folder of tables and figures rests on.

    ``run_seconds`` and ``trained`` tell of the run that wrote it; ``wall_seconds`` (time in which at least one of the
    packs was being trained), ``core_seconds`` and ``trained_on`` are over all replicas, whenever they were trained.
    """
    records = list(records)
    seen = {_key(record["runtime"]): record["runtime"] for record in records}
    encoders = {replica.architecture.encoder for replica in study.all_replicas}
    return {
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "study": study.name,
        "method_version": METHOD_VERSION,
        "encoder_versions": {name: ENCODER_VERSIONS[name] for name in sorted(ENCODER_VERSIONS.keys() & encoders)},
        "git": git_state(),
        "versions": versions(),
        "tables": {card.key: _table(card, records) for card in study.cards},
        "architectures": {card.key: card.architecture.to_dict() for card in study.cards},
        "protocol": study.protocol.to_dict(),
        "budget": study.budget.to_dict(),
        **({} if study.finetuning is None else {"finetuning": study.finetuning.to_dict()}),
        "defaults": {name: study.default_of(name).to_dict() for name in study.datasets},
        "choices": {name: choice.to_dict() for name, choice in study.choices.items()},
        study.extent_name: study.extent,
        "seeds": list(study.seeds),
        "seeds_vary": study.seeds_vary if len(study.all_seeds_vary) == 1 else list(study.all_seeds_vary),
        "hardware": hardware(device),
        "trained_on": [{name: runtime.get(name) for name in TRAINED_ON} for runtime in seen.values()],
        "replicas": {
            "asked": len(study.all_replicas),
            "found": len(records),
            "diverged": sum(record["status"] == "diverged" for record in records),
            "trained_by_this_run": trained,
        },
        "run_seconds": round(run_seconds, 1),
        "wall_seconds": training_seconds(records),
        "core_seconds": round(sum(record["runtime"].get("core_seconds", 0.0) for record in records), 1),
        "options": dict(options),
    }


def _table(card: DatasetCard, records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The data set's card in short, traps included, and how many rows hold a category that train has never seen."""
    unseen = [record["unseen"] for record in records if record["identity"]["dataset"] == card.key]
    # One per split; with several splits the first stands for them.
    return {**card.summary(), "unseen_categories": unseen[0] if unseen else {}}


def training_seconds(records: Iterable[Mapping[str, Any]]) -> float:
    """Length of the union of the packs' training times: a later run, or packs side by side, do not distort it."""
    total, end = 0.0, -math.inf
    times = {(record["runtime"].get("started_at"), record["runtime"].get("finished_at")) for record in records}
    for start, stop in sorted((_seconds(a), _seconds(b)) for a, b in times if a and b):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _key(runtime: Mapping[str, Any]) -> str:
    return repr([runtime.get(name) for name in TRAINED_ON])


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
