"""Folders of made-up tables, as the scripts leave them, for tests of the report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from adaptbin.config import METHOD_VERSION, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.metrics import METRICS, primary_metric
from sweeps.service.methods_finetune import AGAINST, ENCODERS, METHODS
from sweeps.service.paper import ablation_scores, finetune_line, finetune_scores, linear_probe_scores, paper_scale
from sweeps.service.ranks import rank_scores
from sweeps.service.report_sources import Sources, find_sources
from sweeps.service.tables import write_manifest, write_tables

CHANGES = {"w/o FPT": "refine_every = 6", "w/o DIGS": "split_score = variance"}
REDUCED = "Reduced protocol: 3 seeds (full: 10)"


def metric_of(dataset: str, protocol: Protocol | None = None) -> str:
    return primary_metric(get_card(dataset).primary_metric, protocol or Protocol())


def sources_of(folder: Path, *datasets: str) -> Sources:
    """What a report finds in a folder, under the usual protocol."""
    return find_sources([folder], datasets, Protocol())


def write_study(
    folder: Path, study: str, datasets: str | Sequence[str], frames: Mapping[str, pd.DataFrame], **changed: Any
) -> Path:
    """Tables and manifest in ``<folder>/<study>/<data set>``; ``changed``: parts of the manifest."""
    datasets = [datasets] if isinstance(datasets, str) else list(datasets)
    place = folder / study / "+".join(datasets)
    write_tables(place, **frames)
    manifest = {
        "study": study,
        "method_version": METHOD_VERSION,
        "tables": {name: get_card(name).summary() for name in datasets},
        "protocol": Protocol().to_dict(),
        "metrics": {name: metric_of(name) for name in datasets},
        "defaults": {name: Hyperparameters().to_dict() for name in datasets},
        "replicas": {"asked": 20, "found": 19, "diverged": 1},
        "notes": [],
    }
    write_manifest(place / "manifest.json", {**manifest, **changed})
    return place


def change_manifest(place: Path, **changed: Any) -> None:
    """Other values in a manifest; None takes a part away."""
    path = place / "manifest.json"
    manifest = {**json.loads(path.read_text()), **changed}
    path.write_text(json.dumps({name: value for name, value in manifest.items() if value is not None}))


def paper_mean(table: int, name: str, dataset: str) -> float:
    """The paper's mean in our unit."""
    scores = {1: linear_probe_scores, 3: ablation_scores, 4: finetune_scores}[table]()
    return scores[name][dataset].mean / paper_scale(METRICS[metric_of(dataset)])


def benchmark_table(dataset: str, shifts: Mapping[str, float] | None = None, **changed: Any) -> pd.DataFrame:
    """All methods score as in the paper, but for ``shifts``: method -> what is added, in our unit.

    ``changed``: method -> columns of its row.
    """
    rows = []
    for name in linear_probe_scores():
        binning, masking, objective = name.split("/")
        rows.append(
            {
                "dataset": dataset,
                "binning": binning,
                "masking": masking,
                "objective": objective,
                "metric": metric_of(dataset),
                "status": "chosen",
                "mask_prob": 0.0 if masking == "none" else 0.2,
                "t_init": None if binning == "none" else 10,
                "n": 10,
                "n_diverged": 0,
                "n_missing": 0,
                "mean": paper_mean(1, name, dataset) + (shifts or {}).get(name, 0.0),
                "sd": 0.004,
                "val_mean": paper_mean(1, name, dataset),
                "target_sd": 1.0,
                **changed.get(name, {}),
            }
        )
    table = pd.DataFrame(rows).astype({"t_init": "Int64"})
    ranks = rank_scores(table["mean"].to_numpy(dtype=float), METRICS[metric_of(dataset)].sign)
    return table.assign(rank=math.nan if (table["status"] == "missing").any() else ranks)


def lost(status: str) -> dict[str, Any]:
    """Columns of a method for which nothing could be chosen."""
    return {"status": status, "n": 0, "mean": math.nan, "sd": math.nan, "n_diverged": 3 if status == "diverged" else 1}


def ablation_tables(dataset: str, shifts: Mapping[str, float] | None = None) -> dict[str, pd.DataFrame]:
    """Variants score as in the paper, but for ``shifts``; those over 1 % away from full are significant."""
    means = {name: paper_mean(3, name, dataset) + (shifts or {}).get(name, 0.0) for name in ablation_scores()}
    metric = METRICS[metric_of(dataset)]
    groups = {name: "full" if name == "full" else "paper" for name in means} | {"T_max 10": "further"}
    means["T_max 10"] = means["full"]
    points = [
        {"dataset": dataset, "group": groups[name], "variant": name, "metric": metric.name, "n": 10, "n_diverged": 0}
        | {"is_default": name == "full", "mean": mean, "sd": 0.003, "changes": CHANGES.get(name, "nothing")}
        for name, mean in means.items()
    ]
    contrasts = [
        {"dataset": dataset, "group": groups[name], "variant": name}
        | contrast(metric.name, metric.sign * (mean - means["full"]))
        for name, mean in means.items()
        if name != "full"
    ]
    return {"points": pd.DataFrame(points), "significance": pd.DataFrame(contrasts)}


