"""Panels, the shared default point, and what a sensitivity study asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import CARDS, get_card
from adaptbin.errors import ConfigError
from sweeps.service.panels import PANELS, Panel, SensitivityStudy, get_panels

PAPER = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def test_panels_are_the_papers() -> None:
    assert {key: list(panel.values) for key, panel in PANELS.items()} == PAPER["sensitivity_grids"]
    assert [panel.letter for panel in PANELS.values()] == ["a", "b", "c", "d", "e"]
    assert {key: getattr(Hyperparameters(), PANELS[key].field) for key in PANELS} == PAPER["defaults"]


def test_the_default_point_is_shared() -> None:
    study = SensitivityStudy(cards=(get_card("eol"),))
    assert len(study.points["eol"]) == 25
    assert sum(point.is_default for point in study.points["eol"]) == 5
    assert len(study.unique_points) == 21
    assert study.unique_points[0] == Hyperparameters()
    assert len(study.replicas["eol"]) == 210
    assert len({replica.id for replica in study.all_replicas}) == 210


def test_each_point_moves_its_own_field_only() -> None:
    for point in SensitivityStudy(cards=(get_card("eol"),)).points["eol"]:
        moved = {k: v for k, v in point.hyperparameters.to_dict().items() if v != Hyperparameters().to_dict()[k]}
        assert moved == ({} if point.is_default else {PANELS[point.panel].field: point.value})


def test_replicas_carry_everything_that_was_asked_for() -> None:
    default = Hyperparameters(masking="random", mask_prob=0.3, t_init=10)
    study = SensitivityStudy(
        cards=(get_card("eol"), get_card("hfc")),
        panels=get_panels(["tau"]),
        default=default,
        seeds=(4, 7),
        seeds_vary="split",
        protocol=Protocol.named("released"),
        budget=Budget(epochs=3),
    )
    assert study.datasets == ("eol", "hfc")
    assert len(study.all_replicas) == 2 * 5 * 2
    for replica in study.all_replicas:
        assert (replica.hyperparameters.masking, replica.hyperparameters.t_init) == ("random", 10)
        assert replica.architecture == CARDS[replica.dataset].architecture
        assert replica.fingerprint == CARDS[replica.dataset].fingerprint
        assert (replica.seeds_vary, replica.protocol, replica.budget.epochs) == ("split", study.protocol, 3)
    assert {replica.seed for replica in study.all_replicas} == {4, 7}
    assert study.only("hfc").all_replicas == study.replicas["hfc"]


def test_a_panel_without_the_default_gets_it() -> None:
    panel = Panel("t_init", "T", "t_init", (5, 10), "a")
    study = SensitivityStudy(cards=(get_card("eol"),), panels=(panel,), seeds=(0,))
    assert study.panels[0].values == (2, 5, 10)
    assert [point.is_default for point in study.points["eol"]] == [True, False, False]


def test_panels_come_in_the_figures_order() -> None:
    assert [panel.key for panel in get_panels(["tau", "w_sord", "tau"])] == ["w_sord", "tau"]


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown panel 'taw'; did you mean 'tau'"):
        get_panels(["taw"])
    with pytest.raises(ConfigError, match="at least one seed, each named once, got \\[1, 1\\]"):
        SensitivityStudy(cards=(get_card("eol"),), seeds=(1, 1))
    with pytest.raises(ConfigError, match="at least one data set"):
        SensitivityStudy(cards=())


def test_values_come_and_go_in_order() -> None:
    study = SensitivityStudy(cards=(get_card("eol"),), panels=get_panels(["tau", "patience"]), seeds=(0,))
    more = study.with_value("tau", 0.003).with_value("patience", 7.0)
    assert more.extent == {"patience": [3, 5, 7, 10, 20, 50], "tau": [1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 1e-1]}
    assert len(more.unique_points) == len(study.unique_points) + 2
    assert more.without_value("tau", 0.003).without_value("patience", 7) == study
    assert more.option_for("tau=0.003") == "--value tau=0.003"
    for change, key, value, message in (
        ("with_value", "tau", 0.1, "a value to add must be a new one, got tau=0.1 of 1e-05, 0.0001"),
        ("with_value", "tau", -1.0, "tau must be a finite number >= 0, got -1.0"),
        ("with_value", "w_mse", 1.0, "unknown panel of this study 'w_mse'"),
        ("without_value", "tau", 0.5, "a value to cancel must be one of 1e-05, .*, got tau=0.5"),
        ("without_value", "patience", 5, "the default, which all points are compared with, must stay, got patience=5"),
    ):
        with pytest.raises(ConfigError, match=message):
            getattr(study, change)(key, value)
