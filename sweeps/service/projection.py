"""What a result record looks like as MLflow runs: keys, names, tags, parameters, numbers.  Pure; no mlflow.

Few, fixed names: they become the columns of MLflow's tables, and every further one slows them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from numbers import Real
from typing import Any

from adaptbin.config import Architecture, Hyperparameters

PROJECTION_VERSION = 2
"""Raised when a replica's run changes its layout; runs of older layouts are then written anew."""

CURVE_POINTS = 50
"""Most points of one curve in MLflow; longer ones are thinned.  MLflow takes some 80 us of CPU for each."""

CURVES = ("loss", "mean_bins", "max_bins", "splits")


@dataclass(frozen=True)
class PointRun:
    """How one point appears: its key within a study, its run name, and its tags."""

    key: str
    name: str
    tags: dict[str, str]


def point_settings(identity: Mapping[str, Any], moved: Sequence[str] = ()) -> dict[str, Any]:
    """What tells a point of a study from the others: hyperparameters, and the settings called ``moved``.

    ``identity``: of any replica of the point, or the same parts of it.  Names are those of :func:`flat_params`.
    """
    flat = {"encoder": Architecture.encoder, **_flat(identity)}  # told in an identity only where it differs
    return {**identity["hyperparameters"], **{name: flat[name] for name in moved if name in flat}}


def study_settings(identity: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What all replicas of a study share: the default point's identity with ``default`` in it, and without its seed.

    Neither the number of seeds nor the choice of panels is part of it, so more of either join the same tree.
    """
    return {key: value for key, value in identity.items() if key != "seed"} | {"hyperparameters": dict(default)}


def describe_point(settings: Mapping[str, Any], default: Mapping[str, Any]) -> PointRun:
    """Name a point by what it changes: "tau = 0.001", or "default", the point that all panels share.

    Both are :func:`point_settings`.  Tags ``adaptbin.panel`` and ``adaptbin.value`` are the changed field and its value
    ("all" and "default" for the default point); several changed fields are joined by commas.
    """
    left_out = {field.name: field.default for field in fields(Hyperparameters)}  # some are told only where they differ
    usual = {**left_out, **default}
    changed = {name: value for name, value in {**left_out, **settings}.items() if usual.get(name) != value}
    name = ", ".join(f"{key} = {_short(value)}" for key, value in changed.items())
    return PointRun(
        key=content_hash(dict(settings)),
        name=name or "default",
        tags={
            "adaptbin.panel": ",".join(changed) or "all",
            "adaptbin.value": ",".join(_short(value) for value in changed.values()) or "default",
        },
    )


def flat_params(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings as MLflow parameters, one level deep.

    Keys of ``protocol`` keep its name as prefix: they are switches that rarely differ, and so sort together.  Those of
    ``finetuning`` do, since pretraining has settings of the same names.
    """
    return {key: _short(value) for key, value in _flat(settings).items()}


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            prefix = f"{name}." if name in ("protocol", "finetuning") else ""
            flat.update({f"{prefix}{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat


def replica_scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of a replica that have no epoch: scores (means over probes), counts, seconds.  Finite ones only."""
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
    interval, is summed instead, so that its total stays.  Points inside a level stretch (of ``splits``: of zeros) are
    left out: lines between the others draw the same curve.  Of fine-tuning they are the loss, ``finetune_loss``, and
    the validation score that chooses its epoch, as ``finetune_val_qwk``.
    """
    curves = record.get("curves", {})
    points = [point for name in CURVES for point in _curve(name, curves.get("epoch", ()), curves.get(name, ()))]
    if "finetuning" in record:
        told = record["finetuning"]
        for name, shown in (("loss", "finetune_loss"), ("val", f"finetune_val_{told['metric']}")):
            values = told["curves"][name]
            points += _curve(shown, range(1, len(values) + 1), values)
    return points


def _curve(name: str, epochs: Sequence[int], values: Sequence[float | None]) -> list[tuple[str, int, float]]:
    intervals = min(CURVE_POINTS, len(epochs))
    ends = [(i + 1) * len(epochs) // intervals for i in range(intervals)]
    curve = []
    for begin, end in zip([0, *ends], ends, strict=False):
        if end > len(values):
            break
        some = values[begin:end]
        value = sum(v for v in some if v is not None) if name == "splits" else some[-1]
        if value is not None and math.isfinite(value):
            curve.append((name, int(epochs[end - 1]), float(value)))
    return _corners(curve)


def replica_tags(record: Mapping[str, Any]) -> dict[str, str]:
    """What to filter replicas by, and where one ran and diverged; none of it decides its number but the seed."""
    runtime = record.get("runtime", {})
    tags = {
        "adaptbin.seed": record["identity"]["seed"],
        "adaptbin.status": record["status"],
        "adaptbin.diverged_at": record.get("diverged_at"),
        "adaptbin.finetuning_ended": record.get("finetuning", {}).get("ended"),
        "adaptbin.device": runtime.get("device"),
        "adaptbin.pack_size": runtime.get("pack_size"),
        "mlflow.source.git.commit": runtime.get("git", {}).get("sha"),
    }
    return {key: str(value) for key, value in tags.items() if value is not None}


def interval(record: Mapping[str, Any]) -> tuple[int, int]:
    """Start and end of a replica, ms since 1970; it ended now, if the record does not say."""
    runtime = record.get("runtime", {})
    finished = runtime.get("finished_at")
    end = datetime.fromisoformat(finished).timestamp() if finished else time.time()
    return int(1000 * (end - float(runtime.get("seconds", 0.0)))), int(1000 * end)


def digest(record: Mapping[str, Any]) -> str:
    """Short hash of a record's content and of the layout it is written in."""
    return content_hash([PROJECTION_VERSION, record])


def content_hash(content: Any) -> str:
    """First 24 hex digits of the SHA-256 of the canonical JSON of ``content``."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def finite(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are finite numbers: NaN breaks MLflow's views, and inf is silently made a huge number."""
    return {
        key: float(value)
        for key, value in numbers.items()
        if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    }


def _corners(curve: Sequence[tuple[str, int, float]]) -> list[tuple[str, int, float]]:
    """The points whose two neighbours are not both level with them; every split, since splits are counted."""
    inside = range(1, len(curve) - 1)
    level = {i for i in inside if curve[i - 1][2] == curve[i][2] == curve[i + 1][2]}
    return [point for i, point in enumerate(curve) if i not in level or (point[0] == "splits" and point[2])]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
