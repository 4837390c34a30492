"""The paper's tables as package data, and its numbers one by one."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from adaptbin.data import get_card
from adaptbin.metrics import get_metric
from sweeps.service.methods_finetune import ENCODERS, METHODS
from sweeps.service.paper import (
    ABLATIONS,
    PaperScore,
    ablation_scores,
    finetune_line,
    finetune_scores,
    linear_probe_scores,
    paper_scale,
)
from sweeps.service.variants import AblationStudy

GOLDEN = Path(__file__).parents[1] / "golden" / "paper_tables.json"


def test_the_package_has_the_same_tables_as_the_tests() -> None:
    packaged = json.loads((files("sweeps.service") / "paper_tables.json").read_text(encoding="utf-8"))
    assert packaged == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_table_1_has_thirteen_lines_of_eight_data_sets() -> None:
    scores = linear_probe_scores()
    assert len(scores) == 13 and all(len(line) == 8 for line in scores.values())
    assert scores["adaptive/none/Ours"]["eol"] == PaperScore(93.78, 0.4)


def test_table_4_has_every_encoder_and_method_of_the_fine_tuning_study() -> None:
    lines = [finetune_line(encoder, method) for encoder in ENCODERS for method in METHODS]
    assert list(finetune_scores()) == lines and len(lines) == 20
    assert all(scores.keys() == {"hfc", "esr", "eol", "bfp"} for scores in finetune_scores().values())
    assert finetune_scores()["FT-Transformer/Ours"]["esr"] == PaperScore(75.97, 0.7)


def test_table_3_has_full_and_four_ablations() -> None:
    assert tuple(ablation_scores()) == ABLATIONS
    assert ablation_scores()["w/o FPT"]["pt"] == PaperScore(14.2, 0.2)
    variants = AblationStudy(cards=(get_card("eol"),)).variants["eol"]
    assert tuple(variant.name for variant in variants if variant.group != "further") == ABLATIONS


@pytest.mark.parametrize(
    ("mean", "is_within"), [(93.78, True), (94.18, True), (93.38, True), (94.19, False), (93.37, False)]
)
def test_the_ends_of_one_sd_are_within(mean: float, is_within: bool) -> None:
    assert PaperScore(93.78, 0.4).has(mean) is is_within


@pytest.mark.parametrize(
    ("mean", "may_be"), [(93.78, False), (94.18, False), (94.19, True), (94.22, True), (94.23, False), (93.34, True)]
)
def test_just_outside_the_sd_before_rounding_may_reach(mean: float, may_be: bool) -> None:
    assert PaperScore(93.78, 0.4).may_have(mean) is may_be


def test_scores_are_in_percent_and_errors_in_target_units() -> None:
    assert paper_scale(get_metric("qwk")) == 100
    assert paper_scale(get_metric("rmse")) == 1
