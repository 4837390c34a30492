"""The ablation study: full, what each variant changes of it, and what may be added and taken away."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import get_card
from adaptbin.errors import ConfigError
from sweeps.service.panels import SensitivityStudy
from sweeps.service.variants import GROUPS, AblationStudy
from tests.service.test_choice import choice_of

PAPER = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())
FULL = Hyperparameters()
CHANGED = {
    "full": {},
    "w/o FWA": {"t_max": 2},
    "w/o FPT": {"refine_every": 6},
    "w/o DIGS": {"split_score": "variance"},
    "w/o HORD": {"pretext": "adaptive_bin_recon"},
    "w/o Gain_var": {"split_score": "dispersion"},
    "T_max 10": {"t_max": 10},
    "T_max 50": {"t_max": 50},
}


def test_each_variant_changes_one_thing_of_full() -> None:
    variants = AblationStudy(cards=(get_card("eol"),)).variants["eol"]
    assert {variant.name: dict(variant.changed) for variant in variants} == CHANGED
    for variant in variants:
        assert variant.hyperparameters == replace(FULL, **CHANGED[variant.name])
        ((field, value),) = CHANGED[variant.name].items() or [("", "")]
        assert variant.changes == (f"{field} = {value}" if field else "nothing")
        assert not variant.is_same_point and variant.is_full == (variant.name == "full")


def test_the_first_group_is_the_papers_table() -> None:
    variants = AblationStudy(cards=(get_card("eol"),)).variants["eol"]
    assert {v.name for v in variants if v.group in ("full", "paper")} == PAPER["ablation"].keys()
    assert [v.group for v in variants] == ["full"] + ["paper"] * 4 + ["further"] * 3
    assert list(GROUPS) == ["paper", "further"]


def test_full_is_each_data_sets_own_default_point_and_shared_with_other_studies() -> None:
    cards = [get_card("eol"), get_card("hfc")]
    chosen = choice_of(hyperparameters=Hyperparameters(masking="random", mask_prob=0.2, t_init=10))
    study = AblationStudy(cards=tuple(cards), choices={"eol": chosen}, t_maxs=(50,), seeds=(0, 1))
    by_name = {v.name: v.hyperparameters for v in study.variants["eol"]}
    assert by_name["full"] == chosen.hyperparameters == study.unique_points_of("eol")[0]
    assert by_name["w/o FWA"] == replace(chosen.hyperparameters, t_max=10)
    assert {v.name: v.hyperparameters for v in study.variants["hfc"]}["w/o FWA"] == replace(FULL, t_max=2)
    assert study.extent["t_max"] == [10, 50, 2]
    sensitivity = SensitivityStudy(cards=tuple(cards), choices={"eol": chosen}, seeds=(0, 1))
    shared = {r.id for r in study.all_replicas} & {r.id for r in sensitivity.all_replicas}
    assert shared == {r.id for r in study.all_replicas if r.hyperparameters == study.default_of(r.dataset)}


def test_usual_bounds_are_those_above_the_bins_that_all_data_sets_start_with() -> None:
    cards = (get_card("eol"), get_card("hfc"))
    chosen = choice_of("hfc")
    assert chosen.hyperparameters.t_init == 10
    study = AblationStudy(cards=cards, choices={"hfc": chosen}, seeds=(0,))
    assert study.bounds == study.only("hfc").bounds == study.only("eol").bounds == (50,)
    assert [v.name for v in study.variants["eol"] if v.name.startswith("T_max")] == ["T_max 50"]
    assert AblationStudy(cards=cards, default=Hyperparameters(t_init=60), seeds=(0,)).bounds == ()
    assert AblationStudy(cards=cards, default=Hyperparameters(t_max=50), seeds=(0,)).bounds == (10,)


def test_replicas_carry_everything_that_was_asked_for() -> None:
    study = AblationStudy(
        cards=(get_card("eol"),),
        refine_every=3,
        t_maxs=(50, 20),
        seeds=(4, 7),
        seeds_vary="split",
        protocol=Protocol.named("released"),
        budget=Budget(epochs=3),
    )
    assert [replica.seed for replica in study.all_replicas] == [4] * 8 + [7] * 8
    assert study.extent == {
        "t_max": [2, 20, 50],
        "refine_every": [3],
        "split_score": ["variance", "dispersion"],
        "pretext": ["adaptive_bin_recon"],
    }
    for replica in study.all_replicas:
        assert (replica.seeds_vary, replica.protocol, replica.budget.epochs) == ("split", study.protocol, 3)
    assert study.only("eol").all_replicas == study.all_replicas
    assert study.only_seeds([7]).all_replicas == study.all_replicas[8:]


def test_the_clock_ticks_as_often_as_fpt_can_trigger() -> None:
    patient = AblationStudy(cards=(get_card("eol"),), default=Hyperparameters(patience=9))
    assert patient.extent["refine_every"] == [10]


def test_a_variant_that_is_full_itself_is_trained_once() -> None:
    study = AblationStudy(cards=(get_card("eol"),), default=Hyperparameters(t_max=2), t_maxs=(10,), seeds=(0,))
    (same,) = (variant for variant in study.variants["eol"] if variant.is_same_point)
    assert (same.name, same.changes, same.hyperparameters) == ("w/o FWA", "nothing", study.default)
    assert len(study.variants["eol"]) == 7 and len(study.unique_points) == len(study.all_replicas) == 6


def test_values_of_t_max_come_and_go_in_order() -> None:
    study = AblationStudy(cards=(get_card("eol"),), seeds=(0,))
    more = study.with_value("t_max", 20.0)
    assert more.bounds == (10, 20, 50) and more.option_for("t_max=20") == "--t-max 10,20,50"
    assert {r.id for r in more.all_replicas} > {r.id for r in study.all_replicas}
    assert more.without_value("t_max", 20) == study
    none = study.without_value("t_max", 10).without_value("t_max", 50)
    assert [variant.name for variant in none.variants["eol"]][5:] == ["w/o Gain_var"]


@pytest.mark.parametrize(
    ("change", "key", "value", "message"),
    [
        ("with_value", "t_max", 50, "a value to add must be a new one, got t_max=50 of 10, 50"),
        ("with_value", "t_max", 2, "t_max must be whole and above t_init, 2 for eol, got 2"),
        ("with_value", "t_max", 20.5, "t_max must be whole and above t_init, 2 for eol, got 20.5"),
        ("with_value", "t_max", 200, "t_max must differ from that of full, 200 for eol, got 200"),
        ("with_value", "tau", 0.1, "only values of t_max can be added to an ablation and cancelled, got tau=0.1"),
        ("without_value", "t_max", 20, "a value to cancel must be one of 10, 50, got t_max=20"),
        ("without_value", "split_score", 1, "only values of t_max can be added to an ablation and cancelled"),
    ],
)
def test_what_is_refused(change: str, key: str, value: float, message: str) -> None:
    study = AblationStudy(cards=(get_card("eol"),), seeds=(0,))
    with pytest.raises(ConfigError, match=message):
        getattr(study, change)(key, value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refine_every": 0}, "refine_every must be a whole number >= 1, got 0"),
        ({"t_maxs": (10, 50, 10)}, "each t_max must be given once, got 10, 10, 50"),
        ({"t_maxs": (10, 200)}, "t_max must differ from that of full, 200 for eol, got 200"),
        (
            {"default": Hyperparameters(t_init=10), "t_maxs": (10, 50)},
            "t_max must be whole and above t_init, 10 for eol, got 10",
        ),
        (
            {"default": Hyperparameters(pretext="bin_recon")},
            "full must have all parts of the method, pretext 'adaptive_binning', got 'bin_recon' for eol",
        ),
        ({"default": Hyperparameters(refine_every=6)}, "refine_every 0, got 6 for eol"),
        ({"default": Hyperparameters(split_score="variance")}, "split_score 'product', got 'variance' for eol"),
        (
            {"choices": {"eol": choice_of(hyperparameters=Hyperparameters(t_init=50))}, "t_maxs": (10,)},
            "50 for eol, got 10",
        ),
        ({"seeds": (1, 1)}, "at least one seed, each named once"),
    ],
)
def test_a_full_method_that_lacks_a_part_or_a_bound_that_is_none(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AblationStudy(cards=(get_card("eol"),), **options)
    with pytest.raises(ConfigError, match="at least one data set"):
        AblationStudy(cards=())
