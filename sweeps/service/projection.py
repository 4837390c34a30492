"""What a result record looks like as an MLflow run: names, tags, parameters, numbers.  Pure; no mlflow.

Few, fixed names: they become the columns of MLflow's tables, and every further one slows them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from numbers import Real
from typing import Any

PROJECTION_VERSION = 1
"""Raised when a replica's run changes its layout; runs of older layouts are then written anew."""

CURVE_POINTS = 200
"""Most points of one curve in MLflow; longer ones are thinned."""

CURVES = ("loss", "mean_bins", "max_bins", "splits")


def point_tags(dataset: str, panel: str | None, value: float | None) -> dict[str, str]:
    """Tags shared by a point and its replicas.  ``panel`` None is the default point, which every panel shares."""
    return {
        "adaptbin.dataset": dataset,
        "adaptbin.panel": "all" if panel is None else panel,
        "adaptbin.value": "default" if value is None else f"{value:g}",
    }


def replica_params(identity: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of a replica run: all that decides its number, one level deep.

    Keys of ``protocol`` bear its name as prefix: there they are switches that rarely differ, and so sort together.
    """
    flat: dict[str, Any] = {}
    for name, value in identity.items():
        if isinstance(value, Mapping):
            prefix = "protocol." if name == "protocol" else ""
            flat.update({f"{prefix}{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return {key: str(value) for key, value in flat.items()}


def replica_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of a replica run that have no epoch: scores (probe means), counts and seconds.  Only finite numbers."""
    numbers: dict[str, Any] = {
        f"{part}_{metric}": score
        for part in ("val", "test")
        for metric, score in record["scores"].get(part, {}).items()
    }
    bins = record.get("bins", {})
    numbers |= {"triggers": bins.get("triggers"), "splits_total": bins.get("splits")}
    numbers["seconds"] = record.get("runtime", {}).get("seconds")
    return finite(numbers)


def replica_curves(record: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """(name, epoch, value) of every curve, at most ``CURVE_POINTS`` epochs, finite values only.

    A curve that is too long keeps the last epoch of each of ``CURVE_POINTS`` equal intervals; ``splits``, a count per
    interval, is summed instead, so that its total stays.
    """
    curves = record.get("curves", {})
    epochs: Sequence[int] = curves.get("epoch", ())
    intervals = min(CURVE_POINTS, len(epochs))
    ends = [(i + 1) * len(epochs) // intervals for i in range(intervals)]
    points = []
    for name in CURVES:
        values: Sequence[float] = curves.get(name, ())
        for begin, end in zip([0, *ends], ends, strict=False):
            if end > len(values):
                break
            value = sum(values[begin:end]) if name == "splits" else values[end - 1]
            if math.isfinite(value):
                points.append((name, int(epochs[end - 1]), float(value)))
    return points


def finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are finite numbers: NaN breaks MLflow's views, and inf is silently made a huge number."""
    return {
        key: float(value)
        for key, value in numbers.items()
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    }


def interval(record: Mapping[str, Any]) -> tuple[int, int]:
    """Start and end of a replica, ms since 1970; now, if the record does not say."""
    runtime = record.get("runtime", {})
    finished = runtime.get("finished_at")
    end = datetime.fromisoformat(finished).timestamp() if finished else time.time()
    return int(1000 * (end - float(runtime.get("seconds", 0.0)))), int(1000 * end)

def runtime_tags(record: Mapping[str, Any]) -> dict[str, str]:
    """Tags that say where a replica ran and where it diverged; they take no part in its identity."""
    runtime = record.get("runtime", {})
    tags = {f"adaptbin.{key}": runtime.get(key) for key in ("device", "pack_size")}
    tags["adaptbin.diverged_at"] = record.get("diverged_at")
    tags["mlflow.source.git.commit"] = runtime.get("git", {}).get("sha")
    return {key: str(value) for key, value in tags.items() if value is not None}


def digest(record: Mapping[str, Any]) -> str:
    """Short hash of a record's content and of the layout it is written in."""
    text = json.dumps([PROJECTION_VERSION, record], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