def finetune_tables(
    dataset: str, shifts: Mapping[str, float] | None = None, **changed: Mapping[str, Any]
) -> dict[str, pd.DataFrame]:
    """Every encoder and method scores as in the paper, but for ``shifts``; differences over 1 % are significant.

    ``changed``: line -> columns of its row.  A replica scores .01 lower in the alphabetical order of labels.
    """
    metric = METRICS[metric_of(dataset)]
    lines = {finetune_line(encoder, method): (encoder, method) for encoder in ENCODERS for method in METHODS}
    means = {line: paper_mean(4, line, dataset) + (shifts or {}).get(line, 0.0) for line in lines}
    rows = [
        {"dataset": dataset, "encoder": encoder, "method": method, "metric": metric.name}
        | {
            "n": 10,
            "n_diverged": 0,
            "n_missing": 0,
            "mean": means[line],
            "sd": 0.002,
            "chosen": encoder == "mlp" and method != "supervised",
        }
        | {"setting": "not pretrained" if method == "supervised" else "none, T 2"}
        | dict(changed.get(line, {}))
        for line, (encoder, method) in lines.items()
    ]
    contrasts = [
        {"dataset": dataset, "encoder": encoder, "method": method, "against": other}
        | contrast(
            metric.name, metric.sign * (means[finetune_line(encoder, method)] - means[finetune_line(encoder, other)])
        )
        for encoder in ENCODERS
        for other, methods in AGAINST.items()
        for method in methods
    ]
    replicas = [
        {"dataset": dataset, "encoder": encoder, "method": method, "seed": seed, "id": f"{line} {seed}"}
        | {"status": "finished", "test": means[line], "test_qwk_alphabetical": means[line] - 0.01 - 0.001 * seed}
        for line, (encoder, method) in lines.items()
        for seed in range(3)
    ]
    frames = {"table": rows, "significance": contrasts, "replicas": replicas}
    return {name: pd.DataFrame(rows) for name, rows in frames.items()}


def contrast(metric: str, difference: float, *, n_diverged: int = 0, statistic: float | None = None) -> dict[str, Any]:
    """Columns that tell of one contrast, significant from a hundredth of a score on."""
    found = abs(difference) > 0.01
    return {
        "metric": metric,
        "n": 10,
        "n_diverged": n_diverged,
        "difference": difference,
        "statistic": 55.0 * (1 if difference > 0 else -1) if statistic is None else statistic,
        "p_holm": 0.0078 if found else 0.4,
        "mark": "**" if found else "",
        "verdict": ("better" if difference > 0 else "worse") if found else "undecided",
    }


def sensitivity_tables(dataset: str, differences: Mapping[tuple[str, float], float]) -> dict[str, pd.DataFrame]:
    """The default scores as in the paper; ``differences``: (panel, value) -> its difference to it, in our unit.

    A replica scores .01 lower in the alphabetical order of labels.
    """
    metric, mean = METRICS[metric_of(dataset)], paper_mean(1, "adaptive/none/Ours", dataset)
    panels = dict.fromkeys(panel for panel, _ in differences)
    places = [
        *((panel, float(getattr(Hyperparameters(), panel)), 0.0, True) for panel in panels),
        *((panel, value, difference, False) for (panel, value), difference in differences.items()),
    ]
    points = [
        {"dataset": dataset, "panel": panel, "value": value, "is_default": is_default, "metric": metric.name}
        | {"n": 10, "n_diverged": 0, "mean": mean + metric.sign * difference, "sd": 0.002}
        for panel, value, difference, is_default in places
    ]
    replicas = [
        {"dataset": dataset, "panel": panel, "value": value, "is_default": is_default, "seed": seed}
        | {"id": f"{'default' if is_default else (panel, value)} {seed}", "status": "finished"}
        | {"test": mean + metric.sign * difference, "test_qwk_alphabetical": mean + difference - 0.01 - 0.001 * seed}
        for panel, value, difference, is_default in places
        for seed in range(3)
    ]
    contrasts = [
        {"dataset": dataset, "panel": panel, "value": value} | contrast(metric.name, difference)
        for panel, value, difference, is_default in places
        if not is_default
    ]
    frames = {"points": points, "replicas": replicas, "significance": contrasts}
    return {name: pd.DataFrame(rows) for name, rows in frames.items()}


