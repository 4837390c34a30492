"""The masking grid: its points, and what may be added to it and taken from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.grid import MaskingStudy, point_words

PAPER = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def test_the_grid_is_the_papers() -> None:
    study = MaskingStudy(cards=(get_card("eol"), get_card("hfc")))
    assert len(study.points) == 14 and study.points[0] == Hyperparameters()
    assert study.unique_points_of("hfc") == study.unique_points == study.points
    assert len(study.all_replicas) == len({replica.id for replica in study.all_replicas}) == 2 * 14 * 10
    named = {row["masking"] for row in PAPER["linear_probe"] if row["objective"] == "Ours"}
    assert {point.masking for point in study.points} == named == {"none", "constant", "random"}
    for point in study.points:
        moved = {k for k, v in point.to_dict().items() if v != Hyperparameters().to_dict()[k]}
        assert moved <= {"masking", "mask_prob", "t_init"}
    grid = [(point.masking, point.mask_prob, point.t_init) for point in study.points]
    assert grid[:4] == [("none", 0, 2), ("none", 0, 10), ("constant", 0.1, 2), ("constant", 0.1, 10)]
    assert grid[-1] == ("random", 0.3, 10)


def test_replicas_carry_everything_that_was_asked_for() -> None:
    study = MaskingStudy(
        cards=(get_card("eol"),),
        seeds=(4, 7),
        seeds_vary="split",
        protocol=Protocol.named("released"),
        budget=Budget(epochs=3),
    )
    assert [replica.seed for replica in study.all_replicas] == [4] * 14 + [7] * 14
    for replica in study.all_replicas:
        assert (replica.seeds_vary, replica.protocol, replica.budget.epochs) == ("split", study.protocol, 3)
    assert study.only_seeds([7]).all_replicas == study.all_replicas[14:]


def test_default_points_are_shared_with_the_sensitivity_study() -> None:
    from sweeps.service.panels import SensitivityStudy

    masking, sensitivity = MaskingStudy(cards=(get_card("eol"),)), SensitivityStudy(cards=(get_card("eol"),))
    shared = {replica.id for replica in masking.all_replicas} & {replica.id for replica in sensitivity.all_replicas}
    assert len(shared) == 10


def test_values_come_and_go_in_order() -> None:
    study = MaskingStudy(cards=(get_card("eol"),), seeds=(0,))
    more = study.with_value("mask_prob", 0.15).with_value("t_init", 5.0)
    assert more.extent == {
        "masking": ["none", "constant", "random"],
        "mask_prob": [0.1, 0.15, 0.2, 0.3],
        "t_init": [2, 5, 10],
    }
    assert len(more.points) == 3 + 2 * 4 * 3
    assert more.without_value("t_init", 5).without_value("mask_prob", 0.15) == study
    assert {replica.id for replica in study.all_replicas} < {replica.id for replica in more.all_replicas}
    fewer = study.without_value("t_init", 2)
    assert {point.t_init for point in fewer.points} == {10} and len(fewer.points) == 7


@pytest.mark.parametrize(
    ("change", "key", "value", "message"),
    [
        ("with_value", "mask_prob", 0.2, "a value to add must be a new one, got mask_prob=0.2 of 0.1, 0.2, 0.3"),
        ("with_value", "mask_prob", 1.0, r"mask_prob must be in \[0, 1\), got 1.0"),
        ("with_value", "mask_prob", 0.0, "above 0 otherwise, got masking 'constant' with mask_prob 0.0"),
        ("with_value", "t_init", 2.5, "t_init must be a whole number >= 2, got 2.5"),
        ("with_value", "tau", 0.1, r"unknown side of this grid 'tau' \(known: mask_prob, t_init\)"),
        ("without_value", "t_init", 3, "a value to cancel must be one of 2, 10, got t_init=3"),
        ("without_value", "maskprob", 0.1, "did you mean 'mask_prob'"),
    ],
)
def test_what_is_refused(change: str, key: str, value: float, message: str) -> None:
    study = MaskingStudy(cards=(get_card("eol"),), seeds=(0,))
    with pytest.raises(ConfigError, match=message):
        getattr(study, change)(key, value)


def test_the_last_value_of_a_side_must_stay() -> None:
    study = MaskingStudy(cards=(get_card("eol"),), t_inits=(2,))
    with pytest.raises(ConfigError, match="one value must stay, got t_init=2, the last one"):
        study.without_value("t_init", 2)
    with pytest.raises(ConfigError, match="at least one data set"):
        MaskingStudy(cards=())
    with pytest.raises(ConfigError, match="at least one seed, each named once, got \\[1, 1\\]"):
        MaskingStudy(cards=(get_card("eol"),), seeds=(1, 1))


def test_points_in_words() -> None:
    assert point_words(Hyperparameters()) == "none, T_init 2"
    assert point_words(Hyperparameters(masking="random", mask_prob=0.3, t_init=10)) == "random, p_m 0.3, T_init 10"
