"""Result records made from a formula, for tests of tables, statistics and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptbin.config import Architecture
from sweeps.service.panels import PanelPoint, SensitivityStudy
from sweeps.service.points import Study

Scorer = Callable[[str, PanelPoint, int, np.random.Generator], float | None]
"""(data set, point, seed, noise of this replica) -> test score, or None for a replica that diverged."""

METRIC_OF = {"eol": "qwk", "hfc": "auc", "ctg": "accuracy", "pt": "rmse", "bfp": "rmse"}
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
                replica = study.replica(card, point.hyperparameters, seed)
                if replica.id in records:
                    continue
                noise = np.random.default_rng([number, 0 if point.is_default else position + 1, seed])
                score = scorer(card.key, point, seed, noise)
                records[replica.id] = _record(replica.id, replica.identity(), metric, score, target_sd)
    return list(records.values())


def _record(identity_id: str, identity: dict[str, Any], metric: str, score: float | None, sd: float) -> dict[str, Any]:
    finished = score is not None
    scores = {metric: score, SECONDARY[metric]: score - 0.03} if finished else {}
    return {
        "schema": 1,
        "id": identity_id,
        "identity": identity,
        "status": "finished" if finished else "diverged",
        "diverged_at": None if finished else 17,
        "scores": {"val": dict(scores), "test": dict(scores)},
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


def seeds(n: int) -> Sequence[int]:
    """Seeds 0 to n - 1."""
    return tuple(range(n))
