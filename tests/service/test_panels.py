"""Panels, the shared default point, and what a study asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptbin.config import Budget, Hyperparameters, Protocol
from adaptbin.data import CARDS, get_card
from adaptbin.errors import ConfigError
from sweeps.service.panels import PANELS, Panel, get_panels, sensitivity_study

PAPER = json.loads((Path(__file__).parents[1] / "golden" / "paper_tables.json").read_text())


def test_panels_are_the_papers() -> None:
    assert {key: list(panel.values) for key, panel in PANELS.items()} == PAPER["sensitivity_grids"]
    assert [panel.letter for panel in PANELS.values()] == ["a", "b", "c", "d", "e"]
    assert {key: getattr(Hyperparameters(), PANELS[key].field) for key in PANELS} == PAPER["defaults"]


def test_the_default_point_is_shared() -> None:
    study = sensitivity_study([get_card("eol")])
    assert len(study.points["eol"]) == 25
    assert sum(point.is_default for point in study.points["eol"]) == 5
    assert len(study.unique_points) == 21
    assert study.unique_points[0] == Hyperparameters()
    assert len(study.replicas["eol"]) == 210
    assert len({replica.id for replica in study.all_replicas}) == 210


def test_each_point_moves_its_own_field_only() -> None:
    for point in sensitivity_study([get_card("eol")]).points["eol"]:
        moved = {k: v for k, v in point.hyperparameters.to_dict().items() if v != Hyperparameters().to_dict()[k]}
        assert moved == ({} if point.is_default else {PANELS[point.panel].field: point.value})


def test_replicas_carry_everything_that_was_asked_for() -> None:
    default = Hyperparameters(masking="random", mask_prob=0.3, t_init=10)
    study = sensitivity_study(
        [get_card("eol"), get_card("hfc")],
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
    study = sensitivity_study([get_card("eol")], panels=[panel], seeds=(0,))
    assert study.panels[0].values == (2, 5, 10)
    assert [point.is_default for point in study.points["eol"]] == [True, False, False]


def test_panels_come_in_the_figures_order() -> None:
    assert [panel.key for panel in get_panels(["tau", "w_sord", "tau"])] == ["w_sord", "tau"]


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown panel 'taw'; did you mean 'tau'"):
        get_panels(["taw"])
    with pytest.raises(ConfigError, match="at least one seed, each named once, got \\[1, 1\\]"):
        sensitivity_study([get_card("eol")], seeds=(1, 1))
    with pytest.raises(ConfigError, match="at least one data set"):
        sensitivity_study([])