def masking_tables(dataset: str, chosen: str = "random") -> dict[str, pd.DataFrame]:
    """Two points of the grid, one of them chosen; test scores of the other are not shown."""
    rows = []
    for masking, mask_prob in (("none", 0.0), ("random", 0.3)):
        is_chosen = masking == chosen
        mean = paper_mean(1, f"adaptive/{masking}/Ours", dataset) if is_chosen else math.nan
        rows.append(
            {"dataset": dataset, "masking": masking, "mask_prob": mask_prob, "t_init": 2, "metric": metric_of(dataset)}
            | {"n": 10, "n_diverged": 0, "test_mean": mean, "test_sd": 0.001, "chosen": is_chosen}
        )
    return {"points": pd.DataFrame(rows)}


def variance_tables(dataset: str) -> dict[str, pd.DataFrame]:
    """Parts of sd .03 and .04, the split's below 0."""
    common = {"dataset": dataset, "metric": metric_of(dataset)}
    parts = [("split", -1e-4, 0.0), ("pretraining", 9e-4, 0.36), ("probe", 16e-4, 0.64), ("total", 144e-4, math.nan)]
    components = [
        {**common, "component": name, "variance": variance, "share": share, "sd": max(variance, 0) ** 0.5}
        | {"sd_low": 0.001, "sd_high": 0.2}
        for name, variance, share in parts
    ]
    points = [
        {**common, "seeds_vary": kind, "n": 10 - lost, "n_diverged": lost, "mean": mean, "sd": 0.05}
        for kind, mean, lost in (("probe", 0.91, 0), ("pretrain", 0.92, 0), ("split", 0.87, 1))
    ]
    return {"components": pd.DataFrame(components), "points": pd.DataFrame(points)}


def architecture_tables(dataset: str, **changed: Any) -> dict[str, pd.DataFrame]:
    """Tables of a study that chose depth 3, width 512, where the paper has 2 and 128."""
    same = {"dataset": dataset, "metric": metric_of(dataset), "n": 10}
    row = {
        **same,
        **{"chosen_depth": 3, "chosen_width": 512, "chosen_val_mean": 0.91, "chosen_test_mean": 0.89},
        **{"paper_depth": 2, "paper_width": 128, "paper_val_mean": 0.9, "paper_test_mean": 0.895},
        **{"difference": 0.01, "low": 0.004, "high": 0.016, "standard_error": 0.002},
        **{"within_one_standard_error": False, "reproduced": False, **changed},
    }
    points = [
        {**same, "n_diverged": 0, "depth": depth, "width": width, "val_mean": 0.9, "chosen": depth == 3}
        | {"paper": depth == 2}
        for depth, width in ((2, 128), (3, 512))
    ]
    return {"points": pd.DataFrame(points), "comparison": pd.DataFrame([row])}


def alternatives_table(dataset: str) -> dict[str, pd.DataFrame]:
    """A model that does not depend on its seed, and one that does."""
    rows = [("trees", 0, False, 0.75), ("forest", 0, True, 0.7), ("forest", 1, True, 0.8)]
    names = ["model", "seed", "depends_on_seed", "test"]
    scores = pd.DataFrame(rows, columns=names).assign(dataset=dataset, metric=metric_of(dataset))
    return {"scores": scores.assign(val=scores["test"] + 0.1)}


def search_tables(dataset: str, **changed: Any) -> dict[str, pd.DataFrame]:
    """Tables of a search of four trials, whose winner is trial 2; ``changed``: parts of its one contrast."""
    trials = pd.DataFrame({"trial": range(4), "state": ["complete", "pruned", "complete", "failed"]})
    same = {"dataset": dataset, "n": 10, "n_diverged": 0}
    confirmation = [
        {**same, "trial": 2, "is_default": False, "winner": True, "search_mean": 0.97, "val_mean": 0.96}
        | {"test_mean": 0.95, "test_sd": 0.01},
        {**same, "trial": 0, "is_default": True, "winner": False, "search_mean": 0.94, "val_mean": 0.94}
        | {"test_mean": 0.93, "test_sd": 0.01},
    ]
    row = {
        **contrast(metric_of(dataset), 0.02),
        **{"dataset": dataset, "trial": 2, "test": "wilcoxon", "p": 0.004, "low": 0.01, "high": 0.03},
        **changed,
    }
    return {
        "trials": trials,
        "confirmation": pd.DataFrame(confirmation),
        "significance": pd.DataFrame([row]),
    }
