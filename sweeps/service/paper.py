"""What the paper prints in its Tables 1 (linear probes), 3 (ablations) and 4 (fine-tuning), per number (arXiv
2606.19827)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from adaptbin.config import EncoderName
from adaptbin.metrics import Metric
from sweeps.service.methods_finetune import ENCODER_TITLES, FinetuneMethod

ABLATIONS = ("full", "w/o FWA", "w/o FPT", "w/o DIGS", "w/o HORD")
"""Lines of Table 3."""

_METHODS = {"ours": "Ours"}
"""Methods of Table 4 that the other tables write otherwise."""

_SLACK = 1e-9
"""Differences of two decimal numbers are not exact."""

_ROUNDING = 0.05
"""How much a printed sd may be below what was rounded."""


@dataclass(frozen=True)
class PaperScore:
    """One cell, in the paper's units: AUC, accuracy and QWK in percent, RMSE in target units."""

    mean: float
    sd: float
    """As printed, with one decimal: 0.0 is anything below 0.05."""

    def has(self, mean: float) -> bool:
        """Whether another mean in the same unit lies within the mean ± 1 sd, as printed."""
        return abs(mean - self.mean) <= self.sd + _SLACK

    def may_have(self, mean: float) -> bool:
        """Whether it lies so little outside that the sd before rounding may reach it."""
        return not self.has(mean) and abs(mean - self.mean) < self.sd + _ROUNDING - _SLACK


def paper_scale(metric: Metric) -> float:
    """Factor from our unit of a metric to the paper's."""
    return 1.0 if metric.in_target_units else 100.0


def linear_probe_scores() -> dict[str, dict[str, PaperScore]]:
    """Table 1: ``binning/masking/objective`` -> data set -> score, in the paper's order."""
    return {
        "/".join((row["binning"], row["masking"], row["objective"])): _scores(row["scores"])
        for row in _tables()["linear_probe"]
    }


def ablation_scores() -> dict[str, dict[str, PaperScore]]:
    """Table 3: one of :data:`ABLATIONS` -> data set -> score."""
    return {name: _scores(_tables()["ablation"][name]) for name in ABLATIONS}


def finetune_scores() -> dict[str, dict[str, PaperScore]]:
    """Table 4: ``encoder/method``, as in :func:`finetune_line` -> data set -> score."""
    return {
        f"{row['encoder']}/{_METHODS.get(row['method'], row['method'])}": _scores(row["scores"])
        for row in _tables()["finetune"]
    }


def finetune_line(encoder: EncoderName, method: FinetuneMethod) -> str:
    """``FT-Transformer/Ours``."""
    return f"{ENCODER_TITLES[encoder]}/{method}"


def _scores(cells: Mapping[str, Any]) -> dict[str, PaperScore]:
    return {dataset: PaperScore(float(mean), float(sd)) for dataset, (mean, sd) in cells.items()}


@cache
def _tables() -> dict[str, Any]:
    text = Path(__file__).with_name("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
