"""Result records made from a formula, for tests of tables, statistics and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adaptbin.config import Architecture, Hyperparameters, Replica
from sweeps.service.grid import GridStudy
from sweeps.service.methods import BenchmarkStudy, Method
from sweeps.service.methods_finetune import FinetuneStudy
from sweeps.service.panels import PanelPoint, SensitivityStudy
from sweeps.service.points import Study
from sweeps.service.variance import VarianceStudy
from sweeps.service.variants import AblationStudy

Scorer = Callable[[str, PanelPoint, int, np.random.Generator], float | None]
"""(data set, point, seed, noise of this replica) -> test score, or None for a replica that diverged."""

BenchmarkScorer = Callable[[str, Method, Hyperparameters, int], tuple[float, float] | None]
"""(data set, method, point, seed) -> validation and test score, or None for a replica that diverged."""

GridScorer = Callable[[Hyperparameters, int], tuple[float, float] | None]
"""(point, seed) -> validation and test score, or None for a replica that diverged."""

VariantScorer = Callable[[str, str, int], float | None]
"""(data set, name of the variant, seed) -> test score, or None for a replica that diverged."""

ArmScorer = Callable[[str, str, str, int], float | None]
"""(data set, encoder, method, seed) -> test score, or None for a replica that diverged."""

VarianceScorer = Callable[[Replica], Sequence[float] | None]
"""Replica -> test scores of its probes, or None where it diverged."""

PAPER = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text(encoding="utf-8"))

METRIC_OF = {
    **{"eol": "qwk", "mhr": "qwk", "ilpd": "auc", "hfc": "auc", "ctg": "accuracy", "esr": "accuracy"},
    **{"pt": "rmse", "bfp": "rmse"},
}
SECONDARY = {"qwk": "accuracy", "auc": "accuracy", "accuracy": "macro_f1", "rmse": "mae"}


@dataclass(frozen=True)
class FakeCard:
    """What a study and its tables read of a card."""

    key: str
    fingerprint: str = "0" * 64
    architecture: Architecture = Architecture(width=8, depth=1, batch_size=16)


def metrics_of(study: Study) -> dict[str, str]:
    """Primary metric per data set."""
    return {dataset: METRIC_OF.get(dataset, "auc") for dataset in study.datasets}


def make_records(study: SensitivityStudy, scorer: Scorer, *, target_sd: float = 1.0) -> list[dict[str, Any]]:
    """One record per replica of the study, with the schema that training writes."""
    records = {}
    for number, card in enumerate(study.cards):
        metric = METRIC_OF.get(card.key, "auc")
        for position, point in enumerate(study.points[card.key]):
            for seed in study.seeds:
                replica = study.replica(card, point.point, seed)
                if replica.id in records:
                    continue
                noise = np.random.default_rng([number, 0 if point.is_default else position + 1, seed])
                score = scorer(card.key, point, seed, noise)
                records[replica.id] = _record(replica, metric, None if score is None else (score, score), target_sd)
    return list(records.values())


def make_grid_records(study: GridStudy, scorer: GridScorer) -> list[dict[str, Any]]:
    """One record per replica of a grid study of one data set."""
    (card,), metrics = study.cards, metrics_of(study)
    return [
        _record(study.replica(card, point, seed), metrics[card.key], scorer(point, seed), 1.0)
        for point in study.points
        for seed in study.seeds
    ]


def make_ablation_records(study: AblationStudy, scorer: VariantScorer) -> list[dict[str, Any]]:
    """One record per replica of an ablation study; a variant without FWA neither triggers nor splits."""
    records = {}
    metrics = metrics_of(study)
    for card in study.cards:
        for variant in study.variants[card.key]:
            for seed in study.seeds:
                replica = study.replica(card, variant.hyperparameters, seed)
                if replica.id not in records:
                    score = scorer(card.key, variant.name, seed)
                    scores = None if score is None else (score, score)
                    record = _record(replica, metrics[card.key], scores, 1.0)
                    if variant.name == "w/o FWA":
                        record["bins"] |= {"final": [2, 2], "triggers": 0, "splits": 0}
                    records[replica.id] = record
    return list(records.values())


def make_finetune_records(study: FinetuneStudy, scorer: ArmScorer) -> list[dict[str, Any]]:
    """One record per replica of a fine-tuning study; only adaptive bins are refined."""
    records, metrics = [], metrics_of(study)
    for card in study.cards:
        for arm in study.arms:
            for seed in study.seeds:
                replica = study.replica(card, study.point_of(card.key, arm), seed)
                score = scorer(card.key, arm.encoder, arm.method, seed)
                record = _record(replica, metrics[card.key], None if score is None else (score, score), 1.0)
                if arm.method != "Ours":
                    record["bins"] = {"features": [], "final": [], "triggers": 0, "splits": 0}
                records.append(record)
    return records


GAINS = {"supervised": 0.0, "MR": 0.001, "BR": 0.004, "Ours": 0.012}


def gaining(gains: Mapping[str, float] | None = None, noise: float = 0.004, base: float = 0.9) -> ArmScorer:
    """Scores that share a seed effect, and that a method gains so much of; errors fall instead."""

    def score(dataset: str, encoder: str, method: str, seed: int) -> float:
        shared = 2 * noise * float(np.random.default_rng(seed).standard_normal())
        own = np.random.default_rng([seed, *encoder.encode(), *method.encode(), *dataset.encode()])
        sign = -1 if METRIC_OF.get(dataset, "auc") == "rmse" else 1
        gain = (GAINS if gains is None else gains).get(method, 0.0)
        return base + shared + sign * gain + noise * float(own.standard_normal())

    return score


def lacking(loss: Mapping[str, float], noise: float = 0.004, base: float = 0.9) -> VariantScorer:
    """Scores that share a seed effect, and that a variant loses so much of; errors rise instead."""

    def score(dataset: str, variant: str, seed: int) -> float:
        shared = 2 * noise * float(np.random.default_rng(seed).standard_normal())
        own = np.random.default_rng([seed, *variant.encode(), *dataset.encode()])
        sign = -1 if METRIC_OF.get(dataset, "auc") == "rmse" else 1
        return base + shared - sign * loss.get(variant, 0.0) + noise * float(own.standard_normal())

    return score


def make_variance_records(study: VarianceStudy, scorer: VarianceScorer) -> list[dict[str, Any]]:
    """One record per replica of a variance study of one data set."""
    (card,), metrics = study.cards, metrics_of(study)
    records = []
    for replica in study.replicas[card.key]:
        probes, metric = scorer(replica), metrics[card.key]
        mean = None if probes is None else float(np.mean(probes))
        record = _record(replica, metric, None if mean is None else (mean, mean), 1.0)
        record["probes"] = [{"best_epoch": 1, "val": {}, "test": {metric: score}} for score in probes or ()]
        records.append(record)
    return records


def make_benchmark_records(study: BenchmarkStudy, scorer: BenchmarkScorer) -> list[dict[str, Any]]:
    """One record per replica of a benchmark of any data sets."""
    records = []
    for dataset in study.datasets:

        def score(point: Hyperparameters, seed: int, dataset: str = dataset) -> tuple[float, float] | None:
            return scorer(dataset, study.method_of(point), point, seed)

        records += make_grid_records(study.only(dataset), score)
    return records


def _record(replica: Replica, metric: str, scores: tuple[float, float] | None, sd: float) -> dict[str, Any]:
    finished = scores is not None
    val, test = ({metric: score, SECONDARY[metric]: score - 0.03} for score in scores) if finished else ({}, {})
    return {
        "schema": 1,
        "id": replica.id,
        "identity": replica.identity(),
        "status": "finished" if finished else "diverged",
        "diverged_at": None if finished else 17,
        "scores": {"val": val, "test": test},
        "probes": [],
        "test_bootstrap_se": {metric: 0.019} if finished else {},
        "n_rows": {"train": 1350, "val": 338, "test": 423},
        "target_sd": sd,
        "bins": {"features": ["a", "b"], "final": [12, 8], "triggers": 210, "splits": 160},
        "curves": {},
        "unseen": {},
        "runtime": {"seconds": 12.5, "core_seconds": 12.5, "device": "cpu", "threads": 1, "pack_size": 21},
    }


def drifting(effect: float = 0.02, noise: float = 0.004, base: float = 0.9) -> Scorer:
    """Scores that share a seed effect and fall as a value moves away from the default; errors rise instead."""

    def score(dataset: str, point: PanelPoint, seed: int, generator: np.random.Generator) -> float:
        shared = 2 * noise * float(np.random.default_rng(seed).standard_normal())
        default = {"w_sord": 10, "w_mse": 0.1, "w_var": 1e-3, "patience": 5, "tau": 1e-4}[point.panel]
        distance = abs(np.log10(max(point.value, 1e-4)) - np.log10(default)) * {"tau": 1.0}.get(point.panel, 0.25)
        sign = -1 if METRIC_OF.get(dataset, "auc") == "rmse" else 1
        return base + shared + sign * (-effect * distance) + noise * float(generator.standard_normal())

    return score


def peaked(best: Hyperparameters, noise: float = 0.002) -> GridScorer:
    """Validation scores that are highest at one point, by 0.01; test scores tell nothing of them."""

    def score(point: Hyperparameters, seed: int) -> tuple[float, float]:
        generator = np.random.default_rng([int(100 * point.mask_prob), point.t_init, len(point.masking), seed])
        shared = 0.02 * float(np.random.default_rng(seed).standard_normal())
        val = 0.9 + shared + 0.01 * (point == best) + noise * float(generator.standard_normal())
        return val, float(generator.uniform(0.4, 0.6))

    return score


def as_printed(dataset: str, method: Method, point: Hyperparameters, seed: int) -> tuple[float, float]:
    """Scores around the paper's of Table 1, on both parts; validation prefers p_m .2 and T 10 by .01 each."""
    (row,) = (r for r in PAPER["linear_probe"] if (r["binning"], r["masking"], r["objective"]) == method.words)
    mean, sd = row["scores"][dataset]
    scale, sign = (1.0, -1) if METRIC_OF[dataset] == "rmse" else (0.01, 1)
    generator = np.random.default_rng([seed, *method.name.encode(), int(100 * point.mask_prob), point.t_init])
    noise = scale * max(sd, 0.05) * generator.standard_normal(2)
    tuned = 0.01 * ((point.mask_prob == 0.2) + (point.t_init == 10))
    return scale * mean + sign * tuned + noise[0] / 10, scale * mean + noise[1]


def seeds(n: int) -> Sequence[int]:
    """Seeds 0 to n - 1."""
    return tuple(range(n))
